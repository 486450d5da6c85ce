/* The notes: the last accesses of each word of memory, and which of them race (8.7.1).
 *
 * Two overlapping accesses of different threads, one of them a write, race unless one precedes the
 * other in causality order (its epoch is known) or they are morally strong: both strong, each with
 * a scope that includes the other's thread, and of the same bytes. Aligned accesses of the same
 * size that overlap are of the same bytes.
 *
 * A word keeps one write, one read and, when those are not enough, up to VG_MORE_ACCESSES others. A
 * later access takes the place of an earlier one that it is ordered after when everything that
 * would race with the earlier one would race with the later one as well: always when the later one
 * is weak; of two strong ones when they are of one block and of the same bytes, and the later one's
 * scope is no wider. With more accesses than there is room one is forgotten, a strong one if there
 * is any, so a race may be missed but none is invented. */
#include "history.h"

#include <stdlib.h>
#include <string.h>

static struct vg_notes *notes_of(struct vg_region *region)
{
    if (region->notes == NULL) {
        const uint64_t nwords = region->nbytes / 4 + 1, n = (nwords - 1) / VG_PAGE_WORDS + 1;
        region->notes = vg_need(sizeof *region->notes + n * sizeof *region->notes->pages);
        region->notes->npages = n;
    }
    return region->notes;
}

struct vg_page *vg_page_of(struct vg_region *region, uint64_t page)
{
    return &notes_of(region)->pages[page];
}

struct vg_cell *vg_cell_make(struct vg_region *region, uint64_t word)
{
    struct vg_page *page = vg_page_of(region, word / VG_PAGE_WORDS);
    if (page->cells == NULL) {
        page->cells = vg_need(VG_PAGE_WORDS * sizeof *page->cells);
        for (uint32_t i = 0; page->whole != NULL && i < VG_PAGE_WORDS; i++)
            page->cells[i] = *page->whole;
        free(page->whole);
        page->whole = NULL;
    }
    return &page->cells[word % VG_PAGE_WORDS];
}

struct vg_more *vg_more_of(struct vg_cell *cell)
{
    if (cell->more == NULL) cell->more = vg_need(sizeof *cell->more);
    return cell->more;
}

void vg_notes_free(struct vg_region *region)
{
    struct vg_notes *notes = region->notes;
    if (notes == NULL) return;
    for (uint64_t i = 0; i < notes->npages; i++) {
        struct vg_page *page = &notes->pages[i];
        for (uint32_t j = 0; page->cells != NULL && j < VG_PAGE_WORDS; j++) {
            struct vg_more *more = page->cells[j].more;
            if (more == NULL) continue;
            vg_histories_free(more->histories);
            free(more->at);
            free(more);
        }
        free(page->cells);
        free(page->whole);
    }
    free(notes);
    region->notes = NULL;
}

void vg_model_share(struct vg_model *model, struct vg_region *region)
{
    struct vg_notes *notes = region->notes;
    region->reachable = true;
    for (uint64_t i = 0; notes != NULL && i < notes->npages; i++) {
        struct vg_page *page = &notes->pages[i];
        free(page->whole);
        page->whole = NULL;
        for (uint32_t j = 0; page->cells != NULL && j < VG_PAGE_WORDS; j++) {
            struct vg_cell *cell = &page->cells[j];
            cell->write = cell->read = (struct vg_access){0};
            if (cell->more == NULL) continue;
            cell->more->n = cell->more->nwrites = cell->more->nstrong = 0;
            vg_histories_share(&cell->more->histories, &model->published);
        }
    }
}

static bool strong(const struct vg_how *how)
{
    return how->order != VG_WEAK && !how->nc;
}

static bool knows(const struct vg_block_clock *block, uint32_t thread,
                  const struct vg_access *access)
{
    return vg_known(block, thread, access->block, vg_access_thread(access), access->epoch);
}

static bool morally_strong(const struct vg_block_clock *block, const struct vg_how *mine,
                           const struct vg_access *other, const struct vg_how *its)
{
    /* Whether the other's scope includes this thread is whether one of this thread's would include
     * the other. */
    return strong(mine) && strong(its) && mine->nbytes == its->nbytes &&
           vg_scope_includes(block, mine->scope, other->block) &&
           vg_scope_includes(block, its->scope, other->block);
}

/* A copy of the driver's and an access that waits for it, or that it waits for. */
static bool flag_by_copy(const struct vg_how *mine, const struct vg_how *its)
{
    return (mine->engine && strong(its) && its->scope == VG_SCOPE_SYS) ||
           (its->engine && strong(mine) && mine->scope == VG_SCOPE_SYS);
}

struct note {
    struct vg_block_clock *block;
    struct vg_region *region;
    struct vg_cell *cell;
    const struct vg_kind *kind;
    uint64_t word;
    uint32_t thread;
    struct vg_access mine;
};

static bool writes(const struct note *note, const struct vg_access *access)
{
    return note->block->model->kinds[access->kind].action != VG_READS;
}

/* An earlier access of the thread itself, which is in program order before this one. Its copies
 * (cp.async) are not: they have a serial number of their own. */
static bool own(const struct note *note, const struct vg_access *other)
{
    return other->block == note->block->serial && vg_access_thread(other) == note->thread;
}

/* ld.global.nc may only read memory that nobody writes while its grid runs: the grid must begin
 * after the write, and a later write must follow the end of the grid. Barriers and flags do not
 * help. */
static bool read_only_was_written(const struct note *note, const struct vg_access *other)
{
    const struct vg_block_clock *block = note->block;
    const uint32_t thread = vg_access_thread(other);
    if (other->block < block->grid->known_below) return false;
    const struct vg_clock *known = block->threads[note->thread].known;
    const bool written =
        note->kind->how.nc
            ? vg_clock_epoch(block->grid->before, other->block, thread) < other->epoch
            : (other->bits & VG_NC_BIT) != 0 &&
                  vg_clock_epoch(known, other->block, thread) != VG_ENDED;
    return written && vg_record_of(block->model, other->block) != NULL;
}

/* acquired: an acquire, which was racy before, has taken what it observed. That it has read
 * something itself does not count: observation alone is not causality. */
static bool racy(const struct note *note, const struct vg_access *other, bool acquired)
{
    const struct vg_model *model = note->block->model;
    if (other->block == 0 || (vg_access_mask(other) & vg_access_mask(&note->mine)) == 0)
        return false;
    if (read_only_was_written(note, other)) return true;
    if (own(note, other)) return false;
    const struct vg_how *mine = &note->kind->how, *its = &model->kinds[other->kind].how;
    if (morally_strong(note->block, mine, other, its) || flag_by_copy(mine, its)) return false;
    if (knows(note->block, note->thread, other)) return false;
    if (writes(note, other) && strong(its) &&
        vg_history_saw(note->block, note->thread, note->region, note->word, other, acquired))
        return false;
    return vg_record_of(model, other->block) != NULL;
}

static void check(const struct note *note, const struct vg_access *other)
{
    struct vg_model *model = note->block->model;
    const unsigned order = note->kind->how.order;
    if (!racy(note, other, false)) return;
    if ((order == VG_ACQUIRE || order == VG_ACQ_REL) && model->nsuspects < VG_MOST_SUSPECTS)
        model->suspects[model->nsuspects++] =
            (struct vg_suspect){.other = *other, .mine = note->mine, .word = note->word};
    else
        vg_report(note->block, note->region, NULL, note->word, other, &note->mine);
}

void vg_suspects_judge(struct vg_block_clock *block, uint32_t thread, struct vg_region *region)
{
    struct vg_model *model = block->model;
    for (uint32_t i = 0; i < model->nsuspects; i++) {
        const struct vg_suspect *suspect = &model->suspects[i];
        const struct note note = {.block = block,
                                  .region = region,
                                  .kind = &model->kinds[suspect->mine.kind],
                                  .word = suspect->word,
                                  .thread = thread,
                                  .mine = suspect->mine};
        if (racy(&note, &suspect->other, true))
            vg_report(block, region, NULL, suspect->word, &suspect->other, &suspect->mine);
    }
    model->nsuspects = 0;
}

/* The access that is forgotten for another one: a random strong one, which races with less than a
 * weak one, or a random one. */
static struct vg_access *worst(const struct note *note, struct vg_more *more)
{
    struct vg_model *model = note->block->model;
    struct vg_access *strong_ones[VG_MORE_ACCESSES];
    uint32_t n = 0;
    for (uint32_t i = 0; more->nstrong > 0 && i < more->n; i++)
        if (strong(&model->kinds[more->at[i].kind].how)) strong_ones[n++] = &more->at[i];
    return n > 0 ? strong_ones[vg_random_below(model, n)]
                 : &more->at[vg_random_below(model, more->n)];
}

/* The access comes (sign 1) or goes (-1). */
static void count(const struct note *note, struct vg_more *more, const struct vg_access *access,
                  int sign)
{
    if (writes(note, access)) more->nwrites += (uint32_t)sign;
    if (strong(&note->block->model->kinds[access->kind].how)) more->nstrong += (uint32_t)sign;
}

static void push(const struct note *note, const struct vg_access *access)
{
    struct vg_more *more = vg_more_of(note->cell);
    if (more->n == VG_MORE_ACCESSES) {
        struct vg_access *old = worst(note, more);
        const struct vg_how *its = &note->block->model->kinds[old->kind].how;
        if (!strong(its) && strong(&note->block->model->kinds[access->kind].how)) return;
        count(note, more, old, -1);
        count(note, more, access, 1);
        *old = *access;
        return;
    }
    if (more->n == more->room) {
        const uint32_t room = more->room == 0 ? 4 : VG_MORE_ACCESSES;
        struct vg_access *at = vg_need(room * sizeof *at);
        if (more->n > 0) memcpy(at, more->at, more->n * sizeof *at);
        free(more->at);
        more->at = at;
        more->room = room;
    }
    count(note, more, access, 1);
    more->at[more->n++] = *access;
}

/* Whether the old access may be forgotten now that mine is noted. */
static bool covered(const struct note *note, const struct vg_access *old)
{
    const struct vg_how *its = &note->block->model->kinds[old->kind].how;
    const bool weak = !strong(&note->kind->how);
    if (old->block == 0) return true;
    if ((vg_access_mask(old) & ~vg_access_mask(&note->mine)) != 0) return false;
    if (!writes(note, old) && !writes(note, &note->mine) &&
        (old->bits & ~note->mine.bits & VG_NC_BIT))
        return old->block < note->block->grid->known_below;
    if (writes(note, old) && !writes(note, &note->mine)) return false;
    if (!weak &&
        (!strong(its) || old->block != note->mine.block || its->nbytes != note->kind->how.nbytes ||
         vg_reach(its->scope) < vg_reach(note->kind->how.scope)))
        return false;
    return own(note, old) || knows(note->block, note->thread, old);
}

static bool same_place(const struct vg_access *a, const struct vg_access *b)
{
    return a->block == b->block && a->bits == b->bits && a->kind == b->kind;
}

static void add_read(const struct note *note)
{
    struct vg_cell *cell = note->cell;
    if (covered(note, &cell->read) || same_place(&cell->read, &note->mine)) {
        cell->read = note->mine;
        return;
    }
    for (uint32_t i = 0; cell->more != NULL && i < cell->more->n; i++) {
        if (!same_place(&cell->more->at[i], &note->mine)) continue;
        cell->more->at[i].epoch = note->mine.epoch;
        return;
    }
    push(note, &cell->read);
    cell->read = note->mine;
}

/* Bytes that a weak write covers have no other accesses that count: each precedes it, or the race
 * was reported. */
static void add_write(const struct note *note)
{
    struct vg_cell *cell = note->cell;
    const bool weak = !strong(&note->kind->how);
    const uint16_t left = (uint16_t) ~(note->mine.bits & 0x3c00u);
    struct vg_access *one[] = {&cell->write, &cell->read};
    struct vg_more *more = cell->more;
    for (uint32_t i = 0, n = more != NULL ? more->n : 0; i < n;) {
        struct vg_access *old = &more->at[i];
        if (weak) old->bits &= left;
        if (vg_access_mask(old) == 0 || covered(note, old) || same_place(old, &note->mine)) {
            count(note, more, old, -1);
            *old = more->at[--n];
            more->n = n;
        } else {
            i++;
        }
    }
    for (int i = 0; i < 2; i++) {
        if (weak) one[i]->bits &= left;
        if (vg_access_mask(one[i]) == 0 || covered(note, one[i])) memset(one[i], 0, sizeof *one[i]);
    }
    if (cell->write.block != 0 && !same_place(&cell->write, &note->mine)) push(note, &cell->write);
    cell->write = note->mine;
}

static void note_word(struct note *note)
{
    struct vg_cell *cell = note->cell;
    const bool write = writes(note, &note->mine);
    check(note, &cell->write);
    if (write) check(note, &cell->read);
    const uint32_t nmore =
        cell->more != NULL && (write || cell->more->nwrites > 0) ? cell->more->n : 0;
    for (uint32_t i = 0; i < nmore; i++)
        if (write || writes(note, &cell->more->at[i])) check(note, &cell->more->at[i]);
    if (write)
        add_write(note);
    else
        add_read(note);
}

static void check_alias(const struct note *note, const struct vg_region *alias,
                        const struct vg_access *other)
{
    if (other->block == 0 || (vg_access_mask(other) & vg_access_mask(&note->mine)) == 0 ||
        (!writes(note, other) && !writes(note, &note->mine)) ||
        vg_alias_linked(note->block, note->thread, other) ||
        vg_record_of(note->block->model, other->block) == NULL)
        return;
    vg_report(note->block, note->region, alias, note->word, other, &note->mine);
}

/* Accesses of the word at other addresses. */
static void check_aliases(const struct note *note)
{
    for (const struct vg_region *alias = note->region->alias; alias != note->region;
         alias = alias->alias) {
        const struct vg_cell *cell = vg_alias_cell(alias, note->word);
        if (cell == NULL) continue;
        check_alias(note, alias, &cell->write);
        check_alias(note, alias, &cell->read);
        for (uint32_t i = 0; cell->more != NULL && i < cell->more->n; i++)
            check_alias(note, alias, &cell->more->at[i]);
    }
}

static void note_all(struct vg_block_clock *block, struct vg_access mine, struct vg_region *region,
                     uint64_t offset, const struct vg_how *how, enum vg_action action)
{
    const uint16_t kind = mine.kind = vg_kind_of(block->model, how, action);
    const uint32_t thread = mine.bits;
    const uint32_t mask = how->nbytes >= 4 ? 15 : ((1u << how->nbytes) - 1) << (offset & 3);
    const uint64_t first = offset / 4, end = (offset + how->nbytes + 3) / 4;
    bool histories = false;
    mine.bits = (uint16_t)(mask << 10 | thread | (how->nc ? VG_NC_BIT : 0));
    for (uint64_t word = first; word < end; word++) {
        struct vg_cell *cell = vg_cell_make(region, word);
        struct note note = {.block = block,
                            .region = region,
                            .cell = cell,
                            .kind = &block->model->kinds[kind],
                            .word = word,
                            .thread = thread,
                            .mine = mine};
        note_word(&note);
        if (region->alias != NULL) check_aliases(&note);
        histories = histories || cell->more != NULL;
    }
    if (!strong(how) && action != VG_READS && histories)
        vg_histories_end(region, offset, how->nbytes, how);
}

void vg_note(struct vg_block_clock *block, uint32_t thread, struct vg_region *region,
             uint64_t offset, const struct vg_how *how, enum vg_action action)
{
    const struct vg_access mine = {
        .block = block->serial, .epoch = block->threads[thread].epoch, .bits = (uint16_t)thread};
    note_all(block, mine, region, offset, how, action);
}

void vg_note_copy(struct vg_block_clock *block, uint32_t thread, uint32_t number,
                  struct vg_region *region, uint64_t offset, const struct vg_how *how,
                  enum vg_action action)
{
    const struct vg_access mine = {
        .block = vg_copies_of(block), .epoch = number, .bits = (uint16_t)thread};
    if (mine.block != 0) note_all(block, mine, region, offset, how, action);
}
