package org.apache.hadoop.hdfs;

import java.io.File;
import java.io.IOException;
import java.net.URI;
import java.security.PrivilegedExceptionAction;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.Map;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.StorageType;
import org.apache.hadoop.fs.permission.FsPermission;
import org.apache.hadoop.hdfs.protocol.HdfsConstants;
import org.apache.hadoop.hdfs.protocol.HdfsConstants.SafeModeAction;
import org.apache.hadoop.hdfs.protocol.SnapshotStatus;
import org.apache.hadoop.hdfs.protocol.SnapshottableDirectoryStatus;
import org.apache.hadoop.hdfs.server.datanode.DataNode;
import org.apache.hadoop.hdfs.server.namenode.FSNamesystem;
import org.apache.hadoop.hdfs.server.namenode.NameNode;
import org.apache.hadoop.hdfs.server.protocol.NamenodeProtocols;
import org.apache.hadoop.security.UserGroupInformation;

/**
 * Replaces Apache's class of this name, which starts servers inside the test's JVM. Here the cluster already runs, in
 * separate processes, and "a new cluster" is the same one made empty. Server internals that Apache's tests inspect are
 * not available.
 */
public class MiniDFSCluster implements AutoCloseable {
    private static MiniDFSCluster last;
    private final Configuration conf;
    private final Map<String, DistributedFileSystem> fileSystems = new HashMap<>();

    private MiniDFSCluster(Configuration conf, boolean format) throws IOException {
        this.conf = conf;
        last = this;
        if (format) {
            try (DistributedFileSystem fs = superuser()) {
                empty(fs);
            }
        }
    }

    /** The superuser, independent of the test's current user. */
    private DistributedFileSystem superuser() throws IOException {
        PrivilegedExceptionAction<DistributedFileSystem> open = () -> (DistributedFileSystem) getNewFileSystemInstance(0);
        try {
            return UserGroupInformation.createRemoteUser(System.getProperty("user.name")).doAs(open);
        } catch (InterruptedException interrupted) {
            throw new IOException(interrupted);
        }
    }

    /** Resets the root directory to that of a new cluster, so that a failed test does not fail the next. */
    public static void mendRoot() throws IOException {
        if (last != null) {
            try (DistributedFileSystem fs = last.superuser()) {
                mendRoot(fs);
            }
        }
    }

    /** Resets the quotas. The permissions stay, because some classes set them for all their tests. */
    private static void mendRoot(DistributedFileSystem fs) throws IOException {
        Path root = new Path("/");
        fs.setQuota(root, HdfsConstants.QUOTA_RESET, HdfsConstants.QUOTA_RESET);
        for (StorageType type : StorageType.getTypesSupportingQuota()) {
            fs.setQuotaByStorageType(root, type, HdfsConstants.QUOTA_RESET);
        }
    }

    /** Leaves safe mode, empties the file system, and resets the root to that of a new cluster. */
    static void empty(DistributedFileSystem fs) throws IOException {
        fs.setSafeMode(SafeModeAction.SAFEMODE_LEAVE);
        mendRoot(fs);
        fs.setPermission(new Path("/"), new FsPermission((short) 0755));
        SnapshottableDirectoryStatus[] snapshottable = fs.getSnapshottableDirListing();
        for (SnapshottableDirectoryStatus directory : snapshottable == null ? new SnapshottableDirectoryStatus[0] : snapshottable) {
            for (SnapshotStatus snapshot : fs.getSnapshotListing(directory.getFullPath())) {
                fs.deleteSnapshot(directory.getFullPath(), snapshot.getFullPath().getName());
            }
            fs.delete(new Path(directory.getFullPath(), ".Trash"), true);
            fs.disallowSnapshot(directory.getFullPath());
        }
        for (FileStatus status : fs.listStatus(new Path("/"))) {
            fs.delete(status.getPath(), true);
        }
    }

    /** Returns one for each user, with this configuration, and never a cached one of an earlier cluster. */
    public synchronized DistributedFileSystem getFileSystem() throws IOException {
        String user = UserGroupInformation.getCurrentUser().getUserName();
        DistributedFileSystem open = fileSystems.get(user);
        if (open == null || !open.getClient().isClientRunning()) {
            open = (DistributedFileSystem) getNewFileSystemInstance(0);
            fileSystems.put(user, open);
        }
        return open;
    }

    public DistributedFileSystem getFileSystem(int namenode) throws IOException {
        return getFileSystem();
    }

    public FileSystem getNewFileSystemInstance(int namenode) throws IOException {
        return FileSystem.newInstance(FileSystem.getDefaultUri(conf), conf);
    }

    public Configuration getConfiguration(int namenode) {
        return conf;
    }

    public URI getURI() {
        return FileSystem.getDefaultUri(conf);
    }

    public URI getURI(int namenode) {
        return getURI();
    }

    public int getNameNodePort() {
        return getURI().getPort();
    }

    /** The NameNode's internals are not available: tests that use them fail, and others of their class run. */
    public FSNamesystem getNamesystem() {
        return null;
    }

    public FSNamesystem getNamesystem(int namenode) {
        return null;
    }

    public NameNode getNameNode() {
        return null;
    }

    public NameNode getNameNode(int namenode) {
        return null;
    }

    public NamenodeProtocols getNameNodeRpc() {
        return null;
    }

    public ArrayList<DataNode> getDataNodes() {
        return new ArrayList<>();
    }

    public boolean isClusterUp() {
        return true;
    }

    public void waitClusterUp() {
    }

    public void waitActive() {
    }

    public void waitActive(int namenode) {
    }

    public void shutdown() {
    }

    public void shutdown(boolean deleteDirectories) {
    }

    @Override
    public void close() {
    }

    /** Options of the tests. Only the request for an empty cluster has an effect. */
    public static class Builder {
        private final Configuration conf;
        private boolean format = true;

        public Builder(Configuration conf) {
            this.conf = conf;
        }

        public Builder(Configuration conf, File directory) {
            this(conf);
        }

        public Builder numDataNodes(int count) {
            return this;
        }

        public Builder format(boolean wanted) {
            format = wanted;
            return this;
        }

        public Builder checkDataNodeAddrConfig(boolean wanted) {
            return this;
        }

        public Builder racks(String[] racks) {
            return this;
        }

        public Builder hosts(String[] hosts) {
            return this;
        }

        public Builder waitSafeMode(boolean wanted) {
            return this;
        }

        public MiniDFSCluster build() throws IOException {
            return new MiniDFSCluster(conf, format);
        }
    }
}
