/* Two ranks in this process, joined by RDMA. Needs devices: elsewhere its tests are skipped. */
#ifndef TT_TESTS_RDMA_PAIR_H
#define TT_TESTS_RDMA_PAIR_H

#include "transport/rdma/rdma_internal.h"
#include "transport/together.h"

enum { PAIR_SLOTS = 6, PAIR_SLOT_BYTES = 20000 };

struct pair {
    struct together all;
    struct tt_rdma *rdma[2];
    struct tt_rdma_wire *wires[2];
    struct tt_room_offer offers[2];
};

/* With which a rank opens its devices. */
extern const struct tt_room_config pair_config;

/* Why the tests are skipped, NULL if they are not. Said by each of them. */
const char *pair_unable(void);
/* Devices by rank (NULL: one each, "": all), up to the exchange of offers; false after a failed
 * CHECK. */
bool pair_open(struct pair *pair, const char *low_devices, const char *high_devices);
bool pair_connect(struct pair *pair);
void pair_close(struct pair *pair);
/* Runs a shell command; false after a failed CHECK. */
bool pair_shell(const char *command);
/* Sends one message and waits for it: TT_OK, or the failure of either end; TT_ERR_TIMEOUT after
 * some seconds of nothing. */
tt_status pair_exchange(struct pair *pair, int from, int channel, size_t nbytes, unsigned seed);
/* Fills with, or compares to, bytes that follow from the seed. */
void pair_fill(void *data, size_t nbytes, unsigned seed);
bool pair_same(const void *data, size_t nbytes, unsigned seed);

#endif
