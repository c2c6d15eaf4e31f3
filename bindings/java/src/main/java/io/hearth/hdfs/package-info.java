/**
 * Lets Apache Hadoop's HDFS client read the blocks of Hearth's DataNodes on the same machine from their memory. Only
 * {@link io.hearth.hdfs.LocalReplicaAccessorBuilder} is for users, by its name in the configuration.
 */
package io.hearth.hdfs;
