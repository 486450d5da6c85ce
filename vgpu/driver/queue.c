/* Hardware queues: the in-order queues through which the work of a process gets to a GPU.
 *
 * There are VGPU_QUEUES of them a process and GPU. A stream takes the least used one when it gets
 * work while it has none, and keeps it until all its work has ended: the queue with the fewest
 * operations that have not ended; the seed decides between equal ones. So streams share queues
 * where there are more of them:
 *
 *     queue 0    A: kernel runs | B: waits for an event | B: kernel | A: kernel | C: kernel
 *                                 ^ the queue's head: nothing behind it begins
 *
 * A queue issues its items in order. An item is issued when it begins, so one that waits, for an
 * event or for the work before it in its stream, holds up all behind it. A kernel that runs was
 * issued and holds up nothing. cuStreamWaitValue holds the queue until the word has its value; a
 * record of an event passes at once, whenever what it records ends, and is no operation. The work
 * of a graph is in no queue, only its beginning is.
 *
 * Measured on an H100 for kernels behind events, words and kernels (docs/cuda-measured.md); copies,
 * fills and host functions go through the same queues here, which may be stricter than hardware.
 *
 * A queue has room for VGPU_LAUNCHES launches that are not issued; one more waits in the call. */
#include "run.h"

#include <vgpu/random.h>

static uint32_t least_used(const struct vd_device *device)
{
    static uint64_t random;
    const struct vd_queue *queues = device->queues;
    uint32_t best[VD_MOST_QUEUES], n = 0;
    for (uint32_t q = 0; q < vd.settings.queues; q++) {
        if (n > 0 && queues[q].nitems > queues[best[0]].nitems) continue;
        if (n > 0 && queues[q].nitems < queues[best[0]].nitems) n = 0;
        best[n++] = q;
    }
    if (random == 0) random = vd.settings.seed + 1;
    return n == 1 ? best[0] : best[vg_random(&random) % n];
}

static struct vd_queue *queue_of(struct CUstream_st *stream)
{
    struct vd_device *device = stream->context->device;
    if (!vd_stream_has_work(stream)) stream->queue = least_used(device);
    return &device->queues[stream->queue];
}

/* Somebody may wait for the room of the launch. */
static void make_room(struct vd_queue *queue)
{
    struct vd_item *room = queue->room;
    queue->nlaunches--;
    if (room == NULL) return;
    queue->room = NULL;
    vd_item_submit(room);
    vd_item_put(room);
}

/* What stands behind the item may begin, and what stands behind that if it passes. */
void vd_queue_issued(struct vd_item *item)
{
    vd_item_get(item);
    while (item != NULL && item->queued) {
        struct vd_item *next = item->behind;
        item->queued = false;
        item->behind = NULL;
        if (item->op.what == VD_LAUNCH) make_room(item->queue);
        vd_item_put(item);
        item = next;
        if (item == NULL) return;
        const bool passes = item->op.passes;
        vd_item_let(item);
        if (!passes) break;
    }
    vd_item_put(item);
}

void vd_queue_ended(struct vd_item *item)
{
    vd_queue_issued(item);
    if (item->queue != NULL) item->queue->nitems--;
    item->queue = NULL;
}

void vd_queue_append(struct CUstream_st *stream, struct vd_item *first, struct vd_item *last)
{
    struct vd_queue *queue = queue_of(stream);
    struct vd_item *before = queue->last;
    const bool waits = before != NULL && before->queued;
    if (!first->op.passes) {
        last->queue = queue;
        queue->nitems++;
    }
    first->queued = true;
    queue->nlaunches += first->op.what == VD_LAUNCH;
    queue->last = vd_item_get(first);
    if (waits) {
        before->behind = vd_item_get(first);
        first->waits++;
    }
    vd_item_put(before);
    if (!waits && first->op.passes) vd_queue_issued(first);
}

bool vd_queue_await_room(struct CUstream_st *stream)
{
    struct vd_queue *queue = queue_of(stream);
    const bool full = queue->nlaunches >= vd.settings.launches;
    if (full) vd_driver_hold();
    while (queue->nlaunches >= vd.settings.launches) {
        struct vd_op nothing = {.what = VD_NOTHING};
        if (queue->room == NULL) queue->room = vd_item_new(stream->context, &nothing);
        struct vd_item *room = vd_item_get(queue->room);
        if (room == NULL) break; /* out of memory: the launch says so */
        vd_executor_wait(room);
        vd_item_put(room);
    }
    if (full) vd_driver_release();
    return full;
}
