/* Looks up the links of a program and its copies once, when the program is loaded. */
#include "executor/loaded.h"

#include <stdlib.h>

static int count_copies(const struct tt_program *program, const struct tt_fabric *fabric)
{
    const int most = tt_fabric_nchannels(fabric) / program->nchannels;
    const int wanted = fabric->mixed.is_mixed ? fabric->mixed.nparts / program->nchannels
                                              : (int)fabric->peers[fabric->rank].copies;
    return wanted < 1 ? 1 : wanted < most ? wanted : most;
}

static void resolve(const struct tt_loaded *loaded, struct tt_fabric *fabric, int copy)
{
    const struct tt_program *program = loaded->program;
    struct tt_link **links = tt_loaded_links(loaded, copy);
    for (uint32_t i = 0; i < program->nlinks; i++) {
        const struct tt_program_link *link = &tt_program_links(program)[i];
        const int channel = copy * program->nchannels + link->channel;
        links[i] = link->outgoing ? tt_fabric_tx(fabric, link->peer, channel)
                                  : tt_fabric_rx(fabric, link->peer, channel);
    }
}

tt_status tt_loaded_create_for_device(struct tt_program *program, int copies,
                                      struct tt_loaded **out)
{
    struct tt_loaded *loaded = calloc(1, sizeof *loaded);
    if (!loaded) {
        free(program);
        return tt_fail(TT_ERR_SYSTEM, "out of memory for a program");
    }
    *loaded = (struct tt_loaded){
        .program = program, .copies = copies, .nbytes = sizeof *loaded + program->nbytes};
    *out = loaded;
    return TT_OK;
}

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
    const int copies = count_copies(program, fabric);
    const size_t links_bytes = (size_t)copies * nlinks * sizeof(struct tt_link *);
    struct tt_loaded *loaded = calloc(1, sizeof *loaded);
    struct tt_link **links = malloc(links_bytes ? links_bytes : 1);
    if (!loaded || !links) {
        free(loaded);
        free(links);
        free(program);
        return tt_fail(TT_ERR_SYSTEM, "out of memory for the %u links of a program", nlinks);
    }
    *loaded = (struct tt_loaded){.program = program,
                                 .copies = copies,
                                 .links = links,
                                 .nbytes = sizeof *loaded + links_bytes + program->nbytes};
    for (int copy = 0; copy < copies; copy++) resolve(loaded, fabric, copy);
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
