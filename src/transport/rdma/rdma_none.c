/* Replaces the other files of this folder when libibverbs' headers were missing at build time.
 * open() never returns a room, so no other function of the table is called. */
#include "base/log.h"
#include "transport/rdma/rdma.h"

static tt_status open_nothing(void **self, const struct tt_room_config *config)
{
    if (!config->encrypt)
        TT_INFO_ONCE("no RDMA: tutti was built without libibverbs (libibverbs-dev)");
    *self = NULL;
    return TT_OK;
}

const struct tt_transport tt_rdma_transport = {.name = "rdma", .open = open_nothing};
