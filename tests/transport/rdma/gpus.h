/* Two ranks in this process, joined by RDMA, each with a GPU whose memory its devices use in place.
 * A memfd stands for that memory (dmabuf_verbs.h), at an address where nothing is mapped. */
#ifndef TT_TESTS_RDMA_GPUS_H
#define TT_TESTS_RDMA_GPUS_H

#include "transport/rdma/pair.h"

enum { GPU_BYTES = 4 << 20 };

/* The memory of one rank's GPU. */
struct gpu {
    int fd;
    char *host;       /* the same memory, as the test sees it */
    const char *base; /* as the GPU would */
    void *taken;
};

/* Two ranks with a GPU each. */
struct gpus {
    struct pair pair;
    struct gpu of[2];
};

/* One message between the ranks. */
struct move {
    int from, channel;
    size_t nbytes, at, to; /* offsets in the GPUs' memory */
    unsigned seed;
};

char *gpu_at(const struct gpu *gpu, size_t offset);
/* False after a failed CHECK. The number makes the address. */
bool gpu_open(struct gpu *gpu, struct tt_rdma *rdma, unsigned number);
/* rdma NULL: does not drop the memory. */
void gpu_close(struct gpu *gpu, struct tt_rdma *rdma);
/* As pair_open, and connects. */
bool gpus_open(struct gpus *gpus, const char *low, const char *high);
void gpus_close(struct gpus *gpus);

/* Writes the move's bytes, to where the receiver has shown, and publishes a message of four bytes,
 * the seed. TT_ERR_TIMEOUT after a minute, here and below. */
tt_status gpus_publish(struct gpus *gpus, const struct move *move);
/* Awaits the message, flushes, compares and releases. */
tt_status gpus_receive(struct gpus *gpus, const struct move *move);

#endif
