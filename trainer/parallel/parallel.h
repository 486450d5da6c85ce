/* The model's seams (model/seams.h) on a mesh: tensor parallelism (tensor.c, vocab.c), Ulysses
 * (ulysses.c) and ring attention (ring.c), whichever axes exceed one rank. */
#ifndef TR_PARALLEL_H
#define TR_PARALLEL_H

#include "../memory.h"
#include "../mesh.h"
#include "../model/seams.h"
#include "seqlayout.h"

/* The keys and values of the first tokens of one sequence, by layers of this rank's stage: who goes
 * on with the sequence computes its next tokens only. Made by tr_cache_init (cached.c), which must
 * be agreed on; tr_cache_fini frees. */
struct tr_cache {
    struct tr_arena memory;
    struct tr_data **keys, **values; /* [nlayers]: rows of kv_heads * d activations */
    int nlayers;
    int layer;  /* that attends next in the pass at hand */
    long count; /* tokens whose keys and values are there */
};

/* Owner: the engine. */
struct tr_parallel {
    const struct tr_backend *backend;
    const struct tr_group *tp, *ring, *ulysses;
    const struct tr_sequence *sequence; /* of the sequences at hand */
    void *scratch;                      /* tr_parallel_scratch bytes */
    size_t *counts;                     /* [4 ulysses], in the host's memory */
    struct tr_cache *cache;             /* of the sequence at hand; NULL: sequences are whole */
};

/* Fills in the seams; `parallel` must live as long. */
void tr_parallel_seams(struct tr_seams *seams, struct tr_parallel *parallel);

/* Bytes of scratch that attention and loss need for such calls; `rows` of the loss. */
size_t tr_parallel_scratch(const struct tr_parallel *parallel, const struct tr_attend *shape,
                           long rows);

/* tensor.c: the residual stream's rows along tp. */
tr_status tr_tensor_gather(void *parallel, struct tr_data *all, const struct tr_data *mine,
                           long own, long n);
tr_status tr_tensor_scatter(void *parallel, struct tr_data *mine, struct tr_data *all, long own,
                            long n);

/* vocab.c: cross-entropy over a vocabulary that tp cuts. */
tr_status tr_vocab_loss(void *parallel, struct tr_data *logits, const int32_t *targets,
                        const float *weights, long first, long rows, long n, double *loss);
size_t tr_vocab_scratch(const struct tr_parallel *parallel, long rows);

/* local.c, ring.c, ulysses.c: attention. `room` is what a call keeps from forward to backward,
 * `scratch` what it needs while it runs, both in bytes. Ulysses calls ring or local for the heads
 * that a rank has after its exchange.
 */
struct tr_attention_kind {
    tr_status (*forward)(struct tr_parallel *parallel, const struct tr_attend *call, void *scratch);
    tr_status (*backward)(struct tr_parallel *parallel, const struct tr_attend *call,
                          void *scratch);
    size_t (*room)(const struct tr_parallel *parallel, const struct tr_attend *shape);
    size_t (*scratch)(const struct tr_parallel *parallel, const struct tr_attend *shape);
};
extern const struct tr_attention_kind tr_local_attention, tr_ring_attention, tr_ulysses_attention;

/* cached.c: attention of a rank that has the next tokens of one sequence, to those and all before.
 */
tr_status tr_cached_attention(struct tr_parallel *parallel, const struct tr_attend *call,
                              void *scratch);
/* A cache for `tokens` tokens of the shape's heads and `nlayers` layers. */
TR_NODISCARD tr_status tr_cache_init(struct tr_cache *cache, const struct tr_backend *backend,
                                     const struct tr_attend *shape, int nlayers, long tokens);
void tr_cache_fini(struct tr_cache *cache);

/* Ring or local, as the mesh has it. */
const struct tr_attention_kind *tr_inner_attention(const struct tr_parallel *parallel);

#endif
