import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.ByteArrayOutputStream;
import java.io.EOFException;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.InterruptedIOException;
import java.io.PrintStream;
import java.lang.reflect.Constructor;
import java.nio.charset.StandardCharsets;
import java.security.MessageDigest;
import java.util.ArrayList;
import java.util.EnumSet;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.BlockLocation;
import org.apache.hadoop.fs.ContentSummary;
import org.apache.hadoop.fs.FSDataInputStream;
import org.apache.hadoop.fs.FSDataOutputStream;
import org.apache.hadoop.fs.FileChecksum;
import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.FsServerDefaults;
import org.apache.hadoop.fs.FsStatus;
import org.apache.hadoop.fs.LocatedFileStatus;
import org.apache.hadoop.fs.Options;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.RemoteIterator;
import org.apache.hadoop.fs.permission.AclEntry;
import org.apache.hadoop.fs.permission.FsPermission;
import org.apache.hadoop.hdfs.DistributedFileSystem;
import org.apache.hadoop.hdfs.HdfsConfiguration;
import org.apache.hadoop.hdfs.Replicas;
import org.apache.hadoop.hdfs.client.HdfsDataInputStream;
import org.apache.hadoop.hdfs.client.HdfsDataOutputStream;
import org.apache.hadoop.hdfs.protocol.CacheDirectiveInfo;
import org.apache.hadoop.hdfs.protocol.CacheDirectiveStats;
import org.apache.hadoop.hdfs.protocol.CachePoolInfo;
import org.apache.hadoop.hdfs.protocol.DatanodeInfo;
import org.apache.hadoop.hdfs.protocol.HdfsConstants.DatanodeReportType;
import org.apache.hadoop.hdfs.protocol.ClientProtocol;
import org.apache.hadoop.hdfs.protocol.LocatedBlock;
import org.apache.hadoop.hdfs.security.token.delegation.DelegationTokenIdentifier;
import org.apache.hadoop.io.Text;
import org.apache.hadoop.ipc.CallerContext;
import org.apache.hadoop.ipc.RemoteException;
import org.apache.hadoop.security.UserGroupInformation;
import org.apache.hadoop.security.token.Token;
import org.apache.hadoop.util.Tool;

/**
 * Carries out file system operations that arrive as lines of JSON on standard input. Each is answered by one line:
 * {"value": ...} or {"error": exception class, "message": text}. Each `case` below names its arguments.
 */
public final class Driver {
    private static final ObjectMapper JSON = new ObjectMapper();
    private static final int PIECE = 64 << 10;
    private final Configuration conf = new HdfsConfiguration();
    private final Map<String, FSDataOutputStream> writers = new HashMap<>();
    private final Map<String, FSDataInputStream> readers = new HashMap<>();
    private FileSystem fs;
    /** Buffer of the operation "vectored", of which the ranges are parts: it is allocated once. */
    private java.nio.ByteBuffer direct = java.nio.ByteBuffer.allocateDirect(0);

    public static void main(String[] arguments) throws IOException {
        PrintStream answers = System.out;
        // Other output must not be mixed with the answers.
        System.setOut(System.err);
        Driver driver = new Driver();
        BufferedReader requests = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line; (line = requests.readLine()) != null; ) {
            ObjectNode answer = JSON.createObjectNode();
            try {
                answer.set("value", JSON.valueToTree(driver.run(JSON.readTree(line))));
            } catch (RemoteException e) {
                answer.put("error", e.getClassName()).put("message", firstLine(e.getMessage()));
            } catch (Throwable e) {
                answer.put("error", e.getClass().getName()).put("message", firstLine(e.getMessage()));
            }
            answers.println(JSON.writeValueAsString(answer));
            answers.flush();
        }
        // Not an orderly close: open files stay open, as when a program crashes.
        Runtime.getRuntime().halt(0);
    }

    private static String firstLine(String message) {
        return message == null ? "" : message.split("\n", 2)[0];
    }

    private FileSystem fs() throws IOException {
        if (fs == null) {
            fs = FileSystem.newInstance(conf);
        }
        return fs;
    }

    private DistributedFileSystem dfs() throws IOException {
        return (DistributedFileSystem) fs();
    }

    /** Some tools have constructors for their own package only. */
    private Tool made(Class<? extends Tool> tool) throws Exception {
        try {
            Constructor<? extends Tool> made = tool.getDeclaredConstructor(Configuration.class);
            made.setAccessible(true);
            return made.newInstance(conf);
        } catch (NoSuchMethodException e) {
            Constructor<? extends Tool> made = tool.getDeclaredConstructor();
            made.setAccessible(true);
            return made.newInstance();
        }
    }

    private Object tool(JsonNode r) throws Exception {
        List<String> arguments = new ArrayList<>();
        r.get("arguments").forEach(word -> arguments.add(word.asText()));
        PrintStream out = System.out;
        PrintStream err = System.err;
        ByteArrayOutputStream said = new ByteArrayOutputStream();
        ByteArrayOutputStream complained = new ByteArrayOutputStream();
        System.setOut(new PrintStream(said, true, "UTF-8"));
        System.setErr(new PrintStream(complained, true, "UTF-8"));
        try {
            // Some commands read the standard streams in their constructor.
            Tool tool = made(Class.forName(text(r, "class")).asSubclass(Tool.class));
            tool.setConf(conf);
            int code = tool.run(arguments.toArray(new String[0]));
            return object("code", code, "out", said.toString("UTF-8"), "err", complained.toString("UTF-8"));
        } finally {
            System.setOut(out);
            System.setErr(err);
        }
    }

    private Object run(JsonNode r) throws Exception {
        String op = r.get("op").asText();
        switch (op) {
            // key, value: takes effect on a new FileSystem, which the next operation opens
            case "set":
                conf.set(text(r, "key"), text(r, "value"));
                fs = null;
                return null;
            // closes the FileSystem; the next operation opens a new one
            case "reopen":
                if (fs != null) {
                    fs.close();
                }
                fs = null;
                return null;
            // path, local
            case "put":
                fs().copyFromLocalFile(false, true, new Path(text(r, "local")), path(r, "path"));
                return null;
            case "get":
                fs().copyToLocalFile(false, path(r, "path"), new Path(text(r, "local")), true);
                return null;
            // path, handle; overwrite, replication, blockSize, favored (datanodes, ip:port)
            case "create":
                writers.put(text(r, "handle"), create(r));
                return null;
            case "append":
                writers.put(text(r, "handle"), fs().append(path(r, "path")));
                return null;
            // handle, seed, position, length; piece
            case "write":
                write(writer(r), r);
                return writer(r).getPos();
            // handle, local: a local file's bytes
            case "pour":
                try (java.io.InputStream in = new java.io.FileInputStream(text(r, "local"))) {
                    org.apache.hadoop.io.IOUtils.copyBytes(in, writer(r), 128 << 10, false);
                }
                return writer(r).getPos();
            case "hflush":
                writer(r).hflush();
                return null;
            // handle; by an interrupted thread: returns whether that fails, and whether the thread is interrupted after it
            case "interruptedFlush": {
                boolean fails = false;
                Thread.currentThread().interrupt();
                try {
                    writer(r).hflush();
                } catch (InterruptedIOException e) {
                    fails = true;
                }
                return object("fails", fails, "interrupted", Thread.interrupted());
            }
            // handle, does (write, hflush or close): a thread makes the call, or writes until a write hangs, and is
            // interrupted then; answers whether the call hangs, the exception, the milliseconds from the interrupt to it,
            // and whether the thread is interrupted after it
            case "interruptHanging":
                return interruptHanging(writer(r), text(r, "does"));
            // ends the JVM as programs do, with Hadoop's shutdown hooks
            case "exit":
                System.exit(0);
                return null;
            // handle; updateLength
            case "hsync":
                if (r.path("updateLength").asBoolean()) {
                    EnumSet<HdfsDataOutputStream.SyncFlag> flags =
                            EnumSet.of(HdfsDataOutputStream.SyncFlag.UPDATE_LENGTH);
                    ((HdfsDataOutputStream) writer(r)).hsync(flags);
                } else {
                    writer(r).hsync();
                }
                return null;
            case "close":
                closeHandle(text(r, "handle"));
                return null;
            // as create, write, close
            case "store":
                try (FSDataOutputStream out = create(r)) {
                    write(out, r);
                }
                return null;
            // as append, write, close
            case "extend":
                try (FSDataOutputStream out = fs().append(path(r, "path"))) {
                    write(out, r);
                }
                return null;
            // path, handle
            case "open":
                readers.put(text(r, "handle"), fs().open(path(r, "path")));
                return null;
            // path or handle; position, length (default: to the end), piece
            case "read":
                return withReader(r, in -> read(in, r));
            // path or handle, position, length
            case "pread":
                return withReader(r, in -> pread(in, r));
            // handle: the path of its bytes since it was opened
            case "statistics": {
                org.apache.hadoop.hdfs.ReadStatistics s = ((HdfsDataInputStream) readers.get(text(r, "handle")))
                        .getReadStatistics();
                return object("total", s.getTotalBytesRead(), "local", s.getTotalLocalBytesRead(), "shortCircuit",
                        s.getTotalShortCircuitBytesRead(), "zeroCopy", s.getTotalZeroCopyBytesRead());
            }
            // path: reads the file into buffers of each kind; answers the SHA-256 of each
            case "buffers":
                return buffers(path(r, "path"));
            // path; count: opens the file, reads its first byte by a stream and its last one by position, and closes it
            case "opens":
                return opens(path(r, "path"), r.get("count").asInt());
            // path, count: as opens, but forgets the streams instead of closing them
            case "lost":
                return lost(path(r, "path"), r.get("count").asInt());
            // path, count, users: reads the file's ends by a FileContext of another user each time, whose name begins
            // with users, and forgets the context
            case "lostContexts":
                return lostContexts(path(r, "path"), r.get("count").asInt(), text(r, "users"));
            // path, count, length: writes the file anew so many times; answers the description of the last stream
            case "creates": {
                byte[] bytes = new Content(1).bytes(0, r.get("length").asInt());
                String stream = null;
                for (int left = r.get("count").asInt(); left > 0; left--) {
                    try (FSDataOutputStream out = fs().create(path(r, "path"), true)) {
                        out.write(bytes);
                        stream = String.valueOf(out.getWrappedStream());
                    }
                }
                return stream;
            }
            // answers the bytes of direct buffers, after a collection
            case "directMemory":
                System.gc();
                for (java.lang.management.BufferPoolMXBean pool : java.lang.management.ManagementFactory
                        .getPlatformMXBeans(java.lang.management.BufferPoolMXBean.class)) {
                    if (pool.getName().equals("direct")) {
                        return pool.getMemoryUsed();
                    }
                }
                throw new IllegalStateException("this JVM does not count direct buffers");
            // path; block (its size): compares every way to read the file with that of Hadoop's own file system; answers
            // the number of comparisons
            case "alike": {
                Configuration own = new Configuration(conf);
                own.set("fs.hdfs.impl", "org.apache.hadoop.hdfs.DistributedFileSystem");
                own.set("dfs.client.replica.accessor.builder.classes", "");
                try (FileSystem stock = FileSystem.newInstance(own)) {
                    return Alike.compare(stock, fs(), path(r, "path"), r.get("block").asLong());
                }
            }
            // path (a directory), block (its size); writer: compares every way to write a file with that of Hadoop's own
            // file system, and checks that the stream names that writer; answers the number of comparisons
            case "alikeWrites": {
                Configuration own = new Configuration(conf);
                own.set("fs.hdfs.impl", "org.apache.hadoop.hdfs.DistributedFileSystem");
                own.set("fs.AbstractFileSystem.hdfs.impl", "org.apache.hadoop.fs.Hdfs");
                try (FileSystem stock = FileSystem.newInstance(own)) {
                    return AlikeWrites.compare(stock, fs(), path(r, "path"), r.get("block").asInt(),
                            r.path("writer").asText());
                }
            }
            // handle: the stream's description, which tells who writes
            case "writtenBy":
                return String.valueOf(writer(r).getWrappedStream());
            // handle: the class of the stream that Hadoop's client or Hearth's file system has made
            case "writerClass":
                return writer(r).getWrappedStream().getClass().getSimpleName();
            // path or handle: the class that reads the bytes
            case "readBy":
                return withReader(r, in -> in.getWrappedStream().getClass().getSimpleName());
            // path: reads the file by a FileContext; answers also the class that reads the bytes
            case "contextRead":
                try (FSDataInputStream in = org.apache.hadoop.fs.FileContext.getFileContext(conf).open(path(r, "path"))) {
                    return object("read", read(in, r), "by", in.getWrappedStream().getClass().getSimpleName());
                }
            // path, seed, threads, count: positioned reads, vectored reads and reads in order of one stream by several
            // threads; then the stream is closed while they read on. Fails at the first wrong byte
            case "crowd":
                return crowd(r);
            // path, seed, ranges, length: reads that many ranges of this length, which adjoin from the start of the file on,
            // by one call into direct buffers. Fails at the first wrong byte
            case "vectored":
                return vectored(r);
            // path, ranges, length, rounds: vectored reads of that many ranges of this length, spread over the file;
            // answers the seconds of each round
            case "timedVectored":
                return timedVectored(r);
            // dir, count, seed, length: reads the files of storeMany, and one that does not exist, by one call of
            // HearthBulk; fails at the first that differs. Answers what the one that does not exist throws
            case "bulk":
                return bulk(r);
            // dir, count, length, batch, threads: reads the starts of files by calls of HearthBulk; answers the costs
            case "bulkMany": {
                int batch = r.get("batch").asInt();
                int count = r.get("count").asInt();
                ObjectNode batches = r.deepCopy();
                batches.put("count", (count + batch - 1) / batch);
                java.util.concurrent.atomic.AtomicLong bytes = new java.util.concurrent.atomic.AtomicLong();
                Object took = many(batches, (file, i) -> {
                    List<Path> paths = new ArrayList<>();
                    for (int at = i * batch; at < Math.min(count, (i + 1) * batch); at++) {
                        paths.add(new Path(file.getParent(), "file-" + at));
                    }
                    bytes.addAndGet(readStarts(paths, r.get("length").asInt()));
                });
                return ((ObjectNode) JSON.valueToTree(took)).put("bytes", bytes.get());
            }
            // path, jar: reads the file with a second copy of the jar's classes in a class loader of its own; answers also
            // the versions of both native libraries
            case "otherLoader":
                return otherLoader(path(r, "path"), text(r, "jar"));
            // path or handle; piece, skipChecksums: reads to the end with read(ByteBufferPool, ...)
            case "zeroCopyRead":
                return withReader(r, in -> zeroCopyRead(in, r));
            // path or handle; piece: reads everything and discards it, for measurements
            case "cat":
                return withReader(r, in -> cat(in, r.path("piece").asInt(PIECE)));
            // path, piece, rounds: in each round, opens the file and reads all of it into one buffer; answers the
            // seconds of each round, and how many bytes of the last one came from descriptors
            case "timedReads":
                return timedReads(r);
            // path, length, piece, rounds: in each round, writes a new file out of one buffer; answers the seconds of each
            // round, and the description of the last stream, which tells who writes
            case "timedWrites": {
                byte[] piece = new Content(1).bytes(0, r.get("piece").asInt());
                double[] seconds = new double[r.get("rounds").asInt()];
                String stream = null;
                for (int round = 0; round < seconds.length; round++) {
                    long started = System.nanoTime();
                    try (FSDataOutputStream out = fs().create(path(r, "path"), false)) {
                        for (long left = r.get("length").asLong(); left > 0; left -= piece.length) {
                            out.write(piece, 0, (int) Math.min(left, piece.length));
                        }
                        stream = String.valueOf(out.getWrappedStream());
                    }
                    seconds[round] = (System.nanoTime() - started) / 1e9;
                    // Makes room for the next round.
                    fs().delete(path(r, "path"), false);
                }
                return object("seconds", seconds, "stream", stream);
            }
            // length, rounds: copies an array of this length; answers the seconds of each round
            case "timedCopies": {
                byte[] from = new byte[r.get("length").asInt()];
                byte[] to = new byte[from.length];
                double[] seconds = new double[r.get("rounds").asInt()];
                java.util.Arrays.fill(from, (byte) 1);
                for (int round = 0; round < seconds.length; round++) {
                    long started = System.nanoTime();
                    System.arraycopy(from, 0, to, 0, from.length);
                    seconds[round] = (System.nanoTime() - started) / 1e9;
                }
                return object("seconds", seconds, "last", to[to.length - 1]);
            }
            // path, length, count, seed; threads: positioned reads at random offsets, the same number by each thread,
            // which has its own reader, and with files its own file below path; answers the total seconds, and the
            // microseconds by rank
            case "timedPreads":
                return timedPreads(r);
            case "list":
                return list(r);
            case "stat":
                return status(fs().getFileStatus(path(r, "path")));
            case "exists":
                return fs().exists(path(r, "path"));
            // from, to; overwrite (when given: the rename that throws)
            case "rename":
                if (!r.has("overwrite")) {
                    return fs().rename(path(r, "from"), path(r, "to"));
                }
                dfs().rename(path(r, "from"), path(r, "to"),
                        r.get("overwrite").asBoolean() ? Options.Rename.OVERWRITE : Options.Rename.NONE);
                return true;
            // path; recursive
            case "delete":
                return fs().delete(path(r, "path"), r.path("recursive").asBoolean());
            // path; permission (octal text)
            case "mkdirs":
                return r.has("permission")
                        ? fs().mkdirs(path(r, "path"), new FsPermission(text(r, "permission")))
                        : fs().mkdirs(path(r, "path"));
            case "truncate":
                return fs().truncate(path(r, "path"), r.get("length").asLong());
            // path, from (list)
            case "concat": {
                Path[] from = new Path[r.get("from").size()];
                for (int i = 0; i < from.length; i++) {
                    from[i] = new Path(r.get("from").get(i).asText());
                }
                fs().concat(path(r, "path"), from);
                return null;
            }
            // path; length
            case "checksum": {
                FileChecksum sum = r.has("length")
                        ? fs().getFileChecksum(path(r, "path"), r.get("length").asLong())
                        : fs().getFileChecksum(path(r, "path"));
                return sum == null ? null : sum.getAlgorithmName() + ":" + Content.hex(sum.getBytes());
            }
            case "setrep":
                return fs().setReplication(path(r, "path"), (short) r.get("replication").asInt());
            // path, permission (octal text)
            case "chmod":
                fs().setPermission(path(r, "path"), new FsPermission(text(r, "permission")));
                return null;
            // path; owner, group
            case "chown":
                fs().setOwner(path(r, "path"), r.path("owner").asText(null), r.path("group").asText(null));
                return null;
            // path, modified, accessed (milliseconds, -1: unchanged)
            case "times":
                fs().setTimes(path(r, "path"), r.get("modified").asLong(), r.get("accessed").asLong());
                return null;
            // does (get, renew, cancel); owner, renewer, ends (ms), or else bytes (text): the identifier
            case "token":
                return token(r);
            // user: takes effect on a new FileSystem
            case "as":
                fs = FileSystem.newInstance(FileSystem.getDefaultUri(conf), conf, text(r, "user"));
                return null;
            // user, real (the user that acts for it), uri (optional): takes effect on a new FileSystem
            case "asProxy": {
                java.net.URI uri = r.has("uri") ? java.net.URI.create(text(r, "uri")) : FileSystem.getDefaultUri(conf);
                UserGroupInformation real = UserGroupInformation.createRemoteUser(text(r, "real"));
                fs = UserGroupInformation.createProxyUser(text(r, "user"), real).doAs(
                        (java.security.PrivilegedExceptionAction<FileSystem>) () -> FileSystem.newInstance(uri, conf));
                return null;
            }
            // looks at the methods of the classes of Hearth's file system, as frameworks do; answers the number of
            // classes, and those that name a missing class
            case "methods":
                return methods();
            // answers the version of Hadoop's jars
            case "hadoopVersion":
                return org.apache.hadoop.util.VersionInfo.getVersion();
            case "home":
                return fs().getHomeDirectory().toUri().getPath();
            // target, link: calls like a client that has symbolic links enabled
            case "symlink":
                dfs().getClient().createSymlink(text(r, "target"), text(r, "link"), true);
                return null;
            case "linkTarget":
                return dfs().getClient().getLinkTarget(text(r, "path"));
            // path, blockSize, replication: bypasses the checks of the client
            case "rawCreate":
                dfs().getClient().getNamenode().create(text(r, "path"), FsPermission.getFileDefault(), "raw",
                        new org.apache.hadoop.io.EnumSetWritable<>(EnumSet.of(org.apache.hadoop.fs.CreateFlag.CREATE)),
                        true, (short) r.get("replication").asInt(), r.get("blockSize").asLong(),
                        org.apache.hadoop.crypto.CryptoProtocolVersion.supported(), null, null);
                return null;
            // path, favored: answers the addresses of the targets of the next block of a file that rawCreate made
            case "rawAddBlock": {
                List<String> favored = new ArrayList<>();
                r.get("favored").forEach(node -> favored.add(node.asText()));
                LocatedBlock block = dfs().getClient().getNamenode().addBlock(text(r, "path"), "raw", null, null,
                        org.apache.hadoop.hdfs.protocol.HdfsConstants.GRANDFATHER_INODE_ID,
                        favored.toArray(new String[0]), null);
                List<String> targets = new ArrayList<>();
                for (DatanodeInfo target : block.getLocations()) {
                    targets.add(target.getXferAddr());
                }
                return object("block", block.getBlock().getBlockId(), "targets", targets);
            }
            // path; in a snapshot: answers the length, and the number of bytes read
            case "lengths":
                return object("status", fs().getFileStatus(path(r, "path")).getLen(), "read", withReader(r, in -> read(in, r)));
            // context, signature: for all later calls
            case "callerContext":
                CallerContext.setCurrent(new CallerContext.Builder(text(r, "context"))
                        .setSignature(text(r, "signature").getBytes(StandardCharsets.UTF_8)).build());
                return null;
            // path; names, space (bytes; Long.MAX_VALUE: unchanged, -1: none)
            case "setQuota":
                dfs().setQuota(path(r, "path"), r.get("names").asLong(), r.get("space").asLong());
                return null;
            // path, acl: entries in the form of setfacl -m
            case "modifyAcl":
                fs().modifyAclEntries(path(r, "path"), AclEntry.parseAclSpec(text(r, "acl"), true));
                return null;
            // path, name, value (text)
            case "setXAttr":
                fs().setXAttr(path(r, "path"), text(r, "name"), text(r, "value").getBytes(StandardCharsets.UTF_8));
                return null;
            // path: a directory; answers everything below it with all attributes that distcp can preserve, and the
            // content of each file
            case "tree": {
                Map<String, Object> all = new TreeMap<>();
                tree(path(r, "path"), "", all);
                return all;
            }
            case "summary": {
                ContentSummary s = fs().getContentSummary(path(r, "path"));
                return object("length", s.getLength(), "files", s.getFileCount(), "directories",
                        s.getDirectoryCount(), "space", s.getSpaceConsumed());
            }
            case "df": {
                FsStatus s = fs().getStatus();
                return object("capacity", s.getCapacity(), "used", s.getUsed(), "remaining", s.getRemaining());
            }
            case "defaults": {
                FsServerDefaults d = fs().getServerDefaults(new Path("/"));
                return object("blockSize", d.getBlockSize(), "bytesPerChecksum", d.getBytesPerChecksum(),
                        "replication", d.getReplication(), "checksum", d.getChecksumType().name());
            }
            // path; position, length
            case "locations": {
                ArrayNode all = JSON.createArrayNode();
                for (BlockLocation l : fs().getFileBlockLocations(path(r, "path"), r.path("position").asLong(),
                        r.path("length").asLong(Long.MAX_VALUE))) {
                    all.addPOJO(object("offset", l.getOffset(), "length", l.getLength(), "names", l.getNames(),
                            "corrupt", l.isCorrupt(), "cached", l.getCachedHosts(), "types",
                            java.util.Arrays.toString(l.getStorageTypes())));
                }
                return all;
            }
            // path; avoid (a datanode, ip:port): reads every replica of every block, except those on that datanode;
            // answers one reading of the whole file for each replica
            case "readEach":
                return readEach(r);
            // handle: the datanodes of the writer's pipeline
            case "pipeline":
                return Replicas.pipeline(writer(r));
            // path, policy
            case "policy":
                fs().setStoragePolicy(path(r, "path"), text(r, "policy"));
                return null;
            // path, pool; replication: makes the pool if it does not exist; answers the directive's id
            case "cache": {
                try {
                    dfs().addCachePool(new CachePoolInfo(text(r, "pool")));
                } catch (IOException e) {
                    if (!firstLine(e.getMessage()).contains("already exists")) {
                        throw e;
                    }
                }
                return dfs().addCacheDirective(new CacheDirectiveInfo.Builder().setPath(path(r, "path"))
                        .setPool(text(r, "pool")).setReplication((short) r.path("replication").asInt(1)).build());
            }
            // id
            case "uncache":
                dfs().removeCacheDirective(r.get("id").asLong());
                return null;
            // id: bytes needed and cached of a directive
            case "cached": {
                CacheDirectiveInfo wanted = new CacheDirectiveInfo.Builder().setId(r.get("id").asLong()).build();
                CacheDirectiveStats s = dfs().listCacheDirectives(wanted).next().getStats();
                return object("needed", s.getBytesNeeded(), "cached", s.getBytesCached());
            }
            // class, arguments: runs one of Hadoop's commands as its main() does; answers the exit code and the output
            case "tool":
                return tool(r);
            // path, policy: the policy is enabled first
            case "erasureCode":
                dfs().enableErasureCodingPolicy(text(r, "policy"));
                dfs().setErasureCodingPolicy(path(r, "path"), text(r, "policy"));
                return null;
            // answers the state of each, and whether it is alive
            case "datanodes": {
                List<Object> list = new ArrayList<>();
                List<String> live = new ArrayList<>();
                for (DatanodeInfo d : dfs().getDataNodeStats(DatanodeReportType.LIVE)) {
                    live.add(d.getXferAddr());
                }
                for (DatanodeInfo d : dfs().getDataNodeStats(DatanodeReportType.ALL)) {
                    list.add(object("address", d.getXferAddr(), "state", d.getAdminState().name(),
                            "live", live.contains(d.getXferAddr())));
                }
                return list;
            }
            case "refreshNodes":
                dfs().refreshNodes();
                return null;
            case "recoverLease":
                return dfs().recoverLease(path(r, "path"));
            case "isClosed":
                return dfs().isFileClosed(path(r, "path"));
            // dir, count, length, seed, threads: file i holds the content of seed + i; answers the costs
            case "storeMany":
                return many(r, (file, i) -> {
                    try (FSDataOutputStream out = fs().create(file, true)) {
                        new Content(r.get("seed").asLong() + i)
                                .writeTo(out, 0, r.get("length").asLong(), PIECE);
                    }
                });
            // dir, count, threads, length; piece, replication, blockSize: writes the same number of bytes into each;
            // answers the costs
            case "pourMany": {
                byte[] piece = new byte[r.path("piece").asInt(PIECE)];
                new java.util.Random(1).nextBytes(piece);
                return many(r, (file, i) -> {
                    short replication = (short) r.path("replication").asInt(fs().getDefaultReplication(file));
                    long blockSize = r.path("blockSize").asLong(fs().getDefaultBlockSize(file));
                    try (FSDataOutputStream out = fs().create(file, true, PIECE, replication, blockSize)) {
                        for (long left = r.get("length").asLong(); left > 0; left -= piece.length) {
                            out.write(piece, 0, (int) Math.min(left, piece.length));
                        }
                    }
                });
            }
            // dir, count, threads; piece, rounds, files: `count` readers each read a file, `rounds` times. The next
            // file of each is `count` further on, modulo `files`. The data is discarded; answers the costs
            case "catMany":
                return many(r, (file, i) -> {
                    int count = r.get("count").asInt();
                    for (int round = 0; round < r.path("rounds").asInt(1); round++) {
                        int next = (i + round * count) % r.path("files").asInt(count);
                        try (FSDataInputStream in = fs().open(new Path(file.getParent(), "file-" + next))) {
                            cat(in, r.path("piece").asInt(PIECE));
                        }
                    }
                });
            // dir, count, threads; length: reads `length` bytes from the start of each; answers the costs, and the
            // bytes that came by descriptor
            case "firstMany": {
                java.util.concurrent.atomic.AtomicLong shortCircuit = new java.util.concurrent.atomic.AtomicLong();
                int length = r.get("length").asInt();
                ThreadLocal<byte[]> buffer = ThreadLocal.withInitial(() -> new byte[length]);
                Object took = many(r, (file, i) -> {
                    try (FSDataInputStream in = fs().open(file)) {
                        in.readFully(buffer.get());
                        shortCircuit.addAndGet(shortCircuitBytes(in));
                    }
                });
                return ((ObjectNode) JSON.valueToTree(took))
                        .put("shortCircuit", shortCircuit.get());
            }
            // like storeMany; fails at the first file that differs
            case "readMany":
                return many(r, (file, i) -> {
                    byte[] wanted = new Content(r.get("seed").asLong() + i).bytes(0, r.get("length").asInt());
                    byte[] found = new byte[wanted.length];
                    try (FSDataInputStream in = fs().open(file)) {
                        in.readFully(found);
                        if (in.read() != -1) {
                            throw new IOException(file + " is longer than " + wanted.length);
                        }
                    }
                    if (!java.util.Arrays.equals(wanted, found)) {
                        throw new IOException(file + " differs");
                    }
                });
            default:
                throw new IllegalArgumentException("unknown operation " + op);
        }
    }

    private FSDataOutputStream create(JsonNode r) throws IOException {
        Path path = path(r, "path");
        short replication = (short) r.path("replication").asInt(fs().getDefaultReplication(path));
        long blockSize = r.path("blockSize").asLong(fs().getDefaultBlockSize(path));
        if (r.has("favored")) {
            java.net.InetSocketAddress[] favored = new java.net.InetSocketAddress[r.get("favored").size()];
            for (int i = 0; i < favored.length; i++) {
                favored[i] = org.apache.hadoop.net.NetUtils.createSocketAddr(r.get("favored").get(i).asText());
            }
            return dfs().create(path, FsPermission.getFileDefault(), true, 4096, replication, blockSize, null,
                    favored);
        }
        return fs().create(path, r.path("overwrite").asBoolean(true), 4096, replication, blockSize);
    }

    private static void write(FSDataOutputStream out, JsonNode r) throws IOException {
        new Content(r.path("seed").asLong()).writeTo(out, r.path("position").asLong(), r.get("length").asLong(),
                r.path("piece").asInt(PIECE));
    }

    private static Object read(FSDataInputStream in, JsonNode r) throws IOException {
        long left = r.path("length").asLong(Long.MAX_VALUE);
        if (r.has("position")) {
            in.seek(r.get("position").asLong());
        }
        MessageDigest digest = Content.sha256();
        byte[] piece = new byte[r.path("piece").asInt(PIECE)];
        long length = 0;
        while (left > 0) {
            int got = in.read(piece, 0, (int) Math.min(piece.length, left));
            if (got < 0) {
                break;
            }
            digest.update(piece, 0, got);
            length += got;
            left -= got;
        }
        return object("length", length, "sha256", Content.hex(digest.digest()));
    }

    private Object readEach(JsonNode r) throws IOException {
        Path path = path(r, "path");
        java.util.List<LocatedBlock> blocks;
        try (FSDataInputStream in = fs().open(path)) {
            blocks = Replicas.blocks(in);
        }
        java.util.List<java.util.List<String>> holders = new java.util.ArrayList<>();
        int most = 0;
        int least = Integer.MAX_VALUE;
        for (LocatedBlock block : blocks) {
            java.util.List<String> of = Replicas.holders(block);
            of.remove(r.path("avoid").asText(""));
            holders.add(of);
            most = Math.max(most, of.size());
            least = Math.min(least, of.size());
        }
        if (least != most) {
            throw new IOException(path + " has blocks with " + least + " and with " + most + " replicas");
        }
        ArrayNode all = JSON.createArrayNode();
        for (int replica = 0; replica < most; replica++) {
            MessageDigest digest = Content.sha256();
            byte[] piece = new byte[PIECE];
            long length = 0;
            java.util.List<String> datanodes = new java.util.ArrayList<>();
            for (int i = 0; i < blocks.size(); i++) {
                // The last block is read to the end of the file, which may be growing.
                boolean last = i == blocks.size() - 1;
                long left = last ? Long.MAX_VALUE : blocks.get(i).getBlockSize();
                try (FSDataInputStream in = fs().open(path)) {
                    // From this reader's own blocks: a token is valid only for a while.
                    LocatedBlock block = Replicas.blocks(in).get(i);
                    // The order of the locations differs between listings.
                    String holder = holders.get(i).get(replica);
                    Replicas.readOnlyFrom(in, block, holder);
                    datanodes.add(holder);
                    in.seek(block.getStartOffset());
                    for (int got; left > 0
                            && (got = in.read(piece, 0, (int) Math.min(piece.length, left))) >= 0; left -= got) {
                        digest.update(piece, 0, got);
                        length += got;
                        String from = Replicas.readsFrom(in);
                        if (from != null && !from.equals(holder)) {
                            throw new IOException(holder + " failed at " + length + " of " + path);
                        }
                    }
                }
            }
            all.addPOJO(object("datanodes", datanodes, "length", length, "sha256", Content.hex(digest.digest())));
        }
        return all;
    }

    private static Object pread(FSDataInputStream in, JsonNode r) throws IOException {
        byte[] bytes = new byte[r.get("length").asInt()];
        int done = 0;
        while (done < bytes.length) {
            int got = in.read(r.get("position").asLong() + done, bytes, done, bytes.length - done);
            if (got < 0) {
                break;
            }
            done += got;
        }
        MessageDigest digest = Content.sha256();
        digest.update(bytes, 0, done);
        return object("length", done, "sha256", Content.hex(digest.digest()));
    }

    private Object timedReads(JsonNode r) throws IOException {
        Path path = path(r, "path");
        byte[] buffer = new byte[(int) fs().getFileStatus(path).getLen()];
        int piece = r.get("piece").asInt();
        double[] seconds = new double[r.get("rounds").asInt()];
        long shortCircuit = 0;
        for (int round = 0; round < seconds.length; round++) {
            long started = System.nanoTime();
            try (FSDataInputStream in = fs().open(path)) {
                int done = 0;
                while (done < buffer.length) {
                    int got = in.read(buffer, done, Math.min(piece, buffer.length - done));
                    if (got < 0) {
                        throw new EOFException(path + " ends at " + done);
                    }
                    done += got;
                }
                seconds[round] = (System.nanoTime() - started) / 1e9;
                shortCircuit = shortCircuitBytes(in);
            }
        }
        return object("seconds", seconds, "shortCircuit", shortCircuit);
    }

    private Object timedPreads(JsonNode r) throws Exception {
        Path top = path(r, "path");
        int files = r.path("files").asInt(0);
        int length = r.get("length").asInt();
        int count = r.get("count").asInt();
        int threads = r.path("threads").asInt(1);
        double[] micros = new double[threads * count];
        AtomicInteger next = new AtomicInteger();
        java.util.concurrent.atomic.AtomicLong shortCircuit = new java.util.concurrent.atomic.AtomicLong();
        long began = System.nanoTime();
        together(threads, () -> {
            int thread = next.getAndIncrement();
            Path path = files > 0 ? new Path(top, "file-" + thread % files) : top;
            long room = fs().getFileStatus(path).getLen() - length;
            byte[] buffer = new byte[length];
            java.util.Random random = new java.util.Random(r.get("seed").asLong() + thread);
            try (FSDataInputStream in = fs().open(path)) {
                for (int i = 0; i < count; i++) {
                    long at = (long) (random.nextDouble() * room);
                    long started = System.nanoTime();
                    in.readFully(at, buffer);
                    micros[thread * count + i] = (System.nanoTime() - started) / 1e3;
                }
                shortCircuit.addAndGet(shortCircuitBytes(in));
            }
            return null;
        });
        double seconds = (System.nanoTime() - began) / 1e9;
        java.util.Arrays.sort(micros);
        return object("seconds", seconds, "p50", ranked(micros, 0.5), "p90", ranked(micros, 0.9), "p99", ranked(micros, 0.99),
                "p999", ranked(micros, 0.999), "shortCircuit", shortCircuit.get());
    }

    /** HearthBulk by reflection: this program also runs without Hearth's jar. */
    private List<?> starts(List<Path> paths, int length) throws Exception {
        java.lang.reflect.Method read = Class.forName("io.hearth.hdfs.HearthBulk")
                .getMethod("readStarts", List.class, int.class);
        return (List<?>) read.invoke(fs(), paths, length);
    }

    private static byte[] bytesOf(Object start) throws Exception {
        try {
            return (byte[]) start.getClass().getMethod("bytes").invoke(start);
        } catch (java.lang.reflect.InvocationTargetException e) {
            throw (Exception) e.getCause();
        }
    }

    private long readStarts(List<Path> paths, int length) throws Exception {
        long bytes = 0;
        for (Object start : starts(paths, length)) {
            bytes += bytesOf(start).length;
        }
        return bytes;
    }

    private Object bulk(JsonNode r) throws Exception {
        int count = r.get("count").asInt();
        int length = r.get("length").asInt();
        List<Path> paths = new ArrayList<>();
        for (int i = 0; i < count; i++) {
            paths.add(new Path(text(r, "dir"), "file-" + i));
        }
        paths.add(new Path(text(r, "dir"), "missing"));
        for (int wanted : new int[] {0, 1, length - 1, length, length + 1, 10 * length}) {
            List<?> starts = starts(paths, wanted);
            for (int i = 0; i < count; i++) {
                byte[] expected = new Content(r.get("seed").asLong() + i).bytes(0, Math.min(wanted, length));
                if (!java.util.Arrays.equals(expected, bytesOf(starts.get(i)))) {
                    throw new IOException(wanted + " bytes of " + paths.get(i) + " differ");
                }
            }
            if (wanted == length) {
                try {
                    bytesOf(starts.get(count));
                } catch (java.io.FileNotFoundException e) {
                    continue;
                }
                throw new IOException("a missing file has bytes");
            }
        }
        return null;
    }

    private Object crowd(JsonNode r) throws Exception {
        Content content = new Content(r.get("seed").asLong());
        AtomicInteger next = new AtomicInteger();
        java.util.concurrent.atomic.AtomicBoolean closing = new java.util.concurrent.atomic.AtomicBoolean();
        int count = r.get("count").asInt();
        FSDataInputStream in = fs().open(path(r, "path"));
        long length = ((HdfsDataInputStream) in).getVisibleLength();
        AtomicInteger done = new AtomicInteger();
        int threads = r.get("threads").asInt();
        together(threads, () -> {
            java.util.Random random = new java.util.Random(next.getAndIncrement());
            // The threads go on until the stream is closed by the one that is the last to have read enough.
            for (int i = 0; ; i++) {
                int size = 1 + random.nextInt(100_000);
                long at = (long) (random.nextDouble() * Math.max(1, length - size));
                size = (int) Math.min(size, length - at);
                byte[] found = new byte[size];
                try {
                    if (i % 3 == 0) {
                        in.readFully(at, found);
                    } else if (i % 3 == 1) {
                        java.nio.ByteBuffer buffer = java.nio.ByteBuffer.allocateDirect(size);
                        in.readFully(at, buffer);
                        buffer.flip();
                        buffer.get(found);
                    } else {
                        synchronized (in) {
                            in.seek(at);
                            in.readFully(found);
                        }
                    }
                } catch (IOException e) {
                    if (closing.get()) {
                        return null;
                    }
                    throw e;
                }
                if (!java.util.Arrays.equals(found, content.bytes(at, size))) {
                    throw new IOException(size + " bytes at " + at + " differ");
                }
                if (i == count && done.incrementAndGet() == threads) {
                    closing.set(true);
                    in.close();
                }
            }
        });
        return null;
    }

    private Object vectored(JsonNode r) throws Exception {
        int length = r.get("length").asInt();
        int count = r.get("ranges").asInt();
        if (direct.capacity() < count * length) {
            direct = java.nio.ByteBuffer.allocateDirect(count * length);
        }
        List<org.apache.hadoop.fs.FileRange> ranges = new ArrayList<>();
        for (int i = 0; i < count; i++) {
            ranges.add(org.apache.hadoop.fs.FileRange.createFileRange((long) i * length, length));
        }
        // Stale bytes of an earlier call must not pass for those of this one.
        byte[] found = new byte[PIECE];
        for (direct.clear(); direct.hasRemaining(); ) {
            direct.put(found, 0, Math.min(found.length, direct.remaining()));
        }
        Content content = new Content(r.get("seed").asLong());
        AtomicInteger next = new AtomicInteger();
        try (FSDataInputStream in = fs().open(path(r, "path"))) {
            in.readVectored(ranges, wanted -> {
                java.nio.ByteBuffer part = direct.duplicate();
                int start = next.getAndIncrement() * length;
                part.limit(start + length);
                part.position(start);
                return part.slice();
            });
            for (int i = 0; i < count; i++) {
                java.nio.ByteBuffer range = ranges.get(i).getData().get();
                if (range.remaining() != length) {
                    throw new IOException("range " + i + " has " + range.remaining() + " bytes");
                }
                for (int at = 0; at < length; at += found.length) {
                    int size = Math.min(found.length, length - at);
                    range.get(found, 0, size);
                    byte[] wanted = content.bytes((long) i * length + at, size);
                    if (!java.util.Arrays.equals(java.util.Arrays.copyOf(found, size), wanted)) {
                        throw new IOException("range " + i + " differs behind its byte " + at);
                    }
                }
            }
        }
        return null;
    }

    private Object timedVectored(JsonNode r) throws Exception {
        int length = r.get("length").asInt();
        int count = r.get("ranges").asInt();
        double[] seconds = new double[r.get("rounds").asInt()];
        Path path = path(r, "path");
        long size = fs().getFileStatus(path).getLen();
        java.nio.ByteBuffer[] buffers = new java.nio.ByteBuffer[count];
        for (int i = 0; i < count; i++) {
            buffers[i] = java.nio.ByteBuffer.allocate(length);
        }
        long shortCircuit = 0;
        for (int round = 0; round < seconds.length; round++) {
            List<org.apache.hadoop.fs.FileRange> ranges = new ArrayList<>();
            for (int i = 0; i < count; i++) {
                ranges.add(org.apache.hadoop.fs.FileRange.createFileRange(i * (size / count), length));
            }
            AtomicInteger next = new AtomicInteger();
            long started = System.nanoTime();
            try (FSDataInputStream in = fs().open(path)) {
                in.readVectored(ranges, wanted -> {
                    buffers[next.get()].clear();
                    return buffers[next.getAndIncrement()];
                });
                for (org.apache.hadoop.fs.FileRange range : ranges) {
                    range.getData().get();
                }
                seconds[round] = (System.nanoTime() - started) / 1e9;
                shortCircuit = shortCircuitBytes(in);
            }
        }
        return object("seconds", seconds, "shortCircuit", shortCircuit);
    }

    /** The nearest rank, as in the benchmarks of Hearth's client. */
    private static double ranked(double[] sorted, double part) {
        return sorted[Math.max(0, (int) Math.ceil(sorted.length * part) - 1)];
    }

    private static Object zeroCopyRead(FSDataInputStream in, JsonNode r) throws IOException {
        org.apache.hadoop.io.ElasticByteBufferPool pool = new org.apache.hadoop.io.ElasticByteBufferPool();
        EnumSet<org.apache.hadoop.fs.ReadOption> options = r.path("skipChecksums").asBoolean()
                ? EnumSet.of(org.apache.hadoop.fs.ReadOption.SKIP_CHECKSUMS)
                : EnumSet.noneOf(org.apache.hadoop.fs.ReadOption.class);
        MessageDigest digest = Content.sha256();
        long length = 0;
        for (java.nio.ByteBuffer piece; (piece = in.read(pool, r.path("piece").asInt(1 << 20), options)) != null; ) {
            length += piece.remaining();
            digest.update(piece.duplicate());
            in.releaseBuffer(piece);
        }
        return object("length", length, "sha256", Content.hex(digest.digest()), "zeroCopy",
                ((HdfsDataInputStream) in).getReadStatistics().getTotalZeroCopyBytesRead());
    }

    private Object buffers(Path path) throws IOException {
        int length = (int) fs().getFileStatus(path).getLen();
        Map<String, Object> all = new TreeMap<>();
        for (String kind : new String[] {"heap", "heapSlice", "direct", "directSlice"}) {
            java.nio.ByteBuffer buffer = kind.startsWith("heap")
                    ? java.nio.ByteBuffer.allocate(length + 20) : java.nio.ByteBuffer.allocateDirect(length + 20);
            if (kind.endsWith("Slice")) {
                buffer.position(7);
                buffer = buffer.slice();
            }
            for (boolean positioned : new boolean[] {false, true}) {
                buffer.clear();
                buffer.position(3);
                buffer.limit(3 + length);
                try (FSDataInputStream in = fs().open(path)) {
                    while (buffer.hasRemaining()) {
                        int got = positioned ? in.read(buffer.position() - 3, buffer) : in.read(buffer);
                        if (got <= 0) {
                            throw new EOFException(kind + " ends at " + buffer.position());
                        }
                    }
                    int after = positioned
                            ? in.read(length, java.nio.ByteBuffer.allocate(1)) : in.read(java.nio.ByteBuffer.allocate(1));
                    if (after != -1) {
                        throw new IOException(after + " bytes after the end");
                    }
                }
                buffer.position(3);
                MessageDigest digest = Content.sha256();
                digest.update(buffer);
                all.put(kind + (positioned ? "At" : ""), Content.hex(digest.digest()));
            }
        }
        return all;
    }

    private long openAndRead(FSDataInputStream in, long length) throws IOException {
        byte[] last = new byte[1];
        in.readFully(length - 1, last);
        return in.read() + 256L * (last[0] & 0xff);
    }

    private Object opens(Path path, int count) throws IOException {
        long length = fs().getFileStatus(path).getLen();
        long sum = 0;
        for (int i = 0; i < count; i++) {
            try (FSDataInputStream in = fs().open(path)) {
                sum += openAndRead(in, length);
            }
        }
        return sum;
    }

    private Object lostContexts(Path path, int count, String users) throws Exception {
        long length = fs().getFileStatus(path).getLen();
        long sum = 0;
        for (int i = 0; i < count; i++) {
            UserGroupInformation user = UserGroupInformation.createRemoteUser(users + i);
            sum += user.doAs((java.security.PrivilegedExceptionAction<Long>) () -> {
                try (FSDataInputStream in = org.apache.hadoop.fs.FileContext.getFileContext(conf).open(path)) {
                    return openAndRead(in, length);
                }
            });
        }
        System.gc();
        return sum;
    }

    private Object lost(Path path, int count) throws IOException {
        long length = fs().getFileStatus(path).getLen();
        long sum = 0;
        for (int i = 0; i < count; i++) {
            sum += openAndRead(fs().open(path), length);
        }
        System.gc();
        return sum;
    }

    private Object otherLoader(Path path, String jar) throws Exception {
        ClassLoader before = Thread.currentThread().getContextClassLoader();
        java.net.URL[] urls = {new java.io.File(jar).toURI().toURL()};
        // The parent has the jar too, so its classes are looked for here first.
        try (java.net.URLClassLoader loader = new java.net.URLClassLoader(urls, before) {
            @Override
            protected Class<?> loadClass(String name, boolean resolve) throws ClassNotFoundException {
                synchronized (getClassLoadingLock(name)) {
                    if (!name.startsWith("io.hearth.")) {
                        return super.loadClass(name, resolve);
                    }
                    Class<?> loaded = findLoadedClass(name);
                    return loaded == null ? findClass(name) : loaded;
                }
            }

            @Override
            public java.net.URL getResource(String name) {
                java.net.URL own = name.startsWith("io/hearth/") ? findResource(name) : null;
                return own == null ? super.getResource(name) : own;
            }
        }) {
            Thread.currentThread().setContextClassLoader(loader);
            Configuration own = new Configuration(conf);
            own.setClassLoader(loader);
            try (FileSystem other = FileSystem.newInstance(own); FSDataInputStream in = other.open(path)) {
                MessageDigest digest = Content.sha256();
                byte[] piece = new byte[PIECE];
                for (int got; (got = in.read(piece)) > 0; ) {
                    digest.update(piece, 0, got);
                }
                return object("sha256", Content.hex(digest.digest()), "shortCircuit", shortCircuitBytes(in), "version",
                        libraryVersion(loader), "firstVersion", libraryVersion(before));
            }
        } finally {
            Thread.currentThread().setContextClassLoader(before);
        }
    }

    /** Fails if the classes of this loader have not loaded a library of their own. */
    private static String libraryVersion(ClassLoader loader) throws Exception {
        java.lang.reflect.Method version = Class.forName("io.hearth.hdfs.Native", true, loader)
                .getDeclaredMethod("version");
        version.setAccessible(true);
        return new String((byte[]) version.invoke(null), StandardCharsets.UTF_8);
    }

    private static long shortCircuitBytes(FSDataInputStream in) {
        return ((HdfsDataInputStream) in).getReadStatistics().getTotalShortCircuitBytesRead();
    }

    private static Object methods() throws Exception {
        Class<?> ours = Class.forName("io.hearth.hdfs.HearthBulk");
        java.net.URL place = ours.getProtectionDomain().getCodeSource().getLocation();
        List<String> failures = new ArrayList<>();
        int classes = 0;
        try (java.util.jar.JarFile jar = new java.util.jar.JarFile(new java.io.File(place.toURI()))) {
            for (java.util.jar.JarEntry entry : java.util.Collections.list(jar.entries())) {
                String name = entry.getName();
                // Those of MapReduce need jars that this program lacks.
                if (name.startsWith("io/hearth/hdfs/") && name.endsWith(".class")) {
                    classes++;
                    try {
                        lookAt(Class.forName(name.substring(0, name.length() - ".class".length()).replace('/', '.'), false,
                                ours.getClassLoader()));
                    } catch (LinkageError | TypeNotPresentException e) {
                        failures.add(name + ": " + e);
                    }
                }
            }
        }
        return object("classes", classes, "failures", failures);
    }

    private static void lookAt(Class<?> type) {
        type.getMethods();
        type.getDeclaredConstructors();
        type.getDeclaredFields();
        for (java.lang.reflect.Method method : type.getDeclaredMethods()) {
            // Names the parameters of types, too.
            method.toGenericString();
        }
    }

    private static Object interruptHanging(FSDataOutputStream out, String does) throws Exception {
        java.util.concurrent.atomic.AtomicLong written = new java.util.concurrent.atomic.AtomicLong();
        java.util.concurrent.atomic.AtomicReference<Throwable> thrown =
                new java.util.concurrent.atomic.AtomicReference<>();
        java.util.concurrent.atomic.AtomicBoolean interrupted = new java.util.concurrent.atomic.AtomicBoolean();
        Thread caller = new Thread(() -> {
            try {
                switch (does) {
                    case "write":
                        byte[] piece = new byte[PIECE];
                        // 256 MiB, more than a pipeline takes without answers.
                        for (int i = 0; i < 4096; i++) {
                            out.write(piece);
                            written.addAndGet(piece.length);
                        }
                        break;
                    case "hflush":
                        out.hflush();
                        break;
                    case "close":
                        out.close();
                        break;
                    default:
                        throw new IllegalArgumentException("unknown call " + does);
                }
            } catch (Throwable e) {
                thrown.set(e);
            }
            interrupted.set(Thread.currentThread().isInterrupted());
        });
        caller.setDaemon(true);
        caller.start();
        // It hangs if it makes no progress for half a second, twice in a row.
        for (int quiet = 0; quiet < 2 && caller.isAlive(); ) {
            long before = written.get();
            caller.join(500);
            quiet = written.get() == before ? quiet + 1 : 0;
        }
        boolean hangs = caller.isAlive();
        caller.interrupt();
        long started = System.nanoTime();
        caller.join(60_000);
        long milliseconds = (System.nanoTime() - started) / 1_000_000;
        return object("hangs", hangs, "ends", !caller.isAlive(), "error",
                thrown.get() == null ? "" : thrown.get().getClass().getName(), "milliseconds", milliseconds,
                "interrupted", interrupted.get());
    }

    private static Object cat(FSDataInputStream in, int pieceLength) throws IOException {
        byte[] piece = new byte[pieceLength];
        long started = System.nanoTime();
        long length = 0;
        for (int got; (got = in.read(piece)) >= 0; ) {
            length += got;
        }
        return object("length", length, "seconds", (System.nanoTime() - started) / 1e9);
    }

    private Object list(JsonNode r) throws IOException {
        ArrayNode all = JSON.createArrayNode();
        if (r.path("recursive").asBoolean()) {
            RemoteIterator<LocatedFileStatus> files = fs().listFiles(path(r, "path"), true);
            while (files.hasNext()) {
                all.addPOJO(status(files.next()));
            }
        } else {
            for (FileStatus each : fs().listStatus(path(r, "path"))) {
                all.addPOJO(status(each));
            }
        }
        return all;
    }

    private Object token(JsonNode r) throws IOException {
        ClientProtocol namenode = dfs().getClient().getNamenode();
        if (text(r, "does").equals("get")) {
            return String.valueOf(namenode.getDelegationToken(new Text(text(r, "renewer"))));
        }
        byte[] identifier;
        if (r.has("bytes")) {
            identifier = text(r, "bytes").getBytes(StandardCharsets.ISO_8859_1);
        } else {
            DelegationTokenIdentifier id = new DelegationTokenIdentifier(new Text(text(r, "owner")),
                    new Text(text(r, "renewer")), new Text());
            id.setIssueDate(1000);
            id.setMaxDate(r.get("ends").asLong());
            id.setSequenceNumber(300);
            id.setMasterKeyId(2);
            identifier = id.getBytes();
        }
        Token<DelegationTokenIdentifier> token = new Token<>(identifier, new byte[20],
                DelegationTokenIdentifier.HDFS_DELEGATION_KIND, new Text("somewhere:8020"));
        if (text(r, "does").equals("renew")) {
            return namenode.renewDelegationToken(token);
        }
        namenode.cancelDelegationToken(token);
        return null;
    }

    private void tree(Path directory, String prefix, Map<String, Object> all) throws Exception {
        for (FileStatus s : fs().listStatus(directory)) {
            ObjectNode node = JSON.valueToTree(status(s));
            node.remove("path");
            // Reading changes the access time.
            node.remove("accessed");
            node.put("acl", fs().getAclStatus(s.getPath()).getEntries().toString());
            ObjectNode attributes = node.putObject("xattrs");
            for (Map.Entry<String, byte[]> each : new TreeMap<>(fs().getXAttrs(s.getPath())).entrySet()) {
                attributes.put(each.getKey(), Content.hex(each.getValue()));
            }
            if (s.isFile()) {
                node.put("checksum", String.valueOf(fs().getFileChecksum(s.getPath())));
                MessageDigest digest = MessageDigest.getInstance("SHA-256");
                byte[] piece = new byte[PIECE];
                try (FSDataInputStream in = fs().open(s.getPath())) {
                    for (int n; (n = in.read(piece)) > 0; ) {
                        digest.update(piece, 0, n);
                    }
                }
                node.put("sha256", Content.hex(digest.digest()));
            }
            String name = prefix + s.getPath().getName();
            all.put(name, node);
            if (s.isDirectory()) {
                tree(s.getPath(), name + "/", all);
            }
        }
    }

    private static Object status(FileStatus s) {
        return object("path", Path.getPathWithoutSchemeAndAuthority(s.getPath()).toString(), "length", s.getLen(),
                "directory", s.isDirectory(), "replication", s.getReplication(), "blockSize", s.getBlockSize(),
                "owner", s.getOwner(), "group", s.getGroup(), "permission",
                String.format("%o", s.getPermission().toShort()), "modified", s.getModificationTime(), "accessed",
                s.getAccessTime());
    }

    private interface OnFile {
        void run(Path file, int i) throws Exception;
    }

    private Object many(JsonNode r, OnFile action) throws Exception {
        int count = r.get("count").asInt();
        int threads = r.path("threads").asInt(1);
        fs();
        AtomicInteger next = new AtomicInteger();
        long started = System.nanoTime();
        together(threads, () -> {
            for (int i; (i = next.getAndIncrement()) < count; ) {
                action.run(new Path(text(r, "dir"), "file-" + i), i);
            }
            return null;
        });
        return object("seconds", (System.nanoTime() - started) / 1e9);
    }

    private static void together(int threads, Callable<Void> work) throws Exception {
        ExecutorService pool = Executors.newFixedThreadPool(threads);
        try {
            for (Future<Void> each : pool.invokeAll(java.util.Collections.nCopies(threads, work))) {
                each.get();
            }
        } catch (java.util.concurrent.ExecutionException e) {
            throw e.getCause() instanceof Exception ? (Exception) e.getCause() : e;
        } finally {
            pool.shutdownNow();
        }
    }

    private interface OnReader {
        Object run(FSDataInputStream in) throws IOException;
    }

    private Object withReader(JsonNode r, OnReader action) throws IOException {
        if (r.has("handle")) {
            FSDataInputStream in = readers.get(text(r, "handle"));
            if (in == null) {
                throw new IllegalArgumentException("no reader " + text(r, "handle"));
            }
            return action.run(in);
        }
        try (FSDataInputStream in = fs().open(path(r, "path"))) {
            return action.run(in);
        }
    }

    private FSDataOutputStream writer(JsonNode r) {
        FSDataOutputStream out = writers.get(text(r, "handle"));
        if (out == null) {
            throw new IllegalArgumentException("no writer " + text(r, "handle"));
        }
        return out;
    }

    private void closeHandle(String handle) throws IOException {
        FSDataOutputStream out = writers.remove(handle);
        FSDataInputStream in = readers.remove(handle);
        if (out == null && in == null) {
            throw new EOFException("no open handle " + handle);
        }
        if (out != null) {
            out.close();
        }
        if (in != null) {
            in.close();
        }
    }

    private static String text(JsonNode r, String key) {
        JsonNode value = r.get(key);
        if (value == null) {
            throw new IllegalArgumentException("argument " + key + " is missing");
        }
        return value.asText();
    }

    private static Path path(JsonNode r, String key) {
        return new Path(text(r, key));
    }

    private static Map<String, Object> object(Object... pairs) {
        Map<String, Object> object = new java.util.LinkedHashMap<>();
        for (int i = 0; i < pairs.length; i += 2) {
            object.put((String) pairs[i], pairs[i + 1]);
        }
        return object;
    }
}
