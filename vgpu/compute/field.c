/* Fields of bits, bytes by index, double shifts. Source: PTX ISA, 9.7.1, 9.7.8, 9.7.9. */
#include <vgpu/compute/handlers.h>
#include <vgpu/compute/lanes.h>

/* The n bits from the first one on. The manual takes the lowest byte of both; for 64 bits an H100
 * takes all of them. */
static inline uint64_t extracted(uint64_t x, uint32_t first, uint32_t n, unsigned width,
                                 bool is_signed)
{
    if (width == 32) first &= 0xff, n &= 0xff;
    if (n == 0) return 0;
    const uint64_t beyond = (uint64_t)first + n - 1;
    const unsigned last = beyond > width - 1 ? width - 1 : (unsigned)beyond;
    const bool sign = is_signed && x >> last & 1;
    const unsigned kept = first >= width ? 0 : last - first + 1;
    uint64_t field =
        kept == 0 ? 0 : x >> first & (kept == 64 ? UINT64_MAX : (UINT64_C(1) << kept) - 1);
    if (sign && kept < 64) field |= UINT64_MAX << kept;
    return field;
}

static inline uint64_t inserted(uint64_t field, uint64_t into, uint32_t c, uint32_t e,
                                unsigned width)
{
    const unsigned first = c & 0xff, n = e & 0xff;
    if (first >= width || n == 0) return into;
    const unsigned kept = n > width - first ? width - first : n;
    const uint64_t mask = (kept == 64 ? UINT64_MAX : (UINT64_C(1) << kept) - 1) << first;
    return (into & ~mask) | (field << first & mask);
}

VG_HANDLER(bfe_u32, vg_u32, extracted(a[i], b[i], c[i], 32, false))
VG_HANDLER(bfe_s32, vg_u32, extracted(a[i], b[i], c[i], 32, true))
VG_HANDLER_MIXED(bfe_u64, vg_u64, vg_u64, vg_u32, vg_u32, extracted(a[i], b[i], c[i], 64, false))
VG_HANDLER_MIXED(bfe_s64, vg_u64, vg_u64, vg_u32, vg_u32, extracted(a[i], b[i], c[i], 64, true))

static void bfi(struct vg_registers *r, const struct vg_instr *in, uint32_t lanes)
{
    void *d = vg_unit(r, in->dst[0]);
    const void *a = vg_unit(r, in->src[0]), *b = vg_unit(r, in->src[1]);
    const vg_u32 *c = vg_unit(r, in->src[2]), *e = vg_unit(r, in->src[3]);
    uint64_t wait[VG_LANES];
    if (in->type == VG_B64) {
        VG_EACH_LANE(lanes, wait[i] = inserted(((const vg_u64 *)a)[i], ((const vg_u64 *)b)[i], c[i],
                                               e[i], 64));
        VG_EACH_LANE(lanes, ((vg_u64 *)d)[i] = wait[i]);
        return;
    }
    VG_EACH_LANE(
        lanes, wait[i] = inserted(((const vg_u32 *)a)[i], ((const vg_u32 *)b)[i], c[i], e[i], 32));
    VG_EACH_LANE(lanes, ((vg_u32 *)d)[i] = (uint32_t)wait[i]);
}

/* The n lowest bits. */
static inline uint32_t ones(uint32_t n)
{
    return n > 31 ? UINT32_MAX : (UINT32_C(1) << n) - 1;
}

static inline uint32_t mask_of(uint32_t first, uint32_t n, bool clamp)
{
    if (!clamp) return ones(n & 31) << (first & 31);
    return first > 31 ? 0 : ones(n) << first;
}

VG_HANDLER(bmsk_clamp, vg_u32, mask_of(a[i], b[i], true))
VG_HANDLER(bmsk_wrap, vg_u32, mask_of(a[i], b[i], false))

static inline uint32_t extended(uint32_t x, uint32_t n, bool clamp, bool is_signed)
{
    if (clamp && n > 31) return x;
    n &= 31;
    if (n == 0) return 0;
    x &= ones(n);
    return is_signed && x >> (n - 1) & 1 ? x | ~ones(n) : x;
}

VG_HANDLER(szext, vg_u32, extended(a[i], b[i], in->flags &VG_CLAMP, in->type == VG_S32))

/* The highest bit that differs from the sign; none: all ones. */
static inline uint32_t highest(uint64_t x, unsigned width, bool is_signed, bool shift)
{
    if (is_signed && x >> (width - 1) & 1) x = ~x;
    if (width == 32) x = (uint32_t)x;
    if (x == 0) return UINT32_MAX;
    const unsigned bit = 63 - (unsigned)__builtin_clzll(x);
    return shift ? width - 1 - bit : bit;
}

VG_HANDLER(bfind32, vg_u32, highest(a[i], 32, in->type == VG_S32, in->flags &VG_SHIFTAMT))
VG_HANDLER_MIXED(bfind64, vg_u32, vg_u64, vg_u32, vg_u32,
                 highest(a[i], 64, in->type == VG_S64, in->flags &VG_SHIFTAMT))

/* The n-th set bit of x from bit b on (n > 0) or from b downward (n < 0); n = 0: b if it is set. */
static inline uint32_t nth_set(uint32_t x, uint32_t b, int32_t n)
{
    if (n == 0) return b < 32 && x >> b & 1 ? b : UINT32_MAX;
    if (n == INT32_MIN) return 0; /* as an H100 does */
    const int step = n < 0 ? -1 : 1;
    int64_t left = n < 0 ? -(int64_t)n : n;
    for (int64_t bit = b; bit >= 0 && bit < 32; bit += step)
        if (x >> bit & 1 && --left == 0) return (uint32_t)bit;
    return UINT32_MAX;
}

VG_HANDLER(fns, vg_u32, nth_set(a[i], b[i], (int32_t)c[i]))

/* The bytes of {b, a}, 0 to 7, that the four numbers name; bit 3 of a number repeats the byte's
 * sign. */
static inline uint32_t permuted(uint32_t a, uint32_t b, uint32_t selector)
{
    const uint64_t bytes = (uint64_t)b << 32 | a;
    uint32_t result = 0;
    for (unsigned k = 0; k < 4; k++) {
        const unsigned which = selector >> 4 * k & 15;
        uint32_t byte = bytes >> 8 * (which & 7) & 0xff;
        if (which & 8) byte = byte & 0x80 ? 0xff : 0;
        result |= byte << 8 * k;
    }
    return result;
}

static inline uint32_t prmt_selector(unsigned mode, uint32_t c)
{
    static const uint16_t by_mode[7][4] = {
        {0},
        [VG_PRMT_F4E] = {0x3210, 0x4321, 0x5432, 0x6543},
        [VG_PRMT_B4E] = {0x5670, 0x6701, 0x7012, 0x0123},
        [VG_PRMT_RC8] = {0x0000, 0x1111, 0x2222, 0x3333},
        [VG_PRMT_ECL] = {0x3210, 0x3211, 0x3222, 0x3333},
        [VG_PRMT_ECR] = {0x0000, 0x1110, 0x2210, 0x3210},
        [VG_PRMT_RC16] = {0x1010, 0x3232, 0x1010, 0x3232},
    };
    return mode == VG_PRMT_INDEX ? c : by_mode[mode][c & 3];
}

VG_HANDLER(prmt, vg_u32, permuted(a[i], b[i], prmt_selector(in->mode, c[i])))

/* A shift of the 64 bits {b, a}: left gives the high half, right the low one. */
static inline uint32_t funnel(uint32_t a, uint32_t b, uint32_t c, uint32_t flags)
{
    const uint32_t n = flags & VG_CLAMP ? (c > 32 ? 32 : c) : c & 31;
    const uint64_t both = (uint64_t)b << 32 | a;
    return (uint32_t)(flags & VG_SHIFT_LEFT ? both << n >> 32 : both >> n);
}

VG_HANDLER(shf, vg_u32, funnel(a[i], b[i], c[i], in->flags))

vg_compute *vg_field_find(const struct vg_instr *in)
{
    const bool is_64 = in->type == VG_B64 || in->type == VG_U64 || in->type == VG_S64;
    const bool is_signed = in->type == VG_S32 || in->type == VG_S64;
    switch ((enum vg_op)in->op) {
    case VG_BFE:
        return is_64 ? (is_signed ? bfe_s64 : bfe_u64) : (is_signed ? bfe_s32 : bfe_u32);
    case VG_BFI:
        return bfi;
    case VG_BMSK:
        return in->flags & VG_CLAMP ? bmsk_clamp : bmsk_wrap;
    case VG_SZEXT:
        return szext;
    case VG_BFIND:
        return is_64 ? bfind64 : bfind32;
    case VG_FNS:
        return fns;
    case VG_PRMT:
        return in->mode <= VG_PRMT_RC16 ? prmt : NULL;
    case VG_SHF:
        return shf;
    default:
        return NULL;
    }
}
