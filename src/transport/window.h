/* Windows: memory from tuttiMemAlloc and registered buffers. A window is a memfd that the other
 * ranks of the host can map, to read and write it in place. */
#ifndef TT_TRANSPORT_WINDOW_H
#define TT_TRANSPORT_WINDOW_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

/* A window of this process. Owned by the registry. */
struct tt_window {
    char *base;
    size_t nbytes;
    uint64_t id; /* unique on this host while it lives: pid and a counter */
    int fd;
    int users; /* registrations; 0: from tuttiMemAlloc */
    struct tt_window *next, *next_by_id;
};

TT_NODISCARD tt_status tt_window_create(void **memory, size_t nbytes);
/* Gives the memory back to the system at once, also where other ranks still have it mapped. */
TT_NODISCARD tt_status tt_window_free(void *memory);
/* Makes the pages that lie wholly inside [memory, memory + nbytes) a window, in place: their
 * contents move to shared memory behind the same addresses. Nobody may touch them during the call;
 * a fork shares them from then on. Memory that is not private, anonymous and writable (or is the
 * main thread's stack), is too short or pinned, stays as it is: *adopted = NULL. Any thread: of
 * threads that adopt the same pages at once one moves them, and the others share its window. */
TT_NODISCARD tt_status tt_window_adopt(void *memory, size_t nbytes, void **adopted);
/* Undoes one adoption: with the last one the pages are private again, unless they are pinned: then
 * they stay shared until they are unmapped. Any thread. */
void tt_window_release(void *adopted);
/* A device is going to use the pages that [memory, memory + nbytes) has now: until unpin, called as
 * often, neither adopt nor release puts others in their place. Waits for a move that is under way,
 * so pin before the device learns of the pages. A device that looks its memory up by a window's id
 * need not: no later window has that id. Any thread. */
TT_NODISCARD tt_status tt_window_pin(const void *memory, size_t nbytes);
/* Nothing happens where there is no such pin. */
void tt_window_unpin(const void *memory, size_t nbytes);
/* The window that holds [memory, memory + nbytes), copied to *window; false when there is none. Any
 * thread. */
bool tt_window_find(const void *memory, size_t nbytes, struct tt_window *window);

/* Grows whenever the process gets or loses a window: while it is the same, tt_window_find finds the
 * same. Takes no lock. Any thread: a thread that has been given memory, or told that it was freed,
 * by another thread sees a number that counts the window's change. */
uint64_t tt_window_changes(void);

/* Whether this process made the window: its parent may have, before it forked, and then its memory
 * is not to be given back here, and its descriptor not to be had. */
bool tt_window_is_own(const struct tt_window *window);

/* Grows whenever the process loses a window: while it is the same, each window that existed still
 * does. Like tt_window_changes in the rest. */
uint64_t tt_window_losses(void);

/* Whether this process still has window `id`; a lookup in a table. Any thread. */
bool tt_window_exists(uint64_t id);

/* The windows of one other rank that are mapped here. A window's name (windows.c) is another number
 * than its id; the low half of the name is the index in that rank's list. Owned by a room. */
struct tt_window_map {
    struct tt_mapped_window *windows; /* [number] */
    size_t number;
};
enum { TT_MOST_MAPPED = 1 << 16 };
/* Where a window is mapped, and its size; NULL when it is not. */
char *tt_window_map_find(const struct tt_window_map *map, uint64_t name, size_t *nbytes);
/* Makes the mapping of a window, which is there, writable. False: the kernel refuses. */
bool tt_window_map_writable(struct tt_window_map *map, uint64_t name);
/* Maps fd (which stays the caller's) as the window of this name, in place of another that has its
 * index. TT_ERR_USAGE when there are too many. */
TT_NODISCARD tt_status tt_window_map_add(struct tt_window_map *map, uint64_t name, int fd,
                                         size_t nbytes);
/* Unmaps the window of an index, if one is mapped. */
void tt_window_map_drop(struct tt_window_map *map, uint32_t index);
void tt_window_map_fini(struct tt_window_map *map);
/* Bytes of this process's memory held: not those of the windows, which are their owners'. */
size_t tt_window_map_bytes(const struct tt_window_map *map);

#endif
