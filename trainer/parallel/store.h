/* The weights, gradients and optimizer state of the units that this rank's stage holds, whole or in
 * shards. The step asks for a unit's weights before it computes, says where gradients are complete,
 * and at the end finds the reduced gradients of its shard. Which collectives that takes is the
 * business of ddp.c, zero.c and fsdp.c.
 *
 * A unit is cut into `shards` equal ranges of floats along the shard axes; ranks of the remaining
 * data axes hold equal shards (replicas). DDP: one shard, the unit. */
#ifndef TR_STORE_H
#define TR_STORE_H

#include "../memory.h"
#include "../mesh.h"
#include "../param.h"

enum tr_sharding { TR_DDP, TR_ZERO1, TR_ZERO2, TR_FSDP };

struct tr_unit_state {
    int unit;              /* index into the registry */
    size_t first, count;   /* this rank's shard: floats of the unit */
    float *weights;        /* whole unit; FSDP: NULL while it is not gathered */
    float *weight_shard;   /* [count]; within `weights` where these are kept whole */
    float *gradients;      /* whole unit, where backward adds; NULL where there are none now */
    float *gradient_shard; /* [count]: complete after tr_store_finish */
    float *m, *v;          /* [count]: optimizer state */
};

struct tr_store_options {
    enum tr_sharding sharding;
    bool reduce_last;    /* keep whole gradients and reduce once, after the last micro-batch */
    bool keep_gathered;  /* FSDP: gather once a step (with pp), not for each use */
    int prefetch;        /* FSDP: units gathered ahead, 0 or 1 */
    size_t bucket_bytes; /* DDP */
    tr_axes shard_axes;  /* 0 for DDP */
};

struct tr_store; /* what ddp.c, zero.c and fsdp.c do differently */
struct tr_store_ops {
    tr_status (*init)(struct tr_store *store);
    void (*fini)(struct tr_store *store);
    tr_status (*acquire)(struct tr_store *store, struct tr_unit_state *state);
    void (*release)(struct tr_store *store, struct tr_unit_state *state);
    tr_status (*begin_gradients)(struct tr_store *store, struct tr_unit_state *state);
    tr_status (*ready)(struct tr_store *store, struct tr_unit_state *state, int param);
    tr_status (*complete)(struct tr_store *store, struct tr_unit_state *state);
    tr_status (*finish)(struct tr_store *store);
    tr_status (*publish)(struct tr_store *store);
};

/* Owner: the training thread. */
struct tr_store {
    const struct tr_mesh *mesh;
    const struct tr_params *params;
    struct tr_store_options options;
    const struct tr_store_ops *ops;
    const struct tr_group *shard;   /* along the shard axes */
    const struct tr_group *replica; /* along the other data axes */
    struct tr_unit_state *units;    /* in the order of forward */
    int nunits;
    bool last_micro; /* the micro-batch at hand is the stage's last of this step */
    bool first_micro;
    tr_status status; /* first failure of a launch from within backward */
    void *state;      /* of the ops */
    struct tr_arena weights, gradients, optimizer, gathered;
    double reduce_seconds, waited_seconds; /* sums over the steps so far */
};

/* Takes memory for the units of this rank's stage (also those it holds as the tied stage) and fills
 * the weights with the initial values. Collective. */
TR_NODISCARD tr_status tr_store_init(struct tr_store *store, const struct tr_mesh *mesh,
                                     const struct tr_params *params,
                                     const struct tr_store_options *options, uint64_t seed);
void tr_store_fini(struct tr_store *store);

/* The state of a unit of the registry; NULL when this stage does not hold it. */
struct tr_unit_state *tr_store_unit(const struct tr_store *store, int unit);

/* Before the first pass of a step. */
TR_NODISCARD tr_status tr_store_begin(struct tr_store *store);
/* Says which of the stage's backward passes comes now. */
void tr_store_micro(struct tr_store *store, bool first, bool last);
/* Makes state->weights valid until release; may begin to gather `next` (a unit, or -1). Calls pair
 * up and may nest. */
TR_NODISCARD tr_status tr_store_acquire(struct tr_store *store, int unit, int next);
void tr_store_release(struct tr_store *store, int unit);
/* Makes state->gradients valid, zeroed when nothing was added yet, until tr_store_complete. */
TR_NODISCARD tr_status tr_store_gradients(struct tr_store *store, int unit);
/* Backward has added all that this micro-batch adds to a parameter; to all of a unit.
 * tr_store_ready is a tr_ready_hook. */
void tr_store_ready(void *store, int param);
TR_NODISCARD tr_status tr_store_complete(struct tr_store *store, int unit);
/* After the last backward pass: every gradient_shard is the sum over all ranks that hold equal
 * slices: the data axes, ranks of tp that hold the same tensors, both stages of a tied unit. */
TR_NODISCARD tr_status tr_store_finish(struct tr_store *store);
/* After the optimizer has changed weight_shard. */
TR_NODISCARD tr_status tr_store_publish(struct tr_store *store);

#endif
