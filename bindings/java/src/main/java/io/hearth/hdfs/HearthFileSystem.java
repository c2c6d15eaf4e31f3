package io.hearth.hdfs;

import java.io.IOException;
import java.net.URI;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.EnumSet;
import java.util.List;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.CreateFlag;
import org.apache.hadoop.fs.FSDataInputStream;
import org.apache.hadoop.fs.FSDataOutputStream;
import org.apache.hadoop.fs.Options.ChecksumOpt;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.PathHandle;
import org.apache.hadoop.fs.permission.FsPermission;
import org.apache.hadoop.hdfs.DistributedFileSystem;
import org.apache.hadoop.util.Progressable;

/**
 * Hadoop's file system of HDFS, which reads and writes files by Hearth's client: in the memory of DataNodes on the same
 * machine, by RDMA, or over few connections to Hearth's DataNodes. Set {@code fs.hdfs.impl} to the name of this class, and
 * {@code fs.AbstractFileSystem.hdfs.impl} to that of {@link HearthHdfs}.
 *
 * <p>Everything else is done as without this class, and so are reads and writes that Hearth's client cannot do: files that
 * are erasure-coded or encrypted, clusters with Kerberos, and clusters of other DataNodes. Hadoop's client also writes files
 * that are opened by a builder, with favored nodes, or with flags other than CREATE, OVERWRITE and APPEND.
 */
public class HearthFileSystem extends DistributedFileSystem implements HearthBulk {
    private HearthClient client;

    /** Called by Hadoop. */
    public HearthFileSystem() {
    }

    @Override
    public void initialize(URI uri, Configuration conf) throws IOException {
        super.initialize(uri, conf);
        // Some versions of HBase initialize a file system twice.
        if (client != null) {
            client.close();
        }
        try {
            client = new HearthClient(getUri(), conf, statistics);
        } catch (IOException e) {
            try {
                super.close();
            } catch (IOException suppressed) {
                e.addSuppressed(suppressed);
            }
            throw e;
        }
    }

    @Override
    public FSDataInputStream open(Path file, int bufferSize) throws IOException {
        return client.reading(super.open(file, bufferSize));
    }

    @Override
    public FSDataInputStream open(PathHandle file, int bufferSize) throws IOException {
        return client.reading(super.open(file, bufferSize));
    }

    @Override
    public FSDataOutputStream create(Path file, FsPermission permission, EnumSet<CreateFlag> flags, int bufferSize,
            short replication, long blockSize, Progressable progress, ChecksumOpt checksum) throws IOException {
        FSDataOutputStream stream = super.create(file, permission, flags, bufferSize, replication, blockSize, progress,
                checksum);
        return client.writing(stream, flags, progress);
    }

    @Override
    public FSDataOutputStream createNonRecursive(Path file, FsPermission permission, EnumSet<CreateFlag> flags,
            int bufferSize, short replication, long blockSize, Progressable progress) throws IOException {
        FSDataOutputStream stream = super.createNonRecursive(file, permission, flags, bufferSize, replication, blockSize,
                progress);
        return client.writing(stream, flags, progress);
    }

    @Override
    public FSDataOutputStream append(Path file, EnumSet<CreateFlag> flags, int bufferSize, Progressable progress)
            throws IOException {
        return client.writing(super.append(file, flags, bufferSize, progress), flags, progress);
    }

    @Override
    public List<FileStart> readStarts(List<Path> files, int length) throws IOException {
        if (length < 0) {
            throw new IllegalArgumentException("length is negative: " + length);
        }
        StringBuilder paths = new StringBuilder();
        boolean separable = true;
        for (Path file : files) {
            checkPath(file);
            String path = fixRelativePart(file).toUri().getPath();
            separable &= path.indexOf('\0') < 0;
            paths.append(path).append('\0');
        }
        byte[][] read = separable ? client.readStarts(paths.toString(), length) : null;
        List<FileStart> starts = new ArrayList<>(files.size());
        for (int i = 0; i < files.size(); i++) {
            byte[] bytes = read == null || read.length != files.size() ? null : read[i];
            if (bytes != null) {
                statistics.incrementReadOps(1);
                statistics.incrementBytesRead(bytes.length);
            }
            starts.add(bytes == null ? readStart(files.get(i), length) : new FileStart(files.get(i), bytes, null, true));
        }
        return starts;
    }

    /** Reads the first bytes of one file as every program does. */
    private FileStart readStart(Path file, int length) {
        try (FSDataInputStream in = open(file)) {
            // Not for each file an array of the largest length.
            byte[] bytes = new byte[Math.min(length, 1 << 16)];
            int done = 0;
            while (done < length) {
                if (done == bytes.length) {
                    bytes = Arrays.copyOf(bytes, (int) Math.min(length, 2L * done));
                }
                int count = in.read(bytes, done, bytes.length - done);
                if (count < 0) {
                    break;
                }
                done += count;
            }
            return new FileStart(file, done == bytes.length ? bytes : Arrays.copyOf(bytes, done), null, false);
        } catch (IOException e) {
            return new FileStart(file, null, e, false);
        }
    }

    @Override
    public void close() throws IOException {
        try {
            if (client != null) {
                client.closeWriters();
            }
        } finally {
            try {
                super.close();
            } finally {
                if (client != null) {
                    client.close();
                }
            }
        }
    }
}
