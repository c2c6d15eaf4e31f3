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
 * Stands before Apache's class of this name, which starts servers inside the test's JVM: here the cluster runs already, in processes of
 * its own, and "a new cluster" is the same one made empty. What Apache's tests look for inside the servers is not there.
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

    /** Whoever the test has become, or will. */
    private DistributedFileSystem superuser() throws IOException {
        PrivilegedExceptionAction<DistributedFileSystem> open = () -> (DistributedFileSystem) getNewFileSystemInstance(0);
        try {
            return UserGroupInformation.createRemoteUser(System.getProperty("user.name")).doAs(open);
        } catch (InterruptedException interrupted) {
            throw new IOException(interrupted);
        }
    }

    /** What a failed test has left undone must not fail the next: the root as a new cluster has it. */
    public static void mendRoot() throws IOException {
        if (last != null) {
            try (DistributedFileSystem fs = last.superuser()) {
                mendRoot(fs);
            }
        }
    }

    /** Its quotas. Who may write there, some classes have said for all their tests. */
    private static void mendRoot(DistributedFileSystem fs) throws IOException {
        Path root = new Path("/");
        fs.setQuota(root, HdfsConstants.QUOTA_RESET, HdfsConstants.QUOTA_RESET);
        for (StorageType type : StorageType.getTypesSupportingQuota()) {
            fs.setQuotaByStorageType(root, type, HdfsConstants.QUOTA_RESET);
        }
    }

    /** Leaves safe mode, and nothing in the file system; the root as a new cluster has it. */
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

    /** One for each user, with this configuration: those of earlier clusters are not to be had from a cache. */
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

    /** What is inside the NameNode is not to be had: tests that look there fail, others of their class run. */
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

    /** What tests ask for; only whether the cluster is to be empty is listened to. */
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
