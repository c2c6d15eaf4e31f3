package io.hearth.hdfs;

import java.io.ByteArrayOutputStream;
import java.io.DataOutputStream;
import java.io.IOException;
import java.lang.reflect.Field;
import java.lang.reflect.Method;
import java.net.InetSocketAddress;
import java.nio.charset.StandardCharsets;
import java.util.List;
import org.apache.hadoop.hdfs.DFSInputStream;
import org.apache.hadoop.hdfs.DFSUtilClient;
import org.apache.hadoop.hdfs.protocol.DatanodeInfo;
import org.apache.hadoop.hdfs.protocol.ExtendedBlock;
import org.apache.hadoop.hdfs.protocol.LocatedBlock;
import org.apache.hadoop.hdfs.protocol.LocatedBlocks;
import org.apache.hadoop.security.token.Token;

/** Path and blocks of a file that Hadoop's client has opened: what the native client needs to open it without a call. */
final class LocatedFile {
    private static final Property PATH = Property.of("getSrc", "src");
    private static final Property BLOCKS = Property.of("getLocatedBlocks", "locatedBlocks");
    /** A compiled call would fail with Hadoop 3.3.0, where the method has another type of result. */
    private static final Method LOCATIONS = locationsMethod();

    /** Absolute path as the NameNode knows it. */
    final String path;
    /** Number of bytes that can be read, including those of a block that is being written. */
    final long length;
    private final LocatedBlocks blocks;
    private final LocatedBlock[] located;

    private LocatedFile(String path, long length, LocatedBlocks blocks) {
        this.path = path;
        this.length = length;
        this.blocks = blocks;
        List<LocatedBlock> known = blocks.getLocatedBlocks();
        // A copy: the stream adds blocks to its list when it needs more of them.
        this.located = known == null ? new LocatedBlock[0] : known.toArray(new LocatedBlock[0]);
    }

    /** What only subclasses of a stream may ask it for: by a method, or before Hadoop 3.3.5 by a field. */
    private interface Property {
        Object get(DFSInputStream stream) throws ReflectiveOperationException;

        /** Returns null if this version of Hadoop has neither. */
        static Property of(String method, String field) {
            try {
                Method found = DFSInputStream.class.getDeclaredMethod(method);
                found.setAccessible(true);
                return found::invoke;
            } catch (ReflectiveOperationException | RuntimeException e) {
                // The other way is tried.
            }
            try {
                Field found = DFSInputStream.class.getDeclaredField(field);
                found.setAccessible(true);
                return found::get;
            } catch (ReflectiveOperationException | RuntimeException e) {
                return null;
            }
        }
    }

    private static Method locationsMethod() {
        try {
            return LocatedBlock.class.getMethod("getLocations");
        } catch (ReflectiveOperationException e) {
            return null;
        }
    }

    /** Returns whether streams of this version of Hadoop tell what is needed. */
    static boolean isPossible() {
        return PATH != null && BLOCKS != null && LOCATIONS != null;
    }

    /** Returns the DataNodes with a replica of the block, the nearest one first. */
    static DatanodeInfo[] locations(LocatedBlock block) {
        try {
            return (DatanodeInfo[]) LOCATIONS.invoke(block);
        } catch (ReflectiveOperationException e) {
            throw new IllegalStateException("cannot get the DataNodes of " + block, e);
        }
    }

    /** Returns the file of a stream; null if its bytes need decoding that the native client cannot do. */
    static LocatedFile of(DFSInputStream stream) throws IOException {
        try {
            LocatedBlocks blocks = (LocatedBlocks) BLOCKS.get(stream);
            if (blocks == null || blocks.getErasureCodingPolicy() != null || blocks.getFileEncryptionInfo() != null) {
                return null;
            }
            return new LocatedFile((String) PATH.get(stream), stream.getFileLength(), blocks);
        } catch (ReflectiveOperationException e) {
            throw new IOException("cannot get the blocks of a stream", e);
        }
    }

    /** Returns the block with the byte at this offset, as far as it is known; else null. */
    LocatedBlock at(long offset) {
        for (LocatedBlock block : located) {
            if (offset >= block.getStartOffset() && offset < block.getStartOffset() + block.getBlockSize()) {
                return block;
            }
        }
        LocatedBlock last = blocks.getLastLocatedBlock();
        return last != null && offset >= last.getStartOffset() && offset < length ? last : null;
    }

    /** Returns whether all replicas that are known are on this machine. */
    boolean isHere() {
        try {
            for (LocatedBlock block : located) {
                for (DatanodeInfo datanode : locations(block)) {
                    InetSocketAddress address = new InetSocketAddress(datanode.getIpAddr(), datanode.getXferPort());
                    if (!DFSUtilClient.isLocalAddress(address)) {
                        return false;
                    }
                }
            }
            return true;
        } catch (IOException e) {
            return false;
        }
    }

    /** Encodes the blocks as the native library decodes them ({@code located.rs}). */
    byte[] encode() throws IOException {
        ByteArrayOutputStream bytes = new ByteArrayOutputStream(512);
        DataOutputStream out = new DataOutputStream(bytes);
        boolean complete = blocks.isLastBlockComplete();
        LocatedBlock last = blocks.getLastLocatedBlock();
        out.writeLong(blocks.getFileLength());
        out.writeBoolean(blocks.isUnderConstruction());
        out.writeBoolean(complete);
        out.writeBoolean(last != null);
        if (last != null) {
            // The stream has asked the DataNodes of a block that is being written for its length.
            long size = complete ? last.getBlockSize() : Math.max(0, length - blocks.getFileLength());
            write(out, last, size);
        }
        out.writeInt(located.length);
        for (LocatedBlock block : located) {
            write(out, block, block.getBlockSize());
        }
        return bytes.toByteArray();
    }

    private static void write(DataOutputStream out, LocatedBlock located, long size) throws IOException {
        ExtendedBlock block = located.getBlock();
        write(out, block.getBlockPoolId());
        out.writeLong(block.getBlockId());
        out.writeLong(block.getGenerationStamp());
        out.writeLong(size);
        out.writeLong(located.getStartOffset());
        out.writeBoolean(located.isCorrupt());
        Token<?> token = located.getBlockToken();
        write(out, token.getIdentifier());
        write(out, token.getPassword());
        write(out, token.getKind().toString());
        write(out, token.getService().toString());
        DatanodeInfo[] locations = locations(located);
        out.writeInt(locations.length);
        for (DatanodeInfo datanode : locations) {
            write(out, datanode.getIpAddr());
            write(out, datanode.getHostName());
            write(out, datanode.getDatanodeUuid());
            out.writeInt(datanode.getXferPort());
            out.writeInt(datanode.getInfoPort());
            out.writeInt(datanode.getIpcPort());
            out.writeInt(datanode.getInfoSecurePort());
        }
    }

    private static void write(DataOutputStream out, String text) throws IOException {
        write(out, text == null ? new byte[0] : text.getBytes(StandardCharsets.UTF_8));
    }

    private static void write(DataOutputStream out, byte[] bytes) throws IOException {
        out.writeInt(bytes.length);
        out.write(bytes);
    }
}
