/* The operations of the machine: what the library's atomics, fences, locks and system calls call,
 * and their mutants (machine.h). */
#include <errno.h>
#include <linux/futex.h>
#include <linux/membarrier.h>
#include <stdarg.h>
#include <string.h>
#include <sys/syscall.h>

#include "inside.h"

enum { OBJECTS = 512 };

/* What the machine knows of the atomics that the threads use; kept for the whole exploration. */
struct object {
    const volatile void *at;
    int user;     /* the only thread; NOBODY: none yet; SHARED; READERS: several, none writes */
    bool written; /* by a thread */
    int location;
};
enum { SHARED = -2, READERS = -3 };

static struct object objects[OBJECTS];
static struct tt_site *sites;
static uint64_t scenario_bit; /* of the sites that are met; 0: of a mutant */
static struct {
    const struct tt_site *site;
    enum tt_mutation mutation;
} mutant;

/* ---- Locations ------------------------------------------------------------------------------ */

static struct object *object_of(const volatile void *at)
{
    size_t i = tt_mix(0, (uint64_t)(uintptr_t)at) % OBJECTS;
    while (objects[i].at && objects[i].at != at) i = (i + 1) % OBJECTS;
    if (!objects[i].at) objects[i] = (struct object){.at = at, .user = NOBODY};
    return &objects[i];
}

static void share(struct object *object, size_t size)
{
    if (tt_memory.nlocations == LOCATIONS) tt_machine_fail("more than %d locations", LOCATIONS);
    object->user = SHARED;
    object->location = tt_memory.nlocations++;
    tt_memory.locations[object->location].object = (volatile void *)(uintptr_t)object->at;
    tt_memory.locations[object->location].size = size;
}

/* The number of the location; NOBODY: no other thread uses it, or none writes. */
static int location_of(const volatile void *at, size_t size, bool writes)
{
    if (tt_current == NOBODY) return NOBODY;
    struct object *object = object_of(at);
    if (object->user == SHARED) return object->location;
    object->written |= writes;
    if (object->user == NOBODY) object->user = tt_current;
    if (object->user == tt_current) return NOBODY;
    if (!object->written) {
        object->user = READERS;
        return NOBODY;
    }
    share(object, size);
    tt_leave(MORE_SHARED);
}

static bool is_same(const struct tt_site *a, const struct tt_site *b)
{
    return a->operation == b->operation && !strcmp(a->object, b->object) &&
           !strcmp(a->function, b->function) && !strcmp(a->file, b->file);
}

static enum tt_mutation meet_site(struct tt_site *site)
{
    if (!site->same) {
        struct tt_site *first = sites;
        while (first && !is_same(first, site)) first = first->next;
        site->same = first ? first : site;
        if (!first) {
            site->next = sites;
            sites = site;
        }
    }
    if (scenario_bit) site->same->scenarios |= scenario_bit;
    return site->same == mutant.site ? mutant.mutation : TT_AS_WRITTEN;
}

static uint64_t cut(uint64_t value, size_t size)
{
    return size == sizeof value ? value : value & ((UINT64_C(1) << 8 * size) - 1);
}

static uint64_t changed(const struct tt_site *site, uint64_t before, uint64_t operand, size_t size)
{
    const enum tt_operation operation = site->operation;
    return cut(operation == TT_AT_ADD        ? before + operand
               : operation == TT_AT_SUBTRACT ? before - operand
               : operation == TT_AT_OR       ? before | operand
                                             : operand,
               size);
}

static memory_order order_of(const struct tt_site *site, enum tt_mutation mutation)
{
    switch (mutation) {
    case TT_RELAXED:
        return memory_order_relaxed;
    case TT_ACQUIRE:
        return memory_order_acquire;
    case TT_RELEASE:
        return memory_order_release;
    case TT_ACQ_REL:
        return memory_order_acq_rel;
    default:
        return site->order;
    }
}

/* What the store of a torn read-modify-write is: behind all others. */
static void store_torn(int location, memory_order order, uint64_t value)
{
    tt_schedule();
    tt_memory_store_behind(&tt_memory, tt_current, location,
                           tt_memory.locations[location].nstores - 1, order, value);
}

/* ---- Operations ----------------------------------------------------------------------------- */

/* A store that the mutant does late. */
static void defer(struct tt_site *site, volatile void *object, size_t size, uint64_t operand,
                  uint64_t expected)
{
    struct thread *thread = &tt_threads[tt_current];
    if (thread->late.site) tt_store_late();
    thread->late.site = site;
    thread->late.object = object;
    thread->late.size = size;
    thread->late.operand = operand;
    thread->late.expected = expected;
}

void tt_store_late(void)
{
    struct thread *thread = &tt_threads[tt_current];
    struct tt_site *site = thread->late.site;
    const int location = location_of(thread->late.object, thread->late.size, true);
    thread->late.site = NULL;
    tt_schedule();
    tt_take_note(tt_current, site, "late", thread->late.operand);
    if (site->operation == TT_AT_STORE) {
        tt_memory_store(&tt_memory, tt_current, location, site->order, thread->late.operand);
        return;
    }
    const bool compares = site->operation == TT_AT_COMPARE;
    const int place = tt_memory_choose_read(&tt_memory, tt_current, location,
                                            compares ? &thread->late.expected : NULL);
    const uint64_t before = tt_memory_read_at(&tt_memory, tt_current, location, place, site->order);
    if (compares && before != thread->late.expected) return;
    tt_memory_store_behind(&tt_memory, tt_current, location, place, site->order,
                           changed(site, before, thread->late.operand, thread->late.size));
}

/* After an operation that a late store was to come after. */
static void pass(void)
{
    if (tt_current != NOBODY && tt_threads[tt_current].late.site) tt_store_late();
}

static bool holds_a_lock(void)
{
    bool found = false;
    for (int l = 0; l < tt_memory.nlocations; l++)
        found = found || (tt_current != NOBODY && tt_memory.locations[l].holder == tt_current);
    return found;
}

uint64_t tt_machine_load(struct tt_site *site, const volatile void *object, size_t size)
{
    const enum tt_mutation mutation = meet_site(site);
    const int location = location_of(object, size, false);
    if (mutation == TT_LEFT_OUT || (mutation == TT_LEFT_OUT_LOCKED && holds_a_lock())) return 0;
    if (location == NOBODY) return tt_memory_plain(object, size);
    tt_schedule();
    const uint64_t value =
        tt_memory_load(&tt_memory, tt_current, location, order_of(site, mutation));
    tt_take_note(tt_current, site, "finds", value);
    tt_tell(value);
    pass();
    return value;
}

void tt_machine_store(struct tt_site *site, volatile void *object, size_t size, uint64_t value)
{
    const enum tt_mutation mutation = meet_site(site);
    const int location = location_of(object, size, true);
    if (mutation == TT_LEFT_OUT) return;
    if (location == NOBODY) {
        tt_memory_set_plain(object, size, value);
        return;
    }
    if (mutation == TT_LATE) {
        defer(site, object, size, cut(value, size), 0);
        return;
    }
    tt_schedule();
    tt_memory_store(&tt_memory, tt_current, location, order_of(site, mutation), cut(value, size));
    tt_take_note(tt_current, site, "stores", value);
    tt_tell(0);
}

uint64_t tt_machine_change(struct tt_site *site, volatile void *object, size_t size,
                           uint64_t operand)
{
    const enum tt_mutation mutation = meet_site(site);
    const int location = location_of(object, size, true);
    uint64_t before = tt_memory_plain(object, size);
    if (location == NOBODY) {
        if (mutation != TT_LEFT_OUT)
            tt_memory_set_plain(object, size, changed(site, before, operand, size));
        return before;
    }
    tt_schedule();
    const memory_order order = order_of(site, mutation);
    int place = 0;
    if (mutation == TT_TORN) {
        before = tt_memory_load(&tt_memory, tt_current, location, order);
    } else {
        place = tt_memory_choose_read(&tt_memory, tt_current, location, NULL);
        before = tt_memory_read_at(&tt_memory, tt_current, location, place, order);
    }
    tt_take_note(tt_current, site, "changes", before);
    tt_tell(before);
    if (mutation == TT_LATE) {
        defer(site, object, size, operand, 0);
    } else if (mutation == TT_TORN) {
        store_torn(location, order, changed(site, before, operand, size));
    } else if (mutation != TT_LEFT_OUT) {
        tt_memory_store_behind(&tt_memory, tt_current, location, place, order,
                               changed(site, before, operand, size));
    }
    return before;
}

bool tt_machine_compare(struct tt_site *site, volatile void *object, size_t size, void *expected,
                        uint64_t desired)
{
    const enum tt_mutation mutation = meet_site(site);
    const int location = location_of(object, size, true);
    const uint64_t wanted = tt_memory_plain(expected, size);
    if (location == NOBODY) {
        const uint64_t value = tt_memory_plain(object, size);
        tt_memory_set_plain(value == wanted ? object : expected, size,
                            value == wanted ? desired : value);
        return value == wanted;
    }
    tt_schedule();
    const int place = tt_memory_choose_read(&tt_memory, tt_current, location, &wanted);
    const memory_order order = order_of(site, mutation);
    const uint64_t value = tt_memory_read_at(&tt_memory, tt_current, location, place, order);
    const bool same = value == wanted;
    tt_take_note(tt_current, site, same ? "changes" : "does not change", value);
    tt_tell(value);
    if (!same) {
        tt_memory_set_plain(expected, size, value);
    } else if (mutation == TT_LATE) {
        defer(site, object, size, desired, wanted);
    } else if (mutation == TT_TORN) {
        store_torn(location, order, cut(desired, size));
    } else if (mutation != TT_LEFT_OUT) {
        tt_memory_store_behind(&tt_memory, tt_current, location, place, order, cut(desired, size));
    }
    return same;
}

void tt_machine_fence(struct tt_site *site)
{
    const enum tt_mutation mutation = meet_site(site);
    if (tt_current == NOBODY || site->operation == TT_AT_COMPILER_FENCE) return;
    tt_threads[tt_current].fences++;
    if (!strcmp(site->function, "tt_sleep_arm")) {
        tt_threads[tt_current].armed = true;
        tt_threads[tt_current].arms++;
    }
    if (mutation == TT_LEFT_OUT) return;
    tt_schedule();
    tt_take_note(tt_current, site, "fence", 0);
    tt_memory_fence(&tt_memory, tt_current, order_of(site, mutation));
    tt_tell(0);
    pass();
}

int tt_machine_lock(struct tt_site *site, pthread_mutex_t *lock)
{
    const enum tt_mutation mutation = meet_site(site);
    const int location = location_of(lock, 0, true);
    if (location == NOBODY || mutation == TT_LEFT_OUT) return 0;
    tt_threads[tt_current].status = LOCKS;
    tt_threads[tt_current].on = lock;
    tt_schedule();
    tt_take_note(tt_current, site, "locks", 0);
    tt_memory.locations[location].holder = tt_current;
    tt_memory_join(&tt_memory.threads[tt_current].now,
                   &tt_memory.locations[location].stores[0].view);
    tt_memory_join(&tt_memory.threads[tt_current].acquired, &tt_memory.threads[tt_current].now);
    tt_tell(0);
    return 0;
}

int tt_machine_unlock(struct tt_site *site, pthread_mutex_t *lock)
{
    const int location = location_of(lock, 0, true);
    meet_site(site);
    if (location == NOBODY || tt_memory.locations[location].holder != tt_current) return 0;
    tt_take_note(tt_current, site, "unlocks", 0);
    tt_memory.locations[location].holder = NOBODY;
    tt_memory.locations[location].stores[0].view = tt_memory.threads[tt_current].now;
    tt_tell(0);
    return 0;
}

static bool is_registered(int rank)
{
    return !(tt_scenario->not_registered & 1u << rank);
}

static long membarrier(const struct tt_site *site, enum tt_mutation mutation)
{
    if (tt_scenario->refuses_barrier) {
        errno = EPERM;
        return -1;
    }
    if (tt_current == NOBODY) return 0;
    tt_threads[tt_current].nbarriers++;
    if (mutation == TT_LEFT_OUT) return 0;
    tt_schedule();
    tt_take_note(tt_current, site, "membarrier begins", 0);
    tt_memory_fence(&tt_memory, tt_current, memory_order_seq_cst);
    for (int t = 0; t < tt_nthreads; t++)
        if (t != tt_current && is_registered(tt_threads[t].what->rank))
            tt_threads[t].barriers |= 1u << tt_current;
    tt_threads[tt_current].status = AWAITS_BARRIER;
    tt_schedule();
    tt_take_note(tt_current, site, "membarrier ends", 0);
    tt_memory_fence(&tt_memory, tt_current, memory_order_seq_cst);
    tt_tell(0);
    pass();
    return 0;
}

static long futex_wait(const struct tt_site *site, enum tt_mutation mutation,
                       const volatile void *word, uint64_t expected, uint32_t bits)
{
    const int location = location_of(word, sizeof(uint32_t), false);
    tt_threads[tt_current].waits++;
    tt_schedule();
    tt_threads[tt_current].armed = false;
    const uint64_t value = location == NOBODY ? tt_memory_plain(word, sizeof(uint32_t))
                                              : tt_memory_newest(&tt_memory, location);
    if (value != expected && mutation != TT_BLIND) {
        tt_take_note(tt_current, site, "does not wait: the word is", value);
        if (location != NOBODY) /* no later load of this thread finds an older value */
            tt_memory_read_at(&tt_memory, tt_current, location,
                              tt_memory.locations[location].nstores - 1, memory_order_relaxed);
        tt_tell(value);
        return -1;
    }
    tt_take_note(tt_current, site, "waits while the word is", value);
    if (tt_scenario->nobody_sleeps) tt_machine_fail("a rank sleeps that nobody wakes");
    tt_threads[tt_current].status = BLOCKED;
    tt_threads[tt_current].on = word;
    tt_threads[tt_current].bits = bits;
    tt_schedule();
    tt_take_note(tt_current, site, "wakes up", 0);
    tt_tell(value);
    pass();
    return 0;
}

static long futex_wake(const struct tt_site *site, enum tt_mutation mutation,
                       const volatile void *word, uint32_t bits)
{
    location_of(word, sizeof(uint32_t), false);
    tt_schedule();
    tt_take_note(tt_current, site, "FUTEX_WAKE", 0);
    tt_threads[tt_current].wakes++;
    for (int t = 0; t < tt_nthreads; t++)
        if (tt_threads[t].status == BLOCKED && tt_threads[t].on == word &&
            tt_threads[t].bits & bits && mutation != TT_LEFT_OUT)
            tt_threads[t].status = READY;
    tt_tell(0);
    pass();
    return 0;
}

long tt_machine_system_call(struct tt_site *site, long number, ...)
{
    const enum tt_mutation mutation = meet_site(site);
    va_list arguments;
    if (tt_current != NOBODY) tt_threads[tt_current].system_calls++;
    va_start(arguments, number);
    if (number == SYS_futex) {
        const volatile void *word = va_arg(arguments, void *);
        const int command = va_arg(arguments, int);
        const uint32_t value = va_arg(arguments, uint32_t);
        for (int i = 0; i < 2; i++) (void)va_arg(arguments, void *);
        const uint32_t bits = va_arg(arguments, uint32_t);
        va_end(arguments);
        if (command == FUTEX_WAIT_BITSET) return futex_wait(site, mutation, word, value, bits);
        if (command == FUTEX_WAKE_BITSET) return futex_wake(site, mutation, word, bits);
        tt_machine_fail("futex command %d", command);
    }
    const int command = va_arg(arguments, int);
    va_end(arguments);
    if (number != SYS_membarrier) tt_machine_fail("system call %ld", number);
    if (command == MEMBARRIER_CMD_GLOBAL_EXPEDITED) return membarrier(site, mutation);
    if (command != MEMBARRIER_CMD_REGISTER_GLOBAL_EXPEDITED)
        tt_machine_fail("membarrier(%d)", command);
    errno = ENOSYS;
    return is_registered(tt_machine_rank) ? 0 : -1;
}

int tt_machine_once(void (*function)(void))
{
    function();
    return 0;
}

/* The thread goes on when no other can, and finds what was stored long ago. */
int tt_machine_pause(void)
{
    if (tt_current == NOBODY) return 0;
    tt_threads[tt_current].status = PAUSED;
    tt_schedule();
    tt_take_note(tt_current, NULL, "goes on after a pause", 0);
    tt_tell(0);
    return 0;
}

int tt_machine_clock(struct timespec *now)
{
    *now = (struct timespec){.tv_sec = 1};
    return 0;
}

/* ---- For scenarios -------------------------------------------------------------------------- */

static int data_location(uint64_t *data)
{
    struct object *object = object_of(data);
    if (object->user == SHARED) return object->location;
    share(object, sizeof *data);
    tt_leave(MORE_SHARED);
}

static void race(int location, const char *what)
{
    const struct location *at = &tt_memory.locations[location];
    if (tt_memory.threads[tt_current].now.at[location] != at->nstores - 1)
        tt_machine_fail("thread %d %s data that it need not see", tt_current, what);
}

void tt_machine_write(uint64_t *data, uint64_t value)
{
    const int location = data_location(data);
    race(location, "writes over");
    tt_memory_store(&tt_memory, tt_current, location, memory_order_relaxed, value);
}

uint64_t tt_machine_read(uint64_t *data)
{
    const int location = data_location(data);
    race(location, "reads");
    /* Who writes next must have seen that this was read. */
    const uint64_t value = tt_memory_newest(&tt_memory, location);
    tt_memory_store(&tt_memory, tt_current, location, memory_order_relaxed, value);
    return value;
}

unsigned tt_machine_system_calls(void)
{
    return tt_threads[tt_current].system_calls;
}

unsigned tt_machine_fences(void)
{
    return tt_threads[tt_current].fences;
}

struct tt_machine_counts tt_machine_count(int rank)
{
    struct tt_machine_counts sum = {0};
    for (int t = 0; t < tt_nthreads; t++) {
        const struct thread *thread = &tt_threads[t];
        if (rank >= 0 && thread->what->rank != rank) continue;
        sum.waits += thread->waits;
        sum.barriers += thread->nbarriers;
        sum.arms += thread->arms;
        sum.wakes += thread->wakes;
    }
    return sum;
}

bool tt_machine_is_armed(void)
{
    return tt_threads[tt_current].armed;
}

void tt_machine_meet(void)
{
    tt_schedule();
    tt_memory_join(&tt_memory.met, &tt_memory.threads[tt_current].now);
    tt_nmet++;
    tt_threads[tt_current].status = AWAITS_MEETING;
    tt_schedule();
    tt_memory_join(&tt_memory.threads[tt_current].now, &tt_memory.met);
    tt_memory_join(&tt_memory.threads[tt_current].acquired, &tt_memory.met);
    tt_tell(0);
}

/* ---- Mutants -------------------------------------------------------------------------------- */

void tt_machine_mutate(const struct tt_site *site, enum tt_mutation mutation)
{
    mutant.site = site;
    mutant.mutation = mutation;
}

struct tt_site *tt_machine_sites(void)
{
    return sites;
}

void tt_forget_objects(int number)
{
    memset(objects, 0, sizeof objects);
    scenario_bit = mutant.site ? 0 : UINT64_C(1) << number;
}
