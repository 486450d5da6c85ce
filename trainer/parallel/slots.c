/* Buffers of whole units that the units of a stage use in turn: FSDP's gathered weights, and the
 * gradients that ZeRO-2 and FSDP reduce after every micro-batch.
 *
 * Collectives  none.
 * Memory       the largest unit of options.apart, and twice the largest of the others: one in use,
 *              one that is gathered for the next unit or reduced for the previous one.
 * Limits       besides a unit that is apart, two at once; the error names those in use.
 * Order        which slot a unit gets depends on the order of calls only, never on time.
 * Test         tests/trainer/store_test.c. */
#include <stdio.h>

#include "store_ops.h"

static bool is_apart(const struct tr_store *store, const struct tr_unit_state *state)
{
    return state->unit == store->options.apart[0] || state->unit == store->options.apart[1];
}

void tr_slots_take_memory(struct tr_slots *slots, const struct tr_store *store,
                          struct tr_arena *arena, enum tr_type type)
{
    size_t largest[2] = {0};
    int units[2] = {0};
    for (int u = 0; u < store->nunits; ++u) {
        const struct tr_unit_state *state = &store->units[u];
        const size_t total = store->params->units[state->unit].total;
        const int apart = is_apart(store, state);
        units[apart]++;
        if (total > largest[apart]) largest[apart] = total;
    }
    *slots = (struct tr_slots){0};
    const int wanted[2] = {units[0] < 2 ? units[0] : 2, units[1] > 0};
    for (int apart = 0; apart < 2; ++apart)
        for (int i = 0; i < wanted[apart]; ++i)
            slots->slot[slots->n++] = (struct tr_slot){
                .base = tr_arena_take(arena, largest[apart], tr_type_bytes(type)), .apart = apart};
}

tr_status tr_slots_take(struct tr_slots *slots, struct tr_store *store, struct tr_unit_state *state,
                        struct tr_slot **slot)
{
    const bool apart = is_apart(store, state);
    struct tr_slot *free = NULL;
    for (int i = 0; i < slots->n; ++i) {
        struct tr_slot *one = &slots->slot[i];
        if (!one->holder && one->apart == apart && (!free || one->released < free->released))
            free = one;
    }
    if (free && free->last) {
        TR_TRY(tr_flight_wait(store, free->last));
        free->last = NULL;
    }
    if (free) free->holder = state;
    *slot = free;
    return TR_OK;
}

void tr_slots_release(struct tr_slots *slots, struct tr_slot *slot, struct tr_flight *last)
{
    slot->holder = NULL;
    slot->last = last;
    slot->released = ++slots->clock;
}

tr_status tr_slots_missing(const struct tr_slots *slots, const struct tr_store *store,
                           const struct tr_unit_state *state, const char *what)
{
    char holders[TR_MOST_SLOTS * (TR_NAME_BYTES + 2)] = "";
    int n = 0;
    for (int i = 0; i < slots->n; ++i)
        if (slots->slot[i].holder && slots->slot[i].apart == is_apart(store, state))
            n += snprintf(holders + n, sizeof holders - (size_t)n, "%s%s", n ? ", " : "",
                          store->params->units[slots->slot[i].holder->unit].name);
    return tr_fail("no buffer for the %s of unit %s: in use by %s; release or complete one of them "
                   "first",
                   what, store->params->units[state->unit].name, holders);
}
