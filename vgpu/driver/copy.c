/* Copies and fills run: the memory model notes the accesses of a grid of one thread, and the bytes
 * move in steps, so that other work may run between them. */
#include "memory_internal.h"

#include <stdio.h>
#include <string.h>

enum { STEP = 128 << 10, STEP_WITHOUT_MODEL = 4 << 20 };

/* One end of a copy: a region and an offset there, or memory that is in no region. */
struct end {
    struct vg_region *region;
    uint64_t offset, room; /* room: bytes behind the offset */
    unsigned char *bytes;
};

static struct end end_at(uint64_t address)
{
    struct vg_region *region = vd_region_find(address);
    if (region == NULL)
        return (struct end){.room = UINT64_MAX, .bytes = (unsigned char *)(uintptr_t)address};
    const uint64_t offset = address - region->address;
    return (struct end){region, offset, region->nbytes - offset, region->bytes + offset};
}

/* The memory was freed or unmapped after the copy was submitted. */
static bool is_lost(const struct end *end, uint64_t address)
{
    return end->region == NULL ? vd_address_reserved(address) : end->region->freed;
}

/* cuMemSetAccess gave the GPU of the copy or fill no right to write. */
static bool may_only_read(const struct vd_item *item, const struct end *end)
{
    return end->region != NULL &&
           (end->region->readers >> item->context->device->gpu.number & 1) != 0;
}

static bool bit(const unsigned char *bits, uint64_t i)
{
    return bits == NULL || (bits[i / 8] >> (i % 8) & 1) != 0;
}

static void mark(struct end *to, const struct end *from, uint64_t nbytes)
{
    unsigned char *bits = to->region != NULL ? to->region->defined : NULL;
    const unsigned char *old = from != NULL && from->region != NULL ? from->region->defined : NULL;
    for (uint64_t i = 0; bits != NULL && i < nbytes; i++) {
        const unsigned char one = (unsigned char)(1u << ((to->offset + i) % 8));
        if (bit(old, from != NULL ? from->offset + i : 0))
            bits[(to->offset + i) / 8] |= one;
        else
            bits[(to->offset + i) / 8] &= (unsigned char)~one;
    }
}

static void note(const struct vd_item *item, const struct end *end, uint64_t nbytes, bool write)
{
    if (end->region != NULL) vg_model_bulk(item->block, 0, end->region, end->offset, nbytes, write);
}

/* Moves at most nbytes within one row, and says how many. 0: memory is not there any more. */
static uint64_t move(struct vd_item *item, uint64_t to_address, uint64_t from_address,
                     unsigned char *snapshot, uint64_t nbytes)
{
    struct end to = end_at(to_address);
    struct end from = snapshot != NULL ? (struct end){.room = UINT64_MAX, .bytes = snapshot}
                                       : end_at(from_address);
    if (is_lost(&to, to_address) || (snapshot == NULL && is_lost(&from, from_address))) return 0;
    if (nbytes > to.room) nbytes = to.room;
    if (nbytes > from.room) nbytes = from.room;
    if (may_only_read(item, &to)) return 0;
    note(item, &from, nbytes, false);
    note(item, &to, nbytes, true);
    mark(&to, &from, nbytes);
    memmove(to.bytes, from.bytes, nbytes);
    return nbytes;
}

static uint64_t step_bytes(void)
{
    return vd.settings.model ? STEP : STEP_WITHOUT_MODEL;
}

static CUresult begin(struct vd_item *item, char error[512])
{
    item->clock = vg_model_grid_begin(vg_machine_model(vd.machine), item->number,
                                      item->context->device->gpu.number, 1, 1, item->past);
    if (item->clock != NULL) item->block = vg_model_block_begin(item->clock, 0);
    if (item->block != NULL) return CUDA_SUCCESS;
    snprintf(error, 512, "no memory for copy %llu", (unsigned long long)item->number);
    return CUDA_ERROR_OUT_OF_MEMORY;
}

static void end(struct vd_item *item)
{
    vg_model_block_end(item->block);
    vg_model_grid_end(item->clock, item->past);
    item->block = NULL;
    item->clock = NULL;
}

static enum vg_progress lost(const struct vd_item *item, const char *what, uint64_t address,
                             CUresult *fault, const char **text)
{
    static char message[256];
    const struct end end = end_at(address);
    const bool there = !is_lost(&end, address) && may_only_read(item, &end);
    snprintf(message, sizeof message, "%s %llu: the memory at 0x%llx %s", what,
             (unsigned long long)item->number, (unsigned long long)address,
             there ? "is a VMM mapping that its GPU may only read (cuMemSetAccess)"
                   : "was freed or unmapped before it ended");
    *fault = CUDA_ERROR_ILLEGAL_ADDRESS;
    *text = message;
    return VG_FAULTED;
}

static enum vg_progress copy_step(struct vd_item *item, CUresult *fault, const char **text)
{
    const struct vd_copy *copy = &item->op.copy;
    const uint64_t depth = copy->depth == 0 ? 1 : copy->depth;
    const uint64_t total = copy->width * copy->height * depth;
    const uint64_t until = item->done + step_bytes();
    while (item->done < total && item->done < until) {
        const uint64_t row = item->done / copy->width, column = item->done % copy->width;
        const uint64_t slice = row / copy->height, line = row % copy->height;
        const uint64_t to = copy->to + slice * copy->to_slice + line * copy->to_pitch + column;
        const uint64_t from =
            copy->from + slice * copy->from_slice + line * copy->from_pitch + column;
        unsigned char *snapshot = copy->snapshot;
        const uint64_t most = until - item->done;
        const uint64_t moved = move(item, to, from, snapshot ? snapshot + item->done : NULL,
                                    copy->width - column < most ? copy->width - column : most);
        if (moved == 0) return lost(item, "copy", to, fault, text);
        item->done += moved;
    }
    return item->done >= total ? VG_DONE : VG_MOVED;
}

/* Fills at most nbytes, a multiple of the element's, and says how many bytes. */
static uint64_t fill(struct vd_item *item, uint64_t address, const unsigned char pattern[16],
                     uint64_t nbytes)
{
    struct end to = end_at(address);
    if (is_lost(&to, address) || may_only_read(item, &to)) return 0;
    if (nbytes > to.room) nbytes = to.room;
    note(item, &to, nbytes, true);
    mark(&to, NULL, nbytes);
    const uint64_t first = nbytes < 16 ? nbytes : 16;
    memcpy(to.bytes, pattern, first);
    for (uint64_t n = first; n < nbytes;) { /* twice as many each time */
        const uint64_t more = n < nbytes - n ? n : nbytes - n;
        memcpy(to.bytes + n, to.bytes, more);
        n += more;
    }
    return nbytes;
}

static enum vg_progress fill_step(struct vd_item *item, CUresult *fault, const char **text)
{
    const struct vd_fill *op = &item->op.fill;
    const uint64_t width = op->width * op->nbytes, total = width * op->height;
    const uint64_t until = item->done + step_bytes();
    unsigned char pattern[16];
    for (unsigned i = 0; i < 16; i += op->nbytes) memcpy(pattern + i, &op->value, op->nbytes);
    while (item->done < total && item->done < until) {
        const uint64_t row = item->done / width, column = item->done % width;
        const uint64_t to = op->to + row * op->pitch + column;
        const uint64_t most = until - item->done;
        const uint64_t filled =
            fill(item, to, pattern, width - column < most ? width - column : most);
        if (filled == 0) return lost(item, "fill", to, fault, text);
        item->done += filled;
    }
    return item->done >= total ? VG_DONE : VG_MOVED;
}

const struct vd_runner vd_copy_runner = {begin, copy_step, end};
const struct vd_runner vd_fill_runner = {begin, fill_step, end};
