import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.security.MessageDigest;
import java.util.ArrayList;
import java.util.EnumSet;
import java.util.List;
import java.util.TreeSet;
import java.util.concurrent.ExecutionException;
import java.util.function.IntFunction;
import org.apache.hadoop.fs.FSDataInputStream;
import org.apache.hadoop.fs.FileRange;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.ReadOption;
import org.apache.hadoop.hdfs.client.HdfsDataInputStream;
import org.apache.hadoop.io.ElasticByteBufferPool;

/** Reads a file by two file systems in every way there is, and compares the answers: bytes, positions and exceptions. */
final class Alike {
    private final FileSystem stock;
    private final FileSystem other;
    private final Path path;
    private final long block;
    private int compared;

    private Alike(FileSystem stock, FileSystem other, Path path, long block) {
        this.stock = stock;
        this.other = other;
        this.path = path;
        this.block = block;
    }

    /**
     * Compares the two.
     *
     * @param block size of a block, near whose ends is read
     * @return number of comparisons
     * @throws IOException if an answer differs
     */
    static int compare(FileSystem stock, FileSystem other, Path path, long block) throws IOException {
        Alike alike = new Alike(stock, other, path, block);
        alike.properties();
        alike.positioned();
        alike.inOrder();
        alike.vectored();
        alike.withoutCopies();
        alike.closed();
        return alike.compared;
    }

    private interface Call {
        Object on(FSDataInputStream in) throws Exception;
    }

    private interface OnPair {
        void run(FSDataInputStream first, FSDataInputStream second) throws IOException;
    }

    private void withPair(OnPair use) throws IOException {
        try (FSDataInputStream first = stock.open(path); FSDataInputStream second = other.open(path)) {
            use.run(first, second);
        }
    }

    private void same(String what, FSDataInputStream first, FSDataInputStream second, Call call) throws IOException {
        String expected = outcome(first, call) + " then at " + first.getPos();
        String found = outcome(second, call) + " then at " + second.getPos();
        compared++;
        if (!expected.equals(found)) {
            throw new IOException(path + ": " + what + ": " + found + " instead of " + expected);
        }
    }

    private static String outcome(FSDataInputStream in, Call call) {
        try {
            return String.valueOf(call.on(in));
        } catch (IndexOutOfBoundsException | NullPointerException | java.nio.ReadOnlyBufferException e) {
            // Their texts come from the JVM.
            return e.getClass().getSimpleName().replace("Array", "");
        } catch (Exception e) {
            return e.getClass().getName() + ": " + e.getMessage();
        }
    }

    private static String hash(byte[] bytes, int length) {
        MessageDigest digest = Content.sha256();
        digest.update(bytes, 0, length);
        return length + " bytes " + Content.hex(digest.digest()).substring(0, 16);
    }

    /** Describes a buffer: position, limit, and all of its content. */
    private static String describe(ByteBuffer buffer) {
        ByteBuffer all = buffer.duplicate();
        all.clear();
        byte[] bytes = new byte[all.remaining()];
        all.get(bytes);
        return buffer.position() + " to " + buffer.limit() + " of " + hash(bytes, bytes.length);
    }

    /** Offsets near every edge: of the file, its blocks, and the chunks that have a checksum. */
    private List<Long> edges(long length) {
        TreeSet<Long> edges = new TreeSet<>();
        long[] centers = {0, 512, 65536, length / 2, block, 2 * block, length};
        for (long center : centers) {
            for (long near = center - 1; near <= center + 1; near++) {
                if (near <= length + 1) {
                    edges.add(near);
                }
            }
        }
        return new ArrayList<>(edges);
    }

    private int[] lengths(long length) {
        return new int[] {0, 1, 511, 512, 513, 4096, 70_001, (int) Math.min(length + 10, block + 4097)};
    }

    private void properties() throws IOException {
        withPair((first, second) -> {
            same("length", first, second, in -> ((HdfsDataInputStream) in).getVisibleLength());
            same("blocks", first, second, in -> {
                // Without the DataNodes, whose order varies.
                List<String> blocks = new ArrayList<>();
                ((HdfsDataInputStream) in).getAllBlocks()
                        .forEach(each -> blocks.add(each.getStartOffset() + " " + each.getBlock()));
                return blocks;
            });
            same("available", first, second, FSDataInputStream::available);
            same("mark", first, second, in -> in.markSupported());
            same("reset", first, second, in -> {
                in.reset();
                return null;
            });
            same("block before a read", first, second, in -> ((HdfsDataInputStream) in).getCurrentBlock());
            for (String capability : new String[] {"in:readahead", "dropbehind", "in:unbuffer", "in:readbytebuffer",
                "in:preadbytebuffer", "hflush", "none"}) {
                same(capability, first, second, in -> in.hasCapability(capability));
            }
            same("file descriptor", first, second, FSDataInputStream::getFileDescriptor);
            same("first byte", first, second, FSDataInputStream::read);
            same("block after a read", first, second, in -> ((HdfsDataInputStream) in).getCurrentBlock());
        });
        long[] counted = new long[2];
        FileSystem[] both = {stock, other};
        for (int i = 0; i < 2; i++) {
            FileSystem.Statistics statistics = FileSystem.getStatistics("hdfs", both[i].getClass());
            long before = statistics.getBytesRead();
            long near = statistics.getBytesReadByDistance(0);
            try (FSDataInputStream in = both[i].open(path)) {
                byte[] all = all(in);
                counted[i] = ((HdfsDataInputStream) in).getReadStatistics().getTotalBytesRead();
                if (counted[i] != all.length || statistics.getBytesRead() - before != all.length
                        || statistics.getBytesReadByDistance(0) - near != all.length) {
                    throw new IOException(path + ": " + all.length + " bytes were counted as " + counted[i] + ", "
                            + (statistics.getBytesRead() - before) + " and near "
                            + (statistics.getBytesReadByDistance(0) - near) + " by " + both[i].getClass());
                }
            }
        }
    }

    private static byte[] all(FSDataInputStream in) throws IOException {
        ByteArrayOutputStream all = new ByteArrayOutputStream();
        byte[] piece = new byte[9999];
        for (int got; (got = in.read(piece)) >= 0; ) {
            all.write(piece, 0, got);
        }
        return all.toByteArray();
    }

    private void positioned() throws IOException {
        withPair((first, second) -> {
            long length = ((HdfsDataInputStream) first).getVisibleLength();
            for (long at : edges(length)) {
                for (int count : lengths(length)) {
                    String what = count + " bytes at " + at;
                    same("read " + what, first, second, in -> {
                        byte[] bytes = new byte[count + 5];
                        return in.read(at, bytes, 3, count) + ": " + hash(bytes, bytes.length);
                    });
                    same("read fully " + what, first, second, in -> {
                        byte[] bytes = new byte[count];
                        in.readFully(at, bytes);
                        return hash(bytes, bytes.length);
                    });
                    for (boolean direct : new boolean[] {false, true}) {
                        same("buffer " + direct + " of " + what, first, second, in -> {
                            ByteBuffer buffer = buffer(direct, count);
                            return in.read(at, buffer) + ": " + describe(buffer);
                        });
                        same("full buffer " + direct + " of " + what, first, second, in -> {
                            ByteBuffer buffer = buffer(direct, count);
                            in.readFully(at, buffer);
                            return describe(buffer);
                        });
                    }
                }
            }
            same("null", first, second, in -> in.read(0, null, 0, 1));
            same("negative length", first, second, in -> in.read(0, new byte[3], 0, -1));
            same("negative offset", first, second, in -> in.read(0, new byte[3], -1, 2));
            same("too long", first, second, in -> in.read(0, new byte[3], 1, 3));
            same("read-only", first, second, in -> in.read(0, ByteBuffer.allocate(3).asReadOnlyBuffer()));
        });
    }

    private static ByteBuffer buffer(boolean direct, int count) {
        ByteBuffer buffer = direct ? ByteBuffer.allocateDirect(count + 9) : ByteBuffer.allocate(count + 9);
        buffer.position(2);
        buffer = buffer.slice();
        buffer.position(3);
        buffer.limit(3 + count);
        return buffer;
    }

    private void inOrder() throws IOException {
        withPair((first, second) -> {
            long length = ((HdfsDataInputStream) first).getVisibleLength();
            for (long at : edges(length)) {
                for (int count : lengths(length)) {
                    String what = count + " bytes from " + at;
                    same("stream " + what, first, second, in -> {
                        in.seek(at);
                        byte[] bytes = new byte[count + 5];
                        int done = 0;
                        int got = 0;
                        while (done < count && (got = in.read(bytes, 3 + done, count - done)) > 0) {
                            done += got;
                        }
                        return done + ", " + (got < 0) + ", " + in.available() + ": " + hash(bytes, bytes.length);
                    });
                    for (boolean direct : new boolean[] {false, true}) {
                        same("stream into a buffer " + direct + " " + what, first, second, in -> {
                            in.seek(at);
                            ByteBuffer buffer = buffer(direct, count);
                            int got = 0;
                            while (buffer.hasRemaining() && got >= 0) {
                                got = in.read(buffer);
                            }
                            return (got < 0) + ": " + describe(buffer);
                        });
                    }
                }
                same("byte at " + at, first, second, in -> {
                    in.seek(at);
                    return in.read();
                });
            }
            for (long count : new long[] {-1, 0, 1, 100, block, length, Long.MAX_VALUE / 2}) {
                same("skip of " + count, first, second, in -> {
                    in.seek(length / 3);
                    return in.skip(count) + ", " + in.read();
                });
            }
            same("read without unbuffer", first, second, in -> {
                in.seek(0);
                int before = in.read();
                in.unbuffer();
                return before + ", " + in.read();
            });
            for (int i = 0; i < 20; i++) {
                long at = i * 37 % Math.max(length, 1);
                same("short seek to " + at, first, second, in -> {
                    in.seek(at);
                    return in.read();
                });
            }
            same("null", first, second, in -> in.read(null, 0, 1));
            same("negative length", first, second, in -> in.read(new byte[3], 0, -1));
            same("negative offset", first, second, in -> in.read(new byte[3], -1, 2));
            same("too long", first, second, in -> in.read(new byte[3], 1, 3));
        });
        withPair((first, second) -> {
            long length = ((HdfsDataInputStream) first).getVisibleLength();
            if (length > 0) {
                same("new source", first, second, in -> in.seekToNewSource(length / 2) + ", " + all(in).length);
            }
        });
    }

    private static List<FileRange> ranges(long... offsetsAndLengths) {
        List<FileRange> ranges = new ArrayList<>();
        for (int i = 0; i < offsetsAndLengths.length; i += 2) {
            ranges.add(FileRange.createFileRange(offsetsAndLengths[i], (int) offsetsAndLengths[i + 1]));
        }
        return ranges;
    }

    private static Object readVectored(FSDataInputStream in, List<FileRange> ranges, IntFunction<ByteBuffer> allocate)
            throws Exception {
        in.readVectored(ranges, allocate);
        StringBuilder all = new StringBuilder();
        for (FileRange range : ranges) {
            try {
                all.append(range).append(describe(range.getData().get())).append("; ");
            } catch (ExecutionException e) {
                all.append(range).append(e.getCause()).append("; ");
            }
        }
        return all;
    }

    private void vectored() throws IOException {
        withPair((first, second) -> {
            long length = ((HdfsDataInputStream) first).getVisibleLength();
            long[] many = new long[64 * 2];
            for (int i = 0; i < 64; i++) {
                // In no order: 29 and 64 have no common factor.
                many[2 * i] = (i * 29 % 64) * (length / 64);
                many[2 * i + 1] = Math.min(length / 64, 70_000);
            }
            long[][] lists = {
                {}, {0, length}, {length / 2, length - length / 2, 0, length / 3}, many, {0, 0, length, 0}, {0, 1, 1, 1},
                // Errors: overlapping, behind the end, negative.
                {0, 10, 5, 10}, {0, 10, 0, 10}, {0, 1, length - 1, 2}, {length + 5, 1}, {length, 1, 0, 1}, {-1, 3},
                {0, -1}, {0, 1, 2, -1}, {5, 1, -2, 1},
            };
            for (long[] list : lists) {
                for (boolean direct : new boolean[] {false, true}) {
                    String what = direct + " " + java.util.Arrays.toString(list);
                    same("vectored " + what, first, second,
                            in -> readVectored(in, ranges(list), direct ? ByteBuffer::allocateDirect : ByteBuffer::allocate));
                }
            }
            same("null", first, second, in -> readVectored(in, null, ByteBuffer::allocate));
            List<FileRange> withNull = ranges(0, 1);
            withNull.add(null);
            same("null range", first, second, in -> {
                in.readVectored(withNull, ByteBuffer::allocate);
                return null;
            });
            same("short buffers", first, second, in -> {
                List<FileRange> ranges = ranges(0, Math.min(length, 100));
                in.readVectored(ranges, count -> ByteBuffer.allocate(count / 2));
                return describe(ranges.get(0).getData().get());
            });
        });
    }

    private void withoutCopies() throws IOException {
        for (boolean skip : new boolean[] {false, true}) {
            EnumSet<ReadOption> options = skip ? EnumSet.of(ReadOption.SKIP_CHECKSUMS) : EnumSet.noneOf(ReadOption.class);
            for (int piece : new int[] {1000, 100_000, 4 << 20}) {
                withPair((first, second) -> {
                    same("pieces of " + piece, first, second, in -> {
                        ElasticByteBufferPool pool = new ElasticByteBufferPool();
                        ByteArrayOutputStream all = new ByteArrayOutputStream();
                        for (ByteBuffer got; (got = in.read(pool, piece, options)) != null; ) {
                            byte[] bytes = new byte[got.remaining()];
                            got.duplicate().get(bytes);
                            all.write(bytes);
                            in.releaseBuffer(got);
                        }
                        return hash(all.toByteArray(), all.size());
                    });
                    same("nothing", first, second, in -> in.read(null, 0, options).remaining());
                    same("less than nothing", first, second, in -> in.read(null, -1, options));
                    ByteBuffer foreign = ByteBuffer.allocate(3);
                    same("foreign buffer", first, second, in -> {
                        in.releaseBuffer(foreign);
                        return null;
                    });
                });
            }
        }
    }

    private void closed() throws IOException {
        withPair((first, second) -> {
            first.read();
            second.read();
            for (int round = 0; round < 2; round++) {
                same("close", first, second, in -> {
                    in.close();
                    return null;
                });
            }
            same("read", first, second, FSDataInputStream::read);
            same("read into an array", first, second, in -> in.read(new byte[3]));
            same("read into nothing", first, second, in -> in.read(new byte[0]));
            same("read into a buffer", first, second, in -> in.read(ByteBuffer.allocate(3)));
            same("positioned", first, second, in -> in.read(0, new byte[3], 0, 3));
            same("positioned into a buffer", first, second, in -> in.read(0, ByteBuffer.allocateDirect(3)));
            same("seek", first, second, in -> {
                in.seek(0);
                return null;
            });
            same("available", first, second, FSDataInputStream::available);
            same("vectored", first, second, in -> readVectored(in, ranges(0, 1), ByteBuffer::allocate));
            same("unbuffer", first, second, in -> {
                in.unbuffer();
                return null;
            });
        });
    }
}
