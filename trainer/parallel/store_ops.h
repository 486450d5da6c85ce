/* What ddp.c, zero.c and fsdp.c do differently, and what store.c and slots.c give them. */
#ifndef TR_STORE_OPS_H
#define TR_STORE_OPS_H

#include "store.h"

struct tr_store_ops {
    tr_status (*init)(struct tr_store *store);
    void (*fini)(struct tr_store *store);
    void (*micro)(struct tr_store *store);
    tr_status (*acquire)(struct tr_store *store, struct tr_unit_state *state,
                         struct tr_unit_state *next);
    void (*release)(struct tr_store *store, struct tr_unit_state *state);
    tr_status (*ready)(struct tr_store *store, int param);
    tr_status (*complete)(struct tr_store *store, struct tr_unit_state *state);
    tr_status (*finish)(struct tr_store *store); /* the data axes only */
    tr_status (*publish)(struct tr_store *store);
};
extern const struct tr_store_ops tr_ddp_ops, tr_zero_ops, tr_fsdp_ops;

/* Both halves of the sharded reduction, for zero.c and fsdp.c. */
tr_status tr_zero_complete(struct tr_store *store, struct tr_unit_state *state);
tr_status tr_zero_finish(struct tr_store *store);

/* A flight on the stream of `group`: begin (waits for its previous trip), the calls, end. Wait
 * fails when the communicator has. */
tr_status tr_flight_init(struct tr_flight *flight);
void tr_flight_fini(struct tr_flight *flight);
tr_status tr_flight_begin(struct tr_store *store, struct tr_flight *flight,
                          const struct tr_group *group);
tr_status tr_flight_end(struct tr_flight *flight);
tr_status tr_flight_wait(struct tr_store *store, struct tr_flight *flight);

/* Collectives over gradients (all-reduce, reduce-scatter) or weights (all-gather), counted in
 * store->traffic; `what` is for the error. `count`: elements of the range. */
tr_status tr_store_all_reduce(struct tr_store *store, const struct tr_group *group,
                              tuttiStream_t stream, struct tr_data *range, size_t count,
                              const char *what);
tr_status tr_store_reduce_scatter(struct tr_store *store, const struct tr_unit_state *state,
                                  struct tr_data *shard);
tr_status tr_store_all_gather(struct tr_store *store, const struct tr_unit_state *state);
/* Waits until a group's stream is idle; the first error of its calls. */
tr_status tr_store_drain(struct tr_store *store, const struct tr_group *group, const char *what);

/* Takes memory for slots of elements of `type`: one for the units that are apart, two for the
 * others. */
void tr_slots_take_memory(struct tr_slots *slots, const struct tr_store *store,
                          struct tr_arena *arena, enum tr_type type);
/* A free slot for the unit, after its last collective; NULL when none is free. */
tr_status tr_slots_take(struct tr_slots *slots, struct tr_store *store, struct tr_unit_state *state,
                        struct tr_slot **slot);
/* The slot is free once `last` (may be NULL) has landed. */
void tr_slots_release(struct tr_slots *slots, struct tr_slot *slot, struct tr_flight *last);
/* The error of a unit for which there was no slot. */
tr_status tr_slots_missing(const struct tr_slots *slots, const struct tr_store *store,
                           const struct tr_unit_state *state, const char *what);

#endif
