package io.hearth.hdfs;

import java.lang.ref.PhantomReference;
import java.lang.ref.Reference;
import java.lang.ref.ReferenceQueue;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.function.LongConsumer;

/**
 * Address of an object of the native library, which is given up once: when it was closed and no call uses it any more. If
 * a program lost the owner instead of closing it, the garbage collector finds that, and the object is given up when the
 * next one is made. That needs no thread.
 */
final class NativeReference extends PhantomReference<Object> {
    private static final ReferenceQueue<Object> LOST = new ReferenceQueue<>();
    /** A reference that is unreachable itself is never enqueued. */
    private static final Set<NativeReference> OPEN = ConcurrentHashMap.newKeySet();

    private final long address;
    private final LongConsumer giveUp;
    /** Number of calls that use the object, and one until it is closed. */
    private final AtomicInteger uses = new AtomicInteger(1);
    private final AtomicBoolean closed = new AtomicBoolean();

    private NativeReference(Object owner, long address, LongConsumer giveUp) {
        super(owner, LOST);
        this.address = address;
        this.giveUp = giveUp;
    }

    /**
     * Takes over an object.
     *
     * @param owner Java object that needs it
     * @param giveUp called once with the address
     */
    static NativeReference of(Object owner, long address, LongConsumer giveUp) {
        for (Reference<?> lost; (lost = LOST.poll()) != null; ) {
            ((NativeReference) lost).close();
        }
        NativeReference reference = new NativeReference(owner, address, giveUp);
        OPEN.add(reference);
        return reference;
    }

    /** Returns the address for a call, which {@link #release} ends; 0 if the object is closed, and no call may follow. */
    long acquire() {
        for (;;) {
            int now = uses.get();
            if (now == 0) {
                return 0;
            }
            if (uses.compareAndSet(now, now + 1)) {
                return address;
            }
        }
    }

    void release() {
        if (uses.decrementAndGet() == 0) {
            OPEN.remove(this);
            clear();
            giveUp.accept(address);
        }
    }

    /** Closes the object. Calls that use it go on. */
    void close() {
        if (closed.compareAndSet(false, true)) {
            release();
        }
    }
}
