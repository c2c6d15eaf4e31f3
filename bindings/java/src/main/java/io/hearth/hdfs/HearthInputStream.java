package io.hearth.hdfs;

import java.io.EOFException;
import java.io.IOException;
import java.io.InterruptedIOException;
import java.nio.ByteBuffer;
import java.util.EnumSet;
import java.util.IdentityHashMap;
import java.util.Map;
import org.apache.hadoop.fs.ByteBufferPositionedReadable;
import org.apache.hadoop.fs.ByteBufferReadable;
import org.apache.hadoop.fs.ByteBufferUtil;
import org.apache.hadoop.fs.CanSetDropBehind;
import org.apache.hadoop.fs.CanSetReadahead;
import org.apache.hadoop.fs.CanUnbuffer;
import org.apache.hadoop.fs.FSExceptionMessages;
import org.apache.hadoop.fs.FSInputStream;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.HasEnhancedByteBufferAccess;
import org.apache.hadoop.fs.ReadOption;
import org.apache.hadoop.fs.StreamCapabilities;
import org.apache.hadoop.hdfs.DFSInputStream;
import org.apache.hadoop.hdfs.ReadStatistics;
import org.apache.hadoop.hdfs.protocol.DatanodeInfo;
import org.apache.hadoop.hdfs.protocol.ExtendedBlock;
import org.apache.hadoop.hdfs.protocol.LocatedBlock;
import org.apache.hadoop.io.ByteBufferPool;

/**
 * Stream of a file, whose bytes the native client reads. It behaves like the stream of Hadoop's client that opened the
 * file. That one reads what the native client cannot read, and reports all failures: a failed read is tried there again.
 * Where Hearth's client is required, a file that it cannot open is an error of each read.
 *
 * <p>Positioned reads may run at the same time as all other calls.
 *
 * <p>This class names no type that Hadoop 3.3.0 lacks: frameworks look at all methods of a stream by reflection.
 * {@link VectoredInputStream} is the one for Hadoop 3.3.5 and later.
 */
class HearthInputStream extends FSInputStream implements ByteBufferReadable, ByteBufferPositionedReadable,
        CanSetDropBehind, CanSetReadahead, CanUnbuffer, HasEnhancedByteBufferAccess, StreamCapabilities {
    /** Time after a failure in which Hadoop's client reads. */
    private static final long PAUSE_NANOS = 60_000_000_000L;

    /** Where a DataNode is that is not on this machine, as Hadoop counts without the network's topology. */
    private static final int FAR = Integer.MAX_VALUE;

    /** Answer of an empty read without copies. */
    private static final ByteBuffer EMPTY = ByteBuffer.allocateDirect(0).asReadOnlyBuffer();

    private final HearthClient client;
    private final DFSInputStream stock;
    private final ReadStatistics read;
    private final FileSystem.Statistics statistics;

    /** Guards the change of the next five. */
    private final Object opening = new Object();
    private volatile LocatedFile located;
    /** The open file; null if the first read has not come yet, or Hadoop's client reads. */
    private volatile NativeReference file;
    /** Hadoop's client reads to the end. */
    private volatile boolean refused;
    /** Hadoop's client reads until then, if {@code paused}: a value of {@link System#nanoTime}. */
    private volatile long pausedUntil;
    private volatile boolean paused;

    private volatile boolean closed;
    /** All replicas are on this machine. */
    private final boolean isHere;

    /** Position of the next read in order. Guarded by this object, like the others below. */
    private long position;
    /** Where the last read in order began; -1 before the first. */
    private long lastPosition = -1;
    /** Buffers that were handed out, and where they go back to: a pool, or a view of a DataNode's memory. */
    private Map<ByteBuffer, Object> lent;

    /** Returns a stream with all that this version of Hadoop asks streams for. */
    static HearthInputStream of(HearthClient client, DFSInputStream stock, LocatedFile located) {
        return HadoopVersion.READS_RANGES ? new VectoredInputStream(client, stock, located)
                : new HearthInputStream(client, stock, located);
    }

    HearthInputStream(HearthClient client, DFSInputStream stock, LocatedFile located) {
        this.client = client;
        this.stock = stock;
        this.read = stock.getReadStatistics();
        this.statistics = client.statistics();
        this.located = located;
        this.isHere = located.isHere();
    }

    /** Returns the number of bytes that can be read. */
    final long length() {
        return located.length;
    }

    /** Returns the open file if it has the byte at {@code at}; null if Hadoop's client is to read that. */
    final NativeReference fileAt(long at) throws IOException {
        if (closed || refused || at < 0 || at >= located.length || !client.isOpen()) {
            return null;
        }
        NativeReference open = file;
        return open == null ? opened() : open;
    }

    private NativeReference opened() throws IOException {
        synchronized (opening) {
            if (file != null || closed || refused || paused && System.nanoTime() - pausedUntil < 0) {
                return file;
            }
            try {
                if (paused) {
                    // Blocks may have moved, and Hadoop's client has found them.
                    LocatedFile now = LocatedFile.of(stock);
                    if (now == null || now.length < located.length) {
                        refused = true;
                        return null;
                    }
                    located = now;
                    paused = false;
                }
                long address = client.open(located);
                if (address == 0) {
                    refused = true;
                    return null;
                }
                file = NativeReference.of(this, address, NativeFiles::close);
                return file;
            } catch (InterruptedIOException | HearthClient.RequiredException e) {
                throw e;
            } catch (IOException | RuntimeException e) {
                HearthClient.LOG.debug("Hearth's client cannot open {}", located.path, e);
                paused = true;
                pausedUntil = System.nanoTime() + PAUSE_NANOS;
                return null;
            }
        }
    }

    /** Lets Hadoop's client read for a while. */
    final void failed(NativeReference failing, IOException reason) throws InterruptedIOException {
        if (reason instanceof InterruptedIOException) {
            throw (InterruptedIOException) reason;
        }
        synchronized (opening) {
            if (file == failing) {
                HearthClient.LOG.debug("Hearth's client cannot read {}, which Hadoop's client reads now", located.path,
                        reason);
                file = null;
                paused = true;
                pausedUntil = System.nanoTime() + PAUSE_NANOS;
                failing.close();
            }
        }
    }

    /** Counts the bytes of an answer of {@link NativeFiles#read}, and returns their number. */
    private int counted(long answer) {
        int count = (int) answer;
        count(count, (int) (answer >> 32));
        return count;
    }

    /** Counts bytes that were read, {@code elsewhere} of them elsewhere than in this machine's memory. */
    final void count(int count, int elsewhere) {
        if (count != elsewhere) {
            read.addShortCircuitBytes(count - elsewhere);
        }
        if (elsewhere != 0 && isHere) {
            read.addLocalBytes(elsewhere);
        } else if (elsewhere != 0) {
            read.addRemoteBytes(elsewhere);
        }
        if (statistics != null) {
            int far = isHere ? 0 : elsewhere;
            statistics.incrementBytesRead(count);
            statistics.incrementBytesReadByDistance(0, count - far);
            if (far != 0) {
                statistics.incrementBytesReadByDistance(FAR, far);
            }
        }
    }

    // Reads in order.

    @Override
    public synchronized int read() throws IOException {
        byte[] one = new byte[1];
        return read(one, 0, 1) <= 0 ? -1 : one[0] & 0xff;
    }

    @Override
    public synchronized int read(byte[] buffer, int offset, int length) throws IOException {
        validatePositionedReadArgs(position, buffer, offset, length);
        if (length == 0) {
            return 0;
        }
        // At the end of the file, Hadoop's stream does not look at the offset.
        if (offset < 0 && position < located.length) {
            throw new IndexOutOfBoundsException("offset is negative: " + offset);
        }
        NativeReference open = fileAt(position);
        long address = open == null ? 0 : open.acquire();
        if (address != 0) {
            try {
                int wanted = (int) Math.min(length, located.length - position);
                int count = counted(NativeFiles.read(address, position, buffer, offset, wanted));
                if (count > 0) {
                    return moved(count);
                }
            } catch (IOException e) {
                failed(open, e);
            } finally {
                open.release();
            }
        }
        return moved(atPosition().read(buffer, offset, length));
    }

    @Override
    public synchronized int read(ByteBuffer buffer) throws IOException {
        NativeReference open = isFillable(buffer) ? fileAt(position) : null;
        long address = open == null ? 0 : open.acquire();
        if (address != 0) {
            try {
                int wanted = (int) Math.min(buffer.remaining(), located.length - position);
                int start = buffer.position();
                long answer = buffer.isDirect()
                        ? NativeFiles.readDirect(address, position, buffer, start, wanted)
                        : NativeFiles.read(address, position, buffer.array(), buffer.arrayOffset() + start, wanted);
                int count = counted(answer);
                if (count > 0) {
                    buffer.position(start + count);
                    return moved(count);
                }
            } catch (IOException e) {
                failed(open, e);
            } finally {
                open.release();
            }
        }
        return moved(atPosition().read(buffer));
    }

    /** Returns whether bytes can be put into the buffer. */
    static boolean isFillable(ByteBuffer buffer) {
        return buffer.hasRemaining() && !buffer.isReadOnly() && (buffer.isDirect() || buffer.hasArray());
    }

    /** Moves the position over bytes that were read. Returns their number, -1 at the end. */
    private int moved(int count) {
        if (count > 0) {
            lastPosition = position;
            position += count;
        }
        return count;
    }

    /** Returns the stream of Hadoop's client, at the position of this one. */
    private DFSInputStream atPosition() throws IOException {
        // A closed one refuses to seek with another message than to read.
        if (!closed && stock.getPos() != position) {
            stock.seek(position);
        }
        return stock;
    }

    @Override
    public synchronized void seek(long target) throws IOException {
        if (target > stock.getFileLength()) {
            throw new EOFException("Cannot seek after EOF");
        }
        if (target < 0) {
            throw new EOFException("Cannot seek to negative offset");
        }
        if (closed) {
            throw new IOException("Stream is closed!");
        }
        position = target;
    }

    @Override
    public synchronized long skip(long count) throws IOException {
        if (count <= 0) {
            return count < 0 ? -1 : 0;
        }
        long skipped = Math.min(count, stock.getFileLength() - position);
        seek(position + skipped);
        return skipped;
    }

    @Override
    public synchronized long getPos() {
        return position;
    }

    @Override
    public synchronized int available() throws IOException {
        if (closed) {
            throw new IOException("Stream closed");
        }
        return (int) Math.min(Integer.MAX_VALUE, stock.getFileLength() - position);
    }

    /** Who asks for another source distrusts the bytes. Hadoop's client then reads the rest of the file. */
    @Override
    public synchronized boolean seekToNewSource(long target) throws IOException {
        boolean isNew = stock.seekToNewSource(target);
        refused = true;
        position = stock.getPos();
        return isNew;
    }

    @Override
    public boolean markSupported() {
        return false;
    }

    @Override
    public synchronized void mark(int limit) {
    }

    @Override
    public synchronized void reset() throws IOException {
        throw new IOException("Mark/reset not supported");
    }

    // Positioned reads.

    @Override
    public int read(long at, byte[] buffer, int offset, int length) throws IOException {
        validatePositionedReadArgs(at, buffer, offset, length);
        if (length == 0) {
            return 0;
        }
        if (offset < 0) {
            throw new IndexOutOfBoundsException("offset is negative: " + offset);
        }
        NativeReference open = fileAt(at);
        long address = open == null ? 0 : open.acquire();
        if (address != 0) {
            try {
                int wanted = (int) Math.min(length, located.length - at);
                int count = counted(NativeFiles.readAt(address, at, buffer, offset, wanted));
                if (count > 0) {
                    return count;
                }
            } catch (IOException e) {
                failed(open, e);
            } finally {
                open.release();
            }
        }
        return stock.read(at, buffer, offset, length);
    }

    @Override
    public int read(long at, ByteBuffer buffer) throws IOException {
        NativeReference open = isFillable(buffer) ? fileAt(at) : null;
        long address = open == null ? 0 : open.acquire();
        if (address != 0) {
            try {
                int wanted = (int) Math.min(buffer.remaining(), located.length - at);
                int start = buffer.position();
                long answer = buffer.isDirect()
                        ? NativeFiles.readAtDirect(address, at, buffer, start, wanted)
                        : NativeFiles.readAt(address, at, buffer.array(), buffer.arrayOffset() + start, wanted);
                int count = counted(answer);
                // What Hadoop's client might throw for the rest must not hide these bytes.
                if (count > 0) {
                    buffer.position(start + count);
                    return count;
                }
            } catch (IOException e) {
                failed(open, e);
            } finally {
                open.release();
            }
        }
        return stock.read(at, buffer);
    }

    @Override
    public void readFully(long at, ByteBuffer buffer) throws IOException {
        long next = at;
        while (buffer.hasRemaining()) {
            int count = read(next, buffer);
            if (count < 0) {
                throw new EOFException(FSExceptionMessages.EOF_IN_READ_FULLY);
            }
            next += count;
        }
    }

    // Reads without a copy.

    @Override
    public synchronized ByteBuffer read(ByteBufferPool pool, int maxLength, EnumSet<ReadOption> options)
            throws IOException {
        if (maxLength < 0) {
            throw new IllegalArgumentException("can't read a negative number of bytes.");
        }
        if (maxLength == 0) {
            return EMPTY;
        }
        if (position >= stock.getFileLength()) {
            return null;
        }
        ByteBuffer shown = client.showsMemory() ? shown(maxLength, !options.contains(ReadOption.SKIP_CHECKSUMS)) : null;
        if (shown != null) {
            return shown;
        }
        ByteBuffer copy = ByteBufferUtil.fallbackRead(this, pool, maxLength);
        if (copy != null) {
            lend(copy, pool);
        }
        return copy;
    }

    /** Returns the next bytes in the memory of a DataNode; null if they are not there. */
    private ByteBuffer shown(int maxLength, boolean verify) throws IOException {
        NativeReference open = fileAt(position);
        if (open == null) {
            return null;
        }
        int wanted = (int) Math.min(maxLength, located.length - position);
        Long view;
        try {
            view = open.call(address -> NativeFiles.view(address, position, wanted, verify));
        } catch (IOException e) {
            failed(open, e);
            return null;
        }
        if (view == null || view == 0) {
            return null;
        }
        ByteBuffer buffer;
        try {
            buffer = NativeFiles.buffer(view);
        } catch (RuntimeException | Error e) {
            NativeFiles.release(view);
            throw e;
        }
        // All buffers that programs make of the one they get keep this one reachable: the memory stays until then,
        // unless they give it back.
        NativeReference lending = NativeReference.of(buffer, view, NativeFiles::release);
        ByteBuffer shown = buffer.asReadOnlyBuffer();
        lend(shown, lending);
        read.addZeroCopyBytes(shown.remaining());
        moved(shown.remaining());
        return shown;
    }

    private void lend(ByteBuffer buffer, Object from) {
        if (lent == null) {
            lent = new IdentityHashMap<>();
        }
        lent.put(buffer, from);
    }

    @Override
    public synchronized void releaseBuffer(ByteBuffer buffer) {
        if (buffer == EMPTY) {
            return;
        }
        Object from = lent == null ? null : lent.remove(buffer);
        if (from == null) {
            throw new IllegalArgumentException("tried to release a buffer that was not created by this stream, " + buffer);
        }
        if (from instanceof NativeReference) {
            ((NativeReference) from).close();
        } else {
            ((ByteBufferPool) from).putBuffer(buffer);
        }
    }

    // The rest.

    @Override
    public void setReadahead(Long readahead) throws IOException {
        stock.setReadahead(readahead);
    }

    @Override
    public void setDropBehind(Boolean dropBehind) throws IOException {
        stock.setDropBehind(dropBehind);
    }

    @Override
    public synchronized void unbuffer() {
        NativeReference open = file;
        if (open != null) {
            open.run(NativeFiles::unbuffer);
        }
        stock.unbuffer();
    }

    @Override
    public boolean hasCapability(String capability) {
        return stock.hasCapability(capability);
    }

    /** Returns the block that the last read in order began in; null before the first. */
    synchronized ExtendedBlock currentBlock() {
        LocatedBlock block = lastPosition < 0 ? null : located.at(lastPosition);
        return block == null ? stock.getCurrentBlock() : block.getBlock();
    }

    /** Returns the nearest DataNode of that block. */
    synchronized DatanodeInfo currentDatanode() {
        DatanodeInfo known = stock.getCurrentDatanode();
        LocatedBlock block = lastPosition < 0 ? null : located.at(lastPosition);
        if (known != null || block == null) {
            return known;
        }
        DatanodeInfo[] locations = LocatedFile.locations(block);
        return locations.length == 0 ? null : locations[0];
    }

    @Override
    public synchronized void close() throws IOException {
        NativeReference open;
        synchronized (opening) {
            if (closed) {
                return;
            }
            closed = true;
            open = file;
            file = null;
        }
        if (open != null) {
            open.close();
        }
        if (lent != null && !lent.isEmpty()) {
            HearthClient.LOG.warn("closing {}, but {} buffers of read(ByteBufferPool, ...) were not released", located.path,
                    lent.size());
        }
        stock.close();
    }
}
