/*
 * What this library has beyond Apache's hdfs.h: many files in one call, views of the DataNode's memory, and reads in the
 * background. Programs that use it run on this library only.
 *
 * After a fork, the child may use the hdfsFS of its parent. What the parent opened is used as follows in the child:
 *   hdfsFile, hdfsOpenFileFuture            calls fail with EBADF: open the file again
 *   struct hearth_view, hadoopRzBuffer      can be read: the child has inherited the memory
 *   reads in the background                 end in the parent only
 * Closing or freeing them in the child frees nothing of the parent.
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
    const char *path; /* NULL for hearth_read_ranges */
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
 * Reads all ranges at once. Returns the number of ranges that failed, or -1 (errno) if none was read. A range is cut at the
 * end of its file. It fails with ENOMEM if the system refuses the memory. Results must be freed by hearth_free_bytes, also
 * those of failed ranges.
 */
int64_t hearth_read_many(hdfsFS fs, const struct hearth_range *ranges, size_t count, struct hearth_bytes *results);
/* The same for ranges of one open file, whatever is at its path by now. Their paths must be NULL. */
int64_t hearth_read_ranges(hdfsFile file, const struct hearth_range *ranges, size_t count, struct hearth_bytes *results);
void hearth_free_bytes(struct hearth_bytes *results, size_t count);
/* Bytes of a file that is open for reading, when it was opened; -1 (EINVAL) for a file that is written. */
int64_t hearth_file_length(hdfsFile file);

/* ---- Views ---- */

struct hearth_view;

#define HEARTH_VIEW_IN_PLACE 1   /* ENOTSUP instead of a copy */
#define HEARTH_VIEW_VERIFY 2     /* compare the bytes here, also if the DataNode says that it has verified them */
#define HEARTH_VIEW_UNVERIFIED 4 /* show bytes in place without any check */

/*
 * Shows at most length bytes from offset on (-1: all), up to the end of a block: in the DataNode's own memory if it is
 * on this machine, else in a copy. The bytes do not change while the view is open, also if the file is deleted or closed.
 *
 * The bytes match their checksums, unless HEARTH_VIEW_UNVERIFIED is given: the DataNode has verified them and keeps them in
 * memory for this view, or they are compared here. Copies are always verified. A replica that does not match is reported
 * to the NameNode, and another one is used: a copy if need be.
 *
 * Errors: ENOTSUP with HEARTH_VIEW_IN_PLACE if no good replica can be shown; EIO if no replica can be read, or none matches
 * its checksums; ENOMEM; EINVAL for other flags, or both of the last two.
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
 * Starts to read like hdfsPread. The caller keeps the buffer until done is called, which happens once if this returns 0,
 * also if the library panics (EINTERNAL). The file may be closed before.
 */
int hearth_pread_async(hdfsFile file, int64_t offset, void *buffer, size_t length, hearth_done done, void *argument);

/* ---- Interrupting calls that wait ---- */

/*
 * Sets a function that calls of interruptible handles ask while they wait, ten times a second, if they were made on the
 * main thread of the process. If it returns nonzero, the call gives up with EINTR; a change may have taken effect. NULL:
 * calls are not interrupted; set it before the function becomes unusable, for example when an interpreter ends. For
 * interpreters, whose signal handlers run on that thread. The function must not use the file of the call.
 */
void hearth_set_interrupt_check(int (*check)(void));

/*
 * Makes calls of this handle, and of files that are opened with it from now on, ask that function (1) or not (0, as at
 * first). Other libraries in the process have handles of their own, whose calls never ask: they may hold a lock that the
 * function needs, or call from a thread that the interpreter does not know. Returns 0.
 */
int hearth_set_interruptible(hdfsFS fs, int interruptible);

#ifdef __cplusplus
}
#endif
#endif
