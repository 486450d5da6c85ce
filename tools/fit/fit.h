/* The constants of the cost model that fit measured times, as text. This folder alone of the tools
 * sees the inside of the library: its model, which tutti.h does not show. */
#ifndef TUTTI_TOOLS_FIT_H
#define TUTTI_TOOLS_FIT_H

#include <stdbool.h>
#include <stdio.h>

#include "tutti.h"

/* Microseconds of one call. Times of one collective, number of ranks and size stand together, in
 * the order of tuttiAlgorithmName. */
struct fit_time {
    tuttiCollective_t collective;
    const char *algorithm;
    int nranks;
    double ranks_per_core; /* ranks divided by the CPUs that they may run on */
    size_t nbytes;         /* of all blocks together */
    double us;
};

/* Fits the constants, writes a table of them and how good they are to `table`, and to `file` the
 * lines of a file for TUTTI_COST_FILE: those found, or the shipped ones where these choose better.
 * False after saying on stderr what is wrong; a write that fails is left to the streams. */
bool fit_constants(const struct fit_time *times, int ntimes, FILE *table, FILE *file);
/* Where too few times can be believed: the shipped constants. */
void fit_nothing(FILE *table, FILE *file);

#endif
