package io.hearth.mapreduce;

import java.io.IOException;
import org.apache.hadoop.io.BytesWritable;
import org.apache.hadoop.io.Text;
import org.apache.hadoop.mapreduce.InputSplit;
import org.apache.hadoop.mapreduce.RecordReader;
import org.apache.hadoop.mapreduce.TaskAttemptContext;
import org.apache.hadoop.mapreduce.lib.input.CombineFileSplit;

/** Records of a split, for {@code org.apache.hadoop.mapreduce}. */
final class SmallFilesRecordReader extends RecordReader<Text, BytesWritable> {
    private SmallFilesReader files;
    private Text key;
    private BytesWritable value;

    @Override
    public void initialize(InputSplit split, TaskAttemptContext context) {
        CombineFileSplit combined = (CombineFileSplit) split;
        files = new SmallFilesReader(context.getConfiguration(), combined.getPaths(), combined.getLengths(),
                (name, count) -> context.getCounter(SmallFilesInputFormat.COUNTERS, name).increment(count));
    }

    @Override
    public boolean nextKeyValue() throws IOException {
        if (!files.next()) {
            key = null;
            value = null;
            return false;
        }
        key = new Text(files.path().toString());
        value = new BytesWritable(files.bytes());
        return true;
    }

    @Override
    public Text getCurrentKey() {
        return key;
    }

    @Override
    public BytesWritable getCurrentValue() {
        return value;
    }

    @Override
    public float getProgress() {
        return files == null ? 0 : files.progress();
    }

    @Override
    public void close() {
        if (files != null) {
            files.close();
        }
    }
}
