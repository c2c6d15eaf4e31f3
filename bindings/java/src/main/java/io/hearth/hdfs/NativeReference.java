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
    /** A function of the native library that takes the address of an object. */
    interface Call<T, E extends Exception> {
        T on(long address) throws E;
    }

    /** Like {@link Call}, for functions without a result. */
    interface Action<E extends Exception> {
        void on(long address) throws E;
    }

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

    /** Makes a call, unless the object is closed. Returns the call's result; null if the object is closed. */
    <T, E extends Exception> T call(Call<T, E> call) throws E {
        long address = acquire();
        if (address == 0) {
            return null;
        }
        try {
            return call.on(address);
        } finally {
            release();
        }
    }

    /** Makes a call, unless the object is closed. Returns whether it was made. */
    <E extends Exception> boolean run(Action<E> action) throws E {
        long address = acquire();
        if (address == 0) {
            return false;
        }
        try {
            action.on(address);
            return true;
        } finally {
            release();
        }
    }

    /**
     * Returns the address for a call, which {@link #release} ends; 0 if the object is closed, and no call may follow.
     * For frequent calls, such as small reads, for each of which {@link #call} would allocate an object.
     */
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

    /** Ends a call that {@link #acquire} has begun. */
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
