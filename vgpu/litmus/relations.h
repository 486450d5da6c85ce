/* Relations between at most 64 events, as matrices of bits. */
#ifndef VGPU_LITMUS_RELATIONS_H
#define VGPU_LITMUS_RELATIONS_H

#include <stdbool.h>
#include <stdint.h>

enum { VL_EVENTS = 64 };

struct vl_relation {
    unsigned n;             /* events */
    uint64_t of[VL_EVENTS]; /* of[a] has bit b: a is before b */
};

/* Each bit of the mask, lowest first. */
#define VL_EACH(bit, mask)                                                                         \
    for (uint64_t vl_left_##bit = (mask), bit;                                                     \
         vl_left_##bit != 0 && (bit = (uint64_t)__builtin_ctzll(vl_left_##bit), true);             \
         vl_left_##bit &= vl_left_##bit - 1)

static inline void vl_clear(struct vl_relation *r, unsigned n)
{
    r->n = n;
    for (unsigned a = 0; a < n; a++) r->of[a] = 0;
}

static inline bool vl_has(const struct vl_relation *r, unsigned a, unsigned b)
{
    return r->of[a] >> b & 1;
}

static inline void vl_add(struct vl_relation *r, unsigned a, unsigned b)
{
    r->of[a] |= UINT64_C(1) << b;
}

static inline void vl_unite(struct vl_relation *r, const struct vl_relation *other)
{
    for (unsigned a = 0; a < r->n; a++) r->of[a] |= other->of[a];
}

/* a before some z in first, z before b in second */
static inline uint64_t vl_through(const struct vl_relation *first, unsigned a,
                                  const struct vl_relation *second)
{
    uint64_t reached = 0;
    VL_EACH(z, first->of[a]) reached |= second->of[z];
    return reached;
}

static inline void vl_close(struct vl_relation *r)
{
    for (unsigned z = 0; z < r->n; z++)
        for (unsigned a = 0; a < r->n; a++)
            if (vl_has(r, a, z)) r->of[a] |= r->of[z];
}

static inline bool vl_irreflexive(const struct vl_relation *r)
{
    for (unsigned a = 0; a < r->n && a < VL_EVENTS;
         a++) /* GCC with sanitizers asks for the bound */
        if (vl_has(r, a, a)) return false;
    return true;
}

#endif
