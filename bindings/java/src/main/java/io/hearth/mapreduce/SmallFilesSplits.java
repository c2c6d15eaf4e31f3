package io.hearth.mapreduce;

import java.io.IOException;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.BlockLocation;
import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.LocatedFileStatus;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.mapreduce.lib.input.CombineFileSplit;
import org.apache.hadoop.mapreduce.lib.input.FileInputFormat;

/**
 * Puts files into splits. Each file joins the fullest unfinished split of a host that has its first block, so that as few
 * splits as possible are begun. At the end those that are less than half full are put together, and empty files join
 * splits that have room for more files.
 *
 * <p>Hadoop's {@code CombineFileInputFormat} has no bound for the number of files, and gives up locality for everything
 * that does not fill a split.
 */
final class SmallFilesSplits {
    private static final long DEFAULT_SPLIT_BYTES = 128L << 20;
    private static final int DEFAULT_SPLIT_FILES = 10_000;

    /** Largest number of hosts that a split names. */
    private static final int HOSTS_MAX = 3;

    private static final String SKIP_DIRECTORIES_KEY =
            "mapreduce.input.fileinputformat.input.dir.nonrecursive.ignore.subdirs";

    private final long bytesMax;
    private final int filesMax;
    private final List<Part> finished = new ArrayList<>();
    /** Unfinished splits by host. Files without a known host are under "". */
    private final Map<String, Part> unfinished = new LinkedHashMap<>();
    private final List<Path> empty = new ArrayList<>();

    private SmallFilesSplits(Configuration conf) throws IOException {
        bytesMax = conf.getLong(FileInputFormat.SPLIT_MAXSIZE, DEFAULT_SPLIT_BYTES);
        filesMax = conf.getInt(SmallFilesInputFormat.SPLIT_FILES_KEY, DEFAULT_SPLIT_FILES);
        if (bytesMax < 1 || filesMax < 1) {
            throw new IOException(FileInputFormat.SPLIT_MAXSIZE + " (" + bytesMax + ") and "
                    + SmallFilesInputFormat.SPLIT_FILES_KEY + " (" + filesMax + ") must be at least 1");
        }
    }

    /** Returns the splits of files. */
    static List<CombineFileSplit> of(List<FileStatus> files, Configuration conf) throws IOException {
        SmallFilesSplits splits = new SmallFilesSplits(conf);
        for (FileStatus file : files) {
            if (file.isFile() && file.getLen() == 0) {
                splits.empty.add(file.getPath());
            } else if (!file.isDirectory()) {
                splits.add(file, hosts(file, conf));
            } else if (!conf.getBoolean(SKIP_DIRECTORIES_KEY, false)) {
                throw new IOException(file.getPath() + " is a directory; set " + FileInputFormat.INPUT_DIR_RECURSIVE
                        + " to read the files in it, or " + SKIP_DIRECTORIES_KEY + " to skip it");
            }
        }
        splits.finish();
        List<CombineFileSplit> made = new ArrayList<>(splits.finished.size());
        for (Part part : splits.finished) {
            made.add(part.split());
        }
        return made;
    }

    /** Returns the hosts that have the first block of a file. */
    private static String[] hosts(FileStatus file, Configuration conf) throws IOException {
        BlockLocation[] blocks = file instanceof LocatedFileStatus
                ? ((LocatedFileStatus) file).getBlockLocations()
                : file.getPath().getFileSystem(conf).getFileBlockLocations(file, 0, 1);
        return blocks == null || blocks.length == 0 ? new String[0] : blocks[0].getHosts();
    }

    private void add(FileStatus file, String[] hosts) {
        String best = hosts.length == 0 ? "" : hosts[0];
        for (String host : hosts) {
            if (bytes(host) > bytes(best)) {
                best = host;
            }
        }
        Part part = unfinished.computeIfAbsent(best, host -> new Part());
        if (part.hasRoom(1, file.getLen())) {
            part.add(file.getPath(), file.getLen(), hosts);
            return;
        }
        Part other = new Part();
        other.add(file.getPath(), file.getLen(), hosts);
        // The larger of the two is finished, so that a large file does not end a split that has only few small ones.
        boolean isLarge = file.getLen() > part.bytes && part.paths.size() < filesMax;
        finished.add(isLarge ? other : part);
        unfinished.put(best, isLarge ? part : other);
    }

    private long bytes(String host) {
        Part part = unfinished.get(host);
        return part == null ? -1 : part.bytes;
    }

    private void finish() {
        Part rest = new Part();
        for (Part part : unfinished.values()) {
            if (part.bytes >= bytesMax / 2 || part.paths.size() >= filesMax / 2) {
                finished.add(part);
                continue;
            }
            if (!rest.hasRoom(part.paths.size(), part.bytes)) {
                finished.add(rest);
                rest = new Part();
            }
            rest.add(part);
        }
        if (!rest.paths.isEmpty()) {
            finished.add(rest);
        }
        unfinished.clear();
        int next = 0;
        for (Path path : empty) {
            while (next < finished.size() && finished.get(next).paths.size() >= filesMax) {
                next++;
            }
            if (next == finished.size()) {
                finished.add(new Part());
            }
            finished.get(next).add(path, 0, new String[0]);
        }
        empty.clear();
    }

    /** A split that is being made. */
    private final class Part {
        final List<Path> paths = new ArrayList<>();
        final List<Long> lengths = new ArrayList<>();
        /** Bytes of the files that each host has. */
        final Map<String, Long> hosts = new LinkedHashMap<>();
        long bytes;

        boolean hasRoom(int files, long length) {
            return paths.isEmpty() || paths.size() + files <= filesMax && bytes + length <= bytesMax;
        }

        void add(Path path, long length, String[] holders) {
            paths.add(path);
            lengths.add(length);
            bytes += length;
            for (String host : holders) {
                hosts.merge(host, length, Long::sum);
            }
        }

        void add(Part other) {
            paths.addAll(other.paths);
            lengths.addAll(other.lengths);
            bytes += other.bytes;
            other.hosts.forEach((host, length) -> hosts.merge(host, length, Long::sum));
        }

        CombineFileSplit split() {
            long[] all = new long[lengths.size()];
            for (int i = 0; i < all.length; i++) {
                all[i] = lengths.get(i);
            }
            List<Map.Entry<String, Long>> most = new ArrayList<>(hosts.entrySet());
            most.sort(Map.Entry.<String, Long>comparingByValue().reversed());
            String[] names = new String[Math.min(HOSTS_MAX, most.size())];
            for (int i = 0; i < names.length; i++) {
                names[i] = most.get(i).getKey();
            }
            return new CombineFileSplit(paths.toArray(new Path[0]), new long[all.length], all, names);
        }
    }
}
