/* Prints sizes and offsets of the public structures, and the numbers of the constants: the interface on which programs that
 * were compiled with Apache's header rely. */
#include <stddef.h>
#include <stdio.h>

#include "hdfs.h"

#define SIZE(type) printf("%s %zu\n", #type, sizeof(type))
#define OFFSET(type, field) printf("%s.%s %zu %zu\n", #type, #field, offsetof(type, field), sizeof(((type *)0)->field))
#define NUMBER(constant) printf("%s %d\n", #constant, (int)(constant))

typedef struct hdfsReadStatistics hdfsReadStatistics;
typedef struct hdfsHedgedReadMetrics hdfsHedgedReadMetrics;

int main(void) {
    SIZE(tSize);
    SIZE(tTime);
    SIZE(tOffset);
    SIZE(tPort);
    SIZE(tObjectKind);
    NUMBER(kObjectKindFile);
    NUMBER(kObjectKindDirectory);
    NUMBER(EINTERNAL);
    NUMBER(jNanoseconds);
    NUMBER(jDays);
    SIZE(hdfsFileInfo);
    OFFSET(hdfsFileInfo, mKind);
    OFFSET(hdfsFileInfo, mName);
    OFFSET(hdfsFileInfo, mLastMod);
    OFFSET(hdfsFileInfo, mSize);
    OFFSET(hdfsFileInfo, mReplication);
    OFFSET(hdfsFileInfo, mBlockSize);
    OFFSET(hdfsFileInfo, mOwner);
    OFFSET(hdfsFileInfo, mGroup);
    OFFSET(hdfsFileInfo, mPermissions);
    OFFSET(hdfsFileInfo, mLastAccess);
    SIZE(hdfsReadStatistics);
    OFFSET(hdfsReadStatistics, totalBytesRead);
    OFFSET(hdfsReadStatistics, totalLocalBytesRead);
    OFFSET(hdfsReadStatistics, totalShortCircuitBytesRead);
    OFFSET(hdfsReadStatistics, totalZeroCopyBytesRead);
    SIZE(hdfsHedgedReadMetrics);
    OFFSET(hdfsHedgedReadMetrics, hedgedReadOps);
    OFFSET(hdfsHedgedReadMetrics, hedgedReadOpsWin);
    OFFSET(hdfsHedgedReadMetrics, hedgedReadOpsInCurThread);
    return 0;
}
