/* What the model's parts share. model.c: grids, blocks, threads; order.c: fences, barriers, release
 * and acquire patterns; notes.c: races; history.c: values of words accessed strongly; reachable.c:
 * buffers of memory that the host can address; published.c: histories of that memory. */
#ifndef VGPU_MODEL_INTERNAL_H
#define VGPU_MODEL_INTERNAL_H

#include <string.h>

#include <vgpu/model.h>
#include <vgpu/random.h>

#include "clock.h"

/* Which threads a strong operation of a scope reaches: .cta and .cluster, .gpu, .sys. A cluster has
 * one block. */
enum vg_reach { VG_REACH_CTA, VG_REACH_GPU, VG_REACH_SYS, VG_REACHES };

static inline enum vg_reach vg_reach(unsigned scope)
{
    if (scope == VG_SCOPE_SYS) return VG_REACH_SYS;
    return scope == VG_SCOPE_GPU ? VG_REACH_GPU : VG_REACH_CTA;
}

/* What release patterns gave away, by who may take it: the threads of a block, of a device, all.
 * A release of scope .gpu by a thread of block b and device d is in the lists of b and d, so an
 * acquire of scope s reads the lists of its own block, (s >= .gpu) its own device and (s = .sys)
 * all: each scope includes the other's thread (8.7, condition 1). Immutable, counted; NULL is
 * empty. The lists of blocks that have ended are dropped (dead_below: such blocks have lower serial
 * numbers). With too many lists those of single blocks become one that every acquire may take: that
 * orders more than the manual does, never less. */
struct vg_releases;
struct vg_releases *vg_releases_get(struct vg_releases *releases);
void vg_releases_put(struct vg_releases *releases);
void vg_releases_add(struct vg_releases **into, const struct vg_block_clock *block,
                     struct vg_clock *const released[VG_REACHES]);
void vg_releases_join(struct vg_releases **into, struct vg_releases *other);
struct vg_clock *vg_releases_find(const struct vg_releases *releases, enum vg_reach reach,
                                  uint32_t block, int device);
struct vg_clock *vg_releases_any(const struct vg_releases *releases);

/* The first part of a release pattern that waits for its strong write: a fence, or a release
 * operation on a location. What was known when the thread's epoch was epoch; with epoch 0 known
 * says it all. */
struct vg_released {
    struct vg_clock *known;
    uint32_t epoch;
};

/* What strong reads observed and an acquire may take. Most is never taken, so the lists are kept as
 * they are until one is, or until there are too many. */
struct vg_pending {
    struct vg_clock *clock[VG_REACHES];
    uint32_t n;
    struct vg_releases *lists[4];
};

/* A location that the thread accessed strongly: its release operations there, and what its reads
 * there observed that an acquire operation there may still take. */
struct vg_spot {
    uint64_t location; /* where its bytes lie */
    struct vg_clock *released[VG_REACHES];
    bool failed; /* by a compare and swap of scope .sys that failed: buffers are not yet flushed */
    struct vg_pending pending;
};

/* A table by location; location 0 is a free slot, at least half are free. */
struct vg_spots {
    uint32_t n, room; /* room: a power of two */
    struct vg_spot at[];
};

struct vg_thread {
    struct vg_clock *known;
    uint32_t epoch;
    struct vg_released fence[VG_REACHES]; /* the latest release fence of at least this reach */
    struct vg_pending pending;            /* observed by strong reads; a fence may acquire it */
    struct vg_spots *spots;
};

struct vg_grid_clock {
    struct vg_model *model;
    int device;
    uint32_t first, nblocks, nthreads; /* first: serial number of block 0 */
    uint32_t known_below;              /* blocks below have ended before this grid began */
    uint32_t copies; /* serial number that block 0 has for copies beside its threads; 0: none yet */
    struct vg_clock *before, *done;
};

enum { VG_BLOCK_BARRIERS = 16 };
struct vg_block_clock {
    struct vg_grid_clock *grid;
    struct vg_model *model;
    uint32_t serial;
    uint32_t floor;         /* every thread knows all threads of the block up to this epoch */
    struct vg_clock *sc[2]; /* of the block's fence.sc: of scope .cta, of wider ones */
    struct vg_clock *arrived[VG_BLOCK_BARRIERS]; /* what came to each barrier by bar.arrive */
    struct vg_clock *copied; /* a thread's copies arrive at an mbarrier: what they give away */
    struct vg_thread threads[];
};

struct vg_past {
    struct vg_clock *known;
};

/* For reports and for scopes: a grid that runs or ran. */
struct vg_grid_record {
    uint64_t number;
    uint32_t first, nblocks;
    int device;
    bool runs;
    bool copies; /* the serial numbers of the grid's copies beside their threads */
};

/* One access in the notes. bits: the thread in the block (10), the bytes of the word (4), whether
 * it is a read by ld.global.nc (1). */
struct vg_access {
    uint32_t block, epoch; /* block: serial number; 0: none */
    uint16_t bits;
    uint16_t kind; /* index into the model's kinds */
};

static inline uint32_t vg_access_thread(const struct vg_access *access)
{
    return access->bits & 1023u;
}
static inline uint32_t vg_access_mask(const struct vg_access *access)
{
    return (uint32_t)access->bits >> 10 & 15;
}
enum { VG_NC_BIT = 1 << 14 };

/* The host's serial number: one thread that counts strong writes to reachable memory as epochs. */
#define VG_HOST (UINT32_MAX - 1)

enum vg_action { VG_READS, VG_WRITES, VG_CHANGES, VG_ACTIONS };

/* An access as its instruction says it, with what it does. Index 0 is for no access. */
struct vg_kind {
    struct vg_how how;
    uint8_t action;
};

struct vg_seen_how {
    const struct vg_how *how;
    struct vg_how copy;
    uint16_t kind[VG_ACTIONS];
};

struct vg_buffer;
struct vg_alias_fences;

/* A race of an acquire, unless the acquire itself makes the other access known. */
struct vg_suspect {
    struct vg_access other, mine;
    uint64_t word;
};
enum { VG_MOST_SUSPECTS = 64 }; /* more than four words have accesses in their notes */

struct vg_model {
    struct vg_model_settings settings;
    struct vg_model_counts counts;
    uint64_t random;
    uint64_t now;      /* accesses so far */
    uint64_t deadline; /* of the oldest store in a buffer */
    uint32_t next;     /* serial number of the next grid's first block */
    struct vg_grid_record *grids;
    uint32_t ngrids, grids_room;
    uint32_t forgotten_below; /* blocks whose grids have no record any more */

    struct vg_kind *kinds;
    uint32_t nkinds, kinds_room;
    uint16_t *kind_slots;
    struct vg_seen_how seen[256];

    uint64_t *races; /* pairs of places that were reported: an open table */
    uint32_t nraces, races_room;

    struct vg_suspect suspects[VG_MOST_SUSPECTS];
    uint32_t nsuspects;

    struct vg_history *histories; /* a ring, the one that was trimmed longest ago first */
    uint64_t nentries;            /* of all histories */

    struct vg_looked_up looked_up[VG_LOOKED_UP];
    uint64_t nspots; /* slots of all threads */
    struct vg_clock *sc_all;
    /* What the host may know: what was released at scope .sys to reachable memory and has left the
     * buffers. Of the host itself it knows which strong writes of scope .sys those were. */
    struct vg_clock *published;
    uint32_t host_epoch;
    uint64_t stores; /* that ever went into a buffer: each has a number from 1 on */
    uint64_t landed; /* stores and read-modify-writes that have reached reachable memory */
    struct vg_clock *(*sc_device)[2];     /* by device + 1: fence.sc of scope .gpu, of .sys */
    struct vg_buffer **buffers;           /* by device + 1 */
    struct vg_alias_fences *alias_fences; /* alias.c; NULL: there was none */
    uint32_t ndevices;
};

static inline uint32_t vg_random_below(struct vg_model *model, uint32_t n)
{
    return (uint32_t)((vg_random(&model->random) >> 32) * n >> 32);
}

static inline struct vg_seen_how *vg_seen(struct vg_model *model, const struct vg_how *how)
{
    return &model->seen[(uintptr_t)how / 16 % 256];
}

/* Whether a write, read or fence of another thread precedes what the thread does now. */
static inline bool vg_known(const struct vg_block_clock *block, uint32_t thread, uint32_t serial,
                            uint32_t other, uint32_t epoch)
{
    if (serial < block->grid->known_below) return true;
    if (serial == block->serial) {
        if (other == thread || epoch <= block->floor) return true;
        /* What a thread gives away ends its epoch: nobody else knows the present one. */
        if (epoch >= block->threads[other].epoch) return false;
    }
    return epoch <= vg_clock_epoch_again(block->model->looked_up, block->threads[thread].known,
                                         serial, other);
}

/* model.c */
/* NULL: the grid ended long ago and was forgotten. */
const struct vg_grid_record *vg_record_of(const struct vg_model *model, uint32_t serial);
uint16_t vg_kind_of(struct vg_model *model, const struct vg_how *how, enum vg_action action);
void vg_need_device(struct vg_model *model, int device);
/* The serial number of the block's copies beside its threads. 0: there are no numbers left. */
uint32_t vg_copies_of(const struct vg_block_clock *block);
bool vg_scope_includes(const struct vg_block_clock *block, unsigned scope, uint32_t serial);

/* order.c */
void vg_spots_free(struct vg_model *model, struct vg_spots *spots);
void vg_pending_clear(struct vg_pending *pending);
/* What the strong write to the location gives away: its release patterns of each reach. Counted
 * references, NULL for none. Ends the epoch when the write itself releases. */
void vg_release(struct vg_block_clock *block, uint32_t thread, const struct vg_how *how,
                uint64_t location, struct vg_clock *released[VG_REACHES]);
/* A release operation that writes nothing: the thread's next strong write to the location ends its
 * release pattern. */
void vg_release_begin(struct vg_block_clock *block, uint32_t thread, const struct vg_how *how,
                      uint64_t location);
/* Before a strong write: what such an operation of scope .sys released leaves the buffers. */
void vg_release_flush(struct vg_block_clock *block, uint32_t thread, uint64_t location);
/* The strong read observed writes that carry these releases. */
void vg_acquire(struct vg_block_clock *block, uint32_t thread, const struct vg_how *how,
                uint64_t location, struct vg_releases *releases);

/* notes.c: the region's notes, by pages of 1024 words. */
struct vg_more;
struct vg_cell {
    struct vg_access write, read; /* the last ones */
    struct vg_more *more;
};
struct vg_history;
struct vg_more {
    struct vg_history *histories;
    uint32_t n, room;
    uint32_t nwrites, nstrong; /* of the n */
    struct vg_access *at;      /* further accesses that a later one may race with */
};
enum { VG_PAGE_WORDS = 1024, VG_MORE_ACCESSES = 12 };
struct vg_notes {
    uint64_t npages;
    struct vg_page {
        struct vg_cell *cells; /* a cell a word; or NULL: */
        struct vg_cell *whole; /* one for all words, without `more`; NULL: nobody accessed them */
    } pages[];
};
struct vg_page *vg_page_of(struct vg_region *region, uint64_t page);
struct vg_cell *vg_cell_make(struct vg_region *region, uint64_t word);
struct vg_more *vg_more_of(struct vg_cell *cell);
void vg_note(struct vg_block_clock *block, uint32_t thread, struct vg_region *region,
             uint64_t offset, const struct vg_how *how, enum vg_action action);
void vg_note_copy(struct vg_block_clock *block, uint32_t thread, uint32_t number,
                  struct vg_region *region, uint64_t offset, const struct vg_how *how,
                  enum vg_action action);
/* To be called when an acquire has taken what it observed: reports the races that vg_note found. */
void vg_suspects_judge(struct vg_block_clock *block, uint32_t thread, struct vg_region *region);
void vg_notes_free(struct vg_region *region);
/* bulk.c. how: of each size, at its own index. */
void vg_note_bulk(struct vg_block_clock *block, uint32_t thread, struct vg_region *region,
                  uint64_t offset, uint64_t nbytes, const struct vg_how *how,
                  enum vg_action action);

/* The access is nobody's, this thread's, of a grid that ended before this one began, or of before
 * the block's last barrier. A read by ld.global.nc forbids writes until its grid has ended. */
static inline bool vg_settled(const struct vg_block_clock *block, uint32_t thread,
                              const struct vg_access *access)
{
    if (access->block < block->grid->known_below) return true;
    return access->block == block->serial && (access->bits & VG_NC_BIT) == 0 &&
           (access->epoch <= block->floor || vg_access_thread(access) == thread);
}

/* Whether a weak access races with nothing but, perhaps, the cell's own write and read. A read
 * races with no further reads; a write would have to look at all, and ends the word's histories. */
static inline bool vg_stands_alone(const struct vg_cell *cell, enum vg_action action)
{
    if (cell->more == NULL) return true;
    return action == VG_READS ? cell->more->nwrites == 0
                              : cell->more->n == 0 && cell->more->histories == NULL;
}

/* Notes an access as vg_note does, where that is simple: the access is weak and of whole words,
 * each word's last write and last read are settled, and no further access of a word could race with
 * this one. False: a word is not simple; neither it nor a word behind it was noted. */
static inline bool vg_note_simple(struct vg_block_clock *block, uint32_t thread,
                                  const struct vg_region *region, uint64_t offset,
                                  const struct vg_how *how, enum vg_action action)
{
    if (how->order != VG_WEAK || how->nc || (how->nbytes & 3) != 0 || region->notes == NULL ||
        region->alias != NULL)
        return false;
    const uint64_t word = offset / 4;
    struct vg_cell *cell = region->notes->pages[word / VG_PAGE_WORDS].cells;
    const struct vg_seen_how *seen = vg_seen(block->model, how);
    if (cell == NULL || seen->how != how || seen->kind[action] == 0 ||
        memcmp(&seen->copy, how, sizeof *how) != 0)
        return false;
    const struct vg_access mine = {.block = block->serial,
                                   .epoch = block->threads[thread].epoch,
                                   .bits = (uint16_t)(15u << 10 | thread),
                                   .kind = seen->kind[action]};
    cell += word % VG_PAGE_WORDS;
    for (const struct vg_cell *end = cell + how->nbytes / 4; cell < end; cell++) {
        if (!vg_stands_alone(cell, action) || !vg_settled(block, thread, &cell->write) ||
            !vg_settled(block, thread, &cell->read))
            return false;
        if (action == VG_READS) {
            cell->read = mine;
        } else {
            cell->write = mine;
            cell->read = (struct vg_access){0};
        }
    }
    return true;
}

/* races.c. alias: the region whose address the first access used, if it was another one. */
void vg_report(struct vg_block_clock *block, struct vg_region *region,
               const struct vg_region *alias, uint64_t word, const struct vg_access *first,
               const struct vg_access *second);

/* alias.c */
void vg_alias_leave(struct vg_region *region);
void vg_alias_fences_free(struct vg_alias_fences *fences);
/* Whether an access at another address of the same memory precedes what the thread does now. */
bool vg_alias_linked(const struct vg_block_clock *block, uint32_t thread,
                     const struct vg_access *other);
/* The word's cell, perhaps one of its whole page; NULL: it has none. */
const struct vg_cell *vg_alias_cell(const struct vg_region *region, uint64_t word);
/* Whether a word of the page was accessed at another address. */
bool vg_alias_noted(const struct vg_region *region, uint64_t page);

/* history.c */
/* An access ends the histories that it overlaps. Those of which a weak write (NULL: a strong
 * access) writes all bytes go: no earlier write counts there any more. */
void vg_histories_end(struct vg_region *region, uint64_t offset, uint32_t nbytes,
                      const struct vg_how *weak);
void vg_histories_free(struct vg_history *history);
void vg_history_load(struct vg_block_clock *block, uint32_t thread, struct vg_region *region,
                     uint64_t offset, const struct vg_how *how, void *value);
void vg_history_store(struct vg_block_clock *block, uint32_t thread, struct vg_region *region,
                      uint64_t offset, const struct vg_how *how, const void *value);
/* The bytes have been changed from old to value; value is NULL when nothing was written. */
void vg_history_change(struct vg_block_clock *block, uint32_t thread, struct vg_region *region,
                       uint64_t offset, const struct vg_how *how, const void *old,
                       const void *value);
/* Whether the thread, or a read that it knows of, has read what the strong write wrote, directly or
 * through read-modify-writes: then the write precedes what the thread does now (8.9.5). True as
 * well when the write is too old to be in a history. others: by a read of another thread. */
bool vg_history_saw(struct vg_block_clock *block, uint32_t thread, struct vg_region *region,
                    uint64_t word, const struct vg_access *access, bool others);

/* A copy of the driver's has read the bytes, a flag perhaps: what was released with their values
 * comes before it. */
void vg_history_copied(struct vg_block_clock *block, uint32_t thread, struct vg_region *region,
                       uint64_t offset, uint64_t nbytes);

/* published.c: histories of reachable memory; the values are the buffer's. */
/* When a load or an atomic read the bytes. */
struct vg_look {
    uint64_t landed;            /* model->landed then */
    struct vg_clock *published; /* model->published then; borrowed */
    uint64_t store;             /* the device's own store that waits, whose bytes these are, or 0 */
    bool mixed;                 /* stores that wait gave some of the bytes, or several did */
};
void vg_published_load(struct vg_block_clock *block, uint32_t thread, struct vg_region *region,
                       uint64_t offset, const struct vg_how *how, const struct vg_look *look,
                       const void *value);
/* number: of the store in the buffer; 0: it has reached the bytes. A weak store counts where there
 * is a history of its bytes. */
void vg_published_store(struct vg_block_clock *block, uint32_t thread, struct vg_region *region,
                        uint64_t offset, const struct vg_how *how, const void *value,
                        uint64_t number);
/* value is NULL when nothing was written. */
void vg_published_change(struct vg_block_clock *block, uint32_t thread, struct vg_region *region,
                         uint64_t offset, const struct vg_how *how, const struct vg_look *look,
                         const void *old, const void *value);
/* The store has left its buffer. */
void vg_published_land(struct vg_model *model, struct vg_region *region, uint64_t offset,
                       uint32_t nbytes, uint64_t number);

/* reachable.c */
void vg_buffer_free(struct vg_buffer *buffer);
struct vg_look vg_buffer_load(struct vg_model *model, int device, struct vg_region *region,
                              uint64_t offset, const struct vg_how *how, void *value);
/* The number of the store; 0: it did not go into a buffer. */
uint64_t vg_buffer_store(struct vg_model *model, int device, struct vg_region *region,
                         uint64_t offset, const struct vg_how *how, const void *value);
/* Returns whether the bytes were written; value: what they became. */
bool vg_buffer_change(struct vg_model *model, int device, struct vg_region *region, uint64_t offset,
                      const struct vg_how *how, vg_change *change, void *arg, void *old,
                      void *value);

/* bytes.c: of reachable memory; each access of up to 16 bytes is one for everybody. */
void vg_bytes_read(const unsigned char *from, void *value, uint64_t nbytes);
void vg_bytes_write(unsigned char *to, const void *value, uint64_t nbytes);
/* *to becomes value if it is old; else old becomes what it is. */
bool vg_bytes_exchange(unsigned char *to, void *old, const void *value, uint32_t nbytes);
/* What becomes published when the device's latest store leaves the buffer. */
void vg_buffer_publish(struct vg_model *model, int device, struct vg_clock *released);
void vg_buffer_flush(struct vg_model *model, int device);
void vg_buffer_renew(struct vg_model *model, int device); /* no older value is read any more */
void vg_buffer_forget(struct vg_model *model, const struct vg_region *region);
void vg_buffers_drain(struct vg_model *model); /* those stores whose time has come */

#endif
