/* Launchers whose variables tutti does not use: under one of them each process would take itself
 * for rank 0 of 1, and nobody would say why the ranks do not find one another. */
#include <stdio.h>
#include <stdlib.h>

#include "base/config.h"
#include "bootstrap/bootstrap.h"

struct unknown {
    const char *name;
    const char *rank, *nranks, *local_rank; /* NULL: it has no such variable */
};

static const struct unknown unknowns[] = {
    {"mpirun_rsh of MVAPICH2", "MV2_COMM_WORLD_RANK", "MV2_COMM_WORLD_SIZE",
     "MV2_COMM_WORLD_LOCAL_RANK"},
    {"mpirun_rsh of MVAPICH", "MVP_COMM_WORLD_RANK", "MVP_COMM_WORLD_SIZE",
     "MVP_COMM_WORLD_LOCAL_RANK"},
    {"flux run", "FLUX_TASK_RANK", "FLUX_JOB_SIZE", "FLUX_TASK_LOCAL_ID"},
    {"jsrun", "JSM_NAMESPACE_RANK", "JSM_NAMESPACE_SIZE", "JSM_NAMESPACE_LOCAL_RANK"},
    {"horovodrun", "HOROVOD_RANK", "HOROVOD_SIZE", "HOROVOD_LOCAL_RANK"},
    {"mpirun of Platform MPI", "MPI_RANKID", "MPI_NRANKS", "MPI_LOCALRANKID"},
    {"mpiexec of PALS", "PALS_RANKID", NULL, "PALS_LOCAL_RANKID"},
    {"aprun", "ALPS_APP_PE", NULL, NULL},
    {"a launcher with PMIx, as prterun", "PMIX_RANK", NULL, NULL},
};

/* The variable as a number; -1: it is not set, or no number. */
static long number(const char *name)
{
    const char *text = name ? tt_environment(name) : NULL;
    char *end;
    const long value = text ? strtol(text, &end, 10) : -1;
    return text && end != text && !*end && value >= 0 ? value : -1;
}

/* Whether the variables say that this process is one of several. */
static bool says_several(const struct unknown *unknown)
{
    const long rank = number(unknown->rank), nranks = number(unknown->nranks);
    return rank >= 0 && (!unknown->nranks || nranks > 1);
}

bool tt_launcher_find_unknown(char *text, size_t size)
{
    const struct unknown *at = unknowns, *end = at + sizeof unknowns / sizeof *unknowns;
    while (at < end && !says_several(at)) at++;
    if (at == end) return false;
    char nranks[64] = "", set_nranks[64] = "the number of processes", local[80] = "";
    if (at->nranks) {
        snprintf(nranks, sizeof nranks, " and %s=%ld", at->nranks, number(at->nranks));
        snprintf(set_nranks, sizeof set_nranks, "$%s", at->nranks);
    }
    if (number(at->local_rank) >= 0)
        snprintf(local, sizeof local, ", LOCAL_RANK=$%s", at->local_rank);
    snprintf(text, size,
             "this process is rank 0 of 1, but %s=%ld%s say that it is one of several: tutti does "
             "not know this launcher (%s). Set RANK=$%s, WORLD_SIZE=%s%s, and the same MASTER_ADDR "
             "and MASTER_PORT on all (docs/launchers.md)",
             at->rank, number(at->rank), nranks, at->name, at->rank, set_nranks, local);
    return true;
}
