/* A fabric of several ranks in this process, for tests. */
#ifndef TT_TESTS_TRANSPORT_TOGETHER_H
#define TT_TESTS_TRANSPORT_TOGETHER_H

#include "transport/fabric.h"
#include "transport/wires.h"

/* Channels of two ranks in tests that ask for no others: two of collectives, and point to point's.
 */
enum { TOGETHER_CHANNELS = 3 };
/* Most ranks of a usual test, and of any. */
enum { TOGETHER_MAX = 8, TOGETHER_ROOM = 256 };
struct together {
    int nranks;
    struct tt_fabric *fabrics[TOGETHER_ROOM];
};

/* A buffer that lies in no window. */
static const struct tt_memory no_memory = {.window = TT_NO_WINDOW};

static inline struct tt_fabric_config together_config(void)
{
    return (struct tt_fabric_config){.nslots = 4,
                                     .slot_bytes = 8192,
                                     .meet_bytes = 1024,
                                     .nchannels = TOGETHER_CHANNELS,
                                     .allow_window = true};
}

/* host_of[r] names rank r's host; NULL: all are on this one. */
static inline bool together_open_on(struct together *all, int nranks, const uint64_t *host_of,
                                    const struct tt_fabric_config *config)
{
    struct tt_peer_info infos[TOGETHER_ROOM];
    int sockets[TOGETHER_ROOM];
    all->nranks = nranks;
    for (int r = 0; r < nranks; r++) {
        if (tt_peer_info_init(&infos[r], config, &sockets[r])) return false;
        if (host_of) infos[r].host_id = host_of[r];
    }
    for (int r = 0; r < nranks; r++)
        if (tt_fabric_begin(&all->fabrics[r], infos, r, nranks, sockets[r], config)) return false;
    for (int r = 0; r < nranks; r++)
        if (tt_fabric_attach(all->fabrics[r], INT64_MAX)) return false;
    for (int r = 0; r < nranks; r++) tt_fabric_finish(all->fabrics[r]);
    return true;
}

/* Joins the ranks of different hosts by wires. */
static inline bool together_join(struct together *all, const struct tt_fabric_config *config)
{
    const struct tt_wires_config wires = {.key = {4, 2},
                                          .nslots = config->nslots,
                                          .slot_bytes = config->slot_bytes,
                                          .allowed = tt_transports_named("tcp")};
    struct tt_wires_info infos[TOGETHER_MAX];
    for (int r = 0; r < all->nranks; r++)
        if (tt_wires_open(&all->fabrics[r]->wires, &wires, &infos[r])) return false;
    for (int r = 0; r < all->nranks; r++)
        if (tt_fabric_start_wires(all->fabrics[r], all->fabrics[r]->wires, infos)) return false;
    return true;
}

static inline bool together_open(struct together *all, int nranks,
                                 const struct tt_fabric_config *config)
{
    return together_open_on(all, nranks, NULL, config);
}

static inline void together_close(struct together *all)
{
    for (int r = 0; r < all->nranks; r++) tt_fabric_destroy(all->fabrics[r]);
}

#endif
