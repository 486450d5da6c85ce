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

/* In shared memory. Filled by tt_block_open. The tables lie in the room, the shared memory that the
 * launch asks for, or, where that is full, in device memory. */
struct tt_block {
    struct tt_device_call call;
    const struct tt_program *program;
    const struct tt_binding *binding; /* in room, its table of blocks behind it */
    const struct tt_device_tables *tables;
    struct tt_device_end *ends; /* [nends], in room: copies */
    const uint32_t *ends_at;    /* [nends] of copy 0 */
    uint32_t nends;
    uint32_t part, channel, copy;
    struct tt_fold fold;
    size_t round;
    uint32_t step; /* of the channel */

    /* Of the present step, written before its first barrier. */
    struct tt_pass pass;
    const char *messages[TT_DEVICE_MOST_PEERS]; /* SLOTS: data; LINES: lines */
    bool raw_messages[TT_DEVICE_MOST_PEERS]; /* SLOTS: raw sources, where their sender has them */
    char *slots[TT_DEVICE_MOST_PEERS];       /* NULL: the message is a reference */
    uint64_t heads_in[TT_DEVICE_MOST_PEERS], heads_out[TT_DEVICE_MOST_PEERS];

    struct tt_resolved resolved[TT_MOST_RESOLVED]; /* of some steps of the round */
};
static_assert(sizeof(struct tt_block) + TT_DEVICE_MOST_COPIED <= 48 * 1024,
              "shared memory that every GPU has for a block");

extern __shared__ __align__(16) char tt_room[];

static __device__ uint32_t tt_room_bytes(void)
{
    uint32_t nbytes;
    asm("mov.u32 %0, %%dynamic_smem_size;" : "=r"(nbytes));
    return nbytes;
}

static __device__ void tt_copy_words(void *to, const void *from, size_t nbytes)
{
    for (size_t i = threadIdx.x; i < nbytes / 4; i += blockDim.x)
        ((uint32_t *)to)[i] = ((const uint32_t *)from)[i];
}

/* Takes nbytes of the room; NULL: they do not fit. */
static __device__ char *tt_take_room(uint32_t *used, size_t nbytes)
{
    char *at = tt_room + *used;
    nbytes = (nbytes + 15) / 16 * 16;
    if (*used + nbytes > tt_room_bytes()) return NULL;
    *used += (uint32_t)nbytes;
    return at;
}

static __device__ struct tt_device_end *tt_block_end(const struct tt_block *block, uint32_t e)
{
    return block->call.links.ends + block->ends_at[e] +
           2 * block->copy * (uint32_t)block->program->nchannels;
}

/* The end of entry `link` of the program's table of links. */
static __device__ struct tt_device_end *tt_link_end(const struct tt_block *block, uint32_t link)
{
    return &block->ends[tt_device_places(block->tables)[link]];
}

/* Thread 0: which tables go into the room. False: the program is none for this kernel. */
static __device__ bool tt_share_room(struct tt_block *block, uint32_t index)
{
    const struct tt_program *program = block->call.program;
    const struct tt_device_tables *tables = block->call.tables;
    uint32_t used = 0;
    const uint32_t nchannels = (uint32_t)program->nchannels;
    block->part = index;
    block->copy = nchannels ? index / nchannels : 0;
    block->channel = nchannels ? index % nchannels : 0;
    block->program = program;
    block->tables = tables;
    const uint32_t *firsts = tt_device_firsts(tables);
    block->ends_at = tt_device_ends(tables) + firsts[block->channel];
    block->nends = firsts[block->channel + 1] - firsts[block->channel];
    block->ends =
        (struct tt_device_end *)tt_take_room(&used, block->nends * sizeof(struct tt_device_end));
    const size_t table =
        block->call.blocks ? (size_t)program->nblocks * sizeof(struct tt_own_block) : 0;
    block->binding =
        (const struct tt_binding *)tt_take_room(&used, sizeof(struct tt_binding) + table);
    if (!nchannels || !block->ends || !block->binding) return false;
    const char *at = tt_take_room(&used, tables->nbytes);
    if (at) block->tables = (const struct tt_device_tables *)at;
    at = program->nbytes <= TT_DEVICE_MOST_COPIED ? tt_take_room(&used, program->nbytes) : NULL;
    if (at) block->program = (const struct tt_program *)at;
    block->fold.type = block->call.type;
    block->fold.op = block->call.op;
    block->fold.nranks = (uint32_t)program->nranks;
    block->fold.element = (uint32_t)block->call.binding.element;
    return true;
}

static __device__ void tt_read_scalar(struct tt_block *block)
{
    const void *scalar = block->call.scalar;
    block->fold.scalar =
        scalar ? tt_fold_load_scalar(scalar, block->fold.element) : block->call.value;
}

/* All threads: the call's block of this index. False: the program is none for this kernel. */
static __device__ bool tt_block_open(struct tt_block *block, const struct tt_device_call *call,
                                     uint32_t index)
{
    tt_copy_words(&block->call, call, sizeof *call);
    __syncthreads();
    const bool ready = threadIdx.x ? true : tt_share_room(block, index);
    if (!__syncthreads_and(ready)) return false;
    struct tt_binding *binding = (struct tt_binding *)block->binding;
    const struct tt_device_call *mine = &block->call;
    tt_copy_words(binding, &mine->binding, sizeof *binding);
    if (mine->blocks)
        tt_copy_words(binding + 1, mine->blocks,
                      (size_t)mine->program->nblocks * sizeof(struct tt_own_block));
    if (block->tables != mine->tables)
        tt_copy_words((void *)block->tables, mine->tables, mine->tables->nbytes);
    if (block->program != mine->program)
        tt_copy_words((void *)block->program, mine->program, mine->program->nbytes);
    __syncthreads();
    if (threadIdx.x == 0) {
        binding->table_at = mine->blocks ? (uint32_t)sizeof *binding : 0;
        tt_read_scalar(block);
    }
    for (uint32_t e = 0; e < block->nends; e++)
        tt_copy_words(&block->ends[e], tt_block_end(block, e), sizeof(struct tt_device_end));
    __syncthreads();
    for (uint32_t e = threadIdx.x; e < block->nends; e += blockDim.x) block->ends[e].refers = 0;
    __syncthreads();
    return true;
}

/* What the next call goes on with. */
static __device__ void tt_block_close(struct tt_block *block)
{
    for (uint32_t e = threadIdx.x; e < block->nends; e += blockDim.x) {
        tt_block_end(block, e)->count = block->ends[e].count;
        tt_block_end(block, e)->known_tail = block->ends[e].known_tail;
    }
}

#endif
