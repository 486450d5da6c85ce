/* The machine: runs grids of lowered kernels on virtual GPUs, a quantum at a time, in one host
 * thread.
 *
 * The driver (driver/) owns modules, regions and streams and calls the machine; the machine knows
 * no stream. */
#ifndef VGPU_MACHINE_H
#define VGPU_MACHINE_H

#include <stdbool.h>
#include <stdint.h>

#include <vgpu/code.h>
#include <vgpu/memory.h>
#include <vgpu/model.h>
#include <vgpu/traffic.h>

struct vg_gpu {
    int number;
    uint32_t nsms, threads_per_sm, blocks_per_sm, shared_per_sm, shared_per_block, registers_per_sm;
    uint32_t capability; /* 90 for 9.0 */
    struct vg_regions
        *regions; /* what its kernels can address: its memory, mapped host memory, peers' */
};

struct vg_machine_settings {
    uint64_t seed;
    bool shuffled_blocks; /* VGPU_BLOCK_ORDER=shuffled */
    bool strict_vectors;  /* VGPU_VECTOR=strict: the scalar accesses of a vector access in a seeded
                             order, and others between */
    bool check_undefined; /* reads of memory that nobody wrote are errors */
    uint32_t patience;    /* instructions without a store, a barrier or a new value before a thread
                             yields; 0: 1000 */
    uint32_t spin_limit;  /* instructions of a thread without any access of memory, barrier or
                             exchange between lanes before it counts as hanging; 0: 2^24 where it
                             looks at the time meanwhile, else none. A thread that comes back to the
                             same registers without looking at the time hangs in any case. */
    uint32_t quantum;     /* instructions of a warp before another one may run; 0: 2000 */
    void (*print)(void *arg, const char *text, uint64_t nbytes); /* printf of kernels */
    /* A race, and what to print about it: several lines. The modules of all kernels that ran must
     * exist until the machine is destroyed, for reports name their places. */
    void (*race)(void *arg, const struct vg_race *race, const char *text);
    void *arg;
    struct vg_model_settings
        model; /* its seed, race and arg are the machine's: they are set from the above */
};

/* Why a grid failed; text names kernel, block, thread, line, address and allocation. */
enum vg_fault {
    VG_FAULT_NONE,
    VG_FAULT_ADDRESS,
    VG_FAULT_MISALIGNED,
    VG_FAULT_INSTRUCTION,
    VG_FAULT_ASSERT,
    VG_FAULT_TRAP,
    VG_FAULT_STACK,
    VG_FAULT_BARRIER,
    VG_FAULT_DEADLOCK,
    VG_FAULT_UNDEFINED,
    VG_FAULT_RESOURCES
};

/* A module loaded on one GPU: addresses are known, handlers chosen. */
struct vg_image {
    struct vg_module *module;        /* borrowed */
    struct vg_region **variables;    /* of each variable, NULL for shared ones */
    uint32_t (*constants)[VG_LANES]; /* the module's, with addresses filled in */
    uint64_t number;
};

struct vg_machine;
struct vg_run; /* a grid that is running */

struct vg_machine *vg_machine_create(const struct vg_machine_settings *settings);
void vg_machine_destroy(struct vg_machine *machine);
struct vg_model *vg_machine_model(struct vg_machine *machine);

/* Makes regions for the module's variables (addresses by place, which the driver gives), fills in
 * addresses, chooses handlers. -1: no memory; error says why. */
int vg_image_create(struct vg_module *module,
                    uint64_t (*place)(void *arg, uint64_t nbytes, uint32_t align), void *arg,
                    struct vg_regions *regions, struct vg_image **image, char error[256]);
void vg_image_destroy(struct vg_image *image, struct vg_regions *regions, struct vg_model *model);

struct vg_launch {
    const struct vg_gpu *gpu;
    const struct vg_image *image;
    const struct vg_function *kernel;
    uint32_t grid[3], block[3];
    uint32_t dynamic_shared;
    const void *params; /* kernel->param_bytes bytes; copied */
    bool cooperative;
    uint64_t number; /* of the launch, in reports */
    const struct vg_past *before;
    uint32_t local_limit; /* bytes of stack a thread; 0: 1024 */
};

/* Why a launch cannot be. */
enum vg_refusal {
    VG_ACCEPTED,
    VG_REFUSED_SHAPE,       /* of grid or block */
    VG_REFUSED_THREADS,     /* more than the kernel was compiled for */
    VG_REFUSED_SHARED,      /* memory */
    VG_REFUSED_COOPERATIVE, /* more blocks than can be resident */
    VG_REFUSED_INSTRUCTION  /* an unsupported one */
};
/* Whether vg_run_begin would refuse the launch; number and before are not looked at. */
enum vg_refusal vg_launch_check(const struct vg_launch *launch, char error[512]);

/* -1 and fault's text in error when the launch cannot be, or there is no memory. Blocks of all runs
 * on the GPU of one number share its SMs: a run none of whose blocks has room waits. A cooperative
 * grid begins when all its blocks have room. */
int vg_run_begin(struct vg_machine *machine, const struct vg_launch *launch, struct vg_run **run,
                 char error[512]);

enum vg_progress { VG_DONE, VG_MOVED, VG_WAITING, VG_FAULTED };
/* Runs some warps of the grid for a quantum. VG_WAITING: every resident thread waits for a value or
 * a block that no thread of this grid can give now. vg_run_waits_for_host says whether
 * the host or another process can change one of the words that threads wait for. */
enum vg_progress vg_run_step(struct vg_run *run);
/* Grows whenever a thread has stored something, read a new value or met a barrier, and when a block
 * begins or ends: a step that leaves it alone may have let others look in vain. */
uint64_t vg_run_moves(const struct vg_run *run);
bool vg_run_waits_for_host(const struct vg_run *run);
/* Whether all its blocks have begun. */
bool vg_run_started(const struct vg_run *run);
/* For reports of deadlocks: who waits where. */
void vg_run_describe(const struct vg_run *run, char *text, uint64_t nbytes);
enum vg_fault vg_run_fault(const struct vg_run *run, const char **text);
/* Ends it, finished or not. */
void vg_run_end(struct vg_run *run, struct vg_past *after);

/* Blocks of the kernel that fit on one SM at the same time. */
uint32_t vg_occupancy(const struct vg_gpu *gpu, const struct vg_function *kernel, uint32_t nthreads,
                      uint32_t dynamic_shared);

struct vg_machine_counts {
    uint64_t instructions; /* of threads */
    uint64_t launches;
};
void vg_machine_count(const struct vg_machine *machine, struct vg_machine_counts *counts);
/* What the kernels on the GPU of this number did up to now. */
void vg_machine_traffic(const struct vg_machine *machine, int gpu, struct vgpu_traffic *traffic);

#endif
