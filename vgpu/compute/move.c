/* mov, and the packing of registers into wider ones. Source: PTX ISA, 9.7.9.3 and 9.7.9.4. */
#include <vgpu/compute/handlers.h>
#include <vgpu/compute/lanes.h>

VG_HANDLER(mov32, vg_u32, a[i])
VG_HANDLER(mov64, vg_u64, a[i])

static void mov128(struct vg_registers *r, const struct vg_instr *in, uint32_t lanes)
{
    vg_u64 *d = vg_unit(r, in->dst[0]);
    const vg_u64 *a = vg_unit(r, in->src[0]);
    VG_EACH_LANE(lanes, d[i] = a[i], d[i + VG_LANES] = a[i + VG_LANES]);
}

static void mov_pred(struct vg_registers *r, const struct vg_instr *in, uint32_t lanes)
{
    const uint32_t value = vg_mask(r, in->src[0]);
    vg_set_mask(r, in->dst[0], lanes, in->flags & VG_SOURCE_NOT ? ~value : value);
}

/* The bytes of a register in lane i; the first source lies lowest. */
static uint64_t lane_of(const void *unit, unsigned nbytes, unsigned i)
{
    return nbytes == 8 ? ((const vg_u64 *)unit)[i] : ((const vg_u32 *)unit)[i];
}

static void put_lane(void *unit, unsigned nbytes, unsigned i, uint64_t value)
{
    if (nbytes == 8)
        ((vg_u64 *)unit)[i] = value;
    else
        ((vg_u32 *)unit)[i] = (uint32_t)value;
}

static void pack(struct vg_registers *r, const struct vg_instr *in, uint32_t lanes)
{
    const unsigned whole = vg_type_bytes(in->type), part = vg_type_bytes(in->type2);
    uint64_t wait[2][VG_LANES] = {{0}};
    VG_EACH_LANE(lanes, {
        for (unsigned k = 0; k < in->count; k++) {
            const uint64_t value = lane_of(vg_unit(r, in->src[k]), part, i);
            wait[k * part / 8][i] |= value << 8 * (k * part % 8);
        }
    });
    char *d = vg_unit(r, in->dst[0]);
    VG_EACH_LANE(lanes, {
        put_lane(d, whole > 4 ? 8 : 4, i, wait[0][i]);
        if (whole == 16) put_lane(d + 2 * VG_UNIT_BYTES, 8, i, wait[1][i]);
    });
}

/* A destination of VG_NONE is left out. */
static void unpack(struct vg_registers *r, const struct vg_instr *in, uint32_t lanes)
{
    const unsigned whole = vg_type_bytes(in->type), part = vg_type_bytes(in->type2);
    const uint64_t mask = part == 8 ? UINT64_MAX : (UINT64_C(1) << 8 * part) - 1;
    const char *a = vg_unit(r, in->src[0]);
    uint64_t from[2][VG_LANES];
    VG_EACH_LANE(lanes, {
        from[0][i] = lane_of(a, whole > 4 ? 8 : 4, i);
        from[1][i] = whole == 16 ? lane_of(a + 2 * VG_UNIT_BYTES, 8, i) : 0;
    });
    for (unsigned k = 0; k < in->count; k++) {
        if (in->dst[k] == VG_NONE) continue;
        void *d = vg_unit(r, in->dst[k]);
        VG_EACH_LANE(lanes,
                     put_lane(d, part, i, from[k * part / 8][i] >> 8 * (k * part % 8) & mask));
    }
}

vg_compute *vg_move_find(const struct vg_instr *in)
{
    if (in->op == VG_PACK) return pack;
    if (in->op == VG_UNPACK) return unpack;
    if (in->type == VG_PRED) return mov_pred;
    switch (vg_type_bytes(in->type)) {
    case 8:
        return mov64;
    case 16:
        return mov128;
    default:
        return mov32;
    }
}
