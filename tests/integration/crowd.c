/* Runs a function on many ranks, each a thread of this process. */
#include "crowd.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct member {
    pthread_t thread;
    int rank, nranks;
    const char *collective;
    tuttiUniqueId id;
    tuttiResult_t result;
    char error[512];
};

static double value_of(int rank, int block)
{
    return rank * 1000.0 + block;
}

/* What element i of the result must be. */
static double expected(const struct member *member, int i)
{
    const int n = member->nranks;
    if (!strcmp(member->collective, "all_reduce")) return n * (n - 1) / 2 * 1000.0;
    return value_of(i, strcmp(member->collective, "all_gather") ? member->rank : 0);
}

static tuttiResult_t call(const struct member *member, const double *in, double *out,
                          tuttiComm_t comm)
{
    if (!strcmp(member->collective, "all_reduce"))
        return tuttiAllReduce(in, out, 1, tuttiFloat64, tuttiSum, comm, NULL);
    if (!strcmp(member->collective, "all_gather"))
        return tuttiAllGather(in, out, 1, tuttiFloat64, comm, NULL);
    return tuttiAlltoAll(in, out, 1, tuttiFloat64, comm, NULL);
}

static tuttiResult_t call_and_check(struct member *member, tuttiComm_t comm)
{
    const int n = member->nranks, nout = strcmp(member->collective, "all_reduce") ? n : 1;
    double *in = calloc((size_t)n, sizeof *in), *out = calloc((size_t)n, sizeof *out);
    tuttiResult_t result = in && out ? tuttiSuccess : tuttiSystemError;
    for (int i = 0; in && i < n; i++) in[i] = value_of(member->rank, i);
    if (!result) result = call(member, in, out, comm);
    if (result) snprintf(member->error, sizeof member->error, "%s", tuttiGetLastError(comm));
    for (int i = 0; i < nout && !result; i++)
        if (out[i] != expected(member, i)) {
            snprintf(member->error, sizeof member->error, "rank %d element %d is %g, expected %g",
                     member->rank, i, out[i], expected(member, i));
            result = tuttiInternalError;
        }
    free(in);
    free(out);
    return result;
}

static void *run_member(void *argument)
{
    struct member *member = argument;
    tuttiComm_t comm = NULL;
    member->result = tuttiCommInitRankConfig(&comm, member->nranks, member->id, member->rank, NULL);
    if (member->result) {
        snprintf(member->error, sizeof member->error, "%s", tuttiGetLastError(NULL));
        return NULL;
    }
    member->result = call_and_check(member, comm);
    const tuttiResult_t destroyed = tuttiCommDestroy(comm);
    if (!member->result) member->result = destroyed;
    return NULL;
}

tuttiResult_t crowd(int nranks, const char *collective)
{
    struct member *members = calloc((size_t)nranks, sizeof *members);
    tuttiResult_t result = tuttiSuccess;
    tuttiUniqueId id;
    if (!members || tuttiGetUniqueId(&id) != tuttiSuccess) abort();
    for (int r = 0; r < nranks; r++) {
        members[r] =
            (struct member){.rank = r, .nranks = nranks, .collective = collective, .id = id};
        if (pthread_create(&members[r].thread, NULL, run_member, &members[r])) abort();
    }
    for (int r = 0; r < nranks; r++) {
        pthread_join(members[r].thread, NULL);
        if (!members[r].result || result) continue;
        result = members[r].result;
        fprintf(stderr, "ERROR rank %d: %s\n", r, members[r].error);
    }
    free(members);
    return result;
}
