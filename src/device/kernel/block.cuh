/* What a block of the kernel works with, in shared memory, and how it gets there. */
#ifndef TT_DEVICE_KERNEL_BLOCK_CUH
#define TT_DEVICE_KERNEL_BLOCK_CUH

#include "device/kernel/pass.cuh"
#include "device/kernel/port.cuh"

enum { TT_MOST_RESOLVED = 64 };

/* What a walk through a step's spans finds. */
struct tt_resolved {
    char *from, *to;       /* NULL: no local span; no dst */
    size_t count;          /* elements */
    const char *reference; /* memory that holds exactly what is sent; NULL: none that may be sent */
    bool single;           /* the spans are one piece each, or empty; else only reference holds */
};

/* A message of the present step, as the thread has found it that prepares it. */
struct tt_block_message {
    char *at; /* SLOTS: the data, or the slot to fill, or, of one that goes by reference, the
               * address at which the peer reads it; LINES: lines */
    uint64_t head;
    int32_t peer;
    uint16_t end; /* tt_end() */
    bool system;  /* as in the end */
    /* SLOTS, of a message that comes: it is a raw source, where its sender has it; of one that
     * goes: it goes by reference */
    union {
        bool raw, refers;
    };
};

/* A word of a link that is to be stored, and what it gets. */
struct tt_block_word {
    uint64_t *word;
    uint64_t value;
};

/* The tables lie in the room, the shared memory that the launch asks for, or, where that is full,
 * in device memory. */
struct tt_block {
    alignas(16) struct tt_device_call call;
    const struct tt_device_call *given; /* in the kernel's parameter: no thread keeps it */
    const struct tt_program *program;
    const struct tt_binding *binding; /* that of the call, or, with a table of blocks, in room */
    const uint16_t *places;           /* of the ends of the program's links: tt_end() */
    const uint32_t *ends_at;          /* [nends] of copy 0 */
    uint32_t nends;                   /* tt_end() */
    uint32_t part, channel, copy;

    /* Of the walk: where the channel stands. */
    const struct tt_program_step *steps;
    uint32_t nsteps, step;
    size_t round;

    /* Of the present step, written before its first barrier. */
    struct tt_pass pass;
    struct tt_block_message in[TT_DEVICE_MOST_PEERS], out[TT_DEVICE_MOST_PEERS];
    size_t length; /* bytes of each message that is sent; only SLOTS, after the pieces */

    struct tt_resolved resolved[TT_MOST_RESOLVED]; /* of some steps of the round */

    struct tt_block_word words[TT_WARP]; /* of the warp in tt_tell */
};
static_assert(sizeof(struct tt_block) + TT_DEVICE_MOST_COPIED <= 48 * 1024,
              "shared memory that every GPU has for a block");

static __shared__ struct tt_block block;
extern __shared__ __align__(16) char tt_room[];

static __device__ uint32_t tt_room_bytes(void)
{
    uint32_t nbytes;
    asm("mov.u32 %0, %%dynamic_smem_size;" : "=r"(nbytes));
    return nbytes;
}

/* threadIdx.x, blockDim.x, read anew: copies that live as long as the kernel would be spilled. */
static __device__ uint32_t tt_thread(void)
{
    uint32_t thread;
    asm volatile("mov.u32 %0, %%tid.x;" : "=r"(thread));
    return thread;
}

static __device__ uint32_t tt_nthreads(void)
{
    uint32_t n;
    asm volatile("mov.u32 %0, %%ntid.x;" : "=r"(n));
    return n;
}

/* ---- The layout ----------------------------------------------------------------------------- */

/* What a block of a call copies, and where to. Every thread makes the layout, of the call alone:
 * it waits for no memory. */
struct tt_layout {
    uint32_t channel, copy;
    uint32_t first_end, nends;     /* of the program's lists */
    uint32_t binding_at;           /* in the room, behind the ends: with a table of blocks */
    uint32_t program_at, nprogram; /* in the room; bytes that are copied: of all of the program's
                                    * memory, of the places of links, or none */
    bool fits;                     /* else the program is none for this kernel */
};

static __device__ uint32_t tt_round_up(size_t nbytes)
{
    return (uint32_t)(nbytes + 15) / 16 * 16;
}

static __device__ struct tt_layout tt_lay_out(const struct tt_device_call *call, uint32_t index)
{
    const struct tt_device_program *program = &call->program;
    const uint32_t room = tt_room_bytes();
    struct tt_layout layout;
    static_assert(TT_DEVICE_MOST_CHANNELS == 2, "no division");
    const uint32_t two = program->nchannels == 2;
    layout.copy = index >> two;
    layout.channel = index & two;
    layout.first_end = program->firsts[layout.channel];
    layout.nends = program->firsts[layout.channel + 1] - layout.first_end;
    layout.binding_at = layout.nends * (uint32_t)sizeof(struct tt_device_end);
    layout.program_at =
        layout.binding_at +
        (call->blocks ? tt_round_up(sizeof(struct tt_binding) + call->table_bytes) : 0);
    layout.fits = program->nchannels - 1 < TT_DEVICE_MOST_CHANNELS && layout.program_at <= room;
    const uint32_t left = room - layout.program_at;
    layout.nprogram = program->nbytes <= left ? program->nbytes : program->ends_at;
    if (layout.nprogram > left) layout.nprogram = 0;
    return layout;
}

/* ---- Opening -------------------------------------------------------------------------------- */

/* The last warp of a block asks whether the call may run (run.cu) while the others open the block.
 * A block of one warp does one after the other. */
static __device__ uint32_t tt_openers(void)
{
    const uint32_t n = tt_nthreads();
    return n > TT_WARP ? n - TT_WARP : n;
}

/* Copy 0's end to that of the block. */
static __device__ struct tt_device_end *tt_end_of_copy(const struct tt_device_call *call,
                                                       uint32_t end, uint32_t copy)
{
    return call->links.ends + end + 2 * copy * call->program.nchannels;
}

/* The openers: what the block needs, as one list of 16 bytes each. So a thread has few of them, and
 * does not wait for one before it loads the next kind. */
static __device__ void tt_copy_all(const struct tt_device_call *call,
                                   const struct tt_layout *layout)
{
    const uint32_t unit = sizeof(uint4),
                   nends = layout->nends * (sizeof(struct tt_device_end) / unit);
    const uint32_t nprogram = layout->nprogram / unit, ncall = sizeof *call / unit;
    const uint32_t *ends_at =
        (const uint32_t *)(call->program.memory + call->program.ends_at) + layout->first_end;
    for (uint32_t i = tt_thread(); i < nends + nprogram + ncall; i += tt_openers()) {
        const uint4 *from;
        uint4 *to;
        if (i < nends) {
            from = (const uint4 *)tt_end_of_copy(call, ends_at[i / 4], layout->copy) + i % 4;
            to = (uint4 *)tt_room + i;
        } else if (i < nends + nprogram) {
            from = (const uint4 *)call->program.memory + (i - nends);
            to = (uint4 *)(tt_room + layout->program_at) + (i - nends);
        } else {
            from = (const uint4 *)call + (i - nends - nprogram);
            to = (uint4 *)&block.call + (i - nends - nprogram);
        }
        *to = *from;
    }
}

/* The openers: the binding and its table of blocks. */
static __device__ void tt_copy_table(const struct tt_device_call *call,
                                     const struct tt_layout *layout)
{
    const uint32_t nbinding = sizeof(struct tt_binding) / 8;
    uint64_t *to = (uint64_t *)(tt_room + layout->binding_at);
    for (uint32_t i = tt_thread(); i < nbinding + call->table_bytes / 8; i += tt_openers())
        to[i] = i < nbinding ? ((const uint64_t *)&call->binding)[i]
                             : ((const uint64_t *)call->blocks)[i - nbinding];
}

/* Thread 0. */
static __device__ void tt_begin_block(const struct tt_device_call *call,
                                      const struct tt_layout *layout, uint32_t index)
{
    const char *memory = layout->nprogram ? tt_room + layout->program_at : call->program.memory;
    const bool whole = layout->nprogram == call->program.nbytes;
    const char *rest = whole ? memory : call->program.memory;
    block.program = (const struct tt_program *)(rest + call->program.program_at);
    block.ends_at = (const uint32_t *)(rest + call->program.ends_at) + layout->first_end;
    block.binding = call->blocks ? (const struct tt_binding *)(tt_room + layout->binding_at)
                                 : &block.call.binding;
    block.places = (const uint16_t *)memory;
    block.nends = layout->nends;
    block.part = index;
    block.channel = layout->channel;
    block.copy = layout->copy;
    block.step = 0;
    block.round = 0;
}

/* The openers, which pass a barrier: all but what is found with the program. */
static __device__ void tt_block_open(const struct tt_device_call *call,
                                     const struct tt_layout *layout, uint32_t index)
{
    tt_copy_all(call, layout);
    if (call->blocks) tt_copy_table(call, layout);
    if (tt_thread() == 0) tt_begin_block(call, layout, index);
    tt_sync_threads(tt_openers());
}

/* ---- Ends ----------------------------------------------------------------------------------- */

/* The block's copy of end e. */
static __device__ struct tt_device_end *tt_end(uint32_t e)
{
    return (struct tt_device_end *)tt_room + e;
}

/* End e of the block in device memory. */
static __device__ struct tt_device_end *tt_block_end(uint32_t e)
{
    return tt_end_of_copy(&block.call, block.ends_at[e], block.copy);
}

/* What the peer is to be told. Outgoing: 1: messages were sent; else: so many were read. */
static __device__ uint32_t tt_untold(const struct tt_device_end *end)
{
    return end->outgoing ? end->due : end->count - end->known_tail;
}

/* So many messages of an end that are read are released in any case. A step takes messages while it
 * waits for slots: two messages must always find room. */
static __device__ uint32_t tt_most_read(void)
{
    return block.call.links.nslots > 2 ? 2 : 1;
}

/* Whether one of the ends has something to tell: a message was sent, or `least` were read. *system:
 * whether an end that does is of scope .sys. */
static __device__ bool tt_must_tell(uint32_t lane, uint32_t least, bool *system)
{
    bool must = false, wide = false;
    for (uint32_t e = lane; e < block.nends; e += TT_WARP) {
        const struct tt_device_end *end = tt_end(e);
        const uint32_t n = tt_untold(end);
        must = must || (end->outgoing ? n : n >= least);
        wide = wide || (n && end->system);
    }
    *system = __any_sync(UINT32_MAX, wide);
    return __any_sync(UINT32_MAX, must);
}

/* One lane, behind the fence: the first n of the block's words. */
static __device__ void tt_store_words(uint32_t n)
{
    enum { AT_ONCE = 4 };
    for (uint32_t i = 0; i < n; i += AT_ONCE) {
        struct tt_block_word some[AT_ONCE];
#pragma unroll
        for (uint32_t k = 0; k < AT_ONCE; k++) some[k] = block.words[(i + k) % TT_WARP];
#pragma unroll
        for (uint32_t k = 0; k < AT_ONCE; k++)
            if (i + k < n) tt_store_count(some[k].word, some[k].value);
    }
}

/* R1, R2. The last warp, behind a barrier that came after the messages were read or written, and
 * counted: publishes what was sent, and releases what was read. All that costs one fence, so what
 * was read is released whenever something is published, else when an end has `least` messages. The
 * other warps begin with the next step while this one waits for the fence. They pass a barrier with
 * it before anything is counted again. */
static __device__ __noinline__ void tt_tell(uint32_t least)
{
    const uint32_t lane = tt_thread() % TT_WARP;
    bool system;
    if (tt_nthreads() - tt_thread() > TT_WARP || !tt_must_tell(lane, least, &system)) return;
    if (lane == 0) tt_fence_release(system);
    for (uint32_t first = 0; first < block.nends; first += TT_WARP) {
        struct tt_device_end *end = tt_end(first + lane);
        const bool tells = first + lane < block.nends && tt_untold(end);
        const uint32_t all = __ballot_sync(UINT32_MAX, tells);
        if (tells && end->outgoing) {
            block.words[__popc(all & ((1u << lane) - 1))] = {
                end->head, tt_device_head(end->count, block.call.signature)};
            end->due = 0;
        } else if (tells) {
            block.words[__popc(all & ((1u << lane) - 1))] = {end->tail, end->count};
            end->known_tail = end->count;
        }
        __syncwarp();
        if (lane == 0) tt_store_words((uint32_t)__popc(all));
        __syncwarp();
    }
}

/* What the next call goes on with. */
static __device__ void tt_block_close(void)
{
    for (uint32_t e = tt_thread(); e < block.nends; e += tt_nthreads())
        *(uint64_t *)&tt_block_end(e)->count = *(const uint64_t *)&tt_end(e)->count;
}

/* ---- Failures ------------------------------------------------------------------------------- */

static __device__ struct tt_watch tt_watch_begin(void)
{
    return {&block.call, 0};
}

/* In the present step. */
static __device__ void tt_block_fail(uint32_t failure, int32_t peer)
{
    tt_report_failure(&block.call, failure, peer, block.part, block.step);
}

/* After a wait for the peer has ended without what it waited for. */
static __device__ bool tt_fail_wait(int32_t peer)
{
    if (tt_load_abort(block.call.report)) tt_block_fail(TT_DEVICE_ABORTED, peer);
    return false;
}

#endif
