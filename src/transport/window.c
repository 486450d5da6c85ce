/* Windows: allocates memory in memfds, turns existing private pages into windows, and finds the
 * window that holds an address, or has an id. A process-wide list, and lists by id, guarded by one
 * lock. */
#include "transport/window.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/log.h"
#include "base/open.h"
#include "base/private_fd.h"
#include "base/process_lock.h"
#include "base/write.h"

/* Pages that a device uses. Owned by the list. */
struct pin {
    uintptr_t begin, end;
    struct pin *next;
};

/* Lock order: moving before lock. */
static struct tt_process_lock moving = TT_PROCESS_LOCK; /* held while pages move */
static struct pin *pins;                                /* guarded by moving */
static struct tt_process_lock lock = TT_PROCESS_LOCK;
static struct tt_window *windows; /* guarded by lock */
/* guarded by lock: the same windows by their ids, which are counted */
enum { NBUCKETS = 1024 };
static struct tt_window *by_id[NBUCKETS];
static uint32_t counter; /* guarded by lock */
/* Changes of the list so far. Writers hold lock; count_change_locked releases what has changed to
 * tt_window_changes and tt_window_losses, which take no lock. */
static _Atomic uint64_t changes, losses; /* losses: of them, windows that are gone */

struct tt_mapped_window {
    uint64_t name;
    char *base; /* NULL: none has this index */
    size_t nbytes;
    bool whole; /* all of its pages are there: they may be mapped before they are used */
    bool writable;
};

enum { HUGE_PAGE = 2 << 20 };

/* Linux 6.1 and 5.14; older headers lack them, older kernels refuse them. */
#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25
#endif
#ifndef MADV_POPULATE_READ
#define MADV_POPULATE_READ 22
#define MADV_POPULATE_WRITE 23
#endif

/* Maps a window's memory; a long one where the kernel can use huge pages. MAP_FAILED: errno says
 * why. */
static char *map_window(int fd, size_t nbytes, int protection)
{
    if (nbytes < HUGE_PAGE) return mmap(NULL, nbytes, protection, MAP_SHARED, fd, 0);
    char *room = mmap(NULL, nbytes + HUGE_PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (room == MAP_FAILED) return room;
    const size_t before = -(uintptr_t)room % HUGE_PAGE;
    char *base = mmap(room + before, nbytes, protection, MAP_SHARED | MAP_FIXED, fd, 0);
    const int error = errno;
    if (before) munmap(room, before);
    const size_t end = base == MAP_FAILED ? before : before + nbytes;
    munmap(room + end, nbytes + HUGE_PAGE - end);
    errno = error;
    return base;
}

static size_t page_round(size_t nbytes)
{
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    return (nbytes + page - 1) / page * page;
}

/* A window of nbytes (whole pages) without a place yet; owned by the caller until enrolled. */
static tt_status make_window(size_t nbytes, struct tt_window **out)
{
    struct tt_window *window = calloc(1, sizeof *window);
    if (!window) return tt_fail(TT_ERR_SYSTEM, "out of memory for a window");
    window->nbytes = nbytes;
    tt_private_fd_begin();
    window->fd = tt_private_fd_end(memfd_create("tutti-window", MFD_CLOEXEC));
    if (window->fd >= 0 && tt_truncate(window->fd, (off_t)nbytes) == 0) {
        *out = window;
        return TT_OK;
    }
    const int error = errno;
    if (window->fd >= 0) tt_private_fd_close(window->fd);
    free(window);
    return tt_fail_errno(error, "cannot create a window of %zu bytes (memfd)%s", nbytes,
                         tt_write_limit(error));
}

bool tt_window_is_own(const struct tt_window *window)
{
    return !window->id || window->id >> 32 == (uint64_t)getpid();
}

/* The descriptor may be lost (base/private_fd.h): then the pages go with the mappings. */
static void drop_window(struct tt_window *window)
{
    if (window->base && tt_window_is_own(window) && !tt_private_fd_is_lost(window->fd) &&
        fallocate(window->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, (off_t)window->nbytes))
        TT_WARN("a freed window keeps its memory until its peers let go: %m");
    tt_private_fd_close(window->fd);
    free(window);
}

uint64_t tt_window_changes(void)
{
    return atomic_load_explicit(&changes, memory_order_acquire); /* of count_change_locked */
}

uint64_t tt_window_losses(void)
{
    return atomic_load_explicit(&losses, memory_order_acquire); /* of withdraw */
}

static void count_change_locked(void)
{
    atomic_fetch_add_explicit(&changes, 1, memory_order_release); /* to tt_window_changes */
}

static struct tt_window **bucket_of(uint64_t id)
{
    return &by_id[id % NBUCKETS];
}

static void forget_id_locked(const struct tt_window *window)
{
    struct tt_window **link = bucket_of(window->id);
    while (*link != window) link = &(*link)->next_by_id;
    *link = window->next_by_id;
}

static void enrol(struct tt_window *window)
{
    tt_process_lock(&lock);
    window->id = (uint64_t)getpid() << 32 | ++counter;
    struct tt_window **bucket = bucket_of(window->id);
    window->next = windows;
    windows = window;
    window->next_by_id = *bucket;
    *bucket = window;
    count_change_locked();
    tt_process_unlock(&lock);
}

/* Other ranks read and write the window through mappings of their own: with small pages each of
 * them faults on each page, and both miss in the TLB. Where the kernel has no huge pages, pages are
 * small; they are also where memory does not suffice (EBUSY: that of the control group), and then
 * come when they are touched. The kernel refuses to collapse a range that has no page yet (Linux
 * 6.18 does), so each range gets one. */
static void use_huge_pages(const struct tt_window *window)
{
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    if (window->nbytes > (size_t)sysconf(_SC_PHYS_PAGES) / 2 * page) return; /* only what is used */
    for (size_t at = 0; window->nbytes - at >= HUGE_PAGE; at += HUGE_PAGE) {
        char *range = window->base + at;
        if (!madvise(range, page, MADV_POPULATE_READ) && !madvise(range, HUGE_PAGE, MADV_COLLAPSE))
            continue;
        if (errno == EAGAIN) continue; /* of this range only */
        const bool is_short = errno == ENOMEM || errno == EBUSY;
        if (is_short && fallocate(window->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0,
                                  (off_t)window->nbytes))
            TT_WARN("a window of %zu bytes keeps what it could get of memory: %m", window->nbytes);
        return;
    }
}

tt_status tt_window_create(void **memory, size_t nbytes)
{
    if (nbytes > SIZE_MAX / 4)
        return tt_fail(TT_ERR_ARGUMENT, "%zu bytes of memory are more than can be had", nbytes);
    const size_t most = (size_t)sysconf(_SC_PHYS_PAGES) * (size_t)sysconf(_SC_PAGESIZE);
    if (nbytes > most)
        return tt_fail(TT_ERR_SYSTEM, "%zu bytes of memory are more than this host's %zu", nbytes,
                       most);
    struct tt_window *window;
    TT_TRY(make_window(page_round(nbytes ? nbytes : 1), &window));
    window->base = map_window(window->fd, window->nbytes, PROT_READ | PROT_WRITE);
    if (window->base == MAP_FAILED) {
        const int error = errno;
        window->base = NULL;
        drop_window(window);
        return tt_fail_errno(error, "cannot map a window of %zu bytes", nbytes);
    }
    if (window->nbytes >= HUGE_PAGE) use_huge_pages(window);
    enrol(window);
    *memory = window->base;
    return TT_OK;
}

/* Whether [begin, end) is private, anonymous, writable memory and not the main thread's stack. */
static bool is_plain_memory(uintptr_t begin, uintptr_t end)
{
    FILE *maps = tt_open_stream("/proc/self/maps");
    if (!maps) return false;
    char line[512];
    uintptr_t covered = begin;
    while (covered < end && fgets(line, sizeof line, maps)) {
        unsigned long first, last, inode;
        char rights[8], path[256] = "";
        if (sscanf(line, "%lx-%lx %7s %*x %*s %lu %255s", &first, &last, rights, &inode, path) < 4)
            break;
        if (last <= covered) continue;
        if (first > covered || strcmp(rights, "rw-p") || inode || !strcmp(path, "[stack]")) break;
        covered = last;
    }
    fclose(maps);
    return covered >= end;
}

/* One more user of the window, where the pages were registered before. */
static bool adopt_again(const char *base, size_t nbytes)
{
    tt_process_lock(&lock);
    struct tt_window *window = windows;
    while (window && !(window->users && window->base == base && window->nbytes == nbytes))
        window = window->next;
    if (window) window->users++;
    tt_process_unlock(&lock);
    return window != NULL;
}

static bool copy_out(int fd, const char *from, size_t nbytes)
{
    for (size_t done = 0; done < nbytes;) {
        const ssize_t wrote = tt_pwrite(fd, from + done, nbytes - done, (off_t)done);
        if (wrote <= 0) return false;
        done += (size_t)wrote;
    }
    return true;
}

static bool is_pinned_locked(uintptr_t begin, uintptr_t end)
{
    const struct pin *pin = pins;
    while (pin && (pin->end <= begin || end <= pin->begin)) pin = pin->next;
    return pin != NULL;
}

/* Makes the pages [begin, end) a window, or one more user of theirs. */
static tt_status adopt_pages_locked(uintptr_t begin, uintptr_t end, void **adopted)
{
    char *base = (char *)begin;
    if (adopt_again(base, end - begin)) {
        *adopted = base;
        return TT_OK;
    }
    if (is_pinned_locked(begin, end) || !is_plain_memory(begin, end)) return TT_OK;
    struct tt_window *window;
    TT_TRY(make_window(end - begin, &window));
    if (!copy_out(window->fd, base, window->nbytes) ||
        mmap(base, window->nbytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, window->fd, 0) ==
            MAP_FAILED) {
        const int error = errno;
        drop_window(window);
        return tt_fail_errno(error, "cannot move %zu registered bytes to shared memory",
                             (size_t)(end - begin));
    }
    window->base = base;
    window->users = 1;
    enrol(window);
    *adopted = base;
    return TT_OK;
}

tt_status tt_window_adopt(void *memory, size_t nbytes, void **adopted)
{
    const uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    const uintptr_t begin = ((uintptr_t)memory + page - 1) / page * page;
    const uintptr_t end = ((uintptr_t)memory + nbytes) / page * page;
    *adopted = NULL;
    if (end <= begin) return TT_OK;
    tt_process_lock(&moving);
    const tt_status status = adopt_pages_locked(begin, end, adopted);
    tt_process_unlock(&moving);
    return status;
}

/* Takes the window out of the list when this was its last user. */
static struct tt_window *withdraw(void *base, bool registered)
{
    tt_process_lock(&lock);
    struct tt_window **link = &windows;
    while (*link && !((*link)->base == base && ((*link)->users > 0) == registered))
        link = &(*link)->next;
    struct tt_window *window = *link;
    if (window && registered && --window->users > 0) window = NULL;
    if (window) {
        *link = window->next;
        forget_id_locked(window);
        count_change_locked();
        atomic_fetch_add_explicit(&losses, 1, memory_order_release); /* to tt_window_losses */
    }
    tt_process_unlock(&lock);
    return window;
}

/* Puts private pages with the same contents in the place of the window's. */
static bool make_private(const struct tt_window *window)
{
    const size_t nbytes = window->nbytes;
    void *fresh = mmap(NULL, nbytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (fresh == MAP_FAILED) return false;
    memcpy(fresh, window->base, nbytes);
    if (mremap(fresh, nbytes, nbytes, MREMAP_MAYMOVE | MREMAP_FIXED, window->base) != MAP_FAILED)
        return true;
    const int error = errno;
    munmap(fresh, nbytes);
    errno = error;
    return false;
}

static void move_back_locked(struct tt_window *window)
{
    const uintptr_t begin = (uintptr_t)window->base;
    const bool pinned = is_pinned_locked(begin, begin + window->nbytes);
    if (!pinned && make_private(window)) {
        drop_window(window);
        return;
    }
    if (pinned) errno = EBUSY;
    TT_WARN("%zu deregistered bytes stay shared memory (%m%s); they go when they are unmapped",
            window->nbytes, pinned ? ": a device uses them" : "");
    tt_private_fd_close(window->fd);
    free(window);
}

void tt_window_release(void *adopted)
{
    if (!adopted) return;
    tt_process_lock(&moving);
    struct tt_window *window = withdraw(adopted, true);
    if (window) move_back_locked(window);
    tt_process_unlock(&moving);
}

tt_status tt_window_pin(const void *memory, size_t nbytes)
{
    struct pin *pin = malloc(sizeof *pin);
    if (!pin) return tt_fail(TT_ERR_SYSTEM, "out of memory for a pin");
    const uintptr_t begin = (uintptr_t)memory;
    tt_process_lock(&moving);
    *pin = (struct pin){.begin = begin, .end = begin + nbytes, .next = pins};
    pins = pin;
    tt_process_unlock(&moving);
    return TT_OK;
}

void tt_window_unpin(const void *memory, size_t nbytes)
{
    const uintptr_t begin = (uintptr_t)memory;
    tt_process_lock(&moving);
    struct pin **link = &pins;
    while (*link && !((*link)->begin == begin && (*link)->end == begin + nbytes))
        link = &(*link)->next;
    struct pin *pin = *link;
    if (pin) *link = pin->next;
    tt_process_unlock(&moving);
    free(pin);
}

tt_status tt_window_free(void *memory)
{
    if (!memory) return TT_OK;
    struct tt_window *window = withdraw(memory, false);
    if (!window)
        return tt_fail(TT_ERR_ARGUMENT, "%p was not given by tuttiMemAlloc, or was freed already",
                       memory);
    munmap(window->base, window->nbytes);
    drop_window(window);
    return TT_OK;
}

bool tt_window_find(const void *memory, size_t nbytes, struct tt_window *found)
{
    const char *start = memory;
    if (!tt_window_changes()) return false; /* there has never been one */
    tt_process_lock_shared(&lock);
    const struct tt_window *window = windows;
    while (window && !(start >= window->base && start < window->base + window->nbytes))
        window = window->next;
    const bool inside = window && nbytes <= (size_t)(window->base + window->nbytes - start);
    if (inside) *found = *window;
    tt_process_unlock(&lock);
    return inside;
}

bool tt_window_exists(uint64_t id)
{
    tt_process_lock_shared(&lock);
    const struct tt_window *window = *bucket_of(id);
    while (window && window->id != id) window = window->next_by_id;
    tt_process_unlock(&lock);
    return window != NULL;
}

char *tt_window_map_find(const struct tt_window_map *map, uint64_t name, size_t *nbytes)
{
    if ((uint32_t)name >= map->number) return NULL;
    const struct tt_mapped_window *window = &map->windows[(uint32_t)name];
    if (window->name != name) return NULL;
    *nbytes = window->nbytes;
    return window->base;
}

bool tt_window_map_writable(struct tt_window_map *map, uint64_t name)
{
    struct tt_mapped_window *window = &map->windows[(uint32_t)name];
    if (window->writable) return true;
    if (mprotect(window->base, window->nbytes, PROT_READ | PROT_WRITE)) return false;
    if (window->whole) madvise(window->base, window->nbytes, MADV_POPULATE_WRITE);
    return window->writable = true;
}

static tt_status make_room(struct tt_window_map *map, uint32_t index)
{
    if (index < map->number) return TT_OK;
    if (index >= TT_MOST_MAPPED)
        return tt_fail(TT_ERR_USAGE,
                       "a peer has more than %d windows in use: register fewer, longer buffers",
                       TT_MOST_MAPPED);
    const size_t twice = 2 * (size_t)index + 8;
    const size_t number = twice < TT_MOST_MAPPED ? twice : TT_MOST_MAPPED;
    struct tt_mapped_window *more = realloc(map->windows, number * sizeof *more);
    if (!more) return tt_fail(TT_ERR_SYSTEM, "out of memory for a peer's window");
    memset(more + map->number, 0, (number - map->number) * sizeof *more);
    *map = (struct tt_window_map){.windows = more, .number = number};
    return TT_OK;
}

tt_status tt_window_map_add(struct tt_window_map *map, uint64_t name, int fd, size_t nbytes)
{
    const uint32_t index = (uint32_t)name;
    struct stat info;
    if (fstat(fd, &info) || (size_t)info.st_size < nbytes)
        return tt_fail(
            TT_ERR_USAGE,
            "a peer's window has %lld bytes, %zu were announced: was it freed during a call?",
            (long long)info.st_size, nbytes);
    TT_TRY(make_room(map, index));
    tt_window_map_drop(map, index);
    char *base = map_window(fd, nbytes, PROT_READ);
    if (base == MAP_FAILED)
        return tt_fail_errno(errno, "cannot map a peer's window of %zu bytes (ulimit -v?)", nbytes);
    madvise(base, nbytes, MADV_DONTDUMP); /* it is in the peer's core */
    const bool whole = (uint64_t)info.st_blocks * 512 >= nbytes;
    if (whole) madvise(base, nbytes, MADV_POPULATE_READ);
    map->windows[index] =
        (struct tt_mapped_window){.name = name, .base = base, .nbytes = nbytes, .whole = whole};
    return TT_OK;
}

void tt_window_map_drop(struct tt_window_map *map, uint32_t index)
{
    if (index >= map->number || !map->windows[index].base) return;
    munmap(map->windows[index].base, map->windows[index].nbytes);
    map->windows[index].base = NULL;
}

void tt_window_map_fini(struct tt_window_map *map)
{
    for (uint32_t i = 0; i < map->number; i++) tt_window_map_drop(map, i);
    free(map->windows);
    *map = (struct tt_window_map){.number = 0};
}

size_t tt_window_map_bytes(const struct tt_window_map *map)
{
    return map->number * sizeof *map->windows;
}
