package io.hearth.hdfs;

import java.io.IOException;
import java.io.InputStream;
import java.io.InterruptedIOException;
import java.io.OutputStream;
import java.net.URI;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.EnumSet;
import java.util.HashMap;
import java.util.Map;
import java.util.Objects;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.CreateFlag;
import org.apache.hadoop.fs.FSDataInputStream;
import org.apache.hadoop.fs.FSDataOutputStream;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.hdfs.DFSInputStream;
import org.apache.hadoop.hdfs.DFSOutputStream;
import org.apache.hadoop.hdfs.client.HdfsDataInputStream;
import org.apache.hadoop.hdfs.client.HdfsDataOutputStream;
import org.apache.hadoop.io.Text;
import org.apache.hadoop.security.UserGroupInformation;
import org.apache.hadoop.security.token.Token;
import org.apache.hadoop.util.DataChecksum;
import org.apache.hadoop.util.Progressable;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * Hearth's client of one file system of Hadoop: it reads and writes the files that Hadoop's client opens. File systems with
 * the same address, user and settings share a native client. It ends with the last of them: when that is closed, or,
 * because contexts cannot be closed, when the garbage collector has found it and its streams.
 */
final class HearthClient {
    static final Logger LOG = LoggerFactory.getLogger("io.hearth.hdfs");

    /** Kind of the tokens with which a NameNode recognizes a user that cannot prove its name otherwise. */
    private static final Text DELEGATION_TOKEN = new Text("HDFS_DELEGATION_TOKEN");

    /** Settings that the native client may need begin with one of these. */
    private static final String[] PREFIXES = {"dfs.", "fs.defaultFS", "hadoop.", "hearth.", "ipc."};

    /** Settings of this class and of {@link NativeLibrary}, which the native client does not know. */
    private static final String OWN_PREFIX = "hearth.java.";

    /**
     * Rounds in which the native client looks for a replica that it can read. Hadoop's client goes on after that, and
     * reports the failure.
     */
    private static final String ROUNDS_KEY = "dfs.client.max.block.acquire.failures";
    private static final String ROUNDS = "1";

    /** Keys of the classes that make the sockets of Hadoop's client: to DataNodes, and to all servers. */
    private static final String[] SOCKET_FACTORY_KEYS = {"hadoop.rpc.socket.factory.class.ClientProtocol",
        "hadoop.rpc.socket.factory.class.default"};
    private static final String STANDARD_SOCKET_FACTORY = "org.apache.hadoop.net.StandardSocketFactory";

    /** Files opened with other flags are written by Hadoop's client. */
    private static final EnumSet<CreateFlag> CREATE = EnumSet.of(CreateFlag.CREATE, CreateFlag.OVERWRITE);
    private static final EnumSet<CreateFlag> APPEND = EnumSet.of(CreateFlag.APPEND);

    /** Time after a failure in which Hadoop's client writes the files that are opened. */
    private static final long PAUSE_NANOS = 60_000_000_000L;

    private static final Map<String, Shared> SHARED = new HashMap<>();

    /** What was logged already. */
    private static final Set<String> REPORTED = ConcurrentHashMap.newKeySet();
    private static final int REPORTED_MAX = 64;

    private final String uri;
    private final FileSystem.Statistics statistics;
    private final boolean required;
    private final boolean showsMemory;
    private final boolean recoversLeases;
    /** Checksums that the native client writes. */
    private final String checksumType;
    private final int bytesPerChecksum;
    /** Streams that are open for writing. */
    private final Set<HearthOutputStream> writers = ConcurrentHashMap.newKeySet();
    /** Hadoop's client writes files that are opened until then, if {@code paused}: a value of {@link System#nanoTime}. */
    private volatile long pausedUntil;
    private volatile boolean paused;
    /** Reason why files cannot be read and written this way; null if they can. */
    private final String unusable;
    /** This file system's use of the native client; null if it is unusable. */
    private final NativeReference client;
    /** Hadoop's client writes the files that are opened from then on. */
    private volatile boolean closing;
    private volatile boolean closed;

    /** A native client. */
    private static final class Shared {
        final String key;
        final long address;
        /** Number of file systems that use it. Guarded by the table. */
        int uses;

        Shared(String key, long address) {
            this.key = key;
            this.address = address;
        }
    }

    /**
     * Makes the client of a file system of the current user.
     *
     * @param statistics those that reads and writes are counted in
     * @throws IOException if it cannot be used, and the configuration demands it
     */
    HearthClient(URI uri, Configuration conf, FileSystem.Statistics statistics) throws IOException {
        this.uri = "hdfs://" + uri.getAuthority();
        this.statistics = statistics;
        this.required = conf.getBoolean(LocalDataNodes.REQUIRED_KEY, false);
        this.showsMemory = conf.getBoolean("dfs.client.mmap.enabled", true);
        this.recoversLeases = conf.getBoolean("dfs.client.write.recover.lease.on.close.exception", false)
                && WrittenFile.recoversLeases();
        this.checksumType = conf.getTrimmed("dfs.checksum.type", "CRC32C");
        this.bytesPerChecksum = conf.getInt("dfs.bytes-per-checksum", 512);
        UserGroupInformation user = UserGroupInformation.getCurrentUser();
        String reason = reasonAgainst(conf, user);
        Shared found = null;
        if (reason == null) {
            try {
                found = shared(this.uri, user, settings(conf));
            } catch (IOException | RuntimeException e) {
                reason = e.getMessage();
            }
        }
        this.client = found == null ? null : useBy(this, found);
        this.unusable = reason;
        if (reason != null) {
            if (required) {
                throw required(reason);
            }
            reportUnused(reason);
        }
    }

    private static String reasonAgainst(Configuration conf, UserGroupInformation user) {
        if (UserGroupInformation.isSecurityEnabled()) {
            return "security is on (hadoop.security.authentication), which it does not support";
        }
        for (Token<?> token : user.getTokens()) {
            if (DELEGATION_TOKEN.equals(token.getKind())) {
                return "the user has a delegation token, which it does not support";
            }
        }
        if (conf.getBoolean("dfs.encrypt.data.transfer", false)) {
            return "dfs.encrypt.data.transfer is true, which it does not support";
        }
        if (!conf.getTrimmed("dfs.data.transfer.protection", "").isEmpty()) {
            return "dfs.data.transfer.protection is set, which it does not support";
        }
        if (conf.getInt("dfs.client.hedged.read.threadpool.size", 0) > 0) {
            return "hedged reads are on (dfs.client.hedged.read.threadpool.size), which it does not support";
        }
        for (String key : SOCKET_FACTORY_KEYS) {
            String factory = conf.getTrimmed(key, "");
            if (!factory.isEmpty() && !factory.equals(STANDARD_SOCKET_FACTORY)) {
                return key + " is set, which it does not support";
            }
        }
        String version = HadoopVersion.reasonAgainst();
        if (version != null) {
            return version;
        }
        String directory = System.getProperty(NativeLibrary.DIRECTORY_KEY);
        return NativeLibrary.load(directory == null ? conf.getTrimmed(NativeLibrary.DIRECTORY_KEY) : directory);
    }

    /** Returns what was set, without Hadoop's defaults: several keys have other defaults in Hearth's client. */
    private static String settings(Configuration conf) {
        StringBuilder settings = new StringBuilder();
        for (Map.Entry<String, String> entry : conf) {
            String key = entry.getKey();
            if (!isWanted(key) || isDefault(conf, key)) {
                continue;
            }
            String value = conf.get(key);
            if (value != null && value.indexOf('\0') < 0) {
                settings.append(key).append('\0').append(value.trim()).append('\0');
            }
        }
        MappedMemory.appendDefault(settings, conf);
        return settings.append(ROUNDS_KEY).append('\0').append(ROUNDS).append('\0').toString();
    }

    private static boolean isWanted(String key) {
        // A deprecated name is there beside the present one, and asking for it is logged.
        if (key.startsWith(OWN_PREFIX) || Configuration.isDeprecated(key)) {
            return false;
        }
        for (String prefix : PREFIXES) {
            if (key.startsWith(prefix)) {
                return true;
            }
        }
        return false;
    }

    /** A job's configuration file has the defaults too. It keeps the name of the file that they came from first. */
    private static boolean isDefault(Configuration conf, String key) {
        String[] sources = conf.getPropertySources(key);
        return sources != null && sources.length > 0 && sources[0].endsWith("-default.xml");
    }

    private static Shared shared(String uri, UserGroupInformation user, String settings) throws IOException {
        UserGroupInformation real = user.getRealUser();
        String realUser = real == null ? "" : real.getUserName();
        String key = uri + '\0' + user.getUserName() + '\0' + realUser + '\0' + settings;
        synchronized (SHARED) {
            Shared found = SHARED.get(key);
            if (found == null) {
                found = new Shared(key, NativeFiles.connect(utf8(uri), utf8(user.getUserName()), utf8(realUser),
                        utf8(settings)));
                SHARED.put(key, found);
            }
            found.uses++;
            return found;
        }
    }

    /** Returns a reference that gives up the use of the native client when it is closed, or the owner is lost. */
    private static NativeReference useBy(HearthClient owner, Shared shared) {
        return NativeReference.of(owner, shared.address, address -> giveUp(shared));
    }

    private static void giveUp(Shared shared) {
        synchronized (SHARED) {
            if (--shared.uses > 0) {
                return;
            }
            SHARED.remove(shared.key);
        }
        // Unmaps replicas, for which others need not wait.
        NativeFiles.disconnect(shared.address);
    }

    private static byte[] utf8(String text) {
        return text.getBytes(StandardCharsets.UTF_8);
    }

    private static IOException required(String reason) {
        return new IOException(LocalDataNodes.REQUIRED_KEY + " is true, but Hearth's client cannot be used: " + reason);
    }

    private void reportUnused(String reason) {
        reportOnce("Hearth's client is not used for " + uri + ", and files are read and written as without it: " + reason);
    }

    /**
     * Reports that Hadoop's client is to read or write a file.
     *
     * @throws RequiredException if Hearth's was demanded
     */
    private void reportStrangers(String path) throws RequiredException {
        String reason = "no DataNode with the first block of a file answers as Hearth's";
        if (required) {
            throw new RequiredException(required(reason + " (" + path + ")").getMessage());
        }
        reportUnused(reason);
    }

    /**
     * Reports that Hearth's client cannot open a file, so that Hadoop's is to read or write it for a while. Refusals of
     * the NameNode are left out: Hadoop's client finds them too, and reports them.
     *
     * @param use "read" or "write"
     * @throws RequiredException if Hearth's was demanded
     */
    private void reportFailure(String use, String path, Exception failure) throws RequiredException {
        if (failure instanceof RefusedException) {
            return;
        }
        String reason = failure.getMessage() + " (" + path + ")";
        if (required) {
            throw new RequiredException(required(reason).getMessage());
        }
        reportOnce(use + ' ' + uri + ' ' + kind(failure), "Hearth's client of " + uri + " cannot " + use
                + " a file, and Hadoop's client does so for a minute: " + reason);
    }

    /** Returns the kind of a failure. Its message may name a block, and that of the next failure another one. */
    private static String kind(Exception failure) {
        RefusedException refusal = RefusedException.in(failure);
        return refusal == null ? failure.getClass().getName() : refusal.remoteClass();
    }

    private static void reportOnce(String message) {
        reportOnce(message, message);
    }

    /** Logs a message, unless one with the same key was logged. */
    private static void reportOnce(String key, String message) {
        if (REPORTED.size() < REPORTED_MAX && REPORTED.add(key)) {
            LOG.info(message);
        }
    }

    FileSystem.Statistics statistics() {
        return statistics;
    }

    /** Returns whether reads may show the DataNode's memory instead of copies. */
    boolean showsMemory() {
        return showsMemory;
    }

    boolean isOpen() {
        return !closed;
    }

    /** Returns a stream of the same file whose bytes Hearth's client reads; the same stream if it cannot. */
    FSDataInputStream reading(FSDataInputStream stream) {
        if (unusable != null || closed || stream.getClass() != HdfsDataInputStream.class) {
            return stream;
        }
        // Others decrypt, or put together the parts of erasure-coded blocks.
        InputStream wrapped = ((HdfsDataInputStream) stream).getWrappedStream();
        if (wrapped.getClass() != DFSInputStream.class) {
            return stream;
        }
        DFSInputStream stock = (DFSInputStream) wrapped;
        try {
            LocatedFile file = LocatedFile.of(stock);
            if (file == null || file.length == 0) {
                return stream;
            }
            return new HearthDataInputStream(stock, HearthInputStream.of(this, stock, file));
        } catch (IOException | RuntimeException | LinkageError e) {
            LOG.debug("Hearth's client does not read {}", stream, e);
            return stream;
        }
    }

    /**
     * Opens a file.
     *
     * @return its address, for {@link NativeFiles}; 0 if Hadoop's client is to read it
     * @throws RequiredException if Hearth's client was demanded, and cannot open the file or none of the DataNodes of
     *         its first block is Hearth's
     * @throws IOException if it cannot be opened, for example because its DataNodes do not answer
     */
    long open(LocatedFile file) throws IOException {
        if (closed) {
            return 0;
        }
        Long opened;
        try {
            opened = client.call(address -> NativeFiles.open(address, utf8(file.path), file.encode()));
        } catch (InterruptedIOException e) {
            throw e;
        } catch (IOException | RuntimeException e) {
            reportFailure("read", file.path, e);
            throw e;
        }
        if (opened == null) {
            return 0;
        }
        if (opened != 0) {
            reportRead();
            return opened;
        }
        reportStrangers(file.path);
        return 0;
    }

    /**
     * Returns a stream of the same file whose bytes Hearth's client writes; the same stream if it cannot.
     *
     * @param stream one that nothing was written to
     * @param flags those that the file was opened with
     * @param progress called after each part of a large write; may be null
     */
    FSDataOutputStream writing(FSDataOutputStream stream, EnumSet<CreateFlag> flags, Progressable progress) {
        boolean plain = CREATE.containsAll(flags) || APPEND.equals(flags);
        if (unusable != null || closed || !plain || stream.getClass() != HdfsDataOutputStream.class
                || !WrittenFile.isPossible() || paused && System.nanoTime() - pausedUntil < 0) {
            return stream;
        }
        // Others encrypt, or make the parts of erasure-coded blocks.
        OutputStream wrapped = stream.getWrappedStream();
        if (wrapped.getClass() != DFSOutputStream.class) {
            return stream;
        }
        DFSOutputStream stock = (DFSOutputStream) wrapped;
        try {
            WrittenFile file = WrittenFile.of(stock);
            if (!hasOurChecksums(file.checksum)) {
                return stream;
            }
            HearthOutputStream hearth = new HearthOutputStream(this, stock, file, progress);
            FSDataOutputStream writing = new HdfsDataOutputStream(hearth, statistics, stream.getPos());
            writers.add(hearth);
            if (closing) {
                // closeWriters may have missed it. Hadoop's client closes its own stream.
                writers.remove(hearth);
                return stream;
            }
            return writing;
        } catch (IOException | RuntimeException | LinkageError e) {
            LOG.debug("Hearth's client does not write {}", stream, e);
            return stream;
        }
    }

    private boolean hasOurChecksums(DataChecksum checksum) {
        return checksum.getChecksumType().name().equals(checksumType)
                && checksum.getBytesPerChecksum() == bytesPerChecksum;
    }

    /**
     * Begins to write a file.
     *
     * @return address of its writer, for {@link NativeWriter}; 0 if Hadoop's client is to write it
     * @throws RequiredException if Hearth's client was demanded, and cannot write the file or none of the DataNodes is
     *         Hearth's
     * @throws InterruptedIOException if the thread is interrupted; the call may be repeated, unless the file
     *         {@linkplain WrittenFile#needsBlockBehindOthers needs a block behind others}
     */
    long begin(WrittenFile file) throws RequiredException, InterruptedIOException {
        if (closed) {
            return 0;
        }
        Long begun;
        try {
            begun = client.call(address -> NativeWriter.begin(address, utf8(file.path), file.inode,
                    utf8(file.client.getClientName()), file.replication, file.blockSize, file.length,
                    utf8(file.encodedLastBlock())));
        } catch (InterruptedIOException e) {
            throw e;
        } catch (IOException | RuntimeException e) {
            LOG.debug("Hearth's client cannot write {}", file.path, e);
            reportFailure("write", file.path, e);
            // A refusal concerns this file alone.
            if (!(e instanceof RefusedException)) {
                pause();
            }
            return 0;
        }
        if (begun == null) {
            return 0;
        }
        if (begun != 0) {
            reportOnce("Hearth's client writes the files of " + uri);
            return begun;
        }
        reportStrangers(file.path);
        pause();
        return 0;
    }

    private void pause() {
        pausedUntil = System.nanoTime() + PAUSE_NANOS;
        paused = true;
    }

    /** Returns whether the NameNode is to recover the lease of a file that cannot be closed. */
    boolean recoversLeases() {
        return recoversLeases;
    }

    /** Takes notice that a stream was closed. */
    void closed(HearthOutputStream stream) {
        writers.remove(stream);
    }

    /**
     * Closes the streams that are open for writing. Hadoop's client writes those that are opened from now on. A failure
     * is logged, and the program's own close of the stream throws it.
     */
    void closeWriters() {
        closing = true;
        while (!writers.isEmpty()) {
            for (HearthOutputStream each : writers) {
                try {
                    each.closeWithFileSystem();
                } catch (IOException | RuntimeException e) {
                    LOG.error("cannot close {}", each, e);
                }
            }
        }
    }

    /**
     * Reads the first bytes of files.
     *
     * @param paths absolute paths, each followed by NUL
     * @return for each its bytes, or null if it is to be opened and read alone; null if that is true of all
     */
    byte[][] readStarts(String paths, int length) throws IOException {
        if (unusable != null || closed || paths.isEmpty()) {
            return null;
        }
        try {
            byte[][] starts = client.call(address -> NativeFiles.readStarts(address, utf8(paths), length));
            if (starts != null && Arrays.stream(starts).anyMatch(Objects::nonNull)) {
                reportRead();
            }
            return starts;
        } catch (InterruptedIOException e) {
            throw e;
        } catch (IOException e) {
            LOG.debug("Hearth's client cannot read the starts of files", e);
            long files = paths.chars().filter(c -> c == 0).count();
            reportOnce("readStarts " + uri + ' ' + kind(e), "Hearth's client of " + uri
                    + ": a call could not read any of " + files + " files; they are read one by one: " + e.getMessage());
            return null;
        }
    }

    private void reportRead() {
        reportOnce("Hearth's client reads the files of " + uri);
    }

    /** Gives up the native client. Streams that are open go on with Hadoop's, which refuses. */
    void close() {
        closed = true;
        if (client != null) {
            client.close();
        }
    }

    /** Hearth's client is required and cannot be used. */
    static final class RequiredException extends IOException {
        private static final long serialVersionUID = 1L;

        RequiredException(String message) {
            super(message);
        }
    }
}
