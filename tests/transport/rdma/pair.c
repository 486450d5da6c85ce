/* Joins two ranks of this process by RDMA. */
#include "transport/rdma/pair.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/config.h"
#include "shim.h"

const struct tt_room_config pair_config = {
    .nslots = PAIR_SLOTS, .slot_bytes = PAIR_SLOT_BYTES, .gpu_path = ""};

const char *pair_unable(void)
{
    const struct tt_verbs *verbs = tt_verbs_load();
    struct ibv_device **list = verbs ? verbs->get_device_list(NULL) : NULL;
    const bool some = list && list[0];
    if (list) verbs->free_device_list(list);
    return some ? NULL
                : "no RDMA device here; tests/transport/rdma/suite.sh runs this in a virtual "
                  "machine";
}

/* "=rxe0" for rank 0, "=rxe1" for rank 1 if there are two. */
static void set_one_device(int rank)
{
    int n;
    char name[80];
    const struct tt_verbs *verbs = tt_verbs_load();
    struct ibv_device **list = verbs->get_device_list(&n);
    snprintf(name, sizeof name, "=%s", verbs->get_device_name(list[rank % n]));
    verbs->free_device_list(list);
    setenv("TUTTI_RDMA_DEVICE", name, 1);
}

bool pair_open(struct pair *pair, const char *low_devices, const char *high_devices)
{
    struct tt_fabric_config config = together_config();
    *pair = (struct pair){0};
    if (!together_open(&pair->all, 2, &config)) return false;
    for (int r = 0; r < 2; r++) {
        set_one_device(r);
        if (low_devices) setenv("TUTTI_RDMA_DEVICE", r ? high_devices : low_devices, 1);
        tt_config_reload();
        const tt_status status = tt_rdma_open(&pair->rdma[r], &pair_config);
        CHECK_MESSAGE(status == TT_OK && pair->rdma[r], "rank %d: %s", r, tt_last_error());
        if (status || !pair->rdma[r]) return false;
        tt_rdma_start(pair->rdma[r], &pair->all.fabrics[r]->context);
        if (tt_rdma_wire_create(&pair->wires[r], pair->rdma[r], 1 - r, &pair->offers[r])) {
            CHECK_MESSAGE(false, "rank %d: %s", r, tt_last_error());
            return false;
        }
    }
    unsetenv("TUTTI_RDMA_DEVICE");
    return true;
}

bool pair_connect(struct pair *pair)
{
    for (int r = 0; r < 2; r++)
        if (tt_rdma_wire_connect(pair->wires[r], &pair->offers[1 - r])) {
            CHECK_MESSAGE(false, "rank %d: %s", r, tt_last_error());
            return false;
        }
    return true;
}

void pair_close(struct pair *pair)
{
    for (int r = 0; r < 2; r++) {
        tt_rdma_wire_destroy(pair->wires[r]);
        tt_rdma_close(pair->rdma[r]);
    }
    together_close(&pair->all);
}

bool pair_shell(const char *command)
{
    const int status = system(command);
    CHECK_MESSAGE(status == 0, "\"%s\" ended with %d", command, status);
    return status == 0;
}

void pair_fill(void *data, size_t nbytes, unsigned seed)
{
    unsigned char *bytes = data;
    for (size_t i = 0; i < nbytes; i++)
        bytes[i] = (unsigned char)((seed * 2654435761u + (unsigned)i * 40503u) >> 8);
}

bool pair_same(const void *data, size_t nbytes, unsigned seed)
{
    const unsigned char *bytes = data;
    for (size_t i = 0; i < nbytes; i++)
        if (bytes[i] != (unsigned char)((seed * 2654435761u + (unsigned)i * 40503u) >> 8))
            return false;
    return true;
}

tt_status pair_exchange(struct pair *pair, int from, int channel, size_t nbytes, unsigned seed)
{
    struct tt_link *tx = tt_rdma_tx(pair->wires[from], channel),
                   *rx = tt_rdma_rx(pair->wires[1 - from], channel);
    const int64_t deadline = tt_deadline_ns(60000);
    struct tt_message message;
    tt_status status = TT_IN_PROGRESS;
    for (bool sent = false; status == TT_IN_PROGRESS;) {
        void *slot = sent ? NULL : tx->ops->slot(tx, nbytes);
        if (slot) {
            pair_fill(slot, nbytes, seed);
            tx->ops->publish(tx, nbytes, seed);
            sent = true;
        }
        for (int r = 0; r < 2; r++) TT_TRY(tt_rdma_wire_progress(pair->wires[r]));
        status = sent ? rx->ops->peek(rx, &message) : TT_IN_PROGRESS;
        if (tt_expired(deadline)) return TT_ERR_TIMEOUT;
    }
    TT_TRY(status);
    CHECK_EQ(message.nbytes, nbytes);
    CHECK_EQ(message.signature, seed);
    CHECK(pair_same(message.data, message.nbytes, seed));
    rx->ops->release(rx);
    return TT_OK;
}
