/* Logic, shifts and counts of bits. Source: PTX ISA, 9.7.1 and 9.7.8. */
#include <vgpu/compute/handlers.h>
#include <vgpu/compute/lanes.h>

#define LOGIC(suffix, U, B)                                                                        \
    VG_HANDLER(and_##suffix, U, a[i] & b[i])                                                       \
    VG_HANDLER(or_##suffix, U, a[i] | b[i])                                                        \
    VG_HANDLER(xor_##suffix, U, a[i] ^ b[i])                                                       \
    VG_HANDLER(not_##suffix, U, (B)~a[i])                                                          \
    VG_HANDLER(cnot_##suffix, U, (B)a[i] == 0)
LOGIC(b16, vg_u32, uint16_t)
LOGIC(b32, vg_u32, uint32_t)
LOGIC(b64, vg_u64, uint64_t)

/* A shift by more than the width is a shift by the width; the amount is a register of 32 bits. */
VG_HANDLER(shl_b16, vg_u32, (uint16_t)(b[i] > 15 ? 0 : a[i] << b[i]))
VG_HANDLER(shl_b32, vg_u32, b[i] > 31 ? 0 : a[i] << b[i])
VG_HANDLER(shr_u16, vg_u32, (uint16_t)(b[i] > 15 ? 0 : (uint16_t)a[i] >> b[i]))
VG_HANDLER(shr_u32, vg_u32, b[i] > 31 ? 0 : a[i] >> b[i])
VG_HANDLER(shr_s16, vg_u32, (uint16_t)((int16_t)a[i] >> (b[i] > 15 ? 15 : b[i])))
VG_HANDLER(shr_s32, vg_u32, (uint32_t)((int32_t)a[i] >> (b[i] > 31 ? 31 : b[i])))
VG_HANDLER_MIXED(shl_b64, vg_u64, vg_u64, vg_u32, vg_u32, b[i] > 63 ? 0 : a[i] << b[i])
VG_HANDLER_MIXED(shr_u64, vg_u64, vg_u64, vg_u32, vg_u32, b[i] > 63 ? 0 : a[i] >> b[i])
VG_HANDLER_MIXED(shr_s64, vg_u64, vg_u64, vg_u32, vg_u32,
                 (uint64_t)((int64_t)a[i] >> (b[i] > 63 ? 63 : b[i])))

VG_HANDLER(popc_b32, vg_u32, __builtin_popcount(a[i]))
VG_HANDLER(clz_b32, vg_u32, a[i] ? __builtin_clz(a[i]) : 32)
VG_HANDLER_MIXED(popc_b64, vg_u32, vg_u64, vg_u32, vg_u32, __builtin_popcountll(a[i]))
VG_HANDLER_MIXED(clz_b64, vg_u32, vg_u64, vg_u32, vg_u32, a[i] ? __builtin_clzll(a[i]) : 64)

static inline uint32_t reversed(uint32_t x)
{
    x = (x >> 1 & 0x55555555) | (x & 0x55555555) << 1;
    x = (x >> 2 & 0x33333333) | (x & 0x33333333) << 2;
    x = (x >> 4 & 0x0f0f0f0f) | (x & 0x0f0f0f0f) << 4;
    return __builtin_bswap32(x);
}

VG_HANDLER(brev_b32, vg_u32, reversed(a[i]))
VG_HANDLER(brev_b64, vg_u64,
           (uint64_t)reversed((uint32_t)a[i]) << 32 | reversed((uint32_t)(a[i] >> 32)))

/* Bit (x, y, z) of the table, for each bit: x is a's, the highest. */
static inline uint32_t chosen(uint32_t x, uint32_t y, uint32_t z, unsigned bits)
{
    uint32_t result = 0;
    if (bits & 1) result |= ~x & ~y & ~z;
    if (bits & 2) result |= ~x & ~y & z;
    if (bits & 4) result |= ~x & y & ~z;
    if (bits & 8) result |= ~x & y & z;
    if (bits & 16) result |= x & ~y & ~z;
    if (bits & 32) result |= x & ~y & z;
    if (bits & 64) result |= x & y & ~z;
    if (bits & 128) result |= x & y & z;
    return result;
}

/* lop3, and with dst[1] lop3.BoolOp: p = (d != 0) BoolOp q, q among the sources. */
static void lop3(struct vg_registers *r, const struct vg_instr *in, uint32_t lanes)
{
    vg_u32 ignored[VG_LANES];
    vg_u32 *d = in->dst[0] == VG_NONE ? ignored : vg_unit(r, in->dst[0]);
    const vg_u32 *a = vg_unit(r, in->src[0]), *b = vg_unit(r, in->src[1]),
                 *c = vg_unit(r, in->src[2]);
    const unsigned bits = in->mode;
    uint32_t nonzero = 0;
    VG_EACH_LANE(lanes, d[i] = chosen(a[i], b[i], c[i], bits));
    if (in->combine == VG_BOOL_NONE) return;
    VG_EACH_LANE(lanes, nonzero |= (uint32_t)(d[i] != 0) << i);
    const uint32_t q = in->flags & VG_SOURCE_NOT ? ~vg_mask(r, in->src[3]) : vg_mask(r, in->src[3]);
    vg_set_mask(r, in->dst[1], lanes, in->combine == VG_BOOL_AND ? nonzero & q : nonzero | q);
}

/* Logic of predicates is logic of masks. */
static void logic_pred(struct vg_registers *r, const struct vg_instr *in, uint32_t lanes)
{
    const uint32_t a = vg_mask(r, in->src[0]),
                   b = in->src[1] == VG_NONE ? 0 : vg_mask(r, in->src[1]);
    uint32_t value = 0;
    switch ((enum vg_op)in->op) {
    case VG_AND:
        value = a & b;
        break;
    case VG_OR:
        value = a | b;
        break;
    case VG_XOR:
        value = a ^ b;
        break;
    default:
        value = ~a;
    }
    vg_set_mask(r, in->dst[0], lanes, value);
}

#define BY_WIDTH(of16, of32, of64) (w == 16 ? (of16) : w == 32 ? (of32) : (of64))

static vg_compute *find_shift_right(const struct vg_instr *in, unsigned w)
{
    if (in->type == VG_S16 || in->type == VG_S32 || in->type == VG_S64)
        return BY_WIDTH(shr_s16, shr_s32, shr_s64);
    return BY_WIDTH(shr_u16, shr_u32, shr_u64);
}

vg_compute *vg_bits_find(const struct vg_instr *in)
{
    const bool logic = in->op == VG_AND || in->op == VG_OR || in->op == VG_XOR || in->op == VG_NOT;
    if (in->type == VG_PRED) return logic ? logic_pred : NULL;
    const unsigned w = vg_integer_bits(in->type);
    if (w < 16) return NULL;
    switch ((enum vg_op)in->op) {
    case VG_AND:
        return BY_WIDTH(and_b16, and_b32, and_b64);
    case VG_OR:
        return BY_WIDTH(or_b16, or_b32, or_b64);
    case VG_XOR:
        return BY_WIDTH(xor_b16, xor_b32, xor_b64);
    case VG_NOT:
        return BY_WIDTH(not_b16, not_b32, not_b64);
    case VG_CNOT:
        return BY_WIDTH(cnot_b16, cnot_b32, cnot_b64);
    case VG_SHL:
        return BY_WIDTH(shl_b16, shl_b32, shl_b64);
    case VG_SHR:
        return find_shift_right(in, w);
    case VG_POPC:
        return BY_WIDTH(NULL, popc_b32, popc_b64);
    case VG_CLZ:
        return BY_WIDTH(NULL, clz_b32, clz_b64);
    case VG_BREV:
        return BY_WIDTH(NULL, brev_b32, brev_b64);
    case VG_LOP3:
        return w == 32 ? lop3 : NULL;
    default:
        return NULL;
    }
}
