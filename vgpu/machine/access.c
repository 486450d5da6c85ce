/* Loads and stores: from addresses to regions, lane by lane. */
#include "machine_internal.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

struct access {
    struct vg_warp *warp;
    struct vg_fragment *fragment;
    const struct vg_instr *in;
    struct vg_registers r;
    uint32_t nbytes;    /* of one scalar access */
    uint32_t first, to; /* the components that are done now */
    bool write;
};

static void put(const struct access *a, uint16_t operand, uint32_t lane, const void *value)
{
    uint32_t word = 0;
    if (operand == VG_NONE) return; /* an element that nobody wants */
    switch (a->nbytes) {
    case 16:
        memcpy((uint64_t *)(void *)a->r.frame[operand] + lane, value, 8);
        memcpy((uint64_t *)(void *)a->r.frame[operand + 2] + lane, (const char *)value + 8, 8);
        return;
    case 8:
        memcpy((uint64_t *)(void *)a->r.frame[operand] + lane, value, 8);
        return;
    case 4:
        memcpy(&word, value, 4);
        break;
    case 2: {
        uint16_t half;
        memcpy(&half, value, 2);
        word = a->in->type == VG_S16 ? (uint32_t)(int16_t)half : half;
        break;
    }
    default: {
        uint8_t byte;
        memcpy(&byte, value, 1);
        word = a->in->type == VG_S8 ? (uint32_t)(int8_t)byte : byte;
    }
    }
    a->r.frame[operand][lane] = word;
}

static void get(const struct access *a, uint16_t operand, uint32_t lane, void *value)
{
    const char *unit = vg_source(&a->r, operand);
    if (a->nbytes < 8) { /* little endian: the low bytes come first */
        memcpy(value, unit + lane * 4, a->nbytes);
    } else {
        memcpy(value, unit + lane * 8, 8);
        if (a->nbytes == 16) memcpy((char *)value + 8, unit + 2 * VG_UNIT_BYTES + lane * 8, 8);
    }
}

static bool watched(const struct access *a)
{
    return a->fragment->idle * 2 >= a->warp->block->run->machine->settings.patience;
}

static struct vg_how how_of(const struct vg_instr *in, uint32_t nbytes)
{
    return (struct vg_how){.nbytes = (uint8_t)nbytes,
                           .order = in->order,
                           .scope = in->scope,
                           .nc = (in->flags & VG_NC) != 0,
                           .where = (uint64_t)(uintptr_t)in};
}

/* Bytes only: the settings say that there is no model, and nobody else accesses them. */
#define COPY_LANES(type, lane_type, convert)                                                       \
    do {                                                                                           \
        lane_type *d = (lane_type *)(void *)a->r.frame[a->in->dst[c]];                             \
        const unsigned char *bytes = region->bytes + c * a->nbytes - region->address;              \
        VG_FOR_LANES(i, lanes)                                                                     \
        {                                                                                          \
            type value;                                                                            \
            memcpy(&value, bytes + address[i], sizeof value);                                      \
            d[i] = (lane_type)convert value;                                                       \
        }                                                                                          \
    } while (0)

static void load_bytes(const struct access *a, uint32_t lanes, const struct vg_region *region,
                       const uint64_t *address, uint32_t c)
{
    if (a->in->dst[c] == VG_NONE) return;
    if (a->nbytes == 4) {
        COPY_LANES(uint32_t, uint32_t, );
    } else if (a->nbytes == 8) {
        COPY_LANES(uint64_t, uint64_t, );
    } else {
        VG_FOR_LANES(i, lanes)
        put(a, a->in->dst[c], i, region->bytes + (address[i] - region->address) + c * a->nbytes);
    }
}

static void store_bytes(const struct access *a, uint32_t lanes, const struct vg_region *region,
                        const uint64_t *address, uint32_t c)
{
    const uint16_t operand = a->in->src[1 + c];
    unsigned char *bytes = region->bytes + c * a->nbytes - region->address;
    if (a->nbytes == 4) {
        const uint32_t *s = vg_source(&a->r, operand);
        VG_FOR_LANES(i, lanes) memcpy(bytes + address[i], s + i, 4);
    } else if (a->nbytes == 8) {
        const uint64_t *s = vg_source(&a->r, operand);
        VG_FOR_LANES(i, lanes) memcpy(bytes + address[i], s + i, 8);
    } else {
        VG_FOR_LANES(i, lanes)
        {
            unsigned char value[16];
            get(a, operand, i, value);
            memcpy(bytes + address[i], value, a->nbytes);
        }
    }
}

/* All lanes' addresses lie in the region. */
static enum vg_step load(const struct access *a, uint32_t lanes, struct vg_region *region,
                         const uint64_t *address)
{
    struct vg_block *block = a->warp->block;
    struct vg_machine *machine = block->run->machine;
    const bool plain = machine->settings.model.off && !region->reachable;
    const struct vg_how how = how_of(a->in, a->nbytes);
    const bool watches = watched(a);
    uint64_t sum = 0;
    for (uint32_t c = a->first; c < a->to; c++) {
        if (region->defined != NULL) VG_FOR_LANES(i, lanes)
            {
                const uint64_t offset = address[i] - region->address + c * a->nbytes;
                if (!vg_defined(region, offset, a->nbytes))
                    return vg_undefined(a->warp, i, a->in, region, address[i] + c * a->nbytes,
                                        a->nbytes);
            }
        if (plain && !watches) {
            load_bytes(a, lanes, region, address, c);
            continue;
        }
        VG_FOR_LANES(i, lanes)
        {
            uint64_t value[2] = {0, 0};
            const uint64_t offset = address[i] - region->address + c * a->nbytes;
            if (plain)
                memcpy(value, region->bytes + offset, a->nbytes);
            else
                vg_model_load(block->clock, a->warp->number * VG_LANES + i, region, offset, &how,
                              value);
            put(a, a->in->dst[c], i, value);
            if (watches) sum = vg_hash(vg_hash(sum, value[0]), value[1]);
        }
    }
    if (watches)
        vg_watch_load(a->warp, a->fragment, a->in, lanes, region,
                      address[vg_first(lanes)] + a->first * a->nbytes, sum);
    return VG_NEXT;
}

static enum vg_step store(const struct access *a, uint32_t lanes, struct vg_region *region,
                          const uint64_t *address)
{
    struct vg_block *block = a->warp->block;
    const struct vg_how how = how_of(a->in, a->nbytes);
    for (uint32_t c = a->first; c < a->to; c++) {
        if (region->defined != NULL) VG_FOR_LANES(i, lanes)
        vg_define(region, address[i] - region->address + c * a->nbytes, a->nbytes);
        if (block->run->machine->settings.model.off && !region->reachable) {
            store_bytes(a, lanes, region, address, c);
            continue;
        }
        VG_FOR_LANES(i, lanes)
        {
            unsigned char value[16];
            get(a, a->in->src[1 + c], i, value);
            vg_model_store(block->clock, a->warp->number * VG_LANES + i, region,
                           address[i] - region->address + c * a->nbytes, &how, value);
        }
    }
    vg_moved(a->warp, a->fragment);
    return VG_NEXT;
}

static bool may_write(const struct access *a, const struct vg_region *region)
{
    if (region->readonly) return false;
    return region->readers == 0 ||
           (region->readers >> a->warp->block->run->launch.gpu->number & 1) == 0;
}

/* Whether one of the lane's last strong loads was from this address. */
static bool is_again(struct vg_warp *warp, uint32_t lane, uint64_t address)
{
    uint64_t *last = warp->strong[lane].address;
    for (int i = 0; i < VG_STRONG_KEPT; i++)
        if (last[i] == address) return true;
    last[warp->strong[lane].next++ % VG_STRONG_KEPT] = address;
    return false;
}

static uint32_t wait_again(const struct access *a, uint32_t lanes, const uint64_t *address)
{
    uint32_t again = 0;
    VG_FOR_LANES(i, lanes)
    if (is_again(a->warp, i, address[i])) again |= 1u << i;
    return again;
}

static void count(const struct access *a, uint32_t lanes, const uint64_t *address)
{
    struct vgpu_traffic *traffic = vg_traffic_of(a->warp->block);
    const uint64_t nbytes = a->nbytes * (a->to - a->first);
    const uint64_t moved = (uint64_t)__builtin_popcount(lanes) * nbytes;
    const bool weak = a->in->order == VG_WEAK && (a->in->op == VG_LD || a->in->op == VG_ST);
    if (a->in->op == VG_LD)
        *(weak ? &traffic->weak_loaded : &traffic->strong_loaded) += moved;
    else
        *(weak ? &traffic->weak_stored : &traffic->strong_stored) += moved;
    if (a->in->op != VG_LD && a->in->order >= VG_RELEASE)
        traffic->fences += (uint64_t)__builtin_popcount(lanes);
    if (!weak && a->in->op == VG_LD)
        traffic->waited += (uint64_t)__builtin_popcount(wait_again(a, lanes, address)) * nbytes;
}

/* As over PCIe where nobody answers. */
static enum vg_step lose(const struct access *a, uint32_t lanes)
{
    static const uint64_t ones[2] = {UINT64_MAX, UINT64_MAX};
    const bool loads = a->in->op == VG_LD;
    const uint32_t to = loads ? a->to : a->in->op == VG_ATOM ? 1 : 0;
    for (uint32_t c = loads ? a->first : 0; c < to; c++)
        VG_FOR_LANES(i, lanes) put(a, a->in->dst[c], i, ones);
    return VG_NEXT;
}

static bool is_lost(const struct access *a, const struct vg_region *region)
{
    return region->lost != 0 && (region->lost >> a->warp->block->run->launch.gpu->number & 1) != 0;
}

static enum vg_step on_region(const struct access *a, uint32_t lanes, struct vg_region *region,
                              const uint64_t *address)
{
    if (is_lost(a, region)) return lose(a, lanes);
    if (a->write && !may_write(a, region))
        return vg_fail(a->warp, vg_first(lanes), a->in, VG_FAULT_ADDRESS,
                       "writes to 0x%" PRIx64 ", which is read-only: %s (allocation %" PRIu64 ")",
                       address[vg_first(lanes)], region->what, region->number);
    if (!vg_is_shared(region)) count(a, lanes, address);
    if (a->in->op == VG_LD) return load(a, lanes, region, address);
    if (a->in->op == VG_ST) return store(a, lanes, region, address);
    return vg_atomic(a->warp, a->fragment, a->in, lanes, region, address);
}

static enum vg_step in_global(const struct access *a, uint32_t lanes, const uint64_t *address,
                              uint32_t total)
{
    struct vg_run *run = a->warp->block->run;
    uint64_t low = UINT64_MAX, high = 0;
    VG_FOR_LANES(i, lanes)
    {
        low = address[i] < low ? address[i] : low;
        high = address[i] > high ? address[i] : high;
    }
    struct vg_region **cached = &run->cache[((uintptr_t)a->in / sizeof *a->in) % VG_CACHE];
    const struct vg_region *c = *cached;
    if (c != NULL && low >= c->address && c->nbytes >= total &&
        high - c->address <= c->nbytes - total)
        return on_region(a, lanes, *cached, address);
    while (lanes != 0) {
        const uint32_t first = vg_first(lanes);
        struct vg_region *region = vg_regions_find(run->launch.gpu->regions, address[first]);
        if (region == NULL || region->freed || region->nbytes < total ||
            address[first] - region->address > region->nbytes - total)
            return vg_outside(a->warp, first, a->in, address[first], total, a->write);
        uint32_t here = 0;
        VG_FOR_LANES(i, lanes)
        if (address[i] >= region->address && address[i] - region->address <= region->nbytes - total)
            here |= 1u << i;
        *cached = region;
        const enum vg_step step = on_region(a, here, region, address);
        if (step != VG_NEXT) return step;
        lanes &= ~here;
    }
    return VG_NEXT;
}

static enum vg_step in_shared(const struct access *a, uint32_t lanes, uint64_t *address,
                              uint32_t total)
{
    struct vg_block *block = a->warp->block;
    uint32_t reserved = 0;
    VG_FOR_LANES(i, lanes)
    {
        address[i] = (address[i] & ~VG_WINDOW_MASK) | VG_SHARED_WINDOW;
        const uint64_t offset = address[i] - VG_SHARED_WINDOW;
        const struct vg_region *region = vg_shared_at(block, offset);
        if (address[i] + total > region->address + region->nbytes)
            return vg_fail(a->warp, i, a->in, VG_FAULT_ADDRESS,
                           "%s %u bytes at 0x%" PRIx64 " of shared memory, the block has %" PRIu64
                           " bytes",
                           a->write ? "writes" : "reads", total, offset, block->shared.nbytes);
        if (region == &block->reserved) reserved |= 1u << i;
    }
    const enum vg_step step =
        reserved == lanes ? VG_NEXT : on_region(a, lanes & ~reserved, &block->shared, address);
    return step != VG_NEXT || reserved == 0 ? step
                                            : on_region(a, reserved, &block->reserved, address);
}

/* Local memory and parameters: nobody else sees them, the model is not asked. */
static enum vg_step in_thread(const struct access *a, uint32_t lanes, const uint64_t *address,
                              uint32_t total)
{
    const struct vg_run *run = a->warp->block->run;
    VG_FOR_LANES(i, lanes)
    {
        const uint64_t offset = address[i] & ~VG_WINDOW_MASK;
        unsigned char *bytes = vg_local(a->warp, i);
        if (bytes == NULL)
            return vg_fail(a->warp, i, a->in, VG_FAULT_RESOURCES, "no memory for local memory");
        if (offset + total > run->local_room)
            return vg_fail(a->warp, i, a->in, VG_FAULT_STACK,
                           "%s %u bytes at 0x%" PRIx64 " of local memory, the thread has %u bytes",
                           a->write ? "writes" : "reads", total, offset, run->local_room);
        for (uint32_t c = a->first; c < a->to; c++) {
            unsigned char value[16], changed[16], operand[16], second[16];
            unsigned char *at = bytes + offset + c * a->nbytes;
            memcpy(value, at, a->nbytes);
            if (a->in->op == VG_LD) {
                put(a, a->in->dst[c], i, value);
            } else if (a->in->op == VG_ST) {
                get(a, a->in->src[1 + c], i, value);
                memcpy(at, value, a->nbytes);
            } else {
                get(a, a->in->src[1], i, operand);
                if (a->in->mode == VG_ATOM_CAS) get(a, a->in->src[2], i, second);
                if (vg_atomic_apply(a->in, true, value, operand, second, changed))
                    memcpy(at, changed, a->nbytes);
                if (a->in->op == VG_ATOM && a->in->dst[0] != VG_NONE)
                    put(a, a->in->dst[0], i, value);
            }
        }
    }
    return VG_NEXT;
}

static enum vg_step in_params(const struct access *a, uint32_t lanes, const uint64_t *address,
                              uint32_t total)
{
    const struct vg_run *run = a->warp->block->run;
    VG_FOR_LANES(i, lanes)
    {
        const uint64_t offset = address[i] & ~VG_WINDOW_MASK;
        if (a->in->op != VG_LD || offset + total > run->launch.kernel->param_bytes)
            return vg_fail(a->warp, i, a->in, VG_FAULT_ADDRESS,
                           "%s %u bytes at 0x%" PRIx64
                           " of the kernel's parameters, which are %u bytes and read-only",
                           a->write ? "writes" : "reads", total, offset,
                           run->launch.kernel->param_bytes);
        for (uint32_t c = a->first; c < a->to; c++)
            put(a, a->in->dst[c], i, (const char *)run->params + offset + c * a->nbytes);
    }
    return VG_NEXT;
}

/* Lanes whose generic addresses lie in one window are served together. */
static enum vg_step in_window(const struct access *a, uint32_t lanes, uint64_t *address,
                              uint32_t total)
{
    while (lanes != 0) {
        const uint64_t window = address[vg_first(lanes)] & VG_WINDOW_MASK;
        uint32_t here = 0;
        VG_FOR_LANES(i, lanes)
        if ((address[i] & VG_WINDOW_MASK) == window) here |= 1u << i;
        lanes &= ~here;
        const enum vg_step step = window == VG_SHARED_WINDOW  ? in_shared(a, here, address, total)
                                  : window == VG_LOCAL_WINDOW ? in_thread(a, here, address, total)
                                  : window == VG_PARAM_WINDOW ? in_params(a, here, address, total)
                                                              : in_global(a, here, address, total);
        if (step != VG_NEXT) return step;
    }
    return VG_NEXT;
}

static void addresses(const struct access *a, uint64_t address[VG_LANES])
{
    const struct vg_instr *in = a->in;
    const uint64_t imm = (uint64_t)in->imm;
    if (in->src[0] == VG_NONE) {
        const uint32_t frame = in->space == VG_LOCAL ? a->fragment->frame->local : 0;
        for (uint32_t i = 0; i < VG_LANES; i++) address[i] = imm + frame;
    } else if (in->type2 == VG_B32) {
        const uint32_t *base = vg_source(&a->r, in->src[0]);
        for (uint32_t i = 0; i < VG_LANES; i++) address[i] = (uint32_t)(base[i] + (uint32_t)imm);
    } else {
        const uint64_t *base = vg_source(&a->r, in->src[0]);
        for (uint32_t i = 0; i < VG_LANES; i++) address[i] = base[i] + imm;
    }
}

/* Strict vector accesses: one component a time, in an order by seed, and other warps between. */
static bool next_component(struct access *a, uint32_t lanes, uint64_t address[VG_LANES])
{
    struct vg_warp *warp = a->warp;
    struct vg_fragment *f = a->fragment;
    const uint32_t all = (1u << a->in->count) - 1;
    if (warp->strict == NULL) warp->strict = calloc(VG_LANES, sizeof *warp->strict);
    if (warp->strict == NULL) return true;
    /* The first components may write the register of the address: it is kept. */
    VG_FOR_LANES(i, lanes)
    {
        if (f->parts == 0) warp->strict[i] = address[i];
        address[i] = warp->strict[i];
    }
    uint32_t c;
    do {
        c = (uint32_t)(vg_random(&warp->block->run->random) % a->in->count);
    } while (f->parts >> c & 1);
    a->first = c;
    a->to = c + 1;
    f->parts |= (uint8_t)(1u << c);
    return f->parts == all;
}

static enum vg_step in_space(const struct access *a, uint32_t lanes, uint64_t *address,
                             uint32_t total)
{
    switch (a->in->space) {
    case VG_SHARED:
        return in_shared(a, lanes, address, total);
    case VG_LOCAL:
        return in_thread(a, lanes, address, total);
    case VG_GENERIC:
        return in_window(a, lanes, address, total);
    case VG_PARAM_SPACE: {
        const struct vg_frame *frame = a->fragment->frame;
        if (frame->parent == NULL) return in_params(a, lanes, address, total);
        VG_FOR_LANES(i, lanes) address[i] += frame->params;
        return in_thread(a, lanes, address, total);
    }
    default:
        return in_global(a, lanes, address, total);
    }
}

enum vg_step vg_access(struct vg_warp *warp, struct vg_fragment *fragment,
                       const struct vg_instr *in, uint32_t lanes)
{
    struct access a = {.warp = warp, .fragment = fragment, .in = in};
    uint64_t address[VG_LANES];
    const uint32_t count = in->count > 1 ? in->count : 1;
    a.r = vg_fragment_registers(warp, fragment);
    a.nbytes = vg_type_bytes(in->type);
    a.to = count;
    a.write = in->op != VG_LD;
    addresses(&a, address);
    const uint32_t total = a.nbytes * count;
    bool last = true;
    const bool strict =
        count > 1 && (in->op == VG_LD || in->op == VG_ST) &&
        warp->block->run->machine->settings.strict_vectors &&
        (in->space == VG_GLOBAL || in->space == VG_GENERIC || in->space == VG_SHARED);
    if (strict) last = next_component(&a, lanes, address);
    uint64_t bits = 0;
    VG_FOR_LANES(i, lanes) bits |= address[i];
    const uint32_t align = in->compare != 0 ? in->compare : total;
    if (bits % align != 0) VG_FOR_LANES(i, lanes)
    if (address[i] % align != 0)
        return vg_fail(warp, i, in, VG_FAULT_MISALIGNED,
                       "%s %u bytes at 0x%" PRIx64 ", which is not a multiple of %u",
                       a.write ? "writes" : "reads", align, address[i], align);
    const enum vg_step step = in_space(&a, lanes, address, total);
    if (step != VG_NEXT) return step;
    if (!last) return VG_PAUSE;
    fragment->parts = 0;
    return VG_NEXT;
}
