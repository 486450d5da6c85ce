/* What vgpu-run counts: a file that it makes and that the processes of a run map (VGPU_COUNTS). */
#ifndef VGPU_COUNTS_H
#define VGPU_COUNTS_H

#include <stdatomic.h>
#include <stdint.h>

struct vgpu_counts {
    _Atomic uint64_t processes; /* in which cuInit found the virtual GPU */
    _Atomic uint64_t kernels;   /* that began on virtual GPUs */
};

#endif
