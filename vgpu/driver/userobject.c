/* User objects: what a program lets graphs keep alive. The program's destructor is called when the
 * last reference is dropped. An executable graph that is destroyed while it runs drops its
 * references when the launch has ended. */
#include <vgpu/driver/graph.h>
#include <vgpu/driver/run.h>

#include <limits.h>
#include <stdlib.h>

struct CUuserObject_st {
    uint64_t refs;
    CUhostFn destroy;
    void *arg;
    struct CUuserObject_st *next; /* of the live ones */
};

static struct CUuserObject_st *objects;

static bool is(const struct CUuserObject_st *object)
{
    const struct CUuserObject_st *at = objects;
    while (at && at != object) at = at->next;
    return at != NULL;
}

/* Destructors run one after the other, in the order in which the references were dropped. */
static struct {
    pthread_mutex_t lock;
    pthread_cond_t next;
    uint64_t made; /* guarded by the driver's lock */
    uint64_t done; /* guarded by lock */
} calls = {.lock = PTHREAD_MUTEX_INITIALIZER, .next = PTHREAD_COND_INITIALIZER};

struct call {
    CUhostFn function;
    void *arg;
    uint64_t number;
};

static void await_turn(uint64_t number)
{
    pthread_mutex_lock(&calls.lock);
    while (calls.done != number) pthread_cond_wait(&calls.next, &calls.lock);
    pthread_mutex_unlock(&calls.lock);
}

static void end_turn(void)
{
    pthread_mutex_lock(&calls.lock);
    calls.done++;
    pthread_cond_broadcast(&calls.next);
    pthread_mutex_unlock(&calls.lock);
}

static void *call(void *arg)
{
    const struct call made = *(struct call *)arg;
    free(arg);
    await_turn(made.number);
    made.function(made.arg);
    end_turn();
    return NULL;
}

/* The destructor may wait for another thread, so it is not called with the lock. */
static void call_apart(CUhostFn function, void *arg)
{
    pthread_t thread;
    struct call *made = malloc(sizeof *made);
    if (!made) return;
    *made = (struct call){function, arg, calls.made};
    if (pthread_create(&thread, NULL, call, made) == 0) {
        calls.made++;
        pthread_detach(thread);
    } else {
        free(made);
    }
}

static void release(struct CUuserObject_st *object, uint32_t count)
{
    object->refs -= count;
    if (object->refs) return;
    struct CUuserObject_st **at = &objects;
    while (*at != object) at = &(*at)->next;
    *at = object->next;
    call_apart(object->destroy, object->arg);
    free(object);
}

static void release_all(struct vd_use *uses)
{
    while (uses) {
        struct vd_use *next = uses->next;
        release(uses->object, uses->count);
        free(uses);
        uses = next;
    }
}

static void CUDA_CB release_later(void *uses)
{
    vd_lock();
    release_all(uses);
    pthread_mutex_unlock(&vd.lock);
}

void vd_uses_free(struct vd_use *uses, struct vd_item *running)
{
    struct vd_op op = {.what = VD_HOST, .host = {release_later, uses, true}};
    struct vd_item *item = NULL;
    if (uses && running && running->state != VD_ENDED) item = vd_item_new(running->context, &op);
    if (!item) {
        release_all(uses);
        return;
    }
    vd_item_after(item, running);
    vd_item_submit(item);
    vd_item_put(item);
}

static CUresult use(struct vd_use **uses, struct CUuserObject_st *object, uint32_t count)
{
    struct vd_use *at = *uses;
    while (at && at->object != object) at = at->next;
    if (!at) {
        at = calloc(1, sizeof *at);
        if (!at) return CUDA_ERROR_OUT_OF_MEMORY;
        *at = (struct vd_use){.object = object, .next = *uses};
        *uses = at;
    }
    at->count += count;
    return CUDA_SUCCESS;
}

CUresult vd_uses_clone(const struct vd_use *uses, struct vd_use **clone)
{
    for (; uses; uses = uses->next) {
        const CUresult result = use(clone, uses->object, uses->count);
        if (result != CUDA_SUCCESS) return result;
        uses->object->refs += uses->count;
    }
    return CUDA_SUCCESS;
}

static bool count_is(unsigned count)
{
    return count && count <= INT_MAX;
}

CUresult CUDAAPI cuUserObjectCreate(CUuserObject *object, void *arg, CUhostFn function,
                                    unsigned count, unsigned flags)
{
    VD_ENTER();
    if (!object || !function || !count_is(count) || flags != CU_USER_OBJECT_NO_DESTRUCTOR_SYNC)
        return vd_leave(CUDA_ERROR_INVALID_VALUE);
    struct CUuserObject_st *new = malloc(sizeof *new);
    if (!new) return vd_leave(CUDA_ERROR_OUT_OF_MEMORY);
    *new = (struct CUuserObject_st){count, function, arg, objects};
    objects = new;
    *object = new;
    return vd_leave(CUDA_SUCCESS);
}

CUresult CUDAAPI cuUserObjectRetain(CUuserObject object, unsigned count)
{
    VD_ENTER();
    if (!is(object) || !count_is(count)) return vd_leave(CUDA_ERROR_INVALID_VALUE);
    object->refs += count;
    return vd_leave(CUDA_SUCCESS);
}

CUresult CUDAAPI cuUserObjectRelease(CUuserObject object, unsigned count)
{
    VD_ENTER();
    if (!is(object) || !count_is(count) || count > object->refs)
        return vd_leave(CUDA_ERROR_INVALID_VALUE);
    release(object, count);
    return vd_leave(CUDA_SUCCESS);
}

CUresult CUDAAPI cuGraphRetainUserObject(CUgraph graph, CUuserObject object, unsigned count,
                                         unsigned flags)
{
    VD_ENTER();
    if (!vd_graph_is(graph) || !is(object) || !count_is(count) ||
        (flags & ~(unsigned)CU_GRAPH_USER_OBJECT_MOVE))
        return vd_leave(CUDA_ERROR_INVALID_VALUE);
    const CUresult result = use(&graph->uses, object, count);
    if (result == CUDA_SUCCESS && !flags) object->refs += count;
    return vd_leave(result);
}

CUresult CUDAAPI cuGraphReleaseUserObject(CUgraph graph, CUuserObject object, unsigned count)
{
    VD_ENTER();
    if (!vd_graph_is(graph) || !is(object) || !count_is(count))
        return vd_leave(CUDA_ERROR_INVALID_VALUE);
    struct vd_use **at = &graph->uses;
    while (*at && (*at)->object != object) at = &(*at)->next;
    if (!*at || (*at)->count < count) return vd_leave(CUDA_ERROR_INVALID_VALUE);
    (*at)->count -= count;
    if (!(*at)->count) {
        struct vd_use *empty = *at;
        *at = empty->next;
        free(empty);
    }
    release(object, count);
    return vd_leave(CUDA_SUCCESS);
}
