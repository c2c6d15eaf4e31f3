package io.hearth.mapreduce;

import io.hearth.hdfs.FileStart;
import io.hearth.hdfs.HearthBulk;
import java.io.EOFException;
import java.io.IOException;
import java.net.URI;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Objects;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FSDataInputStream;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Path;

/** Reads the files of a split in order, many by one call if their file system can. */
final class SmallFilesReader {
    /** Largest number of files of one call. */
    private static final int BATCH_FILES = 512;
    private static final long DEFAULT_BATCH_BYTES = 16L << 20;
    private static final long BATCH_BYTES_MAX = 1L << 30;

    /**
     * A call reads up to the same number of bytes of each file. Files that have grown since they were listed may use all
     * of it. So a call may return this many times the bytes that it is meant to, and not more.
     */
    private static final int GROWTH_MAX = 8;

    /** Length of the longest array that every JVM can make. */
    private static final int LENGTH_MAX = Integer.MAX_VALUE - 8;

    /** Counts files, by the name of a counter. */
    interface Counters {
        void add(String name, long count);
    }

    private final Configuration conf;
    private final Path[] paths;
    private final long[] lengths;
    private final Counters counters;
    private final long batchBytes;
    private final long total;

    /** Bytes of the files that were handed out. */
    private long done;
    /** Index of the next file. */
    private int next;
    /** What one call has read: the files from {@code batchStart} on. */
    private List<FileStart> batch = new ArrayList<>();
    private int batchStart;
    private byte[] bytes;

    /** File system of the last file, and the path that it was found for. */
    private FileSystem fs;
    private URI fsPath;

    SmallFilesReader(Configuration conf, Path[] paths, long[] lengths, Counters counters) {
        this.conf = conf;
        this.paths = paths;
        this.lengths = lengths;
        this.counters = counters;
        long wanted = conf.getLong(SmallFilesInputFormat.BATCH_BYTES_KEY, DEFAULT_BATCH_BYTES);
        this.batchBytes = Math.min(BATCH_BYTES_MAX, Math.max(1, wanted));
        this.total = Arrays.stream(lengths).sum();
    }

    /** Reads the next file. Returns whether there is one. */
    boolean next() throws IOException {
        bytes = null;
        if (next == paths.length) {
            return false;
        }
        Path path = paths[next];
        if (next >= batchStart + batch.size()) {
            readBatch();
        }
        int length = (int) lengths[next];
        if (batch.isEmpty()) {
            bytes = readAlone(path, length);
            counters.add(SmallFilesInputFormat.READ_ALONE, 1);
        } else {
            // The list keeps no record that the program may have dropped.
            FileStart start = batch.set(next - batchStart, null);
            bytes = ofLength(path, start.bytes(), length);
            counters.add(start.isReadTogether() ? SmallFilesInputFormat.READ_TOGETHER : SmallFilesInputFormat.READ_ALONE, 1);
        }
        done += length;
        next++;
        return true;
    }

    /** Returns the path of the file that was read last. */
    Path path() {
        return paths[next - 1];
    }

    /** Returns the bytes of the file that was read last. */
    byte[] bytes() {
        return bytes;
    }

    long position() {
        return done;
    }

    float progress() {
        return total > 0 ? (float) done / total : paths.length == 0 ? 1 : (float) next / paths.length;
    }

    void close() {
        next = paths.length;
        batch = new ArrayList<>();
        bytes = null;
    }

    /** Reads the next files by one call. The batch is empty if that is impossible. */
    private void readBatch() throws IOException {
        batch = new ArrayList<>();
        batchStart = next;
        fs = fileSystem(paths[next]);
        long sum = checked(next);
        if (!(fs instanceof HearthBulk)) {
            return;
        }
        long longest = sum;
        int end = next + 1;
        while (end < paths.length && end - next < BATCH_FILES && isOfSameFileSystem(paths[end])) {
            long length = checked(end);
            sum += length;
            longest = Math.max(longest, length);
            if (sum > batchBytes || (end + 1 - next) * longest > GROWTH_MAX * batchBytes) {
                break;
            }
            end++;
        }
        List<Path> together = Arrays.asList(paths).subList(next, end);
        // At least a byte of each: a call for none would not find out that a file is missing.
        List<FileStart> starts = ((HearthBulk) fs).readStarts(together, (int) Math.max(1, longest));
        batch.addAll(starts);
    }

    /** Returns the length of a file that a record can hold. */
    private long checked(int index) throws IOException {
        if (lengths[index] > LENGTH_MAX) {
            throw new IOException(paths[index] + " has " + lengths[index] + " bytes, and a record of "
                    + SmallFilesInputFormat.class.getSimpleName() + " can hold " + LENGTH_MAX
                    + "; leave the file out, or read it with another InputFormat");
        }
        return lengths[index];
    }

    private byte[] readAlone(Path path, int length) throws IOException {
        byte[] read = new byte[length];
        int done = 0;
        try (FSDataInputStream in = fs.open(path)) {
            while (done < length) {
                int count = in.read(read, done, length - done);
                if (count < 0) {
                    break;
                }
                done += count;
            }
        }
        return ofLength(path, done == length ? read : Arrays.copyOf(read, done), length);
    }

    /** Returns the first {@code length} bytes: the file may have grown. */
    private static byte[] ofLength(Path path, byte[] read, int length) throws IOException {
        if (read.length < length) {
            throw new EOFException(path + " has " + read.length + " bytes, but had " + length
                    + " when the job began: it was changed; run the job again");
        }
        return read.length == length ? read : Arrays.copyOf(read, length);
    }

    private FileSystem fileSystem(Path path) throws IOException {
        if (fs == null || !isOfSameFileSystem(path)) {
            fs = path.getFileSystem(conf);
            fsPath = path.toUri();
        }
        return fs;
    }

    private boolean isOfSameFileSystem(Path path) {
        URI uri = path.toUri();
        return Objects.equals(uri.getScheme(), fsPath.getScheme())
                && Objects.equals(uri.getAuthority(), fsPath.getAuthority());
    }
}
