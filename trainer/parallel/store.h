/* The weights, gradients and optimizer state of the units that this rank's stage holds, whole or in
 * shards. The step asks for a unit's weights before it computes, says where gradients are complete,
 * and at the end finds the reduced gradients of its shard. Which collectives that takes is the
 * business of ddp.c, zero.c and fsdp.c.
 *
 * A unit is cut into equal ranges of elements, its shards, one for each rank along the shard axes;
 * the ranks of the other data axes hold equal shards (replicas). DDP: one shard, the unit. Where
 * the shard axes have one rank, every mode is DDP.
 *
 * A step:
 *     tr_store_begin
 *     a forward pass of each micro-batch:  acquire(unit, next), release, for unit after unit
 *     a backward pass of each micro-batch: tr_store_micro, then for unit after unit, last first:
 *         acquire, gradients, (backward adds; tr_store_ready), release, complete
 *     tr_store_finish
 *     the optimizer changes the masters and its states by gradient_shard
 *     tr_store_publish
 * Every rank makes the same calls in the same order, also for a micro-batch without sequences. */
#ifndef TR_STORE_H
#define TR_STORE_H

#include "../memory.h"
#include "../mesh.h"
#include "../param.h"

enum tr_sharding { TR_DDP, TR_ZERO1, TR_ZERO2, TR_ZERO3 }; /* ZeRO-3: FSDP */

/* A collective that runs beside computation, and the events around it. */
struct tr_flight {
    const struct tr_group *group;
    tuttiEvent_t begun, done;
    bool flying; /* issued, and not waited for since */
};

/* A buffer of whole weights or whole gradients that units use in turn. */
struct tr_slot {
    struct tr_data *base;
    struct tr_unit_state *holder; /* NULL: free, when `last` has landed */
    struct tr_flight *last;       /* the collective that read the slot last, or NULL */
    bool apart;                   /* for the units of tr_store_options.apart */
    unsigned released;            /* when: the slot that is free for longest is taken */
};
enum { TR_MOST_SLOTS = 3 };
struct tr_slots {
    struct tr_slot slot[TR_MOST_SLOTS];
    int n;
    unsigned clock;
};

struct tr_unit_state {
    int unit;                       /* index into the registry */
    const struct tr_group *shard;   /* the ranks that hold its shards */
    const struct tr_group *replica; /* those with other tokens and an equal shard */
    size_t first, count;            /* this rank's shard: elements of the unit */
    struct tr_data *weights;        /* whole unit, between acquire and release */
    struct tr_data *weight_shard;   /* [count]; within `weights` where these are kept whole */
    float *masters;                 /* [count]: what the optimizer changes; the weight_shard itself
                                     * where weights are TR_FP32 */
    struct tr_data *gradients;      /* whole unit, from tr_store_gradients to tr_store_complete */
    struct tr_data *gradient_shard; /* [count]: the sum over all replicas after tr_store_finish */

    /* Owner: the store. */
    int open;              /* acquires that were not released yet */
    bool gathered, wanted; /* FSDP: weights are whole (perhaps still in flight); acquired next */
    bool added;            /* whole gradients were zeroed, and hold what was added since */
    bool summed;           /* gradient_shard holds the sum of earlier micro-batches */
    struct tr_slot *weight_slot, *gradient_slot;
    struct tr_flight gather, reduce, replicate;
    struct tr_addition more; /* what the shard group's stream adds to gradient_shard */
};

/* What the optimizer keeps of a parameter, on every rank; and what this rank has of it, zeros on
 * other stages. */
struct tr_held {
    int nstates;
    enum tr_state_shape shapes[TR_MOST_STATES];
    int nsums;                     /* sums over the whole tensor that the update needs */
    size_t first, count;           /* elements of the stored tensor that lie in this rank's shard */
    float *states[TR_MOST_STATES]; /* [tr_held_count] each */
    size_t sums;                   /* where its sums begin in tr_store.sums */
};

struct tr_store_options {
    enum tr_sharding sharding;
    struct tr_optimizer optimizer; /* of the updates; only what its states depend on is read */
    bool reduce_last;    /* keep whole gradients and reduce once, after the last micro-batch */
    bool keep_gathered;  /* FSDP: keep whole weights and gather once a step, not for each use */
    bool prefetch;       /* FSDP: gather the next unit while this one computes */
    bool inference;      /* no gradients, no states and no initial values: a step must not begin */
    size_t bucket_bytes; /* DDP: the least size of a bucket but the last */
    tr_axes shard_axes;  /* 0 for DDP */
    int apart[2]; /* units as long as the vocabulary (of the embedding, of the head; -1: none):
                   * they have a slot to themselves, and must not be in use together */
};

struct tr_store_ops;
struct tr_whole; /* whole.h */

/* Owner: the training thread. Owns all memory that the units' states point to. */
struct tr_store {
    const struct tr_mesh *mesh;
    const struct tr_params *params;
    struct tr_store_options options;
    const struct tr_store_ops *ops;
    const struct tr_group *shard;   /* along the shard axes: that of every unit */
    const struct tr_group *replica; /* along the other data axes: that of every unit */
    struct tr_unit_state *units;    /* of this stage, in the order of the registry */
    int nunits;
    struct tr_held *held;   /* [params->n] */
    struct tr_whole *whole; /* NULL: the optimizer needs no whole matrices */
    double *sums;           /* [nsums]: of all tensors of the stage, in the order of the units */
    size_t nsums;
    bool whole_weights, whole_gradients; /* kept for every unit; else in slots while in use */
    bool last_micro;    /* the micro-batch at hand is the stage's last of this step */
    int completed;      /* units of this backward pass */
    tr_status status;   /* first failure from within a hook */
    struct tr_ddp *ddp; /* the buckets; NULL elsewhere */
    struct tr_slots weight_slots, gradient_slots;
    struct tr_arena weights, gradients, optimizer, gathered;
    struct tr_traffic traffic[TR_NUM_TRAFFIC]; /* since init */
    double flight_seconds; /* sum of the times of collectives on streams, since init */
    double waited_seconds; /* of them and of finish's reductions, while nothing was computed */
};

/* Takes memory for the units of this rank's stage (also those it holds as the tied stage) and fills
 * the weights with the initial values, or for inference with zeros. The registry's `shards` must be
 * the ranks along the shard axes. No collective is under way when it returns. Collective. */
TR_NODISCARD tr_status tr_store_init(struct tr_store *store, const struct tr_mesh *mesh,
                                     const struct tr_params *params,
                                     const struct tr_store_options *options, uint64_t seed);
void tr_store_fini(struct tr_store *store);

/* Where all of its memory lies. */
static inline const struct tr_backend *tr_store_backend(const struct tr_store *store)
{
    return store->params->backend;
}

static inline enum tr_type tr_store_weight_type(const struct tr_store *store)
{
    return tr_store_backend(store)->types.weights;
}

static inline enum tr_type tr_store_gradient_type(const struct tr_store *store)
{
    return tr_store_backend(store)->types.gradients;
}

/* Whether this rank is the first of those of tp that hold a section: whose sums count. */
bool tr_store_is_first_of_tp(const struct tr_store *store, enum tr_section section);

/* Floats of a state that this rank holds. */
size_t tr_held_count(const struct tr_params *params, const struct tr_held *held, int param,
                     int state);

/* The state of a unit of the registry; NULL when this stage does not hold it. */
struct tr_unit_state *tr_store_unit(const struct tr_store *store, int unit);

/* Before the first pass of a step. */
void tr_store_begin(struct tr_store *store);
/* Before each backward pass of the stage; `last`: of this step. */
void tr_store_micro(struct tr_store *store, bool last);
/* Makes state->weights valid until release. Calls pair up and may nest: besides a unit of `apart`,
 * two others at most are in use at once. `next` (a unit, or -1) is the one that will be acquired
 * after this one: its gather may begin now; when it is `unit` itself, release keeps its weights. */
TR_NODISCARD tr_status tr_store_acquire(struct tr_store *store, int unit, int next);
void tr_store_release(struct tr_store *store, int unit);
/* Makes state->gradients valid, zeroed when nothing was added yet, until tr_store_complete. */
TR_NODISCARD tr_status tr_store_gradients(struct tr_store *store, int unit);
/* Backward has added all that this micro-batch adds to a parameter: a tr_ready_hook. Each parameter
 * at most once a pass. A failure is kept for tr_store_finish. */
void tr_store_ready(void *store, int param);
/* Backward has added all that this micro-batch adds to a unit (zeros without tr_store_gradients).
 * Every unit once a pass, in the reverse order of store->units. */
TR_NODISCARD tr_status tr_store_complete(struct tr_store *store, int unit);
/* After the last backward pass: every gradient_shard is the sum over all ranks that hold equal
 * slices: the data axes, then the ranks of tp that hold the same tensors, then both stages of a
 * tied unit. */
TR_NODISCARD tr_status tr_store_finish(struct tr_store *store);
/* Waits for the gathers of the last publish: before anything but the optimizer changes the masters
 * (a checkpoint, say), because a gather under way may still write what it has read there. */
TR_NODISCARD tr_status tr_store_settle(struct tr_store *store);
/* After the masters have changed (by the optimizer, by a checkpoint): weight_shard takes their
 * values. No unit is acquired. */
TR_NODISCARD tr_status tr_store_publish(struct tr_store *store);

#endif
