/*
 * What this library has beyond Apache's hdfs.h: many files in one call, views of the DataNode's memory, and reads in the
 * background. Programs that use it run on this library only.
 */
#ifndef HEARTH_H
#define HEARTH_H

#include "hdfs.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Version of the library, such as "0.1.0". */
const char *hearth_version(void);

/* ---- Many files in one call ---- */

struct hearth_range {
    const char *path;
    int64_t offset;
    int64_t length; /* bytes; -1: to the end of the file */
};

struct hearth_bytes {
    const void *data; /* verified bytes; fewer than asked for if the file ends before */
    int64_t length;
    int error;     /* 0, or the error number of this range */
    char *message; /* text of the error, or NULL */
    void *owner;   /* for the library */
};

/*
 * Reads all ranges at once. Returns the number of ranges that failed, or -1 (errno) if none was read. Results must be freed
 * by hearth_free_bytes, also those of failed ranges.
 */
int64_t hearth_read_many(hdfsFS fs, const struct hearth_range *ranges, size_t count, struct hearth_bytes *results);
void hearth_free_bytes(struct hearth_bytes *results, size_t count);

/* ---- Views ---- */

struct hearth_view;

#define HEARTH_VIEW_IN_PLACE 1 /* ENOTSUP instead of a copy */
#define HEARTH_VIEW_VERIFY 2   /* EIO if the bytes do not match their checksums; a copy is always verified */

/*
 * Shows at most length bytes from offset on (-1: all), up to the end of a block: in the DataNode's own memory if it is
 * on this machine, else in a copy. The bytes do not change while the view is open, also if the file is deleted or closed.
 */
struct hearth_view *hearth_view_open(hdfsFile file, int64_t offset, int64_t length, int flags);
const void *hearth_view_data(const struct hearth_view *view);
int64_t hearth_view_length(const struct hearth_view *view);
/* 1 if these are the DataNode's bytes, 0 for a copy. */
int hearth_view_is_in_place(const struct hearth_view *view);
void hearth_view_close(struct hearth_view *view);

/* ---- Reads in the background ---- */

/* count: bytes read, or -1; error: 0, or the error number. Runs on a thread of the library and must not block. */
typedef void (*hearth_done)(void *argument, int64_t count, int error);

/*
 * Starts to read like hdfsPread. The caller keeps the buffer until done is called, which happens once if this returns 0.
 * The file may be closed before.
 */
int hearth_pread_async(hdfsFile file, int64_t offset, void *buffer, size_t length, hearth_done done, void *argument);

/* ---- Interrupting calls that wait ---- */

/*
 * Sets a function that calls ask while they wait, ten times a second, if they were made on the main thread of the process.
 * If it returns nonzero, the call gives up with EINTR; a change may have taken effect. NULL: calls are not interrupted. For
 * interpreters, whose signal handlers run on that thread. The function must not use the file of the call.
 */
void hearth_set_interrupt_check(int (*check)(void));

#ifdef __cplusplus
}
#endif
#endif
