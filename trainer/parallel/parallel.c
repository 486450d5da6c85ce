/* Chooses for each seam of the model what the mesh asks for. */
#include "parallel.h"

const struct tr_attention_kind *tr_inner_attention(const struct tr_parallel *parallel)
{
    return parallel->ring->n > 1 ? &tr_ring_attention : &tr_local_attention;
}

static const struct tr_attention_kind *kind_of(const struct tr_parallel *parallel)
{
    return parallel->ulysses->n > 1 ? &tr_ulysses_attention : tr_inner_attention(parallel);
}

static tr_status attend_forward(void *arg, const struct tr_attend *call)
{
    struct tr_parallel *parallel = arg;
    if (parallel->cache) return tr_cached_attention(parallel, call, parallel->scratch);
    return kind_of(parallel)->forward(parallel, call, parallel->scratch);
}

static tr_status attend_backward(void *arg, const struct tr_attend *call)
{
    struct tr_parallel *parallel = arg;
    return kind_of(parallel)->backward(parallel, call, parallel->scratch);
}

static size_t attend_room(void *arg, const struct tr_attend *shape)
{
    const struct tr_parallel *parallel = arg;
    return kind_of(parallel)->room(parallel, shape);
}

static tr_status local_loss(void *arg, struct tr_data *logits, const int32_t *targets,
                            const float *weights, long first, long rows, long n, double *loss)
{
    const struct tr_parallel *parallel = arg;
    (void)first;
    parallel->backend->loss(logits, loss, weights, targets, rows, n);
    return TR_OK;
}

void tr_parallel_seams(struct tr_seams *seams, struct tr_parallel *parallel)
{
    *seams = (struct tr_seams){.arg = parallel,
                               .tp = parallel->tp->n,
                               .gather = tr_tensor_gather,
                               .scatter = tr_tensor_scatter,
                               .attend_forward = attend_forward,
                               .attend_backward = attend_backward,
                               .attend_room = attend_room,
                               .loss = parallel->tp->n > 1 ? tr_vocab_loss : local_loss};
}

size_t tr_parallel_scratch(const struct tr_parallel *parallel, const struct tr_attend *shape,
                           long rows)
{
    const size_t attention = kind_of(parallel)->scratch(parallel, shape);
    const size_t loss = parallel->tp->n > 1 ? tr_vocab_scratch(parallel, rows) : 0;
    return attention > loss ? attention : loss;
}
