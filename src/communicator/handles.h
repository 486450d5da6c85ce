/* Which handles of the user are live: of communicators, streams, events and plans. A handle is
 * looked up before anything is read through it, so one that is no address is an error like any
 * other. */
#ifndef TT_COMMUNICATOR_HANDLES_H
#define TT_COMMUNICATOR_HANDLES_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"

enum tt_handle_kind { TT_HANDLE_COMM = 1, TT_HANDLE_STREAM, TT_HANDLE_EVENT, TT_HANDLE_PLAN };

/* Handles that were looked up, two for each hash: what a call asks for is there nearly always. An
 * entry is a live handle with its kind, which is not 0, in the low bits; or 0. Changed under the
 * lock of handles.c. A child made by fork finds none. */
enum { TT_RECENT_HANDLES = 1024 };
extern _Atomic uintptr_t tt_recent_handles[TT_RECENT_HANDLES][2];

static inline _Atomic uintptr_t *tt_recent_of(uintptr_t entry)
{
    return tt_recent_handles[(entry >> 4) * 0x9e3779b97f4a7c15u >> 54];
}

/* Registers what the user will get; its address is a multiple of 16. */
TT_NODISCARD tt_status tt_handle_add(const void *handle, enum tt_handle_kind kind);
/* Before what the handle stands for is freed. NULL, and what was never added, are allowed. */
void tt_handle_remove(const void *handle, enum tt_handle_kind kind);

/* Whether it is a live handle of this kind. Any thread. */
bool tt_handle_is_live(const void *handle, enum tt_handle_kind kind);
/* TT_OK, or TT_ERR_ARGUMENT: no live handle of this kind. Any thread. */
TT_NODISCARD tt_status tt_handle_find(const void *handle, enum tt_handle_kind kind);
/* True: it is a live handle that this process has made. */
static inline bool tt_handle_is_recent(const void *handle, enum tt_handle_kind kind)
{
    const uintptr_t entry = (uintptr_t)handle | (uintptr_t)kind;
    _Atomic uintptr_t *recent = tt_recent_of(entry);
    const bool is_recent = atomic_load_explicit(&recent[0], memory_order_relaxed) == entry ||
                           atomic_load_explicit(&recent[1], memory_order_relaxed) == entry;
    return is_recent && (uintptr_t)handle % 16 == 0;
}
TT_NODISCARD static inline tt_status tt_handle_check(const void *handle, enum tt_handle_kind kind)
{
    return tt_handle_is_recent(handle, kind) ? TT_OK : tt_handle_find(handle, kind);
}

#endif
