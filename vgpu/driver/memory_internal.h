/* What the files about memory share: where bytes lie, and ranges of addresses. */
#ifndef VGPU_DRIVER_MEMORY_INTERNAL_H
#define VGPU_DRIVER_MEMORY_INTERNAL_H

#include "driver.h"

enum { VD_PAGE = 4096 };
#define VD_GRANULE (UINT64_C(2) << 20) /* of a mapping on a device */

static inline uint64_t vd_round_up(uint64_t value, uint64_t unit)
{
    return (value + unit - 1) / unit * unit;
}

/* ---- backing.c: where the bytes of device memory lie ---- */

/* A GPU that CUDA_VISIBLE_DEVICES leaves out: memory there can be opened by IPC. */
enum { VD_HIDDEN = -2 };

enum vd_share { VD_SHARE_IPC = 1, VD_SHARE_VMM = 2, VD_SHARE_EVENT = 3 };

/* Private pages of this process, or, from the moment it is shared, pages of a memfd whose last page
 * says what it is. Counted. */
struct vd_backing {
    unsigned char *bytes;
    uint64_t nbytes; /* as asked for */
    uint32_t skew;   /* bytes of the first page before them: as at their device address */
    uint64_t room;   /* skew and nbytes in whole pages */
    uint64_t mapped; /* bytes of the mapping, which begins with the first page */
    int fd;          /* -1: private */
    int device;   /* number of the GPU; -1: host; VD_HIDDEN: one that this process does not see */
    int identity; /* of the GPU, the same in all processes; -1: host */
    int numa;     /* location.id of host memory */
    bool charged; /* counts against the device's memory: not when it was opened */
    uint32_t refs;
    uint64_t id[2]; /* random; of a shared one */
    struct vd_backing *next;
};

/* The last page of the memfd. */
struct vd_label {
    char magic[16];
    uint64_t id[2], nbytes;
    uint32_t kind; /* enum vd_share */
    int32_t identity, numa;
    uint32_t skew;
};

/* CUDA_ERROR_OUT_OF_MEMORY with a message that names what holds memory. */
CUresult vd_backing_create(int device, uint64_t nbytes, struct vd_backing **backing);
/* The bytes get this address, so that pages of the one are pages of the other. Once, before anybody
 * knows where they lie. */
void vd_backing_place(struct vd_backing *backing, uint64_t address);
struct vd_backing *vd_backing_get(struct vd_backing *backing);
void vd_backing_put(struct vd_backing *backing);
/* Moves the bytes into a memfd, at the same place in this process. Nothing when it has one. */
CUresult vd_backing_share(struct vd_backing *backing, enum vd_share kind);
/* The backing behind a memfd of this or another process; one that this process has already is
 * found again. *why says what was wrong. id: what it must be, or NULL. */
CUresult vd_backing_open(int fd, enum vd_share kind, const uint64_t *id,
                         struct vd_backing **backing, const char **why);
struct vd_backing *vd_backing_find(const uint64_t id[2]);
/* A new descriptor of a shared one, for the program. */
CUresult vd_backing_descriptor(const struct vd_backing *backing, int *fd);
/* vd_backing_descriptor with a file position of its own: at this byte of the pages. */
CUresult vd_backing_descriptor_at(const struct vd_backing *backing, uint64_t position, int *fd);

/* ---- address.c ---- */

bool vd_address_reserved(uint64_t address); /* lies in the range of device addresses */
/* vd_address_take at this very address. */
bool vd_address_take_at(uint64_t address, uint64_t nbytes);
/* The handler of SIGSEGV, which names the allocation (segv.c). Nothing at later calls. */
void vd_segv_install(void);

/* ---- memory.c ---- */

/* Memory from the pool, with its number; not published. NULL: no memory. */
struct vd_memory *vd_memory_new(enum vd_memory_kind kind, uint64_t address, uint64_t nbytes,
                                const char *what);
/* Gives it back to the pool; it was withdrawn, or never published. */
void vd_memory_drop(struct vd_memory *memory);
/* Withdraws it and gives its bytes back, but keeps the region for errors that name it. */
void vd_memory_retire(struct vd_memory *memory);
/* Frees memory of any kind; nothing uses it any more. */
void vd_memory_release(struct vd_memory *memory);
/* Memory of an allocation node is freed until a launch allocates it again: it keeps its address. */
void vd_memory_rest(struct vd_memory *memory);
/* For the SIGSEGV handler, which takes no lock: memory is never given back to the system. */
const struct vd_memory *vd_memory_nth(uint64_t n);
/* Makes it known to one more device. */
CUresult vd_memory_add_device(struct vd_memory *memory, int device);
void vd_memory_remove_device(struct vd_memory *memory, int device);
/* Memory others can write: the model's buffers instead of its notes. */
void vd_memory_reachable(struct vd_memory *memory);
/* New device memory at an address of its own, of a context or of none. */
CUresult vd_memory_make(struct CUctx_st *context, uint64_t nbytes, const char *what,
                        struct vd_memory **memory);
CUresult vd_memory_make_async(int device, uint64_t nbytes, struct vd_memory **memory);
/* The region of an address, variables of modules included; NULL: host memory, or nobody's. */
struct vg_region *vd_region_find(uint64_t address);
/* Whether [address, address + nbytes) may be copied: lies in memory that a device can address, or,
 * if host, may be plain host memory. */
bool vd_range_valid(uint64_t address, uint64_t nbytes, bool host);
/* A line on standard error. */
void vd_say(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* ---- peer.c ---- */

/* Whether a context of the device has peer access to the other device. */
bool vd_peer_sees(int device, int other);
void vd_peer_disabled(struct CUctx_st *context, struct vd_device *peer);
/* VGPU_PEER_BROKEN has the device and the GPU of the memory. */
bool vd_peer_is_broken(int device, const struct vd_memory *memory);

/* ---- host.c ---- */

/* The pages of memory from cuMemHostAlloc, cuMemAllocHost or cuMemAllocManaged. */
void vd_host_unmap(void *bytes, uint64_t nbytes);

/* ---- graphmemory.c ---- */

/* The program frees memory of an allocation node: it is not allocated from this call on. false: it
 * was not, or a node of its own graph frees it. */
bool vd_graph_memory_free(uint64_t address);

/* ---- vmm.c ---- */

/* The properties of the mapping's handle: requestedHandleTypes. */
unsigned vd_vmm_handle_types(const struct vd_memory *memory);

#endif
