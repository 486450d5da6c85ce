/* Progress: lines for people on rank 0's standard output, and a line of JSON per step for programs.
 */
#ifndef TR_LOG_H
#define TR_LOG_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "../status.h"
#include "spikes.h"

/* Where lines go, and what may have no room for one. */
struct tr_outlet {
    FILE *file;    /* NULL: none */
    bool is_pipe;  /* it is one */
    bool has_lost; /* lines, for which the pipe had no room */
    bool is_told;  /* that, on the standard error */
    int64_t first_lost;
};

/* Owned by the trainer. */
struct tr_log {
    bool speaks;              /* this rank prints */
    struct tr_outlet printed; /* the standard output */
    struct tr_outlet json;    /* the file */
    const char *path;         /* of the file; borrowed */
    int64_t every;
    double last_time; /* of the last line */
    int64_t last_step;
    double first_loss, last_loss;
    int64_t nsteps; /* seen */
};

/* What a line says. */
struct tr_log_row {
    int64_t step, total; /* total 0: not known */
    double loss, lr, norm;
    double tokens_per_step, elapsed, seconds; /* seconds: the time budget, 0: none */
    double tokens_per_second;                 /* of this step alone */
    double share_of_peak;                     /* that its products reach; NaN: not known */
    struct tr_spike spike;
    bool skipped; /* the spike has no update */
};

/* path "": no file; it must outlive the log. append: a run that goes on adds to what the file has,
 * but for a last line without an end. Fails where the file has something else than a log. */
TR_NODISCARD tr_status tr_log_open(struct tr_log *log, bool speaks, int64_t every, const char *path,
                                   bool append);
void tr_log_close(struct tr_log *log);
/* The header of a run's lines: a JSON object on one line, ahead of step `step` + 1. */
void tr_log_run(struct tr_log *log, int64_t step, const char *json);
void tr_log_step(struct tr_log *log, const struct tr_log_row *row);
/* The loss of the held-out part after `step` steps, with its perplexity, the exponential of it. */
void tr_log_held_out(struct tr_log *log, int64_t step, double loss, double elapsed);

/* Whether a line of step `step` can be printed: not where a pipe has no room for it. */
bool tr_log_may_print(struct tr_log *log, int64_t step);
/* Before the last lines of a run that a signal ends: where a pipe has no room for them, the
 * standard output becomes /dev/null. */
void tr_log_end_printing(struct tr_log *log);

/* Prints text that may hold anything: bytes that are no UTF-8, and what no terminal should get, are
 * shown as '.'. */
void tr_log_text(FILE *out, const unsigned char *text, long n);

#endif
