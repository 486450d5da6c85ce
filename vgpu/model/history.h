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
    bool foreign; /* in reachable memory: written by the host or another process, as far as known */
    uint64_t born;  /* when it was written; in reachable memory model->landed at that time */
    uint64_t store; /* in reachable memory: the number of the store that waits in a buffer, or 0 */
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
    bool foreign;   /* in reachable memory: the host or another process has written there */
    struct entry *at;
    struct vg_releases *dropped; /* in reachable memory: of entries that are not kept */
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
/* The first entries go, their releases stay. */
void vg_entries_fold(struct vg_history *history, uint32_t count);
/* How many entries are no stores that wait in buffers: these come first. */
uint32_t vg_entries_landed(const struct vg_history *history);

/* The histories of a word of memory that others can reach from now on: their newest entries stay,
 * with what these carry. What was released at scope .sys there becomes published. */
void vg_histories_share(struct vg_history **histories, struct vg_clock **published);

/* --- history.c, for reachable memory as well --- */

struct reached { /* one access to a history */
    struct vg_block_clock *block;
    struct vg_thread *self;
    struct vg_history *history;
    const struct vg_how *how;
    uint32_t thread;
    bool others; /* what the thread itself wrote and read does not count */
};

bool vg_morally_strong(const struct reached *reached, const struct entry *entry);
bool vg_was_read_by(const struct entry *entry, uint32_t serial, uint32_t thread);
void vg_add_reader(struct entry *entry, struct reader reader);
/* A new entry at i, written by the thread. */
struct entry *vg_entry_write(const struct reached *reached, uint32_t i, const void *value);
/* An access of other bytes than those of a history that it overlaps. */
bool vg_reads_across(struct vg_region *region, uint64_t offset, uint32_t nbytes);

static inline bool vg_history_overlaps(const struct vg_history *history, uint64_t offset,
                                       uint32_t nbytes)
{
    return history->offset < offset + nbytes && offset < history->offset + history->nbytes;
}

#endif
