/* The functions that make unique ids and communicators, also with a launcher's help, and those that
 * say how many ranks a communicator has, and which rank and device this one is. */
#include <sodium.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/clock.h"
#include "base/config.h"
#include "base/thread.h"
#include "communicator/calling.h"
#include "communicator/group.h"
#include "driver/driver.h"
#include "net/handshake.h"

_Static_assert(sizeof(struct tt_unique_id) <= TUTTI_UNIQUE_ID_BYTES,
               "the wire form fits the public id");

tuttiResult_t tuttiGetUniqueId(tuttiUniqueId *id)
{
    TT_CANCELS_WAIT;
    if (!id) return tt_result(__func__, tt_fail(TT_ERR_ARGUMENT, "tuttiGetUniqueId: id is NULL"));
    struct tt_unique_id wire;
    tt_sleep_register_process();
    tt_status status = tt_config_check();
    if (!status && tt_unique_id_is_set())
        tt_unique_id_set(&wire);
    else if (!status)
        status = tt_unique_id_create(&wire);
    if (status) return tt_result(__func__, status);
    memset(id, 0, sizeof *id);
    memcpy(id, &wire, sizeof wire);
    sodium_memzero(&wire, sizeof wire);
    return tuttiSuccess;
}

tuttiResult_t tuttiDropUniqueId(const tuttiUniqueId *id)
{
    TT_CANCELS_WAIT;
    struct tt_unique_id wire;
    if (!id) return tt_result(__func__, tt_fail(TT_ERR_ARGUMENT, "tuttiDropUniqueId: id is NULL"));
    memcpy(&wire, id, sizeof wire);
    if (!tt_group_drops_id(&wire)) tt_unique_id_drop(&wire);
    sodium_memzero(&wire, sizeof wire);
    return tuttiSuccess;
}

static tt_status check_place(const void *comm, int nranks, int rank)
{
    if (!comm) return tt_fail(TT_ERR_ARGUMENT, "the place for the communicator is NULL");
    if (nranks < 1 || nranks > TT_MAX_RANKS)
        return tt_fail(TT_ERR_ARGUMENT, "nranks %d is not in 1..%d", nranks, TT_MAX_RANKS);
    if (rank < 0 || rank >= nranks)
        return tt_fail(TT_ERR_ARGUMENT, "rank %d is not in 0..%d (nranks %d)", rank, nranks - 1,
                       nranks);
    return TT_OK;
}

static tt_status init_rank_config(tuttiComm_t *comm, int nranks, const tuttiUniqueId *id, int rank,
                                  const tuttiConfig_t *config)
{
    struct tt_pending_init init = {.comm = comm, .rank = rank, .nranks = nranks};
    memcpy(&init.id, id, sizeof init.id);
    tt_sleep_register_process();
    tt_status status = check_place(comm, nranks, rank);
    if (!status) status = tt_comm_config_init(&init.config, config, NULL);
    if (status)
        tt_init_refuse(&init, 1, status);
    else
        status = tt_issue_init(&init);
    sodium_memzero(&init.id, sizeof init.id);
    return status;
}

/* The id is the callee's own copy: nobody else wipes it. */
tuttiResult_t tuttiCommInitRankConfig(tuttiComm_t *comm, int nranks, tuttiUniqueId id, int rank,
                                      const tuttiConfig_t *config)
{
    TT_CANCELS_WAIT;
    const tuttiResult_t result =
        tt_group_result(__func__, init_rank_config(comm, nranks, &id, rank, config));
    sodium_memzero(&id, sizeof id);
    return result;
}

tuttiResult_t tuttiCommInitRank(tuttiComm_t *comm, int nranks, tuttiUniqueId id, int rank)
{
    TT_CANCELS_WAIT;
    const tuttiResult_t result =
        tt_group_result(__func__, init_rank_config(comm, nranks, &id, rank, NULL));
    sodium_memzero(&id, sizeof id);
    return result;
}

/* The GPU of the i-th of nlocal ranks of tuttiCommInitAll; -1: none. */
static int gpu_of(const int *devices, int i, int nlocal)
{
    if (!devices) return tt_driver_is_in_use() && tt_driver_ngpus(NULL) >= nlocal ? i : -1;
    if (devices[i] == TUTTI_DEVICE_CURRENT) return tt_driver_default();
    return devices[i] >= 0 && devices[i] < tt_driver_ngpus(NULL) ? devices[i] : -1;
}

/* A GPU that the list names is one that a config's `device` names. */
static void choose_gpu_of(struct tt_comm_config *config, const int *devices, int i, int nlocal)
{
    config->gpu = gpu_of(devices, i, nlocal);
    config->needs_gpu = devices && devices[i] >= 0 && config->gpu >= 0;
    config->expects_gpu = devices && config->gpu >= 0;
}

/* Ranks first .. first + nlocal - 1 of nranks, all in this process. takes_gpus: `devices` says
 * which, else the config. */
static tt_status init_several(tuttiComm_t *comms, int nlocal, const struct tt_unique_id *id,
                              int first, int nranks, const int *devices, bool takes_gpus,
                              const tuttiConfig_t *config)
{
    struct tt_pending_init *inits = calloc((size_t)nlocal, sizeof *inits);
    if (!inits) return tt_fail(TT_ERR_SYSTEM, "out of memory for the init of %d ranks", nlocal);
    struct tt_comm_config settings;
    tt_status status = tt_comm_config_init(&settings, config, NULL);
    for (int i = 0; i < nlocal; i++) {
        inits[i] = (struct tt_pending_init){
            .comm = &comms[i], .rank = first + i, .nranks = nranks, .config = settings};
        memcpy(&inits[i].id, id, sizeof *id); /* leaves no copy on the stack */
        inits[i].config.device = devices ? devices[i] : first + i;
        if (takes_gpus) choose_gpu_of(&inits[i].config, devices, i, nlocal);
        if (inits[i].config.device == TUTTI_DEVICE_CURRENT)
            inits[i].config.device = inits[i].config.gpu;
    }
    if (!status) status = tt_init_together(inits, nlocal);
    sodium_memzero(inits, (size_t)nlocal * sizeof *inits);
    free(inits);
    return status;
}

tuttiResult_t tuttiCommInitAll(tuttiComm_t *comms, int nranks, const int *devices)
{
    TT_CANCELS_WAIT;
    tt_status status = check_place(comms, nranks, 0);
    if (!status) status = tt_init_check_number(nranks);
    struct tt_unique_id id;
    tt_sleep_register_process();
    if (!status) status = tt_unique_id_create(&id);
    if (status) return tt_result(__func__, status);
    status = init_several(comms, nranks, &id, 0, nranks, devices, true, NULL);
    if (status) tt_unique_id_drop(&id); /* perhaps no rank came to it */
    sodium_memzero(&id, sizeof id);
    return tt_result(__func__, status);
}

static tt_status init_env(tuttiComm_t *comms, int nlocal, const char *method,
                          const tuttiConfig_t *config)
{
    struct tt_launcher launcher;
    struct tt_unique_id id;
    struct tt_comm_config settings;
    TT_TRY(check_place(comms, nlocal, 0));
    TT_TRY(tt_comm_config_init(&settings, config, NULL));
    tt_sleep_register_process();
    TT_TRY(tt_launcher_detect(&launcher));
    if (launcher.nranks > TT_MAX_RANKS / nlocal)
        return tt_fail(TT_ERR_ARGUMENT, "%d processes of %d ranks are more than %d ranks",
                       launcher.nranks, nlocal, TT_MAX_RANKS);
    const char *how = method ? method : tt_config_string(TT_CONFIG_INIT_METHOD);
    const bool alone = launcher.nranks == 1 && (!method || !strcasecmp(method, "env://"));
    if (alone)
        TT_TRY(tt_unique_id_create(&id));
    else
        TT_TRY(tt_unique_id_from_method(&id, how, &launcher,
                                        tt_deadline_ns(settings.init_timeout_ms)));
    const tt_status status = init_several(comms, nlocal, &id, launcher.rank * nlocal,
                                          launcher.nranks * nlocal, NULL, false, config);
    if (status && alone)
        tt_unique_id_drop(&id);
    else if (status && launcher.rank == 0)
        /* The ranks of other processes wait for those of this one. */
        tt_unique_id_fail(&id, 0, launcher.nranks * nlocal, status);
    sodium_memzero(&id, sizeof id);
    return status;
}

tuttiResult_t tuttiCommInitEnv(tuttiComm_t *comm, const char *method, const tuttiConfig_t *config)
{
    TT_CANCELS_WAIT;
    return tt_result(__func__, init_env(comm, 1, method, config));
}

tuttiResult_t tuttiCommInitEnvMulti(tuttiComm_t *comms, int nlocal, const char *method,
                                    const tuttiConfig_t *config)
{
    TT_CANCELS_WAIT;
    return tt_result(__func__, init_env(comms, nlocal, method, config));
}

tuttiResult_t tuttiGetLauncher(int *rank, int *nranks, int *localRank)
{
    TT_CANCELS_WAIT;
    struct tt_launcher launcher;
    const tt_status status = tt_launcher_detect(&launcher);
    if (status) return tt_result(__func__, status);
    if (rank) *rank = launcher.rank;
    if (nranks) *nranks = launcher.nranks;
    if (localRank) *localRank = launcher.local_rank;
    return tuttiSuccess;
}

/* A number of the communicator's, by its place in the struct. */
static tt_status report(tuttiComm_t comm, const char *what, int *place, size_t offset)
{
    TT_TRY(tt_comm_enter_to_ask(comm));
    if (place) *place = *(const int *)(const void *)((const char *)comm + offset);
    tt_core_leave_call(&comm->core);
    return place ? TT_OK : tt_fail(TT_ERR_ARGUMENT, "the place for the %s is NULL", what);
}

tuttiResult_t tuttiCommCheck(tuttiComm_t comm)
{
    TT_CANCELS_WAIT;
    const tt_status status = tt_comm_enter(comm);
    if (!status) tt_core_leave_call(&comm->core);
    return tt_result(__func__, status);
}

tuttiResult_t tuttiCommCount(tuttiComm_t comm, int *nranks)
{
    return tt_result(__func__,
                     report(comm, "count", nranks, offsetof(struct tuttiComm, core.nranks)));
}

tuttiResult_t tuttiCommUserRank(tuttiComm_t comm, int *rank)
{
    return tt_result(__func__, report(comm, "rank", rank, offsetof(struct tuttiComm, core.rank)));
}

tuttiResult_t tuttiCommDevice(tuttiComm_t comm, int *device)
{
    TT_CANCELS_WAIT;
    return tt_result(__func__, report(comm, "device", device, offsetof(struct tuttiComm, device)));
}
