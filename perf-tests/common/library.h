/* The library that is measured, as one table of functions: tutti's or, with --library, those of a
 * library of NCCL's. Every call on the handles of a rank that are measured goes through it. */
#ifndef TT_PERF_LIBRARY_H
#define TT_PERF_LIBRARY_H

#include <stddef.h>

#include "common/gpu.h"
#include "tutti.h"

/* The functions do what those of tutti do in whose types they are, and return tutti's results,
 * which are NCCL's too. Handles of communicators and streams are of the library that has made them:
 * only the functions of the same table take them. */
struct perf_library {
    /* Types and operations have the same numbers in NCCL and tutti: the library has those below. */
    int ntypes, nops;
    int (*nccl_version)(void);  /* as ncclGetVersion; 0: it is tutti itself */
    const char *(*title)(void); /* file, version; NULL: it is tutti itself */
    const char *(*path)(void);  /* of the file; NULL: it is tutti itself */

    __typeof__(tuttiGetUniqueId) *get_id;
    __typeof__(tuttiCommInitRankConfig) *init_rank;
    __typeof__(tuttiCommDestroy) *destroy;
    __typeof__(tuttiCommAbort) *abort;
    __typeof__(tuttiGetLastError) *last_error; /* "": it knows of none */
    __typeof__(tuttiCommRegister) *register_memory;
    __typeof__(tuttiCommDeregister) *deregister_memory;
    __typeof__(tuttiRedOpCreatePreMulSum) *make_op;
    __typeof__(tuttiRedOpDestroy) *destroy_op;

    __typeof__(tuttiStreamFromDevice) *stream_of_gpu;
    __typeof__(tuttiStreamDestroy) *destroy_stream;
    /* Waits for all calls on the rank's stream; `gpu` is the one of stream_of_gpu. */
    tuttiResult_t (*wait)(tuttiComm_t comm, const struct perf_gpu *gpu, tuttiStream_t stream);

    __typeof__(tuttiGroupStart) *group_start;
    __typeof__(tuttiGroupEnd) *group_end;
    __typeof__(tuttiAllReduce) *all_reduce;
    __typeof__(tuttiBroadcast) *broadcast;
    __typeof__(tuttiReduce) *reduce;
    __typeof__(tuttiAllGather) *all_gather;
    __typeof__(tuttiReduceScatter) *reduce_scatter;
    __typeof__(tuttiAlltoAll) *all_to_all;
    __typeof__(tuttiGather) *gather;
    __typeof__(tuttiScatter) *scatter;
    __typeof__(tuttiSend) *send;
    __typeof__(tuttiRecv) *recv;

    /* NULL in a library of NCCL's, which lacks them. */
    __typeof__(tuttiBarrier) *barrier;
    __typeof__(tuttiAllGatherV) *all_gatherv;
    __typeof__(tuttiReduceScatterV) *reduce_scatterv;
    __typeof__(tuttiAlltoAllV) *all_to_allv;
    __typeof__(tuttiGatherV) *gatherv;
    __typeof__(tuttiScatterV) *scatterv;
    __typeof__(tuttiCommGetAlgorithm) *get_algorithm;
    __typeof__(tuttiCommCounters) *counters;
};

extern const struct perf_library perf_tutti;
/* After perf_nccl_load. */
extern const struct perf_library perf_nccl;

/* Loads the library at `path` for perf_nccl, once; `function` is the one that the program measures.
 * Else false, and `error` says why. */
bool perf_nccl_load(const char *path, const char *function, char *error, size_t error_bytes);

/* Ends a group whose calls came to `result`, also when that is an error. Returns the first failure.
 */
tuttiResult_t perf_group_end(const struct perf_library *library, tuttiResult_t result);

#endif
