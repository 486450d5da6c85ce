/* What rank 0 tells: nccl-tests' table on a stream, and the same as JSON. On the other ranks
 * nothing is printed: they have no report. */
#ifndef TT_PERF_REPORT_H
#define TT_PERF_REPORT_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "common/json.h"
#include "common/options.h"
#include "common/timing.h"

/* One rank, as shown at the head. Plain data of fixed size: it travels between the ranks. */
struct perf_device {
    int rank;
    int group; /* the process */
    int pid;
    int device;
    char host[64];
    char place[32]; /* the processors on which it may run, "0-3,8"; a GPU: its place on the bus */
    char model[96]; /* of the processor, or of the GPU */
};

/* Owned by the caller; borrows options, collective and stream. */
struct perf_report {
    FILE *out;
    const struct perf_options *options;
    const struct perf_collective *collective;
    struct perf_json json;
    bool on_virtual_gpus; /* any rank is */
};

/* One side (out of place, or in place) of a row. */
struct perf_side {
    bool available; /* false: N/A all over */
    double seconds; /* a call */
    double algbw;   /* GB/s, of 1e9 bytes */
    double busbw;
    bool checked;
    int64_t wrong; /* elements, over all ranks */
    /* Per iteration; NULL without -I. times is the slowest rank's, by_process has nprocesses rows;
     * seconds. */
    const struct perf_statistics *statistics;
    const double *times;
    const double *by_process;
    int nprocesses;
};

/* Bytes, most of any process (memory of communicators: sum over the process's ranks). */
struct perf_memory {
    double initialization;
    double buffers;
    double collectives;
    double communicators;
};

/* A number in at most `width` characters, with as many of two decimals as fit; `to` has 32 bytes.
 */
void perf_format_number(char *to, double value, int width);

/* Opens the JSON file when one is asked for. False, with errno, when it cannot be written. */
bool perf_report_open(struct perf_report *report, FILE *out, const struct perf_options *options,
                      const struct perf_collective *collective, int argc, char **argv);

/* Everything above the rows. */
void perf_report_head(struct perf_report *report, const struct perf_device *devices, int nranks,
                      double init_seconds);

/* A row: begin, the out-of-place side, the in-place side, end. root -1: none. */
void perf_report_row_begin(struct perf_report *report, const struct perf_layout *layout,
                           const struct perf_type *type, const struct perf_op *op, int root);
void perf_report_side(struct perf_report *report, bool in_place, const struct perf_side *side);
void perf_report_row_end(struct perf_report *report);

/* The algorithm that the library chose for the sizes from `nbytes` on. */
void perf_report_choice(struct perf_report *report, size_t nbytes, const char *algorithm);

/* Everything below the rows. failed_checks: sides of rows with anything wrong. Returns whether the
 * bandwidth is enough. */
bool perf_report_foot(struct perf_report *report, int64_t failed_checks, double bandwidth,
                      const struct perf_memory *memory);

/* Ends the report; error NULL: there was none. False when the JSON could not all be written. */
bool perf_report_close(struct perf_report *report, const char *error);

#endif
