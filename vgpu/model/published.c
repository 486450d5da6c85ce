/* Histories of memory that others can reach: which write a read has read, what it acquires, and who
 * has seen which write. The values are those of the buffers (reachable.c).
 *
 *   landed, in the order of coherence                in buffers, of all devices
 *   entry 0 ---- entry 1 ---- foreign ---- entry 3   entry 4 ---- entry 5
 *
 * A store is an entry from the beginning, and takes its place among those that have landed when it
 * leaves its buffer (vg_published_land). A load says when its bytes were read (struct vg_look): it
 * reads the last entry that had landed then, or a store of its own device. When the value is
 * another one, somebody who is not modelled has written it: the host or another process. Such a
 * foreign entry is a write of scope .sys. Its writer may have acquired all that was published
 * before the load looked, and it may be a read-modify-write, so it hands on what the entry before
 * it carries. A history begins with a foreign entry.
 *
 * A host may also have written the value that was there: a lock that it took and gave back. So at a
 * location where foreign values have been seen an acquire takes what was published, whatever it
 * reads. At others it does not: a lock that a host uses unseen, to hand on what it learnt
 * elsewhere, can give a false report.
 *
 * A load of bytes whose entry is no longer kept takes the releases of all such entries. */
#include "history.h"

enum { NOBODY = UINT32_MAX };

struct access { /* with what its load or its atomic found */
    struct reached reached;
    struct vg_region *region;
    uint64_t offset;
    struct vg_look look;
};

static void add_published(const struct access *a, struct vg_releases **releases)
{
    struct vg_clock *const published[VG_REACHES] = {NULL, NULL, a->look.published};
    vg_releases_add(releases, a->reached.block, published);
}

/* Begins the history, if it is new, with the value. */
static struct access access_of(struct vg_block_clock *block, uint32_t thread,
                               struct vg_region *region, uint64_t offset, const struct vg_how *how,
                               const struct vg_look *look, const void *value)
{
    struct access a = {.region = region, .offset = offset, .look = *look};
    struct vg_history *history = vg_history_make(block->model, region, offset, how->nbytes);
    struct entry *first = &history->at[0];
    a.reached = (struct reached){.block = block,
                                 .self = &block->threads[thread],
                                 .history = history,
                                 .how = how,
                                 .thread = thread};
    if (first->block != 0 || first->foreign) return a;
    first->foreign = first->strong = true;
    first->scope = VG_SCOPE_SYS;
    first->born = look->landed;
    memcpy(first->value, value, how->nbytes);
    add_published(&a, &first->releases);
    return a;
}

static bool of_device(const struct access *a, const struct entry *entry)
{
    const struct vg_block_clock *block = a->reached.block;
    if (entry->block == 0) return false;
    if (entry->block - block->grid->first < block->grid->nblocks) return true;
    const struct vg_grid_record *record = vg_record_of(block->model, entry->block);
    return record != NULL && record->device == block->grid->device;
}

/* The entry whose bytes the load or the atomic found, unless they are foreign; NOBODY: it is not
 * kept. A device keeps seeing its own stores that have landed. */
static uint32_t entry_of(const struct access *a)
{
    const struct vg_history *history = a->reached.history;
    for (uint32_t i = history->n; i-- > 0;) {
        const struct entry *entry = &history->at[i];
        if (entry->store != 0) {
            if (entry->store == a->look.store) return i;
        } else if (a->look.store == 0 && (entry->born <= a->look.landed || of_device(a, entry))) {
            return i;
        }
    }
    return NOBODY;
}

/* Room for one more entry: how many had to go. */
static uint32_t make_room(const struct access *a)
{
    struct vg_history *history = a->reached.history;
    const uint32_t landed = vg_entries_landed(history),
                   depth = a->reached.block->model->settings.depth;
    const uint32_t gone = landed < depth ? 0 : landed - depth + 1;
    vg_entries_fold(history, gone);
    return gone;
}

/* A foreign entry behind entry i, and its index. */
static uint32_t add_foreign(const struct access *a, uint32_t i, const void *value)
{
    struct vg_history *history = a->reached.history;
    history->foreign = true;
    if (i + 1 < history->n && history->at[i + 1].adjacent) return NOBODY;
    const uint32_t gone = make_room(a);
    if (gone > i) return NOBODY;
    i -= gone;
    struct entry *entry = vg_entry_insert(history, i + 1);
    const struct entry *before = &history->at[i];
    memcpy(entry->value, value, history->nbytes);
    entry->foreign = entry->strong = entry->adjacent = true;
    entry->scope = VG_SCOPE_SYS;
    entry->born = before->born > a->look.landed ? before->born : a->look.landed;
    if (before->scope == VG_SCOPE_SYS) entry->releases = vg_releases_get(before->releases);
    add_published(a, &entry->releases);
    return i + 1;
}

/* The entry that the thread has read, a foreign one perhaps. */
static uint32_t find(const struct access *a, const void *value)
{
    const struct vg_history *history = a->reached.history;
    const uint32_t i = entry_of(a);
    if (i == NOBODY || memcmp(history->at[i].value, value, history->nbytes) == 0) return i;
    return a->look.store != 0 ? NOBODY : add_foreign(a, i, value);
}

static bool observes(const struct access *a, const struct entry *entry)
{
    if (entry->foreign) return a->reached.how->scope == VG_SCOPE_SYS;
    return vg_morally_strong(&a->reached, entry);
}

/* What the thread may acquire from entry i: a reference of the caller's. */
static struct vg_releases *carried_by(const struct access *a, uint32_t i)
{
    const struct vg_history *history = a->reached.history;
    struct vg_releases *carried = NULL;
    if (i == NOBODY)
        carried = vg_releases_get(history->dropped);
    else if (observes(a, &history->at[i]))
        carried = vg_releases_get(history->at[i].releases);
    if (i == NOBODY || history->foreign) add_published(a, &carried);
    return carried;
}

/* The thread has read entry i. */
static void observe(const struct access *a, uint32_t i, struct vg_releases *carried)
{
    const struct reached *r = &a->reached;
    const uint32_t serial = r->block->serial;
    vg_acquire(r->block, r->thread, r->how, r->history->location, carried);
    struct entry *entry = i == NOBODY ? NULL : &r->history->at[i];
    if (entry == NULL || entry->crowded || vg_was_read_by(entry, serial, r->thread)) return;
    if (!entry->foreign && vg_known(r->block, r->thread, entry->block, entry->thread, entry->epoch))
        return;
    vg_add_reader(entry, (struct reader){serial, r->self->epoch, (uint16_t)r->thread});
}

/* What the write releases, which `handed_on` is part of. When it has scope .sys, what becomes
 * published with it: the host may read it, and hand that on. */
static void release(const struct access *a, struct entry *entry, struct vg_clock **published)
{
    const struct reached *r = &a->reached;
    struct vg_model *model = r->block->model;
    struct vg_clock *released[VG_REACHES];
    vg_release(r->block, r->thread, r->how, r->history->location, released);
    vg_releases_add(&entry->releases, r->block, released);
    if (r->how->scope == VG_SCOPE_SYS) {
        vg_add_reader(entry, (struct reader){VG_HOST, ++model->host_epoch, 0});
        vg_clock_join(published, released[VG_REACH_SYS]);
        vg_clock_learn(published, VG_HOST, 0, VG_PART_THREAD, model->host_epoch);
    }
    for (int r2 = 0; r2 < VG_REACHES; r2++) vg_clock_put(released[r2]);
}

void vg_published_load(struct vg_block_clock *block, uint32_t thread, struct vg_region *region,
                       uint64_t offset, const struct vg_how *how, const struct vg_look *look,
                       const void *value)
{
    const bool across = vg_reads_across(region, offset, how->nbytes);
    if (across || look->mixed) { /* of other bytes: nothing of these stores is observed */
        const struct access a = {.reached = {.block = block}, .look = *look};
        struct vg_releases *carried = NULL;
        add_published(&a, &carried);
        vg_acquire(block, thread, how, (uint64_t)(uintptr_t)(region->bytes + offset), carried);
        vg_releases_put(carried);
        return;
    }
    const struct access a = access_of(block, thread, region, offset, how, look, value);
    const uint32_t i = find(&a, value);
    struct vg_releases *carried = carried_by(&a, i);
    observe(&a, i, carried);
    vg_releases_put(carried);
}

void vg_published_store(struct vg_block_clock *block, uint32_t thread, struct vg_region *region,
                        uint64_t offset, const struct vg_how *how, const void *value,
                        uint64_t number)
{
    struct vg_model *model = block->model;
    const struct vg_look look = {.landed = model->landed, .published = model->published};
    unsigned char before[16];
    if (how->order == VG_WEAK &&
        (region->notes == NULL ||
         vg_history_find(vg_cell_make(region, offset / 4), offset, how->nbytes) == NULL))
        return;
    vg_bytes_read(region->bytes + offset, before, how->nbytes);
    const struct access a = access_of(block, thread, region, offset, how, &look, before);
    struct vg_history *history = a.reached.history;
    struct vg_clock *published = NULL;
    make_room(&a);
    const uint32_t i = number != 0 ? history->n : vg_entries_landed(history);
    struct entry *entry = vg_entry_write(&a.reached, i, value);
    entry->store = number;
    entry->born = number != 0 ? 0 : ++model->landed;
    if (how->order != VG_WEAK) release(&a, entry, &published);
    if (number != 0)
        vg_buffer_publish(model, block->grid->device, published);
    else
        vg_clock_join(&model->published, published);
    vg_clock_put(published);
}

void vg_published_change(struct vg_block_clock *block, uint32_t thread, struct vg_region *region,
                         uint64_t offset, const struct vg_how *how, const struct vg_look *look,
                         const void *old, const void *value)
{
    struct vg_model *model = block->model;
    const struct access a = access_of(block, thread, region, offset, how, look, old);
    const uint32_t i = find(&a, old);
    struct vg_releases *carried = carried_by(&a, i);
    observe(&a, i, carried);
    if (value == NULL) {
        vg_release_begin(block, thread, how, a.reached.history->location);
        vg_releases_put(carried);
        return;
    }
    make_room(&a);
    const uint32_t landed = vg_entries_landed(a.reached.history);
    struct entry *entry = vg_entry_write(&a.reached, landed, value);
    entry->adjacent = landed > 0;
    entry->born = model->landed;
    entry->releases = carried;
    release(&a, entry, &model->published);
}

void vg_published_land(struct vg_model *model, struct vg_region *region, uint64_t offset,
                       uint32_t nbytes, uint64_t number)
{
    if (region->notes == NULL) return;
    struct vg_history *history = vg_history_find(vg_cell_make(region, offset / 4), offset, nbytes);
    if (history == NULL) return;
    const uint32_t landed = vg_entries_landed(history);
    for (uint32_t i = landed; i < history->n; i++) {
        if (history->at[i].store != number) continue;
        struct entry entry = history->at[i];
        memmove(&history->at[landed + 1], &history->at[landed], (i - landed) * sizeof entry);
        entry.store = 0;
        entry.born = model->landed;
        history->at[landed] = entry;
        return;
    }
}
