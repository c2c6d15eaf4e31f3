package io.hearth.hdfs;

import java.io.IOException;

/**
 * Functions of the native library that write a file, which {@link NativeLibrary} loads. A {@code long} that one of them
 * returns as an address stands for an object of the library.
 *
 * <p>If the NameNode refuses a call, they throw {@link RefusedException}. Every function may also throw an unchecked
 * exception: its caller in this package is then wrong.
 */
final class NativeWriter {
    private NativeWriter() {
    }

    /**
     * Begins to write a file that Hadoop's client has created or opened for append, has not written to, and keeps the lease
     * of. Allocates a block, unless the last one has room. After an exception, Hadoop's client can write the file.
     *
     * @param client address from {@link NativeFiles#connect}
     * @param path absolute path in UTF-8
     * @param holder name of Hadoop's client, in UTF-8
     * @param length bytes of the file
     * @param lastBlock the block to continue, as {@link #lastBlock} encodes it; empty if there is none
     * @return its address, for {@link #close}; 0 if no DataNode of the block is Hearth's, and Hadoop's client is to write:
     *         in an empty file, this block
     * @throws java.io.InterruptedIOException if the thread is interrupted, and the call takes a second; it may be repeated.
     *         Where it allocates a block behind others, only if the call takes three seconds. The block may be allocated
     *         then, and the NameNode would refuse another request.
     * @throws java.net.ConnectException if the NameNode does not answer, or no DataNode of the block is known to be
     *         Hearth's and not all answer
     */
    static native long begin(long client, byte[] path, long inode, byte[] holder, int replication, long blockSize,
            long length, byte[] lastBlock) throws IOException;

    /**
     * Appends bytes. Waits for room; an interrupted thread waits for a second.
     *
     * @return their number, fewer than {@code length} only if the thread is interrupted and there was no room
     */
    static native int write(long writer, byte[] from, int offset, int length) throws IOException;

    /**
     * Begins to flush the bytes written so far. Waits for room.
     *
     * @param sync the bytes go to the disks of the DataNodes
     * @param endBlock the next byte begins a new block
     * @param updateLength the NameNode records the length
     * @return address of the flush, for {@link #acknowledged}
     * @throws java.io.InterruptedIOException if the thread is interrupted; the call may be repeated
     */
    static native long flush(long writer, boolean sync, boolean endBlock, boolean updateLength) throws IOException;

    /**
     * Waits for the end of a flush, and gives it up.
     *
     * @throws java.io.InterruptedIOException if the thread is interrupted; the flush goes on
     */
    static native void acknowledged(long flush) throws IOException;

    /** Returns the DataNodes of the current block in UTF-8, each in a line with its fields separated by tabs. */
    static native byte[] pipeline(long writer);

    /**
     * Returns the last block that all DataNodes have in full: its pool, id, length and generation stamp in UTF-8, separated
     * by tabs. Null if this writer has written none.
     */
    static native byte[] lastBlock(long writer);

    /**
     * Sends the rest of the bytes and waits for the DataNodes.
     *
     * @throws java.io.InterruptedIOException if the thread is interrupted; the call may be repeated
     */
    static native void finish(long writer) throws IOException;

    /**
     * Has the NameNode close the file. Only {@link #close} may follow.
     *
     * @throws java.io.InterruptedIOException if the thread is interrupted; the call goes on
     */
    static native void complete(long writer) throws IOException;

    /** Gives up the writer. A file that is not complete stays as it is, until its lease expires. */
    static native void close(long writer);
}
