/* The table of live handles: open addressing, with a mark where a handle was removed. */
#include "communicator/handles.h"

#include <stdlib.h>

#include "base/process_lock.h"
#include "communicator/calling.h"

/* Owned by this file; the last one is never freed. */
struct table {
    size_t room; /* a power of two */
    size_t used; /* entries that are not 0 */
    uintptr_t entries[];
};

enum { LEAST_ROOM = 64 };
static const uintptr_t removed = 15; /* no handle has these low bits alone */

_Static_assert(TT_RECENT_HANDLES == 1 << 10, "tt_recent_of takes the upper 10 bits of a hash");
_Atomic uintptr_t tt_recent_handles[TT_RECENT_HANDLES][2];

static struct tt_process_lock lock = TT_PROCESS_LOCK;
static struct table *table; /* guarded by lock */

static const char *const names[] = {[TT_HANDLE_COMM] = "communicator",
                                    [TT_HANDLE_STREAM] = "stream",
                                    [TT_HANDLE_EVENT] = "event",
                                    [TT_HANDLE_PLAN] = "plan"};

static uintptr_t entry_of(const void *handle, enum tt_handle_kind kind)
{
    return (uintptr_t)handle | (uintptr_t)kind;
}

/* Where the entry is, or the first 0 after where it would be. The table has a 0. */
static uintptr_t *place_of(struct table *in, uintptr_t entry)
{
    size_t at = (size_t)((entry >> 4) * 0x9e3779b97f4a7c15u >> 32);
    while (in->entries[at & (in->room - 1)] && in->entries[at & (in->room - 1)] != entry) at++;
    return &in->entries[at & (in->room - 1)];
}

/* Room for one more entry; marks of removed ones are left out. */
static bool make_room_locked(void)
{
    if (table && 2 * (table->used + 1) <= table->room) return true;
    size_t nlive = 0, room = LEAST_ROOM;
    for (size_t i = 0; table && i < table->room; i++)
        nlive += table->entries[i] && table->entries[i] != removed;
    while (room < 4 * (nlive + 1)) room *= 2;
    struct table *made = calloc(1, sizeof *made + room * sizeof made->entries[0]);
    if (!made) return false;
    made->room = room;
    made->used = nlive;
    for (size_t i = 0; table && i < table->room; i++)
        if (table->entries[i] && table->entries[i] != removed)
            *place_of(made, table->entries[i]) = table->entries[i];
    struct table *before = table;
    table = made;
    free(before);
    return true;
}

static void forget_recent(void)
{
    for (int i = 0; i < TT_RECENT_HANDLES; i++)
        for (int k = 0; k < 2; k++)
            atomic_store_explicit(&tt_recent_handles[i][k], 0, memory_order_relaxed);
}

static void install_fork_handler(void)
{
    (void)pthread_atfork(NULL, NULL, forget_recent);
}

tt_status tt_handle_add(const void *handle, enum tt_handle_kind kind)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, install_fork_handler);
    tt_process_lock(&lock);
    const bool have = make_room_locked();
    if (have) {
        table->used++;
        *place_of(table, entry_of(handle, kind)) = entry_of(handle, kind);
    }
    tt_process_unlock(&lock);
    return have ? TT_OK
                : tt_fail(TT_ERR_SYSTEM, "out of memory for the handle of a %s", names[kind]);
}

void tt_handle_remove(const void *handle, enum tt_handle_kind kind)
{
    const uintptr_t entry = entry_of(handle, kind);
    if (!handle) return;
    tt_process_lock(&lock);
    uintptr_t *place = table ? place_of(table, entry) : NULL;
    if (place && *place == entry) *place = removed;
    _Atomic uintptr_t *recent = tt_recent_of(entry);
    for (int i = 0; i < 2; i++)
        if (atomic_load_explicit(&recent[i], memory_order_relaxed) == entry)
            atomic_store_explicit(&recent[i], 0, memory_order_relaxed);
    tt_process_unlock(&lock);
}

/* The entry will be found at once next time. */
static void note_locked(uintptr_t entry)
{
    _Atomic uintptr_t *recent = tt_recent_of(entry);
    const uintptr_t first = atomic_load_explicit(&recent[0], memory_order_relaxed);
    if (first) atomic_store_explicit(&recent[1], first, memory_order_relaxed);
    atomic_store_explicit(&recent[0], entry, memory_order_relaxed);
}

/* A child may ask about a communicator of its parent, and end it. It makes no calls, so each use
 * looks here. */
static bool is_inherited(const void *handle, enum tt_handle_kind kind)
{
    return kind == TT_HANDLE_COMM && tt_comm_is_inherited(handle);
}

bool tt_handle_is_live(const void *handle, enum tt_handle_kind kind)
{
    const uintptr_t entry = entry_of(handle, kind);
    if (!handle) return false;
    tt_process_lock(&lock);
    const bool is_live = (uintptr_t)handle % 16 == 0 && table && *place_of(table, entry) == entry;
    if (is_live && !is_inherited(handle, kind)) note_locked(entry);
    tt_process_unlock(&lock);
    return is_live;
}

tt_status tt_handle_find(const void *handle, enum tt_handle_kind kind)
{
    if (!handle) return tt_fail(TT_ERR_ARGUMENT, "the %s is NULL", names[kind]);
    if (tt_handle_is_live(handle, kind)) return TT_OK;
    if (kind == TT_HANDLE_COMM) return tt_comm_fail_removed(handle);
    return tt_fail(TT_ERR_ARGUMENT, "%p is no %s: never made, or destroyed already", handle,
                   names[kind]);
}

tt_status tt_comm_check_handle(tuttiComm_t comm)
{
    return tt_handle_check(comm, TT_HANDLE_COMM);
}
