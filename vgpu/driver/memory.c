/* Ranges of the unified address space: which there are, which devices can address them, and which
 * were freed. */
#include "memory_internal.h"
#include "run.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { CHUNK = 256, MOST_CHUNKS = 4096, RETIRED = 1024 };

/* Never given back to the system: runs and the model keep pointers to regions, and the handler of
 * SIGSEGV reads all without the lock. */
static struct vd_memory *chunks[MOST_CHUNKS];
static uint32_t nchunks;
static struct vd_memory *unused; /* by next */

static struct vg_regions all; /* of all memory that is not freed */

/* Freed memory, the oldest at `first`: its addresses stay unused, and its regions name it. */
static struct {
    struct vd_memory *at[RETIRED];
    uint32_t first, n;
} retired;

void vd_say(const char *format, ...)
{
    char text[1024];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    fprintf(stderr, "vgpu: WARN: %s\n", text);
}

static struct vd_memory *memory_of(struct vg_region *region)
{
    return (struct vd_memory *)(void *)((char *)region - offsetof(struct vd_memory, region));
}

static bool grow(void)
{
    if (nchunks == MOST_CHUNKS) return false;
    struct vd_memory *chunk = calloc(CHUNK, sizeof *chunk);
    if (chunk == NULL) return false;
    for (int i = CHUNK - 1; i >= 0; i--) {
        chunk[i].next = unused;
        unused = &chunk[i];
    }
    chunks[nchunks++] = chunk;
    return true;
}

const struct vd_memory *vd_memory_nth(uint64_t n)
{
    if (n / CHUNK >= MOST_CHUNKS || chunks[n / CHUNK] == NULL) return NULL;
    return &chunks[n / CHUNK][n % CHUNK];
}

static bool owns_address(const struct vd_memory *memory)
{
    return memory->kind == VD_MEMORY_DEVICE || memory->kind == VD_MEMORY_IPC;
}

/* Forgets the i-th oldest of the freed ones. */
static void forget_retired(uint32_t i)
{
    struct vd_memory *memory = retired.at[(retired.first + i) % RETIRED];
    for (; i > 0; i--)
        retired.at[(retired.first + i) % RETIRED] = retired.at[(retired.first + i - 1) % RETIRED];
    retired.first = (retired.first + 1) % RETIRED;
    retired.n--;
    for (int d = 0; d < vd.ndevices; d++)
        if ((memory->devices >> d & 1) != 0)
            vg_regions_remove(&vd.devices[d].regions, &memory->region);
    if (owns_address(memory)) vd_address_give(memory->region.address, memory->region.nbytes);
    vd_memory_drop(memory);
}

static void forget_overlapping(const struct vg_region *region)
{
    for (uint32_t i = 0; i < retired.n;) {
        const struct vg_region *old = &retired.at[(retired.first + i) % RETIRED]->region;
        if (old->address < region->address + region->nbytes &&
            region->address < old->address + old->nbytes)
            forget_retired(i);
        else
            i++;
    }
}

struct vd_memory *vd_memory_new(enum vd_memory_kind kind, uint64_t address, uint64_t nbytes,
                                const char *what)
{
    if (unused == NULL && !grow()) return NULL;
    struct vd_memory *memory = unused;
    unused = memory->next;
    const uint64_t number = ++vd.allocations, begin = address & ~UINT64_C(15);
    *memory = (struct vd_memory){.region = {.address = begin,
                                            .nbytes = vd_round_up(address + nbytes, 16) - begin,
                                            .device = -1,
                                            .what = what,
                                            .number = number},
                                 .address = address,
                                 .nbytes = nbytes,
                                 .kind = kind,
                                 .device = -1,
                                 .buffer_id = number};
    if (address == begin) memory->region.nbytes = nbytes;
    return memory;
}

void vd_memory_drop(struct vd_memory *memory)
{
    free(memory->region.defined);
    vd_backing_put(memory->backing);
    *memory = (struct vd_memory){.next = unused};
    unused = memory;
}

CUresult vd_memory_add_device(struct vd_memory *memory, int device)
{
    if ((memory->devices >> device & 1) != 0) return CUDA_SUCCESS;
    if (vg_regions_add(&vd.devices[device].regions, &memory->region) != 0)
        return CUDA_ERROR_OUT_OF_MEMORY;
    memory->devices |= 1u << device;
    if (vd_peer_is_broken(device, memory)) memory->region.lost |= 1u << device;
    return CUDA_SUCCESS;
}

void vd_memory_remove_device(struct vd_memory *memory, int device)
{
    if ((memory->devices >> device & 1) == 0) return;
    vg_regions_remove(&vd.devices[device].regions, &memory->region);
    vd_executor_changed();
    memory->devices &= ~(1u << device);
}

CUresult vd_memory_publish(struct vd_memory *memory)
{
    CUresult result = CUDA_SUCCESS;
    vd_segv_install();
    forget_overlapping(&memory->region);
    if (vg_regions_add(&all, &memory->region) != 0) return CUDA_ERROR_OUT_OF_MEMORY;
    memory->next = vd.memories;
    vd.memories = memory;
    if (memory->kind == VD_MEMORY_VMM) return CUDA_SUCCESS; /* cuMemSetAccess says which */
    const bool host = memory->kind >= VD_MEMORY_HOST;
    for (int d = 0; d < vd.ndevices && result == CUDA_SUCCESS; d++)
        if (host || d == memory->device ||
            (memory->context != NULL && d == (int)(memory->context->device - vd.devices)) ||
            (memory->kind == VD_MEMORY_DEVICE && !memory->async && vd_peer_sees(d, memory->device)))
            result = vd_memory_add_device(memory, d);
    if (result != CUDA_SUCCESS) vd_memory_withdraw(memory);
    return result;
}

/* Out of the lists of what there is. */
static void unlist(struct vd_memory *memory)
{
    vg_regions_remove(&all, &memory->region);
    for (struct vd_memory **at = &vd.memories; *at != NULL; at = &(*at)->next)
        if (*at == memory) {
            *at = memory->next;
            break;
        }
    vg_model_forget(vg_machine_model(vd.machine), &memory->region);
    vd_executor_changed(); /* a kernel that waits for a word of it fails at its next look */
}

void vd_memory_withdraw(struct vd_memory *memory)
{
    unlist(memory);
    for (int d = 0; d < vd.ndevices; d++) vd_memory_remove_device(memory, d);
}

void vd_memory_retire(struct vd_memory *memory)
{
    unlist(memory);
    memory->region.freed = true;
    memory->region.bytes = NULL;
    free(memory->region.defined);
    memory->region.defined = NULL;
    memory->context = NULL;
    vd_backing_put(memory->backing);
    memory->backing = NULL;
    if (retired.n == RETIRED) forget_retired(0);
    retired.at[(retired.first + retired.n++) % RETIRED] = memory;
}

/* A variable of a module is a region of the module's image. What is known of it, until the next
 * call. */
static struct vd_memory *find_variable(uint64_t address)
{
    static struct vd_memory variable;
    for (int d = 0; d < vd.ndevices; d++) {
        const struct vg_region *region = vg_regions_find(&vd.devices[d].regions, address);
        if (region == NULL || region->freed) continue;
        variable = (struct vd_memory){
            .region = *region,
            .address = region->address,
            .nbytes = region->nbytes,
            .kind = region->reachable ? VD_MEMORY_MANAGED : VD_MEMORY_DEVICE,
            .context = vd.devices[region->device].primary,
            .device = region->device,
            .devices = region->reachable ? (1u << vd.ndevices) - 1 : 1u << region->device,
            .buffer_id = region->address};
        return &variable;
    }
    return NULL;
}

struct vd_memory *vd_memory_find(uint64_t address)
{
    struct vg_region *region = vg_regions_find(&all, address);
    if (region == NULL) return vd_address_reserved(address) ? find_variable(address) : NULL;
    struct vd_memory *memory = memory_of(region);
    return address - memory->address < memory->nbytes ? memory : NULL;
}

struct vg_region *vd_region_find(uint64_t address)
{
    struct vg_region *region = vg_regions_find(&all, address);
    if (region != NULL || !vd_address_reserved(address)) return region;
    for (int d = 0; d < vd.ndevices; d++) {
        region = vg_regions_find(&vd.devices[d].regions, address);
        if (region != NULL && !region->freed) return region;
    }
    return NULL;
}

bool vd_range_valid(uint64_t address, uint64_t nbytes, bool host)
{
    const uint64_t end = address + nbytes;
    if (address == 0 || end < address) return false;
    const struct vd_memory *memory = vd_memory_find(address);
    if (memory == NULL) return host && !vd_address_reserved(address);
    while (memory->devices != 0) {
        if (end <= memory->address + memory->nbytes) return true;
        const uint64_t behind = memory->address + memory->nbytes;
        memory = vd_memory_find(behind);
        if (memory == NULL) return host && !vd_address_reserved(behind);
    }
    return false;
}

void vd_memory_reachable(struct vd_memory *memory)
{
    if (memory->region.reachable) return;
    vg_model_share(vg_machine_model(vd.machine), &memory->region);
    free(memory->region.defined); /* others may have written anything */
    memory->region.defined = NULL;
}

static CUresult make(struct CUctx_st *context, int device, uint64_t nbytes, const char *what,
                     bool async, struct vd_memory **memory)
{
    struct vd_backing *backing;
    CUresult result = vd_backing_create(device, nbytes, &backing);
    if (result != CUDA_SUCCESS) return result;
    uint64_t address = vd_address_take(nbytes, 512);
    while (address == 0 && retired.n > 0) { /* all addresses are in use or were freed lately */
        forget_retired(0);
        address = vd_address_take(nbytes, 512);
    }
    struct vd_memory *made =
        address == 0 ? NULL : vd_memory_new(VD_MEMORY_DEVICE, address, nbytes, what);
    if (made == NULL) {
        vd_backing_put(backing);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    made->async = async;
    made->context = context;
    made->device = made->region.device = device;
    made->backing = backing;
    vd_backing_place(backing, address);
    made->region.bytes = backing->bytes;
    if (vd.settings.check_undefined) made->region.defined = calloc(nbytes / 8 + 1, 1);
    result = vd_memory_publish(made);
    if (result != CUDA_SUCCESS) {
        vd_address_give(address, nbytes);
        vd_memory_drop(made);
        return result;
    }
    *memory = made;
    return CUDA_SUCCESS;
}

CUresult vd_memory_make(struct CUctx_st *context, uint64_t nbytes, const char *what,
                        struct vd_memory **memory)
{
    return make(context, context->device->gpu.number, nbytes, what, false, memory);
}

CUresult vd_memory_make_async(int device, uint64_t nbytes, struct vd_memory **memory)
{
    return make(NULL, device, nbytes, "cuMemAllocAsync", true, memory);
}

void vd_memory_rest(struct vd_memory *memory)
{
    vg_model_forget(vg_machine_model(vd.machine), &memory->region);
    memory->region.freed = true;
}

void vd_memory_release(struct vd_memory *memory)
{
    const enum vd_memory_kind kind = memory->kind;
    void *bytes = memory->region.bytes;
    const uint64_t nbytes = memory->nbytes;
    vd_memory_retire(memory); /* lets stores that wait in buffers through first */
    if (kind == VD_MEMORY_HOST || kind == VD_MEMORY_MANAGED) vd_host_unmap(bytes, nbytes);
}

void vd_context_memory_free(struct CUctx_st *context)
{
    for (struct vd_memory *m = vd.memories, *next; m != NULL; m = next) {
        next = m->next;
        if (m->context == context) vd_memory_release(m);
    }
    for (int d = 0; d < vd.ndevices; d++)
        if (context->peers[d]) vd_peer_disabled(context, &vd.devices[d]);
}
