/* Items: operations with the items that must end before them. */
#include "run.h"

#include <stdlib.h>
#include <string.h>

bool vd_op_clone(struct vd_op *to, const struct vd_op *from)
{
    *to = *from;
    if (from->what == VD_LAUNCH && from->launch.params != NULL) {
        const size_t nbytes = from->launch.function->kernel->param_bytes;
        to->launch.params = malloc(nbytes + 1);
        if (to->launch.params == NULL) return false;
        memcpy(to->launch.params, from->launch.params, nbytes);
    } else if (from->what == VD_COPY && from->copy.snapshot != NULL) {
        const size_t nbytes = (size_t)(from->copy.width * from->copy.height *
                                       (from->copy.depth == 0 ? 1 : from->copy.depth));
        to->copy.snapshot = malloc(nbytes + 1);
        if (to->copy.snapshot == NULL) return false;
        memcpy(to->copy.snapshot, from->copy.snapshot, nbytes);
    }
    return true;
}

void vd_op_clear(struct vd_op *op)
{
    if (op->what == VD_LAUNCH) free(op->launch.params);
    if (op->what == VD_COPY) free(op->copy.snapshot);
    if (op->what == VD_HOST) vd_hostfunc_drop(op);
    memset(op, 0, sizeof *op);
}

struct vd_item *vd_item_new(struct CUctx_st *context, struct vd_op *op)
{
    struct vd_item *item = calloc(1, sizeof *item);
    struct vg_past *past = vg_past_create();
    if (item == NULL || past == NULL) {
        free(item);
        vg_past_destroy(past);
        vd_op_clear(op);
        return NULL;
    }
    *item = (struct vd_item){.op = *op,
                             .context = context,
                             .state = VD_HELD,
                             .refs = 1,
                             .number = ++vd.items,
                             .waits = 1, /* for vd_item_submit */
                             .past = past};
    memset(op, 0, sizeof *op);
    vd_item_learn(item);
    return item;
}

int vd_item_after(struct vd_item *after, struct vd_item *before)
{
    if (before == NULL || before == after) return 0;
    if (before->state == VD_ENDED) {
        vg_past_join(after->past, before->past);
        return 0;
    }
    if (before->nnext == before->next_room) {
        const uint32_t room = before->next_room == 0 ? 4 : 2 * before->next_room;
        struct vd_item **next = realloc(before->next, room * sizeof(struct vd_item *));
        if (next == NULL) return -1;
        before->next = next;
        before->next_room = room;
    }
    before->next[before->nnext++] = vd_item_get(after);
    after->waits++;
    return 0;
}

/* Items of VD_NOTHING end as soon as they may begin. They are kept in a list meanwhile, for a chain
 * of them may be long. */
static struct {
    struct vd_item **at;
    size_t n, room;
    bool busy;
} ready;

static void begin(struct vd_item *item)
{
    if (ready.n == ready.room) {
        ready.room = ready.room == 0 ? 64 : 2 * ready.room;
        ready.at = realloc(ready.at, ready.room * sizeof *ready.at);
        if (ready.at == NULL) abort();
    }
    ready.at[ready.n++] = item;
    if (ready.busy) return;
    ready.busy = true;
    for (size_t i = 0; i < ready.n; i++) {
        struct vd_item *one = ready.at[i];
        one->state = VD_READY;
        if (one->op.what != VD_AWAIT) vd_queue_issued(one); /* that one when it has ended */
        if (one->context->failed != CUDA_SUCCESS &&
            !(one->op.what == VD_HOST && one->op.host.always))
            vd_item_end(one, one->context->failed);
        else if (one->op.what == VD_NOTHING)
            vd_item_end(one, CUDA_SUCCESS);
        else
            vd_executor_add(one);
    }
    ready.n = 0;
    ready.busy = false;
}

void vd_item_let(struct vd_item *item)
{
    if (--item->waits == 0) begin(item);
}

void vd_item_submit(struct vd_item *item)
{
    vd_item_get(item); /* the executor's */
    if (item->op.what == VD_LAUNCH) vd_function_submit(item);
    vd_item_let(item);
}

/* Who waits for the beginning knows what was before, and nothing of the launch itself. */
void vd_item_begun(struct vd_item *item)
{
    struct vd_item *started = item->started;
    if (started == NULL) return;
    item->started = NULL;
    vg_past_join(started->past, item->past);
    vd_item_submit(started);
    vd_item_put(started);
}

void vd_item_end(struct vd_item *item, CUresult result)
{
    vd_item_begun(item); /* of a launch that failed before it began, or had nothing to do */
    vd_queue_ended(item);
    item->result = result;
    item->state = VD_ENDED;
    item->ended_ns = vd_now_ns();
    if (item->begun_ns == 0) item->begun_ns = item->ended_ns;
    if (item->op.what == VD_LAUNCH) vd_function_ended(item);
    vd_op_clear(&item->op);
    for (uint32_t i = 0; i < item->nnext; i++) {
        struct vd_item *next = item->next[i];
        vg_past_join(next->past, item->past);
        vd_item_let(next);
        vd_item_put(next);
    }
    free(item->next);
    item->next = NULL;
    item->nnext = item->next_room = 0;
    vd_executor_ended(item);
    vd_item_put(item);
}

void vd_item_put(struct vd_item *item)
{
    if (item == NULL || --item->refs > 0) return;
    for (uint32_t i = 0; i < item->nnext; i++) vd_item_put(item->next[i]);
    free(item->next);
    vd_op_clear(&item->op);
    vg_past_destroy(item->past);
    free(item);
}

void vd_host_knows(const struct vg_past *past)
{
    vg_past_join(vd.host_past, past);
    vg_model_host_knows(vg_machine_model(vd.machine), past);
}

void vd_item_learn(struct vd_item *item)
{
    vg_past_join(item->past, vd.host_past);
    vg_model_published(vg_machine_model(vd.machine), item->past);
}

struct vd_item *vd_item_get(struct vd_item *item)
{
    if (item != NULL) item->refs++;
    return item;
}

CUresult vd_item_wait(struct vd_item *item)
{
    vd_item_get(item);
    vd_executor_wait(item);
    vd_host_knows(item->past);
    const CUresult result = item->result;
    vd_item_put(item);
    return result;
}
