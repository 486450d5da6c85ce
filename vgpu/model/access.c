/* Loads, stores and read-modify-writes: the notes check each, then the value comes from or goes to
 * the bytes, the word's history or the buffer of reachable memory. */
#include "internal.h"

#include <string.h>

static inline bool strong(const struct vg_how *how)
{
    return how->order != VG_WEAK && !how->nc;
}

static inline void tick(struct vg_model *model)
{
    if (++model->now >= model->deadline) vg_buffers_drain(model);
}

/* Sizes that the compiler turns into one move each. */
static inline void move(void *to, const void *from, uint32_t nbytes)
{
    if (nbytes == 4)
        memcpy(to, from, 4);
    else if (nbytes == 8)
        memcpy(to, from, 8);
    else
        memcpy(to, from, nbytes);
}

static inline bool releases_to_all(const struct vg_how *how)
{
    return how->scope == VG_SCOPE_SYS && (how->order == VG_RELEASE || how->order == VG_ACQ_REL);
}

static inline bool acquires_from_all(const struct vg_how *how)
{
    return how->scope == VG_SCOPE_SYS && (how->order == VG_ACQUIRE || how->order == VG_ACQ_REL);
}

void vg_model_load(struct vg_block_clock *block, uint32_t thread, struct vg_region *region,
                   uint64_t offset, const struct vg_how *how, void *value)
{
    struct vg_model *model = block->model;
    model->counts.loads++;
    tick(model);
    if (!model->settings.off && !vg_note_simple(block, thread, region, offset, how, VG_READS))
        vg_note(block, thread, region, offset, how, VG_READS);
    if (region->reachable) {
        const struct vg_look look =
            vg_buffer_load(model, block->grid->device, region, offset, how, value);
        if (strong(how) && !model->settings.off)
            vg_published_load(block, thread, region, offset, how, &look, value);
    } else if (!strong(how) || model->settings.off) {
        move(value, region->bytes + offset, how->nbytes);
    } else {
        vg_history_load(block, thread, region, offset, how, value);
        if (acquires_from_all(how)) vg_buffer_renew(model, block->grid->device);
    }
    if (model->nsuspects > 0) vg_suspects_judge(block, thread, region);
}

void vg_model_store(struct vg_block_clock *block, uint32_t thread, struct vg_region *region,
                    uint64_t offset, const struct vg_how *how, const void *value)
{
    struct vg_model *model = block->model;
    model->counts.stores++;
    tick(model);
    if (!model->settings.off && !vg_note_simple(block, thread, region, offset, how, VG_WRITES))
        vg_note(block, thread, region, offset, how, VG_WRITES);
    if (!model->settings.off && strong(how))
        vg_release_flush(block, thread, (uint64_t)(uintptr_t)(region->bytes + offset));
    if (region->reachable) {
        const uint64_t number =
            vg_buffer_store(model, block->grid->device, region, offset, how, value);
        if (!model->settings.off)
            vg_published_store(block, thread, region, offset, how, value, number);
    } else if (!strong(how) || model->settings.off) {
        move(region->bytes + offset, value, how->nbytes);
    } else {
        if (releases_to_all(how)) vg_buffer_flush(model, block->grid->device);
        vg_history_store(block, thread, region, offset, how, value);
    }
}

void vg_model_bulk(struct vg_block_clock *block, uint32_t thread, struct vg_region *region,
                   uint64_t offset, uint64_t nbytes, bool write)
{
    static const struct vg_how hows[17] = {
        [1] = {.nbytes = 1, .order = VG_WEAK, .engine = true},
        [2] = {.nbytes = 2, .order = VG_WEAK, .engine = true},
        [4] = {.nbytes = 4, .order = VG_WEAK, .engine = true},
        [8] = {.nbytes = 8, .order = VG_WEAK, .engine = true},
        [16] = {.nbytes = 16, .order = VG_WEAK, .engine = true},
    };
    struct vg_model *model = block->model;
    *(write ? &model->counts.stores : &model->counts.loads) += nbytes / 16 + 1;
    model->now += nbytes / 16;
    tick(model);
    if (model->settings.off) return;
    vg_note_bulk(block, thread, region, offset, nbytes, hows, write ? VG_WRITES : VG_READS);
    if (!write && !region->reachable) vg_history_copied(block, thread, region, offset, nbytes);
}

void vg_model_rmw(struct vg_block_clock *block, uint32_t thread, struct vg_region *region,
                  uint64_t offset, const struct vg_how *how, vg_change *change, void *arg,
                  void *old)
{
    struct vg_model *model = block->model;
    const int device = block->grid->device;
    unsigned char value[16];
    bool written;
    model->counts.rmws++;
    tick(model);
    if (!model->settings.off)
        vg_release_flush(block, thread, (uint64_t)(uintptr_t)(region->bytes + offset));
    if (region->reachable) {
        written = vg_buffer_change(model, device, region, offset, how, change, arg, old, value);
    } else { /* the bytes are the newest value */
        move(old, region->bytes + offset, how->nbytes);
        move(value, old, how->nbytes);
        written = change(arg, old, value);
        if (written) move(region->bytes + offset, value, how->nbytes);
    }
    if (model->settings.off) return;
    /* An atomic operation that does not write is a read (8.4). */
    const enum vg_action action = written ? VG_CHANGES : VG_READS;
    vg_note(block, thread, region, offset, how, action);
    if (region->reachable) {
        const struct vg_look look = {.landed = model->landed - written,
                                     .published = model->published};
        vg_published_change(block, thread, region, offset, how, &look, old, written ? value : NULL);
    } else {
        if (written && releases_to_all(how)) vg_buffer_flush(model, device);
        vg_history_change(block, thread, region, offset, how, old, written ? value : NULL);
        if (acquires_from_all(how)) vg_buffer_renew(model, device);
    }
    if (model->nsuspects > 0) vg_suspects_judge(block, thread, region);
}

void vg_model_copy_note(struct vg_block_clock *block, uint32_t thread, uint32_t number,
                        struct vg_region *region, uint64_t offset, const struct vg_how *how,
                        bool write)
{
    if (block->model->settings.off) return;
    vg_note_copy(block, thread, number, region, offset, how, write ? VG_WRITES : VG_READS);
}

void vg_model_copy_read(struct vg_block_clock *block, struct vg_region *region, uint64_t offset,
                        uint32_t nbytes, void *value)
{
    struct vg_model *model = block->model;
    const struct vg_how how = {.nbytes = (uint8_t)nbytes};
    model->counts.loads++;
    tick(model);
    if (region->reachable)
        vg_buffer_load(model, block->grid->device, region, offset, &how, value);
    else
        move(value, region->bytes + offset, nbytes);
}

void vg_model_copy_write(struct vg_block_clock *block, struct vg_region *region, uint64_t offset,
                         uint32_t nbytes, const void *value)
{
    struct vg_model *model = block->model;
    const struct vg_how how = {.nbytes = (uint8_t)nbytes};
    model->counts.stores++;
    tick(model);
    if (region->reachable)
        vg_buffer_store(model, block->grid->device, region, offset, &how, value);
    else
        move(region->bytes + offset, value, nbytes);
}

void vg_model_copy_complete(struct vg_block_clock *block, uint32_t thread, uint32_t number)
{
    if (block->model->settings.off || block->grid->copies == 0) return;
    vg_clock_learn(&block->threads[thread].known, vg_copies_of(block), thread, VG_PART_THREAD,
                   number);
}

void vg_model_copy_arrive(struct vg_block_clock *block, uint32_t thread, uint32_t number,
                          struct vg_region *region, uint64_t offset, const struct vg_how *how,
                          vg_change *change, void *arg, void *old)
{
    const uint32_t copies = block->model->settings.off ? 0 : vg_copies_of(block);
    if (copies != 0) vg_clock_learn(&block->copied, copies, thread, VG_PART_THREAD, number);
    vg_model_rmw(block, thread, region, offset, how, change, arg, old);
    vg_clock_put(block->copied);
    block->copied = NULL;
}

void vg_model_forget(struct vg_model *model, struct vg_region *region)
{
    vg_alias_leave(region);
    vg_buffer_forget(model, region);
    vg_notes_free(region);
}
