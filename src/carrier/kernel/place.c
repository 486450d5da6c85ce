/* Which part of its GPU a rank gets: the blocks of threads that it may have there at the same time,
 * and a warning where ranks that share a GPU are slow. */
#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "carrier/kernel/kernel.h"
#include "device/device.h"
#include "device/tables.h"

static bool are_on_one_gpu(const struct tt_device_offer *a, const struct tt_device_offer *b)
{
    return !memcmp(a->uuid, b->uuid, sizeof a->uuid);
}

static bool are_in_one_process(const struct tt_device_offer *a, const struct tt_device_offer *b)
{
    return a->process_id == b->process_id;
}

/* The GPU of a rank. */
struct use {
    int nranks, nmine; /* that have it; of them in the rank's process */
    int capacity;      /* the least that any of their processes may use */
    bool has_mps;      /* clients of MPS: several processes run kernels there at the same time */
};

/* Limits of clients of MPS may leave them the same multiprocessors: so the least one counts. */
static struct use use_of(const struct tt_device_offer *offers, int nranks, int rank)
{
    struct use use = {.capacity = INT_MAX};
    for (int r = 0; r < nranks; r++) {
        if (!are_on_one_gpu(&offers[r], &offers[rank])) continue;
        const bool mine = are_in_one_process(&offers[r], &offers[rank]);
        use.nranks++;
        use.nmine += mine;
        use.has_mps = use.has_mps || (!mine && offers[r].uses_mps);
        if (offers[r].capacity < use.capacity) use.capacity = offers[r].capacity;
    }
    return use;
}

static tt_status fail_use(const struct use *use, int rank, int gpu)
{
    const char *mend = use->has_mps
                           ? ", give MPS clients more of it (CUDA_MPS_ACTIVE_THREAD_PERCENTAGE), "
                             "or set TUTTI_DEVICE_KERNELS=0 (through memory of the host)"
                           : "";
    const int most = use->capacity / TT_DEVICE_MOST_CHANNELS;
    return tt_fail(TT_ERR_USAGE,
                   "%d ranks share GPU %d of rank %d%s, which runs %d blocks of threads%s and %d "
                   "kernels at the same time; each rank needs %d blocks, all need %d: put at most "
                   "%d ranks on the GPU%s",
                   use->nranks, gpu, rank, use->has_mps ? " as clients of MPS" : "", use->capacity,
                   use->has_mps ? " of the client with the lowest limit" : "", TT_MOST_KERNELS,
                   TT_DEVICE_MOST_CHANNELS, use->nranks * TT_DEVICE_MOST_CHANNELS,
                   most < TT_MOST_KERNELS ? most : TT_MOST_KERNELS, mend);
}

/* The blocks of a rank: its part of the GPU, but no more than a call can have. The same for all
 * ranks, which run the same copies of a program. */
static tt_status find_blocks(const struct tt_comm_core *comm, const struct tt_device_offer *offers,
                             int *nblocks, bool *must_fail)
{
    const int nchannels = (int)tt_device_room_links(comm->kernel->room)->nchannels - 1;
    const int flows = 2 * comm->nranks; /* of a group of sends and receives with all ranks */
    *nblocks = (flows + TT_DEVICE_MOST_FLOWS - 1) / TT_DEVICE_MOST_FLOWS;
    if (*nblocks < nchannels) *nblocks = nchannels;
    for (int r = 0; r < comm->nranks; r++) {
        if (offers[r].gpu < 0) continue;
        const struct use use = use_of(offers, comm->nranks, r);
        const int part = use.capacity / use.nranks;
        if (part < TT_DEVICE_MOST_CHANNELS || use.nranks > TT_MOST_KERNELS) {
            /* Else the host carries the calls. */
            *must_fail = use.has_mps && !comm->kernel->hosts;
            return fail_use(&use, r, offers[r].gpu);
        }
        if (part < *nblocks) *nblocks = part;
    }
    return TT_OK;
}

/* The share that the same rank has in the communicator from which this one is split. */
static struct tt_share *share_of_parent(const struct tt_comm_core *comm,
                                        const struct tt_carried_config *config)
{
    const struct tt_comm_core *parent = config->parent;
    return parent && parent->kernel && parent->gpu == comm->gpu ? parent->kernel->place.share
                                                                : NULL;
}

static tt_status take_share(struct tt_comm_core *comm, const struct tt_carried_config *config,
                            const struct tt_device_offer *offers, int nblocks)
{
    struct tt_kernel_part *on = comm->kernel;
    const struct tt_device_offer *mine = &offers[comm->rank];
    const struct use use = use_of(offers, comm->nranks, comm->rank);
    struct tt_share_request request = {.context = tt_device_context(on->device),
                                       .stream = on->stream,
                                       .last = on->last,
                                       .team = comm->fabric->segment->id,
                                       .rank = comm->rank,
                                       .least = TT_DEVICE_MOST_CHANNELS,
                                       .wanted = nblocks,
                                       .nranks = use.has_mps ? use.nranks : use.nmine,
                                       .nteam = use.nmine,
                                       .capacity = use.capacity,
                                       .opener = mine->opener,
                                       .parent = share_of_parent(comm, config)};
    for (int r = 0; r < comm->nranks; r++) {
        if (!are_on_one_gpu(&offers[r], mine) || !are_in_one_process(&offers[r], mine) ||
            offers[r].opener != mine->opener)
            continue;
        request.nopened++;
        request.place += r < comm->rank;
    }
    TT_TRY(tt_share_open(tt_device_shares(on->device), &request, &on->place));
    const int has = on->place.share->nblocks;
    on->most_blocks = has < nblocks ? has : nblocks;
    return TT_OK;
}

/* By the first of the ranks whose GPUs are used in this way, so that a job says it once. Of ranks
 * that were split off the parent's has said it. */
static void warn_of_time_slices(const struct tt_comm_core *comm,
                                const struct tt_carried_config *config,
                                const struct tt_device_offer *offers)
{
    struct use use;
    int rank = -1;
    do {
        if (++rank > comm->rank) return;
        use = use_of(offers, comm->nranks, rank);
    } while (use.nmine == use.nranks || use.has_mps);
    if (rank == comm->rank && !share_of_parent(comm, config))
        TT_WARN_ONCE(
            "communicator %s: %d ranks of several processes share GPU %d without NVIDIA's MPS, "
            "which is slow: the driver lets the processes take turns, some milliseconds for each "
            "step of a call. Start MPS (nvidia-cuda-mps-control -d) before the job, run the ranks "
            "as threads of one process, or set TUTTI_DEVICE_KERNELS=0: calls then go through "
            "memory of the host (if MPS is there and was not found: TUTTI_MPS=1)",
            comm->name, use.nranks, comm->gpu);
}

tt_status tt_kernel_take_place(struct tt_comm_core *comm, const struct tt_carried_config *config,
                               const struct tt_device_offer *offers, bool *must_fail)
{
    int nblocks;
    TT_TRY(find_blocks(comm, offers, &nblocks, must_fail));
    TT_TRY(take_share(comm, config, offers, nblocks));
    warn_of_time_slices(comm, config, offers);
    return TT_OK;
}

/* A rank without a GPU limits programs, which all ranks cut alike. It has no part in how kernels
 * move messages. */
void tt_kernel_agree(struct tt_comm_core *comm, int32_t least)
{
    struct tt_kernel_part *on = comm->kernel;
    comm->fabric->mixed.nparts = least;
    if (!on) return;
    on->exchange_blocks = comm->fabric->mixed.is_mixed ? on->most_blocks : least;
    on->most_blocks = least;
}

void tt_kernel_describe(const struct tt_comm_core *comm, char *text, size_t size)
{
    const struct tt_kernel_part *on = comm->kernel;
    char pinned[TT_ERROR_TEXT] = "";
    if (on->ends) tt_ends_describe(on->ends, pinned, sizeof pinned);
    snprintf(text, size,
             "by kernels of at most %d blocks; its links have %.1f MiB of %d MiB at most%s",
             on->most_blocks, (double)tt_device_room_bytes(on->room) / (1 << 20),
             TT_DEVICE_BUDGET >> 20, pinned);
}
