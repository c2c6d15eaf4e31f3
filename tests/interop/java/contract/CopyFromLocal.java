package hearth.contract;

import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.contract.AbstractContractCopyFromLocalTest;
import org.apache.hadoop.fs.contract.AbstractFSContract;
import org.apache.hadoop.fs.contract.hdfs.HDFSContract;
import org.junit.BeforeClass;

/** Apache has this contract test, but no class that runs it on HDFS. */
public class CopyFromLocal extends AbstractContractCopyFromLocalTest {
    @BeforeClass
    public static void cluster() throws Exception {
        HDFSContract.createCluster();
    }

    @Override
    protected AbstractFSContract createContract(Configuration conf) {
        return new HDFSContract(conf);
    }
}
