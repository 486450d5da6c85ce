/* One call from issue to end: takes its turn, binds and starts the collective, advances its
 * channels step by step, waits until everything sent has left, and gives the turn on. */
#include <stdlib.h>
#include <string.h>

#include "executor/exchange.h"
#include "executor/fetch.h"
#include "executor/internal.h"
#include "executor/kernel_run.h"
#include "executor/staged_run.h"
#include "executor/stream.h"

/* How often a wait in which nothing moves looks at all wires. */
enum { DRIVE_TURNS = 16, DRIVE_RDMA_TURNS = 128 };

static uint64_t mix(uint64_t value)
{
    value ^= value >> 33;
    value *= 0xff51afd7ed558ccdull;
    value ^= value >> 33;
    value *= 0xc4ceb9fe1a85ec53ull;
    return value ^ value >> 33;
}

uint64_t tt_call_signature(const struct tt_program *program, size_t count,
                           const struct tt_reduction *reduction)
{
    const uint64_t kinds = (uint64_t)program->collective | (uint64_t)reduction->type << 8 |
                           (uint64_t)reduction->op << 16 | (uint64_t)(uint32_t)program->root << 32;
    return mix(kinds) ^ mix(count + 0x9e3779b97f4a7c15ull) ^ mix(~program->algorithm);
}

uint64_t tt_counts_signature(const size_t *counts, int nranks)
{
    uint64_t hash = mix((uint64_t)(uint32_t)nranks ^ 0x2545f4914f6cdd1du);
    for (int i = 0; i < nranks; i++) hash = mix(hash ^ mix(counts[i] + (size_t)i));
    return hash;
}

uint64_t tt_turn_signature(uint64_t call_signature, uint64_t turn)
{
    return mix(call_signature ^ turn) & ~(1ull << 63);
}

void tt_work_begin(struct tt_work *work, struct tt_engine *engine, const struct tt_call *call,
                   uint64_t turn)
{
    const struct tt_program *program = call->loaded->program;
    *work = (struct tt_work){.engine = engine,
                             .kind = TT_WORK_COLLECTIVE,
                             .turn = turn,
                             .collective = {.call = *call, .binding = *call->binding}};
    struct tt_collective_work *own = &work->collective;
    if (!own->binding.table_at) own->call.binding = &own->binding; /* the caller's may change */
    atomic_fetch_add_explicit(&engine->outstanding, 1, memory_order_relaxed);
    own->signature = tt_turn_signature(call->signature, turn);
    own->origin[TT_INPUT] = (uintptr_t)call->input - own->binding.skipped[TT_INPUT];
    own->origin[TT_OUTPUT] = (uintptr_t)call->output - own->binding.skipped[TT_OUTPUT];
    own->links = call->loaded->links;
    own->direct[TT_INPUT] = program->direct_safe && call->reduction.op != TT_PREMUL_SUM;
    own->direct[TT_OUTPUT] = program->direct_safe;
}

void tt_work_collective(struct tt_work *work, struct tt_engine *engine, const struct tt_call *call)
{
    tt_work_begin(work, engine, call, ++engine->collectives_issued);
}

static void init_p2p(struct tt_work *work, struct tt_engine *engine, enum tt_work_kind kind,
                     char *data, size_t nbytes, int peer)
{
    const bool sends = kind == TT_WORK_SEND;
    work->engine = engine; /* member by member: the other side of the union is large */
    work->kind = kind;
    work->state = TT_WORK_ISSUED;
    work->status = TT_OK;
    work->turn = sends ? ++engine->sends_issued[peer] : ++engine->recvs_issued[peer];
    work->deadline_ns = 0;
    work->progress = 0;
    work->stream = NULL;
    work->staged.words = NULL;
    work->staged.replayed = false;
    work->staged.portions = NULL;
    work->staged.gpu = NULL;
    work->p2p = (struct tt_p2p_work){.peer = peer,
                                     .data = data,
                                     .nbytes = nbytes,
                                     .nontemporal = nbytes >= TT_NONTEMPORAL_MIN_BYTES};
    atomic_fetch_add_explicit(&engine->outstanding, 1, memory_order_relaxed);
}

void tt_work_send(struct tt_work *work, struct tt_engine *engine, const void *data, size_t nbytes,
                  int peer)
{
    init_p2p(work, engine, TT_WORK_SEND, (char *)(uintptr_t)data, nbytes, peer);
}

void tt_work_recv(struct tt_work *work, struct tt_engine *engine, void *data, size_t nbytes,
                  int peer)
{
    init_p2p(work, engine, TT_WORK_RECV, data, nbytes, peer);
}

bool tt_changes(const struct tt_reduction *reduction, unsigned flags)
{
    return ((flags & TT_RAW) && reduction->op == TT_PREMUL_SUM) ||
           ((flags & TT_FINISH) && tt_op_finishes(reduction->op));
}

void tt_transfer(const struct tt_work *work, void *target, const void *source, size_t count,
                 unsigned flags)
{
    const struct tt_reduction *reduction = &work->collective.call.reduction;
    if (tt_changes(reduction, flags))
        tt_reduce(reduction, target, &source, 1, count, flags);
    else if (target != source)
        tt_copy(target, source, count * work->collective.binding.element, flags & TT_NONTEMPORAL);
}

bool tt_is_raw_span(const struct tt_reduction *reduction, const struct tt_program_span *span)
{
    return span->number && span->buffer == TT_INPUT && reduction->op == TT_PREMUL_SUM;
}

/* ---- Running ------------------------------------------------------------------------------------
 */

static _Atomic uint64_t *turn_counter(const struct tt_work *work)
{
    switch (work->kind) {
    case TT_WORK_SEND:
        return &work->engine->sends_done[work->p2p.peer];
    case TT_WORK_RECV:
        return &work->engine->recvs_done[work->p2p.peer];
    case TT_WORK_EXCHANGE:
        return &work->engine->exchanges_done;
    default:
        return &work->engine->collectives_done;
    }
}

static tt_status ensure_scratch(struct tt_work *work)
{
    const struct tt_program *program = tt_work_program(work);
    const struct tt_binding *binding = &work->collective.binding;
    struct tt_engine *engine = work->engine;
    const size_t need =
        (size_t)program->nscratch * binding->parts[0].nparts * binding->piece * binding->element;
    if (need > engine->scratch_bytes) {
        free(engine->scratch);
        engine->scratch_bytes = 0;
        engine->scratch = aligned_alloc(TT_LINE, (need + TT_LINE - 1) / TT_LINE * TT_LINE);
        if (!engine->scratch)
            return tt_fail(TT_ERR_SYSTEM, "out of memory for %zu bytes of scratch space", need);
        engine->scratch_bytes = need;
    }
    work->collective.origin[TT_SCRATCH] = (uintptr_t)engine->scratch;
    return TT_OK;
}

static void next_step(struct tt_work *work, int channel, uint32_t nsteps)
{
    struct tt_position *at = &work->collective.channels[channel];
    at->ready = at->nslots = 0;
    at->entered = at->asked = at->borrows = false;
    work->progress++;
    if (++at->step < nsteps) return;
    at->step = 0;
    at->posted = false;
    at->done = ++at->round >= work->collective.binding.nrounds;
}

static tt_status advance_channel(struct tt_work *work, const struct tt_program_channel *row,
                                 int channel)
{
    const struct tt_program_step *steps = tt_program_steps(tt_work_program(work)) + row->first;
    struct tt_position *at = &work->collective.channels[channel];
    if (row->nsteps == 0) at->done = true;
    while (!at->done) {
        const struct tt_program_step *step = &steps[at->step];
        if (!at->step && !at->posted) {
            if (!tt_staged_has_round(work, at->round)) return TT_IN_PROGRESS;
            if (row->nsteps > 1) tt_fetch_for_step(work, channel, step + 1, TT_FETCH_EARLY);
            tt_post_round(work, row, channel);
        }
        at->posted = true;
        TT_AWAIT(step->kind == TT_STEP_MEET ? tt_step_meet(work, channel, step)
                                            : tt_step_link(work, channel, step));
        next_step(work, channel, row->nsteps);
        if (at->step) tt_fetch_for_step(work, channel, step + 1, TT_FETCH_LATE);
    }
    return TT_OK;
}

/* References that receivers have not taken yet keep the caller's buffers in use. */
static bool references_taken(const struct tt_collective_work *own)
{
    const struct tt_loaded *loaded = own->call.loaded;
    const struct tt_program_link *links = tt_program_links(loaded->program);
    for (int copy = 0; own->references && copy < own->binding.copies; copy++)
        for (uint32_t i = 0; i < loaded->program->nlinks; i++) {
            struct tt_link *link = tt_loaded_links(loaded, copy)[i];
            if (links[i].outgoing && !link->ops->drained(link)) return false;
        }
    return true;
}

/* From here on steps use the links of this copy. */
static void use_copy(struct tt_collective_work *own, int copy)
{
    own->links = tt_loaded_links(own->call.loaded, copy);
}

static tt_status advance_collective(struct tt_work *work)
{
    const struct tt_program *program = tt_work_program(work);
    const int ncopies = work->collective.binding.copies, nchannels = program->nchannels;
    bool waiting = false;
    for (int copy = 0; copy < ncopies; copy++) {
        use_copy(&work->collective, copy);
        for (int c = 0; c < nchannels; c++) {
            const tt_status status =
                advance_channel(work, tt_program_channel(program, c), copy * nchannels + c);
            if (status < 0) return status;
            waiting |= status == TT_IN_PROGRESS;
        }
    }
    return waiting || !references_taken(&work->collective) ? TT_IN_PROGRESS : TT_OK;
}

/* The bytes of the global naming between the beginning of the first block that a buffer holds and
 * the end of the last: of the caller's memory, wherever the blocks lie in between. */
static void find_extent(const struct tt_work *work, int buffer, size_t *begin, size_t *end)
{
    const struct tt_collective_work *own = &work->collective;
    const struct tt_program_blocks *held = &tt_work_program(work)->held[buffer];
    const int32_t last = held->first + held->number - 1;
    /* Only blocks with counts of their own may lie in any order. */
    const int32_t stride = own->binding.table_at || held->number < 2 ? 1 : held->number - 1;
    *begin = SIZE_MAX;
    *end = 0;
    for (int32_t block = held->first; block <= last; block += stride) {
        size_t at;
        const size_t length = tt_binding_block(own->call.binding, block, &at);
        *begin = at < *begin ? at : *begin;
        *end = at + length > *end ? at + length : *end;
    }
    *begin = held->number ? *begin * own->binding.element : 0;
    *end *= own->binding.element;
}

/* Finds the windows in which the caller's buffers lie, and shows them to the peers. */
static void find_memory(struct tt_work *work)
{
    struct tt_collective_work *own = &work->collective;
    struct tt_fabric *fabric = work->engine->fabric;
    const struct tt_loaded *loaded = own->call.loaded;
    const size_t longest = tt_work_longest(work);
    own->memory[TT_SCRATCH].window = TT_NO_WINDOW;
    for (int b = TT_INPUT; b <= TT_OUTPUT; b++) {
        size_t begin, end;
        find_extent(work, b, &begin, &end);
        if (tt_work_is_divided(work)) {
            begin = 0;
            end = 2 * work->staged.portions->nbytes;
        }
        if (longest < TT_DIRECT_MIN_BYTES) end = begin; /* nothing is sent in place */
        tt_fabric_find_memory(fabric, (const char *)(own->origin[b] + begin), end - begin,
                              &own->memory[b]);
        if (own->memory[b].window == TT_NO_WINDOW) continue;
        for (uint32_t i = 0; i < loaded->program->nlinks; i++)
            tt_fabric_introduce(fabric, loaded->links[i]->peer, &own->memory[b]);
    }
}

/* The call's buffers are the two places of its portions. Nothing there is sent by reference: it
 * would have to stay until the reference has been taken. */
static void use_portions(struct tt_work *work)
{
    struct tt_collective_work *own = &work->collective;
    own->binding.merged = false;
    own->origin[TT_INPUT] = own->origin[TT_OUTPUT] = (uintptr_t)work->staged.portions->memory;
    own->direct[TT_INPUT] = own->direct[TT_OUTPUT] = false;
}

static tt_status start_collective(struct tt_work *work)
{
    struct tt_call *call = &work->collective.call;
    const int ncopies = work->collective.binding.copies;
    if (ncopies < 1 || ncopies > call->loaded->copies)
        return tt_fail(TT_ERR_INTERNAL, "a call runs %d copies, its program is loaded for 1 to %d",
                       ncopies, call->loaded->copies);
    work->state = TT_WORK_RUNNING;
    work->engine->report_ns = 0;
    tt_record_entry(work->engine, call, work->turn);
    if (tt_work_on_device(work)) return TT_OK;
    work->collective.channels = work->engine->positions;
    memset(work->collective.channels, 0,
           (size_t)(ncopies * tt_work_program(work)->nchannels) * sizeof(struct tt_position));
    if (tt_work_is_divided(work)) use_portions(work);
    if (call->scalar)
        memcpy(call->reduction.scalar, call->scalar, work->collective.binding.element);
    find_memory(work);
    return ensure_scratch(work);
}

static tt_status start(struct tt_work *work)
{
    struct tt_fabric *fabric = work->engine->fabric;
    TT_TRY(tt_fabric_check(fabric)); /* issued before the failure */
    if (work->kind == TT_WORK_COLLECTIVE) return start_collective(work);
    const int channel = tt_fabric_p2p_channel(fabric);
    work->state = TT_WORK_RUNNING;
    work->engine->report_ns = 0;
    if (work->kind == TT_WORK_EXCHANGE) return TT_OK;
    work->p2p.link = work->kind == TT_WORK_SEND ? tt_fabric_tx(fabric, work->p2p.peer, channel)
                                                : tt_fabric_rx(fabric, work->p2p.peer, channel);
    const struct tt_stage_portions *portions = work->staged.portions;
    tt_fabric_find_memory(fabric, work->p2p.data, portions ? portions->nbytes : work->p2p.nbytes,
                          &work->p2p.memory);
    if (work->kind == TT_WORK_SEND) tt_fabric_introduce(fabric, work->p2p.peer, &work->p2p.memory);
    return TT_OK;
}

/* Whether all that was published or released will arrive, even if this rank never calls again. */
static bool is_flushed(const struct tt_work *work)
{
    const struct tt_fabric *fabric = work->engine->fabric;
    if (!fabric->wires || work->kind == TT_WORK_EXCHANGE) return true;
    if (work->kind == TT_WORK_COLLECTIVE) return tt_wires_flushed(fabric->wires);
    return work->p2p.link->ops->flushed(work->p2p.link);
}

static tt_status advance_in_turn(struct tt_work *work)
{
    if (work->state == TT_WORK_WITHDRAWING) return work->status;
    const bool on_device = tt_work_on_device(work);
    if (work->state == TT_WORK_ISSUED) {
        if (on_device && !tt_kernel_has_begun(work)) return TT_IN_PROGRESS;
        TT_AWAIT(tt_staged_await(work));
        TT_TRY(start(work));
    }
    if (work->state == TT_WORK_RUNNING) {
        const tt_status status = on_device                          ? tt_kernel_advance(work)
                                 : work->kind == TT_WORK_COLLECTIVE ? advance_collective(work)
                                                                    : tt_p2p_advance(work);
        if (status >= 0) TT_TRY(tt_staged_pass(work, status == TT_OK));
        TT_AWAIT(status);
    }
    work->state = TT_WORK_LEAVING;
    TT_AWAIT(tt_staged_copied(work));
    return is_flushed(work) ? TT_OK : TT_IN_PROGRESS;
}

/* A link that is polled advances its own wire. The other wires are advanced now and then, and
 * rarely when they carry only control frames. */
static tt_status drive_wires(struct tt_work *work, uint64_t progress)
{
    struct tt_engine *engine = work->engine;
    if (!engine->fabric->wires) return TT_IN_PROGRESS;
    engine->still = work->progress == progress ? engine->still + 1 : 0;
    const unsigned turns =
        tt_wires_by_sockets(engine->fabric->wires) ? DRIVE_TURNS : DRIVE_RDMA_TURNS;
    if ((engine->still + 1) % turns != 0) return TT_IN_PROGRESS;
    const tt_status status = tt_wires_progress(engine->fabric->wires);
    return status < 0 ? status : TT_IN_PROGRESS;
}

/* Ends the use of the caller's buffers: no message may be delivered there any more. */
static void take_back(struct tt_work *work)
{
    struct tt_fabric *fabric = work->engine->fabric;
    if (work->kind == TT_WORK_RECV && work->p2p.link) /* it was started */
        work->p2p.link->ops->expect(work->p2p.link, NULL, 0, 0);
    if (fabric->wires) tt_wires_give_back(fabric->wires);
    if (work->kind != TT_WORK_COLLECTIVE || !work->collective.channels) return;
    const struct tt_program *program = tt_work_program(work);
    for (int copy = 0; copy < work->collective.binding.copies; copy++) {
        use_copy(&work->collective, copy);
        for (int c = 0; c < program->nchannels; c++) {
            const struct tt_position *at =
                &work->collective.channels[copy * program->nchannels + c];
            if (at->asked) tt_step_expect(work, tt_program_step(program, c, at->step), NULL, 0);
        }
    }
}

/* No piece of a block is looked for any more. A replay's table is the graph's. */
static void free_table(struct tt_work *work)
{
    if (work->staged.replayed) return;
    if (work->kind != TT_WORK_COLLECTIVE || !work->collective.binding.table_at) return;
    free((void *)(uintptr_t)work->collective.call.binding);
    work->collective.call.binding = &work->collective.binding;
}

void tt_work_complete(struct tt_work *work, tt_status status)
{
    /* First: giving memory back may end connections, and the peers would not hear the cause. */
    if (status) tt_fabric_pass_on(work->engine->fabric);
    if (status) take_back(work);
    if (tt_work_on_device(work) && !status) tt_kernel_leave_peers(work);
    tt_staged_end(work);
    work->state = TT_WORK_DONE;
    work->status = status;
    work->progress++;
    if (work->kind == TT_WORK_COLLECTIVE && status == TT_OK)
        atomic_store_explicit(&work->engine->fabric->record->done, work->turn,
                              memory_order_release);
    free_table(work);
    if (work->kind == TT_WORK_EXCHANGE) tt_exchange_release(work->exchange.exchange);
    /* acquire: tt_work_advance */
    atomic_store_explicit(turn_counter(work), work->turn, memory_order_release);
    atomic_fetch_sub_explicit(&work->engine->outstanding, 1, memory_order_release);
    if (work->stream) tt_stream_end(work->stream, status);
}

/* Until when a call that has failed waits for peers that use its buffers. Also where the deadline
 * is what failed, a peer that copies just now may end that. */
static void set_withdrawal_deadline(struct tt_work *work)
{
    if (!work->deadline_ns) work->deadline_ns = tt_deadline_ns(work->engine->timeout_ms);
    if (work->deadline_ns == INT64_MAX)
        work->deadline_ns = tt_deadline_ns(TT_WITHDRAWAL_S * 1000);
    else if (tt_expired(work->deadline_ns))
        work->deadline_ns = tt_deadline_ns(TT_GRACE_MS);
}

/* Completes the work; TT_IN_PROGRESS: later, when no peer reads or writes the caller's memory. */
static tt_status end(struct tt_work *work, tt_status status)
{
    if (status) {
        if (work->state != TT_WORK_WITHDRAWING) set_withdrawal_deadline(work);
        work->state = TT_WORK_WITHDRAWING;
        work->status = status;
        TT_AWAIT(tt_work_regain_buffers(work));
    }
    tt_work_complete(work, status);
    return status;
}

tt_status tt_work_advance(struct tt_work *work)
{
    struct tt_engine *engine = work->engine;
    if (tt_work_is_done(work)) return work->status;
    if (atomic_load_explicit(turn_counter(work), memory_order_acquire) + 1 != work->turn)
        return TT_IN_PROGRESS; /* release: the call before, when it completed */
    if (atomic_exchange_explicit(&engine->busy, true, memory_order_acquire)) return TT_IN_PROGRESS;
    const uint64_t progress = work->progress;
    tt_status status = advance_in_turn(work);
    if (status == TT_IN_PROGRESS) status = drive_wires(work, progress);
    /* After a failure a peer may have freed what was read here by reference. */
    if (status == TT_OK) status = tt_fabric_check(engine->fabric);
    if (status < 0) status = tt_fabric_fail(engine->fabric, status, "%s", tt_last_error());
    if (status != TT_IN_PROGRESS) status = end(work, status);
    tt_engine_leave(engine);
    return status;
}

void tt_work_examine(struct tt_work *work)
{
    struct tt_engine *engine = work->engine;
    if (tt_work_is_done(work) ||
        atomic_exchange_explicit(&engine->busy, true, memory_order_acquire))
        return;
    tt_status status = work->state == TT_WORK_WITHDRAWING ? work->status : tt_work_check(work);
    if (status) status = end(work, status);
    tt_engine_leave(engine);
}
