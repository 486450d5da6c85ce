/* What writes carry for those who may acquire it: lists by block, device and all (internal.h). */
#include "internal.h"

#include <stdlib.h>
#include <string.h>

enum { MOST_LISTS = 64 };

struct entry {
    uint64_t key; /* 0: for every acquire */
    struct vg_clock *clock;
};

struct vg_releases {
    uint32_t refs, n;
    struct entry at[]; /* sorted by key */
};

static uint64_t key_of(enum vg_reach reach, uint32_t block, int device)
{
    if (reach == VG_REACH_CTA) return UINT64_C(3) << 32 | block;
    return reach == VG_REACH_GPU ? UINT64_C(2) << 32 | (uint32_t)(device + 1) : UINT64_C(1) << 32;
}

struct vg_releases *vg_releases_get(struct vg_releases *releases)
{
    if (releases != NULL) releases->refs++;
    return releases;
}

void vg_releases_put(struct vg_releases *releases)
{
    if (releases == NULL || --releases->refs > 0) return;
    for (uint32_t i = 0; i < releases->n; i++) vg_clock_put(releases->at[i].clock);
    free(releases);
}

struct vg_clock *vg_releases_find(const struct vg_releases *releases, enum vg_reach reach,
                                  uint32_t block, int device)
{
    const uint64_t key = key_of(reach, block, device);
    uint32_t low = 0, high = releases != NULL ? releases->n : 0;
    while (low < high) {
        const uint32_t middle = low + (high - low) / 2;
        if (releases->at[middle].key == key) return releases->at[middle].clock;
        if (releases->at[middle].key < key)
            low = middle + 1;
        else
            high = middle;
    }
    return NULL;
}

struct vg_clock *vg_releases_any(const struct vg_releases *releases)
{
    return releases != NULL && releases->n > 0 && releases->at[0].key == 0 ? releases->at[0].clock
                                                                           : NULL;
}

/* Both lists, sorted; clocks of the same key joined. */
static struct vg_releases *merge(const struct entry *a, uint32_t na, const struct entry *b,
                                 uint32_t nb)
{
    struct vg_releases *all = vg_need(sizeof *all + (na + nb) * sizeof *all->at);
    all->refs = 1;
    uint32_t i = 0, j = 0;
    while (i < na || j < nb) {
        struct entry *next = &all->at[all->n++];
        const bool from_a = j == nb || (i < na && a[i].key <= b[j].key);
        *next = from_a ? a[i++] : b[j++];
        vg_clock_get(next->clock);
        if (from_a && j < nb && b[j].key == next->key) vg_clock_join(&next->clock, b[j++].clock);
    }
    return all;
}

/* Takes the lists of blocks that have ended away, and puts those of the others but one into one
 * when there are too many. */
static void shorten(struct vg_releases *all, uint32_t ended_below, uint32_t own_block)
{
    const uint64_t blocks = key_of(VG_REACH_CTA, 0, 0);
    const uint64_t dead_below = blocks + ended_below, own = blocks + own_block;
    struct vg_clock *together = NULL;
    uint32_t n = 0;
    for (uint32_t pass = 0; pass < 2; pass++) {
        n = 0;
        for (uint32_t i = 0; i < all->n; i++) {
            const struct entry entry = all->at[i];
            const bool dead = entry.key >= blocks && entry.key < dead_below;
            const bool folds = pass > 0 && (entry.key == 0 || entry.key >= blocks);
            if (!dead && (!folds || entry.key == own)) {
                all->at[n++] = entry;
                continue;
            }
            if (!dead) vg_clock_join(&together, entry.clock);
            vg_clock_put(entry.clock);
        }
        all->n = n;
        if (n <= MOST_LISTS) break;
    }
    if (together == NULL) return;
    memmove(all->at + 1, all->at, n * sizeof *all->at);
    all->at[0] = (struct entry){0, together};
    all->n++;
}

void vg_releases_add(struct vg_releases **into, const struct vg_block_clock *block,
                     struct vg_clock *const released[VG_REACHES])
{
    struct entry own[VG_REACHES];
    uint32_t n = 0;
    for (int r = VG_REACHES - 1; r >= 0; r--)
        if (released[r] != NULL)
            own[n++] = (struct entry){key_of((enum vg_reach)r, block->serial, block->grid->device),
                                      released[r]};
    if (n == 0) return;
    struct vg_releases *old = *into;
    *into = merge(old != NULL ? old->at : NULL, old != NULL ? old->n : 0, own, n);
    vg_releases_put(old);
    shorten(*into, block->grid->known_below, block->serial);
}

void vg_releases_join(struct vg_releases **into, struct vg_releases *other)
{
    struct vg_releases *old = *into;
    if (other == NULL || other == old) return;
    if (old == NULL) {
        *into = vg_releases_get(other);
        return;
    }
    *into = merge(old->at, old->n, other->at, other->n);
    vg_releases_put(old);
    shorten(*into, 0, 0);
}
