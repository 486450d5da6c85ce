/* Virtual memory management: physical memory, made, shared by descriptors, and released. */
#include "vmm.h"

#include <stdlib.h>
#include <string.h>

static struct vd_vmm *handles;

struct vd_vmm *vd_vmm_find(CUmemGenericAllocationHandle handle)
{
    for (struct vd_vmm *v = handles; v != NULL; v = v->next)
        if ((uintptr_t)v == handle) return v->handles > 0 ? v : NULL;
    return NULL;
}

void vd_vmm_put(struct vd_vmm *vmm)
{
    if (vmm->handles > 0 || vmm->mappings > 0) return;
    for (struct vd_vmm **at = &handles; *at != NULL; at = &(*at)->next)
        if (*at == vmm) {
            *at = vmm->next;
            break;
        }
    vd_backing_put(vmm->backing);
    free(vmm);
}

void vd_vmm_reachable(const struct vd_vmm *vmm)
{
    for (struct vd_memory *m = vd.memories; m != NULL; m = m->next)
        if (m->kind == VD_MEMORY_VMM && m->owner == vmm) vd_memory_reachable(m);
}

unsigned vd_vmm_handle_types(const struct vd_memory *memory)
{
    const struct vd_vmm *vmm = memory->owner;
    return (unsigned)vmm->prop.requestedHandleTypes;
}

static bool is_host(CUmemLocationType type)
{
    return type == CU_MEM_LOCATION_TYPE_HOST || type == CU_MEM_LOCATION_TYPE_HOST_NUMA ||
           type == CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT;
}

static CUresult check(const CUmemAllocationProp *prop)
{
    if (prop == NULL || prop->type != CU_MEM_ALLOCATION_TYPE_PINNED)
        return CUDA_ERROR_INVALID_VALUE;
    if (prop->location.type == CU_MEM_LOCATION_TYPE_DEVICE) {
        if (prop->location.id < 0 || prop->location.id >= vd.ndevices)
            return CUDA_ERROR_INVALID_DEVICE;
    } else if (!is_host(prop->location.type)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (((unsigned)prop->requestedHandleTypes &
         ~(unsigned)CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) != 0)
        return CUDA_ERROR_NOT_SUPPORTED;
    return CUDA_SUCCESS;
}

static struct vd_vmm *add(struct vd_backing *backing, const CUmemAllocationProp *prop)
{
    struct vd_vmm *vmm = calloc(1, sizeof *vmm);
    if (vmm == NULL) return NULL;
    *vmm = (struct vd_vmm){.backing = backing, .prop = *prop, .handles = 1, .next = handles};
    handles = vmm;
    return vmm;
}

CUresult cuMemCreate(CUmemGenericAllocationHandle *handle, size_t size,
                     const CUmemAllocationProp *prop, unsigned long long flags)
{
    struct vd_backing *backing;
    VD_ENTER();
    CUresult result = check(prop);
    if (result == CUDA_SUCCESS &&
        (handle == NULL || size == 0 || size % VD_GRANULE != 0 || flags != 0))
        result = CUDA_ERROR_INVALID_VALUE;
    if (result != CUDA_SUCCESS) return vd_leave(result);
    const bool host = is_host(prop->location.type);
    result = vd_backing_create(host ? -1 : prop->location.id, size, &backing);
    if (result != CUDA_SUCCESS) return vd_leave(result);
    backing->numa = host ? prop->location.id : 0;
    struct vd_vmm *vmm = add(backing, prop);
    if (vmm == NULL) {
        vd_backing_put(backing);
        return vd_leave(CUDA_ERROR_OUT_OF_MEMORY);
    }
    *handle = (uintptr_t)vmm;
    return vd_leave(CUDA_SUCCESS);
}

CUresult cuMemRelease(CUmemGenericAllocationHandle handle)
{
    VD_ENTER();
    struct vd_vmm *vmm = vd_vmm_find(handle);
    if (vmm == NULL) return vd_leave(CUDA_ERROR_INVALID_VALUE);
    vmm->handles--;
    vd_vmm_put(vmm);
    return vd_leave(CUDA_SUCCESS);
}

CUresult cuMemRetainAllocationHandle(CUmemGenericAllocationHandle *handle, void *addr)
{
    VD_ENTER();
    const struct vd_memory *memory = vd_memory_find((uintptr_t)addr);
    if (handle == NULL || memory == NULL || memory->kind != VD_MEMORY_VMM)
        return vd_leave(CUDA_ERROR_INVALID_VALUE);
    struct vd_vmm *vmm = memory->owner;
    vmm->handles++;
    *handle = (uintptr_t)vmm;
    return vd_leave(CUDA_SUCCESS);
}

CUresult cuMemGetAllocationPropertiesFromHandle(CUmemAllocationProp *prop,
                                                CUmemGenericAllocationHandle handle)
{
    VD_ENTER();
    const struct vd_vmm *vmm = vd_vmm_find(handle);
    if (prop == NULL || vmm == NULL) return vd_leave(CUDA_ERROR_INVALID_VALUE);
    *prop = vmm->prop;
    return vd_leave(CUDA_SUCCESS);
}

CUresult cuMemGetAllocationGranularity(size_t *granularity, const CUmemAllocationProp *prop,
                                       CUmemAllocationGranularity_flags option)
{
    VD_ENTER();
    const CUresult result = check(prop);
    if (granularity == NULL || (option != CU_MEM_ALLOC_GRANULARITY_MINIMUM &&
                                option != CU_MEM_ALLOC_GRANULARITY_RECOMMENDED))
        return vd_leave(CUDA_ERROR_INVALID_VALUE);
    if (result == CUDA_SUCCESS) *granularity = VD_GRANULE;
    return vd_leave(result);
}

CUresult cuMemExportToShareableHandle(void *shareableHandle, CUmemGenericAllocationHandle handle,
                                      CUmemAllocationHandleType handleType,
                                      unsigned long long flags)
{
    VD_ENTER();
    const struct vd_vmm *vmm = vd_vmm_find(handle);
    if (shareableHandle == NULL || vmm == NULL || flags != 0 ||
        handleType != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR ||
        (vmm->prop.requestedHandleTypes & handleType) == 0)
        return vd_leave(CUDA_ERROR_INVALID_VALUE);
    const CUresult result = vd_backing_share(vmm->backing, VD_SHARE_VMM);
    if (result != CUDA_SUCCESS) return vd_leave(result);
    vd_vmm_reachable(vmm);
    return vd_leave(vd_backing_descriptor(vmm->backing, shareableHandle));
}

static struct vd_vmm *known(const struct vd_backing *backing)
{
    struct vd_vmm *vmm = handles;
    while (vmm != NULL && vmm->backing != backing) vmm = vmm->next;
    return vmm;
}

CUresult cuMemImportFromShareableHandle(CUmemGenericAllocationHandle *handle, void *osHandle,
                                        CUmemAllocationHandleType shHandleType)
{
    struct vd_backing *backing;
    const char *why;
    VD_ENTER();
    if (handle == NULL) return vd_leave(CUDA_ERROR_INVALID_VALUE);
    if (shHandleType != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)
        return vd_leave(CUDA_ERROR_NOT_SUPPORTED);
    const int fd = (int)(intptr_t)osHandle;
    if (vd_backing_open(fd, VD_SHARE_VMM, NULL, &backing, &why) != CUDA_SUCCESS) {
        vd_say("cuMemImportFromShareableHandle of descriptor %d: %s", fd, why);
        return vd_leave(CUDA_ERROR_UNKNOWN);
    }
    struct vd_vmm *vmm = known(backing);
    if (vmm != NULL) {
        vd_backing_put(backing);
        vmm->handles++;
    } else {
        CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                    .requestedHandleTypes =
                                        CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR};
        prop.location.type =
            backing->device < 0 ? CU_MEM_LOCATION_TYPE_HOST_NUMA : CU_MEM_LOCATION_TYPE_DEVICE;
        prop.location.id = backing->device < 0 ? backing->numa : backing->device;
        vmm = add(backing, &prop);
        if (vmm == NULL) {
            vd_backing_put(backing);
            return vd_leave(CUDA_ERROR_OUT_OF_MEMORY);
        }
    }
    *handle = (uintptr_t)vmm;
    return vd_leave(CUDA_SUCCESS);
}
