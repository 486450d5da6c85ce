/* The sends and receives of a group, by all threads of a block.
 *
 * A block has several flows (device/call.h). In each turn thread i looks whether flow i can go on,
 * without waiting: whether a message has come, or a slot is free. Then all threads copy a piece of
 * each flow that can, and thread i publishes or releases. So flows progress side by side: that one
 * of them waits, for as long as it may be, stops no other, and exchanges of any pattern end when
 * every send has its receive, in whatever order the ranks have listed them. */
#ifndef TT_DEVICE_KERNEL_EXCHANGE_CUH
#define TT_DEVICE_KERNEL_EXCHANGE_CUH

#include "device/kernel/block.cuh"

enum tt_flow_state {
    TT_FLOW_MOVES,  /* `now` is being moved */
    TT_FLOW_DRAINS, /* all is sent, not all is received */
    TT_FLOW_STUCK,  /* the sender has failed */
    TT_FLOW_DONE
};

/* In shared memory, owner: one thread. */
struct tt_flow {
    struct tt_device_end end;     /* a copy */
    struct tt_device_flow own;    /* a copy of what is given, which may be memory of the host */
    struct tt_device_flow *given; /* written to */
    uint32_t index;               /* of the call's flows */
    struct tt_device_transfer now;
    uint32_t next;         /* of the given transfers, after `now` */
    uint32_t state;        /* enum tt_flow_state */
    uint64_t at, left;     /* bytes of `now` before what is not moved yet; of the part after that */
    const char *message;   /* incoming: the rest of a message that was taken; NULL: none */
    uint64_t message_left; /* its bytes */
    bool fresh;            /* nothing of the part is moved yet */
    /* of this turn */
    bool ready; /* read by all threads, like the piece */
    const char *from, *reference;
    char *to;
    uint64_t nbytes; /* of the piece; 0: nothing to copy */
};
static_assert(TT_DEVICE_MOST_FLOWS * sizeof(struct tt_flow) <= TT_DEVICE_MOST_COPIED,
              "the flows of a block lie in the room");

static __device__ bool tt_flow_is_local(const struct tt_flow *flow)
{
    return flow->own.end == UINT32_MAX;
}

/* ---- Of one thread -------------------------------------------------------------------------- */

/* Bytes of a message of the link at most: a message is filled in one turn. */
static __device__ uint64_t tt_flow_most(const struct tt_device_links *links)
{
    return min(links->slot_bytes, (uint32_t)TT_FLOW_PIECE);
}

/* Goes to the next message that has the flow's part. */
static __device__ void tt_flow_next(struct tt_flow *flow)
{
    const struct tt_device_flow *given = &flow->own;
    const struct tt_device_transfer *all = tt_device_transfers(block.call.exchange);
    while (flow->next < given->number) {
        flow->now = all[given->first + flow->next++];
        if (flow->now.nparts <= given->part) continue;
        flow->left = tt_device_part(&flow->now, given->part, &flow->at);
        flow->fresh = true;
        return;
    }
    flow->state = given->outgoing ? TT_FLOW_DRAINS : TT_FLOW_DONE;
    if (!given->outgoing) tt_store_sys(&flow->given->done, 1);
}

static __device__ void tt_flow_open(struct tt_flow *flow, uint32_t index)
{
    flow->given = &tt_device_flows(block.call.exchange)[index];
    flow->own = *flow->given;
    if (block.call.captured) tt_store_sys(&flow->given->done, 0);
    flow->index = index;
    const uint32_t end = flow->own.end;
    if (end != UINT32_MAX) flow->end = block.call.links.ends[end];
    flow->end.refers = 0;
    flow->state = TT_FLOW_MOVES;
    flow->next = 0;
    flow->message = NULL;
    tt_flow_next(flow);
}

/* What the next call goes on with. */
static __device__ void tt_flow_close(const struct tt_flow *flow)
{
    const uint32_t at = flow->own.end;
    if (at == UINT32_MAX) return;
    struct tt_device_end *end = &block.call.links.ends[at];
    end->count = flow->end.count;
    end->known_tail = flow->end.known_tail;
}

static __device__ void tt_flow_piece(struct tt_flow *flow, const char *from, char *to,
                                     uint64_t nbytes)
{
    flow->from = from;
    flow->to = to;
    flow->nbytes = nbytes < TT_FLOW_PIECE ? nbytes : TT_FLOW_PIECE;
    flow->ready = true;
}

/* A2. */
static __device__ bool tt_flow_may_fill(struct tt_flow *flow, uint32_t most)
{
    struct tt_device_end *end = &flow->end;
    if (end->count - end->known_tail <= most) return true;
    end->known_tail = (uint32_t)tt_load_acquire(end->tail, end->system);
    return end->count - end->known_tail <= most;
}

static __device__ void tt_flow_look_for_slot(struct tt_flow *flow)
{
    const struct tt_device_links *links = &block.call.links;
    struct tt_device_end *end = &flow->end;
    if (!tt_flow_may_fill(flow, links->nslots - 1)) return;
    const char *from = flow->now.data + flow->at;
    const bool opens = end->reaches == TT_REACHES_OPENED;
    const bool reaches = opens ? flow->now.opened != TT_NOT_OPENED : end->reaches;
    const bool refers =
        flow->fresh && reaches && flow->left && flow->left >= block.call.reference_bytes;
    flow->reference = !refers ? NULL : opens ? from + flow->now.opened : from;
    char *slot = end->slots + (size_t)(end->count % links->nslots) * links->slot_bytes;
    tt_flow_piece(flow, from, slot, refers ? 0 : min(flow->left, tt_flow_most(links)));
}

/* A message was published: what it is. False: not what is received here. */
static __device__ bool tt_flow_take(struct tt_flow *flow, uint64_t head)
{
    const struct tt_device_links *links = &block.call.links;
    struct tt_device_end *end = &flow->end;
    const uint32_t slot = end->count % links->nslots;
    struct tt_device_note *note = &end->notes[slot];
    const uint64_t mine = tt_device_head(end->count + 1, block.call.signature);
    if ((uint32_t)head != (uint32_t)mine) head = note->head;
    if (head != mine || note->nbytes != flow->now.nbytes) {
        flow->given->sent = head == mine ? note->nbytes : UINT64_MAX; /* R6 */
        flow->given->wanted = flow->now.nbytes;
        tt_report_failure(&block.call, TT_DEVICE_MISMATCH, (int32_t)flow->own.peer, block.part,
                          flow->index);
        return false;
    }
    bool withdrawn = false;
    const char *data = end->slots + (size_t)slot * links->slot_bytes;
    const uint64_t reference = end->reaches ? tt_take_reference(end, note, &withdrawn) : 0;
    flow->message = reference ? (const char *)reference : data;
    flow->message_left = reference ? flow->left : min(flow->left, tt_flow_most(links));
    if (withdrawn) flow->state = TT_FLOW_STUCK;
    return true;
}

/* A1. False: the message is none that is received here. */
static __device__ bool tt_flow_look_for_message(struct tt_flow *flow)
{
    const struct tt_device_end *end = &flow->end;
    if (!flow->message) {
        const uint64_t head = tt_load_acquire(end->head, end->system);
        if ((uint32_t)head - end->count - 1 >= block.call.links.nslots) return true;
        if (!tt_flow_take(flow, head)) return false;
        if (flow->state == TT_FLOW_STUCK) return true;
    }
    tt_flow_piece(flow, flow->message, flow->now.data + flow->at, flow->message_left);
    return true;
}

/* Whether the flow can go on, and with what piece. False: it has failed. */
static __device__ bool tt_flow_look(struct tt_flow *flow)
{
    flow->ready = false;
    if (flow->state == TT_FLOW_DRAINS && tt_flow_may_fill(flow, 0)) {
        flow->state = TT_FLOW_DONE;
        tt_store_sys(&flow->given->done, 1);
    }
    if (flow->state != TT_FLOW_MOVES) return true;
    if (tt_flow_is_local(flow))
        tt_flow_piece(flow, flow->now.source + flow->at, flow->now.data + flow->at, flow->left);
    else if (flow->own.outgoing)
        tt_flow_look_for_slot(flow);
    else
        return tt_flow_look_for_message(flow);
    return true;
}

/* The block has passed a barrier since the piece was copied. */
static __device__ void tt_flow_publish(struct tt_flow *flow)
{
    struct tt_device_end *end = &flow->end;
    struct tt_device_note *note = &end->notes[end->count % block.call.links.nslots];
    const uint64_t head = tt_device_head(end->count + 1, block.call.signature);
    note->reference = (uint64_t)flow->reference;
    note->nbytes = flow->now.nbytes;
    note->head = head;
    if (!end->lines) note->length = flow->nbytes;
    if (flow->reference) end->refers = 1;
    tt_publish(end, head); /* R1 */
    end->count++;
}

/* Every second message is released, and the last one of a part, for which the sender may wait. */
static __device__ void tt_flow_release(struct tt_flow *flow)
{
    struct tt_device_end *end = &flow->end;
    flow->message += flow->nbytes;
    flow->message_left -= flow->nbytes;
    if (flow->message_left) return;
    flow->message = NULL;
    tt_count_read(end, &block.call.links);
    if (end->count % 2 && flow->left) return;
    end->known_tail = end->count;
    tt_release(end, end->count); /* R2 */
}

/* After the piece was copied. */
static __device__ void tt_flow_go_on(struct tt_flow *flow)
{
    if (!flow->ready) return;
    const bool outgoing = flow->own.outgoing;
    const uint64_t moved = outgoing && flow->reference ? flow->left : flow->nbytes;
    flow->fresh = false;
    flow->at += moved;
    flow->left -= moved;
    if (outgoing) tt_flow_publish(flow);
    if (!outgoing && !tt_flow_is_local(flow)) tt_flow_release(flow);
    if (!flow->left) tt_flow_next(flow);
}

/* ---- Of the block --------------------------------------------------------------------------- */

/* All threads: copies the pieces of the flows that are ready, as one list of what a warp copies at
 * once, which the warps take in turn: none waits between two flows, and several short pieces are
 * under way at the same time. */
static __device__ void tt_flows_copy(const struct tt_flow *flows, uint32_t n)
{
    const uint32_t at_once = TT_WARP * TT_COPY_UNROLL * sizeof(uint4); /* bytes */
    uint32_t before = 0; /* threads that have a part of a flow before */
    for (uint32_t i = 0; i < n; i++) {
        const struct tt_flow *flow = &flows[i];
        if (!flow->ready || !flow->nbytes) continue;
        const uint32_t nparts = ((uint32_t)flow->nbytes + at_once - 1) / at_once;
        tt_copy_bytes(flow->from, &flow->to, flow->nbytes,
                      (threadIdx.x + blockDim.x - before) % blockDim.x);
        before = (before + nparts * TT_WARP) % blockDim.x;
    }
}

/* All threads: one turn of all flows. *done: all are. False: somebody has failed. */
static __device__ bool tt_exchange_turn(struct tt_flow *flows, uint32_t n, struct tt_watch *watch,
                                        bool *done)
{
    bool go = true, all = true;
    for (uint32_t i = threadIdx.x; i < n; i += blockDim.x) {
        struct tt_flow *flow = &flows[i];
        go = go && tt_flow_look(flow);
        if (flow->state == TT_FLOW_DONE) continue;
        all = false;
        if (go && !flow->ready && !tt_watch(watch)) {
            go = false;
            if (tt_load_abort(block.call.report))
                tt_report_failure(&block.call, TT_DEVICE_ABORTED, (int32_t)flow->own.peer,
                                  block.part, 0);
        }
    }
    *done = __syncthreads_and(all);
    if (!__syncthreads_and(go)) return false;
    tt_flows_copy(flows, n);
    __syncthreads();
    for (uint32_t i = threadIdx.x; i < n; i += blockDim.x) tt_flow_go_on(&flows[i]);
    return true;
}

/* All threads, after a failure: as after that of a program (run.cu). */
static __device__ void tt_exchange_leave(struct tt_flow *flows, uint32_t n)
{
    __syncthreads();
    for (uint32_t i = threadIdx.x; i < n; i += blockDim.x)
        if (!tt_flow_is_local(&flows[i]) && !flows[i].own.outgoing && flows[i].end.reaches)
            tt_release(&flows[i].end, TT_TAIL_LEFT | flows[i].end.known_tail);
    for (uint32_t i = threadIdx.x; i < n; i += blockDim.x)
        if (flows[i].own.outgoing && flows[i].end.refers)
            tt_withdraw(&flows[i].end, block.call.links.ends[flows[i].own.end].count,
                        block.call.links.nslots, block.call.report);
    __syncthreads();
}

/* All threads: block `index` of an exchange. */
static __device__ __noinline__ void tt_run_exchange(const struct tt_device_call *call,
                                                    uint32_t index)
{
    for (uint32_t i = threadIdx.x; i < sizeof *call / sizeof(uint4); i += blockDim.x)
        ((uint4 *)&block.call)[i] = ((const uint4 *)call)[i];
    if (threadIdx.x == 0) block.part = index;
    __syncthreads();
    struct tt_flow *flows = (struct tt_flow *)tt_room;
    const uint32_t nflows = block.call.exchange->nflows, nblocks = block.call.nblocks;
    const uint32_t n = index < nflows ? (nflows - index + nblocks - 1) / nblocks : 0;
    if (n * sizeof(struct tt_flow) > tt_room_bytes()) {
        if (threadIdx.x == 0) tt_report_failure(call, TT_DEVICE_IMPOSSIBLE, -1, index, 0);
        return;
    }
    for (uint32_t i = threadIdx.x; i < n; i += blockDim.x)
        tt_flow_open(&flows[i], index + i * nblocks);
    struct tt_watch watch = {&block.call, 0};
    bool done = false;
    while (!done)
        if (!tt_exchange_turn(flows, n, &watch, &done)) {
            tt_exchange_leave(flows, n);
            break;
        }
    for (uint32_t i = threadIdx.x; i < n; i += blockDim.x) tt_flow_close(&flows[i]);
}

#endif
