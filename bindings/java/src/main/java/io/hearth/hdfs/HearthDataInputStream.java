package io.hearth.hdfs;

import java.io.IOException;
import java.util.List;
import org.apache.hadoop.hdfs.DFSInputStream;
import org.apache.hadoop.hdfs.ReadStatistics;
import org.apache.hadoop.hdfs.client.HdfsDataInputStream;
import org.apache.hadoop.hdfs.protocol.DatanodeInfo;
import org.apache.hadoop.hdfs.protocol.ExtendedBlock;
import org.apache.hadoop.hdfs.protocol.LocatedBlock;

/** What programs get that open a file: Hadoop's class for streams of HDFS, around {@link HearthInputStream}. */
final class HearthDataInputStream extends HdfsDataInputStream {
    private final DFSInputStream stock;
    private final HearthInputStream hearth;

    HearthDataInputStream(DFSInputStream stock, HearthInputStream hearth) {
        // Hadoop's class only takes its own streams.
        super(stock);
        this.stock = stock;
        this.hearth = hearth;
        this.in = hearth;
    }

    @Override
    public DatanodeInfo getCurrentDatanode() {
        return hearth.currentDatanode();
    }

    @Override
    public ExtendedBlock getCurrentBlock() {
        return hearth.currentBlock();
    }

    @Override
    public List<LocatedBlock> getAllBlocks() throws IOException {
        return stock.getAllBlocks();
    }

    @Override
    public long getVisibleLength() {
        return stock.getFileLength();
    }

    @Override
    public ReadStatistics getReadStatistics() {
        return stock.getReadStatistics();
    }

    @Override
    public void clearReadStatistics() {
        stock.clearReadStatistics();
    }
}
