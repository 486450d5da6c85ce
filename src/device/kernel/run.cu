/* The kernel that runs collectives: each block walks one channel of one copy of a call's program.
 *
 * Calls of several ranks may be in one launch; their blocks wait for one another, so all blocks of
 * a launch must be resident. So may several calls of a rank, its run: they follow one another on
 * the same blocks. Program, binding and ends of links are copied to shared memory. At the beginning
 * of a round the threads find the pieces of all steps at once, thread i those of step i: a walk is
 * a chain of multiplications that would stand in every step's way. After a failure every wait ends,
 * every block leaves, and the call still counts as ended. */
#include "device/kernel/exchange.cuh"
#include "device/kernel/meet.cuh"

/* All threads, after a step: goes on to the next one. False: it was the last of the last round. */
static __device__ bool go_on(struct tt_block *block)
{
    const struct tt_program_channel *channel =
        tt_program_channel(block->program, (int)block->channel);
    const bool last = block->step + 1 == channel->nsteps;
    if (last && block->round + 1 == block->binding->nrounds) return false;
    __syncthreads();
    if (threadIdx.x == 0) {
        block->step = last ? 0 : block->step + 1;
        if (last) block->round++;
    }
    __syncthreads();
    return true;
}

/* All threads: the channel's steps, round by round. Where it is stands in shared memory alone:
 * what lives across a step would have to be spilled. */
static __device__ bool walk(struct tt_block *block)
{
    if (threadIdx.x == 0) block->round = block->step = 0;
    __syncthreads();
    for (;;) {
        const struct tt_program_channel *channel =
            tt_program_channel(block->program, (int)block->channel);
        const struct tt_program_step *steps = tt_program_steps(block->program) + channel->first;
        const uint32_t s = block->step;
        if (!channel->nsteps || !block->binding->nrounds) return true;
        if (s % TT_MOST_RESOLVED == 0) tt_resolve(block, steps, s, channel->nsteps);
        if (!(steps[s].kind == TT_STEP_MEET
                  ? tt_do_meeting(block, &steps[s])
                  : tt_do_step(block, &steps[s], &block->resolved[s % TT_MOST_RESOLVED])))
            return false;
        if (!go_on(block)) return true;
    }
}

/* All threads, after the last step: releases what is not released yet, and waits until nobody reads
 * this rank's memory. Releases come first: ranks that wait for one another must not both wait. */
static __device__ bool end_walk(struct tt_block *block)
{
    struct tt_watch watch = tt_watch_begin(block);
    bool go = true;
    for (uint32_t e = threadIdx.x; e < block->nends; e += blockDim.x) {
        struct tt_device_end *end = &block->ends[e];
        if (end->outgoing || end->known_tail == end->count) continue;
        end->known_tail = end->count;
        tt_release(end, end->count);
    }
    for (uint32_t e = threadIdx.x; e < block->nends; e += blockDim.x)
        if (block->ends[e].outgoing && block->ends[e].refers)
            go = go && tt_wait_for_release(&block->ends[e], &watch, 0);
    if (!go && tt_load_abort(block->call.report))
        tt_report_failure(&block->call, TT_DEVICE_ABORTED, -1, block->part, block->step);
    return __syncthreads_and(go);
}

/* All threads, after a failure: says that this block reads nothing any more, and waits until nobody
 * reads what it has sent by reference. */
static __device__ void leave(struct tt_block *block)
{
    __syncthreads();
    for (uint32_t e = threadIdx.x; e < block->nends; e += blockDim.x)
        if (!block->ends[e].outgoing && block->ends[e].reaches)
            tt_release(&block->ends[e], TT_TAIL_LEFT | block->ends[e].known_tail);
    for (uint32_t e = threadIdx.x; e < block->nends; e += blockDim.x)
        if (block->ends[e].outgoing && block->ends[e].refers)
            tt_withdraw(&block->ends[e], tt_block_end(block, e)->count, block->call.links.nslots,
                        block->call.report);
    __syncthreads();
}

/* All threads: block `index` of the call. */
static __device__ void run_block(struct tt_block *block, const struct tt_device_call *call,
                                 uint32_t index)
{
    if (!tt_block_open(block, call, index)) {
        if (threadIdx.x == 0) tt_report_failure(call, TT_DEVICE_IMPOSSIBLE, -1, index, 0);
        return;
    }
    if (!walk(block) || !end_walk(block)) leave(block);
    tt_block_close(block);
}

/* All threads: block `index` of the call, which may have fewer blocks. */
static __device__ void run_call(struct tt_block *block, const struct tt_device_call *call,
                                uint32_t index)
{
    const bool runs = threadIdx.x || tt_begin_call(call, index);
    if (__syncthreads_and(runs)) {
        if (call->exchange)
            tt_run_exchange(block, call, index);
        else
            run_block(block, call, index);
    }
    __syncthreads();
    if (threadIdx.x == 0) tt_count_ended(call);
}

/* All threads: waits until the call has ended, on all its blocks. They are resident, and end. */
static __device__ void await_call(const struct tt_device_call *call)
{
    if (threadIdx.x == 0) tt_await_ended(call->state, call->number);
    __syncthreads();
}

extern "C" __global__ void __launch_bounds__(TT_DEVICE_THREADS, 1)
    tutti_run(const __grid_constant__ struct tt_device_batch batch)
{
    __shared__ struct tt_block block;
    uint32_t first = 0, end = tt_device_run_end(&batch, 0);
    while (first < batch.ncalls && blockIdx.x - batch.calls[first].first_block >=
                                       tt_device_run_blocks(&batch, first, end)) {
        first = end;
        end = tt_device_run_end(&batch, first);
    }
    for (uint32_t c = first; c < end; c++) {
        const struct tt_device_call *call = &batch.calls[c];
        const uint32_t index = blockIdx.x - call->first_block;
        if (c > first) await_call(&batch.calls[c - 1]);
        if (index < call->nblocks) run_call(&block, call, index);
    }
}
