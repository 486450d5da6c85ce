/* The histories' storage: entries of words that were accessed strongly. See history.c. */
#ifndef VGPU_MODEL_HISTORY_H
#define VGPU_MODEL_HISTORY_H

#include "internal.h"

enum { MOST_READERS = 12 };

struct reader {
    uint32_t block, epoch;
    uint16_t thread;
};

struct readers {
    uint32_t n;
    struct reader at[MOST_READERS];
};

struct entry {
    unsigned char value[16];
    uint32_t block, epoch; /* of the writer; block 0: nobody */
    uint16_t thread;
    uint8_t scope;
    bool strong;
    bool adjacent; /* a read-modify-write of the entry before */
    bool crowded;  /* it had more readers than are kept */
    bool stored;   /* in reachable memory: a write that read nothing */
    uint64_t born;
    struct vg_releases *releases;
    struct readers *readers;
};

struct vg_history {
    struct vg_history *next;            /* of the word */
    struct vg_history *behind, *before; /* in the model's ring */
    struct vg_model *model;
    struct vg_region *region;
    uint64_t location, offset; /* location: names it in the threads' spots */
    uint32_t nbytes, n, room;
    uint32_t least; /* the oldest entry that may still be read */
    bool ended;     /* by an access of other bytes: says who saw which write, and no values */
    struct entry *at;
};

/* The location's history; a new one, or one that had ended, goes on with the bytes. Those of other
 * bytes that it overlaps end. Others may be shortened or go: a history is good until the next call.
 */
struct vg_history *vg_history_make(struct vg_model *model, struct vg_region *region,
                                   uint64_t offset, uint32_t nbytes);
/* NULL: it has none. It may have ended. */
struct vg_history *vg_history_find(const struct vg_cell *cell, uint64_t offset, uint32_t nbytes);
struct entry *vg_entry_insert(struct vg_history *history, uint32_t i);
/* The entries first to first + count - 1 go. */
void vg_entries_drop(struct vg_history *history, uint32_t first, uint32_t count);

static inline bool vg_history_overlaps(const struct vg_history *history, uint64_t offset,
                                       uint32_t nbytes)
{
    return history->offset < offset + nbytes && offset < history->offset + history->nbytes;
}

#endif
