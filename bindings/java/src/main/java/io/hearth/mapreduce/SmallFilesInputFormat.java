package io.hearth.mapreduce;

import java.io.IOException;
import java.util.ArrayList;
import java.util.List;
import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.io.BytesWritable;
import org.apache.hadoop.io.Text;
import org.apache.hadoop.mapreduce.InputSplit;
import org.apache.hadoop.mapreduce.JobContext;
import org.apache.hadoop.mapreduce.RecordReader;
import org.apache.hadoop.mapreduce.TaskAttemptContext;
import org.apache.hadoop.mapreduce.lib.input.FileInputFormat;

/**
 * Input of many small files. Each file is one record: its key is the whole path, its value the file's bytes, as they are
 * stored. With {@link io.hearth.hdfs.HearthFileSystem} many files are read by one call; every other file system is read
 * file by file.
 *
 * <p>Files with a replica on the same host go into the same split, as long as the split has at most
 * {@code mapreduce.input.fileinputformat.split.maxsize} bytes (128 MiB if unset) and {@value #SPLIT_FILES_KEY} files
 * (10,000 if unset). A larger file has a split of its own. What is left of each host at the end is put together. Empty
 * files join the splits of others: Spark skips splits without bytes ({@code spark.hadoopRDD.ignoreEmptySplits}).
 *
 * <p>A record has the bytes that its file had when the splits were made: of a file that has grown since then the first
 * ones. A file that has become shorter fails the task. So does a file of 2 GiB or more, which no record can hold.
 *
 * <p>Keys and values are new objects for each record, which a program may keep.
 */
public class SmallFilesInputFormat extends FileInputFormat<Text, BytesWritable> {
    /** Largest number of files of a split. */
    public static final String SPLIT_FILES_KEY = "hearth.java.split.files";

    /** Number of bytes that a task reads by one call, and holds in memory: 16 MiB if unset, at most 1 GiB. */
    public static final String BATCH_BYTES_KEY = "hearth.java.split.batch.bytes";

    /** Group of the counters of a job, which say how its files were read. */
    public static final String COUNTERS = "Hearth small files";

    /** Number of files that were read many by one call. */
    public static final String READ_TOGETHER = "Files read together";

    /** Number of files that were read one by one: the file system cannot do otherwise, or Hearth's client cannot be used. */
    public static final String READ_ALONE = "Files read one by one";

    /** Called by Hadoop. */
    public SmallFilesInputFormat() {
    }

    @Override
    protected boolean isSplitable(JobContext context, Path file) {
        return false;
    }

    @Override
    public List<InputSplit> getSplits(JobContext job) throws IOException {
        List<FileStatus> files = listStatus(job);
        job.getConfiguration().setLong(NUM_INPUT_FILES, files.size());
        return new ArrayList<InputSplit>(SmallFilesSplits.of(files, job.getConfiguration()));
    }

    @Override
    public RecordReader<Text, BytesWritable> createRecordReader(InputSplit split, TaskAttemptContext context) {
        return new SmallFilesRecordReader();
    }
}
