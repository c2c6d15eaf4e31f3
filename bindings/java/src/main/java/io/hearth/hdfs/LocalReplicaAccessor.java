package io.hearth.hdfs;

import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.ReadOnlyBufferException;
import org.apache.hadoop.hdfs.ReplicaAccessor;

/**
 * An open replica on this machine. The locks guarantee that it is not closed while it is read; usually one thread alone
 * uses it.
 */
final class LocalReplicaAccessor extends ReplicaAccessor {
    private final long visibleLength;
    private final boolean verifyChecksum;
    private final OpenBlock block;

    /** Takes over the open block. */
    LocalReplicaAccessor(long block, long visibleLength, boolean verifyChecksum) {
        this.visibleLength = visibleLength;
        this.verifyChecksum = verifyChecksum;
        this.block = OpenBlock.of(this, block);
    }

    @Override
    public synchronized int read(long pos, byte[] buf, int off, int len) throws IOException {
        if (off < 0 || len < 0 || len > buf.length - off) {
            throw new IndexOutOfBoundsException(len + " bytes at " + off + " of an array of " + buf.length);
        }
        int count = readable(pos, len);
        if (count > 0) {
            Native.read(block.address(), pos, buf, off, count, verifyChecksum);
        }
        return count;
    }

    @Override
    public synchronized int read(long pos, ByteBuffer buf) throws IOException {
        if (buf.isReadOnly()) {
            throw new ReadOnlyBufferException();
        }
        int count = readable(pos, buf.remaining());
        if (count > 0) {
            int start = buf.position();
            if (buf.isDirect()) {
                Native.readDirect(block.address(), pos, buf, start, count, verifyChecksum);
            } else {
                Native.read(block.address(), pos, buf.array(), buf.arrayOffset() + start, count, verifyChecksum);
            }
            buf.position(start + count);
        }
        return count;
    }

    /** Returns how many of the wanted bytes exist; -1 at the end. */
    private int readable(long pos, int wanted) throws IOException {
        if (pos < 0) {
            throw new IOException("cannot read at position " + pos);
        }
        if (wanted == 0) {
            return 0;
        }
        return pos >= visibleLength ? -1 : (int) Math.min(wanted, visibleLength - pos);
    }

    @Override
    public synchronized void close() {
        block.close();
    }

    @Override
    public boolean isLocal() {
        return true;
    }

    @Override
    public boolean isShortCircuit() {
        return true;
    }

    @Override
    public int getNetworkDistance() {
        return 0;
    }
}
