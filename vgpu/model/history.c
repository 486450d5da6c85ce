/* Values of words that are accessed strongly: their last writes, in coherence order (8.9.6).
 *
 *   oldest                                        newest, as in the region's bytes
 *   entry 0 ---- entry 1 ---- entry 2 ---- ... ---- entry n-1
 *                   |  writer (thread, epoch), what a reader of it may acquire,
 *                   |  the threads that have read it, with their epochs
 *
 * A read may return any entry from the newest one on that causality makes visible to it: one whose
 * writer is known to the thread (8.10.6), or that a read which is known to the thread has returned,
 * its own reads included (8.9.5 "observation, then base causality", 8.10.5). A write goes behind
 * that entry (8.10.1); it need not be the newest unless nothing allows the other writes to be
 * newer. A read-modify-write reads the newest entry and becomes the newest, and nothing enters
 * before it (8.10.3).
 *
 * What is given up only forbids more: of an entry that has more readers than are kept, no older
 * entry may be read any more; entries beyond the depth are dropped, the oldest first; an entry
 * whose successor is older than settings.late accesses is dropped, so every write becomes visible.
 *
 * How much is kept in all: entries.c. Memory that others can reach: published.c.
 *
 * Weak accesses use the bytes. A weak write, or a strong access of another size, ends the histories
 * that it overlaps: it is ordered after all writes there, or it races with them. An ended history
 * tells who saw its writes until a weak write of all its bytes. When its bytes are accessed again
 * it goes on with an entry of nobody's, which is visible to all. */
#include "history.h"

#include <stdlib.h>
#include <string.h>

static struct reached reach(struct vg_block_clock *block, uint32_t thread, struct vg_region *region,
                            uint64_t offset, const struct vg_how *how)
{
    struct reached reached = {.block = block,
                              .self = &block->threads[thread],
                              .history = vg_history_make(block->model, region, offset, how->nbytes),
                              .how = how,
                              .thread = thread};
    struct vg_history *history = reached.history;
    const uint64_t now = block->model->now, late = block->model->settings.late;
    uint32_t old = 0;
    for (uint32_t i = 1; i < history->n; i++)
        if (now - history->at[i].born > late) old = i;
    vg_entries_drop(history, 0, old);
    return reached;
}

static bool is_own(const struct reached *reached, uint32_t serial, uint32_t thread)
{
    return reached->others && serial == reached->block->serial && thread == reached->thread;
}

static bool was_read(const struct reached *reached, const struct entry *entry)
{
    const struct vg_block_clock *block = reached->block;
    for (uint32_t i = 0; entry->readers != NULL && i < entry->readers->n; i++) {
        const struct reader *reader = &entry->readers->at[i];
        if (is_own(reached, reader->block, reader->thread)) continue;
        if (vg_known(block, reached->thread, reader->block, reader->thread, reader->epoch))
            return true;
    }
    return false;
}

static bool visible(const struct reached *reached, const struct entry *entry)
{
    return (!is_own(reached, entry->block, entry->thread) &&
            vg_known(reached->block, reached->thread, entry->block, entry->thread, entry->epoch)) ||
           was_read(reached, entry);
}

/* The newest entry that causality makes visible to the thread. */
static uint32_t floor_of(const struct reached *reached)
{
    uint32_t i = reached->history->n - 1;
    while (i > reached->history->least && !visible(reached, &reached->history->at[i])) i--;
    return i;
}

bool vg_morally_strong(const struct reached *reached, const struct entry *entry)
{
    return entry->strong && entry->block != 0 &&
           vg_scope_includes(reached->block, entry->scope, entry->block) &&
           vg_scope_includes(reached->block, reached->how->scope, entry->block);
}

bool vg_was_read_by(const struct entry *entry, uint32_t serial, uint32_t thread)
{
    for (uint32_t k = 0; entry->readers != NULL && k < entry->readers->n; k++)
        if (entry->readers->at[k].block == serial && entry->readers->at[k].thread == thread)
            return true;
    return false;
}

void vg_add_reader(struct entry *entry, struct reader reader)
{
    if (entry->readers == NULL) entry->readers = vg_need(sizeof *entry->readers);
    struct readers *readers = entry->readers;
    if (readers->n == MOST_READERS)
        entry->crowded = true;
    else
        readers->at[readers->n++] = reader;
}

/* The thread has read the entry. Who knows the writer needs not be listed: those who know of the
 * read know the writer as well. */
static void observe(const struct reached *reached, uint32_t i)
{
    struct vg_history *history = reached->history;
    struct entry *entry = &history->at[i];
    const uint32_t serial = reached->block->serial;
    if (vg_morally_strong(reached, entry))
        vg_acquire(reached->block, reached->thread, reached->how, history->location,
                   entry->releases);
    else if (reached->how->order != VG_RELAXED)
        vg_acquire(reached->block, reached->thread, reached->how, history->location, NULL);
    if (entry->crowded ||
        vg_known(reached->block, reached->thread, entry->block, entry->thread, entry->epoch))
        return;
    if (vg_was_read_by(entry, serial, reached->thread)) return;
    vg_add_reader(entry, (struct reader){serial, reached->self->epoch, (uint16_t)reached->thread});
    if (entry->crowded) vg_entries_drop(history, 0, i);
}

struct entry *vg_entry_write(const struct reached *reached, uint32_t i, const void *value)
{
    struct vg_history *history = reached->history;
    struct entry *entry = vg_entry_insert(history, i);
    memcpy(entry->value, value, history->nbytes);
    entry->block = reached->block->serial;
    entry->thread = (uint16_t)reached->thread;
    entry->epoch = reached->self->epoch;
    entry->scope = reached->how->scope;
    entry->strong = reached->how->order != VG_WEAK;
    entry->born = reached->block->model->now;
    return entry;
}

/* As vg_entry_write; the oldest entry goes when there are too many. */
static struct entry *write_at(const struct reached *reached, uint32_t i, const void *value)
{
    struct vg_history *history = reached->history;
    if (history->n >= reached->block->model->settings.depth) {
        vg_entries_drop(history, 0, 1);
        if (i > 0) i--;
    }
    return vg_entry_write(reached, i, value);
}

/* The release patterns that end in the thread's write. */
static void give(const struct reached *reached, struct vg_releases **releases)
{
    struct vg_clock *released[VG_REACHES];
    vg_release(reached->block, reached->thread, reached->how, reached->history->location, released);
    vg_releases_add(releases, reached->block, released);
    for (int r = 0; r < VG_REACHES; r++) vg_clock_put(released[r]);
}

/* Whether the history is that of the bytes that the access has in the word. */
static bool of_access(const struct vg_block_clock *block, const struct vg_history *history,
                      uint64_t word, const struct vg_access *access)
{
    const uint32_t nbytes = block->model->kinds[access->kind].how.nbytes;
    if (nbytes != history->nbytes) return false;
    const uint64_t first = word * 4 + (uint32_t)__builtin_ctz(access->bits >> 10);
    return nbytes >= 4 || history->offset == first / nbytes * nbytes;
}

bool vg_history_saw(struct vg_block_clock *block, uint32_t thread, struct vg_region *region,
                    uint64_t word, const struct vg_access *access, bool others)
{
    struct reached reached = {
        .block = block, .self = &block->threads[thread], .thread = thread, .others = others};
    for (uint64_t first = word / 4 * 4; first <= word; first++) {
        const struct vg_more *more = vg_cell_make(region, first)->more;
        reached.history = more != NULL ? more->histories : NULL;
        for (; reached.history != NULL; reached.history = reached.history->next) {
            const struct vg_history *history = reached.history;
            if (!vg_history_overlaps(history, word * 4, 4) ||
                !of_access(block, history, word, access))
                continue;
            uint32_t i = history->n; /* the newest of the writes of one epoch */
            while (i > 0 &&
                   (history->at[i - 1].block != access->block || !history->at[i - 1].strong ||
                    history->at[i - 1].thread != vg_access_thread(access) ||
                    history->at[i - 1].epoch != access->epoch))
                i--;
            if (i-- == 0) continue;
            if (visible(&reached, &history->at[i])) return true;
            while (!history->at[i].crowded) {
                if (++i == history->n || !history->at[i].adjacent) return false;
                if (history->at[i].foreign ? was_read(&reached, &history->at[i])
                                           : visible(&reached, &history->at[i]))
                    return true;
            }
            return true;
        }
    }
    return true;
}

/* A read of other bytes than those that were written observes nobody, for morally strong accesses
 * overlap completely (8.7). It gets the newest bytes, and older ones may not be read after it. */
bool vg_reads_across(struct vg_region *region, uint64_t offset, uint32_t nbytes)
{
    const struct vg_history *own =
        vg_history_find(vg_cell_make(region, offset / 4), offset, nbytes);
    bool across = false;
    if (own != NULL && !own->ended) return false;
    for (uint64_t word = offset / 16 * 4; word < (offset + nbytes + 3) / 4; word++) {
        const struct vg_more *more = vg_cell_make(region, word)->more;
        struct vg_history *history = more != NULL ? more->histories : NULL;
        for (; history != NULL; history = history->next) {
            if (history->ended || !vg_history_overlaps(history, offset, nbytes)) continue;
            across = true;
            history->least = history->n - 1;
        }
    }
    return across;
}

/* How many entries behind the oldest one a read takes, at most `most`. Most mistakes show when
 * reads are late, long chains when they are not: half of the reads take the oldest entry and a
 * quarter the next one, but with every fourth seed all are alike. */
static uint32_t later(struct vg_model *model, uint32_t most)
{
    const uint32_t dice = model->settings.seed % 4 == 0 ? 3 : vg_random_below(model, 4);
    if (dice < 2 || most == 0) return 0;
    return dice == 2 ? 1 : vg_random_below(model, most + 1);
}

void vg_history_load(struct vg_block_clock *block, uint32_t thread, struct vg_region *region,
                     uint64_t offset, const struct vg_how *how, void *value)
{
    struct vg_model *model = block->model;
    if (vg_reads_across(region, offset, how->nbytes)) {
        memcpy(value, region->bytes + offset, how->nbytes);
        return;
    }
    const struct reached reached = reach(block, thread, region, offset, how);
    const uint32_t newest = reached.history->n - 1;
    uint32_t chosen = newest;
    if (newest > 0 && model->settings.reads != VG_READ_NEWEST) {
        chosen = floor_of(&reached);
        if (model->settings.reads == VG_READ_RANDOM) chosen += later(model, newest - chosen);
    }
    if (chosen != newest) model->counts.older++;
    memcpy(value, reached.history->at[chosen].value, how->nbytes);
    observe(&reached, chosen);
}

/* Where the write goes: behind all others, or by the seed before some that nothing orders it
 * after. */
static uint32_t place(const struct reached *reached)
{
    struct vg_model *model = reached->block->model;
    const struct vg_history *history = reached->history;
    if (history->n < 2 || model->settings.reads != VG_READ_RANDOM) return history->n;
    if (vg_random_below(model, 4) != 0) return history->n;
    const uint32_t lowest = floor_of(reached) + 1;
    uint32_t i = lowest + vg_random_below(model, history->n - lowest + 1);
    while (i < history->n && (history->at[i].adjacent || !history->at[i].strong)) i++;
    return i;
}

void vg_history_store(struct vg_block_clock *block, uint32_t thread, struct vg_region *region,
                      uint64_t offset, const struct vg_how *how, const void *value)
{
    const struct reached reached = reach(block, thread, region, offset, how);
    const uint32_t i = place(&reached);
    if (i == reached.history->n) memcpy(region->bytes + offset, value, how->nbytes);
    struct entry *entry = write_at(&reached, i, value);
    give(&reached, &entry->releases);
}

void vg_history_change(struct vg_block_clock *block, uint32_t thread, struct vg_region *region,
                       uint64_t offset, const struct vg_how *how, const void *old,
                       const void *value)
{
    const struct reached reached = reach(block, thread, region, offset, how);
    struct vg_history *history = reached.history;
    const struct entry *read = &history->at[history->n - 1];
    if (read->block == 0) memcpy(history->at[history->n - 1].value, old, how->nbytes);
    struct vg_releases *handed_on =
        vg_morally_strong(&reached, read) ? vg_releases_get(read->releases) : NULL;
    observe(&reached, history->n - 1);
    if (value != NULL) {
        struct entry *entry = write_at(&reached, history->n, value);
        entry->adjacent = history->n > 1;
        entry->releases = handed_on;
        handed_on = NULL;
        give(&reached, &entry->releases);
    } else {
        vg_release_begin(block, thread, how, history->location);
    }
    vg_releases_put(handed_on);
}

/* The history's newest write was a strong one of scope .sys: what it released is acquired. */
static void copied(struct vg_block_clock *block, uint32_t thread, const struct vg_history *history)
{
    static const struct vg_how how = {.order = VG_ACQUIRE, .scope = VG_SCOPE_SYS};
    const struct entry *newest = &history->at[history->n - 1];
    if (!history->ended && newest->strong && newest->scope == VG_SCOPE_SYS)
        vg_acquire(block, thread, &how, history->location, newest->releases);
}

void vg_history_copied(struct vg_block_clock *block, uint32_t thread, struct vg_region *region,
                       uint64_t offset, uint64_t nbytes)
{
    const uint64_t end = (offset + nbytes + 3) / 4;
    /* A history is listed at its first word; its size is at most 16 and its address aligned. */
    for (uint64_t word = offset / 16 * 4; word < end; word++) {
        const struct vg_page *page = vg_page_of(region, word / VG_PAGE_WORDS);
        if (page->cells == NULL) { /* no word of the page was accessed strongly */
            word |= VG_PAGE_WORDS - 1;
            continue;
        }
        const struct vg_more *more = page->cells[word % VG_PAGE_WORDS].more;
        const struct vg_history *history = more != NULL ? more->histories : NULL;
        for (; history != NULL; history = history->next)
            if (history->offset < offset + nbytes && offset < history->offset + history->nbytes)
                copied(block, thread, history);
    }
}
