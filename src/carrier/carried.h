/* A carrier's part of a communicator: how it is made, and how it ends. */
#ifndef TT_CARRIER_CARRIED_H
#define TT_CARRIER_CARRIED_H

#include "carrier/carrier.h"

/* What the communicator's maker knows. */
struct tt_carried_config {
    int channels, threads; /* of two ranks on GPUs, with the one of messages; of a block */
    uint64_t opener;       /* a number of the calling thread */
    const struct tt_comm_core *parent; /* from which the communicator is split; NULL: none */
    size_t most_line_bytes;            /* messages of a block that go as lines, at most */
};

struct tt_carried {
    size_t offer_bytes; /* of what the ranks tell one another; 0: nothing */
    /* Opens the part of this rank, if it has a GPU, and says what the others must know. */
    tt_status (*offer)(struct tt_comm_core *core, const struct tt_carried_config *config,
                       void *offer);
    /* offers: [nranks], NULL where there are none. *amount: > 0: what this rank has; all ranks are
     * to use the least of any. *must_fail, after a failure: the init must fail too. */
    tt_status (*connect)(struct tt_comm_core *core, const struct tt_carried_config *config,
                         const void *offers, int32_t *amount, bool *must_fail);
    /* When all ranks have connected, or have failed to. USAGE: this rank and another one do not
     * reach each other's memory right, although both have connected. */
    tt_status (*examine)(struct tt_comm_core *core);
    /* distances[nranks]: of each rank's GPU from this rank's (enum tt_distance). */
    void (*measure)(const struct tt_comm_core *core, uint8_t *distances);
    void (*agree)(struct tt_comm_core *core, int32_t least);
    /* No call has used the part: frees it. */
    void (*close)(struct tt_comm_core *core);
    /* No call is outstanding: waits until CUDA streams have written the outputs. NULL: they have.
     */
    void (*drain)(struct tt_comm_core *core);
    /* The end, in two parts, where no call is outstanding. First replays that were launched run,
     * and no call is given turns any more that is not issued here; then the part is freed, when
     * nobody uses it. Each replay, and the rest, takes as long as a call may take. */
    void (*end_turns)(struct tt_comm_core *core);
    void (*leave)(struct tt_comm_core *core);
    /* What became of calls that were not issued here, now. */
    void (*look)(struct tt_comm_core *core);
    /* Before an abort: calls that the GPU has ended are done when this returns. NULL: they are. */
    void (*settle)(struct tt_comm_core *core);
    size_t (*bytes)(const struct tt_comm_core *core);
    /* "by kernels". */
    void (*describe)(const struct tt_comm_core *core, char *text, size_t size);
    /* Lets other ranks of the host use memory of the rank's GPU in place. NULL: they never can.
     * *handle: NULL: they cannot, or need not. */
    void (*register_memory)(struct tt_comm_core *core, void *memory, size_t nbytes, void **handle);
    /* waits: until no other process has the memory open, or an error, which names a rank that has;
     * then the handle stays. Without, nothing fails: `leave` waits. */
    tt_status (*deregister)(struct tt_comm_core *core, void *handle, bool waits);
};

extern const struct tt_carried tt_carried_kernel, tt_carried_staged;

/* The part that this communicator has; NULL: none. */
const struct tt_carried *tt_carried_of(const struct tt_comm_core *core);

/* The GPU of the calling thread's current context, where this process uses CUDA; else -1. Does not
 * load the driver. */
int tt_current_gpu(void);

#endif
