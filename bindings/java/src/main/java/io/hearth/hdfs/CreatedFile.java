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
import org.apache.hadoop.hdfs.protocol.HdfsFileStatus;
import org.apache.hadoop.util.DataChecksum;

/** A file that Hadoop's client has created: what the native client needs to write it. */
final class CreatedFile {
    private static final Field CLIENT = field("dfsClient");
    private static final Field PATH = field("src");
    private static final Field INODE = field("fileId");
    private static final Field BLOCK_SIZE = field("blockSize");
    private static final Field REPLICATION = field("blockReplication");
    private static final Field CLOSED = field("closed");
    private static final Method CHECKSUM = method(FSOutputSummer.class, "getDataChecksum");
    private static final Method ABORT = method(DFSOutputStream.class, "abort");

    final DFSClient client;
    /** Absolute path as the NameNode knows it. */
    final String path;
    final long inode;
    final long blockSize;
    final short replication;
    final DataChecksum checksum;

    private CreatedFile(DFSOutputStream stream) throws IllegalAccessException, InvocationTargetException {
        this.client = (DFSClient) CLIENT.get(stream);
        this.path = (String) PATH.get(stream);
        this.inode = INODE.getLong(stream);
        this.blockSize = BLOCK_SIZE.getLong(stream);
        this.replication = REPLICATION.getShort(stream);
        this.checksum = (DataChecksum) CHECKSUM.invoke(stream);
    }

    private static Field field(String name) {
        try {
            return accessible(DFSOutputStream.class.getDeclaredField(name));
        } catch (ReflectiveOperationException | RuntimeException e) {
            return null;
        }
    }

    private static Method method(Class<?> of, String name) {
        try {
            return accessible(of.getDeclaredMethod(name));
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
                && CLOSED != null && CHECKSUM != null && ABORT != null;
    }

    /** Returns the file of a stream that nothing has been written to. */
    static CreatedFile of(DFSOutputStream stream) throws IOException {
        try {
            return new CreatedFile(stream);
        } catch (IllegalAccessException | InvocationTargetException e) {
            throw new IOException("cannot get the file of a stream", e);
        }
    }

    /** Returns what a stream of Hadoop's needs to know of the file. */
    HdfsFileStatus status() {
        return new HdfsFileStatus.Builder().path(DFSUtilClient.string2Bytes(path)).fileId(inode).blocksize(blockSize)
                .replication(replication).build();
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
