package io.hearth.hdfs;

import java.io.FileNotFoundException;
import java.io.IOException;
import java.net.URI;
import java.net.URISyntaxException;
import java.util.EnumSet;
import java.util.concurrent.CompletableFuture;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.AbstractFileSystem;
import org.apache.hadoop.fs.CreateFlag;
import org.apache.hadoop.fs.FSDataInputStream;
import org.apache.hadoop.fs.FSDataOutputStream;
import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.FilterFs;
import org.apache.hadoop.fs.Options.ChecksumOpt;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.RemoteIterator;
import org.apache.hadoop.fs.UnresolvedLinkException;
import org.apache.hadoop.fs.UnsupportedFileSystemException;
import org.apache.hadoop.fs.impl.OpenFileParameters;
import org.apache.hadoop.fs.permission.FsPermission;
import org.apache.hadoop.security.AccessControlException;
import org.apache.hadoop.util.Progressable;

/**
 * What {@link HearthFileSystem} is for programs that use {@link org.apache.hadoop.fs.FileContext}: Hadoop's own file
 * system, with streams that Hearth's client reads and writes. Set {@code fs.AbstractFileSystem.hdfs.impl} to the name of this class.
 */
public class HearthHdfs extends FilterFs {
    private static final String CLASS_KEY = "fs.AbstractFileSystem.hdfs.impl";
    private static final String HADOOPS_CLASS = "org.apache.hadoop.fs.Hdfs";

    private final HearthClient client;

    /**
     * Called by Hadoop.
     *
     * @param uri address of the file system
     * @param conf its configuration
     * @throws IOException if Hadoop's client cannot be made, or if Hearth's is demanded and cannot be used
     * @throws URISyntaxException if the address is not that of a file system
     */
    public HearthHdfs(URI uri, Configuration conf) throws IOException, URISyntaxException {
        super(hadoops(uri, conf));
        this.client = new HearthClient(uri, conf, getStatistics());
    }

    /** Hadoop's class has no constructor for others. */
    private static AbstractFileSystem hadoops(URI uri, Configuration conf) throws UnsupportedFileSystemException {
        Configuration own = new Configuration(conf);
        own.set(CLASS_KEY, HADOOPS_CLASS);
        return AbstractFileSystem.createFileSystem(uri, own);
    }

    @Override
    public FSDataInputStream open(Path file) throws AccessControlException, FileNotFoundException,
            UnresolvedLinkException, IOException {
        return client.reading(super.open(file));
    }

    @Override
    public FSDataInputStream open(Path file, int bufferSize) throws IOException, UnresolvedLinkException {
        return client.reading(super.open(file, bufferSize));
    }

    @Override
    public CompletableFuture<FSDataInputStream> openFileWithOptions(Path file, OpenFileParameters parameters)
            throws IOException {
        return super.openFileWithOptions(file, parameters).thenApply(client::reading);
    }

    @Override
    public FSDataOutputStream createInternal(Path file, EnumSet<CreateFlag> flags, FsPermission permission, int bufferSize,
            short replication, long blockSize, Progressable progress, ChecksumOpt checksum, boolean createParent)
            throws IOException, UnresolvedLinkException {
        FSDataOutputStream stream = super.createInternal(file, flags, permission, bufferSize, replication, blockSize,
                progress, checksum, createParent);
        return client.writing(stream, flags, progress);
    }

    /** The superclass would list all before the first. */
    @Override
    public RemoteIterator<FileStatus> listStatusIterator(Path directory) throws AccessControlException,
            FileNotFoundException, UnresolvedLinkException, IOException {
        return getMyFs().listStatusIterator(directory);
    }
}
