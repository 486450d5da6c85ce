/* Integer products. Source: PTX ISA, 9.7.1. */
#include <vgpu/compute/handlers.h>
#include <vgpu/compute/lanes.h>

typedef unsigned __int128 wide;
typedef __int128 wide_signed;

#define LOW(S, W) ((W)(S)a[i] * (W)(S)b[i])
#define FAMILY(suffix, U, S, B, W, bits)                                                           \
    VG_HANDLER(mul_lo_##suffix, U, (B)((uint64_t)a[i] * (uint64_t)b[i]))                           \
    VG_HANDLER(mul_hi_##suffix, U, (B)(LOW(S, W) >> (bits)))                                       \
    VG_HANDLER(mad_lo_##suffix, U, (B)((uint64_t)a[i] * (uint64_t)b[i] + (uint64_t)c[i]))          \
    VG_HANDLER(mad_hi_##suffix, U, (B)((uint64_t)(B)(LOW(S, W) >> (bits)) + (uint64_t)c[i]))

FAMILY(u16, vg_u32, uint16_t, uint16_t, uint64_t, 16)
FAMILY(s16, vg_u32, int16_t, uint16_t, int64_t, 16)
FAMILY(u32, vg_u32, uint32_t, uint32_t, uint64_t, 32)
FAMILY(s32, vg_u32, int32_t, uint32_t, int64_t, 32)
FAMILY(u64, vg_u64, uint64_t, uint64_t, wide, 64)
FAMILY(s64, vg_u64, int64_t, uint64_t, wide_signed, 64)

VG_HANDLER_MIXED(mul_wide_u16, vg_u32, vg_u32, vg_u32, vg_u32,
                 (uint32_t)(uint16_t)a[i] * (uint16_t)b[i])
VG_HANDLER_MIXED(mul_wide_s16, vg_u32, vg_u32, vg_u32, vg_u32,
                 (int32_t)(int16_t)a[i] * (int16_t)b[i])
VG_HANDLER_MIXED(mul_wide_u32, vg_u64, vg_u32, vg_u32, vg_u32, (uint64_t)a[i] * b[i])
VG_HANDLER_MIXED(mul_wide_s32, vg_u64, vg_u32, vg_u32, vg_u32,
                 (int64_t)(int32_t)a[i] * (int32_t)b[i])
VG_HANDLER_MIXED(mad_wide_u16, vg_u32, vg_u32, vg_u32, vg_u32,
                 (uint32_t)(uint16_t)a[i] * (uint16_t)b[i] + c[i])
VG_HANDLER_MIXED(mad_wide_s16, vg_u32, vg_u32, vg_u32, vg_u32,
                 (uint32_t)((int32_t)(int16_t)a[i] * (int16_t)b[i]) + c[i])
VG_HANDLER_MIXED(mad_wide_u32, vg_u64, vg_u32, vg_u32, vg_u64, (uint64_t)a[i] * b[i] + c[i])
VG_HANDLER_MIXED(mad_wide_s32, vg_u64, vg_u32, vg_u32, vg_u64,
                 (uint64_t)((int64_t)(int32_t)a[i] * (int32_t)b[i]) + c[i])

static inline uint32_t clamp_s32(int64_t x)
{
    return (uint32_t)(x > INT32_MAX ? INT32_MAX : x < INT32_MIN ? INT32_MIN : x);
}

static inline int64_t low24(uint32_t x)
{
    return (int64_t)((int32_t)(x << 8) >> 8);
}

#define HIGH_S32 ((int64_t)(int32_t)((int64_t)(int32_t)a[i] * (int32_t)b[i] >> 32))
VG_HANDLER(mad_hi_sat_s32, vg_u32, clamp_s32(HIGH_S32 + (int32_t)c[i]))

/* Products of 24 bits: .hi is bits 47 to 16 of the product. */
#define UNSIGNED24 ((uint64_t)(a[i] & 0xffffff) * (b[i] & 0xffffff))
#define SIGNED24 (low24(a[i]) * low24(b[i]))
VG_HANDLER(mul24_lo_u32, vg_u32, UNSIGNED24)
VG_HANDLER(mul24_hi_u32, vg_u32, UNSIGNED24 >> 16)
VG_HANDLER(mul24_lo_s32, vg_u32, SIGNED24)
VG_HANDLER(mul24_hi_s32, vg_u32, SIGNED24 >> 16)
VG_HANDLER(mad24_lo_u32, vg_u32, UNSIGNED24 + c[i])
VG_HANDLER(mad24_hi_u32, vg_u32, (UNSIGNED24 >> 16) + c[i])
VG_HANDLER(mad24_lo_s32, vg_u32, (uint64_t)SIGNED24 + c[i])
VG_HANDLER(mad24_hi_s32, vg_u32, (uint64_t)(SIGNED24 >> 16) + c[i])
VG_HANDLER(mad24_hi_sat_s32, vg_u32, clamp_s32((int64_t)(int32_t)(SIGNED24 >> 16) + (int32_t)c[i]))

VG_HANDLER(sad_u32, vg_u32, (a[i] < b[i] ? b[i] - a[i] : a[i] - b[i]) + c[i])
VG_HANDLER(sad_s32, vg_u32, ((int32_t)a[i] < (int32_t)b[i] ? b[i] - a[i] : a[i] - b[i]) + c[i])
VG_HANDLER(sad_u16, vg_u32, (uint16_t)((a[i] < b[i] ? b[i] - a[i] : a[i] - b[i]) + c[i]))
VG_HANDLER(sad_s16, vg_u32,
           (uint16_t)(((int16_t)a[i] < (int16_t)b[i] ? b[i] - a[i] : a[i] - b[i]) + c[i]))
VG_HANDLER(sad_u64, vg_u64, (a[i] < b[i] ? b[i] - a[i] : a[i] - b[i]) + c[i])
VG_HANDLER(sad_s64, vg_u64, ((int64_t)a[i] < (int64_t)b[i] ? b[i] - a[i] : a[i] - b[i]) + c[i])

static inline int32_t part8(uint32_t x, unsigned k, bool is_signed)
{
    return is_signed ? (int8_t)(x >> 8 * k) : (int32_t)(x >> 8 * k & 0xff);
}

static inline int32_t part16(uint32_t x, unsigned k, bool is_signed)
{
    return is_signed ? (int16_t)(x >> 16 * k) : (int32_t)(x >> 16 * k & 0xffff);
}

static void dp4a(struct vg_registers *r, const struct vg_instr *in, uint32_t lanes)
{
    vg_u32 *d = vg_unit(r, in->dst[0]);
    const vg_u32 *a = vg_unit(r, in->src[0]), *b = vg_unit(r, in->src[1]),
                 *c = vg_unit(r, in->src[2]);
    const bool of_a = in->type == VG_S32, of_b = in->type2 == VG_S32;
    VG_EACH_LANE(lanes, {
        uint32_t sum = c[i];
        for (unsigned k = 0; k < 4; k++)
            sum += (uint32_t)(part8(a[i], k, of_a) * part8(b[i], k, of_b));
        d[i] = sum;
    });
}

static void dp2a(struct vg_registers *r, const struct vg_instr *in, uint32_t lanes)
{
    vg_u32 *d = vg_unit(r, in->dst[0]);
    const vg_u32 *a = vg_unit(r, in->src[0]), *b = vg_unit(r, in->src[1]),
                 *c = vg_unit(r, in->src[2]);
    const bool of_a = in->type == VG_S32, of_b = in->type2 == VG_S32;
    const unsigned first = in->flags & VG_HIGH_HALF ? 2 : 0;
    VG_EACH_LANE(lanes, {
        uint32_t sum = c[i];
        for (unsigned k = 0; k < 2; k++)
            sum += (uint32_t)((int64_t)part16(a[i], k, of_a) * part8(b[i], first + k, of_b));
        d[i] = sum;
    });
}

struct row {
    enum vg_type type;
    vg_compute *mul[3], *mad[3], *sad; /* by enum vg_mul */
};

static const struct row rows[] = {
    {VG_U16,
     {mul_lo_u16, mul_hi_u16, mul_wide_u16},
     {mad_lo_u16, mad_hi_u16, mad_wide_u16},
     sad_u16},
    {VG_S16,
     {mul_lo_s16, mul_hi_s16, mul_wide_s16},
     {mad_lo_s16, mad_hi_s16, mad_wide_s16},
     sad_s16},
    {VG_U32,
     {mul_lo_u32, mul_hi_u32, mul_wide_u32},
     {mad_lo_u32, mad_hi_u32, mad_wide_u32},
     sad_u32},
    {VG_S32,
     {mul_lo_s32, mul_hi_s32, mul_wide_s32},
     {mad_lo_s32, mad_hi_s32, mad_wide_s32},
     sad_s32},
    {VG_U64, {mul_lo_u64, mul_hi_u64, NULL}, {mad_lo_u64, mad_hi_u64, NULL}, sad_u64},
    {VG_S64, {mul_lo_s64, mul_hi_s64, NULL}, {mad_lo_s64, mad_hi_s64, NULL}, sad_s64},
};

static vg_compute *find24(const struct vg_instr *in)
{
    const bool is_signed = in->type == VG_S32, high = in->mode == VG_MUL_HI;
    if (in->op == VG_MUL24)
        return high ? (is_signed ? mul24_hi_s32 : mul24_hi_u32)
                    : (is_signed ? mul24_lo_s32 : mul24_lo_u32);
    if (in->flags & VG_SAT) return high && is_signed ? mad24_hi_sat_s32 : NULL;
    return high ? (is_signed ? mad24_hi_s32 : mad24_hi_u32)
                : (is_signed ? mad24_lo_s32 : mad24_lo_u32);
}

vg_compute *vg_product_find(const struct vg_instr *in)
{
    if (in->op == VG_DP4A) return dp4a;
    if (in->op == VG_DP2A) return dp2a;
    if (in->op == VG_MUL24 || in->op == VG_MAD24) return find24(in);
    for (size_t k = 0; k < sizeof rows / sizeof *rows; k++) {
        if (rows[k].type != (enum vg_type)in->type) continue;
        if (in->op == VG_SAD) return rows[k].sad;
        if (in->mode > VG_MUL_WIDE) return NULL;
        if (in->op == VG_MUL) return rows[k].mul[in->mode];
        if (in->flags & VG_SAT)
            return in->type == VG_S32 && in->mode == VG_MUL_HI ? mad_hi_sat_s32 : NULL;
        if (in->op == VG_MAD) return rows[k].mad[in->mode];
    }
    return NULL;
}
