/* Every access of the kernel that orders others, or that another block, GPU or the host may make at
 * the same time. All other accesses are weak; what orders them is said here.
 *
 * Releases and the acquires that pair with them (PTX memory model). R1 to R3 have the scope .sys
 * where the two ranks are on different GPUs or in different processes (end->system), else .gpu:
 *   R1 head    the sender publishes a message      A1  the receiver waits for it
 *   R2 tail    the receiver releases messages      A2  the sender waits for free slots, and at the
 *                                                      end of a call for receivers of references
 *   R3 line    16 bytes in one access: data and flag need no other order
 *   R4 ended   a block of the call has ended       A4  the last block of the call
 *   R5 ended   the call has ended: a fence, then   A5  the host
 *              the words ended, nended, replays
 *   R6 failure of the report is complete           A6  the host
 *   R7 last    the fence of R5, then the word      A7  the next call of the rank in the same launch
 *   R8 verdict a fence (S), then the word          A8  the other blocks of the call
 *   R9 nbegun  of a graph's call: after captured   A9  the host; with the number of a plain call
 *              and replays                             it may find the last captured, until S
 *      nended  of a graph's call: after replays
 *      R1 and R2 of a program's steps are one fence, and behind it a relaxed store for each word,
 *      all by one thread (tt_tell); of an exchange each is a release
 *   S  nbegun and abort, closed: fence.sc.sys between the store of one and the load of the other,
 *      as on the host: the host sees that the call has begun, or its first block sees the abort
 *   W  head[1] and tail[1] of memory that peers open: fence.sc.sys between the store of one and the
 *      load of the other: the sender sees that the receiver reads, or the receiver sees that the
 *      sender has failed
 *   B  bar.sync orders the threads of a block: what any thread did before is before what the
 *      thread that releases does after, and releases are cumulative; acquires likewise
 *
 * Conflicting weak accesses, and what orders them:
 *   slot, note           written by the sender, B, R1, A1, B, read by the receiver
 *   slot, note again     read by the receiver, B, R2, A2, B, written by the sender
 *   line again           read (relaxed) by the receiver, B, R2, A2, B, written by the sender
 *   line, note made new  written (line: relaxed) by the receiver, B, R2, A2, B, written by the
 *                        sender
 *   place of a meeting   written by its rank, B, R1 to each other rank, A1, B, read by all of them
 *   place again          read by each of them, B, R2, A2 of all of them, B, written by its rank
 *   sent by reference    written by the sender (or before the call), B, R1, A1, B, read by the
 *                        receiver, B, R2, A2 at the end of the call, R4, A4, R5, the kernel's end
 *   counts of ends and of the state
 *                        one kernel, or call, after the other; inside, shared memory, B
 *   user's buffers       the kernel's begin and end; inside, other blocks use other elements, and
 *                        the steps of a block are ordered by B
 *   scratch              one block, B
 *   any of these, by calls that follow one another in a launch
 *                        B, R4, A4, R7, A7, B
 */
#ifndef TT_DEVICE_KERNEL_PORT_CUH
#define TT_DEVICE_KERNEL_PORT_CUH

#include "device/call.h"

/* TT_WATCH_TURNS: turns of a wait between two looks at whether the call has failed. The abort word
 * is host memory, which takes as long as eight turns while few look at it; where all warps of a
 * large call did, a look would take a hundred times as long, and the first words of calls too. So
 * the warps of a call look there in turn, together as often as TT_WATCH_WARPS would alone. */
enum { TT_WATCH_TURNS = 64, TT_WATCH_WARPS = 8 };

/* Bits of note->reference. TAKEN and WITHDRAWN, and LEFT of the tail's upper half, are used after a
 * failure. */
#define TT_REFERENCE_TAKEN (1ull << 63)     /* the receiver reads the sender's memory */
#define TT_REFERENCE_WITHDRAWN (1ull << 62) /* the receiver must not begin to */
#define TT_REFERENCE_RAW (1ull << 61)       /* the message is a raw source (struct tt_sources) */
#define TT_TAIL_LEFT (1ull << 63)           /* the receiver reads nothing any more */
/* Of tail[1]: the lower half says a message. */
#define TT_READING (1ull << 63)

/* ---- Barriers ------------------------------------------------------------------------------- */

/* B, of the block's first n threads, whole warps. The others do not wait. */
static __device__ void tt_sync_threads(uint32_t n)
{
    asm volatile("bar.sync 1, %0;" : : "r"(n) : "memory");
}

/* ---- Words of a link ------------------------------------------------------------------------ */

static __device__ uint64_t tt_load_acquire(const uint64_t *word, bool system)
{
    uint64_t value;
    if (system)
        asm volatile("ld.acquire.sys.global.u64 %0, [%1];" : "=l"(value) : "l"(word) : "memory");
    else
        asm volatile("ld.acquire.gpu.global.u64 %0, [%1];" : "=l"(value) : "l"(word) : "memory");
    return value;
}

static __device__ void tt_store_release(uint64_t *word, uint64_t value, bool system)
{
    if (system)
        asm volatile("st.release.sys.global.u64 [%0], %1;" : : "l"(word), "l"(value) : "memory");
    else
        asm volatile("st.release.gpu.global.u64 [%0], %1;" : : "l"(word), "l"(value) : "memory");
}

/* R1 and R2 of several words: the fence, and behind it tt_store_count for each, by the same thread.
 * system: of any of the ends. */
static __device__ void tt_fence_release(bool system)
{
    if (system)
        asm volatile("fence.acq_rel.sys;" ::: "memory");
    else
        asm volatile("fence.acq_rel.gpu;" ::: "memory");
}

/* R1. The thread's block has passed a barrier since the message and its note were written. */
static __device__ void tt_publish(const struct tt_device_end *end, uint64_t head)
{
    tt_store_release(end->head, head, end->system);
}

/* R2. The thread's block has passed a barrier since the messages were read. */
static __device__ void tt_release(const struct tt_device_end *end, uint64_t tail)
{
    tt_store_release(end->tail, tail, end->system);
}

/* R3. One scalar access of 16 bytes is single-copy atomic (two of 8, or a vector of them, are not),
 * so who sees the flag has the data. Relaxed: a weak access would race with the receiver's. */
static __device__ void tt_store_line(char *line, uint64_t data, uint64_t flag, bool system)
{
    if (system)
        asm volatile("{ .reg .b128 q; mov.b128 q, {%1, %2}; st.relaxed.sys.global.b128 [%0], q; }"
                     :
                     : "l"(line), "l"(data), "l"(flag)
                     : "memory");
    else
        asm volatile("{ .reg .b128 q; mov.b128 q, {%1, %2}; st.relaxed.gpu.global.b128 [%0], q; }"
                     :
                     : "l"(line), "l"(data), "l"(flag)
                     : "memory");
}

/* Of any link: a load takes as long with the scope .sys. */
static __device__ void tt_load_line(const char *line, uint64_t *data, uint64_t *flag)
{
    asm volatile("{ .reg .b128 q; ld.relaxed.sys.global.b128 q, [%2]; mov.b128 {%0, %1}, q; }"
                 : "=l"(*data), "=l"(*flag)
                 : "l"(line)
                 : "memory");
}

/* One thread, when message end->count is read and not yet released: what the slot's lines and note
 * say is this old from now on (end.h). Lines of the message that nobody has waited for may come
 * after this; they are of this message too. */
static __device__ __noinline__ void tt_renew(const struct tt_device_end *end,
                                             const struct tt_device_links *links)
{
    const size_t slot = end->count % links->nslots;
    const uint64_t number = end->count + 1;
    char *lines = end->lines + slot * links->line_bytes;
    end->notes[slot].head = number;
    for (uint32_t at = 0; end->lines && at < links->line_bytes; at += TT_LINE_BYTES)
        tt_store_line(lines + at, 0, number, end->system);
}

/* One thread: the next message is read; its slot may be released. */
static __device__ void tt_count_read(struct tt_device_end *end, const struct tt_device_links *links)
{
    if (tt_device_renews(end->count, links->nslots)) tt_renew(end, links);
    end->count++;
}

/* ---- Failures ------------------------------------------------------------------------------- */

static __device__ uint64_t tt_load_sys(const uint64_t *word)
{
    uint64_t value;
    asm volatile("ld.relaxed.sys.global.u64 %0, [%1];" : "=l"(value) : "l"(word) : "memory");
    return value;
}

/* Relaxed: nothing is read because of it. The host's store and this load are of scope .sys. */
static __device__ uint64_t tt_load_abort(const struct tt_device_report *report)
{
    return tt_load_sys(&report->abort);
}

/* Relaxed: nothing is read because of it. Blocks of the rank only: .gpu. */
static __device__ uint32_t tt_load_failure(const struct tt_device_state *state)
{
    uint32_t value;
    asm volatile("ld.relaxed.gpu.global.u32 %0, [%1];"
                 : "=r"(value)
                 : "l"(&state->failure)
                 : "memory");
    return value;
}

static __device__ void tt_store_count(uint64_t *word, uint64_t value)
{
    asm volatile("st.relaxed.sys.global.u64 [%0], %1;" : : "l"(word), "l"(value) : "memory");
}

static __device__ void tt_store_sys(uint32_t *word, uint32_t value)
{
    asm volatile("st.relaxed.sys.global.u32 [%0], %1;" : : "l"(word), "r"(value) : "memory");
}

/* The communicator has failed; the first thread to say so writes the report. call: in any memory.
 */
static __device__ __noinline__ void tt_report_failure(const struct tt_device_call *call,
                                                      uint32_t failure, int32_t peer,
                                                      uint32_t channel, uint32_t step)
{
    struct tt_device_report *report = call->report;
    uint32_t before;
    asm volatile("atom.relaxed.gpu.global.cas.b32 %0, [%1], 0, %2;"
                 : "=r"(before)
                 : "l"(&call->state->failure), "r"(failure)
                 : "memory");
    if (before) return;
    tt_store_count(&report->sound, tt_load_sys(&report->ended));
    tt_store_count(&report->replay, call->captured);
    tt_store_sys((uint32_t *)&report->peer, (uint32_t)peer);
    tt_store_sys(&report->channel, channel);
    tt_store_sys(&report->step, step);
    asm volatile("st.release.sys.global.u32 [%0], %1;"
                 :
                 : "l"(&report->failure), "r"(failure) /* R6 */
                 : "memory");
}

/* ---- Begin and end of a call ---------------------------------------------------------------- */

/* R9: the host, which reads the number of a graph's call by an acquire, then finds in the report
 * what this thread has stored there before. */
static __device__ void tt_tell_number(const struct tt_device_call *call, uint64_t *word,
                                      uint64_t number)
{
    if (call->captured)
        tt_store_release(word, number, true);
    else
        tt_store_count(word, number);
}

/* S, W. */
static __device__ void tt_fence_sc(void)
{
    asm volatile("fence.sc.sys;" ::: "memory");
}

/* Of a call of a graph. Once all are closed, the table of an exchange may be gone. */
static __device__ bool tt_is_closed(const struct tt_device_call *call, uint64_t closed)
{
    if (closed > 1 || !call->exchange) return closed;
    return tt_load_sys(&call->exchange->closed);
}

/* Says that the call has begun, and only then looks whether the host has aborted it, or has closed
 * graphs; the host aborts, and only then looks whether a call has begun (carrier/kernel/work.c).
 * With a fence between the two on each side, one of them sees the other: a call that may run is
 * seen, and one that begins later may not, and uses no buffer. */
static __device__ bool tt_ask_host(const struct tt_device_call *call, uint64_t number)
{
    struct tt_device_report *report = call->report;
    tt_store_count(&report->captured, call->captured);
    if (call->captured && !call->exchange)
        tt_store_count(&report->replays, 2 * call->state->nreplayed + 1);
    if (call->number) tt_store_count(&report->begun, call->number);
    tt_tell_number(call, &report->nbegun, number);
    tt_fence_sc(); /* S */
    const uint64_t aborted = tt_load_abort(report);
    const uint64_t closed = call->captured ? tt_load_sys(&report->closed) : 0;
    return !aborted && !(call->captured && tt_is_closed(call, closed));
}

/* One thread of each block of the call, before the block uses a buffer or publishes anything:
 * whether the call may run. Its first block asks the host, and tells the others: each block that
 * asked would take a microsecond from all. */
static __device__ bool tt_begin_call(const struct tt_device_call *call, uint32_t index)
{
    struct tt_device_state *state = call->state;
    const uint64_t number = state->nended + 1;
    uint64_t verdict;
    if (index) {
        do verdict = tt_load_acquire(&state->verdict, false); /* A8 */
        while (verdict / 2 != number);
        return verdict % 2;
    }
    const bool runs = tt_ask_host(call, number);
    if (!runs) tt_report_failure(call, TT_DEVICE_ABORTED, -1, index, 0);
    verdict = 2 * number + (runs && !tt_load_failure(state));
    asm volatile("st.relaxed.gpu.global.u64 [%0], %1;"
                 :
                 : "l"(&state->verdict), "l"(verdict) /* R8, behind the fence */
                 : "memory");
    return verdict % 2;
}

/* R4/A4: the last block to end knows all of what the others did, as far as it matters to the host,
 * and makes the state ready for the next call. The thread's block has passed a barrier. */
static __device__ void tt_count_ended(const struct tt_device_call *call)
{
    struct tt_device_state *state = call->state;
    struct tt_device_report *report = call->report;
    const uint64_t nended = state->nended + 1;
    uint64_t nreplayed = state->nreplayed;
    uint32_t before = 0;
    if (call->nblocks > 1)
        asm volatile("atom.acq_rel.gpu.global.add.u32 %0, [%1], 1;"
                     : "=r"(before)
                     : "l"(&state->ended)
                     : "memory");
    if (before + 1 < call->nblocks) return;
    /* A replay that failed has given the other ranks nothing that they could go on with. */
    nreplayed += call->captured && !call->exchange && !tt_load_failure(state);
    state->ended = 0;
    state->nended = nended;
    state->nreplayed = nreplayed;
    asm volatile("fence.acq_rel.sys;" ::: "memory"); /* R5, R7 */
    if (call->captured) tt_store_count(&report->replays, 2 * nreplayed);
    if (call->number) tt_store_count(&report->ended, call->number);
    tt_tell_number(call, &report->nended, nended);
    if (call->number)
        asm volatile("st.relaxed.gpu.global.u64 [%0], %1;"
                     :
                     : "l"(&state->last), "l"(call->number)
                     : "memory");
}

/* A7. One thread; the block passes a barrier before it goes on. */
static __device__ void tt_await_ended(const struct tt_device_state *state, uint64_t number)
{
    while (tt_load_acquire(&state->last, false) < number) continue;
}

/* ---- Waits ---------------------------------------------------------------------------------- */

/* What every wait also looks at. */
struct tt_watch {
    const struct tt_device_call *call;
    uint32_t turns;
};

/* Whether a wait may go on: nobody has failed, and the host has not said abort. looks: of the wait.
 */
static __device__ __noinline__ bool tt_look(const struct tt_device_call *call, uint32_t looks)
{
    const uint32_t nwarps = blockDim.x / TT_WARP;
    const uint32_t warp = blockIdx.x * nwarps + threadIdx.x / TT_WARP;
    const uint32_t turn = (call->nblocks * nwarps + TT_WATCH_WARPS - 1) / TT_WATCH_WARPS;
    if (tt_load_failure(call->state)) return false;
    return (looks + warp) % turn || !tt_load_abort(call->report);
}

static __device__ bool tt_watch(struct tt_watch *watch)
{
    if (++watch->turns % TT_WATCH_TURNS) return true;
    return tt_look(watch->call, watch->turns / TT_WATCH_TURNS);
}

/* A1: until the next message is published. *head: as read. False: somebody has failed, or the host
 * has said abort. */
static __device__ bool tt_wait_for_message(const struct tt_device_end *end, uint32_t nslots,
                                           struct tt_watch *watch, uint64_t *head)
{
    for (;;) {
        *head = tt_load_acquire(end->head, end->system);
        /* Lines move the count alone: a head may be old by any number of messages. */
        if ((uint32_t)*head - end->count - 1 < nslots) return true;
        if (!tt_watch(watch)) return false;
    }
}

/* A2: until at most `most` messages are not released. end->known_tail is moved. */
static __device__ bool tt_wait_for_release(struct tt_device_end *end, struct tt_watch *watch,
                                           uint32_t most)
{
    while (end->count - end->known_tail > most) {
        end->known_tail = (uint32_t)tt_load_acquire(end->tail, end->system);
        if (end->count - end->known_tail > most && !tt_watch(watch)) return false;
    }
    return true;
}

/* A3: until the line, of which *flag is as read last, has the wanted flag. False: as A1; or the
 * message is another call's. */
static __device__ bool tt_wait_for_line(const char *line, uint64_t wanted, struct tt_watch *watch,
                                        uint64_t *data, uint64_t *flag)
{
    while (*flag != wanted) {
        if ((uint32_t)*flag == (uint32_t)wanted || !tt_watch(watch)) return false;
        tt_load_line(line, data, flag);
    }
    return true;
}

/* ---- References, and memory that a failed call leaves -------------------------------------------
 *
 * A message by reference is taken by an atomic on its note, and a sender that fails withdraws the
 * messages that are not taken by an atomic too; then it waits for the readers of the others. So
 * nobody reads memory of a call that has ended. The atomics are relaxed: order comes from R1/A1
 * and, for readers that have left, from R2/A2.
 *
 * Between GPUs atomics may not work in the other's memory. There (TT_REACHES_OPENED) the receiver
 * says once in a call, for each link, that it takes references, and the sender says that it has
 * failed. Each then looks at the word of the other (W). A sender that sees that the receiver takes
 * references waits until it has released all messages, or has left. */

/* Sets bits of the note's reference. Returns what it was. */
static __device__ uint64_t tt_mark_reference(struct tt_device_note *note, uint64_t bits,
                                             bool system)
{
    uint64_t before;
    if (system)
        asm volatile("atom.relaxed.sys.global.or.b64 %0, [%1], %2;"
                     : "=l"(before)
                     : "l"(&note->reference), "l"(bits)
                     : "memory");
    else
        asm volatile("atom.relaxed.gpu.global.or.b64 %0, [%1], %2;"
                     : "=l"(before)
                     : "l"(&note->reference), "l"(bits)
                     : "memory");
    return before;
}

/* OPENED: message end->count is taken by reference. Whether it may be read. */
static __device__ bool tt_begin_reading(struct tt_device_end *end)
{
    if (!end->refers) {
        tt_store_count(end->tail + 1, TT_READING | end->count);
        tt_fence_sc(); /* W */
        end->refers = 1;
    }
    return !tt_load_sys(end->head + 1);
}

/* Of message end->count. Returns the address, or 0: the message is in its slot. *withdrawn: the
 * sender has failed. */
static __device__ uint64_t tt_take_reference(struct tt_device_end *end, struct tt_device_note *note,
                                             bool *withdrawn)
{
    if (end->reaches == TT_REACHES_OPENED) {
        const uint64_t reference = note->reference;
        *withdrawn = reference && !tt_begin_reading(end);
        return reference;
    }
    const uint64_t before = tt_mark_reference(note, TT_REFERENCE_TAKEN, end->system);
    *withdrawn = before & TT_REFERENCE_WITHDRAWN;
    return before;
}

/* Whether the receiver had begun to read. */
static __device__ bool tt_withdraw_reference(struct tt_device_note *note, bool system)
{
    return tt_mark_reference(note, TT_REFERENCE_WITHDRAWN, system) & TT_REFERENCE_TAKEN;
}

/* tt_withdraw where the receiver opens memory. */
static __device__ void tt_withdraw_opened(struct tt_device_end *end, uint32_t first,
                                          const struct tt_device_report *report)
{
    tt_store_count(end->head + 1, 1);
    tt_fence_sc(); /* W */
    const uint64_t reading = tt_load_sys(end->tail + 1);
    if (!reading || (int32_t)((uint32_t)reading - first) < 0) return;
    for (uint32_t turns = 1;; turns++) {
        const uint64_t tail = tt_load_acquire(end->tail, end->system);
        if ((uint32_t)tail == end->count || (tail & TT_TAIL_LEFT)) return;
        if (turns % TT_WATCH_TURNS == 0 && tt_load_abort(report) > 1) return;
    }
}

/* After a failure: until nobody reads what this call has sent by reference over this link: its
 * messages that are not released are withdrawn; the receiver of one that is taken releases it or
 * leaves. Ends also when the host says 2.
 *
 * first: messages before the call. Nobody reads this rank's memory for one of them: a call that has
 * sent references ends when all of them are released, or it fails, and then no call follows. And
 * nobody may be there to release them: messages as lines leave the notes of older messages, which
 * were taken. */
static __device__ void tt_withdraw(struct tt_device_end *end, uint32_t first, uint32_t nslots,
                                   const struct tt_device_report *report)
{
    if (end->reaches == TT_REACHES_OPENED) return tt_withdraw_opened(end, first, report);
    uint64_t tail = tt_load_acquire(end->tail, end->system);
    uint32_t ntaken = (uint32_t)tail; /* messages up to the last one that is taken */
    uint32_t n = (int32_t)(first - (uint32_t)tail) > 0 ? first : (uint32_t)tail;
    for (; n != end->count; n++)
        if (tt_withdraw_reference(&end->notes[n % nslots], end->system)) ntaken = n + 1;
    for (uint32_t turns = 1; (int32_t)(ntaken - (uint32_t)tail) > 0 && !(tail & TT_TAIL_LEFT);
         turns++) {
        tail = tt_load_acquire(end->tail, end->system);
        if (turns % TT_WATCH_TURNS == 0 && tt_load_abort(report) > 1) return;
    }
}

#endif
