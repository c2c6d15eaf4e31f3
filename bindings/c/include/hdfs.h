/*
 * The C interface of HDFS, with the names, types and numbers of Apache Hadoop 3.4's and 3.5's hdfs.h.
 *
 * A program that was compiled with Apache's header runs on this library, and the other way round. The texts are this
 * project's: they say what this library does.
 *
 * Functions that return int or tSize return -1 after an error, and those that return a pointer NULL, if nothing else is
 * said. errno then has the number, and hdfsGetLastExceptionRootCause() the text. Errors without a number of their own are
 * EINTERNAL. Every function may be called by several threads at once.
 *
 * Paths are absolute, relative to the working directory, or URIs of the file system. Names are UTF-8.
 */
#ifndef LIBHDFS_HDFS_H
#define LIBHDFS_HDFS_H

#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>

#ifndef EINTERNAL
#define EINTERNAL 255
#endif

/* The one pool that hadoopRzOptionsSetByteBufferPool knows. */
#define ELASTIC_BYTE_BUFFER_POOL_CLASS "org/apache/hadoop/io/ElasticByteBufferPool"

#ifdef __cplusplus
extern "C" {
#endif

typedef int32_t tSize;   /* bytes of one read or write */
typedef time_t tTime;    /* seconds since 1970 */
typedef int64_t tOffset; /* bytes from the start of a file */
typedef uint16_t tPort;

typedef enum tObjectKind {
    kObjectKindFile = 'F',
    kObjectKindDirectory = 'D',
} tObjectKind;

struct hdfsBuilder;
struct hdfsStreamBuilder;
struct hdfs_internal;
typedef struct hdfs_internal *hdfsFS;
struct hdfsFile_internal;
typedef struct hdfsFile_internal *hdfsFile;
struct hadoopRzOptions;
struct hadoopRzBuffer;
typedef struct hdfsOpenFileBuilder hdfsOpenFileBuilder;
typedef struct hdfsOpenFileFuture hdfsOpenFileFuture;

typedef enum javaConcurrentTimeUnit {
    jNanoseconds,
    jMicroseconds,
    jMilliseconds,
    jSeconds,
    jMinutes,
    jHours,
    jDays,
} javaConcurrentTimeUnit;

/* ---- Connecting ---- */

/*
 * The configuration is that of HADOOP_CONF_DIR. If it is not set, core-site.xml and hdfs-site.xml are taken from the
 * directories on CLASSPATH, else from HADOOP_HOME/etc/hadoop. Nothing is sent by connecting: an unreachable NameNode is an
 * error of the first call.
 */
struct hdfsBuilder *hdfsNewBuilder(void);
/* For a builder that was not connected. */
void hdfsFreeBuilder(struct hdfsBuilder *bld);
/* Without it, connections with the same address, user and settings share a client. */
void hdfsBuilderSetForceNewInstance(struct hdfsBuilder *bld);
/* "default": fs.defaultFS. A host, "host:port" or "hdfs://..." otherwise. NULL, a local file system, is ENOTSUP. */
void hdfsBuilderSetNameNode(struct hdfsBuilder *bld, const char *nn);
/* Must not be given twice, here and in the address. */
void hdfsBuilderSetNameNodePort(struct hdfsBuilder *bld, tPort port);
void hdfsBuilderSetUserName(struct hdfsBuilder *bld, const char *userName);
void hdfsBuilderSetKerbTicketCachePath(struct hdfsBuilder *bld, const char *kerbTicketCachePath);
/* val NULL removes the value. Returns 0 or an error number. */
int hdfsBuilderConfSetStr(struct hdfsBuilder *bld, const char *key, const char *val);
/* Frees the builder, also after an error. */
hdfsFS hdfsBuilderConnect(struct hdfsBuilder *bld);

/* Older forms. */
hdfsFS hdfsConnect(const char *nn, tPort port);
hdfsFS hdfsConnectNewInstance(const char *nn, tPort port);
hdfsFS hdfsConnectAsUser(const char *nn, tPort port, const char *user);
hdfsFS hdfsConnectAsUserNewInstance(const char *nn, tPort port, const char *user);

/* Frees the handle. Open files stay usable. */
int hdfsDisconnect(hdfsFS fs);

/* Values of the configuration. Both return 0 or an error number. A missing key is no error: *val becomes NULL, or stays. */
int hdfsConfGetStr(const char *key, char **val);
int hdfsConfGetInt(const char *key, int32_t *val);
void hdfsConfStrFree(char *val);

/* ---- Opening and closing files ---- */

/*
 * flags: O_RDONLY, O_WRONLY (create or replace; with O_CREAT|O_EXCL EEXIST if it exists), or O_WRONLY|O_APPEND. O_RDWR is
 * ENOTSUP. bufferSize has no effect; replication and blocksize 0 mean the configured ones.
 */
hdfsFile hdfsOpenFile(hdfsFS fs, const char *path, int flags, int bufferSize, short replication, tSize blocksize);

struct hdfsStreamBuilder *hdfsStreamBuilderAlloc(hdfsFS fs, const char *path, int flags);
void hdfsStreamBuilderFree(struct hdfsStreamBuilder *bld);
/* These three are EINVAL for a file that is to be read. */
int hdfsStreamBuilderSetBufferSize(struct hdfsStreamBuilder *bld, int32_t bufferSize);
int hdfsStreamBuilderSetReplication(struct hdfsStreamBuilder *bld, int16_t replication);
int hdfsStreamBuilderSetDefaultBlockSize(struct hdfsStreamBuilder *bld, int64_t defaultBlockSize);
/* Frees the builder, also after an error. */
hdfsFile hdfsStreamBuilderBuild(struct hdfsStreamBuilder *bld);

/* Opening for reading in the background. */
hdfsOpenFileBuilder *hdfsOpenFileBuilderAlloc(hdfsFS fs, const char *path);
/* Both return the builder. Of the mandatory options, only Hadoop's standard ones are known; others are EINVAL at Build. */
hdfsOpenFileBuilder *hdfsOpenFileBuilderMust(hdfsOpenFileBuilder *builder, const char *key, const char *value);
hdfsOpenFileBuilder *hdfsOpenFileBuilderOpt(hdfsOpenFileBuilder *builder, const char *key, const char *value);
/* Frees the builder, also after an error. */
hdfsOpenFileFuture *hdfsOpenFileBuilderBuild(hdfsOpenFileBuilder *builder);
void hdfsOpenFileBuilderFree(hdfsOpenFileBuilder *builder);
/* Waits. Each call returns another handle of the same stream. */
hdfsFile hdfsOpenFileFutureGet(hdfsOpenFileFuture *future);
/* ETIMEDOUT if the file is not open in time. */
hdfsFile hdfsOpenFileFutureGetWithTimeout(hdfsOpenFileFuture *future, int64_t timeout, javaConcurrentTimeUnit timeUnit);
/* Returns 0 if opening was stopped, -1 if it had ended. */
int hdfsOpenFileFutureCancel(hdfsOpenFileFuture *future, int mayInterruptIfRunning);
void hdfsOpenFileFutureFree(hdfsOpenFileFuture *future);

/* Frees the handle, also after an error. A file that was written is complete after 0. */
int hdfsCloseFile(hdfsFS fs, hdfsFile file);
int hdfsFileIsOpenForRead(hdfsFile file);
int hdfsFileIsOpenForWrite(hdfsFile file);
/* Gives up connection and buffers of a file that stays open. Returns 0, or ENOTSUP for a file that is written. */
int hdfsUnbufferFile(hdfsFile file);
/* Returns 1 if the file can be written at once, 0 if its last block is still being cut. */
int hdfsTruncateFile(hdfsFS fs, const char *path, tOffset newlength);

/* ---- Reading ---- */

/* Both return the number of bytes, less than length only at the end of the file. */
tSize hdfsRead(hdfsFS fs, hdfsFile file, void *buffer, tSize length);
tSize hdfsPread(hdfsFS fs, hdfsFile file, tOffset position, void *buffer, tSize length);
/* Returns 0. Fewer bytes than length are an error. */
int hdfsPreadFully(hdfsFS fs, hdfsFile file, tOffset position, void *buffer, tSize length);
int hdfsSeek(hdfsFS fs, hdfsFile file, tOffset desiredPos);
tOffset hdfsTell(hdfsFS fs, hdfsFile file);
/* Bytes up to the end of the file. */
int hdfsAvailable(hdfsFS fs, hdfsFile file);

struct hdfsReadStatistics {
    uint64_t totalBytesRead;
    uint64_t totalLocalBytesRead;        /* in the memory of a DataNode on this machine */
    uint64_t totalShortCircuitBytesRead; /* the same */
    uint64_t totalZeroCopyBytesRead;     /* of these, those shown by hadoopReadZero or a view */
};

int hdfsFileGetReadStatistics(hdfsFile file, struct hdfsReadStatistics **stats);
int64_t hdfsReadStatisticsGetRemoteBytesRead(const struct hdfsReadStatistics *stats);
/* Returns 0 or an error number. */
int hdfsFileClearReadStatistics(hdfsFile file);
void hdfsFileFreeReadStatistics(struct hdfsReadStatistics *stats);

/* This library makes no hedged reads: the numbers are 0. */
struct hdfsHedgedReadMetrics {
    uint64_t hedgedReadOps;
    uint64_t hedgedReadOpsWin;
    uint64_t hedgedReadOpsInCurThread;
};

int hdfsGetHedgedReadMetrics(hdfsFS fs, struct hdfsHedgedReadMetrics **metrics);
void hdfsFreeHedgedReadMetrics(struct hdfsHedgedReadMetrics *metrics);

/* ---- Reading without a copy ---- */

struct hadoopRzOptions *hadoopRzOptionsAlloc(void);
/* Nonzero: bytes in memory of this machine may be returned without a check. */
int hadoopRzOptionsSetSkipChecksum(struct hadoopRzOptions *opts, int skip);
/* ELASTIC_BYTE_BUFFER_POOL_CLASS permits copies where no memory can be shown. NULL forbids them. */
int hadoopRzOptionsSetByteBufferPool(struct hadoopRzOptions *opts, const char *className);
void hadoopRzOptionsFree(struct hadoopRzOptions *opts);
/*
 * Returns at most maxLength bytes from the position on, and moves it once they are there: it stays where it is after an
 * error. EPROTONOSUPPORT if they can only be copied and there is no pool. The buffer stays valid and unchanged until it is
 * freed, also if the file is deleted.
 */
struct hadoopRzBuffer *hadoopReadZero(hdfsFile file, struct hadoopRzOptions *opts, int32_t maxLength);
int32_t hadoopRzBufferLength(const struct hadoopRzBuffer *buffer);
/* NULL at the end of the file. */
const void *hadoopRzBufferGet(const struct hadoopRzBuffer *buffer);
void hadoopRzBufferFree(hdfsFile file, struct hadoopRzBuffer *buffer);

/* ---- Writing ---- */

/* Writes all bytes, and returns their number. */
tSize hdfsWrite(hdfsFS fs, hdfsFile file, const void *buffer, tSize length);
/* As in Apache's, no promise that readers see the bytes. */
int hdfsFlush(hdfsFS fs, hdfsFile file);
/* Readers that open the file see the bytes. */
int hdfsHFlush(hdfsFS fs, hdfsFile file);
/* The bytes are on the DataNodes' disks, too. */
int hdfsHSync(hdfsFS fs, hdfsFile file);

/* ---- Names and attributes ---- */

/* Returns 0 if the path exists. */
int hdfsExists(hdfsFS fs, const char *path);
int hdfsCopy(hdfsFS srcFS, const char *src, hdfsFS dstFS, const char *dst);
int hdfsMove(hdfsFS srcFS, const char *src, hdfsFS dstFS, const char *dst);
int hdfsDelete(hdfsFS fs, const char *path, int recursive);
int hdfsRename(hdfsFS fs, const char *oldPath, const char *newPath);
char *hdfsGetWorkingDirectory(hdfsFS fs, char *buffer, size_t bufferSize);
int hdfsSetWorkingDirectory(hdfsFS fs, const char *path);
/* Also creates missing parents. */
int hdfsCreateDirectory(hdfsFS fs, const char *path);
int hdfsSetReplication(hdfsFS fs, const char *path, int16_t replication);

typedef struct {
    tObjectKind mKind;
    char *mName; /* URI */
    tTime mLastMod;
    tOffset mSize;
    short mReplication;
    tOffset mBlockSize;
    char *mOwner;
    char *mGroup;
    short mPermissions;
    tTime mLastAccess;
} hdfsFileInfo;

/* An empty directory is NULL with errno 0. */
hdfsFileInfo *hdfsListDirectory(hdfsFS fs, const char *path, int *numEntries);
hdfsFileInfo *hdfsGetPathInfo(hdfsFS fs, const char *path);
void hdfsFreeFileInfo(hdfsFileInfo *hdfsFileInfo, int numEntries);
int hdfsFileIsEncrypted(hdfsFileInfo *hdfsFileInfo);

/* For each block of the range, the hosts with a replica. Both arrays end with NULL. */
char ***hdfsGetHosts(hdfsFS fs, const char *path, tOffset start, tOffset length);
void hdfsFreeHosts(char ***blockHosts);

tOffset hdfsGetDefaultBlockSize(hdfsFS fs);
tOffset hdfsGetDefaultBlockSizeAtPath(hdfsFS fs, const char *path);
tOffset hdfsGetCapacity(hdfsFS fs);
tOffset hdfsGetUsed(hdfsFS fs);
/* NULL leaves owner or group as it is. */
int hdfsChown(hdfsFS fs, const char *path, const char *owner, const char *group);
int hdfsChmod(hdfsFS fs, const char *path, short mode);
/* -1 leaves a time as it is. */
int hdfsUtime(hdfsFS fs, const char *path, tTime mtime, tTime atime);

/* ---- Errors ---- */

/*
 * Text of the last error on this thread, or NULL. It belongs to the library, and is valid until the next error on this
 * thread. The classes are those of Java.
 */
char *hdfsGetLastExceptionRootCause(void);
char *hdfsGetLastExceptionStackTrace(void);

#ifdef __cplusplus
}
#endif
#endif
