#include "transport/window.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/log.h"

static pthread_rwlock_t lock = PTHREAD_RWLOCK_INITIALIZER;
static struct tt_window *windows; /* guarded by lock */
static uint32_t counter;          /* guarded by lock */

struct tt_mapped_window {
    uint64_t id;
    char *base;
    size_t nbytes;
    struct tt_mapped_window *next;
};

static size_t page_round(size_t nbytes)
{
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    return (nbytes + page - 1) / page * page;
}

tt_status tt_window_create(void **memory, size_t nbytes)
{
    if (nbytes > SIZE_MAX / 4)
        return tt_fail(TT_ERR_ARGUMENT, "%zu bytes of memory are more than can be had", nbytes);
    struct tt_window *window = calloc(1, sizeof *window);
    if (!window) return tt_fail(TT_ERR_SYSTEM, "out of memory for a window");
    window->nbytes = page_round(nbytes ? nbytes : 1);
    window->fd = memfd_create("tutti-window", MFD_CLOEXEC);
    tt_status status;
    if (window->fd < 0) {
        status = tt_fail_errno(errno, "cannot create a window of %zu bytes (memfd_create)", nbytes);
        goto free_window;
    }
    if (ftruncate(window->fd, (off_t)window->nbytes)) {
        status = tt_fail_errno(errno, "cannot size a window to %zu bytes", nbytes);
        goto close_fd;
    }
    window->base = mmap(NULL, window->nbytes, PROT_READ | PROT_WRITE, MAP_SHARED, window->fd, 0);
    if (window->base == MAP_FAILED) {
        status = tt_fail_errno(errno, "cannot map a window of %zu bytes", nbytes);
        goto close_fd;
    }
    madvise(window->base, window->nbytes,
            MADV_HUGEPAGE); /* advice only: refused without huge shmem pages */
    pthread_rwlock_wrlock(&lock);
    window->id = (uint64_t)getpid() << 32 | ++counter;
    window->next = windows;
    windows = window;
    pthread_rwlock_unlock(&lock);
    *memory = window->base;
    return TT_OK;

close_fd:
    close(window->fd);
free_window:
    free(window);
    return status;
}

tt_status tt_window_free(void *memory)
{
    if (!memory) return TT_OK;
    pthread_rwlock_wrlock(&lock);
    struct tt_window **link = &windows;
    while (*link && (*link)->base != memory) link = &(*link)->next;
    struct tt_window *window = *link;
    if (window) *link = window->next;
    pthread_rwlock_unlock(&lock);
    if (!window)
        return tt_fail(TT_ERR_ARGUMENT, "%p was not given by tuttiMemAlloc, or was freed already",
                       memory);
    munmap(window->base, window->nbytes);
    if (ftruncate(window->fd, 0))
        TT_WARN("a freed window keeps its memory until its peers let go: %m");
    close(window->fd);
    free(window);
    return TT_OK;
}

bool tt_window_find(const void *memory, size_t nbytes, struct tt_window *found)
{
    const char *start = memory;
    pthread_rwlock_rdlock(&lock);
    const struct tt_window *window = windows;
    while (window && !(start >= window->base && start < window->base + window->nbytes))
        window = window->next;
    const bool inside = window && nbytes <= (size_t)(window->base + window->nbytes - start);
    if (inside) *found = *window;
    pthread_rwlock_unlock(&lock);
    return inside;
}

char *tt_window_map_find(struct tt_window_map *map, uint64_t id, size_t *nbytes)
{
    for (struct tt_mapped_window *window = map->mapped; window; window = window->next)
        if (window->id == id) {
            *nbytes = window->nbytes;
            return window->base;
        }
    return NULL;
}

tt_status tt_window_map_add(struct tt_window_map *map, uint64_t id, int fd, size_t nbytes)
{
    struct stat info;
    if (fstat(fd, &info) || (size_t)info.st_size < nbytes)
        return tt_fail(
            TT_ERR_USAGE,
            "a peer's window has %lld bytes, %zu were announced: was it freed during a call?",
            (long long)info.st_size, nbytes);
    struct tt_mapped_window *window = calloc(1, sizeof *window);
    if (!window) return tt_fail(TT_ERR_SYSTEM, "out of memory for a peer's window");
    *window = (struct tt_mapped_window){.id = id, .nbytes = nbytes, .next = map->mapped};
    window->base = mmap(NULL, nbytes, PROT_READ, MAP_SHARED, fd, 0);
    if (window->base == MAP_FAILED) {
        const int error = errno;
        free(window);
        return tt_fail_errno(error, "cannot map a peer's window of %zu bytes", nbytes);
    }
    map->mapped = window;
    return TT_OK;
}

void tt_window_map_fini(struct tt_window_map *map)
{
    while (map->mapped) {
        struct tt_mapped_window *next = map->mapped->next;
        munmap(map->mapped->base, map->mapped->nbytes);
        free(map->mapped);
        map->mapped = next;
    }
}
