/* Parses Slurm's variables: the first host, the tasks of a node, and rank 0's place. */
#include "bootstrap/slurm.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/config.h"

enum { FIRST_PORT = 20000, PORTS = 10000 }; /* below those that the kernel hands out itself */

/* Writes the first host of "r[0-1]n[003-7,9]-ib,x": of each bracket the digits up to the first of
 * "-,]". False: the list begins with none, or with one that does not fit. */
static bool first_of(char *host, size_t size, const char *list)
{
    size_t length = 0;
    while (*list && *list != ',') {
        const bool is_range = *list == '[';
        const size_t skipped = is_range ? 1 : 0;
        const size_t n = is_range ? strspn(list + 1, "0123456789") : strcspn(list, "[],");
        if (!n || length + n >= size) return false;
        memcpy(host + length, list + skipped, n);
        length += n;
        list += skipped + n;
        if (!is_range) continue;
        list += strspn(list, "0123456789,-");
        if (*list++ != ']') return false;
    }
    host[length] = '\0';
    return length > 0;
}

tt_status tt_slurm_first_host(char *host, size_t size, const char *list)
{
    if (first_of(host, size, list)) return TT_OK;
    return tt_fail(TT_ERR_ARGUMENT,
                   "SLURM_STEP_NODELIST='%s' does not begin with a host; set MASTER_ADDR and "
                   "MASTER_PORT",
                   list);
}

tt_status tt_slurm_tasks_of_node(int *ntasks, const char *list, int node)
{
    const char *at = list;
    int before = 0; /* nodes of the entries so far */
    while (*at) {
        char *end;
        long repeated = 1;
        const long tasks = strtol(at, &end, 10);
        if (end == at || tasks < 1 || tasks > INT32_MAX) break;
        if (!strncmp(end, "(x", 2)) {
            repeated = strtol(end + 2, &end, 10);
            if (*end++ != ')' || repeated < 1 || repeated > INT32_MAX / 2) break;
        }
        if (node - before < repeated) {
            *ntasks = (int)tasks;
            return TT_OK;
        }
        before += (int)repeated;
        if (*end != ',') break;
        at = end + 1;
    }
    return tt_fail(TT_ERR_ARGUMENT,
                   "SLURM_STEP_TASKS_PER_NODE='%s' says nothing about node %d of the step", list,
                   node);
}

static unsigned long number_or_0(const char *text)
{
    return text ? strtoul(text, NULL, 10) : 0;
}

tt_status tt_slurm_place(struct tt_place *place, const struct tt_launcher *launcher)
{
    const char *job = tt_environment("SLURM_JOB_ID"), *step = tt_environment("SLURM_STEP_ID");
    const char *distribution = tt_environment("SLURM_DISTRIBUTION");
    struct tt_place found = {0};
    const unsigned long mixed = 31 * number_or_0(job) + number_or_0(step);
    found.port = FIRST_PORT + (int)(mixed % PORTS);
    found.nports = TT_PLACE_PORTS;
    snprintf(found.job, sizeof found.job, "slurm %s.%s", job ? job : "", step ? step : "");
    if (launcher->local_nranks == launcher->nranks) {
        strcpy(found.host, "127.0.0.1");
    } else {
        if (distribution && !strncmp(distribution, "arbitrary", strlen("arbitrary")))
            return tt_fail(TT_ERR_USAGE,
                           "srun --distribution=arbitrary does not say on which host rank 0 is: "
                           "add --mpi=pmi2 or --mpi=pmix, or set MASTER_ADDR and MASTER_PORT");
        TT_TRY(tt_slurm_first_host(found.host, sizeof found.host,
                                   tt_environment("SLURM_STEP_NODELIST")));
    }
    *place = found;
    return TT_OK;
}
