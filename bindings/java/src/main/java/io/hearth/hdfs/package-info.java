/**
 * Lets programs that use Apache Hadoop read the files of Hearth's DataNodes from their memory. For users, by their names in
 * the configuration:
 *
 * <ul>
 *   <li>{@link io.hearth.hdfs.HearthFileSystem} and {@link io.hearth.hdfs.HearthHdfs} read whole files by Hearth's client,
 *       on the same machine and on others. {@link io.hearth.hdfs.HearthBulk} reads many files by one call.
 *   <li>{@link io.hearth.hdfs.LocalReplicaAccessorBuilder} gives Hadoop's client the blocks on the same machine.
 * </ul>
 */
package io.hearth.hdfs;
