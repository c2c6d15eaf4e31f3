package io.hearth.hdfs;

import java.io.IOException;
import java.lang.reflect.AccessibleObject;
import java.lang.reflect.Field;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import org.apache.hadoop.fs.FSOutputSummer;
import org.apache.hadoop.hdfs.DFSClient;
import org.apache.hadoop.hdfs.DFSOutputStream;
import org.apache.hadoop.hdfs.DFSUtilClient;
import org.apache.hadoop.hdfs.protocol.ExtendedBlock;
import org.apache.hadoop.hdfs.protocol.HdfsFileStatus;
import org.apache.hadoop.util.DataChecksum;

/** A file that Hadoop's client has created or opened for append: what the native client needs to write it. */
final class WrittenFile {
    private static final Field CLIENT = field("dfsClient");
    private static final Field PATH = field("src");
    private static final Field INODE = field("fileId");
    private static final Field BLOCK_SIZE = field("blockSize");
    private static final Field REPLICATION = field("blockReplication");
    private static final Field CLOSED = field("closed");
    private static final Method CHECKSUM = method(FSOutputSummer.class, "getDataChecksum");
    private static final Method BLOCK = method(DFSOutputStream.class, "getBlock");
    private static final Method ABORT = method(DFSOutputStream.class, "abort");
    private static final Method RECOVER_LEASE = method(DFSOutputStream.class, "recoverLease", boolean.class);

    final DFSClient client;
    /** Absolute path as the NameNode knows it. */
    final String path;
    final long inode;
    final long blockSize;
    final short replication;
    final DataChecksum checksum;
    /** Bytes of the file. */
    final long length;
    /** The last block with its length, if it is not full and is to be continued; else null. */
    final ExtendedBlock lastBlock;

    private WrittenFile(DFSOutputStream stream) throws IllegalAccessException, InvocationTargetException {
        this.client = (DFSClient) CLIENT.get(stream);
        this.path = (String) PATH.get(stream);
        this.inode = INODE.getLong(stream);
        this.blockSize = BLOCK_SIZE.getLong(stream);
        this.replication = REPLICATION.getShort(stream);
        this.checksum = (DataChecksum) CHECKSUM.invoke(stream);
        this.length = stream.getInitialLen();
        this.lastBlock = (ExtendedBlock) BLOCK.invoke(stream);
    }

    private static Field field(String name) {
        try {
            return accessible(DFSOutputStream.class.getDeclaredField(name));
        } catch (ReflectiveOperationException | RuntimeException e) {
            return null;
        }
    }

    private static Method method(Class<?> of, String name, Class<?>... parameters) {
        try {
            return accessible(of.getDeclaredMethod(name, parameters));
        } catch (ReflectiveOperationException | RuntimeException e) {
            return null;
        }
    }

    private static <T extends AccessibleObject> T accessible(T member) {
        member.setAccessible(true);
        return member;
    }

    /** Returns whether streams of this version of Hadoop tell what is needed. */
    static boolean isPossible() {
        return CLIENT != null && PATH != null && INODE != null && BLOCK_SIZE != null && REPLICATION != null
                && CLOSED != null && CHECKSUM != null && BLOCK != null && ABORT != null;
    }

    /** Returns whether streams of this version of Hadoop can recover their lease: since 3.4.0. */
    static boolean recoversLeases() {
        return RECOVER_LEASE != null;
    }

    /** Returns the file of a stream that nothing has been written to. */
    static WrittenFile of(DFSOutputStream stream) throws IOException {
        try {
            return new WrittenFile(stream);
        } catch (IllegalAccessException | InvocationTargetException e) {
            throw new IOException("cannot get the file of a stream", e);
        }
    }

    /** Returns whether the first bytes need a block behind others, which the NameNode allocates once. */
    boolean needsBlockBehindOthers() {
        return length > 0 && lastBlock == null;
    }

    /** Returns what a stream of Hadoop's needs to know of the file. */
    HdfsFileStatus status() {
        return new HdfsFileStatus.Builder().path(DFSUtilClient.string2Bytes(path)).fileId(inode).blocksize(blockSize)
                .replication(replication).build();
    }

    /** Encodes the last block as the native library does ({@code writer.rs}); empty if there is none to continue. */
    String encodedLastBlock() {
        if (lastBlock == null) {
            return "";
        }
        return lastBlock.getBlockPoolId() + '\t' + lastBlock.getBlockId() + '\t' + lastBlock.getNumBytes() + '\t'
                + lastBlock.getGenerationStamp();
    }

    /** Decodes a block that the native library has encoded. */
    static ExtendedBlock decodedBlock(String encoded) {
        String[] fields = encoded.split("\t");
        return new ExtendedBlock(fields[0], Long.parseLong(fields[1]), Long.parseLong(fields[2]),
                Long.parseLong(fields[3]));
    }

    /** Returns whether a stream was closed, for example because its lease could not be renewed. */
    static boolean isClosed(DFSOutputStream stream) throws IOException {
        try {
            return CLOSED.getBoolean(stream);
        } catch (IllegalAccessException e) {
            throw new IOException("cannot get the state of a stream", e);
        }
    }

    /** Ends a stream that nothing was written to, and the renewal of its lease. Sends nothing. */
    static void abandon(DFSOutputStream stream) {
        // Hadoop's stream waits for its thread, which ends at once. It gives up, and clears the flag, if that is set.
        boolean interrupted = Thread.interrupted();
        try {
            ABORT.invoke(stream);
        } catch (IllegalAccessException | InvocationTargetException e) {
            HearthClient.LOG.debug("cannot end {}", stream, e);
        } finally {
            if (interrupted) {
                Thread.currentThread().interrupt();
            }
        }
    }
}
