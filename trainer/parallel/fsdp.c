/* clang-format off */
/* ZeRO-3, fully sharded data parallelism (FSDP): every rank of the shard group has a shard of the
 * weights, gradients and optimizer state of every unit; a unit's weights are gathered for the time
 * they are used.
 *
 *     forward   gather 0 | gather 1 | gather 2 |               the shard group's stream
 *                        | unit 0   | unit 1   | unit 2 |      the training thread
 *     backward  gather 1 | gather 0 | reduce 2 | reduce 1 | reduce 0
 *                        | unit 2   | unit 1   | unit 0   |
 *
 * Collectives  acquire: one all-gather a unit, issued one acquire ahead (prefetch); with
 *              keep_gathered the first acquire of a step only. Backward: the reduce-scatter of
 *              zero.c after every micro-batch (with reduce_last once), beside the backward pass of
 *              the unit before. Hybrid: the shard group is fsdp x ring x ulysses; then zero.c sums
 *              the shards over dp, once a step.
 * Volume       n ranks, P parameters, G micro-batches: 3 G (n-1)/n * 4 P bytes sent a rank and step
 *              when forward and backward both acquire every unit; keep_gathered (G+1) (n-1)/n * 4 P;
 *              with reduce_last too 2 (n-1)/n * 4 P. Hybrid over r replicas: + 2 (r-1)/r * 4 P/n.
 * Memory       16 P/n bytes and the slots (slots.c) of weights and of gradients; keep_gathered 4 P
 *              instead of weight slots, reduce_last 4 P instead of gradient slots.
 * Limits       gathers and reductions share one communicator and one stream: a gather that is
 *              issued after a reduction runs after it. A shard group of one rank runs as DDP.
 * Order        program order: the gather of `next` is issued at acquire, never when a slot happens
 *              to become free; without a free slot it is issued when the unit itself is acquired.
 * Test         tests/trainer/store_test.c. */
/* clang-format on */
#include "store_ops.h"

static void reshard(struct tr_store *store, struct tr_unit_state *state)
{
    state->gathered = false;
    if (store->whole_weights) return;
    tr_slots_release(&store->weight_slots, state->weight_slot, NULL);
    state->weight_slot = NULL;
    state->weights = NULL;
}

/* Gives up what was gathered ahead and is not in use. */
static tr_status forget_prefetched(struct tr_store *store)
{
    for (int u = 0; u < store->nunits; ++u) {
        struct tr_unit_state *state = &store->units[u];
        state->wanted = false;
        if (!state->gathered || state->open) continue;
        TR_TRY(tr_flight_wait(store, &state->gather));
        reshard(store, state);
    }
    return TR_OK;
}

/* Issues the gather of a unit, unless its weights are there or no slot is free. */
static tr_status gather(struct tr_store *store, struct tr_unit_state *state)
{
    if (state->gathered) return TR_OK;
    if (!store->whole_weights) {
        TR_TRY(tr_slots_take(&store->weight_slots, store, state, &state->weight_slot));
        if (!state->weight_slot) return TR_OK;
        state->weights = state->weight_slot->base;
    }
    state->gathered = true;
    TR_TRY(tr_flight_begin(store, &state->gather, state->shard));
    TR_TRY(tr_store_all_gather(store, state));
    return tr_flight_end(&state->gather);
}

static tr_status fsdp_acquire(struct tr_store *store, struct tr_unit_state *state,
                              struct tr_unit_state *next)
{
    TR_TRY(gather(store, state));
    if (!state->gathered) {
        TR_TRY(forget_prefetched(store));
        TR_TRY(gather(store, state));
        if (!state->gathered)
            return tr_slots_missing(&store->weight_slots, store, state, "weights");
    }
    state->wanted = next == state;
    if (next && next != state && store->options.prefetch) {
        TR_TRY(gather(store, next));
        next->wanted = next->gathered;
    }
    return tr_flight_wait(store, &state->gather);
}

static void fsdp_release(struct tr_store *store, struct tr_unit_state *state)
{
    if (!state->open && !state->wanted && !store->whole_weights) reshard(store, state);
}

const struct tr_store_ops tr_fsdp_ops = {
    .acquire = fsdp_acquire,
    .release = fsdp_release,
    .complete = tr_zero_complete,
    .finish = tr_zero_finish,
    .publish = forget_prefetched,
};
