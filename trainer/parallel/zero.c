/* ZeRO-1 and ZeRO-2: every rank of the shard group has all weights, and the optimizer state of its
 * shard of every unit; ZeRO-2 keeps the gradients of its shard only.
 *
 * Collectives  backward, as soon as a unit is complete: one reduce-scatter (sum) a unit, beside the
 *              rest of backward; ZeRO-1 (and --reduce=last) in the last micro-batch only, ZeRO-2 in
 *              each one, added to the shard on the same stream. Where the other data axes have more
 *              than one rank: then one all-reduce a unit of the shard, in the last micro-batch.
 *              After the optimizer: one all-gather a unit, beside the next forward, which waits
 *              for each unit when it needs it.
 * Volume       n ranks, P parameters, G micro-batches: ZeRO-1 2 (n-1)/n * 4 P bytes sent a rank and
 *              step (that of DDP), ZeRO-2 (G+1) (n-1)/n * 4 P.
 * Memory       ZeRO-1 8 P + 8 P/n bytes; ZeRO-2 4 P + 12 P/n and the slots (slots.c). No copies:
 *              a shard is a range of the unit; ZeRO-2 reduces the first micro-batch into the shard,
 *              the others in place.
 * Limits       none: a shard group of one rank runs as DDP.
 * Order        units complete in the reverse order of the registry and are gathered in its order
 *              on every rank; both on the shard group's stream.
 * Test         tests/trainer/store_test.c. */
#include "../calls.h"
#include "store_ops.h"

/* Reduces the whole gradients of a unit over the shard group, into gradient_shard. */
static tr_status reduce(struct tr_store *store, struct tr_unit_state *state)
{
    const struct tr_group *shard = state->shard;
    TR_TRY(tr_flight_begin(store, &state->reduce, shard));
    if (state->summed) {
        struct tr_data *mine = tr_at(state->gradients, tr_store_gradient_type(store), state->first);
        TR_TRY(tr_store_reduce_scatter(store, state, mine));
        state->more = (struct tr_addition){state->gradient_shard, mine, state->count};
        TR_TRY(tr_group_check(shard, tr_store_backend(store)->add_on(shard->stream, &state->more),
                              "adding a micro-batch's gradients"));
    } else {
        TR_TRY(tr_store_reduce_scatter(store, state, state->gradient_shard));
        state->summed = true;
    }
    return tr_flight_end(&state->reduce);
}

/* Sums the shard over the replicas, once the stream of the shard group has completed it. */
static tr_status replicate(struct tr_store *store, struct tr_unit_state *state)
{
    static const char what[] = "summing a shard over its replicas";
    const struct tr_group *replica = state->replica;
    if (replica->n == 1) return TR_OK;
    TR_TRY(tr_calls_follow(replica, state->reduce.done, what));
    TR_TRY(tr_flight_begin(store, &state->replicate, replica));
    TR_TRY(tr_store_all_reduce(store, replica, replica->stream, state->gradient_shard, state->count,
                               what));
    return tr_flight_end(&state->replicate);
}

tr_status tr_zero_complete(struct tr_store *store, struct tr_unit_state *state)
{
    if (store->whole_gradients && !store->last_micro) return TR_OK;
    TR_TRY(reduce(store, state));
    if (store->last_micro) TR_TRY(replicate(store, state));
    if (store->whole_gradients) return TR_OK;
    tr_slots_release(&store->gradient_slots, state->gradient_slot, &state->reduce);
    state->gradient_slot = NULL;
    state->gradients = NULL;
    state->added = false;
    return TR_OK;
}

tr_status tr_zero_finish(struct tr_store *store)
{
    for (int u = store->nunits - 1; u >= 0; --u) {
        TR_TRY(tr_flight_wait(store, &store->units[u].reduce));
        TR_TRY(tr_flight_wait(store, &store->units[u].replicate));
    }
    TR_TRY(tr_store_drain(store, store->shard, "reducing the gradients"));
    return tr_store_drain(store, store->replica, "summing the gradients' shards");
}

static tr_status zero_acquire(struct tr_store *store, struct tr_unit_state *state,
                              struct tr_unit_state *next)
{
    (void)next;
    return tr_flight_wait(store, &state->gather);
}

static tr_status zero_publish(struct tr_store *store)
{
    for (int u = 0; u < store->nunits; ++u) {
        struct tr_unit_state *state = &store->units[u];
        TR_TRY(tr_flight_begin(store, &state->gather, state->shard));
        TR_TRY(tr_store_all_gather(store, state));
        TR_TRY(tr_flight_end(&state->gather));
    }
    return TR_OK;
}

const struct tr_store_ops tr_zero_ops = {
    .acquire = zero_acquire,
    .complete = tr_zero_complete,
    .finish = tr_zero_finish,
    .publish = zero_publish,
};
