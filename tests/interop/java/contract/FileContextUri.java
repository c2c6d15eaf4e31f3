package hearth.contract;

import java.net.URI;
import org.apache.hadoop.fs.FileContext;
import org.apache.hadoop.fs.FileContextURIBase;
import org.apache.hadoop.hdfs.HdfsConfiguration;
import org.apache.hadoop.hdfs.MiniDFSCluster;

/** Apache has this base test, but no class that runs it on HDFS. */
public class FileContextUri extends FileContextURIBase {
    @Override
    public void setUp() throws Exception {
        HdfsConfiguration conf = new HdfsConfiguration();
        URI uri = new MiniDFSCluster.Builder(conf).build().getURI();
        fc1 = FileContext.getFileContext(uri, conf);
        fc2 = FileContext.getFileContext(uri, conf);
    }
}
