/* The memory of the machine (machine.h): stores in modification order, and views. Inside it. */
#ifndef TT_TESTS_MODEL_MEMORY_H
#define TT_TESTS_MODEL_MEMORY_H

#include "machine.h"

enum { LOCATIONS = 24, STORES = 40 };

/* For each location the place, among its stores, of the oldest that may be read. */
struct view {
    uint8_t at[LOCATIONS];
};

struct views {
    struct view now;
    struct view acquired; /* after a fence of acquire */
    struct view released; /* at the last fence of release */
};

struct store {
    uint64_t value;
    struct view view; /* what an acquire that reads the store sees */
    bool follows;     /* a read-modify-write that has read the store before */
};

struct location {
    volatile void *object; /* holds the newest value */
    size_t size;
    int nstores;
    int holder; /* of a lock: the thread; NOBODY. Its view is that of store 0 */
    struct store stores[STORES];
};
enum { NOBODY = -1 };

struct memory {
    int nlocations;
    struct location locations[LOCATIONS];
    struct views threads[TT_MACHINE_THREADS];
    struct view fences; /* of seq_cst */
    struct view met;    /* tt_machine_meet */
};

/* One of n; the exploration comes back for the others. */
int tt_machine_choose(int n);

uint64_t tt_memory_plain(const volatile void *object, size_t size);
void tt_memory_set_plain(volatile void *object, size_t size, uint64_t value);
void tt_memory_join(struct view *view, const struct view *other);

uint64_t tt_memory_load(struct memory *memory, int thread, int location, memory_order order);
void tt_memory_store(struct memory *memory, int thread, int location, memory_order order,
                     uint64_t value);
/* Which store a read-modify-write reads; its place. expected: of a comparison, which reads any
 * store of another value, and then stores nothing; else NULL. */
int tt_memory_choose_read(struct memory *memory, int thread, int location,
                          const uint64_t *expected);
uint64_t tt_memory_read_at(struct memory *memory, int thread, int location, int place,
                           memory_order order);
void tt_memory_store_behind(struct memory *memory, int thread, int location, int place,
                            memory_order order, uint64_t value);
void tt_memory_fence(struct memory *memory, int thread, memory_order order);
/* Stores become visible in finite time. */
void tt_memory_catch_up(struct memory *memory, int thread);
uint64_t tt_memory_newest(const struct memory *memory, int location);
/* ended: bit t: thread t does nothing any more. */
uint64_t tt_memory_hash(const struct memory *memory, int nthreads, unsigned ended);

static inline uint64_t tt_mix(uint64_t hash, uint64_t value)
{
    hash = (hash ^ value) * UINT64_C(0x9e3779b97f4a7c15);
    return hash ^ hash >> 29;
}

#endif
