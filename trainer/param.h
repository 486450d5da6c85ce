/* The registry of parameters, by unit: the embedding, each block, the final norm with the head. A
 * unit's tensors lie one after the other in one range of elements, the same on every rank of tp and
 * of the data axes, so that a unit is gathered, reduced and sharded by one call.
 *
 * Within a unit: first the tensors that tp cuts, then those that some ranks of tp share (key and
 * value heads), then those that every rank of tp holds. Each of the three sections begins on a
 * multiple of TR_BLOCK elements. */
#ifndef TR_PARAM_H
#define TR_PARAM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "layout.h"
#include "ops/backend.h"
#include "status.h"

enum { TR_NAME_BYTES = 64 };

/* Elements that the gradient's norm sums at a time; shards begin on such a boundary, so the norm
 * has the same bits however a unit is sharded. */
enum { TR_BLOCK = 1024 };

enum tr_section { TR_CUT, TR_SHARED, TR_REPLICATED, TR_NUM_SECTIONS };

struct tr_param {
    char name[TR_NAME_BYTES]; /* as in checkpoints; global, whatever the layout */
    int ndim;
    long shape[2]; /* global; a vector has one column */
    long local[2]; /* stored by each rank of tp, padding included */
    size_t count;  /* global elements */
    struct tr_layout layout;
    int unit;
    enum tr_section section;
    size_t offset; /* elements from the start of the unit; a multiple of 16 unless joined */
    bool joined;   /* lies behind the tensor before without a gap: one product does both */
    bool decay;    /* weight decay applies */
    bool hidden;   /* a matrix of a block: no embedding, and not the head */
    double mean, deviation; /* initial values are mean + deviation * normal */
};

struct tr_unit {
    char name[TR_NAME_BYTES];
    int first_param, nparams;
    size_t section[TR_NUM_SECTIONS + 1]; /* elements: where each section begins; last: the end */
    size_t total;   /* elements: the end, rounded up so that `shards` equal shards of blocks make it
                       up */
    int stage;      /* of the pipeline */
    int tied_stage; /* another stage that holds the same tensors, or -1 */
};

/* Owns `items` and `units`. */
struct tr_params {
    const struct tr_backend *backend; /* where units lie; NULL where none is taken */
    struct tr_param *items;
    int n;
    struct tr_unit *units;
    int nunits;
    size_t count; /* parameters of the model, each once */
    int tp, tp_rank, shards;
};

/* An empty registry of a backend, for `tp` ranks, this being rank tp_rank, and units cut into
 * `shards`. */
void tr_params_init(struct tr_params *params, const struct tr_backend *backend, int tp, int tp_rank,
                    int shards);

/* Begins a unit, or appends a tensor to the unit that was begun last (cols 0: a vector); gives its
 * index, or -1 when out of memory. Matrices decay, vectors do not; change the row for an exception.
 */
int tr_params_begin_unit(struct tr_params *params, const char *name);
int tr_param_add(struct tr_params *params, const char *name, long rows, long cols,
                 struct tr_layout layout, double mean, double deviation);
/* What an optimizer may know about a tensor. */
struct tr_subject tr_param_subject(const struct tr_param *param);
/* What of the tensor that each rank of tp stores, count floats from `first` on (of the tensor's),
 * lies in [begin, begin + n) of the unit. count 0: none. */
struct tr_extract {
    size_t first, count;
};
struct tr_extract tr_param_within(const struct tr_param *param, size_t begin, size_t n);
/* Gives every tensor its place. Before this no offset is valid. */
void tr_params_place(struct tr_params *params);
void tr_params_fini(struct tr_params *params);

/* Fills the masters of [first, first + count) of a unit with initial values: a function of the
 * seed, the tensor's name and the element's place in the global tensor only. Padding becomes zero.
 */
void tr_params_initialize(const struct tr_params *params, int unit, float *range, size_t first,
                          size_t count, uint64_t seed);

/* Elements that are neighbours in the global tensor and in a range of a unit: `count` from element
 * `global` of the tensor on, which are the floats of the range from `range` on. */
struct tr_run {
    size_t global, range, count;
};
/* Calls visit for each run that the global tensor and this rank's [first, first + count) of the
 * tensor's unit have in common. */
void tr_param_each_run(const struct tr_params *params, const struct tr_param *param, size_t first,
                       size_t count, void (*visit)(void *arg, struct tr_run run), void *arg);
/* Numbers [first, first + count) of a global tensor, in the host's memory. */
struct tr_excerpt {
    const float *values;
    size_t first, count;
};
/* Copies from the piece to this rank's [first, first + count) of the unit of the tensor; only what
 * both hold. */
void tr_param_put(const struct tr_params *params, const struct tr_param *param,
                  const struct tr_excerpt *piece, float *range, size_t first, size_t count);

/* A 64-bit checksum, for files and for comparing ranks. Not cryptographic. */
uint64_t tr_checksum(const void *bytes, size_t nbytes);

#endif
