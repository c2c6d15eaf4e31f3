package io.hearth.hdfs;

import org.apache.hadoop.util.VersionInfo;

/** What the version of Hadoop has that this program runs with. */
final class HadoopVersion {
    /** Streams read several ranges by one call: since 3.3.5. */
    static final boolean READS_RANGES = has("org.apache.hadoop.fs.FileRange");

    /** The interfaces exist that {@link HearthInputStream} has: since 3.3.0. */
    private static final boolean READS_BUFFERS = has("org.apache.hadoop.fs.ByteBufferPositionedReadable");

    private HadoopVersion() {
    }

    private static boolean has(String type) {
        try {
            Class.forName(type, false, HadoopVersion.class.getClassLoader());
            return true;
        } catch (ClassNotFoundException | LinkageError e) {
            return false;
        }
    }

    /** Returns why this version cannot be used; null if it can. */
    static String reasonAgainst() {
        if (!READS_BUFFERS) {
            return "it needs Hadoop 3.3.0 or later, and this is " + VersionInfo.getVersion();
        }
        if (!LocatedFile.isPossible()) {
            return "this version of Hadoop does not tell the blocks of an open file (" + VersionInfo.getVersion() + ")";
        }
        return null;
    }
}
