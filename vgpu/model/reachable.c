/* Memory that the host or another process can address: one real copy behind a buffer for each
 * device.
 *
 * Stores wait in the buffer and reach the bytes late and in any order, except that stores to the
 * same bytes keep their order. A release, fence or the end of a grid at scope .sys empties the
 * buffer (vg_buffer_flush). Loads see the device's own stores in the buffer over what the device
 * has read before: the buffer remembers lines of 64 bytes as they once were, and a load returns
 * the remembered bytes or reads the line again, by the seed. An acquire at scope .sys and the
 * beginning of a grid forget all lines (vg_buffer_renew). A line is read again whole, so no word
 * ever goes back to an older value. Nothing is older than settings.late accesses.
 *
 * What the host is assumed to do: whatever was released at scope .sys to such memory and has left
 * the buffer, a host thread may have acquired, and it may launch a grid or set a flag because of
 * it. So a grid that is launched then (vg_model_published), and whoever acquires then what the host
 * has written (published.c), counts as ordered after the release, and a strong write of scope .sys
 * counts as read.
 *
 * region->bytes of such a region is a multiple of 16: others access the same words atomically. */
#include "internal.h"

#include <stdlib.h>
#include <string.h>

enum { MOST_STORES = 48, LINES = 64, LINE = 64 };

struct waiting {
    struct vg_region *region;
    uint64_t offset, born, number;
    unsigned char value[16];
    uint32_t nbytes;
    struct vg_clock *released; /* what becomes published when the store leaves the buffer */
};

struct line {
    struct vg_region *region; /* NULL: free */
    uint64_t offset, born;
    uint64_t landed; /* model->landed and model->published when it was read */
    struct vg_clock *published;
    uint64_t read; /* renewals of the buffer when the line was read; 0: it was not */
    uint8_t next;  /* of the lines with its hash: number + 1, or 0 */
    unsigned char bytes[LINE];
};

struct vg_buffer {
    uint32_t nstores, next_line;
    uint64_t renewals;    /* from 1 on; a line is valid that was read since the last one */
    uint8_t first[LINES]; /* of the lines with each hash: number + 1, or 0 */
    struct waiting stores[MOST_STORES];
    struct line lines[LINES];
};

void vg_buffer_free(struct vg_buffer *buffer)
{
    for (uint32_t i = 0; buffer != NULL && i < buffer->nstores; i++)
        vg_clock_put(buffer->stores[i].released);
    for (uint32_t i = 0; buffer != NULL && i < LINES; i++) vg_clock_put(buffer->lines[i].published);
    free(buffer);
}

static struct vg_buffer *buffer_of(const struct vg_model *model, int device)
{
    return (uint32_t)(device + 1) < model->ndevices ? model->buffers[device + 1] : NULL;
}

static struct vg_buffer *buffer_make(struct vg_model *model, int device)
{
    struct vg_buffer **buffer = &model->buffers[device + 1];
    if (*buffer == NULL) {
        *buffer = vg_need(sizeof **buffer);
        (*buffer)->renewals = 1;
    }
    return *buffer;
}

static void line_read(struct vg_model *model, const struct vg_buffer *buffer, struct line *line)
{
    const uint64_t left = line->region->nbytes - line->offset;
    vg_bytes_read(line->region->bytes + line->offset, line->bytes, left < LINE ? left : LINE);
    line->read = buffer->renewals;
    line->born = model->now;
    line->landed = model->landed;
    vg_clock_replace(&line->published, model->published);
}

static bool is_valid(const struct vg_buffer *buffer, const struct line *line)
{
    return line->read == buffer->renewals;
}

static uint32_t hash_of(const struct vg_region *region, uint64_t offset)
{
    const uint64_t key = (uint64_t)(uintptr_t)region ^ offset / LINE;
    _Static_assert(LINES == 1 << 6, "the shift leaves 6 bits");
    return (uint32_t)(key * UINT64_C(0x9e3779b97f4a7c15) >> 58);
}

/* The line becomes a free one. */
static void line_clear(struct vg_buffer *buffer, struct line *line)
{
    if (line->region != NULL) {
        uint8_t *at = &buffer->first[hash_of(line->region, line->offset)];
        while (*at != line - buffer->lines + 1) at = &buffer->lines[*at - 1].next;
        *at = line->next;
    }
    vg_clock_put(line->published);
    *line = (struct line){0};
}

static struct line *line_of(struct vg_buffer *buffer, const struct vg_region *region,
                            uint64_t offset)
{
    const uint64_t begin = offset / LINE * LINE;
    for (uint8_t i = buffer->first[hash_of(region, begin)]; i != 0; i = buffer->lines[i - 1].next)
        if (buffer->lines[i - 1].region == region && buffer->lines[i - 1].offset == begin)
            return &buffer->lines[i - 1];
    return NULL;
}

static struct line *line_make(struct vg_buffer *buffer, struct vg_region *region, uint64_t offset)
{
    struct line *line = line_of(buffer, region, offset);
    if (line != NULL) return line;
    const uint32_t i = buffer->next_line++ % LINES;
    line = &buffer->lines[i];
    line_clear(buffer, line);
    line->region = region;
    line->offset = offset / LINE * LINE;
    uint8_t *first = &buffer->first[hash_of(region, line->offset)];
    line->next = *first;
    *first = (uint8_t)(i + 1);
    return line;
}

static bool overlap(const struct waiting *store, const struct vg_region *region, uint64_t offset,
                    uint64_t nbytes)
{
    return store->region == region && store->offset < offset + nbytes &&
           offset < store->offset + store->nbytes;
}

/* Writes the store, or the first one that waits for the same bytes, to the real copy. */
static void release_store(struct vg_model *model, struct vg_buffer *buffer, uint32_t i)
{
    for (uint32_t first = 0; first < i; first++) {
        const struct waiting *store = &buffer->stores[first];
        if (!overlap(store, buffer->stores[i].region, buffer->stores[i].offset,
                     buffer->stores[i].nbytes))
            continue;
        i = first;
        break;
    }
    const struct waiting store = buffer->stores[i];
    vg_clock_join(&model->published, store.released);
    vg_clock_put(store.released);
    model->landed++;
    vg_published_land(model, store.region, store.offset, store.nbytes, store.number);
    vg_bytes_write(store.region->bytes + store.offset, store.value, store.nbytes);
    struct line *line = line_of(buffer, store.region, store.offset);
    if (line != NULL) memcpy(line->bytes + store.offset % LINE, store.value, store.nbytes);
    memmove(buffer->stores + i, buffer->stores + i + 1,
            (--buffer->nstores - i) * sizeof *buffer->stores);
}

static void set_deadline(struct vg_model *model)
{
    model->deadline = UINT64_MAX;
    for (uint32_t d = 0; d < model->ndevices; d++) {
        const struct vg_buffer *buffer = model->buffers[d];
        for (uint32_t i = 0; buffer != NULL && i < buffer->nstores; i++)
            if (buffer->stores[i].born + model->settings.late < model->deadline)
                model->deadline = buffer->stores[i].born + model->settings.late;
    }
}

void vg_buffers_drain(struct vg_model *model)
{
    for (uint32_t d = 0; d < model->ndevices; d++) {
        struct vg_buffer *buffer = model->buffers[d];
        for (uint32_t i = 0; buffer != NULL && i < buffer->nstores;) {
            if (buffer->stores[i].born + model->settings.late <= model->now)
                release_store(model, buffer, i);
            else
                i++;
        }
    }
    set_deadline(model);
}

void vg_buffer_flush(struct vg_model *model, int device)
{
    struct vg_buffer *buffer = buffer_of(model, device);
    if (buffer != NULL && buffer->nstores > 0) {
        while (buffer->nstores > 0) release_store(model, buffer, 0);
        set_deadline(model);
    }
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
}

void vg_model_flush(struct vg_model *model, int device)
{
    vg_buffer_flush(model, device);
}

void vg_buffer_renew(struct vg_model *model, int device)
{
    struct vg_buffer *buffer = buffer_of(model, device);
    if (buffer != NULL) buffer->renewals++;
}

void vg_buffer_forget(struct vg_model *model, const struct vg_region *region)
{
    for (uint32_t d = 0; d < model->ndevices; d++) {
        struct vg_buffer *buffer = model->buffers[d];
        for (uint32_t i = 0; buffer != NULL && i < buffer->nstores;) {
            if (buffer->stores[i].region == region)
                release_store(model, buffer, i);
            else
                i++;
        }
        for (uint32_t i = 0; buffer != NULL && i < LINES; i++)
            if (buffer->lines[i].region == region) line_clear(buffer, &buffer->lines[i]);
    }
}

/* Each access may let one store through and remember one line. */
static void stir(struct vg_model *model, struct vg_buffer *buffer)
{
    const uint64_t dice = vg_random(&model->random);
    if (buffer->nstores > 0 && (dice & 3) == 0)
        release_store(model, buffer, vg_random_below(model, buffer->nstores));
    if ((dice & 12) == 0) {
        struct line *line = &buffer->lines[(dice >> 8) % LINES];
        if (line->region != NULL && !is_valid(buffer, line)) line_read(model, buffer, line);
    }
}

struct vg_look vg_buffer_load(struct vg_model *model, int device, struct vg_region *region,
                              uint64_t offset, const struct vg_how *how, void *value)
{
    if (device < 0 || model->settings.off) {
        vg_bytes_read(region->bytes + offset, value, how->nbytes);
        return (struct vg_look){.landed = model->landed, .published = model->published};
    }
    struct vg_buffer *buffer = buffer_make(model, device);
    stir(model, buffer);
    struct line *line = line_make(buffer, region, offset);
    const bool again =
        model->settings.reads == VG_READ_NEWEST ||
        (model->settings.reads == VG_READ_RANDOM && (vg_random(&model->random) & 1) != 0);
    if (!is_valid(buffer, line) || again || model->now - line->born > model->settings.late)
        line_read(model, buffer, line);
    else
        model->counts.older++;
    memcpy(value, line->bytes + offset % LINE, how->nbytes);
    struct vg_look look = {.landed = line->landed, .published = line->published};
    for (uint32_t i = 0; i < buffer->nstores; i++) {
        const struct waiting *store = &buffer->stores[i];
        if (!overlap(store, region, offset, how->nbytes)) continue;
        look.mixed = store->offset != offset || store->nbytes != how->nbytes;
        look.store = store->number;
        for (uint32_t k = 0; k < store->nbytes; k++)
            if (store->offset + k >= offset && store->offset + k < offset + how->nbytes)
                ((unsigned char *)value)[store->offset + k - offset] = store->value[k];
    }
    if (how->scope == VG_SCOPE_SYS && how->order == VG_ACQUIRE) vg_buffer_renew(model, device);
    return look;
}

static bool releases_to_all(const struct vg_how *how)
{
    return how->scope == VG_SCOPE_SYS && (how->order == VG_RELEASE || how->order == VG_ACQ_REL);
}

uint64_t vg_buffer_store(struct vg_model *model, int device, struct vg_region *region,
                         uint64_t offset, const struct vg_how *how, const void *value)
{
    if (device < 0 || model->settings.off) {
        vg_bytes_write(region->bytes + offset, value, how->nbytes);
        return 0;
    }
    struct vg_buffer *buffer = buffer_make(model, device);
    stir(model, buffer);
    line_make(buffer, region, offset); /* the line may be remembered from now on */
    if (releases_to_all(how)) vg_buffer_flush(model, device);
    while (buffer->nstores >= MOST_STORES)
        release_store(model, buffer, vg_random_below(model, buffer->nstores));
    struct waiting *store = &buffer->stores[buffer->nstores++];
    *store = (struct waiting){.region = region,
                              .offset = offset,
                              .born = model->now,
                              .number = ++model->stores,
                              .nbytes = how->nbytes};
    memcpy(store->value, value, how->nbytes);
    if (store->born + model->settings.late < model->deadline)
        model->deadline = store->born + model->settings.late;
    return store->number;
}

void vg_buffer_publish(struct vg_model *model, int device, struct vg_clock *released)
{
    struct vg_buffer *buffer = buffer_of(model, device);
    vg_clock_replace(&buffer->stores[buffer->nstores - 1].released, released);
}

bool vg_buffer_change(struct vg_model *model, int device, struct vg_region *region, uint64_t offset,
                      const struct vg_how *how, vg_change *change, void *arg, void *old,
                      void *value)
{
    struct vg_buffer *buffer = device < 0 ? NULL : buffer_make(model, device);
    if (buffer != NULL) stir(model, buffer);
    for (uint32_t i = 0; buffer != NULL && i < buffer->nstores;) {
        if (overlap(&buffer->stores[i], region, offset, how->nbytes)) {
            release_store(model, buffer, i); /* this one, or an earlier one that it overlaps */
            i = 0;
        } else {
            i++;
        }
    }
    vg_bytes_read(region->bytes + offset, old, how->nbytes);
    bool written;
    do {
        memcpy(value, old, how->nbytes);
        written = change(arg, old, value);
        if (written && releases_to_all(how)) vg_buffer_flush(model, device);
    } while (written && !vg_bytes_exchange(region->bytes + offset, old, value, how->nbytes));
    model->landed += written;
    if (buffer != NULL) {
        line_read(model, buffer, line_make(buffer, region, offset));
        if (how->scope == VG_SCOPE_SYS && (how->order == VG_ACQUIRE || how->order == VG_ACQ_REL))
            vg_buffer_renew(model, device);
    }
    return written;
}
