/* Events of several processes: a page that all of them map.
 *
 * A record adds one to a word at the call, and raises a second word to that number when the stream
 * gets there. A wait is for the number that the first word has at its call. Records of different
 * streams may end in any order, so each of the last SLOTS numbers has a second word of its own. Who
 * waits for one that is older goes on when the later one of its word has ended. */
#include "ipc.h"
#include "run.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <time.h>

enum { SLOTS = 4096 };

struct page {
    _Atomic uint64_t recorded;
    char apart[56];
    _Atomic uint64_t ended[SLOTS]; /* of number n: at n % SLOTS */
};

struct vd_shared_event {
    struct vd_memory *memory; /* the page: streams write and await its words */
    bool opened;              /* made by another process */
    struct vd_shared_event *next;
};

/* Of destroyed events: streams may still write or await their words. */
static struct vd_shared_event *dying;

static void reap(void)
{
    if (!vd_executor_idle()) return;
    while (dying != NULL) {
        struct vd_shared_event *shared = dying;
        dying = shared->next;
        vd_memory_retire(shared->memory);
        free(shared);
    }
}

static struct page *page_of(const struct CUevent_st *event)
{
    return (struct page *)(void *)event->shared->memory->region.bytes;
}

/* Takes the reference to the backing. */
static CUresult attach(struct CUevent_st *event, struct vd_backing *backing, bool opened)
{
    reap();
    struct vd_shared_event *shared = calloc(1, sizeof *shared);
    struct vd_memory *memory = vd_memory_new(VD_MEMORY_HOST, (uintptr_t)backing->bytes,
                                             sizeof(struct page), "an event of several processes");
    if (shared == NULL || memory == NULL) goto failed;
    memory->backing = backing;
    memory->device = event->context->device->gpu.number;
    memory->region.bytes = backing->bytes;
    memory->region.reachable = true;
    if (vd_memory_publish(memory) != CUDA_SUCCESS) goto failed;
    *shared = (struct vd_shared_event){.memory = memory, .opened = opened};
    event->shared = shared;
    return CUDA_SUCCESS;
failed:
    free(shared);
    if (memory != NULL) {
        memory->backing = NULL;
        vd_memory_drop(memory);
    }
    vd_backing_put(backing);
    return CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult vd_shared_event_create(struct CUevent_st *event)
{
    struct vd_backing *backing;
    CUresult result = vd_backing_create(-1, sizeof(struct page), &backing);
    if (result != CUDA_SUCCESS) return result;
    result = vd_backing_share(backing, VD_SHARE_EVENT);
    if (result != CUDA_SUCCESS) {
        vd_backing_put(backing);
        return result;
    }
    return attach(event, backing, false);
}

void vd_shared_event_record(struct CUevent_st *event, struct vd_op *op)
{
    struct page *page = page_of(event);
    const uint64_t number = atomic_fetch_add_explicit(&page->recorded, 1, memory_order_acq_rel) + 1;
    *op = (struct vd_op){.what = VD_WRITE,
                         .value = {.address = (uintptr_t)&page->ended[number % SLOTS],
                                   .value = number,
                                   .nbytes = 8,
                                   .raise = true}};
}

void vd_shared_event_wait(struct CUevent_st *event, struct vd_op *op)
{
    struct page *page = page_of(event);
    const uint64_t number = atomic_load_explicit(&page->recorded, memory_order_acquire);
    *op = (struct vd_op){.what = VD_AWAIT,
                         .value = {.address = (uintptr_t)&page->ended[number % SLOTS],
                                   .value = number,
                                   .nbytes = 8,
                                   .flags = CU_STREAM_WAIT_VALUE_GEQ}};
}

bool vd_shared_event_ended(const struct CUevent_st *event)
{
    const struct page *page = page_of(event);
    const uint64_t number = atomic_load_explicit(&page->recorded, memory_order_acquire);
    return atomic_load_explicit(&page->ended[number % SLOTS], memory_order_acquire) >= number;
}

void vd_shared_event_sleep(struct CUevent_st *event)
{
    const struct timespec pause = {.tv_nsec = 50000};
    const uint64_t number = event->object.number;
    struct vd_item *record = vd_item_get(event->record);
    if (record != NULL) vd_item_wait(record);
    vd_item_put(record);
    while (vd_object_is(event, VD_EVENT) && event->object.number == number &&
           event->context->sticky == CUDA_SUCCESS && !vd_shared_event_ended(event)) {
        pthread_mutex_unlock(&vd.lock);
        nanosleep(&pause, NULL);
        vd_lock();
    }
}

void vd_shared_event_destroy(struct CUevent_st *event)
{
    event->shared->next = dying;
    dying = event->shared;
    event->shared = NULL;
    reap();
}

CUresult cuIpcGetEventHandle(CUipcEventHandle *pHandle, CUevent event)
{
    struct CUctx_st *context;
    VD_ENTER();
    const CUresult result = vd_context(&context);
    if (result != CUDA_SUCCESS) return vd_leave(result);
    if (!vd_object_is(event, VD_EVENT)) return vd_leave(CUDA_ERROR_INVALID_HANDLE);
    if (pHandle == NULL || event->shared == NULL || event->shared->opened)
        return vd_leave(CUDA_ERROR_INVALID_VALUE);
    return vd_leave(vd_ipc_make(event->shared->memory->backing, VD_SHARE_EVENT, pHandle));
}

CUresult cuIpcOpenEventHandle(CUevent *phEvent, CUipcEventHandle handle)
{
    struct CUctx_st *context;
    struct vd_backing *backing;
    VD_ENTER();
    CUresult result = vd_context(&context);
    if (result == CUDA_SUCCESS && phEvent == NULL) result = CUDA_ERROR_INVALID_VALUE;
    if (result == CUDA_SUCCESS) result = vd_ipc_open(&handle, VD_SHARE_EVENT, __func__, &backing);
    if (result != CUDA_SUCCESS) return vd_leave(result);
    if (backing->nbytes < sizeof(struct page)) { /* of another version of this library */
        vd_backing_put(backing);
        return vd_leave(CUDA_ERROR_INVALID_VALUE);
    }
    struct CUevent_st *event = calloc(1, sizeof *event);
    if (event == NULL || backing->refs > 1) {
        vd_backing_put(backing); /* of refs > 1: this process has opened it already */
        free(event);
        return vd_leave(event == NULL ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_ERROR_INVALID_CONTEXT);
    }
    *event = (struct CUevent_st){.context = context,
                                 .flags = CU_EVENT_INTERPROCESS | CU_EVENT_DISABLE_TIMING};
    result = attach(event, backing, true);
    if (result != CUDA_SUCCESS) {
        free(event);
        return vd_leave(result);
    }
    vd_object_add(event, VD_EVENT);
    *phEvent = event;
    return vd_leave(CUDA_SUCCESS);
}
