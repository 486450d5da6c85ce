/* Handles of virtual memory management. */
#ifndef VGPU_DRIVER_VMM_H
#define VGPU_DRIVER_VMM_H

#include "memory_internal.h"

/* Physical memory. It lives while it has handles or mappings. */
struct vd_vmm {
    struct vd_backing *backing;
    CUmemAllocationProp prop;
    uint32_t handles, mappings;
    struct vd_vmm *next;
};

struct vd_vmm *vd_vmm_find(CUmemGenericAllocationHandle handle); /* NULL: no handle */
void vd_vmm_put(struct vd_vmm *vmm); /* gone when handles and mappings are 0 */
/* All mappings of the memory: others can write it. */
void vd_vmm_reachable(const struct vd_vmm *vmm);

#endif
