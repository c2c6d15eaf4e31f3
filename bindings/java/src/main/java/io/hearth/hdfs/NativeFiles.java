package io.hearth.hdfs;

import java.io.IOException;
import java.nio.ByteBuffer;

/**
 * Functions of the native library for whole files, which {@link NativeLibrary} loads. A {@code long} that one of them
 * returns as an address stands for an object of the library, which is closed once.
 *
 * <p>Calls that wait throw {@link java.io.InterruptedIOException} if their thread is interrupted. Every function may also
 * throw an unchecked exception: its caller in this package is then wrong.
 */
final class NativeFiles {
    private NativeFiles() {
    }

    /**
     * Creates a client. Sends nothing. All texts are in UTF-8.
     *
     * @param uri {@code hdfs://} and the host and port, or the nameservice
     * @param user user on whose behalf calls are made
     * @param realUser user that makes them; empty if it is the same
     * @param settings keys of Hadoop's configuration and their values, separated by NUL
     * @return its address, for {@link #disconnect}
     * @throws IOException if a setting cannot be used
     */
    static native long connect(byte[] uri, byte[] user, byte[] realUser, byte[] settings) throws IOException;

    /** Gives up a client. Its open files stay usable. */
    static native void disconnect(long client);

    /**
     * Opens a file for reading. Asks DataNodes that the client does not know whether they are Hearth's.
     *
     * @param blocks the file's blocks, from {@link LocatedFile#encode}
     * @return its address, for {@link #close}; 0 if no DataNode of its first block is Hearth's
     * @throws java.net.ConnectException if none is known to be Hearth's, and not all answer
     */
    static native long open(long client, byte[] path, byte[] blocks) throws IOException;

    /**
     * Reads the first bytes of several files.
     *
     * @param paths absolute paths in UTF-8, each followed by NUL
     * @param length largest number of bytes of each
     * @return the bytes of each file in this order; null for a file that cannot be read
     * @throws java.net.ConnectException if no file can be read, because servers cannot be reached
     * @throws IOException if no file can be read for another reason, such as replicas that cannot be read
     */
    static native byte[][] readStarts(long client, byte[] paths, int length) throws IOException;

    /**
     * Reads bytes in order: those behind are requested in advance.
     *
     * @return in the lower 32 bits the number of bytes, fewer than {@code length} only at the end of the file, or before
     *     a failure that the next call meets; in the upper 32 bits, with a sign, how many of them came from elsewhere than
     *     this machine's memory. Bytes of concurrent reads may be counted for one another.
     */
    static native long read(long file, long position, byte[] into, int offset, int length) throws IOException;

    /** Like {@link #read}, into a direct buffer. {@code offset} counts from the buffer's start. */
    static native long readDirect(long file, long position, ByteBuffer into, int offset, int length) throws IOException;

    /** Like {@link #read}, for reads at any position. */
    static native long readAt(long file, long position, byte[] into, int offset, int length) throws IOException;

    /** Like {@link #readAt}, into a direct buffer. {@code offset} counts from the buffer's start. */
    static native long readAtDirect(long file, long position, ByteBuffer into, int offset, int length)
            throws IOException;

    /**
     * Reads several ranges. Those that are not in this machine's memory are requested together.
     *
     * @param targets for each range an array, or a direct buffer
     * @param offsets for each range where its bytes go in its array; for a direct buffer, -1 minus that
     * @return for each range 1 if all of it was read, else 0
     */
    static native byte[] readRanges(long file, long[] positions, int[] lengths, Object[] targets, int[] offsets)
            throws IOException;

    /** Returns how many bytes came from elsewhere than this machine's memory since this was last returned. */
    static native int elsewhere(long file);

    /**
     * Shows bytes in the memory of a DataNode on this machine.
     *
     * @param length largest number of bytes
     * @param verify whether the bytes are checked before they are shown
     * @return address of the view, for {@link #release}; 0 if they cannot be shown, or are corrupt
     */
    static native long view(long file, long position, int length, boolean verify) throws IOException;

    /** Returns a new buffer of the view's bytes. Writing to it ends the process. */
    static native ByteBuffer buffer(long view);

    /** Gives up a view. */
    static native void release(long view);

    /** Gives up the connections and buffers of {@link #read}. */
    static native void unbuffer(long file);

    /** Closes a file. */
    static native void close(long file);
}
