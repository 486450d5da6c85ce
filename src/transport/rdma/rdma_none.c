/* In place of the other rdma_*.c where libibverbs' headers were missing at build time: no wire is
 * ever made. */
#include "base/log.h"
#include "transport/rdma/rdma.h"

tt_status tt_rdma_open(struct tt_rdma **rdma, size_t nslots, size_t slot_bytes)
{
    (void)nslots, (void)slot_bytes;
    TT_INFO_ONCE("no RDMA: tutti was built without libibverbs (libibverbs-dev)");
    *rdma = NULL;
    return TT_OK;
}

void tt_rdma_start(struct tt_rdma *rdma, const struct tt_room_context *context)
{
    (void)rdma, (void)context;
}

tt_status tt_rdma_watch(struct tt_rdma *rdma, int epoll, void *mark)
{
    (void)rdma, (void)epoll, (void)mark;
    return TT_OK;
}

void tt_rdma_hush(struct tt_rdma *rdma)
{
    (void)rdma;
}

void tt_rdma_close(struct tt_rdma *rdma)
{
    (void)rdma;
}

tt_status tt_rdma_wire_create(struct tt_rdma_wire **wire, struct tt_rdma *rdma, int peer,
                              struct tt_rdma_offer *offer)
{
    (void)wire, (void)rdma, (void)peer;
    offer->nbytes = 0;
    return TT_ERR_SYSTEM;
}

tt_status tt_rdma_wire_connect(struct tt_rdma_wire *wire, const struct tt_rdma_offer *theirs)
{
    (void)wire, (void)theirs;
    return TT_ERR_SYSTEM;
}

void tt_rdma_wire_quiet(struct tt_rdma_wire *wire)
{
    (void)wire;
}

void tt_rdma_wire_lost(struct tt_rdma_wire *wire)
{
    (void)wire;
}

void tt_rdma_wire_destroy(struct tt_rdma_wire *wire)
{
    (void)wire;
}

struct tt_link *tt_rdma_tx(struct tt_rdma_wire *wire, int channel)
{
    (void)wire, (void)channel;
    return NULL;
}

struct tt_link *tt_rdma_rx(struct tt_rdma_wire *wire, int channel)
{
    (void)wire, (void)channel;
    return NULL;
}

tt_status tt_rdma_wire_progress(struct tt_rdma_wire *wire)
{
    (void)wire;
    return TT_OK;
}

bool tt_rdma_wire_sent(struct tt_rdma_wire *wire)
{
    (void)wire;
    return true;
}

bool tt_rdma_wire_flushed(struct tt_rdma_wire *wire)
{
    (void)wire;
    return true;
}

void tt_rdma_wire_give_back(struct tt_rdma_wire *wire)
{
    (void)wire;
}

bool tt_rdma_wire_arm(struct tt_rdma_wire *wire)
{
    (void)wire;
    return true;
}

void tt_rdma_wire_describe(const struct tt_rdma_wire *wire, char *text, size_t size)
{
    (void)wire;
    if (size) *text = 0;
}

size_t tt_rdma_wire_bytes(const struct tt_rdma_wire *wire)
{
    (void)wire;
    return 0;
}
