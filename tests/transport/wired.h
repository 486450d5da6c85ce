/* Ranks of this process that act as different hosts, joined by wires. */
#ifndef TT_TESTS_TRANSPORT_WIRED_H
#define TT_TESTS_TRANSPORT_WIRED_H

#include <stdlib.h>
#include <string.h>

#include "base/config.h"
#include "transport/together.h"
#include "transport/wires.h"

struct wired {
    struct together ranks;
    struct tt_wires *wires[TOGETHER_MAX];
    struct tt_wires_info infos[TOGETHER_MAX];
};

static inline struct tt_wires_config wired_config(void)
{
    return (struct tt_wires_config){
        .key = {1, 2, 3}, .nslots = 4, .slot_bytes = 65536, .allowed = tt_transports_named("tcp")};
}

/* nchannels: of two ranks, that of point to point too. */
static inline bool wired_open_with(struct wired *all, int nranks,
                                   const struct tt_wires_config *config, int nchannels)
{
    static const uint64_t hosts[TOGETHER_MAX] = {1, 2, 3, 4, 5, 6, 7, 8};
    const struct tt_fabric_config fabric = {.nslots = config->nslots,
                                            .slot_bytes = config->slot_bytes,
                                            .meet_bytes = 1024,
                                            .nchannels = nchannels};
    *all = (struct wired){0};
    if (!together_open_on(&all->ranks, nranks, hosts, &fabric)) return false;
    for (int r = 0; r < nranks; r++)
        if (tt_wires_open(&all->wires[r], config, &all->infos[r])) return false;
    for (int r = 0; r < nranks; r++)
        if (tt_fabric_start_wires(all->ranks.fabrics[r], all->wires[r], all->infos)) return false;
    return true;
}

static inline bool wired_open(struct wired *all, int nranks, const struct tt_wires_config *config)
{
    return wired_open_with(all, nranks, config, TOGETHER_CHANNELS);
}

static inline void wired_close(struct wired *all)
{
    for (int r = 0; r < all->ranks.nranks; r++) tt_wires_destroy(all->wires[r]);
    together_close(&all->ranks);
}

/* A turn of everyone's wait loop; false when somebody's communicator has failed. */
static inline bool wired_turn(struct wired *all)
{
    for (int r = 0; r < all->ranks.nranks; r++)
        if (tt_wires_progress(all->wires[r]) < 0) return false;
    return true;
}

/* Memory of a message for a rank, waiting for it; NULL after a failure. */
static inline void *wired_slot(struct wired *all, int from, int to, int channel, size_t nbytes)
{
    struct tt_link *link = tt_wires_tx(all->wires[from], to, channel);
    void *slot;
    while (!(slot = link->ops->slot(link, nbytes)))
        if (!wired_turn(all)) return NULL;
    return slot;
}

static inline bool wired_peek(struct wired *all, int from, int to, int channel,
                              struct tt_message *message)
{
    struct tt_link *link = tt_wires_rx(all->wires[to], from, channel);
    tt_status status;
    while ((status = link->ops->peek(link, message)) == TT_IN_PROGRESS)
        if (!wired_turn(all)) return false;
    return status == TT_OK;
}

static inline void wired_fill(void *data, size_t nbytes, unsigned seed)
{
    for (size_t i = 0; i < nbytes; i++) ((unsigned char *)data)[i] = (unsigned char)(i * 7 + seed);
}

static inline bool wired_matches(const void *data, size_t nbytes, unsigned seed)
{
    for (size_t i = 0; i < nbytes; i++)
        if (((const unsigned char *)data)[i] != (unsigned char)(i * 7 + seed)) return false;
    return true;
}

#endif
