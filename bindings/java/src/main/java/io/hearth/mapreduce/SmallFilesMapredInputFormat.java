package io.hearth.mapreduce;

import java.io.IOException;
import java.util.List;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.io.BytesWritable;
import org.apache.hadoop.io.Text;
import org.apache.hadoop.mapred.FileInputFormat;
import org.apache.hadoop.mapred.InputSplit;
import org.apache.hadoop.mapred.JobConf;
import org.apache.hadoop.mapred.RecordReader;
import org.apache.hadoop.mapred.Reporter;
import org.apache.hadoop.mapred.lib.CombineFileSplit;
import org.apache.hadoop.mapreduce.Job;

/**
 * {@link SmallFilesInputFormat} for the older {@code org.apache.hadoop.mapred}, such as {@code -inputformat} of Hadoop
 * Streaming. Keys and values are those that the program passes in.
 */
public class SmallFilesMapredInputFormat extends FileInputFormat<Text, BytesWritable> {
    /** Called by Hadoop. */
    public SmallFilesMapredInputFormat() {
    }

    @Override
    protected boolean isSplitable(FileSystem fs, Path file) {
        return false;
    }

    @Override
    public InputSplit[] getSplits(JobConf job, int count) throws IOException {
        Job copy = Job.getInstance(job);
        List<org.apache.hadoop.mapreduce.InputSplit> made = new SmallFilesInputFormat().getSplits(copy);
        // It was set in the copy.
        job.setLong(NUM_INPUT_FILES, copy.getConfiguration().getLong(NUM_INPUT_FILES, 0));
        InputSplit[] splits = new InputSplit[made.size()];
        for (int i = 0; i < splits.length; i++) {
            org.apache.hadoop.mapreduce.lib.input.CombineFileSplit split =
                    (org.apache.hadoop.mapreduce.lib.input.CombineFileSplit) made.get(i);
            splits[i] = new CombineFileSplit(job, split.getPaths(), split.getStartOffsets(), split.getLengths(),
                    split.getLocations());
        }
        return splits;
    }

    @Override
    public RecordReader<Text, BytesWritable> getRecordReader(InputSplit split, JobConf job, Reporter reporter) {
        CombineFileSplit combined = (CombineFileSplit) split;
        return new Records(new SmallFilesReader(job, combined.getPaths(), combined.getLengths(),
                (name, count) -> reporter.incrCounter(SmallFilesInputFormat.COUNTERS, name, count)));
    }

    /** Records of a split. */
    private static final class Records implements RecordReader<Text, BytesWritable> {
        private final SmallFilesReader files;

        Records(SmallFilesReader files) {
            this.files = files;
        }

        @Override
        public boolean next(Text key, BytesWritable value) throws IOException {
            if (!files.next()) {
                return false;
            }
            key.set(files.path().toString());
            value.set(files.bytes(), 0, files.bytes().length);
            return true;
        }

        @Override
        public Text createKey() {
            return new Text();
        }

        @Override
        public BytesWritable createValue() {
            return new BytesWritable();
        }

        @Override
        public long getPos() {
            return files.position();
        }

        @Override
        public float getProgress() {
            return files.progress();
        }

        @Override
        public void close() {
            files.close();
        }
    }
}
