package hearth.contract;

import java.io.IOException;
import java.net.URI;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.contract.AbstractContractAppendTest;
import org.apache.hadoop.fs.contract.AbstractContractConcatTest;
import org.apache.hadoop.fs.contract.AbstractContractContentSummaryTest;
import org.apache.hadoop.fs.contract.AbstractContractCopyFromLocalTest;
import org.apache.hadoop.fs.contract.AbstractContractCreateTest;
import org.apache.hadoop.fs.contract.AbstractContractDeleteTest;
import org.apache.hadoop.fs.contract.AbstractContractGetFileStatusTest;
import org.apache.hadoop.fs.contract.AbstractContractMkdirTest;
import org.apache.hadoop.fs.contract.AbstractContractOpenTest;
import org.apache.hadoop.fs.contract.AbstractContractRenameTest;
import org.apache.hadoop.fs.contract.AbstractContractRootDirectoryTest;
import org.apache.hadoop.fs.contract.AbstractContractSeekTest;
import org.apache.hadoop.fs.contract.AbstractContractSetTimesTest;
import org.apache.hadoop.fs.contract.AbstractFSContract;
import org.apache.hadoop.fs.contract.hdfs.HDFSContract;
import org.junit.BeforeClass;

/** The contract of HDFS over WebHDFS, which Apache does not test so: what it cannot do, as hflush, fails with Apache's servers, too. */
public class WebHdfs extends HDFSContract {
    public WebHdfs(Configuration conf) {
        super(conf);
    }

    @Override
    public FileSystem getTestFileSystem() throws IOException {
        Configuration conf = getCluster().getConfiguration(0);
        return FileSystem.get(URI.create("webhdfs://" + conf.get("dfs.namenode.http-address")), conf);
    }

    @Override
    public String getScheme() {
        return "webhdfs";
    }

    public static class Append extends AbstractContractAppendTest {
        @BeforeClass
        public static void cluster() throws Exception {
            HDFSContract.createCluster();
        }

        @Override
        protected AbstractFSContract createContract(Configuration conf) {
            return new WebHdfs(conf);
        }
    }

    public static class Concat extends AbstractContractConcatTest {
        @BeforeClass
        public static void cluster() throws Exception {
            HDFSContract.createCluster();
        }

        @Override
        protected AbstractFSContract createContract(Configuration conf) {
            return new WebHdfs(conf);
        }
    }

    public static class ContentSummary extends AbstractContractContentSummaryTest {
        @BeforeClass
        public static void cluster() throws Exception {
            HDFSContract.createCluster();
        }

        @Override
        protected AbstractFSContract createContract(Configuration conf) {
            return new WebHdfs(conf);
        }
    }

    public static class CopyFromLocal extends AbstractContractCopyFromLocalTest {
        @BeforeClass
        public static void cluster() throws Exception {
            HDFSContract.createCluster();
        }

        @Override
        protected AbstractFSContract createContract(Configuration conf) {
            return new WebHdfs(conf);
        }
    }

    public static class Create extends AbstractContractCreateTest {
        @BeforeClass
        public static void cluster() throws Exception {
            HDFSContract.createCluster();
        }

        @Override
        protected AbstractFSContract createContract(Configuration conf) {
            return new WebHdfs(conf);
        }
    }

    public static class Delete extends AbstractContractDeleteTest {
        @BeforeClass
        public static void cluster() throws Exception {
            HDFSContract.createCluster();
        }

        @Override
        protected AbstractFSContract createContract(Configuration conf) {
            return new WebHdfs(conf);
        }
    }

    public static class GetFileStatus extends AbstractContractGetFileStatusTest {
        @BeforeClass
        public static void cluster() throws Exception {
            HDFSContract.createCluster();
        }

        @Override
        protected AbstractFSContract createContract(Configuration conf) {
            return new WebHdfs(conf);
        }
    }

    public static class Mkdir extends AbstractContractMkdirTest {
        @BeforeClass
        public static void cluster() throws Exception {
            HDFSContract.createCluster();
        }

        @Override
        protected AbstractFSContract createContract(Configuration conf) {
            return new WebHdfs(conf);
        }
    }

    public static class Open extends AbstractContractOpenTest {
        @BeforeClass
        public static void cluster() throws Exception {
            HDFSContract.createCluster();
        }

        @Override
        protected AbstractFSContract createContract(Configuration conf) {
            return new WebHdfs(conf);
        }
    }

    public static class Rename extends AbstractContractRenameTest {
        @BeforeClass
        public static void cluster() throws Exception {
            HDFSContract.createCluster();
        }

        @Override
        protected AbstractFSContract createContract(Configuration conf) {
            return new WebHdfs(conf);
        }
    }

    public static class RootDirectory extends AbstractContractRootDirectoryTest {
        @BeforeClass
        public static void cluster() throws Exception {
            HDFSContract.createCluster();
        }

        @Override
        protected AbstractFSContract createContract(Configuration conf) {
            return new WebHdfs(conf);
        }
    }

    public static class Seek extends AbstractContractSeekTest {
        @BeforeClass
        public static void cluster() throws Exception {
            HDFSContract.createCluster();
        }

        @Override
        protected AbstractFSContract createContract(Configuration conf) {
            return new WebHdfs(conf);
        }
    }

    public static class SetTimes extends AbstractContractSetTimesTest {
        @BeforeClass
        public static void cluster() throws Exception {
            HDFSContract.createCluster();
        }

        @Override
        protected AbstractFSContract createContract(Configuration conf) {
            return new WebHdfs(conf);
        }
    }
}
