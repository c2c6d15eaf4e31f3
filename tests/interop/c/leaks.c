/*
 * Calls the functions that allocate, many times, and fails if the process grows by more than 2 MiB from the second round
 * on. The file /leaks must not exist.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "hdfs.h"
#include "hearth.h"

#define ROUNDS 5
#define CALLS 300

static long resident_kib(void) {
    char line[200];
    long kib = 0;
    FILE *status = fopen("/proc/self/status", "r");
    while (status && fgets(line, sizeof line, status))
        if (sscanf(line, "VmRSS: %ld", &kib) == 1)
            break;
    if (status)
        fclose(status);
    return kib;
}

static void must(int condition, const char *what) {
    if (!condition) {
        printf("%s failed: %d, %s\n", what, errno, hdfsGetLastExceptionRootCause());
        exit(1);
    }
}

static void once(void) {
    char buffer[1000];
    hdfsFS fs = hdfsConnectNewInstance("default", 0);
    must(fs != NULL, "connect");
    hdfsFile file = hdfsOpenFile(fs, "/leaks", O_RDONLY, 0, 0, 0);
    must(file != NULL, "open");
    must(hdfsRead(fs, file, buffer, sizeof buffer) == sizeof buffer, "read");
    struct hearth_view *view = hearth_view_open(file, 0, -1, 0);
    must(view != NULL, "view");
    hearth_view_close(view);
    struct hadoopRzOptions *options = hadoopRzOptionsAlloc();
    hadoopRzOptionsSetByteBufferPool(options, ELASTIC_BYTE_BUFFER_POOL_CLASS);
    struct hadoopRzBuffer *zero = hadoopReadZero(file, options, 100000);
    must(zero != NULL, "zero");
    hadoopRzBufferFree(file, zero);
    hadoopRzOptionsFree(options);
    must(hdfsCloseFile(fs, file) == 0, "close");
    int count;
    hdfsFileInfo *infos = hdfsListDirectory(fs, "/", &count);
    must(infos != NULL, "list");
    hdfsFreeFileInfo(infos, count);
    char ***hosts = hdfsGetHosts(fs, "/leaks", 0, 1);
    must(hosts != NULL, "hosts");
    hdfsFreeHosts(hosts);
    struct hearth_range range = {"/leaks", 0, -1};
    struct hearth_bytes bytes;
    must(hearth_read_many(fs, &range, 1, &bytes) == 0, "read_many");
    hearth_free_bytes(&bytes, 1);
    must(hdfsOpenFile(fs, "/missing", O_RDONLY, 0, 0, 0) == NULL, "missing");
    char *text;
    must(hdfsConfGetStr("fs.defaultFS", &text) == 0, "configuration");
    hdfsConfStrFree(text);
    must(hdfsDisconnect(fs) == 0, "disconnect");
}

int main(void) {
    static char content[400000];
    hdfsFS fs = hdfsConnect("default", 0);
    hdfsFile file = hdfsOpenFile(fs, "/leaks", O_WRONLY, 0, 0, 0);
    must(file != NULL && hdfsWrite(fs, file, content, sizeof content) == sizeof content, "write");
    must(hdfsCloseFile(fs, file) == 0 && hdfsDisconnect(fs) == 0, "close");
    long after_first = 0, now = 0;
    for (int round = 0; round < ROUNDS; round++) {
        for (int call = 0; call < CALLS; call++)
            once();
        now = resident_kib();
        printf("round %d: %ld KiB\n", round, now);
        if (round == 0)
            after_first = now;
    }
    if (now > after_first + 2048) {
        printf("grew by %ld KiB\n", now - after_first);
        return 1;
    }
    return 0;
}
