/* The sends and receives of a group, by all threads of a block.
 *
 * A block has several lanes (device/call.h). In each turn thread i looks whether lane i can go on,
 * without waiting: whether a message has come, or a slot is free. Then all threads copy a piece of
 * each lane that can, and thread i publishes or releases. So lanes progress side by side: that one
 * of them waits, for as long as it may be, stops no other, and exchanges of any pattern end when
 * every send has its receive, in whatever order the ranks have listed them. */
#ifndef TT_DEVICE_KERNEL_EXCHANGE_CUH
#define TT_DEVICE_KERNEL_EXCHANGE_CUH

#include "device/kernel/block.cuh"

/* Bytes that a lane copies in one turn at most: others wait for that. */
enum { TT_LANE_PIECE = 1 << 20 };

enum tt_lane_state {
    TT_LANE_MOVES,  /* `now` is being moved */
    TT_LANE_DRAINS, /* all is sent, not all is received */
    TT_LANE_STUCK,  /* the sender has failed */
    TT_LANE_DONE
};

/* In shared memory, owner: one thread. */
struct tt_lane {
    struct tt_device_end end;    /* a copy */
    struct tt_device_lane own;   /* a copy of the plan: that may be memory of the host */
    struct tt_device_lane *plan; /* written to */
    uint32_t index;              /* of the call's lanes */
    struct tt_device_transfer now;
    uint32_t next;         /* of the plan's transfers, after `now` */
    uint32_t state;        /* enum tt_lane_state */
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
static_assert(TT_DEVICE_MOST_LANES * sizeof(struct tt_lane) <= TT_DEVICE_MOST_COPIED,
              "the lanes of a block lie in the room");

static __device__ bool tt_lane_is_local(const struct tt_lane *lane)
{
    return lane->own.end == UINT32_MAX;
}

/* ---- Of one thread -------------------------------------------------------------------------- */

/* Goes to the next message that has the lane's part. */
static __device__ void tt_lane_next(const struct tt_block *block, struct tt_lane *lane)
{
    const struct tt_device_lane *plan = &lane->own;
    const struct tt_device_transfer *all = tt_device_transfers(block->call.exchange);
    while (lane->next < plan->number) {
        lane->now = all[plan->first + lane->next++];
        if (lane->now.nparts <= plan->part) continue;
        lane->left = tt_device_part(&lane->now, plan->part, &lane->at);
        lane->fresh = true;
        return;
    }
    lane->state = plan->outgoing ? TT_LANE_DRAINS : TT_LANE_DONE;
    if (!plan->outgoing) tt_store_sys(&lane->plan->done, 1);
}

static __device__ void tt_lane_open(const struct tt_block *block, struct tt_lane *lane,
                                    uint32_t index)
{
    lane->plan = &tt_device_lanes(block->call.exchange)[index];
    lane->own = *lane->plan;
    lane->index = index;
    const uint32_t end = lane->own.end;
    if (end != UINT32_MAX) lane->end = block->call.links.ends[end];
    lane->end.refers = 0;
    lane->state = TT_LANE_MOVES;
    lane->next = 0;
    lane->message = NULL;
    tt_lane_next(block, lane);
}

/* What the next call goes on with. */
static __device__ void tt_lane_close(const struct tt_block *block, const struct tt_lane *lane)
{
    const uint32_t at = lane->own.end;
    if (at == UINT32_MAX) return;
    struct tt_device_end *end = &block->call.links.ends[at];
    end->count = lane->end.count;
    end->known_tail = lane->end.known_tail;
}

static __device__ void tt_lane_piece(struct tt_lane *lane, const char *from, char *to,
                                     uint64_t nbytes)
{
    lane->from = from;
    lane->to = to;
    lane->nbytes = nbytes < TT_LANE_PIECE ? nbytes : TT_LANE_PIECE;
    lane->ready = true;
}

/* A2. */
static __device__ bool tt_lane_may_fill(struct tt_lane *lane, uint32_t most)
{
    struct tt_device_end *end = &lane->end;
    if (end->count - end->known_tail <= most) return true;
    end->known_tail = (uint32_t)tt_load_acquire(end->tail, end->system);
    return end->count - end->known_tail <= most;
}

static __device__ void tt_lane_look_for_slot(const struct tt_block *block, struct tt_lane *lane)
{
    const struct tt_device_links *links = &block->call.links;
    struct tt_device_end *end = &lane->end;
    if (!tt_lane_may_fill(lane, links->nslots - 1)) return;
    const char *from = lane->now.data + lane->at;
    const bool refers =
        lane->fresh && end->reaches && lane->left && lane->left >= block->call.reference_bytes;
    lane->reference = refers ? from : NULL;
    char *slot = end->slots + (size_t)(end->count % links->nslots) * links->slot_bytes;
    tt_lane_piece(lane, from, slot, refers ? 0 : min(lane->left, (uint64_t)links->slot_bytes));
}

/* A message was published: what it is. False: not what is received here. */
static __device__ bool tt_lane_take(const struct tt_block *block, struct tt_lane *lane,
                                    uint64_t head)
{
    const struct tt_device_links *links = &block->call.links;
    struct tt_device_end *end = &lane->end;
    const uint32_t slot = end->count % links->nslots;
    struct tt_device_note *note = &end->notes[slot];
    const uint64_t mine = tt_device_head(end->count + 1, block->call.signature);
    if ((uint32_t)head != (uint32_t)mine) head = note->head;
    if (head != mine || note->nbytes != lane->now.nbytes) {
        lane->plan->sent = head == mine ? note->nbytes : UINT64_MAX; /* R6 */
        lane->plan->wanted = lane->now.nbytes;
        tt_report_failure(block->call.state, block->call.report, TT_DEVICE_MISMATCH,
                          (int32_t)lane->own.peer, block->part, lane->index);
        return false;
    }
    bool withdrawn = false;
    const char *data = end->slots + (size_t)slot * links->slot_bytes;
    const uint64_t reference = end->reaches ? tt_take_reference(note, end->system, &withdrawn) : 0;
    lane->message = reference ? (const char *)reference : data;
    lane->message_left = reference ? lane->left : min(lane->left, (uint64_t)links->slot_bytes);
    if (withdrawn) lane->state = TT_LANE_STUCK;
    return true;
}

/* A1. False: the message is none that is received here. */
static __device__ bool tt_lane_look_for_message(const struct tt_block *block, struct tt_lane *lane)
{
    const struct tt_device_end *end = &lane->end;
    if (!lane->message) {
        const uint64_t head = tt_load_acquire(end->head, end->system);
        if ((uint32_t)head - end->count - 1 >= block->call.links.nslots) return true;
        if (!tt_lane_take(block, lane, head)) return false;
        if (lane->state == TT_LANE_STUCK) return true;
    }
    tt_lane_piece(lane, lane->message, lane->now.data + lane->at, lane->message_left);
    return true;
}

/* Whether the lane can go on, and with what piece. False: it has failed. */
static __device__ bool tt_lane_look(const struct tt_block *block, struct tt_lane *lane)
{
    lane->ready = false;
    if (lane->state == TT_LANE_DRAINS && tt_lane_may_fill(lane, 0)) {
        lane->state = TT_LANE_DONE;
        tt_store_sys(&lane->plan->done, 1);
    }
    if (lane->state != TT_LANE_MOVES) return true;
    if (tt_lane_is_local(lane))
        tt_lane_piece(lane, lane->now.source + lane->at, lane->now.data + lane->at, lane->left);
    else if (lane->own.outgoing)
        tt_lane_look_for_slot(block, lane);
    else
        return tt_lane_look_for_message(block, lane);
    return true;
}

/* The block has passed a barrier since the piece was copied. */
static __device__ void tt_lane_publish(const struct tt_block *block, struct tt_lane *lane)
{
    struct tt_device_end *end = &lane->end;
    struct tt_device_note *note = &end->notes[end->count % block->call.links.nslots];
    const uint64_t head = tt_device_head(end->count + 1, block->call.signature);
    note->reference = (uint64_t)lane->reference;
    note->nbytes = lane->now.nbytes;
    note->head = head;
    if (lane->reference) end->refers = 1;
    tt_publish(end, head); /* R1 */
    end->count++;
}

/* Every second message is released, and the last one of a part, for which the sender may wait. */
static __device__ void tt_lane_release(struct tt_lane *lane)
{
    struct tt_device_end *end = &lane->end;
    lane->message += lane->nbytes;
    lane->message_left -= lane->nbytes;
    if (lane->message_left) return;
    lane->message = NULL;
    if (++end->count % 2 && lane->left) return;
    end->known_tail = end->count;
    tt_release(end, end->count); /* R2 */
}

/* After the piece was copied. */
static __device__ void tt_lane_go_on(const struct tt_block *block, struct tt_lane *lane)
{
    if (!lane->ready) return;
    const bool outgoing = lane->own.outgoing;
    const uint64_t moved = outgoing && lane->reference ? lane->left : lane->nbytes;
    lane->fresh = false;
    lane->at += moved;
    lane->left -= moved;
    if (outgoing) tt_lane_publish(block, lane);
    if (!outgoing && !tt_lane_is_local(lane)) tt_lane_release(lane);
    if (!lane->left) tt_lane_next(block, lane);
}

/* ---- Of the block --------------------------------------------------------------------------- */

/* All threads: copies the piece of a lane that is ready. */
static __device__ void tt_lane_copy(struct tt_block *block, const struct tt_lane *lane)
{
    struct tt_pass *pass = &block->pass;
    if (threadIdx.x == 0) {
        pass->sources[0] = lane->from;
        pass->targets[0] = lane->to;
        pass->nsources = pass->ntargets = 1;
        pass->count = lane->nbytes;
    }
    __syncthreads();
    tt_pass_bytes(pass);
    __syncthreads();
}

/* All threads: one turn of all lanes. *done: all are. False: somebody has failed. */
static __device__ bool tt_exchange_turn(struct tt_block *block, struct tt_lane *lanes, uint32_t n,
                                        struct tt_watch *watch, bool *done)
{
    bool go = true, all = true;
    for (uint32_t i = threadIdx.x; i < n; i += blockDim.x) {
        struct tt_lane *lane = &lanes[i];
        go = go && tt_lane_look(block, lane);
        if (lane->state == TT_LANE_DONE) continue;
        all = false;
        if (go && !lane->ready && !tt_watch(watch)) {
            go = false;
            if (tt_load_abort(block->call.report))
                tt_report_failure(block->call.state, block->call.report, TT_DEVICE_ABORTED,
                                  (int32_t)lane->own.peer, block->part, 0);
        }
    }
    *done = __syncthreads_and(all);
    if (!__syncthreads_and(go)) return false;
    for (uint32_t i = 0; i < n; i++)
        if (lanes[i].ready && lanes[i].nbytes) tt_lane_copy(block, &lanes[i]);
    __syncthreads();
    for (uint32_t i = threadIdx.x; i < n; i += blockDim.x) tt_lane_go_on(block, &lanes[i]);
    return true;
}

/* All threads, after a failure: as after that of a program (run.cu). */
static __device__ void tt_exchange_leave(const struct tt_block *block, struct tt_lane *lanes,
                                         uint32_t n)
{
    __syncthreads();
    for (uint32_t i = threadIdx.x; i < n; i += blockDim.x)
        if (!tt_lane_is_local(&lanes[i]) && !lanes[i].own.outgoing && lanes[i].end.reaches)
            tt_release(&lanes[i].end, TT_TAIL_LEFT | lanes[i].end.known_tail);
    for (uint32_t i = threadIdx.x; i < n; i += blockDim.x)
        if (lanes[i].end.refers)
            tt_withdraw(&lanes[i].end, block->call.links.nslots, block->call.report);
    __syncthreads();
}

/* All threads: block `index` of an exchange. */
static __device__ void tt_run_exchange(struct tt_block *block, const struct tt_device_call *call,
                                       uint32_t index)
{
    tt_copy_words(&block->call, call, sizeof *call);
    if (threadIdx.x == 0) block->part = index;
    __syncthreads();
    struct tt_lane *lanes = (struct tt_lane *)tt_room;
    const uint32_t nlanes = block->call.exchange->nlanes, nblocks = block->call.nblocks;
    const uint32_t n = index < nlanes ? (nlanes - index + nblocks - 1) / nblocks : 0;
    if (n * sizeof(struct tt_lane) > tt_room_bytes()) {
        if (threadIdx.x == 0)
            tt_report_failure(call->state, call->report, TT_DEVICE_IMPOSSIBLE, -1, index, 0);
        return;
    }
    for (uint32_t i = threadIdx.x; i < n; i += blockDim.x)
        tt_lane_open(block, &lanes[i], index + i * nblocks);
    struct tt_watch watch = {block->call.state, block->call.report, 0};
    bool done = false;
    while (!done)
        if (!tt_exchange_turn(block, lanes, n, &watch, &done)) {
            tt_exchange_leave(block, lanes, n);
            break;
        }
    for (uint32_t i = threadIdx.x; i < n; i += blockDim.x) tt_lane_close(block, &lanes[i]);
}

#endif
