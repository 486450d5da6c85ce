/* The memory of the machine: what a load may see, and what orders make of it (machine.h). */
#include "memory.h"

#include <string.h>

static bool acquires(memory_order order)
{
    return order == memory_order_acquire || order == memory_order_acq_rel ||
           order == memory_order_seq_cst;
}

static bool releases(memory_order order)
{
    return order == memory_order_release || order == memory_order_acq_rel ||
           order == memory_order_seq_cst;
}

uint64_t tt_memory_plain(const volatile void *object, size_t size)
{
    uint64_t value = 0;
    memcpy(&value, (const void *)(uintptr_t)object, size); /* little-endian */
    return value;
}

void tt_memory_set_plain(volatile void *object, size_t size, uint64_t value)
{
    memcpy((void *)(uintptr_t)object, &value, size);
}

void tt_memory_join(struct view *view, const struct view *other)
{
    for (int l = 0; l < LOCATIONS; l++)
        view->at[l] = view->at[l] > other->at[l] ? view->at[l] : other->at[l];
}

static void move_from(struct view *view, int location, int place)
{
    if (view->at[location] >= place) view->at[location]++;
}

/* Makes a gap in the modification order, before the store at a place. */
static void make_gap(struct memory *memory, int location, int place)
{
    struct location *at = &memory->locations[location];
    for (int t = 0; t < TT_MACHINE_THREADS; t++) {
        move_from(&memory->threads[t].now, location, place);
        move_from(&memory->threads[t].acquired, location, place);
        move_from(&memory->threads[t].released, location, place);
    }
    move_from(&memory->fences, location, place);
    move_from(&memory->met, location, place);
    for (int l = 0; l < memory->nlocations; l++)
        for (int s = 0; s < memory->locations[l].nstores; s++)
            move_from(&memory->locations[l].stores[s].view, location, place);
    memmove(&at->stores[place + 1], &at->stores[place],
            (size_t)(at->nstores - place) * sizeof *at->stores);
}

static void store_at(struct memory *memory, int thread, int location, int place,
                     const struct store *store)
{
    struct location *at = &memory->locations[location];
    struct views *views = &memory->threads[thread];
    if (at->nstores == STORES) tt_machine_fail("no end: more than %d stores to a location", STORES);
    if (place < at->nstores) make_gap(memory, location, place);
    at->stores[place] = *store;
    at->nstores++;
    views->now.at[location] = (uint8_t)place;
    if (views->acquired.at[location] < place) views->acquired.at[location] = (uint8_t)place;
    at->stores[place].view.at[location] = (uint8_t)place;
    tt_memory_set_plain(at->object, at->size, at->stores[at->nstores - 1].value);
}

uint64_t tt_memory_read_at(struct memory *memory, int thread, int location, int place,
                           memory_order order)
{
    const struct store *store = &memory->locations[location].stores[place];
    struct views *views = &memory->threads[thread];
    views->now.at[location] = (uint8_t)place;
    if (acquires(order)) tt_memory_join(&views->now, &store->view);
    tt_memory_join(&views->acquired, &views->now);
    tt_memory_join(&views->acquired, &store->view);
    return store->value;
}

uint64_t tt_memory_load(struct memory *memory, int thread, int location, memory_order order)
{
    const int newest = memory->locations[location].nstores - 1;
    const int oldest = memory->threads[thread].now.at[location];
    const int place = newest - tt_machine_choose(newest - oldest + 1);
    return tt_memory_read_at(memory, thread, location, place, order);
}

void tt_memory_store(struct memory *memory, int thread, int location, memory_order order,
                     uint64_t value)
{
    const struct location *at = &memory->locations[location];
    const struct views *views = &memory->threads[thread];
    int places[STORES], n = 0;
    for (int place = at->nstores; place > views->now.at[location]; place--)
        if (place == at->nstores || !at->stores[place].follows) places[n++] = place;
    const struct store store = {.value = value,
                                .view = releases(order) ? views->now : views->released};
    store_at(memory, thread, location, places[tt_machine_choose(n)], &store);
}

int tt_memory_choose_read(struct memory *memory, int thread, int location, const uint64_t *expected)
{
    const struct location *at = &memory->locations[location];
    int places[STORES], n = 0;
    for (int place = at->nstores - 1; place >= memory->threads[thread].now.at[location]; place--)
        if ((expected && at->stores[place].value != *expected) || place == at->nstores - 1 ||
            !at->stores[place + 1].follows)
            places[n++] = place;
    return places[tt_machine_choose(n)];
}

void tt_memory_store_behind(struct memory *memory, int thread, int location, int place,
                            memory_order order, uint64_t value)
{
    const struct views *views = &memory->threads[thread];
    struct store store = {
        .value = value, .view = releases(order) ? views->now : views->released, .follows = true};
    /* A read-modify-write continues the release sequence of the store that it has read. */
    tt_memory_join(&store.view, &memory->locations[location].stores[place].view);
    store_at(memory, thread, location, place + 1, &store);
}

void tt_memory_fence(struct memory *memory, int thread, memory_order order)
{
    struct views *views = &memory->threads[thread];
    if (acquires(order)) views->now = views->acquired;
    if (order == memory_order_seq_cst) {
        tt_memory_join(&views->now, &memory->fences);
        memory->fences = views->now;
        tt_memory_join(&views->acquired, &views->now);
    }
    if (releases(order)) views->released = views->now;
}

void tt_memory_catch_up(struct memory *memory, int thread)
{
    struct views *views = &memory->threads[thread];
    for (int l = 0; l < memory->nlocations; l++)
        views->now.at[l] = (uint8_t)(memory->locations[l].nstores - 1);
    tt_memory_join(&views->acquired, &views->now);
}

uint64_t tt_memory_newest(const struct memory *memory, int location)
{
    const struct location *at = &memory->locations[location];
    return at->stores[at->nstores - 1].value;
}

/* Places are told from the oldest store on that a thread may still read: what lies before is
 * forgotten. */
static uint64_t hash_view(uint64_t hash, const struct view *view, const struct view *oldest,
                          int nlocations)
{
    struct view rest;
    for (int l = 0; l < LOCATIONS; l++) {
        const uint8_t least = oldest->at[l];
        rest.at[l] = (uint8_t)((view->at[l] > least ? view->at[l] : least) - least);
    }
    for (int l = 0; l < nlocations; l += 8)
        hash = tt_mix(hash, tt_memory_plain(&rest.at[l], sizeof(uint64_t)));
    return hash;
}

static uint64_t hash_location(uint64_t hash, const struct location *at, int oldest,
                              const struct view *oldest_of_all, int nlocations)
{
    hash = tt_mix(hash, (uint64_t)(at->nstores - oldest) << 8 | (uint64_t)(at->holder + 1));
    for (int s = oldest; s < at->nstores; s++) {
        const bool follows = s > oldest && at->stores[s].follows;
        hash = tt_mix(hash, at->stores[s].value << 1 | follows);
        hash = hash_view(hash, &at->stores[s].view, oldest_of_all, nlocations);
    }
    return hash;
}

uint64_t tt_memory_hash(const struct memory *memory, int nthreads, unsigned ended)
{
    const int n = memory->nlocations;
    struct view oldest;
    memset(&oldest, 255, sizeof oldest);
    for (int t = 0; t < nthreads; t++)
        for (int l = 0; l < n && !(ended & 1u << t); l++)
            if (oldest.at[l] > memory->threads[t].now.at[l])
                oldest.at[l] = memory->threads[t].now.at[l];
    uint64_t hash = hash_view(hash_view(0, &memory->fences, &oldest, n), &memory->met, &oldest, n);
    for (int t = 0; t < nthreads; t++) {
        hash = hash_view(hash, &memory->threads[t].now, &oldest, n);
        if (ended & 1u << t) continue;
        hash = hash_view(hash, &memory->threads[t].acquired, &oldest, n);
        hash = hash_view(hash, &memory->threads[t].released, &oldest, n);
    }
    for (int l = 0; l < n; l++) {
        const struct location *at = &memory->locations[l];
        const int last = at->nstores - 1;
        hash = hash_location(hash, at, oldest.at[l] < last ? oldest.at[l] : last, &oldest, n);
    }
    return hash;
}
