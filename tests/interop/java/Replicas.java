package org.apache.hadoop.hdfs;

import java.io.IOException;
import java.util.ArrayList;
import java.util.List;
import org.apache.hadoop.fs.FSDataInputStream;
import org.apache.hadoop.fs.FSDataOutputStream;
import org.apache.hadoop.hdfs.protocol.DatanodeInfo;
import org.apache.hadoop.hdfs.protocol.LocatedBlock;

/** Access to package-private state of Apache's client about single replicas; hence in its package. */
public final class Replicas {
    private Replicas() {
    }

    /** The blocks of the file, in order. */
    public static List<LocatedBlock> blocks(FSDataInputStream in) throws IOException {
        return ((DFSInputStream) in.getWrappedStream()).getAllBlocks();
    }

    /** The datanodes, ip:port, that hold the block. */
    public static List<String> holders(LocatedBlock block) {
        List<String> holders = new ArrayList<>();
        for (DatanodeInfo datanode : block.getLocations()) {
            holders.add(datanode.getXferAddr());
        }
        return holders;
    }

    /** Makes the reader treat all datanodes with the block as dead, except one (ip:port). */
    public static void readOnlyFrom(FSDataInputStream in, LocatedBlock block, String holder) {
        DFSInputStream stream = (DFSInputStream) in.getWrappedStream();
        for (DatanodeInfo datanode : block.getLocations()) {
            if (!datanode.getXferAddr().equals(holder)) {
                stream.addToLocalDeadNodes(datanode);
            }
        }
    }

    /** The datanode, ip:port, that the reader currently reads from. */
    public static String readsFrom(FSDataInputStream in) {
        DatanodeInfo datanode = ((DFSInputStream) in.getWrappedStream()).getCurrentDatanode();
        return datanode == null ? null : datanode.getXferAddr();
    }

    /** The datanodes, ip:port, of a writer's pipeline, in its order; none between blocks. */
    public static List<String> pipeline(FSDataOutputStream out) {
        List<String> pipeline = new ArrayList<>();
        DatanodeInfo[] datanodes = ((DFSOutputStream) out.getWrappedStream()).getPipeline();
        for (DatanodeInfo datanode : datanodes == null ? new DatanodeInfo[0] : datanodes) {
            pipeline.add(datanode.getXferAddr());
        }
        return pipeline;
    }
}
