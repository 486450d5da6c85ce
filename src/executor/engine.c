/* Creates and destroys an engine, and guards it: one thread at a time advances its operations. */
#include "executor/engine.h"

#include <stdlib.h>

#include "base/config.h"
#include "base/pause.h"
#include "executor/stream.h"
#include "program/program.h"

static bool allocate(struct tt_engine *engine, size_t n)
{
    engine->sends_issued = calloc(n, sizeof *engine->sends_issued);
    engine->recvs_issued = calloc(n, sizeof *engine->recvs_issued);
    engine->sends_done = calloc(n, sizeof *engine->sends_done);
    engine->recvs_done = calloc(n, sizeof *engine->recvs_done);
    bool have =
        engine->sends_issued && engine->recvs_issued && engine->sends_done && engine->recvs_done;
    const int nchannels = tt_fabric_nchannels(engine->fabric);
    engine->positions = calloc((size_t)nchannels, sizeof *engine->positions);
    engine->pointers = calloc((size_t)nchannels, sizeof *engine->pointers);
    engine->meetings = aligned_alloc(TT_CACHE_LINE, (size_t)nchannels * sizeof *engine->meetings);
    have = have && engine->positions && engine->pointers && engine->meetings;
    for (int c = 0; engine->meetings && c < nchannels; c++)
        engine->meetings[c] = (struct tt_meeting){.number = 0};
    for (int c = 0; have && c < nchannels; c++) {
        struct tt_step_pointers *pointers = &engine->pointers[c];
        pointers->messages = calloc(n + 1, sizeof *pointers->messages);
        pointers->inputs = calloc(n + 1, sizeof *pointers->inputs);
        pointers->raw = calloc(n + 1, sizeof *pointers->raw);
        pointers->raw_messages = calloc(n, sizeof *pointers->raw_messages);
        pointers->slots = calloc(n, sizeof *pointers->slots);
        pointers->claimed = calloc(n, sizeof *pointers->claimed);
        pointers->nontemporal = calloc(n, sizeof *pointers->nontemporal);
        pointers->targets = calloc(n + 1, sizeof *pointers->targets);
        have = pointers->messages && pointers->inputs && pointers->raw && pointers->raw_messages &&
               pointers->slots && pointers->claimed && pointers->nontemporal && pointers->targets;
    }
    return have;
}

const char *tt_timeout_source(int64_t timeout_ms)
{
    return timeout_ms == tt_config_int(TT_CONFIG_TIMEOUT_MS) ? "TUTTI_TIMEOUT_MS"
                                                             : "set by the program";
}

tt_status tt_engine_init(struct tt_engine *engine, struct tt_fabric *fabric, int64_t timeout_ms,
                         const char *name)
{
    const size_t n = (size_t)fabric->nranks;
    *engine = (struct tt_engine){.fabric = fabric, .timeout_ms = timeout_ms, .name = name};
    tt_status status = allocate(engine, n)
                           ? TT_OK
                           : tt_fail(TT_ERR_SYSTEM, "out of memory for an engine of %zu ranks", n);
    for (int c = 0; c < tt_fabric_nchannels(fabric) && !status; c++)
        status = tt_meeting_init(&engine->meetings[c], fabric->segment, &fabric->host.sleep, c);
    engine->lacks_core = !fabric->spares_core;
    if (engine->lacks_core) tt_streams_count_lacking(1);
    if (status) tt_engine_fini(engine);
    return status;
}

void tt_engine_fini(struct tt_engine *engine)
{
    const int nchannels = tt_fabric_nchannels(engine->fabric);
    if (engine->lacks_core) tt_streams_count_lacking(-1);
    if (engine->bounce)
        for (int r = 0; r < engine->fabric->nranks * nchannels; r++) free(engine->bounce[r]);
    free(engine->bounce);
    for (int c = 0; engine->pointers && c < nchannels; c++) {
        free(engine->pointers[c].messages);
        free(engine->pointers[c].inputs);
        free(engine->pointers[c].raw);
        free(engine->pointers[c].raw_messages);
        free(engine->pointers[c].slots);
        free(engine->pointers[c].claimed);
        free(engine->pointers[c].nontemporal);
        free(engine->pointers[c].targets);
    }
    free(engine->pointers);
    free(engine->positions);
    for (int c = 0; engine->meetings && c < nchannels; c++) tt_meeting_fini(&engine->meetings[c]);
    free(engine->meetings);
    free(engine->scratch);
    free(engine->sends_issued);
    free(engine->recvs_issued);
    free((void *)engine->sends_done);
    free((void *)engine->recvs_done);
    *engine = (struct tt_engine){.fabric = engine->fabric};
}

void tt_engine_enter(struct tt_engine *engine)
{
    struct tt_pause pause = {0};
    while (!tt_engine_try_enter(engine)) tt_pause(&pause);
}

void tt_engine_look(struct tt_engine *engine)
{
    if (!engine->fabric->wires || !tt_engine_try_enter(engine)) return;
    if (tt_wires_progress(engine->fabric->wires) < 0) tt_fabric_pass_on(engine->fabric);
    tt_engine_leave(engine);
}

tt_status tt_engine_check_rank(struct tt_engine *engine, int rank)
{
    const struct tt_wires *wires = engine->fabric->wires;
    tt_status status;
    tt_engine_look(engine);
    TT_TRY(tt_fabric_check_rank(engine->fabric, rank));
    if (!wires || !tt_engine_try_enter(engine)) return TT_OK;
    const char *lost = tt_wires_lost_peer(wires, rank);
    status = lost ? tt_fail(TT_ERR_REMOTE, "%s", lost) : TT_OK;
    tt_engine_leave(engine);
    return status;
}

size_t tt_engine_bytes(struct tt_engine *engine)
{
    const size_t n = (size_t)engine->fabric->nranks;
    const size_t nchannels = (size_t)tt_fabric_nchannels(engine->fabric);
    const size_t nplaces = 2 * ((size_t)engine->fabric->nlocal + 1);
    const size_t a_channel = sizeof *engine->pointers + sizeof *engine->positions +
                             sizeof *engine->meetings + (3 * n + 2 + nplaces) * sizeof(void *) +
                             (4 * n + 1) * sizeof(bool) + (n + 1) * sizeof(struct tt_target);
    tt_engine_enter(engine);
    size_t nbytes = engine->scratch_bytes + 4 * n * sizeof(uint64_t) + nchannels * a_channel +
                    tt_fabric_bytes(engine->fabric);
    if (engine->bounce) nbytes += n * nchannels * sizeof *engine->bounce;
    for (size_t r = 0; engine->bounce && r < n * nchannels; r++)
        nbytes += engine->bounce[r] ? engine->fabric->segment->header->slot_bytes : 0;
    tt_engine_leave(engine);
    return nbytes;
}
