/* The collectives of the store: counted, and timed where they run on a stream.
 *
 * Collectives  those that ddp.c, zero.c, fsdp.c and store.c ask for; see there.
 * Order        a flight begins, calls and ends on one stream; waiting for it has no effect on the
 *              order of calls.
 * Test         tests/trainer/store_test.c: calls and bytes are those of the formulas. */
#include "../calls.h"
#include "../watch/clock.h"
#include "store_ops.h"

tr_status tr_flight_init(struct tr_flight *flight)
{
    *flight = (struct tr_flight){0};
    if (tuttiEventCreate(&flight->begun) == tuttiSuccess &&
        tuttiEventCreate(&flight->done) == tuttiSuccess)
        return TR_OK;
    return tr_fail("making an event: %s", tuttiGetLastError(NULL));
}

void tr_flight_fini(struct tr_flight *flight)
{
    tuttiEventDestroy(flight->begun);
    tuttiEventDestroy(flight->done);
    *flight = (struct tr_flight){0};
}

tr_status tr_flight_begin(struct tr_store *store, struct tr_flight *flight,
                          const struct tr_group *group)
{
    TR_TRY(tr_flight_wait(store, flight));
    tr_store_backend(store)->wait(); /* what the calls read is written */
    flight->group = group;
    return tr_calls_record(group, flight->begun);
}

tr_status tr_flight_end(struct tr_flight *flight)
{
    const struct tr_group *group = flight->group;
    TR_TRY(tr_calls_record(group, flight->done));
    flight->flying = !group->tally;
    return TR_OK;
}

tr_status tr_flight_wait(struct tr_store *store, struct tr_flight *flight)
{
    static const char what[] = "waiting for a collective";
    if (!flight->flying) return TR_OK;
    const double before = tr_clock_seconds();
    float ms = 0;
    tuttiResult_t failed = tuttiSuccess;
    TR_TRY(tr_group_check(flight->group, tuttiEventSynchronize(flight->done), what));
    TR_TRY(
        tr_group_check(flight->group, tuttiCommGetAsyncError(flight->group->comm, &failed), what));
    TR_TRY(tr_group_check(flight->group, failed, what));
    TR_TRY(tr_group_check(flight->group, tuttiEventElapsedTime(&ms, flight->begun, flight->done),
                          what));
    flight->flying = false;
    store->flight_seconds += (double)ms * 1e-3;
    store->waited_seconds += tr_clock_seconds() - before;
    return TR_OK;
}

tr_status tr_store_drain(struct tr_store *store, const struct tr_group *group, const char *what)
{
    if (group->n == 1) return TR_OK;
    const double before = tr_clock_seconds();
    TR_TRY(tr_calls_wait(group, what));
    store->waited_seconds += tr_clock_seconds() - before;
    return TR_OK;
}

static void count(struct tr_store *store, enum tr_traffic_kind kind, size_t nbytes)
{
    store->traffic[kind].calls++;
    store->traffic[kind].bytes += nbytes;
}

tr_status tr_store_all_reduce(struct tr_store *store, const struct tr_group *group,
                              tuttiStream_t stream, struct tr_data *range, size_t n,
                              const char *what)
{
    const enum tr_type type = tr_store_gradient_type(store);
    count(store, TR_ALL_REDUCE, n * tr_type_bytes(type));
    return tr_all_reduce(group, stream, range, n, tr_type_datatype(type), tuttiSum, what);
}

tr_status tr_store_reduce_scatter(struct tr_store *store, const struct tr_unit_state *state,
                                  struct tr_data *shard)
{
    const struct tr_group *group = state->shard;
    const enum tr_type type = tr_store_gradient_type(store);
    count(store, TR_REDUCE_SCATTER, state->count * (size_t)group->n * tr_type_bytes(type));
    return tr_reduce_scatter(group, group->stream, state->gradients, shard, state->count,
                             tr_type_datatype(type), "reducing the gradients of a unit");
}

tr_status tr_store_all_gather(struct tr_store *store, const struct tr_unit_state *state)
{
    const struct tr_group *group = state->shard;
    const enum tr_type type = tr_store_weight_type(store);
    count(store, TR_ALL_GATHER, state->count * (size_t)group->n * tr_type_bytes(type));
    return tr_all_gather(group, group->stream, state->weight_shard, state->weights, state->count,
                         tr_type_datatype(type), "gathering the weights of a unit");
}
