/* Two ranks of this process, joined by RDMA over devices that only this test has: a table of verbs
 * whose queue pairs copy memory. Needs neither libibverbs nor a device. */
#ifndef TT_TESTS_RDMA_FAKE_DEVICE_H
#define TT_TESTS_RDMA_FAKE_DEVICE_H

#include "transport/rdma/rdma_internal.h"

enum { FAKE_CHANNELS = 3, FAKE_SLOTS = 4 };

struct fake_rank {
    struct tt_room_context context;
    _Atomic uint64_t counters[3];
    struct tt_rdma *rdma;
    struct tt_rdma_wire *wire; /* NULL: the rank has ended */
    struct tt_room_offer offer;
    /* what the wire has reported */
    int nfailures, nmissed, nlooks;
    char failure[512];
    bool knows_end; /* to look finds that the peer has left */
};

struct fake_pair {
    struct fake_rank ranks[2];
};

/* False after a failed CHECK. */
bool fake_open(struct fake_pair *pair, size_t slot_bytes);
void fake_close(struct fake_pair *pair);
/* The rank's process ends: what its device has not sent is dropped. */
void fake_end(struct fake_pair *pair, int rank);
/* Devices send nothing from now on, or what they have and all that is posted. */
void fake_hold(bool holds);
/* What was sent to a rank that has ended is given up: it completes with an error. */
void fake_give_up(void);

/* Memory of a rank's GPU, which is not mapped at its address. What a device writes there comes to
 * it when that device reads any memory of the GPU, as over a bus. */
struct fake_gpu {
    int fd;
    char *host; /* the same memory, as the test sees it */
    char *base; /* as the GPU would */
    size_t nbytes;
    struct tt_rdma_gpu *taken;
};
/* number: makes the address. TT_OK, or what the registration fails with. */
tt_status fake_gpu_open(struct fake_gpu *gpu, struct fake_rank *rank, size_t nbytes, int number);
void fake_gpu_close(struct fake_gpu *gpu);
/* Devices refuse memory of GPUs with this errno from now on; 0: they take it. */
void fake_refuse_gpus(int error);
/* Devices complete no READ from now on, or those that they have and all that are posted. */
void fake_hold_reads(bool holds);
/* How often devices were asked to take memory of GPUs, and have such memory now. */
int fake_count_asked(void);
int fake_count_gpus(void);

#endif
