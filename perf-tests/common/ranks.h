/* The ranks of this process: one worker a thread, with the ranks that the thread drives. */
#ifndef TT_PERF_RANKS_H
#define TT_PERF_RANKS_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/gpu.h"
#include "common/options.h"
#include "common/report.h"

#define PERF_TRY(expression)                                                                       \
    do {                                                                                           \
        tuttiResult_t perf_try_result = (expression);                                              \
        if (perf_try_result != tuttiSuccess) return perf_try_result;                               \
    } while (0)

#define PERF_GUARD 64          /* bytes before and after a result that nobody may write */
#define PERF_CHUNK_BYTES 32768 /* of a result checked at once */

/* A run of the program: all that its threads share. Owned by perf_main. */
struct perf_run {
    /* immutable while workers run */
    const struct perf_options *options;
    const struct perf_collective *collective;
    struct perf_report *report; /* NULL in processes without rank 0 */
    int process;
    int nprocesses;
    int nranks;        /* of all processes */
    int nlocal;        /* of this one */
    int local_process; /* this process among those of its host */
    int ngpus;         /* of this host; with on_gpus */
    tuttiConfig_t config;
    char algorithm[128]; /* "all_reduce:ring": what config points to */
    tuttiUniqueId id;    /* where perf_run_join makes the communicators */
    tuttiComm_t *comms;  /* nlocal; of the library that is measured */
    /* nlocal; of tutti, on memory of the host, with --library: over these the ranks meet and
     * exchange what they report. NULL: comms do that too. */
    tuttiComm_t *controls;
    double init_seconds;
    size_t resident_at_start;
    size_t buffer_bytes; /* that a rank may use in each direction */
};

struct perf_rank {
    int rank;
    tuttiComm_t comm;     /* of the library that is measured */
    tuttiComm_t control;  /* of tutti; may be the same */
    struct perf_gpu gpu;  /* with on_gpus */
    tuttiStream_t stream; /* of that library. NULL: calls run in the thread, or on the legacy stream
                             of the GPU */
    tuttiRedOp_t op;      /* of the rows at hand */
    void *memory[2];     /* send and receive buffer, guards and room for misalignment around them */
    void *handle[2];     /* with registration */
    unsigned char *send; /* inside memory, aligned */
    unsigned char *recv;
    void *graph;    /* with -G, while there is one */
    void *captured; /* while graphs are made: what was captured; else NULL */
    void **events;  /* with -I on a GPU's stream: starts and ends of iterations; else NULL */
};

/* A thread and its ranks. Owned by the run; used by its thread only. */
struct perf_worker {
    struct perf_run *run;
    int thread;
    pthread_t id;
    int nranks;
    struct perf_rank *ranks;
    struct perf_call *calls;     /* a rank's call, prepared; nranks */
    size_t *counts;              /* what the calls point to; nranks times 2 * nranks of the run */
    struct perf_device *devices; /* of all ranks */
    bool one_host;
    uint64_t *control; /* nranks values of a control reduction */
    double *stamps;    /* with -I: starts and ends of iterations, rank by rank */
    void *chunk;       /* PERF_CHUNK_BYTES of expected data */
    void *staging;     /* PERF_CHUNK_BYTES on their way to or from a GPU; with on_gpus */
    uint64_t seed;     /* moves on with every check */
    size_t resident_before_rows;

    int64_t failed_checks; /* sides with anything wrong on any rank */
    int64_t own_wrong;     /* elements wrong on these ranks */
    int64_t sides;
    double bandwidth_sum;
    bool bandwidth_enough;
    tuttiResult_t status;
    char error[1024]; /* why status is not success */
};

/* Joins ranks [first, first + number) of this process, in a group, with run->id; their handles go
 * to run->comms. With on_gpus the ranks of a host take its GPUs in turn. */
tuttiResult_t perf_run_join(struct perf_run *run, int first, int number);

/* Joins (with parallel_init), makes streams and buffers. worker->run and ->thread are set. On
 * failure perf_worker_close frees what there is. */
tuttiResult_t perf_worker_open(struct perf_worker *worker);
/* Frees everything; aborts the communicators when worker->status is an error. */
void perf_worker_close(struct perf_worker *worker);

/* All ranks of all processes meet. */
tuttiResult_t perf_worker_barrier(struct perf_worker *worker);
/* Waits for the ranks' streams. */
tuttiResult_t perf_worker_wait(struct perf_worker *worker);
/* With -I: notes the time at which each rank gets here, in its stream if it has one: of the start
 * (end 0) or the end (1) of an iteration. Nothing without -I. */
tuttiResult_t perf_worker_stamp(struct perf_worker *worker, int iteration, int end);
/* Durations of all iterations, in seconds, take the place of the stamps: rank by rank. The streams
 * are complete. */
tuttiResult_t perf_worker_durations(struct perf_worker *worker);

/* Reduces one value a worker over all workers: sum, min or max. */
tuttiResult_t perf_worker_reduce_number(struct perf_worker *worker, double *value, tuttiRedOp_t op);
tuttiResult_t perf_worker_reduce_integer(struct perf_worker *worker, int64_t *value,
                                         tuttiRedOp_t op);

/* all[r * nbytes ..) = rank r's bytes, on every worker; own[i * nbytes ..) are those of the i-th
 * rank here. `all` takes nranks of the run times nbytes. */
tuttiResult_t perf_worker_gather(struct perf_worker *worker, const void *own, void *all,
                                 size_t nbytes);

/* Raises this program's limit on descriptors, as far as it may, to what nlocal ranks in one process
 * need; tutti itself leaves the limit alone. */
void perf_make_room(int nlocal);

/* Bytes of memory that this process occupies; 0 when unknown. */
size_t perf_resident_bytes(void);

#endif
