import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.security.MessageDigest;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.EnumSet;
import java.util.List;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.BlockLocation;
import org.apache.hadoop.fs.CreateFlag;
import org.apache.hadoop.fs.FSDataInputStream;
import org.apache.hadoop.fs.FSDataOutputStream;
import org.apache.hadoop.fs.FileContext;
import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.GlobalStorageStatistics;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.permission.FsPermission;
import org.apache.hadoop.hdfs.DFSOutputStream;
import org.apache.hadoop.hdfs.DistributedFileSystem;
import org.apache.hadoop.hdfs.client.HdfsDataOutputStream;
import org.apache.hadoop.hdfs.client.HdfsDataOutputStream.SyncFlag;
import org.apache.hadoop.hdfs.protocol.HdfsConstants;
import org.apache.hadoop.ipc.RemoteException;
import org.apache.hadoop.util.Progressable;

/**
 * Writes files by two file systems in every way there is, and compares all that can be seen: content, metadata, positions
 * and exceptions.
 */
final class AlikeWrites {
    /** The first is Hadoop's own. */
    private final FileSystem[] both;
    private final Configuration[] configurations;
    private final Path top;
    private final int block;
    /** Part of the description of a stream that tells who writes; empty if that does not matter. */
    private final String writer;
    private int compared;
    private int scenarios;

    private AlikeWrites(FileSystem stock, FileSystem other, Path top, int block, String writer) {
        this.both = new FileSystem[] {stock, other};
        this.configurations = new Configuration[] {stock.getConf(), other.getConf()};
        this.top = top;
        this.block = block;
        this.writer = writer;
    }

    /**
     * Compares the two.
     *
     * @param top a directory for the files
     * @param block size of a block, a multiple of 1 MiB
     * @param writer who is to write by the other file system, as its streams describe that
     * @return number of comparisons
     * @throws IOException if anything differs
     */
    static int compare(FileSystem stock, FileSystem other, Path top, int block, String writer) throws Exception {
        AlikeWrites alike = new AlikeWrites(stock, other, top, block, writer);
        alike.sizes();
        alike.flushes();
        alike.properties();
        alike.creation();
        alike.arguments();
        alike.afterClose();
        alike.appended();
        alike.changedWhileOpen();
        alike.twoWriters();
        alike.quotas();
        alike.closedWithTheFileSystem();
        alike.failedClose();
        alike.closedBeneath();
        alike.failingProgress();
        alike.severalThreads();
        alike.interrupted();
        alike.statistics();
        alike.contexts();
        return alike.compared;
    }

    /** What happened, in order. */
    private static final class Story {
        private final List<String> lines = new ArrayList<>();

        void tell(String what, Object value) {
            lines.add(what + ": " + value);
        }

        /** Runs a call, and tells its answer or its exception. */
        void call(String what, Call call) {
            String outcome;
            try {
                outcome = String.valueOf(call.run());
            } catch (IndexOutOfBoundsException | NullPointerException e) {
                // Their texts come from the JVM.
                outcome = e.getClass().getSimpleName().replace("Array", "");
            } catch (RemoteException e) {
                outcome = "RemoteException of " + e.getClassName();
            } catch (Exception e) {
                outcome = e.getClass().getName();
            }
            tell(what, outcome);
        }
    }

    private interface Call {
        Object run() throws Exception;
    }

    private interface Scenario {
        void play(FileSystem fs, Path dir, Story story) throws Exception;
    }

    /** Plays a scenario by each file system, in a directory of its own, and compares the two stories. */
    private void same(String name, Scenario scenario) throws Exception {
        Story[] stories = {new Story(), new Story()};
        scenarios++;
        for (int i = 0; i < 2; i++) {
            Path dir = new Path(top, "scenario-" + scenarios + "/by-" + i);
            both[0].mkdirs(dir);
            scenario.play(both[i], dir, stories[i]);
        }
        List<String> expected = stories[0].lines;
        List<String> found = stories[1].lines;
        for (int i = 0; i < Math.max(expected.size(), found.size()); i++) {
            String one = i < expected.size() ? expected.get(i) : "nothing";
            String other = i < found.size() ? found.get(i) : "nothing";
            compared++;
            if (!one.equals(other)) {
                throw new IOException(name + ": " + other + " instead of " + one + ", after "
                        + found.subList(Math.max(0, i - 5), Math.min(i, found.size())));
            }
        }
    }

    /** Checks who writes, once bytes were handed over. */
    private void writtenBy(FileSystem fs, FSDataOutputStream out) throws IOException {
        String described = out.getWrappedStream().toString();
        if (fs == both[1] && !described.contains(writer)) {
            throw new IOException("written by another client: " + described);
        }
    }

    private FSDataOutputStream create(FileSystem fs, Path file) throws IOException {
        return fs.create(file, true, 4096, (short) 1, block);
    }

    /** All that can be seen of a file. Hadoop's own client looks at all files. */
    private void look(Path file, Story story) throws IOException {
        FileSystem fs = both[0];
        FileStatus status = fs.getFileStatus(file);
        story.tell("status", status.getLen() + " bytes, " + status.getReplication() + " times, blocks of "
                + status.getBlockSize() + ", " + status.getPermission() + " " + status.getOwner() + " "
                + status.getGroup());
        StringBuilder blocks = new StringBuilder();
        for (BlockLocation each : fs.getFileBlockLocations(file, 0, Long.MAX_VALUE)) {
            blocks.append(each.getOffset()).append('+').append(each.getLength()).append(' ');
        }
        story.tell("blocks", blocks);
        story.tell("content", content(fs, file));
        story.call("checksum", () -> fs.getFileChecksum(file));
        story.tell("closed", ((DistributedFileSystem) fs).isFileClosed(file));
    }

    private static String content(FileSystem fs, Path file) throws IOException {
        MessageDigest digest = Content.sha256();
        long length = 0;
        try (FSDataInputStream in = fs.open(file)) {
            byte[] piece = new byte[1 << 16];
            for (int got; (got = in.read(piece)) >= 0; ) {
                digest.update(piece, 0, got);
                length += got;
            }
        }
        return length + " bytes " + Content.hex(digest.digest()).substring(0, 16);
    }

    /** Sizes near every edge: of chunks, packets, the stream's own buffer, and blocks. */
    private void sizes() throws Exception {
        int[] lengths = {0, 1, 511, 512, 513, 65_535, 65_536, 65_537, 126 * 512, 262_144, 262_145, 1_000_003, block - 1,
            block, block + 1, 2 * block, 3 * block + 70_001};
        for (int length : lengths) {
            int[] pieces = length <= 65_537 ? new int[] {1, 100, 513, 70_001} : new int[] {4096, 65_535, 65_536, 70_001, length};
            for (int piece : pieces) {
                same(length + " bytes by " + piece, (fs, dir, story) -> {
                    Path file = new Path(dir, "file");
                    try (FSDataOutputStream out = create(fs, file)) {
                        write(out, 7, 0, length, piece);
                        story.tell("position", out.getPos());
                        out.flush();
                        out.hflush();
                        if (length > 0) {
                            writtenBy(fs, out);
                        }
                    }
                    look(file, story);
                });
            }
        }
        // Without a flush: the bytes are sent by close.
        for (int length : new int[] {1, 65_536, block, block + 77}) {
            same(length + " bytes at once", (fs, dir, story) -> {
                Path file = new Path(dir, "file");
                FSDataOutputStream out = create(fs, file);
                write(out, 8, 0, length, length);
                out.close();
                writtenBy(fs, out);
                look(file, story);
            });
        }
    }

    private static void write(FSDataOutputStream out, long seed, long position, int length, int piece) throws IOException {
        if (piece > 1) {
            new Content(seed).writeTo(out, position, length, piece);
            return;
        }
        for (byte each : new Content(seed).bytes(position, length)) {
            out.write(each);
        }
    }

    private void flushes() throws Exception {
        List<EnumSet<SyncFlag>> kinds = Arrays.asList(null, EnumSet.noneOf(SyncFlag.class),
                EnumSet.of(SyncFlag.UPDATE_LENGTH), EnumSet.of(SyncFlag.END_BLOCK), EnumSet.allOf(SyncFlag.class));
        for (EnumSet<SyncFlag> flags : kinds) {
            same("flushes with " + flags, (fs, dir, story) -> {
                Path file = new Path(dir, "file");
                HdfsDataOutputStream out = (HdfsDataOutputStream) create(fs, file);
                story.tell("replicas", out.getCurrentBlockReplication());
                int position = 0;
                for (int length : new int[] {0, 1, 510, 1, 0, 700, 65_536, 300_000, block, 3, 0}) {
                    write(out, 9, position, length, 10_007);
                    position += length;
                    if (flags == null) {
                        out.hflush();
                    } else if (flags.isEmpty()) {
                        out.hsync();
                    } else {
                        out.hsync(flags);
                    }
                    story.tell("position", out.getPos());
                    // A new reader sees everything.
                    story.tell("seen", content(both[0], file));
                    if (flags != null && flags.contains(SyncFlag.UPDATE_LENGTH)) {
                        story.tell("length", both[0].getFileStatus(file).getLen());
                    }
                    if (position > 0) {
                        writtenBy(fs, out);
                    }
                }
                story.tell("replicas", out.getCurrentBlockReplication());
                out.close();
                look(file, story);
            });
        }
    }

    private void properties() throws Exception {
        same("properties", (fs, dir, story) -> {
            try (FSDataOutputStream out = create(fs, new Path(dir, "file"))) {
                story.tell("HdfsDataOutputStream", out instanceof HdfsDataOutputStream);
                story.tell("DFSOutputStream", out.getWrappedStream() instanceof DFSOutputStream);
                for (String capability : new String[] {"hflush", "hsync", "HSYNC", "dropbehind", "in:readahead", "none"}) {
                    story.tell(capability, out.hasCapability(capability));
                }
                out.setDropBehind(true);
                DFSOutputStream wrapped = (DFSOutputStream) out.getWrappedStream();
                story.tell("pipeline before", Arrays.toString(wrapped.getPipeline()));
                story.tell("initial length", wrapped.getInitialLen());
                story.tell("encryption", wrapped.getFileEncryptionInfo());
                story.tell("same file", wrapped.getFileId() == fileId(dir));
                out.write(new byte[1000]);
                out.hflush();
                story.tell("pipeline", wrapped.getPipeline().length);
                story.tell("address", wrapped.getPipeline()[0].getXferAddr().contains(":"));
                wrapped.hsync(EnumSet.of(SyncFlag.UPDATE_LENGTH));
                story.tell("length", both[0].getFileStatus(new Path(dir, "file")).getLen());
            }
        });
    }

    private long fileId(Path dir) throws IOException {
        return ((DistributedFileSystem) both[0]).getClient().getFileInfo(dir.toUri().getPath() + "/file").getFileId();
    }

    private void creation() throws Exception {
        same("permissions and replication", (fs, dir, story) -> {
            Path file = new Path(dir, "file");
            FsPermission permission = new FsPermission((short) 0666);
            try (FSDataOutputStream out = fs.create(file, permission, false, 4096, (short) 2, block, null)) {
                out.write(new byte[600]);
            }
            look(file, story);
            FileSystem strict = FileSystem.newInstance(with(fs, "fs.permissions.umask-mode", "027"));
            Path other = new Path(dir, "strict");
            try (FSDataOutputStream out = strict.create(other)) {
                out.write(new byte[70_000]);
            }
            strict.close();
            look(other, story);
        });
        same("existing files and directories", (fs, dir, story) -> {
            Path file = new Path(dir, "file");
            for (int length : new int[] {100_000, 50, 0}) {
                try (FSDataOutputStream out = fs.create(file, true)) {
                    write(out, length, 0, length, 4096);
                }
                look(file, story);
            }
            story.call("existing", () -> fs.create(file, false));
            story.call("directory", () -> fs.create(dir, true));
            story.call("below a file", () -> fs.create(new Path(file, "below"), true));
            story.call("without a parent", () -> fs.createNonRecursive(new Path(dir, "no/file"), true, 4096, (short) 1,
                    block, null));
            FSDataOutputStream out = fs.createNonRecursive(new Path(dir, "child"), true, 4096, (short) 1, block, null);
            write(out, 3, 0, 200_000, 4096);
            out.close();
            writtenBy(fs, out);
            look(new Path(dir, "child"), story);
            story.call("block size", () -> fs.create(new Path(dir, "small"), true, 4096, (short) 1, 1000));
            story.call("replication", () -> fs.create(new Path(dir, "none"), true, 4096, (short) 0, block));
        });
        // Those that Hadoop's client writes.
        same("flags", (fs, dir, story) -> {
            for (CreateFlag flag : new CreateFlag[] {CreateFlag.SYNC_BLOCK, CreateFlag.LAZY_PERSIST,
                CreateFlag.NO_LOCAL_WRITE, CreateFlag.IGNORE_CLIENT_LOCALITY}) {
                Path file = new Path(dir, flag.name());
                EnumSet<CreateFlag> flags = EnumSet.of(CreateFlag.CREATE, CreateFlag.OVERWRITE, flag);
                story.call(flag.name(), () -> {
                    try (FSDataOutputStream out = fs.create(file, FsPermission.getFileDefault(), flags, 4096, (short) 1,
                            block, null)) {
                        write(out, 4, 0, 70_000, 4096);
                        return out.getWrappedStream().getClass();
                    }
                });
                story.call("content", () -> content(both[0], file));
            }
            Path built = new Path(dir, "built");
            try (FSDataOutputStream out = fs.createFile(built).overwrite(true).replication((short) 1).build()) {
                write(out, 5, 0, 70_000, 4096);
            }
            look(built, story);
        });
    }

    private static Configuration with(FileSystem fs, String key, String value) {
        Configuration changed = new Configuration(fs.getConf());
        changed.set(key, value);
        return changed;
    }

    private void arguments() throws Exception {
        same("arguments", (fs, dir, story) -> {
            Path file = new Path(dir, "file");
            try (FSDataOutputStream out = create(fs, file)) {
                byte[] bytes = new byte[100];
                story.call("null", () -> {
                    out.write((byte[]) null);
                    return null;
                });
                int[][] ranges = {{-1, 1}, {0, -1}, {0, 101}, {101, 0}, {100, 0}, {100, 1}, {Integer.MAX_VALUE, 1}};
                for (int[] range : ranges) {
                    story.call(Arrays.toString(range), () -> {
                        out.write(bytes, range[0], range[1]);
                        return out.getPos();
                    });
                }
                out.write(0x1ff);
                out.writeLong(42);
                out.writeUTF("gr\u00f6\u00dfe");
                story.tell("position", out.getPos());
            }
            look(file, story);
        });
    }

    private void afterClose() throws Exception {
        for (int length : new int[] {0, 70_000}) {
            same("after close, " + length, (fs, dir, story) -> {
                Path file = new Path(dir, "file");
                HdfsDataOutputStream out = (HdfsDataOutputStream) create(fs, file);
                write(out, 6, 0, length, 4096);
                out.close();
                out.close();
                story.call("write", () -> {
                    out.write(new byte[10]);
                    return null;
                });
                story.call("hflush", () -> {
                    out.hflush();
                    return null;
                });
                story.call("hsync", () -> {
                    out.hsync();
                    return null;
                });
                story.call("replicas", out::getCurrentBlockReplication);
                story.call("pipeline", () -> ((DFSOutputStream) out.getWrappedStream()).getPipeline());
                story.call("close", () -> {
                    out.close();
                    return null;
                });
                story.tell("position", out.getPos());
                look(file, story);
            });
        }
    }

    private void appended() throws Exception {
        for (int length : new int[] {0, 700, block, block + 513}) {
            same("append to " + length, (fs, dir, story) -> {
                Path file = new Path(dir, "file");
                try (FSDataOutputStream out = create(fs, file)) {
                    write(out, 11, 0, length, 4096);
                }
                try (FSDataOutputStream out = fs.append(file)) {
                    story.tell("position", out.getPos());
                    out.hflush();
                    write(out, 11, length, block, 70_001);
                    out.hflush();
                    writtenBy(fs, out);
                    story.tell("initial length", ((DFSOutputStream) out.getWrappedStream()).getInitialLen());
                    story.tell("seen", content(both[0], file));
                }
                look(file, story);
                // Without a byte, with a sync before the first byte, and into a block of its own.
                fs.append(file).close();
                try (FSDataOutputStream out = fs.append(file)) {
                    out.hsync();
                    write(out, 12, 0, 3000, 999);
                }
                look(file, story);
                EnumSet<CreateFlag> apart = EnumSet.of(CreateFlag.APPEND, CreateFlag.NEW_BLOCK);
                try (FSDataOutputStream out = ((DistributedFileSystem) fs).append(file, apart, 4096, null)) {
                    write(out, 13, 0, 3000, 999);
                }
                look(file, story);
            });
        }
    }

    private void changedWhileOpen() throws Exception {
        same("renamed while open", (fs, dir, story) -> {
            Path file = new Path(dir, "file");
            Path renamed = new Path(dir, "renamed");
            try (FSDataOutputStream out = create(fs, file)) {
                write(out, 12, 0, 100_000, 4096);
                out.hflush();
                both[0].rename(file, renamed);
                write(out, 12, 100_000, 2 * block, 4096);
            }
            look(renamed, story);
        });
        for (int more : new int[] {10, 2 * block}) {
            same("deleted while open, then " + more, (fs, dir, story) -> {
                Path file = new Path(dir, "file");
                FSDataOutputStream out = create(fs, file);
                write(out, 13, 0, 100_000, 4096);
                out.hflush();
                both[0].delete(file, false);
                // By a write or by close. Of what class the failure is depends on who hears first of the deletion.
                story.tell("fails", fails(() -> {
                    write(out, 13, 100_000, more, 4096);
                    out.close();
                    return null;
                }));
                fails(() -> {
                    out.close();
                    return null;
                });
                story.tell("exists", both[0].exists(file));
            });
        }
    }

    private static boolean fails(Call call) throws Exception {
        try {
            call.run();
            return false;
        } catch (IOException e) {
            return true;
        }
    }

    private void twoWriters() throws Exception {
        same("two writers", (fs, dir, story) -> {
            Path file = new Path(dir, "file");
            FileSystem another = FileSystem.newInstance(new Configuration(fs.getConf()));
            FSDataOutputStream out = create(fs, file);
            write(out, 14, 0, 100_000, 4096);
            out.hflush();
            for (FileSystem each : new FileSystem[] {fs, another}) {
                story.call("create", () -> each.create(file, false));
                story.call("append", () -> each.append(file));
            }
            story.tell("closed", ((DistributedFileSystem) another).isFileClosed(file));
            // Another client takes the file over.
            story.tell("recovered", recovered((DistributedFileSystem) another, file));
            story.tell("writing on fails", fails(() -> {
                write(out, 14, 100_000, 2 * block, 4096);
                out.close();
                return null;
            }));
            story.tell("content", content(both[0], file));
            another.close();
        });
        same("replaced by another writer", (fs, dir, story) -> {
            Path file = new Path(dir, "file");
            FSDataOutputStream out = create(fs, file);
            write(out, 15, 0, 100_000, 4096);
            out.hflush();
            try (FSDataOutputStream replacing = both[0].create(file, true)) {
                replacing.write(new byte[10]);
            }
            story.tell("close fails", fails(() -> {
                out.close();
                return null;
            }));
            story.tell("content", content(both[0], file));
        });
    }

    private static boolean recovered(DistributedFileSystem fs, Path file) throws Exception {
        long deadline = System.nanoTime() + 180_000_000_000L;
        while (!fs.recoverLease(file) && !fs.isFileClosed(file)) {
            if (System.nanoTime() - deadline > 0) {
                return false;
            }
            Thread.sleep(100);
        }
        return true;
    }

    private void quotas() throws Exception {
        for (int blocks : new int[] {0, 2}) {
            same("space for " + blocks + " blocks", (fs, dir, story) -> {
                // A block is counted in full while it is written.
                long space = blocks == 0 ? block / 2 : (long) blocks * block;
                ((DistributedFileSystem) both[0]).setQuota(dir, HdfsConstants.QUOTA_DONT_SET, space);
                Path file = new Path(dir, "file");
                FSDataOutputStream out = create(fs, file);
                story.call("write", () -> {
                    write(out, 16, 0, 4 * block, 4096);
                    out.hflush();
                    return null;
                });
                story.call("close", () -> {
                    out.close();
                    return null;
                });
                // What was written before is a complete file.
                look(file, story);
                ((DistributedFileSystem) both[0]).setQuota(dir, 1, HdfsConstants.QUOTA_DONT_SET);
                story.call("another file", () -> fs.create(new Path(dir, "another")));
                ((DistributedFileSystem) both[0]).setQuota(dir, HdfsConstants.QUOTA_RESET, HdfsConstants.QUOTA_RESET);
            });
        }
    }

    private void closedWithTheFileSystem() throws Exception {
        same("closed with the file system", (fs, dir, story) -> {
            FileSystem own = FileSystem.newInstance(new Configuration(fs.getConf()));
            List<FSDataOutputStream> open = new ArrayList<>();
            for (int length : new int[] {0, 10, 70_000, block + 5}) {
                FSDataOutputStream out = create(own, new Path(dir, "file-" + length));
                write(out, 17, 0, length, 4096);
                open.add(out);
            }
            Path temporary = new Path(dir, "temporary");
            FSDataOutputStream deleted = create(own, temporary);
            deleted.write(new byte[1000]);
            own.deleteOnExit(temporary);
            own.close();
            for (int length : new int[] {0, 10, 70_000, block + 5}) {
                look(new Path(dir, "file-" + length), story);
            }
            story.tell("temporary file", both[0].exists(temporary));
            for (FSDataOutputStream out : open) {
                story.call("hflush", () -> {
                    out.hflush();
                    return null;
                });
                story.call("close", () -> {
                    out.close();
                    return null;
                });
            }
        });
    }

    /**
     * The file is deleted before a block is allocated, so that close fails. The file system's close does not throw it,
     * and the stream's close must. A refusal to complete a file is not compared: Hadoop's stream forgets it.
     */
    private void failedClose() throws Exception {
        // With all bytes in the stream's buffer, and with some of them in a whole block.
        for (int flushed : new int[] {0, block}) {
            for (boolean byFileSystem : new boolean[] {true, false}) {
                String by = byFileSystem ? "the file system" : "the program";
                same("close by " + by + " fails after " + flushed, (fs, dir, story) -> {
                    Path file = new Path(dir, "file");
                    FileSystem own = FileSystem.newInstance(new Configuration(fs.getConf()));
                    FSDataOutputStream out = create(own, file);
                    if (flushed > 0) {
                        write(out, 22, 0, flushed, 4096);
                        out.hflush();
                        writtenBy(fs, out);
                    }
                    out.write(new byte[10]);
                    both[0].delete(file, false);
                    if (byFileSystem) {
                        own.close();
                    }
                    for (int close = 1; close <= 3; close++) {
                        Call closing = () -> {
                            out.close();
                            return null;
                        };
                        if (flushed == 0) {
                            story.call("close " + close, closing);
                        } else {
                            // A DataNode that hears of the deletion first has an exception of another class.
                            story.tell("close " + close + " fails", fails(closing));
                        }
                    }
                    own.close();
                    story.tell("exists", both[0].exists(file));
                });
            }
        }
    }

    /** Closes a stream. Tells whether that fails or the file has all bytes: a program must not lose bytes unknowingly. */
    private void closeOrFail(FSDataOutputStream out, Path file, long length, Story story) throws Exception {
        boolean fails = fails(() -> {
            out.close();
            return null;
        });
        story.tell("whole, or close fails", fails || both[0].getFileStatus(file).getLen() == length);
        // It may still be open.
        both[0].delete(file, false);
    }

    private void closedBeneath() throws Exception {
        same("Hadoop's client closes its streams", (fs, dir, story) -> {
            Path file = new Path(dir, "file");
            try (FileSystem own = FileSystem.newInstance(new Configuration(fs.getConf()))) {
                FSDataOutputStream out = create(own, file);
                out.write(new byte[10]);
                ((DistributedFileSystem) own).getClient().closeOutputStreams(false);
                closeOrFail(out, file, 10, story);
            }
        });
    }

    private void failingProgress() throws Exception {
        int length = 3 * block;
        Progressable failing = () -> {
            throw new IllegalStateException("no progress");
        };
        same("progress fails", (fs, dir, story) -> {
            Path file = new Path(dir, "file");
            FSDataOutputStream out = fs.create(file, FsPermission.getFileDefault(), true, 4096, (short) 1, block, failing);
            try {
                write(out, 21, 0, length, length);
            } catch (IOException | IllegalStateException e) {
                // Hadoop's client calls from another thread, so that it depends on time which call fails.
            }
            closeOrFail(out, file, length, story);
        });
    }

    private void writeRecords(FileSystem fs, Path file, int threads, int records) throws Exception {
        ExecutorService pool = Executors.newFixedThreadPool(2 * threads);
        try (FSDataOutputStream out = create(fs, file)) {
            List<Future<?>> all = new ArrayList<>();
            for (int thread = 0; thread < threads; thread++) {
                byte number = (byte) thread;
                all.add(pool.submit(() -> {
                    for (int record = 0; record < records; record++) {
                        byte[] bytes = new byte[1001];
                        Arrays.fill(bytes, number);
                        out.write(bytes);
                    }
                    return null;
                }));
                all.add(pool.submit(() -> {
                    for (int flush = 0; flush < 20; flush++) {
                        out.hflush();
                    }
                    return null;
                }));
            }
            for (Future<?> each : all) {
                each.get();
            }
        } catch (ExecutionException e) {
            throw e.getCause() instanceof Exception ? (Exception) e.getCause() : e;
        } finally {
            pool.shutdownNow();
        }
    }

    /** Several threads write records to one stream while others flush it. */
    private void severalThreads() throws Exception {
        int threads = 4;
        int records = 300;
        same("several threads", (fs, dir, story) -> {
            Path file = new Path(dir, "file");
            for (int attempt = 1; ; attempt++) {
                try {
                    writeRecords(fs, file, threads, records);
                    break;
                } catch (IOException e) {
                    // A flush of Hadoop's client can report the length of a full block when the next one has begun.
                    boolean isHadoops = String.valueOf(e.getMessage()).contains("commitBlock length is less than");
                    if (fs != both[0] || !isHadoops || attempt == 5) {
                        throw e;
                    }
                    fs.delete(file, false);
                }
            }
            int[] counted = new int[threads];
            try (FSDataInputStream in = both[0].open(file)) {
                byte[] record = new byte[1001];
                for (int i = 0; i < threads * records; i++) {
                    in.readFully(record);
                    for (byte each : record) {
                        if (each != record[0]) {
                            throw new IOException("record " + i + " is mixed with another");
                        }
                    }
                    counted[record[0]]++;
                }
                story.tell("rest", in.read());
            }
            story.tell("records", Arrays.toString(counted));
        });
    }

    /** A write of an interrupted thread is whole. */
    private void interrupted() throws Exception {
        same("interrupted thread", (fs, dir, story) -> {
            Path file = new Path(dir, "file");
            try (FSDataOutputStream out = create(fs, file)) {
                out.write(new byte[10]);
                out.hflush();
                Thread.currentThread().interrupt();
                try {
                    write(out, 18, 10, 300_000, 70_001);
                } finally {
                    story.tell("still interrupted", Thread.interrupted());
                }
                out.hflush();
            }
            look(file, story);
        });
    }

    /** The same for all file systems of the JVM. */
    private static long created() {
        return GlobalStorageStatistics.INSTANCE.get("DFSOpsCountStatistics").getLong("op_create");
    }

    private void statistics() throws Exception {
        AtomicInteger calls = new AtomicInteger();
        same("statistics and progress", (fs, dir, story) -> {
            FileSystem.Statistics statistics = FileSystem.getStatistics("hdfs", fs.getClass());
            long bytes = statistics.getBytesWritten();
            int operations = statistics.getWriteOps();
            long before = created();
            calls.set(0);
            try (FSDataOutputStream out = fs.create(new Path(dir, "file"), FsPermission.getFileDefault(), true, 4096,
                    (short) 1, block, calls::incrementAndGet)) {
                write(out, 19, 0, 2 * block, 1 << 16);
                out.write(1);
            }
            story.tell("bytes", statistics.getBytesWritten() - bytes);
            story.tell("operations", statistics.getWriteOps() - operations);
            story.tell("created", created() - before);
            story.tell("progress", calls.get() > 3);
        });
    }

    private void contexts() throws Exception {
        same("contexts", (fs, dir, story) -> {
            FileContext context = FileContext.getFileContext(configurations[fs == both[0] ? 0 : 1]);
            Path file = new Path(dir, "file");
            try (FSDataOutputStream out = context.create(file, EnumSet.of(CreateFlag.CREATE, CreateFlag.OVERWRITE))) {
                write(out, 20, 0, block + 70_001, 4096);
                out.hflush();
                writtenBy(fs, out);
                story.tell("position", out.getPos());
            }
            look(file, story);
            story.call("existing", () -> context.create(file, EnumSet.of(CreateFlag.CREATE)));
            ByteArrayOutputStream read = new ByteArrayOutputStream();
            try (FSDataInputStream in = context.open(file)) {
                org.apache.hadoop.io.IOUtils.copyBytes(in, read, 4096, false);
            }
            story.tell("read", read.size());
        });
    }
}
