package io.hearth.hdfs;

import java.io.IOException;
import java.net.URI;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FSDataInputStream;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.PathHandle;
import org.apache.hadoop.hdfs.DistributedFileSystem;

/**
 * Hadoop's file system of HDFS, which reads files by Hearth's client: from the memory of DataNodes on the same machine, by
 * RDMA, or over few connections to Hearth's DataNodes. Set {@code fs.hdfs.impl} to the name of this class, and
 * {@code fs.AbstractFileSystem.hdfs.impl} to that of {@link HearthHdfs}.
 *
 * <p>Everything else is done as without this class, and so are reads that Hearth's client cannot do: files that are
 * erasure-coded or encrypted, clusters with Kerberos, and clusters of other DataNodes.
 */
public class HearthFileSystem extends DistributedFileSystem {
    private HearthClient client;
    private volatile boolean verifyChecksum = true;

    /** Called by Hadoop. */
    public HearthFileSystem() {
    }

    @Override
    public void initialize(URI uri, Configuration conf) throws IOException {
        super.initialize(uri, conf);
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
        return reading(super.open(file, bufferSize));
    }

    @Override
    public FSDataInputStream open(PathHandle file, int bufferSize) throws IOException {
        return reading(super.open(file, bufferSize));
    }

    private FSDataInputStream reading(FSDataInputStream stream) {
        // Hearth's client always verifies.
        return verifyChecksum ? client.reading(stream) : stream;
    }

    @Override
    public void setVerifyChecksum(boolean verifyChecksum) {
        super.setVerifyChecksum(verifyChecksum);
        this.verifyChecksum = verifyChecksum;
    }

    @Override
    public void close() throws IOException {
        try {
            super.close();
        } finally {
            if (client != null) {
                client.close();
            }
        }
    }
}
