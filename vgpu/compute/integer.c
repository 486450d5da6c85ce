/* Integer addition, division, minima and their like. Source: PTX ISA, 9.7.1. */
#include <vgpu/compute/handlers.h>
#include <vgpu/compute/lanes.h>

/* As an H100 does: a quotient and a rest by zero are all ones; the smallest number by -1 is itself.
 */
#define QUOTIENT(x, y, S)                                                                          \
    ((y) == 0 ? (S)-1 : (y) == (S)-1 && (S)-1 < 0 ? (S)(0 - (uint64_t)(x)) : (S)((x) / (y)))
#define REST(x, y, S) ((y) == 0 ? (S)-1 : (y) == (S)-1 && (S)-1 < 0 ? (S)0 : (S)((x) % (y)))

/* The handlers of one type. U: the units' type; S: the type of the values; B: the same without a
 * sign. */
#define FAMILY(suffix, U, S, B)                                                                    \
    VG_HANDLER(add_##suffix, U, (B)((uint64_t)a[i] + (uint64_t)b[i]))                              \
    VG_HANDLER(sub_##suffix, U, (B)((uint64_t)a[i] - (uint64_t)b[i]))                              \
    VG_HANDLER(div_##suffix, U, (B)QUOTIENT((S)a[i], (S)b[i], S))                                  \
    VG_HANDLER(rem_##suffix, U, (B)REST((S)a[i], (S)b[i], S))                                      \
    VG_HANDLER(min_##suffix, U, (B)((S)a[i] < (S)b[i] ? a[i] : b[i]))                              \
    VG_HANDLER(max_##suffix, U, (B)((S)a[i] > (S)b[i] ? a[i] : b[i]))                              \
    VG_HANDLER(abs_##suffix, U, (B)((S)a[i] < 0 ? 0 - (uint64_t)a[i] : (uint64_t)a[i]))            \
    VG_HANDLER(neg_##suffix, U, (B)(0 - (uint64_t)a[i]))

/* abs of a type without a sign is the number itself; the compiler would warn of the comparison. */
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wtype-limits"
FAMILY(u16, vg_u32, uint16_t, uint16_t)
FAMILY(s16, vg_u32, int16_t, uint16_t)
FAMILY(u32, vg_u32, uint32_t, uint32_t)
FAMILY(s32, vg_u32, int32_t, uint32_t)
FAMILY(u64, vg_u64, uint64_t, uint64_t)
FAMILY(s64, vg_u64, int64_t, uint64_t)
#pragma GCC diagnostic pop

static inline uint32_t clamp_s32(int64_t x)
{
    return (uint32_t)(x > INT32_MAX ? INT32_MAX : x < INT32_MIN ? INT32_MIN : x);
}

VG_HANDLER(add_sat_s32, vg_u32, clamp_s32((int64_t)(int32_t)a[i] + (int32_t)b[i]))
VG_HANDLER(sub_sat_s32, vg_u32, clamp_s32((int64_t)(int32_t)a[i] - (int32_t)b[i]))

/* Two numbers of 16 bits in a register. */
#define PAIR(low, high) ((uint32_t)(uint16_t)(low) | (uint32_t)(uint16_t)(high) << 16)
#define LEAST(x, y) ((x) < (y) ? (x) : (y))
#define MOST(x, y) ((x) > (y) ? (x) : (y))
#define PAIR_OF(S, F) PAIR(F((S)a[i], (S)b[i]), F((S)(a[i] >> 16), (S)(b[i] >> 16)))
VG_HANDLER(add_x2, vg_u32, PAIR(a[i] + b[i], (a[i] >> 16) + (b[i] >> 16)))
VG_HANDLER(min_u16x2, vg_u32, PAIR_OF(uint16_t, LEAST))
VG_HANDLER(max_u16x2, vg_u32, PAIR_OF(uint16_t, MOST))
VG_HANDLER(min_s16x2, vg_u32, PAIR_OF(int16_t, LEAST))
VG_HANDLER(max_s16x2, vg_u32, PAIR_OF(int16_t, MOST))

/* .relu: nothing below 0. */
#define NOT_NEGATIVE(x) ((x) < 0 ? 0 : (x))
#define RELU_LEAST(x, y) NOT_NEGATIVE(LEAST(x, y))
#define RELU_MOST(x, y) NOT_NEGATIVE(MOST(x, y))
VG_HANDLER(min_relu_s16x2, vg_u32, PAIR_OF(int16_t, RELU_LEAST))
VG_HANDLER(max_relu_s16x2, vg_u32, PAIR_OF(int16_t, RELU_MOST))
VG_HANDLER(min_relu_s32, vg_u32, RELU_LEAST((int32_t)a[i], (int32_t)b[i]))
VG_HANDLER(max_relu_s32, vg_u32, RELU_MOST((int32_t)a[i], (int32_t)b[i]))

static vg_compute *find_relu(const struct vg_instr *in)
{
    if (in->op != VG_MIN && in->op != VG_MAX) return NULL;
    if (in->type == VG_S16X2) return in->op == VG_MIN ? min_relu_s16x2 : max_relu_s16x2;
    if (in->type == VG_S32) return in->op == VG_MIN ? min_relu_s32 : max_relu_s32;
    return NULL;
}

/* 0: not an integer type. The first index of the table below is this number. */
static unsigned row(enum vg_type type)
{
    switch (type) {
    case VG_B16:
    case VG_U16:
        return 1;
    case VG_S16:
        return 2;
    case VG_B32:
    case VG_U32:
        return 3;
    case VG_S32:
        return 4;
    case VG_B64:
    case VG_U64:
        return 5;
    case VG_S64:
        return 6;
    default:
        return 0;
    }
}

#define ROW(suffix)                                                                                \
    {                                                                                              \
        [VG_ADD] = add_##suffix, [VG_SUB] = sub_##suffix, [VG_DIV] = div_##suffix,                 \
        [VG_REM] = rem_##suffix, [VG_MIN] = min_##suffix, [VG_MAX] = max_##suffix,                 \
        [VG_ABS] = abs_##suffix, [VG_NEG] = neg_##suffix                                           \
    }

static vg_compute *const table[7][VG_OPS] = {{0},      ROW(u16), ROW(s16), ROW(u32),
                                             ROW(s32), ROW(u64), ROW(s64)};

vg_compute *vg_integer_find(const struct vg_instr *in)
{
    if (in->flags & VG_RELU) return find_relu(in);
    if (in->type == VG_U16X2 || in->type == VG_S16X2) {
        if (in->op == VG_ADD) return add_x2;
        if (in->op == VG_MIN) return in->type == VG_U16X2 ? min_u16x2 : min_s16x2;
        if (in->op == VG_MAX) return in->type == VG_U16X2 ? max_u16x2 : max_s16x2;
        return NULL;
    }
    if (in->flags & VG_SAT && in->type == VG_S32)
        return in->op == VG_ADD ? add_sat_s32 : in->op == VG_SUB ? sub_sat_s32 : NULL;
    return table[row(in->type)][in->op];
}
