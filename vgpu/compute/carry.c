/* Extended precision: sums and products that write or read the carry CC.CF. Source: PTX ISA, 9.7.2.
 */
#include <vgpu/compute/handlers.h>
#include <vgpu/compute/lanes.h>

typedef unsigned __int128 wide;
typedef __int128 wide_signed;

/* The carry is the bit above the sum. sub adds the complement: its carry is 1 where it borrows
 * nothing. nvcc's own code relies on that where it reads sub.cc's carry by addc (the division of
 * 128 bits). */
static inline uint64_t sum(uint64_t x, uint64_t y, bool carry, unsigned bits, bool *out)
{
    const wide whole = (wide)x + y + carry;
    *out = whole >> bits & 1;
    return (uint64_t)whole;
}

static inline uint64_t difference(uint64_t x, uint64_t y, bool carry, unsigned bits, bool *out)
{
    const wide whole = (wide)x - y - !carry;
    *out = !(whole >> bits & 1);
    return (uint64_t)whole;
}

static inline uint64_t product(const struct vg_instr *in, uint64_t x, uint64_t y)
{
    const unsigned bits = in->type == VG_U64 || in->type == VG_S64 || in->type == VG_B64 ? 64 : 32;
    wide whole = (wide)x * y;
    if (in->type == VG_S32) whole = (wide)((wide_signed)(int32_t)x * (int32_t)y);
    if (in->type == VG_S64) whole = (wide)((wide_signed)(int64_t)x * (int64_t)y);
    if (in->mode == VG_MUL_HI) whole >>= bits;
    return bits == 64 ? (uint64_t)whole : (uint32_t)whole;
}

static uint64_t one(const struct vg_instr *in, uint64_t x, uint64_t y, uint64_t z, bool *carry)
{
    const unsigned bits = in->type == VG_U64 || in->type == VG_S64 || in->type == VG_B64 ? 64 : 32;
    const bool with = in->flags & VG_CARRY_IN && *carry;
    if (in->op == VG_ADD) return sum(x, y, with, bits, carry);
    if (in->op == VG_SUB)
        return difference(x, y, in->flags & VG_CARRY_IN ? *carry : true, bits, carry);
    return sum(product(in, x, y), z, with, bits, carry);
}

static void carry(struct vg_registers *r, const struct vg_instr *in, uint32_t lanes)
{
    const bool is_64 = in->type == VG_U64 || in->type == VG_S64 || in->type == VG_B64;
    void *d = vg_unit(r, in->dst[0]);
    const void *a = vg_unit(r, in->src[0]), *b = vg_unit(r, in->src[1]),
               *c = vg_unit(r, in->src[2]);
    const bool three = in->op == VG_MAD;
    uint32_t out = r->carry;
    VG_EACH_LANE(lanes, {
        bool flag = r->carry >> i & 1;
        if (is_64) {
            const uint64_t z = three ? ((const vg_u64 *)c)[i] : 0;
            ((vg_u64 *)d)[i] = one(in, ((const vg_u64 *)a)[i], ((const vg_u64 *)b)[i], z, &flag);
        } else {
            const uint32_t z = three ? ((const vg_u32 *)c)[i] : 0;
            ((vg_u32 *)d)[i] =
                (uint32_t)one(in, ((const vg_u32 *)a)[i], ((const vg_u32 *)b)[i], z, &flag);
        }
        out = (out & ~(UINT32_C(1) << i)) | (uint32_t)flag << i;
    });
    if (in->flags & VG_CARRY_OUT) r->carry = out;
}

vg_compute *vg_carry_find(const struct vg_instr *in)
{
    switch ((enum vg_type)in->type) {
    case VG_B32:
    case VG_U32:
    case VG_S32:
    case VG_B64:
    case VG_U64:
    case VG_S64:
        break;
    default:
        return NULL;
    }
    return in->op == VG_ADD || in->op == VG_SUB || in->op == VG_MAD ? carry : NULL;
}
