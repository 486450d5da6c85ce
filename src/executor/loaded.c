/* Looks up the links of a program once, when the program is loaded. */
#include "executor/loaded.h"

#include <stdlib.h>

tt_status tt_loaded_create(struct tt_program *program, struct tt_fabric *fabric,
                           struct tt_loaded **out)
{
    const uint32_t nlinks = program->nlinks;
    if (program->nchannels > tt_fabric_nchannels(fabric)) {
        const int need = program->nchannels;
        free(program);
        return tt_fail(TT_ERR_USAGE,
                       "an algorithm uses %d channels and the communicator has %d: set "
                       "TUTTI_CHANNELS to at least %d on all ranks, or choose another algorithm",
                       need, tt_fabric_nchannels(fabric), need);
    }
    struct tt_loaded *loaded = calloc(1, sizeof *loaded);
    struct tt_link **links = malloc((nlinks ? nlinks : 1) * sizeof(struct tt_link *));
    if (!loaded || !links) {
        free(loaded);
        free(links);
        free(program);
        return tt_fail(TT_ERR_SYSTEM, "out of memory for the %u links of a program", nlinks);
    }
    for (uint32_t i = 0; i < nlinks; i++) {
        const struct tt_program_link *link = &tt_program_links(program)[i];
        links[i] = link->outgoing ? tt_fabric_tx(fabric, link->peer, link->channel)
                                  : tt_fabric_rx(fabric, link->peer, link->channel);
    }
    *loaded = (struct tt_loaded){.program = program,
                                 .links = links,
                                 .nbytes = sizeof *loaded + nlinks * sizeof(struct tt_link *) +
                                           program->nbytes};
    *out = loaded;
    return TT_OK;
}

void tt_loaded_destroy(struct tt_loaded *loaded)
{
    if (!loaded) return;
    free(loaded->links);
    free(loaded->program);
    free(loaded);
}
