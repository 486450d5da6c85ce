#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "executor/internal.h"

/* Results of at least this many bytes do not stay in the caches anyway. */
enum { NONTEMPORAL_MIN_BYTES = 1 << 20 };
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

/* The same on every rank exactly when the calls agree (up to a hash). */
uint64_t tt_call_signature(const struct tt_call *call)
{
    const struct tt_shape *shape = &call->schedule->shape;
    const uint64_t kinds = (uint64_t)shape->collective | (uint64_t)call->reduction.type << 8 |
                           (uint64_t)call->reduction.op << 16 | (uint64_t)call->algorithm << 24 |
                           (uint64_t)(uint32_t)shape->root << 32;
    return mix(kinds) ^ mix(call->count + 0x9e3779b97f4a7c15ull);
}

uint64_t tt_turn_signature(uint64_t call_signature, uint64_t turn)
{
    return mix(call_signature ^ turn) & ~(1ull << 63);
}

static size_t elements_per_slot(const struct tt_binding *bound, size_t nbytes, int nblocks)
{
    const size_t fit = nbytes / bound->element / (size_t)(nblocks > 0 ? nblocks : 1);
    const size_t align = bound->geometry.align;
    return fit >= align ? fit / align * align : fit;
}

/* Cuts the parts of the blocks into rounds so that each message fits a slot, each contribution a
 * meeting place. */
static void cut_into_rounds(struct tt_binding *bound, const struct tt_schedule *schedule,
                            const struct tt_segment_header *header)
{
    const size_t largest = tt_geometry_largest_part(&bound->geometry);
    size_t piece = elements_per_slot(bound, header->slot_bytes, schedule->message);
    if (schedule->meets) {
        const size_t meet = elements_per_slot(bound, header->meet_bytes, schedule->nblocks);
        if (meet < piece) piece = meet;
    }
    bound->piece = piece < largest ? piece : largest;
    bound->nrounds = bound->piece ? (largest + bound->piece - 1) / bound->piece : 1;
    bound->merged = bound->nrounds == 1 && schedule->nchannels == 1;
}

static void bind_count(struct tt_binding *bound, const struct tt_schedule *schedule, size_t count,
                       size_t element, const struct tt_segment_header *header)
{
    *bound = (struct tt_binding){.count = count, .element = element, .nrounds = 1};
    bound->geometry =
        (struct tt_geometry){.count = count,
                             .nblocks = schedule->nblocks,
                             .nchannels = schedule->nchannels,
                             .align = TT_LINE / element,
                             .split = tt_collective_splits(schedule->shape.collective)};
    if (!schedule->nblocks) return;
    bound->total = count * (bound->geometry.split ? 1 : (size_t)schedule->nblocks);
    bound->nontemporal = bound->total * element >= NONTEMPORAL_MIN_BYTES;
    cut_into_rounds(bound, schedule, header);
    for (int b = TT_INPUT; b <= TT_OUTPUT; b++) {
        int first = 0;
        size_t begin = 0;
        if (tt_buffer_blocks(&schedule->shape, schedule->nblocks, (enum tt_buffer)b, schedule->rank,
                             &first) > 0)
            tt_geometry_block(&bound->geometry, first, &begin);
        bound->skipped[b] = begin * element;
    }
}

void tt_work_begin(struct tt_work *work, struct tt_engine *engine, const struct tt_call *call,
                   uint64_t turn)
{
    const struct tt_schedule *schedule = call->schedule;
    const size_t element = tt_type_size(call->reduction.type);
    *work = (struct tt_work){.engine = engine, .kind = TT_WORK_COLLECTIVE, .call = *call};
    work->turn = turn;
    atomic_fetch_add_explicit(&engine->outstanding, 1, memory_order_relaxed);
    work->signature = tt_turn_signature(tt_call_signature(call), turn);
    struct tt_binding *memo = call->memo ? call->memo : &work->bound;
    if (memo->element != element || memo->count != call->count)
        bind_count(memo, schedule, call->count, element, engine->fabric->segment->header);
    work->bound = *memo;
    const bool scaled = call->reduction.op == TT_PREMUL_SUM;
    work->origin[TT_INPUT] = (uintptr_t)call->input - memo->skipped[TT_INPUT];
    work->origin[TT_OUTPUT] = (uintptr_t)call->output - memo->skipped[TT_OUTPUT];
    work->direct[TT_INPUT] = schedule->algorithm->direct_safe && !scaled;
    work->direct[TT_OUTPUT] = schedule->algorithm->direct_safe;
    const bool nothing = call->count == 0 && schedule->nblocks > 0;
    for (int c = 0; c < schedule->nchannels; c++) work->channels[c].done = nothing;
}

void tt_work_collective(struct tt_work *work, struct tt_engine *engine, const struct tt_call *call)
{
    tt_work_begin(work, engine, call, ++engine->collectives_issued);
}

static void init_p2p(struct tt_work *work, struct tt_engine *engine, enum tt_work_kind kind,
                     char *data, size_t nbytes, int peer)
{
    *work = (struct tt_work){.engine = engine,
                             .kind = kind,
                             .peer = peer,
                             .data = data,
                             .nbytes = nbytes,
                             .bound.nontemporal = nbytes >= NONTEMPORAL_MIN_BYTES};
    atomic_fetch_add_explicit(&engine->outstanding, 1, memory_order_relaxed);
    work->turn = kind == TT_WORK_SEND ? ++engine->sends_issued[peer] : ++engine->recvs_issued[peer];
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

void tt_transfer(const struct tt_work *work, void *target, const void *source, size_t count,
                 unsigned flags)
{
    const struct tt_reduction *reduction = &work->call.reduction;
    const bool scale = (flags & TT_SCALE_FIRST) && reduction->op == TT_PREMUL_SUM;
    const bool changes = reduction->op == TT_AVG || reduction->op >= TT_LOGICAL_AND; /* 0 or 1 */
    const bool finish = (flags & TT_FINISH) && changes;
    if (scale || finish)
        tt_reduce(reduction, target, &source, 1, count, flags);
    else if (target != source)
        tt_copy(target, source, count * work->bound.element, flags & TT_NONTEMPORAL);
}

unsigned tt_source_flags(const struct tt_work *work, const struct tt_span *span)
{
    return span->buffer == TT_INPUT && work->call.reduction.op == TT_PREMUL_SUM ? TT_SCALE_FIRST
                                                                                : 0;
}

/* ---- Running ------------------------------------------------------------------------------------
 */

static _Atomic uint64_t *turn_counter(const struct tt_work *work)
{
    switch (work->kind) {
    case TT_WORK_SEND:
        return &work->engine->sends_done[work->peer];
    case TT_WORK_RECV:
        return &work->engine->recvs_done[work->peer];
    default:
        return &work->engine->collectives_done;
    }
}

static tt_status ensure_scratch(struct tt_work *work)
{
    const struct tt_schedule *schedule = work->call.schedule;
    struct tt_engine *engine = work->engine;
    const size_t need = (size_t)schedule->nscratch * (size_t)schedule->nchannels *
                        work->bound.piece * work->bound.element;
    if (need <= engine->scratch_bytes) return TT_OK;
    free(engine->scratch);
    engine->scratch_bytes = 0;
    engine->scratch = aligned_alloc(TT_LINE, (need + TT_LINE - 1) / TT_LINE * TT_LINE);
    if (!engine->scratch)
        return tt_fail(TT_ERR_SYSTEM, "out of memory for %zu bytes of scratch space", need);
    engine->scratch_bytes = need;
    return TT_OK;
}

static void next_step(struct tt_work *work, int channel)
{
    struct tt_work_channel *state = &work->channels[channel];
    state->ready = state->nslots = 0;
    state->entered = state->asked = false;
    work->progress++;
    if (++state->step < work->call.schedule->nsteps[channel]) return;
    state->step = 0;
    state->done = ++state->round >= work->bound.nrounds;
}

static tt_status advance_channel(struct tt_work *work, int channel)
{
    const struct tt_schedule *schedule = work->call.schedule;
    struct tt_work_channel *state = &work->channels[channel];
    if (schedule->nsteps[channel] == 0) state->done = true;
    while (!state->done) {
        const struct tt_step *step = &schedule->steps[channel][state->step];
        TT_TRY(step->kind == TT_STEP_MEET ? tt_step_meet(work, channel, step)
                                          : tt_step_link(work, channel, step));
        next_step(work, channel);
    }
    return TT_OK;
}

/* References that receivers have not taken yet keep the caller's buffers in use. */
static bool references_taken(struct tt_work *work)
{
    struct tt_fabric *fabric = work->engine->fabric;
    const struct tt_schedule *schedule = work->call.schedule;
    if (!work->waits_for_drain) return true;
    for (int channel = 0; channel < schedule->nchannels; channel++)
        for (int s = 0; s < schedule->nsteps[channel]; s++) {
            const struct tt_peers *to = &schedule->steps[channel][s].send;
            for (int i = 0; i < to->number; i++) {
                struct tt_link *link =
                    tt_fabric_tx(fabric, tt_peer_at(to, i, fabric->nranks), channel);
                if (!link->ops->drained(link)) return false;
            }
        }
    return true;
}

static tt_status advance_collective(struct tt_work *work)
{
    bool waiting = false;
    for (int channel = 0; channel < work->call.schedule->nchannels; channel++) {
        const tt_status status = advance_channel(work, channel);
        if (status < 0) return status;
        waiting |= status == TT_IN_PROGRESS;
    }
    return waiting || !references_taken(work) ? TT_IN_PROGRESS : TT_OK;
}

static tt_status start(struct tt_work *work)
{
    TT_TRY(tt_fabric_check(work->engine->fabric)); /* issued before the failure */
    work->started = true;
    work->engine->report_ns = 0;
    if (work->kind != TT_WORK_COLLECTIVE) return TT_OK;
    if (work->call.scalar)
        memcpy(work->call.reduction.scalar, work->call.scalar, work->bound.element);
    tt_record_entry(work->engine, &work->call, work->turn);
    return ensure_scratch(work);
}

/* Whether all that was published or released will arrive, even if this rank never calls again. */
static bool is_flushed(const struct tt_work *work)
{
    struct tt_fabric *fabric = work->engine->fabric;
    if (!fabric->wires) return true;
    if (work->kind == TT_WORK_COLLECTIVE) return tt_wires_flushed(fabric->wires);
    struct tt_link *link = work->kind == TT_WORK_SEND
                               ? tt_fabric_tx(fabric, work->peer, TT_P2P_CHANNEL)
                               : tt_fabric_rx(fabric, work->peer, TT_P2P_CHANNEL);
    return link->ops->flushed(link);
}

static tt_status advance_in_turn(struct tt_work *work)
{
    if (!work->started) TT_TRY(start(work));
    if (!work->finished)
        TT_TRY(work->kind == TT_WORK_COLLECTIVE ? advance_collective(work) : tt_p2p_advance(work));
    work->finished = true;
    return is_flushed(work) ? TT_OK : TT_IN_PROGRESS;
}

/* A link that is asked pushes its own wire; what else comes from other hosts is seen to now and
 * then: rarely where that are only words beside the data. */
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

/* The caller's buffers are its own again: nothing may be delivered there any more. */
static void take_back(struct tt_work *work)
{
    struct tt_fabric *fabric = work->engine->fabric;
    if (work->kind == TT_WORK_RECV && work->started) {
        struct tt_link *link = tt_fabric_rx(fabric, work->peer, TT_P2P_CHANNEL);
        link->ops->expect(link, NULL, 0, 0);
    }
    if (fabric->wires) tt_wires_give_back(fabric->wires);
    if (work->kind != TT_WORK_COLLECTIVE) return;
    for (int channel = 0; channel < work->call.schedule->nchannels; channel++)
        if (work->channels[channel].asked)
            tt_step_expect(work, channel,
                           &work->call.schedule->steps[channel][work->channels[channel].step], NULL,
                           0);
}

void tt_work_complete(struct tt_work *work, tt_status status)
{
    if (status) take_back(work);
    if (status) tt_fabric_pass_on(work->engine->fabric);
    work->done = true;
    work->status = status;
    work->progress++;
    if (work->kind == TT_WORK_COLLECTIVE && status == TT_OK)
        atomic_store_explicit(&work->engine->fabric->record->done, work->turn,
                              memory_order_release);
    atomic_store_explicit(turn_counter(work), work->turn, memory_order_release); /* R8 */
    atomic_fetch_sub_explicit(&work->engine->outstanding, 1, memory_order_release);
}

tt_status tt_work_advance(struct tt_work *work)
{
    struct tt_engine *engine = work->engine;
    if (work->done) return work->status;
    if (atomic_load_explicit(turn_counter(work), memory_order_acquire) + 1 != work->turn)
        return TT_IN_PROGRESS; /* A8 */
    if (atomic_exchange_explicit(&engine->busy, true, memory_order_acquire))
        return TT_IN_PROGRESS; /* A7 */
    const uint64_t progress = work->progress;
    tt_status status = advance_in_turn(work);
    if (status == TT_IN_PROGRESS) status = drive_wires(work, progress);
    /* After a failure a peer may have freed what was read here by reference. */
    if (status == TT_OK) status = tt_fabric_check(engine->fabric);
    if (status < 0) status = tt_fabric_fail(engine->fabric, status, "%s", tt_last_error());
    if (status != TT_IN_PROGRESS) tt_work_complete(work, status);
    tt_engine_leave(engine);
    return status;
}

void tt_work_examine(struct tt_work *work)
{
    struct tt_engine *engine = work->engine;
    if (work->done || atomic_exchange_explicit(&engine->busy, true, memory_order_acquire))
        return; /* A7 */
    const tt_status status = tt_work_check(work);
    if (status) tt_work_complete(work, status);
    tt_engine_leave(engine);
}
