package io.hearth.hdfs;

import java.io.IOException;
import java.nio.ByteBuffer;

/**
 * Functions of the native library, which {@link NativeLibrary} loads. A {@code long} is the address of an object of the
 * library. Objects of {@link #connect} and {@link #pool} live as long as this class.
 *
 * <p>Every function may also throw an unchecked exception: its caller in this package is then wrong.
 */
final class Native {
    private Native() {
    }

    /** Returns the library's version, in UTF-8. */
    static native byte[] version();

    /**
     * Creates a cache of replicas of the DataNodes on this machine.
     *
     * @param settings keys of Hadoop's configuration and their values, in UTF-8, separated by NUL
     * @throws IOException if a value cannot be used
     */
    static native long connect(byte[] settings) throws IOException;

    /** Returns the number of Hearth's DataNodes that answer on this machine. The answer is at most a minute old. */
    static native int datanodes(long blocks) throws IOException;

    /** Prepares a block pool, whose id is in UTF-8. */
    static native long pool(long blocks, byte[] id);

    /**
     * Returns the block's replica if it is open. Does not wait.
     *
     * @param length number of bytes that will be read at most; the replica may be longer
     * @return an open block, for {@link #close}; 0 if there is none
     */
    static native long cached(long pool, long id, long stamp, long length);

    /**
     * Opens the block's replica. Waits for the DataNode.
     *
     * @return an open block, for {@link #close}; 0 if no DataNode on this machine has a replica that can be used
     */
    static native long open(long pool, long id, long stamp, long length, byte[] tokenIdentifier, byte[] tokenPassword,
            byte[] tokenKind, byte[] tokenService) throws IOException;

    /** Copies bytes from {@code at} in the block on into the array. The range must lie within the open block. */
    static native void read(long block, long at, byte[] into, int offset, int length, boolean verify)
            throws IOException;

    /** Like {@link #read}, into a direct buffer. {@code offset} counts from the buffer's start. */
    static native void readDirect(long block, long at, ByteBuffer into, int offset, int length, boolean verify)
            throws IOException;

    /** Closes an open block, once. */
    static native void close(long block);
}
