/* The registry of parameters: one row a tensor, in the order of the forward pass. Weights,
 * gradients and optimizer state are arenas of the same shape; a row's offset holds in each. */
#ifndef TR_PARAM_H
#define TR_PARAM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "layout.h"
#include "status.h"

enum { TR_NAME_BYTES = 64 };

struct tr_param {
    char name[TR_NAME_BYTES]; /* as in checkpoints; global, whatever the layout */
    int ndim;
    long shape[2];           /* global */
    size_t count;            /* elements */
    size_t offset;           /* floats from the start of an arena; a multiple of 16 */
    bool decay;              /* weight decay applies */
    float mean, deviation;   /* initial values are mean + deviation * normal */
    struct tr_layout layout; /* of the weight */
};

/* Owns `items`. */
struct tr_params {
    struct tr_param *items;
    int n;
    size_t total; /* floats of an arena, gaps included (gaps stay zero) */
    size_t count; /* parameters */
};

/* Appends a tensor (cols 0: a vector) and gives its index, or -1 when out of memory. Matrices
 * decay, vectors do not; change the row for an exception. */
int tr_param_add(struct tr_params *params, const char *name, long rows, long cols, float mean,
                 float deviation);
void tr_params_fini(struct tr_params *params);

/* The initial weights: a function of the seed, the tensor's name and the element's place only. */
void tr_params_initialize(const struct tr_params *params, float *weights, uint64_t seed);

/* A 64-bit checksum, for files and for comparing ranks. Not cryptographic. */
uint64_t tr_checksum(const void *bytes, size_t nbytes);

#endif
