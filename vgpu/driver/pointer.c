/* What a pointer is: cuPointerGetAttribute and its relatives. */
#include "memory_internal.h"
#include "objects.h"

#include <string.h>

struct value {
    union {
        uint32_t word;
        int number;
        uint64_t wide;
        void *pointer;
    };
    size_t nbytes;
};

static struct value word(uint32_t value)
{
    return (struct value){.word = value, .nbytes = 4};
}

static struct value wide(uint64_t value)
{
    return (struct value){.wide = value, .nbytes = 8};
}

static bool on_host(const struct vd_memory *m)
{
    if (m->kind == VD_MEMORY_VMM) return m->backing->device < 0;
    return m->kind == VD_MEMORY_HOST || m->kind == VD_MEMORY_REGISTERED;
}

/* cuMemAlloc's own memory; a variable of a module has no backing. */
static bool from_alloc(const struct vd_memory *m)
{
    return m->kind == VD_MEMORY_DEVICE && m->backing != NULL && !m->async;
}

static uint64_t mapping_size(const struct vd_memory *m)
{
    if (m->async) return vd_round_up(m->nbytes, UINT64_C(32) << 20);
    return vd_round_up(m->nbytes, VD_GRANULE);
}

/* What the current context's GPU may do; without a context, the first GPU that can address it. */
static unsigned access_flags(const struct vd_memory *m)
{
    const struct CUctx_st *context = vd_context_top();
    if (m->devices == 0) return CU_POINTER_ATTRIBUTE_ACCESS_FLAG_NONE;
    const int gpu = context != NULL ? context->device->gpu.number : __builtin_ctz(m->devices);
    if (m->kind == VD_MEMORY_VMM && (m->devices >> gpu & 1) == 0)
        return CU_POINTER_ATTRIBUTE_ACCESS_FLAG_NONE;
    return m->region.readonly || (m->region.readers >> gpu & 1) != 0
               ? CU_POINTER_ATTRIBUTE_ACCESS_FLAG_READ
               : CU_POINTER_ATTRIBUTE_ACCESS_FLAG_READWRITE;
}

/* false: the memory does not have it. Without memory: what the call for several gives. */
static bool attribute(const struct vd_memory *m, CUdeviceptr ptr, CUpointer_attribute which,
                      struct value *value)
{
    static const struct vd_memory none = {.kind = VD_MEMORY_DEVICE};
    const bool known = m != NULL;
    if (!known) m = &none;
    switch (which) {
    case CU_POINTER_ATTRIBUTE_CONTEXT:
        *value = (struct value){.pointer = m->context, .nbytes = sizeof(void *)};
        return known;
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
        *value = word(!known ? 0 : on_host(m) ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE);
        return known;
    case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
        *value = wide(known ? ptr : 0);
        return known;
    case CU_POINTER_ATTRIBUTE_HOST_POINTER:
        *value = wide(m->kind >= VD_MEMORY_HOST ? ptr : 0);
        return m->kind >= VD_MEMORY_HOST;
    case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS:
        *value = word(m->sync_memops || m->kind == VD_MEMORY_MANAGED);
        return known;
    case CU_POINTER_ATTRIBUTE_BUFFER_ID:
        *value = wide(m->buffer_id);
        return known;
    case CU_POINTER_ATTRIBUTE_IS_MANAGED:
        *value = word(m->kind == VD_MEMORY_MANAGED);
        return known;
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
        *value = (struct value){.number = !known          ? CU_DEVICE_INVALID
                                          : m->device < 0 ? 0
                                                          : m->device,
                                .nbytes = 4};
        return known;
    case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
    case CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE:
        *value = word(known && from_alloc(m));
        return known;
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
    case CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR:
        *value = wide(m->address);
        return known;
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
        *value = wide(m->nbytes);
        return known;
    case CU_POINTER_ATTRIBUTE_MAPPING_SIZE:
        *value = wide(mapping_size(m));
        return known;
    case CU_POINTER_ATTRIBUTE_MAPPED:
        *value = word(known);
        return known;
    case CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES:
        *value = wide(m->kind == VD_MEMORY_VMM ? vd_vmm_handle_types(m) : 0);
        return known;
    case CU_POINTER_ATTRIBUTE_ACCESS_FLAGS:
        *value = word(known ? access_flags(m) : 0);
        return known;
    case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE:
        *value = (struct value){.pointer = m->async ? m->owner : NULL, .nbytes = sizeof(void *)};
        return known && m->async;
    case CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID:
        *value = wide(m->buffer_id);
        return known;
    case CU_POINTER_ATTRIBUTE_IS_HW_DECOMPRESS_CAPABLE:
        *value = word(0);
        return known;
    default:
        *value = (struct value){.nbytes = 0};
        return false;
    }
}

CUresult cuPointerGetAttribute(void *data, CUpointer_attribute attribute_, CUdeviceptr ptr)
{
    struct value value;
    VD_ENTER();
    if (data == NULL || !attribute(vd_memory_find(ptr), ptr, attribute_, &value))
        return vd_leave(CUDA_ERROR_INVALID_VALUE);
    memcpy(data, &value, value.nbytes);
    return vd_leave(CUDA_SUCCESS);
}

CUresult cuPointerGetAttributes(unsigned int numAttributes, CUpointer_attribute *attributes,
                                void **data, CUdeviceptr ptr)
{
    VD_ENTER();
    if (attributes == NULL || data == NULL || numAttributes == 0)
        return vd_leave(CUDA_ERROR_INVALID_VALUE);
    const struct vd_memory *memory = vd_memory_find(ptr);
    for (unsigned i = 0; i < numAttributes; i++) {
        struct value value;
        attribute(memory, ptr, attributes[i], &value);
        if (data[i] == NULL || value.nbytes == 0) return vd_leave(CUDA_ERROR_INVALID_VALUE);
        memcpy(data[i], &value, value.nbytes);
    }
    return vd_leave(CUDA_SUCCESS);
}

CUresult cuPointerSetAttribute(const void *value, CUpointer_attribute attribute_, CUdeviceptr ptr)
{
    uint32_t on;
    VD_ENTER();
    struct vd_memory *memory = vd_memory_find(ptr);
    if (value == NULL || attribute_ != CU_POINTER_ATTRIBUTE_SYNC_MEMOPS || memory == NULL ||
        !from_alloc(memory))
        return vd_leave(CUDA_ERROR_INVALID_VALUE);
    memcpy(&on, value, sizeof on);
    memory->sync_memops = on != 0;
    return vd_leave(CUDA_SUCCESS);
}
