/* How the handlers reach the lanes of their operands. See code.h for the shape of registers. */
#ifndef VGPU_LANES_H
#define VGPU_LANES_H

#include <string.h>

#include <vgpu/code.h>

typedef uint32_t vg_u32 __attribute__((may_alias));
typedef uint64_t vg_u64 __attribute__((may_alias));
typedef float vg_f32 __attribute__((may_alias));
typedef double vg_f64 __attribute__((may_alias));

/* The first unit of an operand; VG_NONE gives the first unit of the frame, which the handler must
 * not use. */
static inline void *vg_unit(const struct vg_registers *r, uint16_t operand)
{
    if (operand == VG_NONE) return r->frame[0];
    if (operand & VG_CONSTANT) return (void *)(uintptr_t)r->constants[operand & (VG_CONSTANT - 1)];
    return r->frame[operand];
}

/* A predicate's mask among the sources. */
static inline uint32_t vg_mask(const struct vg_registers *r, uint16_t predicate)
{
    return r->predicates[predicate];
}

static inline void vg_set_mask(struct vg_registers *r, uint16_t predicate, uint32_t lanes,
                               uint32_t value)
{
    if (predicate == VG_NONE) return;
    r->predicates[predicate] = (r->predicates[predicate] & ~lanes) | (value & lanes);
}

/* The bits of an integer type; 0: another type. */
static inline unsigned vg_integer_bits(enum vg_type type)
{
    switch (type) {
    case VG_B8:
    case VG_U8:
    case VG_S8:
        return 8;
    case VG_B16:
    case VG_U16:
    case VG_S16:
        return 16;
    case VG_B32:
    case VG_U32:
    case VG_S32:
        return 32;
    case VG_B64:
    case VG_U64:
    case VG_S64:
        return 64;
    default:
        return 0;
    }
}

/* Runs the body for each lane i of the mask; a whole warp is a loop that the compiler turns into
 * vectors. */
#define VG_EACH_LANE(lanes, ...)                                                                   \
    do {                                                                                           \
        if ((lanes) == UINT32_MAX) {                                                               \
            for (unsigned i = 0; i < VG_LANES; i++) {                                              \
                __VA_ARGS__;                                                                       \
            }                                                                                      \
        } else {                                                                                   \
            for (uint32_t left_ = (lanes); left_; left_ &= left_ - 1) {                            \
                const unsigned i = (unsigned)__builtin_ctz(left_);                                 \
                __VA_ARGS__;                                                                       \
            }                                                                                      \
        }                                                                                          \
    } while (0)

/* A handler whose operands all have units of type T; A, B, C are the sources in lane i. */
#define VG_HANDLER(name, T, expression)                                                            \
    static void name(struct vg_registers *r, const struct vg_instr *in, uint32_t lanes)            \
    {                                                                                              \
        T *d = vg_unit(r, in->dst[0]);                                                             \
        const T *a = vg_unit(r, in->src[0]), *b = vg_unit(r, in->src[1]),                          \
                *c = vg_unit(r, in->src[2]);                                                       \
        (void)b, (void)c;                                                                          \
        VG_EACH_LANE(lanes, d[i] = (T)(expression));                                               \
    }

/* A handler whose operands differ in width: the results wait in an array, for the destination may
 * share units with a source. D: the destination's units; TA, TB, TC: those of the sources. */
#define VG_HANDLER_MIXED(name, D, TA, TB, TC, expression)                                          \
    static void name(struct vg_registers *r, const struct vg_instr *in, uint32_t lanes)            \
    {                                                                                              \
        D *d = vg_unit(r, in->dst[0]), wait[VG_LANES];                                             \
        const TA *a = vg_unit(r, in->src[0]);                                                      \
        const TB *b = vg_unit(r, in->src[1]);                                                      \
        const TC *c = vg_unit(r, in->src[2]);                                                      \
        (void)b, (void)c;                                                                          \
        VG_EACH_LANE(lanes, wait[i] = (D)(expression));                                            \
        VG_EACH_LANE(lanes, d[i] = wait[i]);                                                       \
    }

static inline uint32_t vg_bits32(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

static inline float vg_float32(uint32_t bits)
{
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

static inline uint64_t vg_bits64(double x)
{
    uint64_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

static inline double vg_float64(uint64_t bits)
{
    double x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

#endif
