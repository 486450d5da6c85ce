/* Data parallelism: every rank has all weights and a part of the batch. The gradients are cut into
 * buckets; each is reduced as soon as it is complete.
 *
 * Collectives  forward none; backward, in the last micro-batch only, one all-reduce (sum) a bucket
 *              over all data axes, on the group's stream, launched when the last gradient of the
 *              bucket is complete, so that it runs beside the rest of backward.
 * Volume       2 (n-1)/n * 4 P bytes sent a rank and step, whatever the number of micro-batches.
 * Memory       16 P bytes: weights, gradients and optimizer state whole on every rank; no copies:
 *              a bucket is a range of the gradient arena.
 * Limits       none; one rank launches nothing.
 * Order        buckets are launched in one fixed order (from the last tensor of the last unit to
 *              the first) on every rank; one that is complete early waits its turn, so ranks
 *              cannot launch differently.
 * Test         tests/trainer/store_test.c. */
#include <stdlib.h>

#include "store_ops.h"

struct bucket {
    size_t offset, nbytes; /* of the gradient arena */
    int tensors;
    int waiting; /* tensors that are not complete yet */
    struct tr_flight flight;
};

/* A parameter that this stage holds, and where its gradient begins. */
struct tensor {
    size_t offset; /* bytes of the gradient arena */
    int param;
};

struct tr_ddp {
    struct bucket *buckets; /* in order of launch */
    int nbuckets, launched;
    int *bucket_of; /* [params->n]; -1: not of this stage */
    bool *ready;    /* [params->n]: in this pass */
};

/* Last gradient first. */
static int by_offset(const void *a, const void *b)
{
    const struct tensor *one = a, *other = b;
    return (one->offset < other->offset) - (one->offset > other->offset);
}

static int list_tensors(const struct tr_store *store, struct tensor *tensors)
{
    const size_t size = tr_type_bytes(tr_store_gradient_type(store));
    int n = 0;
    for (int u = 0; u < store->nunits; ++u) {
        const struct tr_unit_state *state = &store->units[u];
        const struct tr_unit *unit = &store->params->units[state->unit];
        const size_t at = (size_t)((char *)state->gradients - (char *)store->gradients.base);
        for (int p = unit->first_param; p < unit->first_param + unit->nparams; ++p)
            tensors[n++] = (struct tensor){at + store->params->items[p].offset * size, p};
    }
    qsort(tensors, (size_t)n, sizeof *tensors, by_offset);
    return n;
}

/* Cuts the gradients, last tensor first, into buckets of at least bucket_bytes, but for the last
 * one that is left. The paddings go with the tensors before them. */
static void cut_buckets(struct tr_ddp *ddp, const struct tensor *tensors, int ntensors, size_t end,
                        size_t bucket_bytes)
{
    struct bucket *bucket = NULL;
    for (int t = 0; t < ntensors; ++t) {
        if (!bucket) bucket = &ddp->buckets[ddp->nbuckets++];
        ddp->bucket_of[tensors[t].param] = ddp->nbuckets - 1;
        bucket->tensors++;
        bucket->offset = tensors[t].offset;
        bucket->nbytes += end - tensors[t].offset;
        end = tensors[t].offset;
        if (bucket->nbytes >= bucket_bytes) bucket = NULL;
    }
}

static tr_status ddp_init(struct tr_store *store)
{
    if (store->replica->n == 1) return TR_OK;
    const size_t n = (size_t)store->params->n;
    struct tr_ddp *ddp = store->ddp = calloc(1, sizeof *ddp);
    struct tensor *tensors = calloc(n, sizeof *tensors);
    if (ddp) {
        ddp->buckets = calloc(n, sizeof *ddp->buckets);
        ddp->bucket_of = malloc(n * sizeof *ddp->bucket_of);
        ddp->ready = calloc(n, sizeof *ddp->ready);
    }
    if (!ddp || !tensors || !ddp->buckets || !ddp->bucket_of || !ddp->ready) {
        free(tensors);
        return tr_fail("out of memory for the buckets of %zu parameters", n);
    }
    for (size_t p = 0; p < n; ++p) ddp->bucket_of[p] = -1;
    cut_buckets(ddp, tensors, list_tensors(store, tensors), store->gradients.used,
                store->options.bucket_bytes);
    free(tensors);
    for (int b = 0; b < ddp->nbuckets; ++b) TR_TRY(tr_flight_init(&ddp->buckets[b].flight));
    return TR_OK;
}

static void ddp_fini(struct tr_store *store)
{
    struct tr_ddp *ddp = store->ddp;
    if (!ddp) return;
    for (int b = 0; b < ddp->nbuckets; ++b) tr_flight_fini(&ddp->buckets[b].flight);
    free(ddp->buckets);
    free(ddp->bucket_of);
    free(ddp->ready);
    free(ddp);
    store->ddp = NULL;
}

static void ddp_micro(struct tr_store *store)
{
    struct tr_ddp *ddp = store->ddp;
    if (!ddp) return;
    ddp->launched = 0;
    for (int b = 0; b < ddp->nbuckets; ++b) ddp->buckets[b].waiting = ddp->buckets[b].tensors;
    for (int p = 0; p < store->params->n; ++p) ddp->ready[p] = false;
}

static tr_status launch(struct tr_store *store, struct bucket *bucket)
{
    const struct tr_group *group = store->replica;
    const size_t count = bucket->nbytes / tr_type_bytes(tr_store_gradient_type(store));
    void *range = (char *)store->gradients.base + bucket->offset;
    TR_TRY(tr_flight_begin(store, &bucket->flight, group));
    TR_TRY(tr_store_all_reduce(store, group, group->stream, range, count,
                               "reducing a bucket of gradients"));
    return tr_flight_end(&bucket->flight);
}

static tr_status ddp_ready(struct tr_store *store, int param)
{
    struct tr_ddp *ddp = store->ddp;
    if (!ddp || !store->last_micro) return TR_OK;
    if (ddp->ready[param])
        return tr_fail("the gradient of %s was reported complete twice in one pass",
                       store->params->items[param].name);
    ddp->ready[param] = true;
    ddp->buckets[ddp->bucket_of[param]].waiting--;
    while (ddp->launched < ddp->nbuckets && ddp->buckets[ddp->launched].waiting == 0)
        TR_TRY(launch(store, &ddp->buckets[ddp->launched++]));
    return TR_OK;
}

/* The tensors that the hook has not named. */
static tr_status ddp_complete(struct tr_store *store, struct tr_unit_state *state)
{
    const struct tr_unit *unit = &store->params->units[state->unit];
    if (!store->ddp) return TR_OK;
    for (int p = unit->first_param + unit->nparams - 1; p >= unit->first_param; --p)
        if (!store->ddp->ready[p]) TR_TRY(ddp_ready(store, p));
    return TR_OK;
}

static tr_status ddp_finish(struct tr_store *store)
{
    struct tr_ddp *ddp = store->ddp;
    if (!ddp) return TR_OK;
    for (int b = 0; b < ddp->nbuckets; ++b) TR_TRY(tr_flight_wait(store, &ddp->buckets[b].flight));
    return tr_store_drain(store, store->replica, "reducing the gradients");
}

const struct tr_store_ops tr_ddp_ops = {
    .init = ddp_init,
    .fini = ddp_fini,
    .micro = ddp_micro,
    .ready = ddp_ready,
    .complete = ddp_complete,
    .finish = ddp_finish,
};
