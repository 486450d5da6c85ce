#include "executor/engine.h"

#include <sched.h>
#include <stdlib.h>

tt_status tt_engine_init(struct tt_engine *engine, struct tt_fabric *fabric, int64_t timeout_ms,
                         const char *name)
{
    const size_t n = (size_t)fabric->nranks;
    *engine = (struct tt_engine){.fabric = fabric, .timeout_ms = timeout_ms, .name = name};
    engine->sends_issued = calloc(n, sizeof *engine->sends_issued);
    engine->recvs_issued = calloc(n, sizeof *engine->recvs_issued);
    engine->sends_done = calloc(n, sizeof *engine->sends_done);
    engine->recvs_done = calloc(n, sizeof *engine->recvs_done);
    bool have =
        engine->sends_issued && engine->recvs_issued && engine->sends_done && engine->recvs_done;
    for (int c = 0; c < TT_COLLECTIVE_CHANNELS; c++) {
        engine->sources[c] = calloc(n + 1, sizeof *engine->sources[c]);
        engine->inputs[c] = calloc(n + 1, sizeof *engine->inputs[c]);
        engine->slots[c] = calloc(n, sizeof *engine->slots[c]);
        have = have && engine->sources[c] && engine->inputs[c] && engine->slots[c];
    }
    if (have) return TT_OK;
    tt_engine_fini(engine);
    return tt_fail(TT_ERR_SYSTEM, "out of memory for an engine of %zu ranks", n);
}

void tt_engine_fini(struct tt_engine *engine)
{
    if (engine->bounce)
        for (int r = 0; r < engine->fabric->nranks * TT_COLLECTIVE_CHANNELS; r++)
            free(engine->bounce[r]);
    free(engine->bounce);
    for (int c = 0; c < TT_COLLECTIVE_CHANNELS; c++) {
        free(engine->sources[c]);
        free(engine->inputs[c]);
        free(engine->slots[c]);
    }
    free(engine->scratch);
    free(engine->sends_issued);
    free(engine->recvs_issued);
    free((void *)engine->sends_done);
    free((void *)engine->recvs_done);
    *engine = (struct tt_engine){.fabric = engine->fabric};
}

void tt_engine_enter(struct tt_engine *engine)
{
    while (atomic_exchange_explicit(&engine->busy, true, memory_order_acquire))
        sched_yield(); /* A7 */
}

bool tt_engine_enter_if_idle(struct tt_engine *engine)
{
    return tt_engine_idle(engine) &&
           !atomic_exchange_explicit(&engine->busy, true, memory_order_acquire); /* A7 */
}

void tt_engine_leave(struct tt_engine *engine)
{
    atomic_store_explicit(&engine->busy, false, memory_order_release); /* R7 */
}

void tt_engine_look(struct tt_engine *engine)
{
    if (!engine->fabric->wires ||
        atomic_exchange_explicit(&engine->busy, true, memory_order_acquire))
        return; /* A7 */
    if (tt_wires_progress(engine->fabric->wires) < 0) tt_fabric_pass_on(engine->fabric);
    tt_engine_leave(engine);
}

size_t tt_engine_bytes(struct tt_engine *engine)
{
    const size_t n = (size_t)engine->fabric->nranks;
    tt_engine_enter(engine);
    size_t nbytes = sizeof *engine + engine->scratch_bytes + 4 * n * sizeof(uint64_t) +
                    TT_COLLECTIVE_CHANNELS * (3 * n + 2) * sizeof(void *);
    if (engine->bounce)
        for (size_t r = 0; r < n * TT_COLLECTIVE_CHANNELS; r++)
            nbytes += engine->bounce[r] ? engine->fabric->segment->header->slot_bytes : 0;
    if (engine->fabric->wires) nbytes += tt_wires_bytes(engine->fabric->wires);
    tt_engine_leave(engine);
    return nbytes;
}

bool tt_engine_idle(const struct tt_engine *engine)
{
    return atomic_load_explicit(&engine->outstanding, memory_order_acquire) == 0 &&
           !atomic_load_explicit(&engine->busy, memory_order_acquire);
}
