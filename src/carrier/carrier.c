/* What carriers share: lists of calls, the failure of a call that this rank cannot make, functions
 * of their tables. */
#include "carrier/carrier.h"

#include <stdio.h>
#include <stdlib.h>

#include "driver/context.h"

void tt_calls_drop_gone(struct tt_calls *calls)
{
    struct tt_pending_call **at = &calls->first;
    while (*at)
        if ((*at)->is_gone)
            *at = (*at)->next;
        else
            at = &(*at)->next;
    calls->last = at;
}

void tt_call_free_own(struct tt_pending_call *call)
{
    if (tt_call_has_table(call)) free((void *)(uintptr_t)call->call.binding);
    free(call->stage);
}

tt_status tt_core_fail_call(struct tt_comm_core *core, tt_status status)
{
    tt_engine_enter(&core->engine);
    const tt_status failed = tt_fabric_fail_here(core->fabric, status);
    tt_engine_tell_failure(&core->engine);
    tt_engine_leave(&core->engine);
    return failed;
}

tt_status tt_core_tell_failure(struct tt_comm_core *core, tt_status status)
{
    const bool is_local = status == TT_ERR_SYSTEM || status == TT_ERR_DEVICE;
    if (!is_local || core->nranks == 1 || tt_fabric_has_failed(core->fabric)) return status;
    return tt_core_fail_call(core, status);
}

void tt_core_tell_others(struct tt_comm_core *core, tt_status status, const char *does)
{
    char own[TT_ERROR_TEXT], name[128];
    if (core->nranks == 1) return;
    snprintf(own, sizeof own, "%s", tt_last_error());
    tt_fabric_name_rank(core->fabric, core->rank, name, sizeof name);
    tt_engine_enter(&core->engine);
    tt_ignore(tt_fabric_fail(core->fabric, status, "%s %s: %s", name, does, own));
    tt_engine_tell_failure(&core->engine);
    tt_engine_leave(&core->engine);
    tt_set_last_error(own);
}

bool tt_carrier_limits_of_mixed(const struct tt_comm_core *core, struct tt_carrier_limits *limits)
{
    const struct tt_mixed_ranks *mixed = &core->fabric->mixed;
    if (!mixed->is_mixed) return false;
    *limits = (struct tt_carrier_limits){.slot_bytes = mixed->slot_bytes,
                                         .meet_bytes = mixed->slot_bytes,
                                         .slot_setting = mixed->slot_bytes,
                                         .nparts = mixed->nparts,
                                         .of_gpus = true,
                                         .no_meetings = true};
    return true;
}

void tt_carrier_limits_of_host(const struct tt_comm_core *core, struct tt_carrier_limits *limits)
{
    const struct tt_segment_header *header = core->fabric->segment->header;
    if (tt_carrier_limits_of_mixed(core, limits)) return;
    *limits =
        (struct tt_carrier_limits){.slot_bytes = header->slot_bytes,
                                   .meet_bytes = header->meet_bytes,
                                   .slot_setting = core->fabric->peers[core->rank].slot_bytes};
}

tt_status tt_carrier_load(const struct tt_comm_core *core, struct tt_program *program,
                          struct tt_loaded **loaded)
{
    return tt_loaded_create(program, core->fabric, loaded);
}

tt_status tt_carrier_enter(struct tt_comm_core *core)
{
    return tt_context_enter(core->context);
}

void tt_carrier_leave(struct tt_comm_core *core)
{
    tt_context_leave(core->context);
}
