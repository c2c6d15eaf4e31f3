package io.hearth.hdfs;

import java.io.IOException;
import java.lang.ref.PhantomReference;
import java.lang.ref.Reference;
import java.lang.ref.ReferenceQueue;

/**
 * Address of an open block, which is closed once: by its accessor, or, if a program lost the accessor, after the garbage
 * collector has found that. The latter happens when the next block is opened: it needs no thread.
 */
final class OpenBlock extends PhantomReference<LocalReplicaAccessor> {
    private static final ReferenceQueue<LocalReplicaAccessor> LOST = new ReferenceQueue<>();
    /** Head of the list of all open blocks. A reference that is unreachable itself is never enqueued. */
    private static OpenBlock first;

    private long address;
    private OpenBlock previous;
    private OpenBlock next;

    private OpenBlock(LocalReplicaAccessor accessor, long address) {
        super(accessor, LOST);
        this.address = address;
    }

    static OpenBlock of(LocalReplicaAccessor accessor, long address) {
        for (Reference<?> lost; (lost = LOST.poll()) != null; ) {
            ((OpenBlock) lost).close();
        }
        OpenBlock block = new OpenBlock(accessor, address);
        synchronized (OpenBlock.class) {
            block.next = first;
            if (first != null) {
                first.previous = block;
            }
            first = block;
        }
        return block;
    }

    /** The caller's lock keeps {@link #close} from running before it has used the address. */
    long address() throws IOException {
        if (address == 0) {
            throw new IOException("the replica is closed");
        }
        return address;
    }

    void close() {
        if (address == 0) {
            return;
        }
        synchronized (OpenBlock.class) {
            if (previous == null) {
                first = next;
            } else {
                previous.next = next;
            }
            if (next != null) {
                next.previous = previous;
            }
            previous = null;
            next = null;
        }
        long closing = address;
        address = 0;
        clear();
        Native.close(closing);
    }
}
