/* A kernel that walks through lowered programs: several ranks are blocks of one launch on one GPU.
 *
 * Block b runs channel b / nranks of rank b % nranks. The program and its binding are copied to
 * shared memory. For each step the first threads wait for messages and slots, all threads compute,
 * the first threads publish; with lines every thread waits for the lines that it reads. */
#include "lowered.h"

/* TIMED: counts the ticks of each step's parts. FAST: the threads resolve all steps of a round at
 * once, thread s those of step s; a sender looks at the tail only when its slots may be used up; a
 * receiver moves the tail after every second message. */
enum mode { PLAIN = 0, TIMED = 1, FAST = 2 };
enum { MOST_STEPS = 64 };

/* A step whose spans are one piece each, or empty. */
struct resolved {
    const char *from; /* NULL: no local span */
    char *to;         /* NULL: no dst */
    uint32_t count, single;
};

/* ---- Accesses that order ------------------------------------------------------------------- */

static __device__ uint32_t load_acquire(const uint32_t *word)
{
    uint32_t value;
    asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(value) : "l"(word) : "memory");
    return value;
}

static __device__ void store_release(uint32_t *word, uint32_t value)
{
    asm volatile("st.release.gpu.global.u32 [%0], %1;" ::"l"(word), "r"(value) : "memory");
}

template <int PROTOCOL> static __device__ void store_line(char *line, const float *data, uint32_t flag)
{
    const uint32_t a = __float_as_uint(data[0]);
    if (PROTOCOL == LINES8) {
        const uint64_t both = (uint64_t)flag << 32 | a;
        asm volatile("st.relaxed.gpu.global.b64 [%0], %1;" ::"l"(line), "l"(both) : "memory");
        return;
    }
    const uint64_t low = (uint64_t)__float_as_uint(data[1]) << 32 | a;
    const uint64_t high = PROTOCOL == LINES16 ? flag : (uint64_t)flag << 32 | __float_as_uint(data[2]);
    asm volatile("{ .reg .b128 q; mov.b128 q, {%1, %2}; st.relaxed.gpu.global.b128 [%0], q; }" ::"l"(line),
                 "l"(low), "l"(high)
                 : "memory");
}

template <int PROTOCOL> static __device__ void load_line(const char *line, float *data, uint32_t flag)
{
    if constexpr (PROTOCOL == LINES8) {
        uint64_t both;
        do
            asm volatile("ld.relaxed.gpu.global.b64 %0, [%1];" : "=l"(both) : "l"(line) : "memory");
        while ((uint32_t)(both >> 32) != flag);
        data[0] = __uint_as_float((uint32_t)both);
        return;
    } else {
    uint64_t low, high;
    do
        asm volatile("{ .reg .b128 q; ld.relaxed.gpu.global.b128 q, [%2]; mov.b128 {%0, %1}, q; }"
                     : "=l"(low), "=l"(high)
                     : "l"(line)
                     : "memory");
    while ((PROTOCOL == LINES16 ? (uint32_t)high : (uint32_t)(high >> 32)) != flag);
    data[0] = __uint_as_float((uint32_t)low);
    data[1] = __uint_as_float((uint32_t)(low >> 32));
    if (PROTOCOL == LINES16D) data[2] = __uint_as_float((uint32_t)high);
    }
}

/* ---- What a block works with ---------------------------------------------------------------- */

struct block_state {
    struct rank_view view;
    const struct tt_program *program; /* in shared memory */
    const struct tt_binding *binding;
    int part, channel;
    size_t round;
    struct link_end *ends; /* in shared memory */
    const uint16_t *end_of;
    const char **messages; /* [MOST_PEERS] */
    char **slots;
    uint32_t *flags_in, *flags_out;
    const struct resolved *resolved; /* [steps], in shared memory */
    unsigned long long *ticks; /* of this step: until prepared, computed, published, number; NULL */
};

/* Adds the ticks since *since to the sum of this part of the step. Thread 0 counts. */
template <int MODE> static __device__ void count_ticks(const struct block_state *at, int part, long long *since)
{
    if (!(MODE & TIMED) || threadIdx.x || !at->ticks) return;
    const long long now = clock64();
    at->ticks[part] += (unsigned long long)(now - *since);
    *since = now;
}

static __device__ char *piece_data(const struct block_state *at, const struct tt_program_span *span,
                                   const struct tt_piece *piece)
{
    char *base = span->buffer == TT_INPUT    ? (char *)at->view.input
                 : span->buffer == TT_OUTPUT ? at->view.output
                                             : at->view.scratch;
    return base + piece->offset;
}

/* The sources of one piece in their order, and where its result goes. */
struct pass {
    const float *sources[MOST_PEERS + 1];
    float *targets[MOST_PEERS + 1];
    int nsources, ntargets;
};

template <int NSOURCES> static __device__ float4 fold4(const struct pass *pass, size_t i)
{
    float4 sum = ((const float4 *)pass->sources[0])[i];
    const int n = NSOURCES ? NSOURCES : pass->nsources;
#pragma unroll
    for (int s = 1; s < (NSOURCES ? NSOURCES : MOST_PEERS + 1); s++) {
        if (!NSOURCES && s >= n) break;
        const float4 more = ((const float4 *)pass->sources[s])[i];
        sum.x += more.x, sum.y += more.y, sum.z += more.z, sum.w += more.w;
    }
    return sum;
}

template <int NSOURCES> static __device__ void fold_vectors(const struct pass *pass, size_t n)
{
    constexpr int UNROLL = NSOURCES == 1 ? 8 : NSOURCES == 2 ? 4 : 2;
    size_t i = threadIdx.x;
    for (; i + (UNROLL - 1) * THREADS < n; i += UNROLL * THREADS) {
        float4 sums[UNROLL];
#pragma unroll
        for (int u = 0; u < UNROLL; u++) sums[u] = fold4<NSOURCES>(pass, i + u * THREADS);
        for (int t = 0; t < pass->ntargets; t++)
#pragma unroll
            for (int u = 0; u < UNROLL; u++) ((float4 *)pass->targets[t])[i + u * THREADS] = sums[u];
    }
    for (; i < n; i += THREADS) {
        const float4 sum = fold4<NSOURCES>(pass, i);
        for (int t = 0; t < pass->ntargets; t++) ((float4 *)pass->targets[t])[i] = sum;
    }
}

static __device__ void do_piece(const struct pass *pass, size_t count)
{
    uintptr_t all = 0;
    for (int s = 0; s < pass->nsources; s++) all |= (uintptr_t)pass->sources[s];
    for (int t = 0; t < pass->ntargets; t++) all |= (uintptr_t)pass->targets[t];
    size_t done = 0;
    if (all % 16 == 0) {
        if (pass->nsources == 1) fold_vectors<1>(pass, count / 4);
        else if (pass->nsources == 2) fold_vectors<2>(pass, count / 4);
        else fold_vectors<0>(pass, count / 4);
        done = count / 4 * 4;
    }
    for (size_t i = done + threadIdx.x; i < count; i += THREADS) {
        float sum = pass->sources[0][i];
        for (int s = 1; s < pass->nsources; s++) sum += pass->sources[s][i];
        for (int t = 0; t < pass->ntargets; t++) pass->targets[t][i] = sum;
    }
}

/* A step with lines: `local` is the own_at-th source, `lines` what came before in the messages. */
template <int PROTOCOL>
static __device__ void do_lines(const struct block_state *at, const struct tt_program_step *step,
                                const float *local, float *dst, size_t count, size_t lines)
{
    constexpr int PER = PROTOCOL == LINES8 ? 1 : PROTOCOL == LINES16 ? 2 : 3;
    constexpr int SIZE = PROTOCOL == LINES8 ? 8 : 16;
    const size_t nlines = (count + PER - 1) / PER; /* PER is a constant: no division on the device */
    for (size_t l = threadIdx.x; l < nlines; l += THREADS) {
        float own[3] = {0, 0, 0}, sum[3] = {0, 0, 0}, more[3] = {0, 0, 0};
        bool first = true;
        for (int j = 0; local && j < PER; j++)
            if (l * PER + j < count) own[j] = local[l * PER + j];
        for (int s = 0; s <= (int)step->nrecv; s++) {
            if (local && s == (step->own_at < 0 ? 0 : step->own_at)) {
                for (int j = 0; j < PER; j++) sum[j] = first ? own[j] : sum[j] + own[j];
                first = false;
            }
            if (s == (int)step->nrecv) break;
            load_line<PROTOCOL>(at->messages[s] + (lines + l) * SIZE, more, at->flags_in[s]);
            for (int j = 0; j < PER; j++) sum[j] = first ? more[j] : sum[j] + more[j];
            first = false;
        }
        for (int j = 0; dst && j < PER; j++)
            if (l * PER + j < count) dst[l * PER + j] = sum[j];
        for (uint32_t t = 0; t < step->nsend; t++)
            store_line<PROTOCOL>(at->slots[t] + (lines + l) * SIZE, sum, at->flags_out[t]);
    }
}

/* ---- A step --------------------------------------------------------------------------------- */

/* Thread i waits for message i, thread MOST_PEERS + i for a slot of send link i. */
template <int PROTOCOL, int MODE> static __device__ void prepare(const struct block_state *at, const struct tt_program_step *step)
{
    const uint32_t thread = threadIdx.x;
    if (thread < step->nrecv) {
        const struct link_end *end = &at->ends[at->end_of[step->recv + thread]];
        const uint32_t slot = end->count % DEPTH;
        at->flags_in[thread] = end->count + 1;
        at->messages[thread] = end->slots + (size_t)slot * at->view.slot_bytes;
        if (PROTOCOL <= DIRECT) {
            while ((int32_t)(load_acquire(end->head) - end->count) <= 0) {}
            if (PROTOCOL == DIRECT && end->references[slot]) at->messages[thread] = (const char *)end->references[slot];
        }
    }
    if (thread >= MOST_PEERS && thread - MOST_PEERS < step->nsend) {
        const uint32_t i = thread - MOST_PEERS;
        struct link_end *end = &at->ends[at->end_of[step->send + i]];
        if (!(MODE & FAST)) end->known_tail = load_acquire(end->tail);
        while ((int32_t)(end->count - end->known_tail) >= DEPTH) end->known_tail = load_acquire(end->tail);
        at->slots[i] = end->slots + (size_t)(end->count % DEPTH) * at->view.slot_bytes;
        at->flags_out[i] = end->count + 1;
    }
    __syncthreads();
}

/* All threads' accesses of the step are done. */
template <int PROTOCOL, int MODE>
static __device__ void publish(const struct block_state *at, const struct tt_program_step *step, const char *reference)
{
    const uint32_t thread = threadIdx.x;
    __syncthreads();
    if (thread < step->nrecv) {
        struct link_end *end = &at->ends[at->end_of[step->recv + thread]];
        end->count++;
        if (!(MODE & FAST) || PROTOCOL == DIRECT || end->count % 2 == 0) store_release(end->tail, end->count);
    }
    if (thread >= MOST_PEERS && thread - MOST_PEERS < step->nsend) {
        struct link_end *end = &at->ends[at->end_of[step->send + thread - MOST_PEERS]];
        if (PROTOCOL == DIRECT) end->references[end->count % DEPTH] = (uint64_t)reference;
        ++end->count;
        if (PROTOCOL <= DIRECT) store_release(end->head, end->count);
    }
    __syncthreads();
}

/* Memory that holds exactly what the step sends, in one piece; NULL: there is none. */
static __device__ const char *sendable(const struct block_state *at, const struct tt_program_step *step)
{
    const struct tt_program_span *span = step->dst.number ? &step->dst : &step->local;
    struct tt_piece piece;
    if (!step->nsend || !span->number || span->buffer == TT_SCRATCH || !at->program->direct_safe) return NULL;
    if (span == &step->local && step->nrecv) return NULL;
    struct tt_walk walk = tt_walk_begin(at->program, at->binding, span, at->part, at->round, tt_span_is_whole(at->binding, span));
    if (!tt_walk_next(&walk, &piece) || walk.index < span->number || !piece.count) return NULL;
    return piece_data(at, span, &piece);
}

/* A step of which the pieces are known. */
template <int PROTOCOL>
static __device__ void do_resolved(const struct block_state *at, const struct tt_program_step *step,
                                   const struct resolved *known, const char *reference)
{
    if (PROTOCOL > DIRECT) {
        do_lines<PROTOCOL>(at, step, (const float *)known->from, (float *)known->to, known->count, 0);
        return;
    }
    struct pass pass;
    pass.nsources = pass.ntargets = 0;
    for (int s = 0; s <= (int)step->nrecv; s++) {
        if (known->from && s == (step->own_at < 0 ? 0 : step->own_at)) pass.sources[pass.nsources++] = (const float *)known->from;
        if (s < (int)step->nrecv) pass.sources[pass.nsources++] = (const float *)at->messages[s];
    }
    if (known->to && known->to != (const char *)pass.sources[0]) pass.targets[pass.ntargets++] = (float *)known->to;
    for (uint32_t t = 0; !reference && t < step->nsend; t++) pass.targets[pass.ntargets++] = (float *)at->slots[t];
    do_piece(&pass, known->count);
}

/* Thread s finds the pieces of step s. */
static __device__ void resolve(const struct block_state *at, const struct tt_program_step *steps, uint32_t nsteps, struct resolved *out)
{
    const uint32_t s = threadIdx.x;
    if (s < nsteps && s < MOST_STEPS) {
        const struct tt_program_span *spans[2] = {&steps[s].local, &steps[s].dst};
        struct resolved found = {NULL, NULL, 0, 1};
        for (int i = 0; i < 2; i++) {
            struct tt_piece piece = {0, 0};
            if (!spans[i]->number) continue;
            struct tt_walk walk = tt_walk_begin(at->program, at->binding, spans[i], at->part, at->round, tt_span_is_whole(at->binding, spans[i]));
            tt_walk_next(&walk, &piece);
            found.single &= walk.index == spans[i]->number && piece.count >> 32 == 0;
            found.count = (uint32_t)piece.count;
            if (i) found.to = piece_data(at, spans[i], &piece);
            else found.from = piece_data(at, spans[i], &piece);
        }
        found.single &= steps[s].local.number || steps[s].dst.number;
        out[s] = found;
    }
    __syncthreads();
}

template <int PROTOCOL, int MODE>
static __device__ void do_step(const struct block_state *at, const struct tt_program_step *step, uint32_t index)
{
    if ((MODE & FAST) && index < MOST_STEPS && at->resolved[index].single) {
        const struct resolved *known = &at->resolved[index];
        const struct tt_program_span *sent = step->dst.number ? &step->dst : &step->local;
        const char *memory = NULL;
        if (PROTOCOL == DIRECT && step->nsend && sent->buffer != TT_SCRATCH && at->program->direct_safe && known->count)
            memory = step->dst.number ? known->to : step->nrecv ? NULL : known->from;
        long long begin = MODE & TIMED ? clock64() : 0;
        prepare<PROTOCOL, MODE>(at, step);
        count_ticks<MODE>(at, 0, &begin);
        do_resolved<PROTOCOL>(at, step, known, memory);
        count_ticks<MODE>(at, 1, &begin);
        publish<PROTOCOL, MODE>(at, step, memory);
        count_ticks<MODE>(at, 2, &begin);
        return;
    }
    const struct tt_program_span *local = &step->local, *dst = &step->dst;
    const char *reference = PROTOCOL == DIRECT ? sendable(at, step) : NULL;
    size_t bytes = 0, lines = 0;
    long long since = MODE & TIMED ? clock64() : 0;
    prepare<PROTOCOL, MODE>(at, step);
    count_ticks<MODE>(at, 0, &since);
    /* Lines begin anew with each piece, so pieces must be the same at both ends: blocks. */
    const bool whole = PROTOCOL <= DIRECT && (!local->number || tt_span_is_whole(at->binding, local)) &&
                       (!dst->number || tt_span_is_whole(at->binding, dst));
    struct tt_walk from_walk = tt_walk_begin(at->program, at->binding, local, at->part, at->round, whole);
    struct tt_walk to_walk = tt_walk_begin(at->program, at->binding, dst, at->part, at->round, whole);
    for (;;) {
        struct tt_piece from = {0, 0}, to = {0, 0};
        const bool have_from = tt_walk_next(&from_walk, &from), have_to = tt_walk_next(&to_walk, &to);
        if (!have_from && !have_to) break;
        const size_t count = have_to ? to.count : from.count;
        const float *own = have_from ? (const float *)piece_data(at, local, &from) : NULL;
        float *out = have_to ? (float *)piece_data(at, dst, &to) : NULL;
        if (PROTOCOL > DIRECT) {
            do_lines<PROTOCOL>(at, step, own, out, count, lines);
            const int per = PROTOCOL == LINES8 ? 1 : PROTOCOL == LINES16 ? 2 : 3;
            lines += (count + per - 1) / per;
            continue;
        }
        struct pass pass;
        pass.nsources = pass.ntargets = 0;
        for (int s = 0; s <= (int)step->nrecv; s++) {
            if (own && s == (step->own_at < 0 ? 0 : step->own_at)) pass.sources[pass.nsources++] = own;
            if (s < (int)step->nrecv) pass.sources[pass.nsources++] = (const float *)(at->messages[s] + bytes);
        }
        if (out && !(pass.nsources == 1 && pass.sources[0] == out)) pass.targets[pass.ntargets++] = out;
        for (uint32_t t = 0; !reference && t < step->nsend; t++) pass.targets[pass.ntargets++] = (float *)(at->slots[t] + bytes);
        do_piece(&pass, count);
        bytes += count * 4;
    }
    count_ticks<MODE>(at, 1, &since);
    publish<PROTOCOL, MODE>(at, step, reference);
    count_ticks<MODE>(at, 2, &since);
}

/* What was sent by reference may be written again when all receivers have taken it. */
static __device__ void wait_for_receivers(const struct block_state *at)
{
    __syncthreads();
    for (uint32_t i = threadIdx.x; i < at->view.nends; i += THREADS) {
        const struct link_end *end = &at->ends[i];
        while (end->outgoing && load_acquire(end->tail) != end->count) {}
    }
    __syncthreads();
}

/* ticks: [steps][4] of block 0, or NULL. */
template <int PROTOCOL, int MODE>
static __device__ void walk_program(const struct rank_view *views, uint32_t nranks, uint32_t ntimes, unsigned long long *ticks)
{
    extern __shared__ __align__(16) char room[];
    __shared__ struct link_end ends[MOST_ENDS];
    __shared__ const char *messages[MOST_PEERS];
    __shared__ char *slots[MOST_PEERS];
    __shared__ uint32_t flags_in[MOST_PEERS], flags_out[MOST_PEERS];
    __shared__ struct resolved resolved[MODE & FAST ? MOST_STEPS : 1];
    struct block_state at;
    at.view = views[blockIdx.x % nranks];
    at.part = (int)(blockIdx.x / nranks);
    const uint32_t nwords = at.view.program->nbytes / 4, nmore = (uint32_t)sizeof(struct tt_binding) / 4;
    const uint32_t binding_at = (at.view.program->nbytes + 15) / 16 * 4;
    const uint32_t end_of_at = binding_at + (nmore + 3) / 4 * 4, nlinks = at.view.program->nlinks;
    for (uint32_t i = threadIdx.x; i < nwords; i += THREADS) ((uint32_t *)room)[i] = ((const uint32_t *)at.view.program)[i];
    for (uint32_t i = threadIdx.x; i < nmore; i += THREADS) ((uint32_t *)room)[binding_at + i] = ((const uint32_t *)at.view.binding)[i];
    for (uint32_t i = threadIdx.x; i < nlinks; i += THREADS) ((uint16_t *)((uint32_t *)room + end_of_at))[i] = at.view.end_of[i];
    at.program = (const struct tt_program *)room;
    at.binding = (const struct tt_binding *)((uint32_t *)room + binding_at);
    at.end_of = (const uint16_t *)((uint32_t *)room + end_of_at);
    at.ends = ends;
    at.messages = messages;
    at.slots = slots;
    at.flags_in = flags_in;
    at.flags_out = flags_out;
    at.resolved = resolved;
    __syncthreads();
    const int nchannels = at.program->nchannels, copy = at.part / nchannels;
    at.channel = at.part % nchannels;
    struct link_end *mine = at.view.ends + (size_t)copy * at.view.nends;
    for (uint32_t i = threadIdx.x; i < at.view.nends; i += THREADS) ends[i] = mine[i];
    __syncthreads();
    const struct tt_program_channel *channel = tt_program_channel(at.program, at.channel);
    for (uint32_t time = 0; time < ntimes; time++) {
        for (size_t r = 0; r < at.binding->nrounds; r++) {
            at.round = r; /* "at.round < n" would be read as a use of CUDA's template round<> */
            if (MODE & FAST) resolve(&at, tt_program_step(at.program, at.channel, 0), channel->nsteps, resolved);
            for (uint32_t s = 0; s < channel->nsteps; s++) {
                at.ticks = (MODE & TIMED) && blockIdx.x == 0 ? ticks + 4 * s : NULL;
                do_step<PROTOCOL, MODE>(&at, tt_program_step(at.program, at.channel, s), s);
                if ((MODE & TIMED) && at.ticks && threadIdx.x == 0) at.ticks[3]++;
            }
        }
        if (PROTOCOL == DIRECT) wait_for_receivers(&at);
    }
    for (uint32_t i = threadIdx.x; i < at.view.nends; i += THREADS) {
        if ((MODE & FAST) && !ends[i].outgoing) store_release(ends[i].tail, ends[i].count);
        mine[i].count = ends[i].count;
    }
}

#define KERNEL(name, protocol, mode)                                                            \
    extern "C" __global__ void __launch_bounds__(THREADS, 2) name(const struct rank_view *views, uint32_t nranks, uint32_t ntimes, unsigned long long *ticks) \
    {                                                                                              \
        walk_program<protocol, mode>(views, nranks, ntimes, ticks);                                \
    }
#define WALK(name, protocol)                                                                       \
    KERNEL(name, protocol, PLAIN)                                                                  \
    KERNEL(name##_timed, protocol, TIMED)                                                          \
    KERNEL(name##_fast, protocol, FAST)                                                            \
    KERNEL(name##_fast_timed, protocol, FAST | TIMED)
WALK(walk_slots, SLOTS)
WALK(walk_direct, DIRECT)
WALK(walk_lines8, LINES8)
WALK(walk_lines16, LINES16)
WALK(walk_lines16d, LINES16D)
