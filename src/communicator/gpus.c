/* Decides, when a communicator is made, who carries its calls on the memory of GPUs: kernels, where
 * all ranks that have GPUs can run them, else the host. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/config.h"
#include "base/log.h"
#include "carrier/carried.h"
#include "communicator/making.h"
#include "device/call.h"
#include "driver/driver.h"

static const struct tt_carried *const kernels = &tt_carried_kernel;

/* Whether any rank of any new communicator has a GPU; the same for all participants. */
static bool any_gpu(const struct tt_making *making)
{
    for (int p = 0; p < making->participants->nparticipants; p++)
        if (making->everyone[p].pid && making->everyone[p].gpu >= 0) return true;
    return false;
}

static bool has_kernels(const struct tt_making *making)
{
    return making->comm && making->comm->core.kernel;
}

/* Kernels of other ranks may run their part of calls; this rank may have them too. */
static bool takes_part(const struct tt_making *making)
{
    return has_kernels(making) || making->has_no_gpu;
}

/* Whether kernels that reach other hosts, or ranks without a GPU, run every algorithm that calls
 * may have: a forced one, and those that are chosen. Among so many ranks as a step may have peers
 * they run all but meetings; among twice as many what is chosen where the order of folds is free
 * (tests/algorithms/choose_bridged.c). */
static bool bridges_suffice(const struct tt_making *making)
{
    struct tt_comm_core *core = &making->comm->core;
    const size_t size = sizeof core->no_kernels;
    const struct tt_algorithm *forced = NULL;
    int most = making->config->deterministic ? TT_DEVICE_MOST_PEERS : TT_DEVICE_MOST_ENDS / 2;
    for (int i = 0; i < TT_NCOLLECTIVES; i++) {
        const struct tt_algorithm *algorithm = making->config->forced[i];
        if (algorithm && (!forced || tt_meets(algorithm))) forced = algorithm;
    }
    if (forced) most = TT_DEVICE_MOST_PEERS;
    if (forced && tt_meets(forced))
        snprintf(core->no_kernels, size,
                 "%s:%s is forced, whose ranks meet: those of several hosts, and those with a GPU "
                 "and without, do not",
                 tt_collective_name(forced->collective), forced->name);
    else if (core->nranks > most)
        snprintf(core->no_kernels, size,
                 "it has %d ranks; kernels reach other hosts, and ranks without a GPU, among at "
                 "most %d, or %d where it is deterministic or an algorithm is forced",
                 core->nranks, TT_DEVICE_MOST_ENDS / 2, TT_DEVICE_MOST_PEERS);
    else
        return true;
    return false;
}

/* Whether kernels may run this communicator's calls; if not, no_kernels says why. */
static bool may_have_kernels(const struct tt_making *making)
{
    struct tt_comm_core *core = &making->comm->core;
    const size_t size = sizeof core->no_kernels;
    const struct tt_peer_info *peers = core->fabric->peers;
    for (int r = 0; r < core->nranks; r++)
        if (!peers[r].allow_kernels) {
            snprintf(core->no_kernels, size, "TUTTI_DEVICE_KERNELS is off on rank %d", r);
            return false;
        }
    if (making->links.fabric.nbridges) return bridges_suffice(making);
    for (int r = 0; r < core->nranks; r++)
        if (peers[r].gpu < 0) {
            snprintf(core->no_kernels, size,
                     "rank %d has none (tuttiConfig_t's device, or a current context at init), and "
                     "TUTTI_DEVICE_BRIDGES is off",
                     r);
            return false;
        }
    if (!tt_making_several_hosts(making, false)) return true;
    snprintf(core->no_kernels, size,
             "its ranks are on several hosts, and TUTTI_DEVICE_BRIDGES is off");
    return false;
}

/* The last error says why kernels run no calls. */
static void note_reason(struct tt_comm_core *core)
{
    snprintf(core->no_kernels, sizeof core->no_kernels, "%.*s", (int)sizeof core->no_kernels - 1,
             tt_last_error());
}

/* This rank's GPU cannot run kernels for the communicator. */
static void note_failure(const struct tt_making *making)
{
    struct tt_comm_core *core = &making->comm->core;
    note_reason(core);
    if (making->config->expects_gpu)
        TT_WARN("communicator %s: rank %d: kernels run no calls: %s", core->name, core->rank,
                tt_last_error());
}

/* Most ranks whose GPUs are placed; those of larger communicators count as alike. */
enum { MOST_PLACED = 64 };

/* What a rank says of its kernels. */
struct answer {
    int32_t amount;                 /* what it has if it has them, > 0; 0: it can have none */
    uint8_t distances[MOST_PLACED]; /* of the GPUs of the first ranks from its own */
    char fault[444]; /* "": none. How its memory and that of another rank fail: amount is 0 */
};

/* All ranks have stored their words to the memory of this rank, or cannot connect: then no word is
 * looked for in vain, because another rank's answer counts for more. */
static void examine(const struct tt_making *making, struct answer *mine)
{
    if (!mine->amount || making->has_no_gpu) return;
    struct tt_comm_core *core = &making->comm->core;
    if (core->nranks <= MOST_PLACED) kernels->measure(core, mine->distances);
    if (!kernels->examine(core)) return;
    mine->amount = 0;
    snprintf(mine->fault, sizeof mine->fault, "%.*s", (int)sizeof mine->fault - 1, tt_last_error());
}

/* The rank for which kernels cannot run; of several the first, but of those that could not connect,
 * if there are any: with them nobody can exchange words. -1: they run for all. *least: the least
 * amount. */
static int find_failed(const struct tt_making *making, const struct answer *all, int32_t *least)
{
    int failed = -1;
    *least = INT32_MAX;
    for (int r = 0; making->member && r < making->nranks; r++) {
        const struct answer *answer = &all[tt_making_participant(making, r)];
        if (answer->amount < *least) *least = answer->amount;
        if (answer->amount) continue;
        if (!*answer->fault) return r;
        if (failed < 0) failed = r;
    }
    return failed;
}

/* Kernels run no calls because of the answer of the rank. */
static void drop_kernels(struct tt_making *making, int rank, const struct answer *answer,
                         const struct answer *mine)
{
    struct tt_comm_core *core = &making->comm->core;
    const bool has_said = !mine->amount && !*mine->fault; /* why it cannot connect */
    if (*answer->fault)
        snprintf(core->no_kernels, sizeof core->no_kernels, "%s", answer->fault);
    else if (!has_said)
        snprintf(core->no_kernels, sizeof core->no_kernels,
                 "kernels cannot run for rank %d (its log at INFO says why)", rank);
    if (*mine->fault && tt_config_int(TT_CONFIG_DEVICE_KERNELS) != TT_CONFIG_REQUIRE)
        TT_WARN("communicator %s: kernels run no calls, which go through memory of the host: %s",
                core->name, mine->fault);
    kernels->close(core);
    making->has_no_gpu = false;
}

/* Kernels run for all ranks: which of their GPUs are near to one another. */
static tt_status place(struct tt_making *making, const struct answer *all)
{
    struct tt_comm_core *core = &making->comm->core;
    const int n = core->nranks;
    static const char *const plural[] = {"", "s"};
    if (n > MOST_PLACED || tt_making_several_hosts(making, false) ||
        tt_fabric_may_mix(core->fabric))
        return TT_OK;
    uint8_t *distances = malloc((size_t)n * (size_t)n);
    if (!distances) return tt_fail(TT_ERR_SYSTEM, "out of memory for the places of %d ranks", n);
    for (int r = 0; r < n; r++)
        memcpy(distances + r * n, all[tt_making_participant(making, r)].distances, (size_t)n);
    const tt_status status = tt_hosts_by_distance(distances, n, &core->groups);
    free(distances);
    if (!status && core->groups && core->rank == 0)
        TT_INFO("communicator %s: its GPUs are %d group%s far from one another, the largest of %d "
                "rank%s; rings go round group by group",
                core->name, core->groups->nhosts, plural[core->groups->nhosts > 1],
                core->groups->most, plural[core->groups->most > 1]);
    return status;
}

/* After a round in which each rank may have failed to make its kernels: all ranks have them, or
 * none has. Where the ranks have connected, they examine how they reach one another's memory. */
static tt_status agree_on_kernels(struct tt_making *making, bool connected, struct answer *mine,
                                  int32_t *least)
{
    const struct tt_participants *participants = making->participants;
    if (!takes_part(making)) mine->amount = 0;
    struct answer *all = calloc((size_t)participants->nparticipants, sizeof *all);
    if (!all) making->status = tt_fail(TT_ERR_SYSTEM, "out of memory for the GPUs of the ranks");
    tt_status status = tt_making_agree(making);
    if (!status && connected) examine(making, mine);
    if (!status) status = participants->allgather(participants->context, mine, all, sizeof *mine);
    const int failed = status ? -1 : find_failed(making, all, least);
    if (failed >= 0 && takes_part(making))
        drop_kernels(making, failed, &all[tt_making_participant(making, failed)], mine);
    if (!status && connected && has_kernels(making)) making->status = place(making, all);
    free(all);
    return status;
}

static struct tt_carried_config config_of(const struct tt_making *making)
{
    return (struct tt_carried_config){.channels = making->links.device_channels,
                                      .threads = making->links.device_threads,
                                      .opener = making->config->opener,
                                      .parent = making->config->parent,
                                      .most_line_bytes = making->links.device_line_bytes};
}

/* The last error says why. Where the process has no memory or thread left, another GPU is of no
 * help. */
static tt_status fail_of_gpu(const struct tt_comm_core *core, tt_status status)
{
    char cause[TT_ERROR_TEXT];
    snprintf(cause, sizeof cause, "%s", tt_last_error());
    if (status == TT_ERR_SYSTEM)
        return tt_fail(status,
                       "the init of communicator %s lacks what calls on memory of GPU %d need: %s",
                       core->name, core->gpu, cause);
    return tt_fail(status,
                   "GPU %d, which the init of communicator %s names, cannot be used: %s (name one "
                   "that this process can use, or -1 for memory of the host only)",
                   core->gpu, core->name, cause);
}

/* Calls on the memory of this rank's GPU go through the host, unless kernels are required. A GPU
 * that the config does not name may be one that the program uses for itself: then a communicator
 * for memory of the host does without it. */
static tt_status do_without_kernels(const struct tt_making *making)
{
    struct tt_comm_core *core = &making->comm->core;
    const struct tt_carried_config config = config_of(making);
    int32_t amount;
    bool must_fail;
    if (core->kernel) return TT_OK;
    if (core->gpu < 0) {
        snprintf(core->no_kernels, sizeof core->no_kernels,
                 "this rank has none (tuttiConfig_t's device, or a current context at init)");
        return TT_OK;
    }
    if (tt_config_int(TT_CONFIG_DEVICE_KERNELS) == TT_CONFIG_REQUIRE)
        return tt_fail(TT_ERR_USAGE,
                       "kernels cannot run the calls of communicator %s on memory of GPU %d, and "
                       "TUTTI_DEVICE_KERNELS=require forbids to run them through memory of the "
                       "host (set it to 1 to allow that): %s",
                       core->name, core->gpu, core->no_kernels);
    const tt_status status = tt_carried_staged.connect(core, &config, NULL, &amount, &must_fail);
    if (status && making->config->needs_gpu) return fail_of_gpu(core, status);
    if (!status) {
        TT_INFO("communicator %s: rank %d: calls on memory of GPU %d go through memory of the "
                "host: %s",
                core->name, core->rank, core->gpu, core->no_kernels);
        return TT_OK;
    }
    note_reason(core);
    TT_INFO("communicator %s has no GPU: %s", core->name, tt_last_error());
    return TT_OK;
}

/* all: the offers of all participants. After a failure this rank's memory stays until the others
 * know: they store to it. */
static void connect_kernels(struct tt_making *making, const char *all, char *ours, int32_t *amount)
{
    const struct tt_carried_config config = config_of(making);
    const size_t size = kernels->offer_bytes;
    bool must_fail;
    for (int r = 0; r < making->nranks; r++)
        memcpy(ours + (size_t)r * size, all + (size_t)tt_making_participant(making, r) * size,
               size);
    const tt_status status =
        kernels->connect(&making->comm->core, &config, ours, amount, &must_fail);
    if (!status) return;
    *amount = 0;
    note_failure(making);
    if (must_fail && making->config->needs_gpu) making->status = status;
}

/* Each rank with a GPU sends the others how to reach its memory. offers: room for one of this rank,
 * for those of all participants, and for those of the new communicator's ranks. */
static tt_status gather_offers(struct tt_making *making, char *offers, int32_t *amount)
{
    const struct tt_participants *participants = making->participants;
    const size_t size = kernels->offer_bytes;
    const struct tt_carried_config config = config_of(making);
    struct answer mine = {.amount = 1};
    int32_t least;
    const bool may = offers && making->member && may_have_kernels(making);
    making->has_no_gpu = may && making->comm->core.gpu < 0;
    if (may && kernels->offer(&making->comm->core, &config, offers)) {
        note_failure(making);
        kernels->close(&making->comm->core);
    }
    TT_TRY(agree_on_kernels(making, false, &mine, &least)); /* fails without memory */
    char *all = offers + size, *ours = all + (size_t)participants->nparticipants * size;
    TT_TRY(participants->allgather(participants->context, offers, all, size));
    if (takes_part(making)) connect_kernels(making, all, ours, amount);
    return TT_OK;
}

/* Ranks of the communicator in this process on this rank's GPU; 0: this one is not the first. */
static int count_beside(const struct tt_making *making)
{
    const struct tt_comm_core *core = &making->comm->core;
    int number = 0;
    for (int r = 0; r < core->nranks; r++) {
        const struct tt_peer_info *info = &making->everyone[tt_making_participant(making, r)];
        if (info->process_id != making->mine.process_id || info->gpu != core->gpu) continue;
        if (!number++ && r != core->rank) return 0;
    }
    return number;
}

/* Streams that wait, for kernels of other ranks or for the host, hold up hardware queues, which the
 * streams of a process share. */
static void warn_of_queues(const struct tt_making *making)
{
    const struct tt_comm_core *core = &making->comm->core;
    const int connections = tt_driver_connections();
    const int number = tt_carried_of(core) ? count_beside(making) : 0;
    if (number > connections)
        TT_WARN_ONCE(
            "communicator %s: %d ranks of this process share GPU %d, whose streams share %d "
            "hardware queues: calls of ranks that wait for one another may wait for ever, and end "
            "at their deadline. Set CUDA_DEVICE_MAX_CONNECTIONS to at least %d (32 at most) before "
            "the process uses CUDA",
            core->name, number, core->gpu, connections, number);
}

tt_status tt_making_connect_gpus(struct tt_making *making)
{
    if (!any_gpu(making)) return TT_OK;
    const size_t n = (size_t)making->participants->nparticipants;
    char *offers = calloc(2 * n + 1, kernels->offer_bytes);
    struct answer mine = {.amount = 0};
    int32_t least;
    if (!offers)
        making->status = tt_fail(TT_ERR_SYSTEM, "out of memory for the GPUs of %zu ranks", n);
    tt_status status = gather_offers(making, offers, &mine.amount);
    free(offers);
    if (!status) status = agree_on_kernels(making, true, &mine, &least);
    if (status) return status;
    if (takes_part(making)) kernels->agree(&making->comm->core, least);
    if (making->member && !making->status) making->status = do_without_kernels(making);
    if (making->member && !making->status) warn_of_queues(making);
    return tt_making_agree(making);
}
