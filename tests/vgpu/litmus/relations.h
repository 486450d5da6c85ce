/* Relations between at most 32 events, as matrices of bits. */
#ifndef VGPU_LITMUS_RELATIONS_H
#define VGPU_LITMUS_RELATIONS_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

enum { VL_EVENTS = 32 };

struct vl_relation {
    uint32_t of[VL_EVENTS]; /* of[a] has bit b: a is before b */
};

static inline bool vl_has(const struct vl_relation *r, unsigned a, unsigned b)
{
    return r->of[a] >> b & 1;
}

static inline void vl_add(struct vl_relation *r, unsigned a, unsigned b)
{
    r->of[a] |= UINT32_C(1) << b;
}

static inline void vl_unite(struct vl_relation *r, const struct vl_relation *other)
{
    for (unsigned a = 0; a < VL_EVENTS; a++) r->of[a] |= other->of[a];
}

/* a before some z in first, z before b in second */
static inline struct vl_relation vl_compose(const struct vl_relation *first,
                                            const struct vl_relation *second)
{
    struct vl_relation r = {{0}};
    for (unsigned a = 0; a < VL_EVENTS; a++)
        for (uint32_t left = first->of[a]; left; left &= left - 1)
            r.of[a] |= second->of[__builtin_ctz(left)];
    return r;
}

static inline void vl_close(struct vl_relation *r)
{
    for (unsigned z = 0; z < VL_EVENTS; z++)
        for (unsigned a = 0; a < VL_EVENTS; a++)
            if (vl_has(r, a, z)) r->of[a] |= r->of[z];
}

static inline bool vl_irreflexive(const struct vl_relation *r)
{
    for (unsigned a = 0; a < VL_EVENTS; a++)
        if (vl_has(r, a, a)) return false;
    return true;
}

static inline bool vl_acyclic(struct vl_relation r)
{
    vl_close(&r);
    return vl_irreflexive(&r);
}

#endif
