/* Replaces entries of the table of verbs, so that a memfd can be registered like a dma-buf. */
#include "transport/rdma/dmabuf_verbs.h"

#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "transport/rdma/verbs.h"

#undef ibv_reg_mr_iova

/* What the library gets is a copy, which stays valid when the region is broken. */
struct region {
    struct ibv_mr copy;
    struct ibv_mr *real; /* NULL: broken */
    void *memory;
    uint64_t base;
    struct region *following;
};

static struct tt_verbs usual; /* before the first entry was replaced */
static __typeof__(ibv_reg_mr_iova) *reg_mr_iova;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
/* guarded by lock */
static struct region *regions;
static const char *refusing;
static int refusal;
static int left = -1; /* pieces that may be registered; negative: any number */
static bool no_reads;

static struct region *map(size_t offset, size_t length, int fd)
{
    struct region *region = calloc(1, sizeof *region);
    if (!region) return NULL;
    region->memory =
        mmap(NULL, length, PROT_READ | PROT_WRITE, MAP_SHARED, fd,
             (off_t)offset + lseek(fd, 0, SEEK_CUR)); /* where a virtual GPU's begins */
    if (region->memory != MAP_FAILED) return region;
    free(region);
    return NULL;
}

static struct ibv_mr *reg_dmabuf_mr(struct ibv_pd *pd, uint64_t offset, size_t length,
                                    uint64_t iova, int fd, int access)
{
    pthread_mutex_lock(&lock);
    const bool refused =
        !left || (refusing && !strcmp(refusing, usual.get_device_name(pd->context->device)));
    struct region *region = refused ? NULL : map(offset, length, fd);
    if (refused) errno = left ? refusal : ENOMEM;
    left -= left > 0;
    if (region) region->real = reg_mr_iova(pd, region->memory, length, iova, access);
    if (region && !region->real) {
        const int error = errno;
        munmap(region->memory, length);
        free(region);
        region = NULL;
        errno = error;
    }
    if (region) {
        region->copy = *region->real;
        region->copy.length = length;
        region->base = iova;
        region->following = regions;
        regions = region;
    }
    pthread_mutex_unlock(&lock);
    return region ? &region->copy : NULL;
}

static int dereg_mr(struct ibv_mr *mr)
{
    int error = 0;
    pthread_mutex_lock(&lock);
    struct region **at = &regions;
    while (*at && &(*at)->copy != mr) at = &(*at)->following;
    struct region *region = *at;
    if (region) *at = region->following;
    pthread_mutex_unlock(&lock);
    if (!region) return usual.dereg_mr(mr);
    if (region->real) error = usual.dereg_mr(region->real);
    munmap(region->memory, region->copy.length);
    free(region);
    return error;
}

static int query_device(struct ibv_context *context, struct ibv_device_attr *attributes)
{
    const int error = usual.query_device(context, attributes);
    pthread_mutex_lock(&lock);
    if (no_reads) attributes->max_qp_rd_atom = attributes->max_qp_init_rd_atom = 0;
    pthread_mutex_unlock(&lock);
    return error;
}

static struct tt_verbs *table(void)
{
    return (struct tt_verbs *)(uintptr_t)tt_verbs_load();
}

bool dmabuf_verbs_install(void)
{
    struct tt_verbs *verbs = table();
    void *library = dlopen("libibverbs.so.1", RTLD_NOW | RTLD_LOCAL);
    void *symbol = library ? dlsym(library, "ibv_reg_mr_iova") : NULL;
    if (!verbs || !symbol) return false;
    if (verbs->reg_dmabuf_mr == reg_dmabuf_mr) return true;
    memcpy(&reg_mr_iova, &symbol, sizeof symbol);
    usual = *verbs;
    verbs->reg_dmabuf_mr = reg_dmabuf_mr;
    verbs->dereg_mr = dereg_mr;
    verbs->query_device = query_device;
    return true;
}

void dmabuf_verbs_remove(void)
{
    *table() = usual;
}

int dmabuf_verbs_count(void)
{
    int n = 0;
    pthread_mutex_lock(&lock);
    for (const struct region *region = regions; region; region = region->following) n++;
    pthread_mutex_unlock(&lock);
    return n;
}

void dmabuf_verbs_refuse(const char *device, int error)
{
    pthread_mutex_lock(&lock);
    refusing = device;
    refusal = error;
    pthread_mutex_unlock(&lock);
}

void dmabuf_verbs_refuse_after(int n)
{
    pthread_mutex_lock(&lock);
    left = n;
    pthread_mutex_unlock(&lock);
}

void dmabuf_verbs_allow_reads(bool allowed)
{
    pthread_mutex_lock(&lock);
    no_reads = !allowed;
    pthread_mutex_unlock(&lock);
}

void dmabuf_verbs_break(const void *base)
{
    pthread_mutex_lock(&lock);
    for (struct region *region = regions; region; region = region->following) {
        if (region->base != (uintptr_t)base) continue;
        if (region->real) usual.dereg_mr(region->real);
        region->real = NULL;
    }
    pthread_mutex_unlock(&lock);
}
