/* The command line: nccl-tests' options with their meaning on host memory and on that of GPUs, and
 * tutti's own. */
#ifndef TT_PERF_OPTIONS_H
#define TT_PERF_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "common/perf.h"

enum perf_average { PERF_AVERAGE_RANK0, PERF_AVERAGE_MEAN, PERF_AVERAGE_MIN, PERF_AVERAGE_MAX };

enum perf_blocking {
    PERF_BLOCKING_NONE,    /* wait once, after the last iteration */
    PERF_BLOCKING_BARRIER, /* wait and barrier after each call */
    PERF_BLOCKING_WAIT,    /* wait after each call */
    PERF_BLOCKING_OUTER    /* wait and (untimed) barrier after each iteration */
};

/* Borrows the strings of argv. */
struct perf_options {
    int threads;
    int ranks_per_thread;
    size_t min_bytes;
    size_t max_bytes;
    size_t step_bytes;
    int step_factor; /* above 1: used instead of step_bytes */
    int iterations;
    int aggregate;
    int warmup;
    int cycles;       /* 0: for ever */
    int check;        /* checks a row; 0: none */
    int type;         /* index into perf_types, or PERF_ALL */
    int op;           /* index into perf_ops, or PERF_ALL */
    int root;         /* a rank, or PERF_ALL */
    int blocking;     /* enum perf_blocking */
    int average;      /* enum perf_average */
    int registration; /* 0: none, 1: tuttiCommRegister, 2: that, on memory from tuttiMemAlloc */
    int timeout_s;    /* 0: as the config table says */
    int unalign;      /* elements by which buffers are off their alignment */
    int graphs;       /* on GPUs: times that the graph of all iterations is launched; 0: no graph */
    int hogs;         /* busy loops beside the ranks of each host */
    int work_us;      /* that each thread computes between iterations */
    int skip;         /* leading iterations left out of the per-iteration columns */
    bool parallel_init;
    bool on_gpus;      /* buffers in the memory of GPUs */
    bool own_streams;  /* a stream for every rank instead of the calling thread, or, on GPUs, of the
                          legacy default stream */
    bool says_streams; /* --stream or -y was given */
    bool cpu_time;
    bool timestamps;
    bool memory_report;
    bool per_iteration;
    bool tutti_memory; /* buffers from tuttiMemAlloc */
    size_t rotate_bytes;
    int align_bytes;
    uint64_t seed;
    double min_bandwidth; /* GB/s; negative: not checked */
    const char *json_path;
    const char *library_path;           /* NULL: tutti */
    const struct perf_library *library; /* what is measured */
    const char *algorithm;
    const char *transport;
    const char *spread_name; /* NULL: linear */
    enum perf_spread spread;
    unsigned ignored; /* bit i: perf_ignored_options[i] was given */
};

enum perf_parse {
    PERF_PARSE_RUN,  /* go on */
    PERF_PARSE_DONE, /* help or version was printed */
    PERF_PARSE_USAGE /* the error text says what is wrong */
};

#define PERF_NIGNORED 4
/* Options that are accepted and mean nothing here: letter, and the notes that say why. */
struct perf_ignored {
    char letter;
    const char *on_host, *on_gpus;
};
extern const struct perf_ignored perf_ignored_options[PERF_NIGNORED];

/* Fills options from defaults and argv. Writes help and version to `out`, and an error, without
 * newline, to `error`. */
enum perf_parse perf_options_parse(struct perf_options *options,
                                   const struct perf_collective *collective, int argc, char **argv,
                                   FILE *out, char *error, size_t error_bytes);

/* The size after *size; false past the last. */
bool perf_options_next_size(const struct perf_options *options, size_t *size);

#endif
