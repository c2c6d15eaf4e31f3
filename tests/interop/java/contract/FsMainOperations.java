package hearth.contract;

import java.security.PrivilegedExceptionAction;
import org.apache.hadoop.fs.FSMainOperationsBaseTest;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.hdfs.HdfsConfiguration;
import org.apache.hadoop.hdfs.MiniDFSCluster;
import org.apache.hadoop.security.UserGroupInformation;

/** Apache has this base test, but runs it on HDFS only through WebHDFS. */
public class FsMainOperations extends FSMainOperationsBaseTest {
    private static final String USER = "ordinary";

    private Path home = new Path("/user/" + System.getProperty("user.name"));

    @Override
    protected FileSystem createFileSystem() throws Exception {
        return new MiniDFSCluster.Builder(new HdfsConfiguration()).build().getFileSystem();
    }

    @Override
    protected Path getDefaultWorkingDirectory() {
        return fSys.makeQualified(home);
    }

    /** Switches to an ordinary user, to whom access can be denied. */
    private void becomeOrdinary() throws Exception {
        home = new Path("/user/" + USER);
        for (Path his : new Path[] {home, getAbsoluteTestRootPath(fSys), getTestRootPath(fSys, "test")}) {
            fSys.mkdirs(his);
            fSys.setOwner(his, USER, USER);
        }
        HdfsConfiguration conf = new HdfsConfiguration();
        PrivilegedExceptionAction<FileSystem> open = () -> FileSystem.newInstance(FileSystem.getDefaultUri(conf), conf);
        fSys = UserGroupInformation.createRemoteUser(USER).doAs(open);
    }

    @Override
    public void testListStatusThrowsExceptionForUnreadableDir() throws Exception {
        becomeOrdinary();
        super.testListStatusThrowsExceptionForUnreadableDir();
    }

    @Override
    public void testGlobStatusThrowsExceptionForUnreadableDir() throws Exception {
        becomeOrdinary();
        super.testGlobStatusThrowsExceptionForUnreadableDir();
    }
}
