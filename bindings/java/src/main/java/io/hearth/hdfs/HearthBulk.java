package io.hearth.hdfs;

import java.io.IOException;
import java.util.List;
import org.apache.hadoop.fs.Path;

/**
 * What {@link HearthFileSystem} has beyond Hadoop's interface, for programs that read many small files:
 *
 * <pre>{@code
 * if (fs instanceof HearthBulk) {
 *     for (FileStart start : ((HearthBulk) fs).readStarts(paths, 1 << 20)) {
 *         use(start.path(), start.bytes());
 *     }
 * }
 * }</pre>
 */
public interface HearthBulk {
    /**
     * Reads the first bytes of many files by one call: they are located together, and those on the same DataNode are
     * fetched together. All bytes are in memory at the end.
     *
     * @param files files to read
     * @param length largest number of bytes of each, at least 0
     * @return one entry for each file, in the same order. A file that cannot be read has an entry too
     * @throws IOException if the call fails as a whole
     */
    List<FileStart> readStarts(List<Path> files, int length) throws IOException;
}
