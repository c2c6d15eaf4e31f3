/*
 * Calls every function of hdfs.h and hearth.h, and checks what it does. Prints the checks that fail.
 *
 * Arguments: "in-place" or "copied", for whether the cluster's blocks can be shown in this process; then a host and port
 * of the NameNode.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "hdfs.h"
#include "hearth.h"

static int failures;

#define CHECK(condition)                                                                                         \
    do {                                                                                                         \
        errno = 0;                                                                                               \
        if (!(condition)) {                                                                                      \
            int number = errno;                                                                                  \
            const char *cause = hdfsGetLastExceptionRootCause();                                                 \
            printf("line %d: %s (errno %d, %s)\n", __LINE__, #condition, number, cause ? cause : "no error yet"); \
            failures++;                                                                                          \
        }                                                                                                        \
    } while (0)

/* The call fails with this number. */
#define FAILS(call, number) CHECK((call) && errno == (number))

#define BLOCK (1 << 20)
/* Two blocks and a part of a third. */
#define LENGTH (2 * BLOCK + 70001)

static char content[LENGTH];

static void fill(void) {
    uint32_t state = 12345;
    for (int i = 0; i < LENGTH; i++) {
        state = state * 1664525 + 1013904223;
        content[i] = (char)(state >> 24);
    }
}

static void connecting(const char *host, tPort port) {
    struct hdfsBuilder *builder = hdfsNewBuilder();
    CHECK(builder != NULL);
    hdfsFreeBuilder(builder);

    builder = hdfsNewBuilder();
    hdfsBuilderSetForceNewInstance(builder);
    hdfsBuilderSetNameNode(builder, host);
    hdfsBuilderSetNameNodePort(builder, port);
    hdfsBuilderSetUserName(builder, "ada");
    hdfsBuilderSetKerbTicketCachePath(builder, "/nowhere");
    CHECK(hdfsBuilderConfSetStr(builder, "dfs.blocksize", "2097152") == 0);
    CHECK(hdfsBuilderConfSetStr(builder, "dfs.user.home.dir.prefix", NULL) == 0);
    CHECK(hdfsBuilderConfSetStr(builder, NULL, "x") == EINVAL);
    hdfsFS fs = hdfsBuilderConnect(builder);
    CHECK(fs != NULL);
    char directory[200];
    CHECK(hdfsGetWorkingDirectory(fs, directory, sizeof directory) == directory);
    CHECK(strstr(directory, "/user/ada") != NULL);
    CHECK(hdfsGetDefaultBlockSize(fs) == 2 * BLOCK);
    CHECK(hdfsExists(fs, "/") == 0);
    CHECK(hdfsDisconnect(fs) == 0);

    char both[100];
    snprintf(both, sizeof both, "hdfs://%s:%d", host, port);
    fs = hdfsConnect(both, 0);
    CHECK(fs != NULL && hdfsExists(fs, "/") == 0);
    /* Shares the client of the first, whose end it outlives. */
    hdfsFS second = hdfsConnect(both, 0);
    CHECK(second != NULL && hdfsDisconnect(fs) == 0 && hdfsExists(second, "/") == 0 && hdfsDisconnect(second) == 0);
    fs = hdfsConnectNewInstance(host, port);
    CHECK(fs != NULL && hdfsExists(fs, "/") == 0 && hdfsDisconnect(fs) == 0);
    fs = hdfsConnectAsUser(host, port, "bob");
    CHECK(fs != NULL && hdfsExists(fs, "/") == 0 && hdfsDisconnect(fs) == 0);
    fs = hdfsConnectAsUserNewInstance("default", 0, "bob");
    CHECK(fs != NULL && hdfsExists(fs, "/") == 0 && hdfsDisconnect(fs) == 0);

    FAILS(hdfsConnect(NULL, 0) == NULL, ENOTSUP);
    FAILS(hdfsConnect("file:///", 0) == NULL, ENOTSUP);
    FAILS(hdfsConnect(both, port) == NULL, EINVAL);
    FAILS(hdfsBuilderConnect(NULL) == NULL, EINVAL);
    FAILS(hdfsDisconnect(NULL) == -1, EBADF);
    FAILS(hdfsExists(NULL, "/") == -1, EBADF);
}

static void configuration(void) {
    char *text = NULL;
    CHECK(hdfsConfGetStr("dfs.replication", &text) == 0 && text != NULL && strcmp(text, "1") == 0);
    hdfsConfStrFree(text);
    text = content;
    CHECK(hdfsConfGetStr("no.such.key", &text) == 0 && text == NULL);
    int32_t number = 7;
    CHECK(hdfsConfGetInt("no.such.key", &number) == 0 && number == 7);
    CHECK(hdfsConfGetInt("dfs.blocksize", &number) == 0 && number == BLOCK);
    CHECK(hdfsConfGetInt("fs.defaultFS", &number) == EINTERNAL);
    CHECK(hdfsConfGetStr(NULL, &text) == EINVAL);
}

static void writing(hdfsFS fs) {
    hdfsFile file = hdfsOpenFile(fs, "/c/file", O_WRONLY, 0, 0, 0);
    CHECK(file != NULL && hdfsFileIsOpenForWrite(file) == 1 && hdfsFileIsOpenForRead(file) == 0);
    CHECK(hdfsWrite(fs, file, content, 1000) == 1000);
    CHECK(hdfsWrite(fs, file, NULL, 0) == 0);
    FAILS(hdfsWrite(fs, file, content, -1) == -1, EINVAL);
    FAILS(hdfsWrite(fs, file, NULL, 1) == -1, EINVAL);
    CHECK(hdfsFlush(fs, file) == 0);
    CHECK(hdfsTell(fs, file) == 1000);
    CHECK(hdfsHFlush(fs, file) == 0);
    hdfsFile reader = hdfsOpenFile(fs, "/c/file", O_RDONLY, 0, 0, 0);
    CHECK(reader != NULL && hdfsAvailable(fs, reader) == 1000);
    CHECK(hdfsCloseFile(fs, reader) == 0);
    CHECK(hdfsWrite(fs, file, content + 1000, LENGTH - 1000) == LENGTH - 1000);
    CHECK(hdfsHSync(fs, file) == 0);
    FAILS(hdfsSeek(fs, file, 0) == -1, EBADF);
    FAILS(hdfsAvailable(fs, file) == -1, EBADF);
    char byte;
    FAILS(hdfsRead(fs, file, &byte, 1) == -1, EINVAL);
    FAILS(hdfsPread(fs, file, 0, &byte, 1) == -1, EINVAL);
    FAILS(hdfsUnbufferFile(file) == ENOTSUP, ENOTSUP);
    struct hdfsReadStatistics *statistics;
    FAILS(hdfsFileGetReadStatistics(file, &statistics) == -1, EINVAL);
    CHECK(hdfsFileClearReadStatistics(file) == EINVAL);
    CHECK(hdfsCloseFile(fs, file) == 0);
    FAILS(hdfsCloseFile(fs, NULL) == -1, EBADF);

    struct hdfsStreamBuilder *builder = hdfsStreamBuilderAlloc(fs, "/c/built", O_WRONLY);
    CHECK(builder != NULL && hdfsStreamBuilderSetBufferSize(builder, 4096) == 0);
    CHECK(hdfsStreamBuilderSetReplication(builder, 1) == 0);
    CHECK(hdfsStreamBuilderSetDefaultBlockSize(builder, 4 * BLOCK) == 0);
    file = hdfsStreamBuilderBuild(builder);
    CHECK(file != NULL && hdfsWrite(fs, file, "abc", 3) == 3 && hdfsCloseFile(fs, file) == 0);
    builder = hdfsStreamBuilderAlloc(fs, "/c/built", O_RDONLY);
    FAILS(hdfsStreamBuilderSetBufferSize(builder, 4096) == -1, EINVAL);
    FAILS(hdfsStreamBuilderSetReplication(builder, 1) == -1, EINVAL);
    FAILS(hdfsStreamBuilderSetDefaultBlockSize(builder, BLOCK) == -1, EINVAL);
    hdfsStreamBuilderFree(builder);

    file = hdfsOpenFile(fs, "/c/built", O_WRONLY | O_APPEND, 0, 0, 0);
    CHECK(file != NULL && hdfsTell(fs, file) == 3 && hdfsWrite(fs, file, "def", 3) == 3);
    CHECK(hdfsCloseFile(fs, file) == 0);
    FAILS(hdfsOpenFile(fs, "/c/built", O_WRONLY | O_CREAT | O_EXCL, 0, 0, 0) == NULL, EEXIST);
    FAILS(hdfsOpenFile(fs, "/c/built", O_RDWR, 0, 0, 0) == NULL, ENOTSUP);
    FAILS(hdfsOpenFile(fs, "/c/built", 3, 0, 0, 0) == NULL, EINVAL);
    FAILS(hdfsOpenFile(fs, "/c/built", O_WRONLY, 0, -1, 0) == NULL, EINVAL);
}

static void reading(hdfsFS fs) {
    static char buffer[LENGTH + 10];
    hdfsFile file = hdfsOpenFile(fs, "/c/file", O_RDONLY, 0, 0, 0);
    CHECK(file != NULL && hdfsFileIsOpenForRead(file) == 1 && hdfsFileIsOpenForWrite(file) == 0);
    CHECK(hdfsAvailable(fs, file) == LENGTH && hdfsTell(fs, file) == 0);
    CHECK(hdfsRead(fs, file, buffer, 10) == 10 && memcmp(buffer, content, 10) == 0);
    CHECK(hdfsTell(fs, file) == 10);
    CHECK(hdfsUnbufferFile(file) == 0);
    CHECK(hdfsRead(fs, file, buffer, LENGTH) == LENGTH - 10 && memcmp(buffer, content + 10, LENGTH - 10) == 0);
    CHECK(hdfsRead(fs, file, buffer, 1) == 0);
    CHECK(hdfsRead(fs, file, buffer, 0) == 0);
    FAILS(hdfsRead(fs, file, buffer, -1) == -1, EINVAL);
    CHECK(hdfsSeek(fs, file, BLOCK - 5) == 0);
    CHECK(hdfsRead(fs, file, buffer, 10) == 10 && memcmp(buffer, content + BLOCK - 5, 10) == 0);
    FAILS(hdfsSeek(fs, file, LENGTH + 1) == -1, EINTERNAL);
    FAILS(hdfsSeek(fs, file, -1) == -1, EINTERNAL);
    CHECK(hdfsPread(fs, file, 2 * BLOCK - 3, buffer, 6) == 6 && memcmp(buffer, content + 2 * BLOCK - 3, 6) == 0);
    CHECK(hdfsPread(fs, file, LENGTH - 4, buffer, 100) == 4);
    CHECK(hdfsPread(fs, file, LENGTH, buffer, 100) == 0);
    FAILS(hdfsPread(fs, file, -1, buffer, 100) == -1, EINTERNAL);
    CHECK(hdfsPreadFully(fs, file, 7, buffer, LENGTH - 7) == 0 && memcmp(buffer, content + 7, LENGTH - 7) == 0);
    FAILS(hdfsPreadFully(fs, file, 7, buffer, LENGTH) == -1, EINTERNAL);
    CHECK(hdfsTell(fs, file) == BLOCK + 5);
    FAILS(hdfsWrite(fs, file, buffer, 1) == -1, EINVAL);
    FAILS(hdfsFlush(fs, file) == -1, EBADF);
    FAILS(hdfsHFlush(fs, file) == -1, EBADF);
    FAILS(hdfsHSync(fs, file) == -1, EBADF);

    struct hdfsReadStatistics *statistics = NULL;
    CHECK(hdfsFileGetReadStatistics(file, &statistics) == 0 && statistics->totalBytesRead >= 2u * LENGTH);
    CHECK(statistics->totalShortCircuitBytesRead == statistics->totalLocalBytesRead);
    CHECK(hdfsReadStatisticsGetRemoteBytesRead(statistics) ==
          (int64_t)(statistics->totalBytesRead - statistics->totalLocalBytesRead));
    hdfsFileFreeReadStatistics(statistics);
    CHECK(hdfsFileClearReadStatistics(file) == 0);
    CHECK(hdfsFileGetReadStatistics(file, &statistics) == 0 && statistics->totalBytesRead == 0);
    hdfsFileFreeReadStatistics(statistics);
    struct hdfsHedgedReadMetrics *metrics = NULL;
    CHECK(hdfsGetHedgedReadMetrics(fs, &metrics) == 0);
    CHECK(metrics->hedgedReadOps == 0 && metrics->hedgedReadOpsWin == 0 && metrics->hedgedReadOpsInCurThread == 0);
    hdfsFreeHedgedReadMetrics(metrics);
    CHECK(hdfsCloseFile(fs, file) == 0);

    FAILS(hdfsOpenFile(fs, "/c/missing", O_RDONLY, 0, 0, 0) == NULL, ENOENT);
    CHECK(strstr(hdfsGetLastExceptionRootCause(), "/c/missing") != NULL);
    CHECK(strstr(hdfsGetLastExceptionStackTrace(), "java.io.FileNotFoundException") != NULL);
    FAILS(hdfsOpenFile(fs, "/c", O_RDONLY, 0, 0, 0) == NULL, ENOENT);
    FAILS(hdfsOpenFile(fs, "", O_RDONLY, 0, 0, 0) == NULL, EINVAL);
    FAILS(hdfsOpenFile(fs, NULL, O_RDONLY, 0, 0, 0) == NULL, EINVAL);
    FAILS(hdfsOpenFile(fs, "caf\xe9", O_RDONLY, 0, 0, 0) == NULL, EINVAL);
}

static void opening_in_the_background(hdfsFS fs) {
    hdfsOpenFileBuilder *builder = hdfsOpenFileBuilderAlloc(fs, "/c/file");
    CHECK(hdfsOpenFileBuilderOpt(builder, "hello", "world") == builder);
    CHECK(hdfsOpenFileBuilderMust(builder, "fs.option.openfile.read.policy", "random") == builder);
    hdfsOpenFileFuture *future = hdfsOpenFileBuilderBuild(builder);
    hdfsFile file = hdfsOpenFileFutureGet(future);
    char byte;
    CHECK(file != NULL && hdfsRead(fs, file, &byte, 1) == 1 && byte == content[0]);
    CHECK(hdfsOpenFileFutureCancel(future, 0) == -1);
    CHECK(hdfsCloseFile(fs, file) == 0);
    file = hdfsOpenFileFutureGetWithTimeout(future, 1, jDays);
    CHECK(file != NULL && hdfsTell(fs, file) == 1 && hdfsCloseFile(fs, file) == 0);
    FAILS(hdfsOpenFileFutureGetWithTimeout(future, 1, (javaConcurrentTimeUnit)7) == NULL, EINVAL);
    hdfsOpenFileFutureFree(future);

    future = hdfsOpenFileBuilderBuild(hdfsOpenFileBuilderAlloc(fs, "/c/missing"));
    FAILS(hdfsOpenFileFutureGet(future) == NULL, ENOENT);
    hdfsOpenFileFutureFree(future);
    builder = hdfsOpenFileBuilderMust(hdfsOpenFileBuilderAlloc(fs, "/c/file"), "hello", "world");
    FAILS(hdfsOpenFileBuilderBuild(builder) == NULL, EINVAL);
    hdfsOpenFileBuilderFree(hdfsOpenFileBuilderAlloc(fs, "/c/file"));
}

static void zero_copy(hdfsFS fs, int in_place) {
    struct hadoopRzOptions *options = hadoopRzOptionsAlloc();
    CHECK(options != NULL && hadoopRzOptionsSetSkipChecksum(options, 1) == 0);
    hdfsFile file = hdfsOpenFile(fs, "/c/file", O_RDONLY, 0, 0, 0);
    struct hadoopRzBuffer *buffer;
    if (in_place) {
        /* To the end of the first block. */
        CHECK((buffer = hadoopReadZero(file, options, LENGTH)) != NULL && hadoopRzBufferLength(buffer) == BLOCK);
        CHECK(memcmp(hadoopRzBufferGet(buffer), content, BLOCK) == 0 && hdfsTell(fs, file) == BLOCK);
        hadoopRzBufferFree(file, buffer);
        CHECK(hadoopRzOptionsSetSkipChecksum(options, 0) == 0);
        CHECK((buffer = hadoopReadZero(file, options, 100)) != NULL && hadoopRzBufferLength(buffer) == 100);
        struct hdfsReadStatistics *statistics = NULL;
        CHECK(hdfsFileGetReadStatistics(file, &statistics) == 0 && statistics->totalZeroCopyBytesRead == BLOCK + 100);
        hdfsFileFreeReadStatistics(statistics);
        CHECK(hdfsSeek(fs, file, 0) == 0);
        /* The position moves once, and no stream is read to get there. */
        char byte;
        CHECK(hdfsSeek(fs, file, 0) == 0 && hdfsRead(fs, file, &byte, 1) == 1 && hdfsFileClearReadStatistics(file) == 0);
        struct hadoopRzBuffer *next = hadoopReadZero(file, options, 1000);
        CHECK(next != NULL && hadoopRzBufferLength(next) == 1000 && hdfsTell(fs, file) == 1001);
        CHECK(memcmp(hadoopRzBufferGet(next), content + 1, 1000) == 0);
        CHECK(hdfsFileGetReadStatistics(file, &statistics) == 0 && statistics->totalBytesRead == 1000);
        hdfsFileFreeReadStatistics(statistics);
        hadoopRzBufferFree(file, next);
        CHECK(hdfsRead(fs, file, &byte, 1) == 1 && byte == content[1001]);
        /* The memory outlives the file. */
        CHECK(hdfsCloseFile(fs, file) == 0);
        CHECK(memcmp(hadoopRzBufferGet(buffer), content + BLOCK, 100) == 0);
        hadoopRzBufferFree(NULL, buffer);
        file = hdfsOpenFile(fs, "/c/file", O_RDONLY, 0, 0, 0);
    } else {
        FAILS(hadoopReadZero(file, options, 100) == NULL, EPROTONOSUPPORT);
    }
    CHECK(hadoopRzOptionsSetByteBufferPool(options, ELASTIC_BYTE_BUFFER_POOL_CLASS) == 0);
    CHECK((buffer = hadoopReadZero(file, options, 100)) != NULL && hadoopRzBufferLength(buffer) == 100);
    CHECK(memcmp(hadoopRzBufferGet(buffer), content, 100) == 0);
    hadoopRzBufferFree(file, buffer);
    CHECK(hdfsSeek(fs, file, LENGTH) == 0);
    CHECK((buffer = hadoopReadZero(file, options, 100)) != NULL && hadoopRzBufferLength(buffer) == 0);
    CHECK(hadoopRzBufferGet(buffer) == NULL);
    hadoopRzBufferFree(file, buffer);
    FAILS(hadoopReadZero(file, options, -1) == NULL, EINVAL);
    FAILS(hadoopReadZero(file, NULL, 1) == NULL, EINVAL);
    CHECK(hadoopRzOptionsSetByteBufferPool(options, NULL) == 0);
    FAILS(hadoopRzOptionsSetByteBufferPool(options, "no/such/Pool") == -1, EINVAL);
    CHECK(hdfsCloseFile(fs, file) == 0);
    hadoopRzOptionsFree(options);
}

static void names(hdfsFS fs) {
    CHECK(hdfsExists(fs, "/c/file") == 0);
    FAILS(hdfsExists(fs, "/c/missing") == -1, ENOENT);
    CHECK(hdfsCreateDirectory(fs, "/c/d/e") == 0);
    FAILS(hdfsCreateDirectory(fs, "/c/file/e") == -1, ENOTDIR);

    hdfsFileInfo *info = hdfsGetPathInfo(fs, "/c/file");
    CHECK(info != NULL && info->mKind == kObjectKindFile && info->mSize == LENGTH && info->mBlockSize == BLOCK);
    CHECK(info->mReplication == 1 && info->mPermissions == 0644 && strstr(info->mName, "/c/file") != NULL);
    CHECK(strncmp(info->mName, "hdfs://", 7) == 0 && info->mOwner[0] != 0 && info->mGroup[0] != 0);
    time_t now = time(NULL);
    CHECK(info->mLastMod > now - 3600 && info->mLastMod <= now + 60 && info->mLastAccess > now - 3600);
    CHECK(hdfsFileIsEncrypted(info) == 0);
    hdfsFreeFileInfo(info, 1);
    FAILS(hdfsGetPathInfo(fs, "/c/missing") == NULL, ENOENT);
    FAILS(hdfsFileIsEncrypted(NULL) == -1, EINVAL);

    int count = -1;
    CHECK((info = hdfsListDirectory(fs, "/c", &count)) != NULL && count == 3 && errno == 0);
    CHECK(strstr(info[0].mName, "/c/built") && strstr(info[1].mName, "/c/d") && strstr(info[2].mName, "/c/file"));
    CHECK(info[0].mSize == 6 && info[1].mKind == kObjectKindDirectory && info[1].mSize == 0);
    hdfsFreeFileInfo(info, count);
    CHECK(hdfsListDirectory(fs, "/c/d/e", &count) == NULL && errno == 0 && count == 0);
    CHECK((info = hdfsListDirectory(fs, "/c/file", &count)) != NULL && count == 1);
    CHECK(info != NULL && strcmp(info->mName + strlen(info->mName) - 7, "/c/file") == 0);
    hdfsFreeFileInfo(info, count);
    FAILS(hdfsListDirectory(fs, "/c/missing", &count) == NULL, ENOENT);

    CHECK(hdfsCopy(fs, "/c/file", fs, "/c/d/copy") == 0 && hdfsExists(fs, "/c/d/copy") == 0);
    CHECK(hdfsCopy(fs, "/c/built", fs, "/c/d") == 0 && hdfsExists(fs, "/c/d/built") == 0);
    CHECK(hdfsCopy(fs, "/c/d", fs, "/c/tree") == 0 && hdfsExists(fs, "/c/tree/copy") == 0 && hdfsExists(fs, "/c/tree/e") == 0);
    FAILS(hdfsCopy(fs, "/c/d", fs, "/c/d/e") == -1, EINVAL);
    FAILS(hdfsCopy(fs, "/c/missing", fs, "/c/d/copy") == -1, ENOENT);
    CHECK(hdfsMove(fs, "/c/d/copy", fs, "/c/moved") == 0 && hdfsExists(fs, "/c/moved") == 0);
    FAILS(hdfsExists(fs, "/c/d/copy") == -1, ENOENT);
    CHECK((info = hdfsGetPathInfo(fs, "/c/moved")) != NULL && info->mSize == LENGTH);
    hdfsFreeFileInfo(info, 1);
    CHECK(hdfsRename(fs, "/c/moved", "/c/renamed") == 0 && hdfsExists(fs, "/c/renamed") == 0);
    FAILS(hdfsRename(fs, "/c/moved", "/c/again") == -1, EIO);
    CHECK(hdfsTruncateFile(fs, "/c/renamed", BLOCK) == 1);
    CHECK((info = hdfsGetPathInfo(fs, "/c/renamed")) != NULL && info->mSize == BLOCK);
    hdfsFreeFileInfo(info, 1);
    FAILS(hdfsTruncateFile(fs, "/c/renamed", -1) == -1, EINVAL);
    CHECK(hdfsSetReplication(fs, "/c/renamed", 1) == 0);
    FAILS(hdfsSetReplication(fs, "/c/missing", 1) == -1, ENOENT);
    CHECK(hdfsChmod(fs, "/c/renamed", 0600) == 0);
    CHECK(hdfsChown(fs, "/c/renamed", "eve", NULL) == 0 && hdfsChown(fs, "/c/renamed", NULL, NULL) == 0);
    CHECK(hdfsUtime(fs, "/c/renamed", 1000000000, -1) == 0);
    CHECK((info = hdfsGetPathInfo(fs, "/c/renamed")) != NULL && info->mPermissions == 0600);
    CHECK(strcmp(info->mOwner, "eve") == 0 && info->mLastMod == 1000000000 && info->mLastAccess != 1000000000);
    hdfsFreeFileInfo(info, 1);
    FAILS(hdfsUtime(fs, "/c/renamed", -5, -1) == -1, EINVAL);

    char ***hosts = hdfsGetHosts(fs, "/c/file", 0, LENGTH);
    CHECK(hosts != NULL && hosts[0] && hosts[1] && hosts[2] && !hosts[3] && hosts[0][0] && !hosts[0][1]);
    hdfsFreeHosts(hosts);
    CHECK((hosts = hdfsGetHosts(fs, "/c/file", BLOCK, 1)) != NULL && hosts[0] && !hosts[1]);
    hdfsFreeHosts(hosts);
    FAILS(hdfsGetHosts(fs, "/c/missing", 0, 1) == NULL, ENOENT);
    FAILS(hdfsGetHosts(fs, "/c/file", -1, 1) == NULL, EINVAL);

    CHECK(hdfsGetDefaultBlockSize(fs) == BLOCK && hdfsGetDefaultBlockSizeAtPath(fs, "/c/file") == BLOCK);
    CHECK(hdfsGetCapacity(fs) > LENGTH && hdfsGetUsed(fs) >= 0);

    char directory[200], small[5];
    CHECK(hdfsSetWorkingDirectory(fs, "/c/d") == 0 && hdfsExists(fs, "built") == 0 && hdfsExists(fs, "../file") == 0);
    CHECK(hdfsGetWorkingDirectory(fs, directory, sizeof directory) == directory);
    CHECK(strncmp(directory, "hdfs://", 7) == 0 && strcmp(directory + strlen(directory) - 4, "/c/d") == 0);
    CHECK(hdfsExists(fs, directory) == 0);
    FAILS(hdfsGetWorkingDirectory(fs, small, sizeof small) == NULL, ENAMETOOLONG);
    FAILS(hdfsExists(fs, "s3://bucket/x") == -1, EINVAL);
    CHECK(hdfsSetWorkingDirectory(fs, "/") == 0);

    FAILS(hdfsDelete(fs, "/c/tree", 0) == -1, EINTERNAL);
    CHECK(hdfsDelete(fs, "/c/tree", 1) == 0 && hdfsDelete(fs, "/c/renamed", 0) == 0);
    FAILS(hdfsDelete(fs, "/c/tree", 1) == -1, EIO);
}

static void many_files(hdfsFS fs) {
    struct hearth_range ranges[] = {{"/c/file", 5, 10}, {"/c/missing", 0, -1}, {"/c/built", 0, -1}, {"/c/file", LENGTH - 2, 9}};
    struct hearth_bytes bytes[4];
    CHECK(hearth_read_many(fs, ranges, 4, bytes) == 1);
    CHECK(bytes[0].error == 0 && bytes[0].length == 10 && memcmp(bytes[0].data, content + 5, 10) == 0);
    CHECK(bytes[1].error == ENOENT && bytes[1].length == 0 && strstr(bytes[1].message, "/c/missing") != NULL);
    CHECK(bytes[2].length == 6 && memcmp(bytes[2].data, "abcdef", 6) == 0 && bytes[2].message == NULL);
    CHECK(bytes[3].length == 2);
    hearth_free_bytes(bytes, 4);
    CHECK(bytes[2].data == NULL);
    ranges[0].length = -2;
    FAILS(hearth_read_many(fs, ranges, 4, bytes) == -1, EINVAL);

    /* An open file is read, and not the one that is at its path by now. */
    CHECK(hdfsCopy(fs, "/c/file", fs, "/c/taken") == 0);
    hdfsFile file = hdfsOpenFile(fs, "/c/taken", O_RDONLY, 0, 0, 0);
    CHECK(hdfsRename(fs, "/c/taken", "/c/away") == 0 && hdfsCopy(fs, "/c/built", fs, "/c/taken") == 0);
    CHECK(hearth_file_length(file) == LENGTH);
    struct hearth_range parts[] = {{NULL, BLOCK - 5, 10}, {NULL, LENGTH - 3, -1}};
    CHECK(hearth_read_ranges(file, parts, 2, bytes) == 0);
    CHECK(bytes[0].length == 10 && memcmp(bytes[0].data, content + BLOCK - 5, 10) == 0);
    CHECK(bytes[1].length == 3 && memcmp(bytes[1].data, content + LENGTH - 3, 3) == 0);
    hearth_free_bytes(bytes, 2);
    FAILS(hearth_read_ranges(file, ranges + 1, 1, bytes) == -1, EINVAL);
    parts[1].offset = -1;
    FAILS(hearth_read_ranges(file, parts, 2, bytes) == -1, EINVAL);
    CHECK(hdfsCloseFile(fs, file) == 0 && hdfsDelete(fs, "/c/taken", 0) == 0 && hdfsDelete(fs, "/c/away", 0) == 0);
    file = hdfsOpenFile(fs, "/c/written", O_WRONLY, 0, 0, 0);
    FAILS(hearth_file_length(file) == -1, EINVAL);
    FAILS(hearth_read_ranges(file, parts, 1, bytes) == -1, EINVAL);
    CHECK(hdfsCloseFile(fs, file) == 0 && hdfsDelete(fs, "/c/written", 0) == 0);
    CHECK(hearth_read_many(fs, NULL, 0, NULL) == 0);
    CHECK(strchr(hearth_version(), '.') != NULL);
}

static void views(hdfsFS fs, int in_place) {
    hdfsFile file = hdfsOpenFile(fs, "/c/file", O_RDONLY, 0, 0, 0);
    struct hearth_view *view = hearth_view_open(file, 100, -1, HEARTH_VIEW_VERIFY);
    CHECK(view != NULL && hearth_view_length(view) == BLOCK - 100 && hearth_view_is_in_place(view) == in_place);
    CHECK(hdfsDelete(fs, "/c/nothing", 0) == -1);
    CHECK(memcmp(hearth_view_data(view), content + 100, BLOCK - 100) == 0);
    hearth_view_close(view);
    if (in_place) {
        CHECK((view = hearth_view_open(file, LENGTH - 10, 100, HEARTH_VIEW_IN_PLACE)) != NULL);
        CHECK(hearth_view_length(view) == 10 && memcmp(hearth_view_data(view), content + LENGTH - 10, 10) == 0);
        hearth_view_close(view);
    } else {
        FAILS(hearth_view_open(file, 0, 100, HEARTH_VIEW_IN_PLACE) == NULL, ENOTSUP);
    }
    CHECK((view = hearth_view_open(file, 5, 100, HEARTH_VIEW_UNVERIFIED)) != NULL);
    CHECK(hearth_view_length(view) == 100 && memcmp(hearth_view_data(view), content + 5, 100) == 0);
    hearth_view_close(view);
    FAILS(hearth_view_open(file, 0, 100, HEARTH_VIEW_VERIFY | HEARTH_VIEW_UNVERIFIED) == NULL, EINVAL);
    FAILS(hearth_view_open(file, 0, 100, 8) == NULL, EINVAL);
    FAILS(hearth_view_open(file, -1, 100, 0) == NULL, EINVAL);
    CHECK(hdfsCloseFile(fs, file) == 0);
}

static sem_t finished;
static int64_t finished_count;

static void done(void *argument, int64_t count, int error) {
    finished_count = error == 0 && argument == &finished ? count : -1;
    sem_post(&finished);
}

static void reads_in_the_background(hdfsFS fs) {
    static char buffer[1000];
    sem_init(&finished, 0, 0);
    hdfsFile file = hdfsOpenFile(fs, "/c/file", O_RDONLY, 0, 0, 0);
    CHECK(hearth_pread_async(file, BLOCK - 500, buffer, sizeof buffer, done, &finished) == 0);
    CHECK(hdfsCloseFile(fs, file) == 0);
    sem_wait(&finished);
    CHECK(finished_count == sizeof buffer && memcmp(buffer, content + BLOCK - 500, sizeof buffer) == 0);
    file = hdfsOpenFile(fs, "/c/file", O_RDONLY, 0, 0, 0);
    FAILS(hearth_pread_async(file, 0, buffer, sizeof buffer, NULL, NULL) == -1, EINVAL);
    FAILS(hearth_pread_async(file, 0, NULL, 1, done, NULL) == -1, EINVAL);
    CHECK(hdfsCloseFile(fs, file) == 0);
}

static int checks_until_interrupt;

static int interrupted(void) {
    return --checks_until_interrupt == 0;
}

/* A call that waits is interrupted, here the second time it asks: a NameNode that does not answer. */
static void interrupting(void) {
    int silent = socket(AF_INET, SOCK_STREAM, 0);
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t length = sizeof address;
    CHECK(bind(silent, (struct sockaddr *)&address, length) == 0 && listen(silent, 5) == 0);
    CHECK(getsockname(silent, (struct sockaddr *)&address, &length) == 0);
    hdfsFS fs = hdfsConnectNewInstance("127.0.0.1", ntohs(address.sin_port));
    checks_until_interrupt = 2;
    hearth_set_interrupt_check(interrupted);
    FAILS(hearth_set_interruptible(NULL, 1) == -1, EBADF);
    CHECK(hearth_set_interruptible(fs, 1) == 0);
    FAILS(hdfsExists(fs, "/") == -1, EINTR);
    CHECK(checks_until_interrupt == 0);
    hearth_set_interrupt_check(NULL);
    CHECK(hdfsDisconnect(fs) == 0);
    close(silent);
}

struct shared {
    hdfsFS fs;
    hdfsFile file;
};

static void *read_anywhere(void *argument) {
    struct shared *shared = argument;
    char buffer[5000];
    for (int i = 0; i < 200; i++) {
        int offset = (i * 7919) % (LENGTH - 5000);
        if (hdfsPread(shared->fs, shared->file, offset, buffer, 5000) != 5000 || memcmp(buffer, content + offset, 5000) != 0)
            return "wrong bytes";
        errno = 0;
        if (hdfsExists(shared->fs, "/c/missing") != -1 || errno != ENOENT)
            return "wrong errno";
    }
    return NULL;
}

static void threads(hdfsFS fs) {
    struct shared shared = {fs, hdfsOpenFile(fs, "/c/file", O_RDONLY, 0, 0, 0)};
    pthread_t threads[8];
    for (int i = 0; i < 8; i++)
        CHECK(pthread_create(&threads[i], NULL, read_anywhere, &shared) == 0);
    for (int i = 0; i < 8; i++) {
        void *wrong = NULL;
        CHECK(pthread_join(threads[i], &wrong) == 0 && wrong == NULL);
    }
    CHECK(hdfsCloseFile(fs, shared.file) == 0);
}

/* Waits for a child, and checks that it found nothing wrong. */
static void join(pid_t child) {
    int status = -1;
    CHECK(child > 0 && waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

/* Ends a child without a check for leaks: it does not free what belongs to its parent. */
static void leave(void) {
    fflush(stdout);
    execl(failures ? "/bin/false" : "/bin/true", "child", NULL);
    _exit(1);
}

/* A child uses the file system of its parent, but not its files. */
static void after_fork(hdfsFS fs, int in_place) {
    hdfsFile file = hdfsOpenFile(fs, "/c/file", O_RDONLY, 0, 0, 0);
    char byte;
    CHECK(hdfsRead(fs, file, &byte, 1) == 1);
    hdfsOpenFileFuture *future = hdfsOpenFileBuilderBuild(hdfsOpenFileBuilderAlloc(fs, "/c/file"));
    struct hearth_view *view = hearth_view_open(file, 1, 1000, 0);
    struct hadoopRzOptions *options = hadoopRzOptionsAlloc();
    CHECK(hadoopRzOptionsSetByteBufferPool(options, ELASTIC_BYTE_BUFFER_POOL_CLASS) == 0);
    struct hadoopRzBuffer *buffer = hadoopReadZero(file, options, 1000);
    CHECK(future != NULL && view != NULL && buffer != NULL && hdfsSeek(fs, file, 1) == 0);
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        failures = 0;
        alarm(300);
        FAILS(hdfsPread(fs, file, 0, &byte, 1) == -1, EBADF);
        CHECK(hdfsFileIsOpenForRead(file) == 1 && hdfsCloseFile(fs, file) == 0);
        FAILS(hdfsOpenFileFutureGet(future) == NULL, EBADF);
        FAILS(hdfsOpenFileFutureGetWithTimeout(future, 1, jSeconds) == NULL, EBADF);
        FAILS(hdfsOpenFileFutureCancel(future, 0) == -1, EBADF);
        hdfsOpenFileFutureFree(future);
        /* The memory was inherited. The counts of its users are the parent's. */
        CHECK(hearth_view_length(view) == 1000 && hearth_view_is_in_place(view) == in_place);
        CHECK(memcmp(hearth_view_data(view), content + 1, 1000) == 0);
        hearth_view_close(view);
        CHECK(hadoopRzBufferLength(buffer) == 1000 && memcmp(hadoopRzBufferGet(buffer), content + 1, 1000) == 0);
        hadoopRzBufferFree(NULL, buffer);
        file = hdfsOpenFile(fs, "/c/file", O_RDONLY, 0, 0, 0);
        CHECK(file != NULL && hdfsPread(fs, file, LENGTH - 1, &byte, 1) == 1 && byte == content[LENGTH - 1]);
        CHECK(hdfsCloseFile(fs, file) == 0 && hdfsDisconnect(fs) == 0);
        leave();
    }
    join(child);
    CHECK(hdfsRead(fs, file, &byte, 1) == 1 && byte == content[1]);
    CHECK(memcmp(hearth_view_data(view), content + 1, 1000) == 0);
    CHECK(memcmp(hadoopRzBufferGet(buffer), content + 1, 1000) == 0);
    hearth_view_close(view);
    hadoopRzBufferFree(file, buffer);
    hadoopRzOptionsFree(options);
    CHECK(hdfsCloseFile(fs, file) == 0 && hdfsExists(fs, "/c/file") == 0);
    CHECK((file = hdfsOpenFileFutureGet(future)) != NULL && hdfsCloseFile(fs, file) == 0);
    hdfsOpenFileFutureFree(future);
}

static volatile int connecting_goes_on = 1;

/* Each connection has a user of its own, so that each is made. */
static void *connect_again_and_again(void *host) {
    char user[30];
    for (int i = 0; connecting_goes_on; i++) {
        snprintf(user, sizeof user, "user%d", i);
        hdfsFS fs = hdfsConnectAsUser(host, 1, user);
        if (fs == NULL || hdfsDisconnect(fs) != 0)
            return "cannot connect";
    }
    return NULL;
}

/* A child connects, whatever another thread of its parent was doing at the fork. */
static void forks_while_another_thread_connects(void) {
    pthread_t thread;
    char host[] = "127.0.0.1";
    CHECK(pthread_create(&thread, NULL, connect_again_and_again, host) == 0);
    for (int i = 0; i < 5; i++) {
        usleep(20000);
        fflush(stdout);
        pid_t child = fork();
        if (child == 0) {
            failures = 0;
            alarm(300);
            hdfsFS fs = hdfsConnectAsUser("127.0.0.1", 1, "child");
            CHECK(fs != NULL && hdfsDisconnect(fs) == 0);
            leave();
        }
        join(child);
    }
    connecting_goes_on = 0;
    void *wrong = NULL;
    CHECK(pthread_join(thread, &wrong) == 0 && wrong == NULL);
}

int main(int arguments, char **argument) {
    if (arguments != 4)
        return 2;
    int in_place = strcmp(argument[1], "in-place") == 0;
    fill();
    connecting(argument[2], (tPort)atoi(argument[3]));
    configuration();
    hdfsFS fs = hdfsConnect("default", 0);
    CHECK(fs != NULL);
    if (hdfsExists(fs, "/c") == 0)
        CHECK(hdfsDelete(fs, "/c", 1) == 0);
    writing(fs);
    reading(fs);
    opening_in_the_background(fs);
    zero_copy(fs, in_place);
    names(fs);
    many_files(fs);
    views(fs, in_place);
    reads_in_the_background(fs);
    interrupting();
    threads(fs);
    after_fork(fs, in_place);
    forks_while_another_thread_connects();
    CHECK(hdfsDisconnect(fs) == 0);
    printf("%d checks failed\n", failures);
    return failures != 0;
}
