package io.hearth.hdfs;

import java.io.IOException;
import org.apache.hadoop.fs.Path;

/** First bytes of a file, or the reason why they cannot be read. */
public final class FileStart {
    private final Path path;
    private final byte[] bytes;
    private final IOException failure;
    private final boolean together;

    /**
     * @param together whether Hearth's client has read it together with the others, and Hadoop's has not opened it
     */
    FileStart(Path path, byte[] bytes, IOException failure, boolean together) {
        this.path = path;
        this.bytes = bytes;
        this.failure = failure;
        this.together = together;
    }

    /**
     * Returns the file's path, as it was given.
     *
     * @return the path
     */
    public Path path() {
        return path;
    }

    /**
     * Returns the bytes: all of the file, if it is not longer than what was asked for.
     *
     * @return the bytes, which the caller may keep
     * @throws IOException if the file cannot be read; its class is that of a failed {@code open} or {@code read}
     */
    public byte[] bytes() throws IOException {
        if (failure != null) {
            throw failure;
        }
        return bytes;
    }

    /**
     * Returns whether Hearth's client has read the file together with the others of the call. Otherwise Hadoop's client has
     * opened it: Hearth's cannot read it, or cannot be used at all.
     *
     * @return whether it was read together with others
     */
    public boolean isReadTogether() {
        return together;
    }
}
