/**
 * Lets programs that use Apache Hadoop read and write the files of Hearth's DataNodes in their memory. For users, by their
 * names in the configuration:
 *
 * <ul>
 *   <li>{@link io.hearth.hdfs.HearthFileSystem} and {@link io.hearth.hdfs.HearthHdfs} read and write whole files by
 *       Hearth's client, on the same machine and on others. {@link io.hearth.hdfs.HearthBulk} reads many files by one
 *       call.
 *   <li>{@link io.hearth.hdfs.LocalReplicaAccessorBuilder} gives Hadoop's client the blocks on the same machine.
 * </ul>
 */
package io.hearth.hdfs;
