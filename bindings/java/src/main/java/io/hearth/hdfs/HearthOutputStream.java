package io.hearth.hdfs;

import java.io.IOException;
import java.io.InterruptedIOException;
import java.nio.channels.ClosedChannelException;
import java.nio.charset.StandardCharsets;
import java.util.EnumSet;
import org.apache.hadoop.fs.CreateFlag;
import org.apache.hadoop.hdfs.DFSOutputStream;
import org.apache.hadoop.hdfs.client.HdfsDataOutputStream.SyncFlag;
import org.apache.hadoop.hdfs.protocol.DSQuotaExceededException;
import org.apache.hadoop.hdfs.protocol.DatanodeInfo;
import org.apache.hadoop.hdfs.protocol.ExtendedBlock;
import org.apache.hadoop.hdfs.protocol.QuotaByStorageTypeExceededException;
import org.apache.hadoop.util.Progressable;

/**
 * Stream of a file, whose bytes the native client writes. It behaves like the stream of Hadoop's client that opened the
 * file. That one keeps the lease, in whose name the native client writes.
 *
 * <p>The first bytes decide who writes: if the native client cannot, or the DataNodes are not Hearth's, Hadoop's stream
 * gets all bytes. This class extends Hadoop's, because programs look for it. It overrides all that writes.
 */
final class HearthOutputStream extends DFSOutputStream {
    /** Small writes are collected up to this many bytes. */
    private static final int BUFFER_BYTES = 1 << 16;

    /** Bytes that are handed over between two calls of the program's {@link Progressable}. */
    private static final int PIECE_BYTES = 1 << 20;

    private final HearthClient client;
    private final DFSOutputStream stock;
    private final WrittenFile file;
    private final Progressable progress;

    /** Bytes that were not handed over. Guarded by this object, like the others below. */
    private byte[] buffer;
    private int buffered;
    /** The writer; null before the first bytes are handed over, or if Hadoop's stream writes. */
    private NativeReference writer;
    /** Hadoop's stream writes. */
    private boolean refused;
    /**
     * Failure after which bytes are missing: of the native writer, of a write whose thread was interrupted, to begin a
     * writer that was demanded, or to begin one that cannot be begun again. Null if there was none.
     */
    private Throwable firstFailure;
    /** Failure of a close that the program did not ask for, which its own close throws. Null if there was none. */
    private IOException unseen;
    /** No call before close threw {@link #firstFailure}. As with Hadoop's stream, the next close throws it, too. */
    private boolean isThrownAgain;

    HearthOutputStream(HearthClient client, DFSOutputStream stock, WrittenFile file, Progressable progress) {
        // Without a thread of its own.
        super(file.client, file.path, file.status(), EnumSet.of(CreateFlag.CREATE), null, file.checksum, null, false);
        this.client = client;
        this.stock = stock;
        this.file = file;
        this.progress = progress;
    }

    /** Calls the native writer, and throws what Hadoop's stream would. */
    private void call(NativeReference.Action<IOException> action) throws IOException {
        try {
            run(action);
        } catch (RefusedException e) {
            throw e.unwrapped();
        } catch (InterruptedIOException e) {
            throw inPlaceOfInterrupt(e);
        }
    }

    /** Calls the native writer, unless it is closed. */
    private void run(NativeReference.Action<IOException> action) throws IOException {
        if (!writer.run(action)) {
            throw new ClosedChannelException();
        }
    }

    /**
     * Clears the thread's interrupt, as Hadoop's stream does when it throws this exception. Otherwise a close after it would
     * be interrupted, too, and leave the file open.
     */
    private static InterruptedIOException inPlaceOfInterrupt(InterruptedIOException e) {
        Thread.interrupted();
        return e;
    }

    /** Returns the exception of a call whose thread was interrupted before the writer took all bytes. */
    private InterruptedIOException interrupted(int transferred) {
        InterruptedIOException e =
                new InterruptedIOException("interrupted while DataNodes were to take bytes of " + file.path);
        e.bytesTransferred = transferred;
        return inPlaceOfInterrupt(e);
    }

    /** Throws if an earlier write failed. The exception is a new one, to which the first may be added as suppressed. */
    private void checkWhole() throws IOException {
        if (firstFailure == null) {
            return;
        }
        RefusedException refusal = RefusedException.in(firstFailure);
        if (refusal != null) {
            throw refusal.unwrapped();
        }
        throw new IOException("an earlier write to " + file.path + " failed: " + firstFailure, firstFailure);
    }

    /** Throws if the stream is closed, Hadoop's client has lost the lease, or an earlier write failed. */
    @Override
    protected void checkClosed() throws IOException {
        if (closed) {
            throw new ClosedChannelException();
        }
        if (WrittenFile.isClosed(stock)) {
            // It throws the reason.
            stock.hflush();
            throw new ClosedChannelException();
        }
        checkWhole();
    }

    private void checkOpen() throws IOException {
        if (!client.isOpen()) {
            throw new IOException("Filesystem closed");
        }
        checkClosed();
    }

    // Writing.

    @Override
    public synchronized void write(int b) throws IOException {
        if (closed) {
            throw new ClosedChannelException();
        }
        if (!refused) {
            makeRoom(1);
        }
        // Hadoop's stream may have taken over just now.
        if (refused) {
            stock.write(b);
        } else {
            buffer[buffered++] = (byte) b;
        }
    }

    @Override
    public synchronized void write(byte[] from, int offset, int length) throws IOException {
        checkClosed();
        if (offset < 0 || length < 0 || offset > from.length - length) {
            throw new ArrayIndexOutOfBoundsException();
        }
        if (length == 0) {
            return;
        }
        if (length < BUFFER_BYTES && !refused) {
            makeRoom(length);
        }
        // Hadoop's stream may have taken over just now.
        if (length < BUFFER_BYTES && !refused) {
            System.arraycopy(from, offset, buffer, buffered, length);
            buffered += length;
            return;
        }
        writeOrFail(() -> {
            handOverBuffer();
            int taken = handOver(from, offset, length);
            if (taken < length) {
                throw interrupted(taken);
            }
        });
    }

    private void makeRoom(int length) throws IOException {
        if (buffer == null) {
            buffer = new byte[BUFFER_BYTES];
        }
        if (buffered + length > buffer.length) {
            writeOrFail(this::handOverBuffer);
        }
    }

    /** A part of a write. */
    private interface Part {
        void run() throws IOException;
    }

    /**
     * Runs a part of a write. If the thread is interrupted in it, the stream fails: bytes of the write are missing, of which
     * neither a repetition nor a close may make a file.
     */
    private void writeOrFail(Part part) throws IOException {
        try {
            part.run();
        } catch (InterruptedIOException e) {
            // Hadoop's stream keeps its own failures.
            if (!refused && firstFailure == null) {
                firstFailure = e;
            }
            throw e;
        }
    }

    /**
     * Hands over what is buffered.
     *
     * @throws InterruptedIOException if the thread is interrupted; the rest stays in the buffer
     */
    private void handOverBuffer() throws IOException {
        if (buffered > 0) {
            decide();
            int length = buffered;
            // After a failure, the same bytes are not sent twice.
            buffered = 0;
            int taken = handOver(buffer, 0, length);
            if (taken < length) {
                buffered = length - taken;
                System.arraycopy(buffer, taken, buffer, 0, buffered);
                throw interrupted(0);
            }
        }
    }

    /** Decides who writes, unless that is known. */
    private void decide() throws IOException {
        checkClosed();
        if (writer == null && !refused) {
            long address;
            try {
                address = client.begin(file);
            } catch (HearthClient.RequiredException e) {
                firstFailure = e;
                throw e;
            } catch (InterruptedIOException e) {
                if (file.needsBlockBehindOthers()) {
                    firstFailure = e;
                }
                throw inPlaceOfInterrupt(e);
            }
            refused = address == 0;
            writer = refused ? null : NativeReference.of(this, address, NativeWriter::close);
        }
    }

    /** Hands over bytes. Returns their number, fewer only if the thread is interrupted and there was no room. */
    private int handOver(byte[] from, int offset, int length) throws IOException {
        decide();
        if (refused) {
            stock.write(from, offset, length);
            return length;
        }
        try {
            int done = 0;
            int[] taken = new int[1];
            while (done < length) {
                int start = offset + done;
                int piece = Math.min(length - done, PIECE_BYTES);
                call(address -> taken[0] = NativeWriter.write(address, from, start, piece));
                done += taken[0];
                if (taken[0] < piece) {
                    break;
                }
                if (progress != null) {
                    progress.progress();
                }
            }
            return done;
        } catch (IOException | RuntimeException | Error e) {
            // A part may have been taken. Neither a repetition nor a close may make a file of the rest.
            firstFailure = e;
            throw e;
        }
    }

    /** The bytes go on when there are enough of them. */
    @Override
    public synchronized void flush() throws IOException {
        if (refused && !closed) {
            stock.flush();
        }
    }

    @Override
    public void hflush() throws IOException {
        flush(false, EnumSet.noneOf(SyncFlag.class));
    }

    @Override
    public void hsync() throws IOException {
        flush(true, EnumSet.noneOf(SyncFlag.class));
    }

    @Override
    public void hsync(EnumSet<SyncFlag> flags) throws IOException {
        flush(true, flags);
    }

    private void flush(boolean sync, EnumSet<SyncFlag> flags) throws IOException {
        long[] pending = new long[1];
        synchronized (this) {
            checkOpen();
            handOverBuffer();
            // It may set up a pipeline to the block that it is to continue.
            refused |= writer == null && sync && file.lastBlock != null;
            if (writer != null) {
                call(address -> pending[0] = NativeWriter.flush(address, sync, flags.contains(SyncFlag.END_BLOCK),
                        flags.contains(SyncFlag.UPDATE_LENGTH)));
            }
        }
        // Other threads may write while this one waits.
        if (pending[0] != 0) {
            try {
                NativeWriter.acknowledged(pending[0]);
            } catch (RefusedException e) {
                throw e.unwrapped();
            } catch (InterruptedIOException e) {
                throw inPlaceOfInterrupt(e);
            }
        } else if (sync) {
            stock.hsync(flags);
        } else {
            stock.hflush();
        }
    }

    // The pipeline.

    @Override
    public synchronized int getCurrentBlockReplication() throws IOException {
        checkOpen();
        if (writer == null) {
            return stock.getCurrentBlockReplication();
        }
        DatanodeInfo[] pipeline = getPipeline();
        return pipeline == null ? file.replication : pipeline.length;
    }

    @Override
    @Deprecated
    public synchronized int getNumCurrentReplicas() throws IOException {
        return getCurrentBlockReplication();
    }

    @Override
    public synchronized DatanodeInfo[] getPipeline() {
        if (closed) {
            return null;
        }
        if (writer == null) {
            return stock.getPipeline();
        }
        byte[] lines = writer.call(NativeWriter::pipeline);
        return lines == null ? null : datanodes(new String(lines, StandardCharsets.UTF_8));
    }

    /** Decodes DataNodes as the native library encodes them ({@code writer.rs}). Returns null if there are none. */
    private static DatanodeInfo[] datanodes(String lines) {
        if (lines.isEmpty()) {
            return null;
        }
        String[] each = lines.split("\n");
        DatanodeInfo[] datanodes = new DatanodeInfo[each.length];
        for (int i = 0; i < each.length; i++) {
            String[] fields = each[i].split("\t", -1);
            datanodes[i] = new DatanodeInfo.DatanodeInfoBuilder().setIpAddr(fields[0]).setHostName(fields[1])
                    .setDatanodeUuid(fields[2]).setXferPort(Integer.parseInt(fields[3]))
                    .setInfoPort(Integer.parseInt(fields[4])).setInfoSecurePort(Integer.parseInt(fields[5]))
                    .setIpcPort(Integer.parseInt(fields[6])).setNetworkLocation(fields[7]).build();
        }
        return datanodes;
    }

    // The rest.

    @Override
    public long getInitialLen() {
        return file.length;
    }

    @Override
    public void setDropBehind(Boolean dropBehind) throws IOException {
        stock.setDropBehind(dropBehind);
    }

    @Override
    public boolean hasCapability(String capability) {
        return stock.hasCapability(capability);
    }

    @Override
    public void setArtificialSlowdown(long period) {
        stock.setArtificialSlowdown(period);
    }

    @Override
    public synchronized void setChunksPerPacket(int value) {
        stock.setChunksPerPacket(value);
    }

    @Override
    public void close() throws IOException {
        synchronized (this) {
            if (closed) {
                closeAgain();
                return;
            }
            try {
                closeOnce();
            } finally {
                closed = true;
                client.closed(this);
                buffer = null;
                if (writer != null) {
                    // First the lease, which would be renewed as long as the program runs.
                    WrittenFile.abandon(stock);
                    writer.close();
                }
            }
        }
    }

    /**
     * Closes the stream because its file system is closed. If that fails, the program's own close throws the failure:
     * otherwise it would take the file for whole.
     */
    synchronized void closeWithFileSystem() throws IOException {
        if (closed) {
            return;
        }
        try {
            close();
        } catch (IOException | RuntimeException | Error e) {
            // The program's thread was not interrupted.
            boolean isPlain = e instanceof IOException && !(e instanceof InterruptedIOException);
            unseen = isPlain ? (IOException) e : new IOException("the close of " + file.path + " failed: " + e, e);
            throw e;
        }
    }

    /** Throws, once, what an earlier close left for this one. */
    private void closeAgain() throws IOException {
        IOException failure = unseen;
        boolean again = isThrownAgain;
        unseen = null;
        isThrownAgain = false;
        if (refused) {
            // It does the same.
            stock.close();
        }
        if (failure != null) {
            throw failure;
        }
        if (again) {
            checkWhole();
        }
    }

    private void closeOnce() throws IOException {
        if (WrittenFile.isClosed(stock)) {
            // It throws the reason, unless the program has closed it.
            stock.close();
            if (writer != null || buffered > 0) {
                throw new ClosedChannelException();
            }
            return;
        }
        boolean isKnown = firstFailure != null;
        try {
            if (!isKnown) {
                handOverBuffer();
            }
            // After an interrupted write, the DataNodes may hang, and the file cannot be closed anyway.
            if (writer != null && !(firstFailure instanceof InterruptedIOException)) {
                // First, because it throws the writer's own failure, if it has one.
                call(NativeWriter::finish);
            }
            checkWhole();
        } catch (IOException e) {
            if (writer == null) {
                closeAfter(e);
            } else {
                if (!isKnown && !(e instanceof InterruptedIOException)) {
                    firstFailure = e;
                    isThrownAgain = true;
                }
                completeAfter(e);
                recoverLease();
            }
            throw e;
        }
        if (writer == null) {
            stock.close();
            return;
        }
        try {
            run(NativeWriter::complete);
        } catch (RefusedException e) {
            recoverLease();
            throw e.remote();
        } catch (InterruptedIOException e) {
            // The file may still become complete.
            throw inPlaceOfInterrupt(e);
        } catch (IOException e) {
            recoverLease();
            throw e;
        }
    }

    /** Has the NameNode recover the file's lease, if that is configured. */
    private void recoverLease() {
        if (client.recoversLeases()) {
            recoverLease(true);
        }
    }

    /** Closes Hadoop's stream, which has failed. */
    private void closeAfter(IOException failure) {
        boolean interrupted =
                failure instanceof InterruptedIOException || firstFailure instanceof InterruptedIOException;
        if (!refused && (interrupted || firstFailure != null && file.length == 0)) {
            // The file may have a block that no client writes. The NameNode would not close it. After an interrupt, the file
            // would lack the bytes of the buffer.
            WrittenFile.abandon(stock);
            return;
        }
        try {
            stock.close();
        } catch (IOException e) {
            if (e != failure) {
                failure.addSuppressed(e);
            }
        }
    }

    /** If a quota was exceeded, what was written before becomes a complete file, as with Hadoop's stream. */
    private void completeAfter(IOException failure) {
        if (failure instanceof DSQuotaExceededException || failure instanceof QuotaByStorageTypeExceededException) {
            try {
                completeFile(lastBlock());
            } catch (IOException e) {
                failure.addSuppressed(e);
            }
        }
    }

    private ExtendedBlock lastBlock() {
        byte[] last = writer.call(NativeWriter::lastBlock);
        // What was there before an append is not written again.
        if (last == null) {
            return file.lastBlock;
        }
        return WrittenFile.decodedBlock(new String(last, StandardCharsets.UTF_8));
    }

    /** Tells who writes, for logs. Does not wait for a write, so that may be outdated. */
    @Override
    public String toString() {
        String by = writer != null ? " by Hearth's client" : refused ? " by Hadoop's client" : "";
        return "HearthOutputStream of " + file.path + by;
    }
}
