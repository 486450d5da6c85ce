/* What the tests of libnccl.so.2 on memory of the host share: the last error, and two ranks of one
 * thread. */
#ifndef TT_TESTS_NCCL_PAIR_H
#define TT_TESTS_NCCL_PAIR_H

#include <stdio.h>
#include <string.h>

#include "nccl.h"
#include "shim.h"

static inline bool says(const char *part)
{
    if (strstr(ncclGetLastError(NULL), part)) return true;
    printf("the last error is: %s\n", ncclGetLastError(NULL));
    return false;
}

static inline void make_pair(ncclComm_t comms[2])
{
    REQUIRE(ncclCommInitAll(comms, 2, NULL) == ncclSuccess);
}

static inline void destroy_pair(ncclComm_t comms[2])
{
    for (int i = 0; i < 2; i++) CHECK(ncclCommDestroy(comms[i]) == ncclSuccess);
}

#endif
