/* Where the bytes of device memory lie: private pages, or a memfd once they are shared.
 *
 * A memfd has no name in a file system: when the last process that has it open or mapped has ended,
 * by SIGKILL too, the kernel frees it. Its last page is a label with a random id, and seals forbid
 * to resize it, so that a process that has opened it cannot get SIGBUS from another one. */
#include "memory_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

static const char label_magic[16] = "tutti vgpu mem1";
static struct vd_backing *backings; /* shared ones */

static bool page_is_zero(const unsigned char *page)
{
    static const unsigned char zeros[VD_PAGE];
    return memcmp(page, zeros, VD_PAGE) == 0;
}

/* The biggest allocations of the device, for the message about memory that has run out. */
static void say_holders(int device, uint64_t nbytes)
{
    const struct vd_device *d = &vd.devices[device];
    const struct vd_memory *most[3] = {NULL, NULL, NULL};
    uint64_t count = 0;
    for (const struct vd_memory *m = vd.memories; m != NULL; m = m->next) {
        if (m->device != device || m->backing == NULL) continue;
        count++;
        for (int i = 0; i < 3; i++) {
            if (most[i] != NULL && most[i]->nbytes >= m->nbytes) continue;
            memmove(most + i + 1, most + i, (size_t)(2 - i) * sizeof *most);
            most[i] = m;
            break;
        }
    }
    vd_say("GPU %d is out of memory: %llu bytes were asked for, %llu of %llu are used by %llu "
           "allocations; VGPU_MEMORY sets the size",
           device, (unsigned long long)nbytes, (unsigned long long)d->used,
           (unsigned long long)d->memory, (unsigned long long)count);
    for (int i = 0; i < 3 && most[i] != NULL; i++)
        vd_say("allocation %llu, %s: %llu bytes", (unsigned long long)most[i]->region.number,
               most[i]->region.what, (unsigned long long)most[i]->nbytes);
}

CUresult vd_backing_create(int device, uint64_t nbytes, struct vd_backing **backing)
{
    const uint64_t charge = vd_round_up(nbytes, 512);
    struct vd_device *d = device >= 0 ? &vd.devices[device] : NULL;
    if (nbytes > UINT64_C(1) << 46 || (d != NULL && charge > d->memory - d->used)) {
        if (d != NULL) say_holders(device, nbytes);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    struct vd_backing *made = calloc(1, sizeof *made);
    if (made == NULL) return CUDA_ERROR_OUT_OF_MEMORY;
    *made = (struct vd_backing){.nbytes = nbytes,
                                .room = vd_round_up(nbytes, VD_PAGE),
                                .mapped = vd_round_up(nbytes, VD_PAGE) + 2 * VD_PAGE,
                                .fd = -1,
                                .device = device,
                                .identity = d != NULL ? d->identity : -1,
                                .charged = d != NULL,
                                .refs = 1};
    void *bytes = mmap(NULL, made->mapped, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (bytes == MAP_FAILED) {
        vd_say("no host memory for %llu bytes of GPU %d: %s", (unsigned long long)nbytes, device,
               strerror(errno));
        free(made);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    made->bytes = bytes;
    if (d != NULL) d->used += charge;
    *backing = made;
    return CUDA_SUCCESS;
}

void vd_backing_place(struct vd_backing *backing, uint64_t address)
{
    backing->skew = (uint32_t)(address % VD_PAGE);
    backing->bytes += backing->skew;
    backing->room = vd_round_up(backing->skew + backing->nbytes, VD_PAGE);
}

static unsigned char *first_page(const struct vd_backing *backing)
{
    return backing->bytes - backing->skew;
}

struct vd_backing *vd_backing_get(struct vd_backing *backing)
{
    backing->refs++;
    return backing;
}

void vd_backing_put(struct vd_backing *backing)
{
    if (backing == NULL || --backing->refs > 0) return;
    for (struct vd_backing **at = &backings; *at != NULL; at = &(*at)->next)
        if (*at == backing) {
            *at = backing->next;
            break;
        }
    munmap(first_page(backing), backing->mapped);
    if (backing->fd >= 0) close(backing->fd);
    if (backing->charged) vd.devices[backing->device].used -= vd_round_up(backing->nbytes, 512);
    free(backing);
}

/* The memfd with the label and a copy of the bytes; -1: none, errno says why. */
static int make_file(const struct vd_backing *backing, enum vd_share kind, const uint64_t id[2])
{
    const int fd = memfd_create("tutti vgpu memory", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (fd < 0) return -1;
    struct vd_label label = {.id = {id[0], id[1]},
                             .nbytes = backing->nbytes,
                             .kind = kind,
                             .identity = backing->identity,
                             .numa = backing->numa,
                             .skew = backing->skew};
    memcpy(label.magic, label_magic, sizeof label.magic);
    if (ftruncate(fd, (off_t)(backing->room + VD_PAGE)) != 0 ||
        fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0 ||
        pwrite(fd, &label, sizeof label, (off_t)backing->room) != (ssize_t)sizeof label)
        goto failed;
    for (uint64_t at = 0; at < backing->room; at += VD_PAGE) {
        const unsigned char *page = first_page(backing) + at;
        if (page_is_zero(page)) continue;
        if (pwrite(fd, page, VD_PAGE, (off_t)at) != VD_PAGE) goto failed;
    }
    return fd;
failed:
    close(fd);
    return -1;
}

CUresult vd_backing_share(struct vd_backing *backing, enum vd_share kind)
{
    uint64_t id[2];
    if (backing->fd >= 0) return CUDA_SUCCESS;
    if (getrandom(id, sizeof id, 0) != (ssize_t)sizeof id) return CUDA_ERROR_OPERATING_SYSTEM;
    const int fd = make_file(backing, kind, id);
    if (fd < 0) {
        vd_say("no memfd of %llu bytes to share memory: %s", (unsigned long long)backing->nbytes,
               strerror(errno));
        return errno == ENOMEM || errno == ENOSPC ? CUDA_ERROR_OUT_OF_MEMORY
                                                  : CUDA_ERROR_OPERATING_SYSTEM;
    }
    if (mmap(first_page(backing), backing->room + VD_PAGE, PROT_READ | PROT_WRITE,
             MAP_SHARED | MAP_FIXED, fd, 0) == MAP_FAILED) {
        vd_say("mapping a memfd of %llu bytes failed: %s", (unsigned long long)backing->nbytes,
               strerror(errno));
        close(fd);
        return CUDA_ERROR_OPERATING_SYSTEM;
    }
    backing->fd = fd;
    memcpy(backing->id, id, sizeof id);
    backing->next = backings;
    backings = backing;
    return CUDA_SUCCESS;
}

struct vd_backing *vd_backing_find(const uint64_t id[2])
{
    for (struct vd_backing *b = backings; b != NULL; b = b->next)
        if (b->id[0] == id[0] && b->id[1] == id[1]) return b;
    return NULL;
}

/* The number that the GPU has in this process. */
static int device_of(int identity)
{
    if (identity < 0) return identity;
    for (int d = 0; d < vd.ndevices; d++)
        if (vd.devices[d].identity == identity) return d;
    return VD_HIDDEN;
}

/* Reads and checks the label. NULL, or what is wrong. */
static const char *read_label(int fd, enum vd_share kind, const uint64_t *id,
                              struct vd_label *label)
{
    struct stat about;
    const int must = F_SEAL_SHRINK | F_SEAL_GROW;
    if (fstat(fd, &about) != 0) return "the descriptor is not open";
    if (!S_ISREG(about.st_mode) || about.st_size < 2 * VD_PAGE || about.st_size % VD_PAGE != 0)
        return "the descriptor is not memory of a virtual GPU";
    const int seals = fcntl(fd, F_GET_SEALS);
    if (seals < 0 || (seals & must) != must)
        return "the descriptor is not a memfd that is sealed against resizing";
    if (pread(fd, label, sizeof *label, about.st_size - VD_PAGE) != (ssize_t)sizeof *label ||
        memcmp(label->magic, label_magic, sizeof label_magic) != 0)
        return "the memfd is not memory of a virtual GPU";
    if (label->nbytes == 0 || label->nbytes > (uint64_t)about.st_size - VD_PAGE ||
        label->skew >= VD_PAGE ||
        vd_round_up(label->skew + label->nbytes, VD_PAGE) != (uint64_t)about.st_size - VD_PAGE)
        return "the memory's label does not fit its size";
    if (label->kind != (uint32_t)kind) return "the memory was shared in another way";
    if (label->identity < -1 || label->identity >= vd.settings.devices ||
        (kind != VD_SHARE_IPC && device_of(label->identity) == VD_HIDDEN))
        return "the memory lies on a GPU that this process does not have (VGPU_DEVICES, "
               "CUDA_VISIBLE_DEVICES)";
    if (id != NULL && (id[0] != label->id[0] || id[1] != label->id[1]))
        return "the memory was freed, and its descriptor's number used again";
    return NULL;
}

CUresult vd_backing_open(int fd, enum vd_share kind, const uint64_t *id,
                         struct vd_backing **backing, const char **why)
{
    struct vd_label label;
    *why = read_label(fd, kind, id, &label);
    if (*why != NULL) return CUDA_ERROR_INVALID_HANDLE;
    struct vd_backing *known = vd_backing_find(label.id);
    if (known != NULL) {
        *backing = vd_backing_get(known);
        return CUDA_SUCCESS;
    }
    struct vd_backing *opened = calloc(1, sizeof *opened);
    const int own = fcntl(fd, F_DUPFD_CLOEXEC, 3);
    *why = "the process has no memory or descriptors left";
    if (opened == NULL || own < 0) goto failed;
    *opened = (struct vd_backing){.nbytes = label.nbytes,
                                  .skew = label.skew,
                                  .room = vd_round_up(label.skew + label.nbytes, VD_PAGE),
                                  .fd = own,
                                  .device = device_of(label.identity),
                                  .identity = label.identity,
                                  .numa = label.numa,
                                  .refs = 1,
                                  .id = {label.id[0], label.id[1]},
                                  .next = backings};
    opened->mapped = opened->room + VD_PAGE;
    void *bytes = mmap(NULL, opened->mapped, PROT_READ | PROT_WRITE, MAP_SHARED, own, 0);
    *why = "mmap of the memory failed";
    if (bytes == MAP_FAILED) goto failed;
    opened->bytes = (unsigned char *)bytes + opened->skew;
    backings = opened;
    *backing = opened;
    *why = NULL;
    return CUDA_SUCCESS;
failed:
    if (own >= 0) close(own);
    free(opened);
    return CUDA_ERROR_MAP_FAILED;
}

CUresult vd_backing_descriptor(const struct vd_backing *backing, int *fd)
{
    const int copy = fcntl(backing->fd, F_DUPFD_CLOEXEC, 3);
    if (copy < 0) {
        vd_say("no descriptor for shared memory: %s", strerror(errno));
        return CUDA_ERROR_OPERATING_SYSTEM;
    }
    *fd = copy;
    return CUDA_SUCCESS;
}

/* Duplicates share a file position, so it is opened anew. */
CUresult vd_backing_descriptor_at(const struct vd_backing *backing, uint64_t position, int *fd)
{
    char path[32];
    snprintf(path, sizeof path, "/proc/self/fd/%d", backing->fd);
    const int made = open(path, O_RDWR | O_CLOEXEC);
    if (made >= 0 && lseek(made, (off_t)position, SEEK_SET) == (off_t)position) {
        *fd = made;
        return CUDA_SUCCESS;
    }
    vd_say("no descriptor for a range of shared memory: %s", strerror(errno));
    if (made >= 0) close(made);
    return CUDA_ERROR_OPERATING_SYSTEM;
}
