/* What all carriers share: lists of calls, and the failure of a call that this rank cannot make. */
#include "carrier/carrier.h"

#include <stdio.h>

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

tt_status tt_core_fail_call(struct tt_comm_core *core, tt_status status)
{
    char text[TT_ERROR_TEXT], name[128] = "";
    snprintf(text, sizeof text, "%s", tt_last_error());
    if (status != TT_ERR_REMOTE) tt_fabric_name_rank(core->fabric, core->rank, name, sizeof name);
    tt_engine_enter(&core->engine);
    const tt_status failed =
        tt_fabric_fail(core->fabric, status, "%s%s%s", name, *name ? ": " : "", text);
    tt_engine_leave(&core->engine);
    return failed;
}

tt_status tt_carrier_load(const struct tt_comm_core *core, struct tt_program *program,
                          struct tt_loaded **loaded)
{
    return tt_loaded_create(program, core->fabric, loaded);
}
