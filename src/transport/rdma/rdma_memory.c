/* Registered memory beside the slots. Only windows (transport/window.h) stay registered: each has
 * an id of its own, so other memory at the same address is never taken for the window. Messages
 * from other memory go through slots: a message is no longer than a slot, and pinning so little
 * costs more than copying it. */
#include <errno.h>
#include <string.h>

#include "base/log.h"
#include "transport/rdma/rdma_internal.h"
#include "transport/window.h"

static const size_t pinned_max = (size_t)4 << 30;

/* The regions of one piece of memory at every device; 0 or an errno. */
static int register_everywhere(struct tt_rdma *rdma, void *base, size_t nbytes,
                               struct ibv_mr **regions)
{
    for (int i = 0; i < rdma->ndevices; i++) {
        regions[i] = rdma->verbs->reg_mr(rdma->devices[i].domain, base, nbytes, 0);
        if (regions[i]) continue;
        const int error = errno;
        while (i--) rdma->verbs->dereg_mr(regions[i]);
        return error;
    }
    return 0;
}

static void forget(struct tt_rdma *rdma, struct tt_rdma_memory *memory)
{
    for (int i = 0; memory->nbytes && i < rdma->ndevices; i++)
        if (rdma->verbs->dereg_mr(memory->regions[i]))
            TT_WARN("RDMA device %s keeps a buffer that it should give up", rdma->devices[i].name);
    rdma->pinned -= memory->nbytes;
    *memory = (struct tt_rdma_memory){0};
}

/* The entry whose last use is the oldest, of those that no message is being sent from. */
static struct tt_rdma_memory *oldest(struct tt_rdma *rdma, bool pinned)
{
    struct tt_rdma_memory *found = NULL;
    for (int i = 0; i < TT_RDMA_MAX_WINDOWS; i++) {
        struct tt_rdma_memory *memory = &rdma->windows[i];
        if (memory->nsends || (pinned && !memory->nbytes)) continue;
        if (!found || memory->used < found->used) found = memory;
    }
    return found;
}

/* An empty entry, with room to pin nbytes more; NULL: all is in use. Windows that are gone are
 * given up first. */
static struct tt_rdma_memory *make_room(struct tt_rdma *rdma, size_t nbytes)
{
    for (int i = 0; i < TT_RDMA_MAX_WINDOWS; i++) {
        struct tt_rdma_memory *memory = &rdma->windows[i];
        if (memory->window && !memory->nsends && !tt_window_exists(memory->window))
            forget(rdma, memory);
    }
    struct tt_rdma_memory *memory;
    while (rdma->pinned + nbytes > pinned_max) {
        if (!(memory = oldest(rdma, true))) return NULL;
        forget(rdma, memory);
    }
    memory = oldest(rdma, false);
    if (memory) forget(rdma, memory);
    return memory;
}

/* Enters also a window that cannot be registered, so that registering is not tried at each message.
 */
static struct tt_rdma_memory *enter(struct tt_rdma *rdma, const struct tt_window *window)
{
    const size_t nbytes = window->nbytes <= pinned_max ? window->nbytes : 0;
    struct tt_rdma_memory *memory = make_room(rdma, nbytes);
    if (!memory) return NULL;
    memory->window = window->id;
    memory->used = ++rdma->clock;
    if (!nbytes) return memory;
    const int error = register_everywhere(rdma, window->base, nbytes, memory->regions);
    if (error) {
        errno = error;
        TT_INFO_ONCE("a buffer of %zu bytes is copied before it is sent, for it cannot be "
                     "registered: %m (ulimit -l?)",
                     nbytes);
        return memory;
    }
    memory->nbytes = nbytes;
    rdma->pinned += nbytes;
    return memory;
}

struct tt_rdma_memory *tt_rdma_memory_find(struct tt_rdma *rdma, const void *data, size_t nbytes)
{
    struct tt_window window;
    if (!tt_window_find(data, nbytes, &window)) return NULL;
    struct tt_rdma_memory *memory = NULL;
    for (int i = 0; i < TT_RDMA_MAX_WINDOWS && !memory; i++)
        if (rdma->windows[i].window == window.id) memory = &rdma->windows[i];
    if (!memory) memory = enter(rdma, &window);
    if (!memory || !memory->nbytes) return NULL;
    memory->used = ++rdma->clock;
    return memory;
}

void tt_rdma_memory_fini(struct tt_rdma *rdma)
{
    for (int i = 0; i < TT_RDMA_MAX_WINDOWS; i++) forget(rdma, &rdma->windows[i]);
}

tt_status tt_rdma_register_dmabuf(struct tt_rdma *rdma, int device, const struct tt_dmabuf *memory,
                                  struct ibv_mr **region)
{
    struct tt_rdma_device *at = &rdma->devices[device];
    const int access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;
    int error = EOPNOTSUPP;
    struct ibv_mr *made = NULL;
    if (rdma->verbs->reg_dmabuf_mr && !at->no_dmabuf) {
        made = rdma->verbs->reg_dmabuf_mr(at->domain, 0, memory->nbytes, (uintptr_t)memory->base,
                                          memory->fd, access);
        if (!made) error = errno;
    }
    if (made) {
        *region = made;
        return TT_OK;
    }
    if (error == EOPNOTSUPP || error == EPROTONOSUPPORT) at->no_dmabuf = true;
    const tt_status status =
        tt_fail_errno(error, "RDMA device %s cannot register %zu bytes of a GPU's memory%s",
                      at->name, memory->nbytes,
                      at->no_dmabuf ? " (dma-buf): the device, its driver or this libibverbs "
                                      "does not support that"
                                    : "");
    return at->no_dmabuf ? TT_ERR_USAGE : status;
}
