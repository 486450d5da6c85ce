/* The GPUs of this machine, through CUDA's driver (libcuda.so.1), which is loaded at run time: the
 * library needs neither CUDA's run time nor a GPU. Nothing here includes CUDA's header; a file that
 * calls the driver itself includes driver/cuda.h.
 *
 * Built without CUDA's header, the library finds no GPU. */
#ifndef TT_DRIVER_DRIVER_H
#define TT_DRIVER_DRIVER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/pcie.h"
#include "base/status.h"

enum { TT_DRIVER_TEXT = 256 };

/* How many GPUs this process can use. The first call loads the driver and initializes it. 0: why
 * (which may be NULL) says why, in a text that lives as long as the process. Any thread. */
int tt_driver_ngpus(const char **why);

/* Whether this process has loaded CUDA's driver, by itself or through a library. Loads nothing. */
bool tt_driver_is_in_use(void);
/* The GPU of the calling thread's current context; -1: there is no context, or no GPU. */
int tt_driver_current(void);
/* The GPU that CUDA's runtime would use: that of the calling thread's current context, else 0; -1:
 * this process can use no GPU. The first call loads the driver. */
int tt_driver_default(void);

/* A GPU, as the driver describes it. Plain data. */
struct tt_gpu {
    char name[64];
    char pci[16];     /* domain:bus:device.function, hexadecimal */
    uint8_t uuid[16]; /* the same in all processes */
    int capability;   /* 90: compute capability 9.0 */
    int nprocessors;  /* multiprocessors */
    size_t nbytes;    /* of its memory */
    bool managed;     /* the host and GPUs can access managed memory at the same time */
    bool pageable;    /* kernels can access pageable memory of the host: GH200, HMM */
};

/* ARGUMENT: no such GPU. DEVICE: the driver failed. */
TT_NODISCARD tt_status tt_driver_gpu(int number, struct tt_gpu *gpu);

/* Whether GPU `number` can access the memory of GPU `peer` directly; false where either is none. */
bool tt_driver_peers(int number, int peer);

/* tt_pcie_path of a GPU; "" also where there is none. */
void tt_driver_pcie_path(int number, char path[TT_PCIE_PATH]);

/* Of two GPUs: by whether atomics of one GPU work in the memory of the other one (NVLink), and by
 * the system's files about PCIe; where there are none, as below one root. */
enum tt_distance tt_driver_distance(int number, int peer);
/* "NVLink", "a PCIe switch", "a PCIe root", "two PCIe roots". */
const char *tt_distance_text(enum tt_distance distance);

enum tt_pointer_kind {
    TT_POINTER_HOST,       /* what CUDA knows nothing of */
    TT_POINTER_REGISTERED, /* the host's, pinned: GPUs can access it too */
    TT_POINTER_DEVICE,     /* a GPU's; the host cannot access it */
    TT_POINTER_MANAGED     /* moves between the host and the GPUs */
};

/* Whose memory a pointer is. Plain data. */
struct tt_pointer {
    enum tt_pointer_kind kind;
    int gpu;              /* of DEVICE: the GPU on which the memory lies; else -1 */
    uint64_t allocation;  /* a number that no other allocation of this process ever has; HOST: 0 */
    void *base;           /* of the allocation; HOST: NULL */
    size_t nbytes;        /* of the allocation; HOST: 0 */
    void *device_address; /* at which GPUs access the pointer's byte; HOST: NULL */
    bool has_handle;      /* tt_context_share makes one of the allocation */
};

/* Asks the driver whose memory the pointer is; without a driver every pointer is the host's. The
 * answer holds until the memory is freed. DEVICE: the driver failed. In a child of fork, whose
 * parent has used CUDA, what the host can read is the host's; of other memory: USAGE. */
TT_NODISCARD tt_status tt_driver_pointer(const void *pointer, struct tt_pointer *result);

enum { TT_MOST_CONNECTIONS = 32 };

/* Hardware queues that the streams of a process share on each GPU, as CUDA takes their number from
 * CUDA_DEVICE_MAX_CONNECTIONS: 1 to TT_MOST_CONNECTIONS. */
int tt_driver_connections(void);

/* Calls emit(arg, line) for each GPU, or once with why there is none. */
void tt_driver_describe(void (*emit)(void *arg, const char *line), void *arg);

#endif
