import io.hearth.mapreduce.SmallFilesInputFormat;
import io.hearth.mapreduce.SmallFilesMapredInputFormat;
import java.io.IOException;
import java.security.MessageDigest;
import java.security.NoSuchAlgorithmException;
import org.apache.hadoop.conf.Configured;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.io.BytesWritable;
import org.apache.hadoop.io.Text;
import org.apache.hadoop.mapred.JobClient;
import org.apache.hadoop.mapred.JobConf;
import org.apache.hadoop.mapred.MapReduceBase;
import org.apache.hadoop.mapred.OutputCollector;
import org.apache.hadoop.mapred.Reporter;
import org.apache.hadoop.mapreduce.Counters;
import org.apache.hadoop.mapreduce.InputSplit;
import org.apache.hadoop.mapreduce.Job;
import org.apache.hadoop.mapreduce.Mapper;
import org.apache.hadoop.mapreduce.lib.input.CombineFileSplit;
import org.apache.hadoop.mapreduce.lib.input.FileInputFormat;
import org.apache.hadoop.mapreduce.lib.output.FileOutputFormat;
import org.apache.hadoop.util.Tool;
import org.apache.hadoop.util.ToolRunner;

/**
 * A job over many small files: its output has a line for each, with the path, the length and the SHA-256. Arguments: the
 * interface ({@code mapreduce} or {@code mapred}), input and output. Prints the splits and the counters as lines
 * `= NAME: VALUE`.
 */
public final class SmallFiles extends Configured implements Tool {
    public static void main(String[] arguments) throws Exception {
        System.exit(ToolRunner.run(new SmallFiles(), arguments));
    }

    @Override
    public int run(String[] arguments) throws Exception {
        Path input = new Path(arguments[1]);
        Path output = new Path(arguments[2]);
        return arguments[0].equals("mapred") ? older(input, output) : newer(input, output);
    }

    private int newer(Path input, Path output) throws Exception {
        Job job = Job.getInstance(getConf(), "small files");
        job.setJarByClass(SmallFiles.class);
        job.setInputFormatClass(SmallFilesInputFormat.class);
        job.setMapperClass(Sums.class);
        job.setOutputKeyClass(Text.class);
        job.setOutputValueClass(Text.class);
        FileInputFormat.addInputPath(job, input);
        FileOutputFormat.setOutputPath(job, output);
        for (InputSplit split : new SmallFilesInputFormat().getSplits(job)) {
            CombineFileSplit files = (CombineFileSplit) split;
            say("split", files.getNumPaths() + " files, " + files.getLength() + " bytes, "
                    + files.getLocations().length + " hosts");
        }
        if (!job.waitForCompletion(false)) {
            return 1;
        }
        Counters counters = job.getCounters();
        for (String name : new String[] {SmallFilesInputFormat.READ_TOGETHER, SmallFilesInputFormat.READ_ALONE}) {
            say(name, counters.findCounter(SmallFilesInputFormat.COUNTERS, name).getValue());
        }
        return 0;
    }

    private int older(Path input, Path output) throws IOException {
        JobConf job = new JobConf(getConf(), SmallFiles.class);
        job.setJobName("small files");
        job.setInputFormat(SmallFilesMapredInputFormat.class);
        job.setMapperClass(OlderSums.class);
        job.setOutputKeyClass(Text.class);
        job.setOutputValueClass(Text.class);
        org.apache.hadoop.mapred.FileInputFormat.setInputPaths(job, input);
        org.apache.hadoop.mapred.FileOutputFormat.setOutputPath(job, output);
        org.apache.hadoop.mapred.Counters counters = JobClient.runJob(job).getCounters();
        for (String name : new String[] {SmallFilesInputFormat.READ_TOGETHER, SmallFilesInputFormat.READ_ALONE}) {
            say(name, counters.findCounter(SmallFilesInputFormat.COUNTERS, name).getValue());
        }
        return 0;
    }

    private static void say(String name, Object value) {
        System.out.println("= " + name + ": " + value);
    }

    private static Text path(Text key) {
        return new Text(new Path(key.toString()).toUri().getPath());
    }

    private static Text sum(BytesWritable value) throws IOException {
        try {
            MessageDigest digest = MessageDigest.getInstance("SHA-256");
            digest.update(value.getBytes(), 0, value.getLength());
            StringBuilder text = new StringBuilder().append(value.getLength()).append(' ');
            for (byte each : digest.digest()) {
                text.append(String.format("%02x", each));
            }
            return new Text(text.toString());
        } catch (NoSuchAlgorithmException e) {
            throw new IOException(e);
        }
    }

    /** Sums a file. */
    public static final class Sums extends Mapper<Text, BytesWritable, Text, Text> {
        @Override
        protected void map(Text key, BytesWritable value, Context context) throws IOException, InterruptedException {
            context.write(path(key), sum(value));
        }
    }

    /** Sums a file. */
    public static final class OlderSums extends MapReduceBase
            implements org.apache.hadoop.mapred.Mapper<Text, BytesWritable, Text, Text> {
        @Override
        public void map(Text key, BytesWritable value, OutputCollector<Text, Text> output, Reporter reporter)
                throws IOException {
            output.collect(path(key), sum(value));
        }
    }
}
