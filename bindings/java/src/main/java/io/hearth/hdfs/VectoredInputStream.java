package io.hearth.hdfs;

import java.io.EOFException;
import java.io.IOException;
import java.io.InterruptedIOException;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.List;
import java.util.Objects;
import java.util.concurrent.CompletableFuture;
import java.util.function.Consumer;
import java.util.function.IntFunction;
import org.apache.hadoop.fs.FileRange;
import org.apache.hadoop.fs.StreamCapabilities;
import org.apache.hadoop.hdfs.DFSInputStream;
import org.apache.hadoop.util.StringUtils;

/**
 * {@link HearthInputStream} with vectored reads, which Hadoop has since version 3.3.5. A class of its own, because older
 * versions lack the type that its methods name.
 */
final class VectoredInputStream extends HearthInputStream {
    VectoredInputStream(HearthClient client, DFSInputStream stock, LocatedFile located) {
        super(client, stock, located);
    }

    @Override
    public void readVectored(List<? extends FileRange> ranges, IntFunction<ByteBuffer> allocate) throws IOException {
        readVectored(ranges, allocate, buffer -> { });
    }

    @Override
    public void readVectored(List<? extends FileRange> ranges, IntFunction<ByteBuffer> allocate,
            Consumer<ByteBuffer> release) throws IOException {
        Objects.requireNonNull(release);
        List<FileRange> sorted = sorted(ranges);
        ByteBuffer[] buffers = new ByteBuffer[sorted.size()];
        List<Integer> together = new ArrayList<>(buffers.length);
        for (int i = 0; i < buffers.length; i++) {
            FileRange range = sorted.get(i);
            buffers[i] = allocate.apply(range.getLength());
            boolean fits = buffers[i].remaining() == range.getLength()
                    && range.getOffset() + range.getLength() <= length();
            if (fits && isFillable(buffers[i])) {
                together.add(i);
            }
        }
        boolean[] done = new boolean[buffers.length];
        InterruptedIOException interrupted = null;
        if (!together.isEmpty()) {
            try {
                readTogether(sorted, buffers, together, done);
            } catch (InterruptedIOException e) {
                interrupted = e;
            }
        }
        for (int i = 0; i < buffers.length; i++) {
            CompletableFuture<ByteBuffer> result = new CompletableFuture<>();
            try {
                if (!done[i]) {
                    if (interrupted != null) {
                        throw interrupted;
                    }
                    readFully(sorted.get(i).getOffset(), buffers[i]);
                }
                buffers[i].flip();
                result.complete(buffers[i]);
            } catch (IOException e) {
                release.accept(buffers[i]);
                result.completeExceptionally(e);
            }
            sorted.get(i).setData(result);
        }
    }

    /** Checks the ranges as Hadoop does, and returns them in the order of their offsets. */
    private static List<FileRange> sorted(List<? extends FileRange> ranges) throws EOFException {
        List<FileRange> sorted = new ArrayList<>(Objects.requireNonNull(ranges, "Null input list"));
        for (FileRange range : sorted) {
            Objects.requireNonNull(range, "range is null");
        }
        sorted.sort(Comparator.comparingLong(FileRange::getOffset));
        FileRange before = null;
        for (FileRange range : sorted) {
            if (range.getLength() < 0) {
                throw new IllegalArgumentException("length is negative in " + range);
            }
            if (range.getOffset() < 0) {
                throw new EOFException("position is negative in range " + range);
            }
            if (before != null && range.getOffset() < before.getOffset() + before.getLength()) {
                throw new IllegalArgumentException("Overlapping ranges " + before + " and " + range);
            }
            before = range;
        }
        return sorted;
    }

    /** Fills the buffers with these indexes by one call, and marks those that it has filled. */
    private void readTogether(List<FileRange> ranges, ByteBuffer[] buffers, List<Integer> together, boolean[] done)
            throws IOException {
        NativeReference open = fileAt(0);
        if (open == null) {
            return;
        }
        int size = together.size();
        long[] positions = new long[size];
        int[] lengths = new int[size];
        Object[] targets = new Object[size];
        int[] offsets = new int[size];
        for (int i = 0; i < size; i++) {
            int index = together.get(i);
            ByteBuffer buffer = buffers[index];
            positions[i] = ranges.get(index).getOffset();
            lengths[i] = ranges.get(index).getLength();
            targets[i] = buffer.isDirect() ? buffer : buffer.array();
            offsets[i] = buffer.isDirect() ? -1 - buffer.position() : buffer.arrayOffset() + buffer.position();
        }
        try {
            open.run(address -> {
                byte[] filled = NativeFiles.readRanges(address, positions, lengths, targets, offsets);
                int count = 0;
                for (int i = 0; i < size; i++) {
                    if (filled[i] != 0) {
                        int index = together.get(i);
                        buffers[index].position(buffers[index].position() + lengths[i]);
                        done[index] = true;
                        count += lengths[i];
                    }
                }
                count(count, NativeFiles.elsewhere(address));
            });
        } catch (IOException e) {
            failed(open, e);
        }
    }

    @Override
    public boolean hasCapability(String capability) {
        return StringUtils.toLowerCase(capability).equals(StreamCapabilities.VECTOREDIO)
                || super.hasCapability(capability);
    }
}
