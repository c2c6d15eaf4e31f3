package io.hearth.hdfs;

import org.apache.hadoop.conf.Configuration;

/**
 * Bound of the replicas that stay mapped. YARN counts mapped memory as the container's own, and kills a container above its
 * limit, so a container has a default of its own.
 */
final class MappedMemory {
    static final String KEY = "hearth.client.mapped.max";

    /**
     * Two blocks of the usual size, with their checksums. Spark gives an executor at least 384 MiB beside its heap, and part of that is the JVM's.
     */
    private static final String CONTAINER_DEFAULT = "288m";

    /** YARN sets this variable in each container. Source: {@code ApplicationConstants.Environment.CONTAINER_ID}. */
    private static final boolean IS_CONTAINER = System.getenv("CONTAINER_ID") != null;

    private MappedMemory() {
    }

    /** Adds the default of containers to the settings of a native client, in a container whose configuration has none. */
    static void appendDefault(StringBuilder settings, Configuration configuration) {
        if (IS_CONTAINER && configuration.get(KEY) == null) {
            settings.append(KEY).append('\0').append(CONTAINER_DEFAULT).append('\0');
        }
    }
}
