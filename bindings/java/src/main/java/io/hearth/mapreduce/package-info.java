/**
 * Input of MapReduce jobs, and of Spark's {@code newAPIHadoopFile}: many small files, read many by one call.
 *
 * <ul>
 *   <li>{@link io.hearth.mapreduce.SmallFilesInputFormat} is for {@code org.apache.hadoop.mapreduce}.
 *   <li>{@link io.hearth.mapreduce.SmallFilesMapredInputFormat} is for the older {@code org.apache.hadoop.mapred}.
 * </ul>
 *
 * <p>Programs that use neither need no MapReduce on their class path.
 */
package io.hearth.mapreduce;
