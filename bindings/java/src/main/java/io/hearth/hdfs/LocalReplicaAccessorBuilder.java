package io.hearth.hdfs;

import java.nio.ByteBuffer;
import java.util.concurrent.atomic.AtomicBoolean;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.hdfs.ReplicaAccessor;
import org.apache.hadoop.hdfs.ReplicaAccessorBuilder;

/**
 * Makes Hadoop's HDFS client read the replicas of Hearth's DataNodes on its own machine from their memory. Set
 * {@code dfs.client.replica.accessor.builder.classes} to the name of this class, and {@code dfs.domain.socket.path} to
 * the value that the DataNodes have.
 *
 * <p>The client asks for each block that it reads. Where no replica can be read this way, it reads as without this class.
 */
public final class LocalReplicaAccessorBuilder extends ReplicaAccessorBuilder {
    private static final AtomicBoolean WARNED = new AtomicBoolean();

    private long blockId;
    private String blockPoolId;
    private long generationStamp;
    private boolean verifyChecksum = true;
    private boolean allowShortCircuitReads;
    private long visibleLength;
    private Configuration configuration;
    private byte[] token;

    /** Called by Hadoop's client, for each block. */
    public LocalReplicaAccessorBuilder() {
    }

    @Override
    public ReplicaAccessorBuilder setFileName(String fileName) {
        return this;
    }

    @Override
    public ReplicaAccessorBuilder setBlock(long blockId, String blockPoolId) {
        this.blockId = blockId;
        this.blockPoolId = blockPoolId;
        return this;
    }

    @Override
    public ReplicaAccessorBuilder setGenerationStamp(long genstamp) {
        this.generationStamp = genstamp;
        return this;
    }

    @Override
    public ReplicaAccessorBuilder setVerifyChecksum(boolean verifyChecksum) {
        this.verifyChecksum = verifyChecksum;
        return this;
    }

    @Override
    public ReplicaAccessorBuilder setClientName(String clientName) {
        return this;
    }

    @Override
    public ReplicaAccessorBuilder setAllowShortCircuitReads(boolean allowShortCircuit) {
        this.allowShortCircuitReads = allowShortCircuit;
        return this;
    }

    @Override
    public ReplicaAccessorBuilder setVisibleLength(long visibleLength) {
        this.visibleLength = visibleLength;
        return this;
    }

    @Override
    public ReplicaAccessorBuilder setConfiguration(Configuration conf) {
        this.configuration = conf;
        return this;
    }

    @Override
    public ReplicaAccessorBuilder setBlockAccessToken(byte[] token) {
        this.token = token;
        return this;
    }

    /** Returns an accessor of the replica, or null if the client shall read the block in another way. Never throws. */
    @Override
    public ReplicaAccessor build() {
        try {
            // Not allowed: the block is being written, and its replica changes.
            if (!allowShortCircuitReads || visibleLength <= 0 || blockPoolId == null || configuration == null) {
                return null;
            }
            long block = LocalDataNodes.of(configuration)
                    .open(blockPoolId, blockId, generationStamp, visibleLength, token);
            return block == 0 ? null : new LocalReplicaAccessor(block, visibleLength, verifyChecksum);
        } catch (LocalDataNodes.RequiredException e) {
            // An exception here would only be logged. One from a read reaches the program.
            return new Refusal(e.getMessage());
        } catch (Throwable e) {
            if (WARNED.compareAndSet(false, true)) {
                LocalDataNodes.LOG.warn("Hearth cannot open block {} of {}, which is read in another way. Further failures "
                        + "are logged at level debug.", blockId, blockPoolId, e);
            } else {
                LocalDataNodes.LOG.debug("Hearth cannot open block {} of {}", blockId, blockPoolId, e);
            }
            return null;
        }
    }

    /** Accessor whose reads fail. The exception is unchecked: after others, the client would try other replicas. */
    private static final class Refusal extends ReplicaAccessor {
        private final String reason;

        Refusal(String reason) {
            this.reason = reason;
        }

        @Override
        public int read(long pos, byte[] buf, int off, int len) {
            throw new IllegalStateException(reason);
        }

        @Override
        public int read(long pos, ByteBuffer buf) {
            throw new IllegalStateException(reason);
        }

        @Override
        public void close() {
        }

        @Override
        public boolean isLocal() {
            return false;
        }

        @Override
        public boolean isShortCircuit() {
            return false;
        }
    }
}
