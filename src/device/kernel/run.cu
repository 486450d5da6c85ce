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

/* All threads: the channel's steps, round by round. Where it is stands in shared memory alone:
 * what lives across a step would have to be spilled. */
static __device__ bool walk(void)
{
    if (!block.nsteps || !block.binding->nrounds) return true;
    for (;;) {
        const struct tt_program_step *step = &block.steps[block.step];
        if (!(step->kind == TT_STEP_MEET
                  ? tt_do_meeting(step)
                  : tt_do_step(step, &block.resolved[block.step % TT_MOST_RESOLVED])))
            return false;
        if (block.round == block.binding->nrounds) return true;
        if (block.step % TT_MOST_RESOLVED) continue;
        tt_resolve(block.steps, block.nsteps, tt_nthreads());
        __syncthreads();
    }
}

/* All threads, after the last step: where this rank may have sent by reference, releases what is
 * not released yet, and waits until nobody reads its memory. Releases come first: ranks that wait
 * for one another must not both wait. Of lines one message may stay unreleased. */
static __device__ bool end_walk(void)
{
    struct tt_watch watch = tt_watch_begin();
    bool go = true;
    if (block.call.protocol != TT_PROTOCOL_LINES) tt_tell(1);
    for (uint32_t e = tt_thread(); e < block.nends; e += tt_nthreads())
        if (tt_end(e)->outgoing && tt_end(e)->refers)
            go = go && tt_wait_for_release(tt_end(e), &watch, 0);
    if (!go) tt_fail_wait(-1);
    return __syncthreads_and(go);
}

/* All threads, after a failure: says that this block reads nothing any more, and waits until nobody
 * reads what it has sent by reference. */
static __device__ void leave(void)
{
    __syncthreads();
    for (uint32_t e = tt_thread(); e < block.nends; e += tt_nthreads())
        if (!tt_end(e)->outgoing && tt_end(e)->reaches)
            tt_release(tt_end(e), TT_TAIL_LEFT | tt_end(e)->known_tail);
    for (uint32_t e = tt_thread(); e < block.nends; e += tt_nthreads())
        if (tt_end(e)->outgoing && tt_end(e)->refers)
            tt_withdraw(tt_end(e), tt_block_end(e)->count, block.call.links.nslots,
                        block.call.report);
    __syncthreads();
}

/* The openers: the channel's steps, and the pieces of the first ones. */
static __device__ void find_steps(void)
{
    const struct tt_program_channel *channel =
        tt_program_channel(block.program, (int)block.channel);
    const struct tt_program_step *steps = tt_program_steps(block.program) + channel->first;
    if (tt_thread() == 0) block.steps = steps;
    if (tt_thread() == 0) block.nsteps = channel->nsteps;
    tt_resolve(steps, channel->nsteps, tt_openers());
}

/* All threads: block `index` of a call with a program. go: of the thread that has asked whether the
 * call may run; what the block is opened with lies in memory of the rank's, which stays. */
static __device__ void run_block(const struct tt_device_call *call, uint32_t index, bool go)
{
    const struct tt_layout layout = tt_lay_out(call, index);
    if (layout.fits && tt_thread() < tt_openers()) {
        tt_block_open(call, &layout, index);
        find_steps();
    }
    if (!layout.fits && tt_thread() == 0)
        tt_report_failure(call, TT_DEVICE_IMPOSSIBLE, -1, index, 0);
    if (!__syncthreads_and(go && layout.fits)) return;
    if (call->scalar) {
        if (tt_thread() == 0)
            block.call.fold.scalar = tt_fold_load_scalar(call->scalar, call->fold.element);
        __syncthreads();
    }
    if (!walk() || !end_walk()) leave();
    tt_block_close();
}

/* All threads: block `index` of the call, which may have fewer blocks. */
static __device__ void run_call(const struct tt_device_call *call, uint32_t index)
{
    bool go = true;
    if (tt_thread() == 0) block.given = call;
    if (tt_thread() == tt_nthreads() - TT_WARP) go = tt_begin_call(call, index);
    /* Programs of graphs, and tables of exchanges, may be gone where the call may not run. */
    const bool waits = call->captured || call->exchange;
    const bool goes = !waits || __syncthreads_and(go);
    if (goes && call->exchange)
        tt_run_exchange(call, index);
    else if (goes)
        run_block(call, index, go);
    __syncthreads();
    if (tt_thread() == 0) tt_count_ended(block.given);
}

/* All threads: waits until the call has ended, on all its blocks. They are resident, and end. */
static __device__ void await_call(const struct tt_device_call *call)
{
    if (tt_thread() == 0) tt_await_ended(call->state, call->number);
    __syncthreads();
}

/* All threads of a warp: the first call of this block's run. */
static __device__ uint32_t find_run(const struct tt_device_batch *batch)
{
    static_assert(TT_DEVICE_MOST_CALLS < TT_WARP, "a thread looks at a call");
    const uint32_t c = tt_thread() % TT_WARP;
    const bool before =
        c < batch->ncalls && !batch->calls[c].follows && batch->calls[c].first_block <= blockIdx.x;
    return 31 - (uint32_t)__clz((int)__ballot_sync(UINT32_MAX, before));
}

/* All threads of all blocks: the words of a batch without calls. */
static __device__ __noinline__ void run_probes(struct tt_device_probe *probes, uint32_t nprobes,
                                               bool loads)
{
    for (uint32_t i = blockIdx.x * blockDim.x + tt_thread(); i < nprobes;
         i += gridDim.x * blockDim.x) {
        if (loads)
            tt_store_count(&probes[i].found, tt_load_sys(probes[i].word));
        else
            tt_store_count(probes[i].word, probes[i].value);
    }
}

extern "C" __global__ void __launch_bounds__(TT_DEVICE_THREADS, 1)
    tutti_run(const __grid_constant__ struct tt_device_batch batch)
{
    if (!batch.ncalls) { /* perhaps a node of a graph that has lost its call */
        run_probes(batch.probes, batch.nprobes, batch.loads);
        return;
    }
    const struct tt_device_call *call = &batch.calls[find_run(&batch)];
    do {
        const uint32_t index = blockIdx.x - call->first_block;
        if (call->follows) await_call(call - 1);
        if (index < call->nblocks) {
            run_call(call, index);
            call = block.given;
        }
        call++;
    } while (call < &batch.calls[batch.ncalls] && call->follows);
}
