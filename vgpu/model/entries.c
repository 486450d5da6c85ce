/* The histories' storage, and how much of it is kept.
 *
 * All histories of a model together keep about MOST_ENTRIES entries; a history keeps at most
 * settings.depth of them. With more, histories are taken back to their newest entry in turn, and
 * those that carry no release go altogether. What is lost: older values that a relaxed load might
 * have returned, and races of plain accesses with strong writes of long ago. Nothing is invented:
 * releases are kept, and a write that no history knows counts as seen by everybody. */
#include "history.h"

#include <stdlib.h>

enum { MOST_ENTRIES = 1 << 17 };

static void ring_leave(struct vg_history *history);

static void entry_clear(struct entry *entry)
{
    vg_releases_put(entry->releases);
    free(entry->readers);
}

static void history_free(struct vg_history *history)
{
    vg_entries_drop(history, 0, history->n);
    vg_releases_put(history->dropped);
    ring_leave(history);
    free(history->at);
    free(history);
}

void vg_histories_free(struct vg_history *history)
{
    while (history != NULL) {
        struct vg_history *next = history->next;
        history_free(history);
        history = next;
    }
}

/* Of reachable memory nothing is known about bytes that were written otherwise: such a history just
 * goes. One of the same bytes goes on: a weak store is an entry like others (published.c). */
static bool goes(const struct vg_history *history, uint64_t offset, uint32_t nbytes, bool weak)
{
    return history->region->reachable || (weak && offset <= history->offset &&
                                          history->offset + history->nbytes <= offset + nbytes);
}

void vg_histories_end(struct vg_region *region, uint64_t offset, uint32_t nbytes,
                      const struct vg_how *weak)
{
    /* A history is listed at its first word; its size is at most 16 and its address aligned. */
    const uint64_t first = offset / 16 * 4, end = (offset + nbytes + 3) / 4;
    for (uint64_t word = first; word < end; word++) {
        struct vg_more *more = vg_cell_make(region, word)->more;
        struct vg_history **link = more != NULL ? &more->histories : NULL;
        while (link != NULL && *link != NULL) {
            struct vg_history *history = *link;
            const bool goes_on = region->reachable && weak != NULL && !weak->engine &&
                                 history->offset == offset && history->nbytes == nbytes;
            if (vg_history_overlaps(history, offset, nbytes) && !goes_on) history->ended = true;
            if (!history->ended || !goes(history, offset, nbytes, weak != NULL)) {
                link = &history->next;
                continue;
            }
            *link = history->next;
            history_free(history);
        }
    }
}

struct entry *vg_entry_insert(struct vg_history *history, uint32_t i)
{
    if (history->n == history->room) {
        const uint32_t room = history->room == 0 ? 1 : 2 * history->room;
        struct entry *at = vg_need(room * sizeof *at);
        if (history->n > 0) memcpy(at, history->at, history->n * sizeof *at);
        free(history->at);
        history->at = at;
        history->room = room;
    }
    memmove(history->at + i + 1, history->at + i, (history->n - i) * sizeof *history->at);
    memset(&history->at[i], 0, sizeof history->at[i]);
    history->n++;
    history->model->nentries++;
    return &history->at[i];
}

void vg_entries_drop(struct vg_history *history, uint32_t first, uint32_t count)
{
    if (count == 0) return;
    for (uint32_t i = first; i < first + count; i++) entry_clear(&history->at[i]);
    history->n -= count;
    history->model->nentries -= count;
    memmove(history->at + first, history->at + first + count,
            (history->n - first) * sizeof *history->at);
    if (first == 0 && history->n > 0) history->at[0].adjacent = false;
    const uint32_t least = history->least;
    if (least > first) history->least = least < first + count ? first : least - count;
}

void vg_entries_fold(struct vg_history *history, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++)
        vg_releases_join(&history->dropped, history->at[i].releases);
    vg_entries_drop(history, 0, count);
}

uint32_t vg_entries_landed(const struct vg_history *history)
{
    uint32_t n = history->n;
    while (n > 0 && history->at[n - 1].store != 0) n--;
    return n;
}

struct vg_history *vg_history_find(const struct vg_cell *cell, uint64_t offset, uint32_t nbytes)
{
    struct vg_history *history = cell->more != NULL ? cell->more->histories : NULL;
    while (history != NULL && (history->offset != offset || history->nbytes != nbytes))
        history = history->next;
    return history;
}

void vg_histories_share(struct vg_history **link, struct vg_clock **published)
{
    while (*link != NULL) {
        struct vg_history *history = *link;
        if (history->ended) {
            *link = history->next;
            history_free(history);
            continue;
        }
        link = &history->next;
        vg_entries_fold(history, history->n - 1);
        struct entry *entry = &history->at[0];
        memcpy(entry->value, history->region->bytes + history->offset, history->nbytes);
        entry->born = 0;
        history->least = 0;
        vg_clock_join(published, vg_releases_find(entry->releases, VG_REACH_SYS, 0, 0));
    }
}

/* --- how much is kept --- */

static void ring_leave(struct vg_history *history)
{
    struct vg_model *model = history->model;
    history->behind->before = history->before;
    history->before->behind = history->behind;
    if (model->histories == history)
        model->histories = history->behind == history ? NULL : history->behind;
}

/* As the last one. */
static void ring_join(struct vg_history *history)
{
    struct vg_history *first = history->model->histories;
    history->behind = history->before = history;
    if (first == NULL) {
        history->model->histories = history;
        return;
    }
    history->behind = first;
    history->before = first->before;
    history->before->behind = history;
    first->before = history;
}

static void shrink(struct vg_history *history)
{
    struct entry *at = vg_need(history->n * sizeof *at);
    memcpy(at, history->at, history->n * sizeof *at);
    free(history->at);
    history->at = at;
    history->room = history->n;
}

static void unlist(struct vg_history *history)
{
    struct vg_history **link = &vg_cell_make(history->region, history->offset / 4)->more->histories;
    while (*link != history) link = &(*link)->next;
    *link = history->next;
    history_free(history);
}

/* Takes the history that was trimmed longest ago back to its newest entry, and away when that says
 * nothing but the bytes and who wrote them. */
static void trim(struct vg_model *model)
{
    struct vg_history *history = model->histories;
    model->histories = history->behind;
    const uint32_t landed = vg_entries_landed(history);
    if (history->region->reachable && (landed > 1 || landed < history->n)) {
        if (landed > 1) vg_entries_fold(history, landed - 1);
    } else if (history->n > 1) {
        vg_entries_drop(history, 0, history->n - 1);
    } else if (history->at[0].releases == NULL && history->dropped == NULL) {
        unlist(history);
        return;
    }
    if (history->room > history->n) shrink(history);
}

static struct vg_history *history_begin(struct vg_model *model, struct vg_region *region,
                                        uint64_t offset, uint32_t nbytes)
{
    struct vg_history *history = vg_need(sizeof *history);
    struct vg_more *more = vg_more_of(vg_cell_make(region, offset / 4));
    history->location = (uint64_t)(uintptr_t)(region->bytes + offset);
    history->offset = offset;
    history->nbytes = nbytes;
    history->model = model;
    history->region = region;
    history->next = more->histories;
    more->histories = history;
    ring_join(history);
    for (uint64_t word = offset / 4 + 1; word < (offset + nbytes) / 4; word++)
        vg_more_of(vg_cell_make(region, word));
    return history;
}

struct vg_history *vg_history_make(struct vg_model *model, struct vg_region *region,
                                   uint64_t offset, uint32_t nbytes)
{
    for (int i = 0; i < 2 && model->nentries > MOST_ENTRIES; i++) trim(model);
    struct vg_history *history = vg_history_find(vg_cell_make(region, offset / 4), offset, nbytes);
    if (history != NULL && !history->ended) return history;
    vg_histories_end(region, offset, nbytes, NULL);
    if (history == NULL) history = history_begin(model, region, offset, nbytes);
    history->ended = false;
    if (history->n >= model->settings.depth) vg_entries_drop(history, 0, 1);
    history->least = history->n; /* nobody's entry: nothing before it is read any more */
    struct entry *entry = vg_entry_insert(history, history->n);
    entry->born = model->now;
    if (!region->reachable) memcpy(entry->value, region->bytes + offset, nbytes);
    return history;
}
