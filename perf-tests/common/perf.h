/* What the perf programs share: the description of a collective, which each program fills in, and
 * the driver that measures and checks it. Uses tutti.h and nccl.h only. */
#ifndef TT_PERF_PERF_H
#define TT_PERF_PERF_H

#include <stdbool.h>
#include <stddef.h>

#include "common/library.h"
#include "common/verify.h"
#include "tutti.h"

#define PERF_NO_COLLECTIVE (-1)

/* One rank's call. Plain data, valid during the launch. */
struct perf_call {
    const void *send;
    void *recv;
    size_t count;      /* the call's count argument, in elements */
    size_t type_bytes; /* bytes of one element */
    tuttiDataType_t type;
    tuttiRedOp_t op;
    int root;
    int rank;
    int nranks;
    int phase; /* 0 .. phases(nranks)-1 */
    /* [nranks] elements, where each rank has a count of its own: what this rank sends and gets of
     * every rank, or, not pairwise, twice the same. Packed. */
    const size_t *send_counts, *recv_counts;
    const struct perf_library *library;
    tuttiComm_t comm; /* of this library, like the stream */
    tuttiStream_t stream;
};

/* A collective as the driver sees it. Static and const in the program's file.
 *
 * Buffers: a rank sends `count` elements, or a block of `count` for every rank (sends_blocks), and
 * gets as many (gets_blocks). Where either is by blocks the size on the command line is that of all
 * blocks together, and in place the single block lies at its rank's place among the others. */
struct perf_collective {
    const char *name; /* "all_reduce" */
    int collective;   /* tuttiCollective_t, or PERF_NO_COLLECTIVE when made of sends and receives */
    const char *nccl; /* the function of NCCL's that does it; NULL: NCCL lacks it */
    bool reduces;     /* takes an operation */
    bool rooted;      /* takes a root */
    bool sends_blocks;            /* a block for every rank in the send buffer */
    bool gets_blocks;             /* a block from every rank in the receive buffer */
    bool uneven;                  /* each block has a count of its own: --spread */
    bool never_in_place;          /* the in-place columns are N/A */
    bool moves_nothing;           /* no data and no sizes: the barrier */
    double (*volume)(int nranks); /* algbw = volume x count x bytes / time */
    double (*factor)(int nranks); /* busbw = factor x algbw */
    /* Launches this many times in a row, phase 0, 1, ..; NULL: once. Every phase is a group of its
     * own. */
    int (*phases)(int nranks);
    tuttiResult_t (*launch)(const struct perf_call *call);
    /* Elements [first, first + count) of what the rank's receive buffer must hold afterwards. */
    void (*expected)(const struct perf_data *data, size_t first, size_t count, void *want);
};

/* Volumes and factors of nccl-tests: 1, n, n - 1; and 1, (n - 1)/n, 2(n - 1)/n. */
double perf_volume_one(int nranks);
double perf_volume_all(int nranks);
double perf_volume_others(int nranks);
double perf_factor_one(int nranks);
double perf_factor_others(int nranks);
double perf_factor_twice_others(int nranks);

/* What a rank sends and gets for `size` bytes on the command line; all in elements. */
struct perf_layout {
    size_t count;     /* the call's argument */
    size_t send;      /* elements read from the send buffer */
    size_t recv;      /* elements written to the receive buffer */
    size_t send_step; /* in place, rank r sends from recv + r * send_step */
    size_t recv_step; /* in place, rank r receives at recv + r * recv_step */
};

/* What one rank sends and gets; in elements. */
struct perf_share {
    size_t send, recv;
    size_t send_at; /* in place, it sends from recv + send_at */
    size_t recv_at; /* in place, it receives at recv + recv_at */
};
struct perf_share perf_share_of(const struct perf_collective *collective,
                                const struct perf_layout *layout, const struct perf_blocks *blocks,
                                int rank);
/* Of a row: `spread` counts where the collective is uneven. */
struct perf_blocks perf_blocks_of(const struct perf_collective *collective,
                                  const struct perf_layout *layout, enum perf_spread spread,
                                  int nranks);

/* By blocks, the block's count is rounded down to `align` bytes (at least one element). */
struct perf_layout perf_layout_of(const struct perf_collective *collective, size_t size,
                                  size_t type_bytes, size_t align, int nranks);

/* The whole program: parses, runs, reports; returns the exit code (0 right, 1 wrong or failed, 2
 * usage). */
int perf_main(const struct perf_collective *collective, int argc, char **argv);

#endif
