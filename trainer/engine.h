/* One training step on a mesh: the micro-batches of this rank's stage in the order of the
 * pipeline's schedule, the reduced gradients, their norm, and the update. Everything below config
 * and files: trainer.c drives it with text, the tests with whatever they like. */
#ifndef TR_ENGINE_H
#define TR_ENGINE_H

#include "mesh.h"
#include "model/model.h"
#include "optim/optim.h"
#include "parallel/parallel.h"
#include "parallel/schedule.h"
#include "parallel/stages.h"
#include "parallel/store.h"

/* Where tokens come from. */
struct tr_feed {
    /* The first `context` tokens of sample `number`, what follows each, and 1 for each that counts,
     * into the host's memory. NULL: passes have sizes, but no tokens, for a backend that computes
     * nothing. */
    void (*sample)(void *arg, uint64_t number, long context, int32_t *ids, int32_t *targets,
                   float *weights);
    void *arg;
};

struct tr_engine_options {
    struct tr_model_size model;
    struct tr_types types; /* of tensors: those of the backend */
    enum tr_sharding sharding;
    struct tr_optimizer optimizer; /* of the updates; only what its states depend on is read */
    enum tr_schedule_kind schedule;
    bool zigzag;         /* the order of the sequence along the ring */
    bool reduce_last;    /* ZeRO-2, FSDP: reduce once a step instead of once a micro-batch */
    bool reshard_always; /* FSDP with pp: gather for every use */
    bool deterministic;
    bool inference; /* no gradients and no optimizer states: weights come from a checkpoint */
    int nthreads;   /* of each rank; 0: not said */
    long batch, micro_batch; /* sequences of a step over all ranks; of one pass of one rank */
    size_t bucket_bytes;
    uint64_t seed;
};

/* The tokens of a sample, and those of a micro-batch as the model takes them, in the host's memory
 * before they go to the backend. All NULL on a dry mesh, where no tokens pass. */
struct tr_staging {
    int32_t *sample_ids, *sample_targets; /* [context] */
    float *sample_weights;
    int32_t *ids, *targets, *positions; /* [rows] */
    float *weights;
};

/* One activation set with the tokens it belongs to. */
struct tr_micro {
    struct tr_tokens tokens;
    double count; /* of the tokens: their weights, added up */
    int32_t *ids, *targets, *positions, *own_positions;
    float *weights;
    struct tr_acts acts;
};

/* What is summed over all ranks in one message at the end of a step: the loss, the tokens, what the
 * caller adds up along with them, and the digits of the gradients' squares. */
enum {
    TR_LOSS,
    TR_TOKENS,
    TR_EXTRA,
    TR_NUM_EXTRA = 7,
    TR_SQUARES = TR_EXTRA + TR_NUM_EXTRA,
    TR_NUM_SUMS = TR_SQUARES + TR_SUM_DIGITS
};

/* Owner: whoever called tr_engine_init. */
struct tr_engine {
    struct tr_engine_options options;
    struct tr_mesh *mesh;
    const struct tr_backend *backend;
    struct tr_model model;
    struct tr_sequence sequence;
    struct tr_parallel parallel;
    struct tr_seams seams;
    struct tr_schedule schedule;
    struct tr_store store;
    int first_layer, nlayers; /* of this rank's stage */
    bool first_stage, last_stage;
    long first_sample, samples; /* this rank's sequences of a step's batch */

    struct tr_arena activations;
    struct tr_micro *sets; /* [schedule.nsets] */
    size_t set_bytes;      /* of `activations`: what each set has */
    struct tr_scratch scratch;
    struct tr_data *d_stream, *d_received; /* [own, h] of a full micro-batch */
    double *sums;                          /* [TR_NUM_SUMS]; the host reads them once a step */
    struct tr_staging staging;
};

/* first[nstages + 1]: the layers of the stages, which a layer and the head balance by what they
 * cost. The caller frees it. Errors: those of tr_stages_assign, memory. */
TR_NODISCARD tr_status tr_engine_stages(const struct tr_model_size *size, int nstages, int **first);
/* Along which axes units are sharded. */
tr_axes tr_engine_shard_axes(enum tr_sharding sharding);
/* Micro-batches of a step. */
long tr_engine_micro_batches(const struct tr_engine_options *options, const int size[TR_NUM_AXES]);

/* More bytes than a rank of a mesh of these sizes keeps, and than a step calls of any collective.
 * Below 2^62 of them no size or count of an engine leaves 64 bits; the bound itself is worked out
 * in floating point. */
double tr_engine_bound(const struct tr_engine_options *options, const int size[TR_NUM_AXES]);

/* Makes the model, its communicators and memory. The mesh has its shape. Errors are those that
 * every rank finds alike, or are agreed upon. Collective. fini is right after init, failed or not.
 */
TR_NODISCARD tr_status tr_engine_init(struct tr_engine *engine, struct tr_mesh *mesh,
                                      const struct tr_backend *backend,
                                      const struct tr_engine_options *options);
void tr_engine_fini(struct tr_engine *engine);

/* When no token of any rank counts, loss, gradient and norm are 0, and the update is that of a
 * gradient of 0: moments and weights decay. */
struct tr_step_sums {
    double loss;                /* mean over the tokens that count, in nats, before the update */
    double tokens;              /* that count, of all ranks */
    double scale;               /* from sums to means: 1 / tokens; 0 when no token counts */
    double norm;                /* of the gradient of that mean, before clipping */
    double extra[TR_NUM_EXTRA]; /* sums of what each rank gave */
};

/* Forward and backward of samples first .. first + batch - 1, and the reductions: after it every
 * store unit's gradient_shard is complete, a sum over tokens. extra may be NULL. Collective. */
TR_NODISCARD tr_status tr_engine_gradients(struct tr_engine *engine, const struct tr_feed *feed,
                                           uint64_t first, const double extra[TR_NUM_EXTRA],
                                           struct tr_step_sums *sums);

/* The optimizer's update with these gradients, times `scale`: that of the sums, times the
 * coefficient of clipping. Collective. */
TR_NODISCARD tr_status tr_engine_update(struct tr_engine *engine, const struct tr_optimizer *how,
                                        double scale);

/* The mean loss of samples first .. first + count - 1; NaN when none of their tokens counts.
 * Collective. */
TR_NODISCARD tr_status tr_engine_loss(struct tr_engine *engine, const struct tr_feed *feed,
                                      uint64_t first, long count, double *loss);

/* logits[vocabulary] of what follows ids[count]. Every rank gets them. A count that is not 1 to the
 * model's context is an error of every rank. Collective. */
TR_NODISCARD tr_status tr_engine_logits(struct tr_engine *engine, const int32_t *ids, long count,
                                        float *logits);

/* An empty cache for one sequence of up to the model's context. An error of every rank where the
 * mesh cuts sequences (ring, ulysses). Collective; tr_cache_fini frees. */
TR_NODISCARD tr_status tr_engine_cache(struct tr_engine *engine, struct tr_cache *cache);

/* Appends ids[count] to the cache's tokens, which are then at most the model's context, and gives
 * every rank the logits[vocabulary] of the next token. Collective. */
TR_NODISCARD tr_status tr_engine_next(struct tr_engine *engine, struct tr_cache *cache,
                                      const int32_t *ids, long count, float *logits);

/* This rank's samples of `count`: those of its place along dp and fsdp. Gives the most that a rank
 * has. */
long tr_engine_share(const struct tr_mesh *mesh, long count, long *first, long *samples);

/* Whether losses and tokens count on this rank: on the last stage, and once for all ranks of tp. */
bool tr_engine_answers(const struct tr_engine *engine);

/* tokens.c: memory for the staging. */
TR_NODISCARD tr_status tr_staging_init(struct tr_staging *staging, long context, long rows);
void tr_staging_fini(struct tr_staging *staging);
/* The samples that this rank's passes go through, a micro-batch each. */
struct tr_samples {
    const struct tr_feed *feed;
    uint64_t first;
    long count;
};
/* How many of them pass `pass` has; 0 behind the last. */
long tr_pass_batch(const struct tr_engine *engine, const struct tr_samples *samples, int pass);
/* Gives pass `pass` an activation set, with its tokens. */
struct tr_micro *tr_pass_take_set(struct tr_engine *engine, const struct tr_samples *samples,
                                  int set, int pass);

/* passes.c: the passes of one micro-batch through this rank's stage. A loss is added to *loss, in
 * the backend's memory, unless that is NULL. head_next: on the last stage, the pass after this one
 * begins with the head, whose weights are gathered ahead. */
TR_NODISCARD tr_status tr_pass_forward(struct tr_engine *engine, struct tr_micro *micro,
                                       bool head_next);
TR_NODISCARD tr_status tr_pass_backward(struct tr_engine *engine, struct tr_micro *micro,
                                        double *loss);
TR_NODISCARD tr_status tr_pass_loss(struct tr_engine *engine, struct tr_micro *micro, double *loss);
TR_NODISCARD tr_status tr_pass_logits(struct tr_engine *engine, struct tr_micro *micro);

#endif
