/* Atomic operations: atom and red of every type. */
#include "machine_internal.h"

#include <math.h>
#include <string.h>

#include <vgpu/compute/format.h>

struct change {
    const struct vg_instr *in;
    bool shared, wrote, changed;
    unsigned char operand[16], second[16];
};

/* The sum of two fp16 or bf16 numbers, rounded once to nearest. */
static uint16_t add_half(uint16_t a, uint16_t b, bool bf16)
{
    const struct vg_format *f = bf16 ? &vg_bf16_format : &vg_f16_format;
    const double sum = vg_odd_add(vg_value(f, a), vg_value(f, b));
    return (uint16_t)vg_pack(f, vg_unpack_double(sum), VG_RN, false);
}

static float flushed(float x, bool flush)
{
    return flush && fabsf(x) < 0x1p-126f ? copysignf(0, x) : x;
}

/* atom.add.f32 flushes denormals on global memory, not on shared: docs/cuda-measured.md. */
static uint32_t add_float(uint32_t a, uint32_t b, bool flush)
{
    float x, y;
    memcpy(&x, &a, 4);
    memcpy(&y, &b, 4);
    const float sum = flushed(flushed(x, flush) + flushed(y, flush), flush);
    uint32_t bits;
    memcpy(&bits, &sum, 4);
    return isnan(sum) ? 0x7fffffff : bits;
}

static uint64_t add_double(uint64_t a, uint64_t b)
{
    double x, y;
    memcpy(&x, &a, 8);
    memcpy(&y, &b, 8);
    const double sum = x + y;
    uint64_t bits;
    memcpy(&bits, &sum, 8);
    return isnan(sum) ? UINT64_C(0x7fffffffffffffff) : bits;
}

static uint64_t add(const struct vg_instr *in, bool shared, uint64_t a, uint64_t b)
{
    switch (in->type) {
    case VG_F32:
        return add_float((uint32_t)a, (uint32_t)b, !shared);
    case VG_F64:
        return add_double(a, b);
    case VG_F16:
        return add_half((uint16_t)a, (uint16_t)b, false);
    case VG_BF16:
        return add_half((uint16_t)a, (uint16_t)b, true);
    case VG_F16X2:
    case VG_BF16X2: {
        const bool bf16 = in->type == VG_BF16X2;
        const uint64_t low = add_half((uint16_t)a, (uint16_t)b, bf16);
        return low | (uint64_t)add_half((uint16_t)(a >> 16), (uint16_t)(b >> 16), bf16) << 16;
    }
    default:
        return a + b;
    }
}

static uint16_t choose_half(uint16_t a, uint16_t b, bool bf16, bool max)
{
    const struct vg_format *f = bf16 ? &vg_bf16_format : &vg_f16_format;
    const double x = vg_value(f, a);
    const double y = vg_value(f, b);
    if (isnan(x) && isnan(y)) return 0x7fff;
    if (isnan(x) || isnan(y)) return isnan(x) ? b : a;
    const bool less = x < y || (x == y && signbit(x) && !signbit(y));
    return less != max ? a : b;
}

static uint64_t choose(const struct vg_instr *in, uint64_t a, uint64_t b, bool max)
{
    bool less = a < b;
    switch (in->type) {
    case VG_S32:
        less = (int32_t)a < (int32_t)b;
        break;
    case VG_S64:
        less = (int64_t)a < (int64_t)b;
        break;
    case VG_F16:
    case VG_BF16:
        return choose_half((uint16_t)a, (uint16_t)b, in->type == VG_BF16, max);
    case VG_F16X2:
    case VG_BF16X2: {
        const bool bf16 = in->type == VG_BF16X2;
        const uint64_t low = choose_half((uint16_t)a, (uint16_t)b, bf16, max);
        return low | (uint64_t)choose_half((uint16_t)(a >> 16), (uint16_t)(b >> 16), bf16, max)
                         << 16;
    }
    default:
        break;
    }
    return less != max ? a : b;
}

bool vg_atomic_apply(const struct vg_instr *in, bool shared, const void *old, const void *operand,
                     const void *second, void *value)
{
    const uint32_t nbytes = vg_type_bytes(in->type);
    if (nbytes == 16) { /* exch and cas only */
        if (in->mode == VG_ATOM_CAS && memcmp(old, operand, 16) != 0) return false;
        memcpy(value, in->mode == VG_ATOM_CAS ? second : operand, 16);
        return true;
    }
    uint64_t a = 0, b = 0, result;
    memcpy(&a, old, nbytes);
    memcpy(&b, operand, nbytes);
    switch (in->mode) {
    case VG_ATOM_CAS:
        if (a != b) return false;
        result = 0;
        memcpy(&result, second, nbytes);
        break;
    case VG_ATOM_ADD:
        result = add(in, shared, a, b);
        break;
    case VG_ATOM_INC:
        result = a >= b ? 0 : a + 1;
        break;
    case VG_ATOM_DEC:
        result = a == 0 || a > b ? b : a - 1;
        break;
    case VG_ATOM_MIN:
        result = choose(in, a, b, false);
        break;
    case VG_ATOM_MAX:
        result = choose(in, a, b, true);
        break;
    case VG_ATOM_AND:
        result = a & b;
        break;
    case VG_ATOM_OR:
        result = a | b;
        break;
    case VG_ATOM_XOR:
        result = a ^ b;
        break;
    default:
        result = b;
    }
    memcpy(value, &result, nbytes);
    return true;
}

static bool apply(void *arg, const void *old, void *value)
{
    struct change *change = arg;
    const bool writes =
        vg_atomic_apply(change->in, change->shared, old, change->operand, change->second, value);
    change->wrote = writes;
    change->changed = writes && memcmp(old, value, vg_type_bytes(change->in->type)) != 0;
    return writes;
}

static void take(const struct vg_registers *r, uint16_t operand, uint32_t lane, uint32_t nbytes,
                 unsigned char *value)
{
    const char *unit = vg_source(r, operand);
    if (nbytes < 8) {
        memcpy(value, unit + lane * 4, nbytes);
        return;
    }
    memcpy(value, unit + lane * 8, 8);
    if (nbytes == 16) memcpy(value + 8, unit + 2 * VG_UNIT_BYTES + lane * 8, 8);
}

static void give(const struct vg_registers *r, uint16_t operand, uint32_t lane, uint32_t nbytes,
                 const unsigned char *value)
{
    if (nbytes < 8) {
        uint32_t word = 0;
        memcpy(&word, value, nbytes);
        r->frame[operand][lane] = word;
        return;
    }
    memcpy((char *)r->frame[operand] + lane * 8, value, 8);
    if (nbytes == 16) memcpy((char *)r->frame[operand + 2] + lane * 8, value + 8, 8);
}

/* One scalar access of a lane. */
struct atom {
    const struct vg_instr *in;
    struct vg_warp *warp;
    struct vg_region *region;
    uint32_t lane, nbytes;
    bool changed;
    unsigned char old[16];
};

static bool perform(struct atom *atom, uint64_t offset, const unsigned char *operand,
                    const unsigned char *second)
{
    struct vg_region *region = atom->region;
    struct vg_block *block = atom->warp->block;
    const struct vg_how how = {.nbytes = (uint8_t)atom->nbytes,
                               .order = atom->in->order == VG_WEAK ? VG_RELAXED : atom->in->order,
                               .scope = atom->in->scope,
                               .red = atom->in->op == VG_RED,
                               .where = (uint64_t)(uintptr_t)atom->in};
    struct vg_instr scalar = *atom->in;
    struct change change = {.in = &scalar, .shared = vg_is_shared(region)};
    if (region->defined != NULL && atom->in->mode != VG_ATOM_EXCH &&
        !vg_defined(region, offset, atom->nbytes)) {
        vg_undefined(atom->warp, atom->lane, atom->in, region, region->address + offset,
                     atom->nbytes);
        return false;
    }
    if (atom->nbytes == 2 && scalar.type == VG_F16X2) scalar.type = VG_F16;
    if (atom->nbytes == 2 && scalar.type == VG_BF16X2) scalar.type = VG_BF16;
    memcpy(change.operand, operand, atom->nbytes);
    memcpy(change.second, second, atom->nbytes);
    vg_model_rmw(block->clock, atom->warp->number * VG_LANES + atom->lane, region, offset, &how,
                 apply, &change, atom->old);
    if (region->defined != NULL && change.wrote) vg_define(region, offset, atom->nbytes);
    atom->changed = atom->changed || change.changed;
    return true;
}

/* One element of a lane's vector, and what was there, added to *sum. Packed types are accessed half
 * by half (8.2.5). */
static bool change_element(struct atom *atom, const struct vg_registers *r, uint32_t element,
                           uint64_t offset, uint64_t *sum)
{
    const struct vg_instr *in = atom->in;
    const uint32_t nbytes = vg_type_bytes(in->type);
    unsigned char operand[16] = {0}, second[16] = {0}, old[16] = {0};
    take(r, in->src[1 + element], atom->lane, nbytes, operand);
    if (in->mode == VG_ATOM_CAS) take(r, in->src[2], atom->lane, nbytes, second);
    for (uint32_t at = 0; at < nbytes; at += atom->nbytes) {
        if (!perform(atom, offset + at, operand + at, second + at)) return false;
        memcpy(old + at, atom->old, atom->nbytes);
    }
    if (in->op == VG_ATOM && in->dst[element] != VG_NONE)
        give(r, in->dst[element], atom->lane, nbytes, old);
    uint64_t word;
    memcpy(&word, old, 8);
    *sum += (word ^ atom->lane) * UINT64_C(0x9e3779b97f4a7c15); /* in whatever order */
    return true;
}

/* Lanes in an order by seed: the manual promises none. The elements of a vector are accesses of
 * their own. */
enum vg_step vg_atomic(struct vg_warp *warp, struct vg_fragment *fragment,
                       const struct vg_instr *in, uint32_t lanes, struct vg_region *region,
                       const uint64_t *address)
{
    struct vg_block *block = warp->block;
    const struct vg_registers r = vg_fragment_registers(warp, fragment);
    const bool packed = in->type == VG_F16X2 || in->type == VG_BF16X2;
    const uint32_t nbytes = vg_type_bytes(in->type), count = in->count > 1 ? in->count : 1;
    const uint32_t turn = (uint32_t)(vg_random(&block->run->random) % VG_LANES);
    struct atom atom = {.in = in, .warp = warp, .region = region, .nbytes = packed ? 2 : nbytes};
    uint64_t sum = 0;
    for (uint32_t j = 0; j < VG_LANES; j++) {
        const uint32_t i = atom.lane = (j + turn) % VG_LANES;
        if ((lanes >> i & 1) == 0) continue;
        for (uint32_t c = 0; c < count; c++)
            if (!change_element(&atom, &r, c, address[i] - region->address + c * nbytes, &sum))
                return VG_FAILED;
    }
    /* An operation that changes nothing is a look: a thread may wait by it. */
    if (atom.changed)
        vg_moved(warp, fragment);
    else if (fragment->idle * 2 >= block->run->machine->settings.patience)
        vg_watch_load(warp, fragment, in, lanes, region, address[vg_first(lanes)], sum);
    return VG_NEXT;
}
