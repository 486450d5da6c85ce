/* Tells other hosts that a communicator has failed, while this rank makes no call: ranks that
 * connect with it, because they wait for it, are answered by a thread until the communicator ends.
 */
#include <stdio.h>

#include "executor/engine.h"
#include "executor/stream.h"

enum { PAUSE_NS = 10000000 }; /* between two looks: a peer that waits needs three */

static int64_t tell(void *argument)
{
    struct tt_engine *engine = argument;
    tt_engine_enter(engine);
    tt_wires_tell(engine->fabric->wires);
    tt_engine_leave(engine);
    return PAUSE_NS;
}

void tt_engine_tell_failure(struct tt_engine *engine)
{
    struct tt_fabric *fabric = engine->fabric;
    char text[TT_ERROR_TEXT];
    if (!fabric->wires || engine->teller || !tt_fabric_failure(fabric, NULL)) return;
    snprintf(text, sizeof text, "%s", tt_last_error());
    tt_fabric_pass_on(fabric);
    tt_wires_begin_telling(fabric->wires);
    if (!tt_stream_create(&engine->teller)) tt_stream_watch(engine->teller, tell, engine);
    tt_set_last_error(text);
}

void tt_engine_stop_telling(struct tt_engine *engine)
{
    tt_stream_destroy(engine->teller);
    engine->teller = NULL;
}
