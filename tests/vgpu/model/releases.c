/* What writes carry for those who may acquire it: lists by block, device and all (internal.h). */
#include "internal.h"

#include <stdlib.h>

struct entry {
    uint64_t key;
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

void vg_releases_add(struct vg_releases **into, uint32_t block, int device,
                     struct vg_clock *const released[VG_REACHES])
{
    struct entry own[VG_REACHES];
    uint32_t n = 0;
    for (int r = VG_REACHES - 1; r >= 0; r--)
        if (released[r] != NULL)
            own[n++] = (struct entry){key_of((enum vg_reach)r, block, device), released[r]};
    if (n == 0) return;
    struct vg_releases *old = *into;
    *into = merge(old != NULL ? old->at : NULL, old != NULL ? old->n : 0, own, n);
    vg_releases_put(old);
}
