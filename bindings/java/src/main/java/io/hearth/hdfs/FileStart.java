package io.hearth.hdfs;

import java.io.IOException;
import org.apache.hadoop.fs.Path;

/** First bytes of a file, or the reason why they cannot be read. */
public final class FileStart {
    private final Path path;
    private final byte[] bytes;
    private final IOException failure;

    FileStart(Path path, byte[] bytes, IOException failure) {
        this.path = path;
        this.bytes = bytes;
        this.failure = failure;
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
}
