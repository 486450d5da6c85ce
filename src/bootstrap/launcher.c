/* Detects the launcher that started this process, and reads rank, size and local rank from its
 * variables. */
#include <errno.h>
#include <stdlib.h>

#include "base/config.h"
#include "base/log.h"
#include "bootstrap/bootstrap.h"
#include "bootstrap/slurm.h"
#include "net/handshake.h"

/* A launcher and the variables that it sets for every rank. */
struct row {
    const char *name;
    const char
        *only_with; /* says that the others are meant for this process; NULL: they always are */
    const char *rank, *nranks;
    const char *local_rank, *local_nranks; /* NULL: not said as a plain number */
    enum tt_place_source sources[2];
};

/* In this order: an mpirun or torchrun inside a Slurm job starts a daemon a host with srun, and its
 * ranks inherit that daemon's Slurm variables, so Slurm comes last. Those of a batch script or of
 * salloc's shell, which are no step, promise ranks that never come: such a process is alone. */
static const struct row rows[] = {
    {.name = "RANK and WORLD_SIZE",
     .rank = "RANK",
     .nranks = "WORLD_SIZE",
     .local_rank = "LOCAL_RANK",
     .local_nranks = "LOCAL_WORLD_SIZE"},
    {.name = "Open MPI's mpirun",
     .rank = "OMPI_COMM_WORLD_RANK",
     .nranks = "OMPI_COMM_WORLD_SIZE",
     .local_rank = "OMPI_COMM_WORLD_LOCAL_RANK",
     .local_nranks = "OMPI_COMM_WORLD_LOCAL_SIZE",
     .sources = {TT_PLACE_FROM_PMIX}},
    {.name = "PMI (mpiexec of MPICH or Intel MPI, srun --mpi=pmi2)",
     .rank = "PMI_RANK",
     .nranks = "PMI_SIZE",
     .local_rank = "MPI_LOCALRANKID",
     .local_nranks = "MPI_LOCALNRANKS",
     .sources = {TT_PLACE_FROM_PMI, TT_PLACE_FROM_SLURM}},
    {.name = "srun",
     .only_with = "SLURM_STEP_ID",
     .rank = "SLURM_PROCID",
     .nranks = "SLURM_STEP_NUM_TASKS",
     .sources = {TT_PLACE_FROM_PMIX, TT_PLACE_FROM_SLURM}},
};
static const struct row *const slurm = &rows[sizeof rows / sizeof *rows - 1];

/* The variable as a number from `least` to `most`. */
static tt_status number(int *value, const char *name, long least, long most)
{
    const char *text = tt_environment(name);
    char *end;
    errno = 0;
    const long found = strtol(text, &end, 10);
    if (end == text || *end || errno)
        return tt_fail(TT_ERR_ARGUMENT, "%s=%s is not a whole number", name, text);
    if (found < least || found > most)
        return tt_fail(TT_ERR_ARGUMENT, "%s=%s is out of range: it must be %ld to %ld", name, text,
                       least, most);
    *value = (int)found;
    return TT_OK;
}

/* *row: the first that is there; NULL: none. */
static tt_status find_row(const struct row **row)
{
    *row = NULL;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const struct row *at = &rows[i];
        const bool rank = tt_environment(at->rank), nranks = tt_environment(at->nranks);
        if ((!rank && !nranks) || (at->only_with && !tt_environment(at->only_with))) continue;
        if (rank != nranks)
            return tt_fail(TT_ERR_ARGUMENT,
                           "%s is set but %s is not: set both (a launcher does) or neither",
                           rank ? at->rank : at->nranks, rank ? at->nranks : at->rank);
        *row = at;
        return TT_OK;
    }
    if (tt_environment("LOCAL_RANK") || tt_environment("LOCAL_WORLD_SIZE"))
        return tt_fail(TT_ERR_ARGUMENT, "%s is set but RANK and WORLD_SIZE are not",
                       tt_environment("LOCAL_RANK") ? "LOCAL_RANK" : "LOCAL_WORLD_SIZE");
    if (tt_environment("PMI_PORT"))
        return tt_fail(TT_ERR_ARGUMENT,
                       "PMI_PORT is set but PMI_RANK is not: start mpiexec without -pmi-port");
    return TT_OK;
}

/* The host's part as Slurm tells it, when its step is the same ranks. */
static tt_status ask_slurm(struct tt_launcher *found)
{
    int rank, nranks, node;
    const char *tasks = tt_environment("SLURM_STEP_TASKS_PER_NODE");
    if (!tt_environment(slurm->only_with) || !tt_environment(slurm->rank) ||
        !tt_environment(slurm->nranks) || !tt_environment("SLURM_LOCALID") ||
        !tt_environment("SLURM_NODEID") || !tasks)
        return TT_OK;
    TT_TRY(number(&nranks, slurm->nranks, 1, TT_MAX_RANKS));
    TT_TRY(number(&rank, slurm->rank, 0, nranks - 1));
    if (rank != found->rank || nranks != found->nranks) return TT_OK;
    TT_TRY(number(&node, "SLURM_NODEID", 0, TT_MAX_RANKS));
    TT_TRY(tt_slurm_tasks_of_node(&found->local_nranks, tasks, node));
    return number(&found->local_rank, "SLURM_LOCALID", 0, found->local_nranks - 1);
}

static tt_status ask_row(struct tt_launcher *found, const struct row *row)
{
    const bool says_rank = row->local_rank && tt_environment(row->local_rank);
    const bool says_nranks = row->local_nranks && tt_environment(row->local_nranks);
    TT_TRY(number(&found->nranks, row->nranks, 1, TT_MAX_RANKS));
    TT_TRY(number(&found->rank, row->rank, 0, found->nranks - 1));
    found->local_rank = found->rank;
    found->local_nranks = found->nranks;
    if (!says_rank && !says_nranks) return ask_slurm(found);
    if (says_nranks) {
        TT_TRY(number(&found->local_nranks, row->local_nranks, 1, found->nranks));
        found->local_rank = found->rank % found->local_nranks;
    }
    return says_rank ? number(&found->local_rank, row->local_rank, 0, found->local_nranks - 1)
                     : TT_OK;
}

tt_status tt_launcher_detect(struct tt_launcher *launcher)
{
    struct tt_launcher found = {.nranks = 1, .local_nranks = 1, .found = "none"};
    const struct row *row;
    char unknown[512];
    TT_TRY(find_row(&row));
    if (!row && tt_launcher_find_unknown(unknown, sizeof unknown)) TT_WARN_ONCE("%s", unknown);
    if (row) {
        found.found = row->name;
        found.sources[0] = row->sources[0];
        found.sources[1] = row->sources[1];
        TT_TRY(ask_row(&found, row));
    }
    *launcher = found;
    return TT_OK;
}
