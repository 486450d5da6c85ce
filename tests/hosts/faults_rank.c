/* One rank of faults.sh and strangers.sh: faults_rank [chain]. Collectives whose results are
 * checked, until rank 0 gets SIGTERM or one fails. With `chain` each rank sends to the next one
 * only, so that most pairs of ranks are never connected. Says "looping" on stdout when they run.
 * Exit 0: all was right; 3: a call failed, and the last line of stderr says how ("ERROR ..."); 4: a
 * wrong result. */
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tutti.h"

enum { RIGHT = 0, NO_MEMORY = 2, FAILED = 3, WRONG = 4 };
enum { MOST = 300000, KINDS = 4, READY = 8 };

/* What a collective is given and has to give. */
struct work {
    tuttiComm_t comm;
    int rank, nranks;
    uint32_t *from, *to; /* [MOST] */
};

/* Rank r's element i in round n. */
static uint32_t value(int r, int n, size_t i)
{
    return (uint32_t)(r + 1) * 2654435761u + (uint32_t)n * 40503u + (uint32_t)i * 2246822519u;
}

static size_t wrong(const char *what, int n, size_t i, uint32_t got, uint32_t expected)
{
    fprintf(stderr, "WRONG %s, round %d: element %zu is %u, expected %u\n", what, n, i, got,
            expected);
    return 1;
}

static size_t check_sum(const struct work *w, int n, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        uint32_t sum = 0;
        for (int r = 0; r < w->nranks; r++) sum += value(r, n, i);
        if (w->to[i] != sum) return wrong("all-reduce", n, i, w->to[i], sum);
    }
    return 0;
}

static size_t check_from(const struct work *w, const char *what, int root, int n, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (w->to[i] != value(root, n, i)) return wrong(what, n, i, w->to[i], value(root, n, i));
    return 0;
}

/* Block r of rank r's is this rank's. */
static size_t check_alltoall(const struct work *w, int n, size_t block)
{
    for (size_t i = 0; i < block * (size_t)w->nranks; i++) {
        const size_t at = (size_t)w->rank * block + i % block;
        const uint32_t expected = value((int)(i / block), n, at);
        if (w->to[i] != expected) return wrong("all-to-all", n, i, w->to[i], expected);
    }
    return 0;
}

/* Round n: kinds and sizes take turns. */
static tuttiResult_t one_round(const struct work *w, int n, size_t *nwrong)
{
    static const size_t sizes[] = {1, 1000, 40000, MOST, 7};
    const size_t count = sizes[n % 5], block = count / (size_t)w->nranks;
    const int root = n % w->nranks, next = (w->rank + 1) % w->nranks;
    const int previous = (w->rank + w->nranks - 1) % w->nranks;
    for (size_t i = 0; i < count; i++) w->from[i] = value(w->rank, n, i);
    tuttiResult_t result = tuttiSuccess;
    switch (n % KINDS) {
    case 0:
        result = tuttiAllReduce(w->from, w->to, count, tuttiUint32, tuttiSum, w->comm, NULL);
        if (result == tuttiSuccess) *nwrong += check_sum(w, n, count);
        break;
    case 1:
        result = tuttiBroadcast(w->from, w->to, count, tuttiUint32, root, w->comm, NULL);
        if (result == tuttiSuccess) *nwrong += check_from(w, "broadcast", root, n, count);
        break;
    case 2:
        result = tuttiAlltoAll(w->from, w->to, block, tuttiUint32, w->comm, NULL);
        if (result == tuttiSuccess) *nwrong += check_alltoall(w, n, block);
        break;
    default:
        result = tuttiGroupStart();
        if (result == tuttiSuccess)
            result = tuttiSend(w->from, count, tuttiUint32, next, w->comm, NULL);
        if (result == tuttiSuccess)
            result = tuttiRecv(w->to, count, tuttiUint32, previous, w->comm, NULL);
        const tuttiResult_t end = tuttiGroupEnd();
        if (result == tuttiSuccess) result = end;
        if (result == tuttiSuccess) *nwrong += check_from(w, "receive", previous, n, count);
    }
    return result;
}

/* Round n of a chain: what rank 0 sends goes from rank to rank. Element 0 says whether it was the
 * last round. */
static tuttiResult_t chain_round(const struct work *w, int n, uint32_t *over, size_t *nwrong)
{
    static const size_t sizes[] = {2, 1000, 40000, MOST, 7};
    const size_t count = sizes[n % 5];
    tuttiResult_t result = tuttiSuccess;
    for (size_t i = 1; i < count; i++) w->to[i] = value(0, n, i);
    w->to[0] = *over;
    if (w->rank > 0) result = tuttiRecv(w->to, count, tuttiUint32, w->rank - 1, w->comm, NULL);
    if (result != tuttiSuccess) return result;
    *over = w->to[0];
    for (size_t i = 1; i < count; i++)
        if (w->to[i] != value(0, n, i)) *nwrong += wrong("chain", n, i, w->to[i], value(0, n, i));
    if (w->rank + 1 == w->nranks) return tuttiSuccess;
    return tuttiSend(w->to, count, tuttiUint32, w->rank + 1, w->comm, NULL);
}

static int failed(tuttiComm_t comm, tuttiResult_t result)
{
    fprintf(stderr, "ERROR %s: %s\n", tuttiGetErrorString(result), tuttiGetLastError(comm));
    if (comm && tuttiCommDestroy(comm) != tuttiSuccess)
        fprintf(stderr, "destroy: %s\n", tuttiGetLastError(NULL));
    return FAILED;
}

static volatile sig_atomic_t told_to_end;

static void end(int signal)
{
    told_to_end = signal;
}

static int loop(struct work *w, bool chain)
{
    size_t nwrong = 0;
    uint32_t over = 0;
    for (int n = 0; !over && !nwrong; n++) {
        over = w->rank == 0 && told_to_end;
        tuttiResult_t result = chain ? chain_round(w, n, &over, &nwrong) : one_round(w, n, &nwrong);
        if (result == tuttiSuccess && !chain)
            result = tuttiBroadcast(&over, &over, 1, tuttiUint32, 0, w->comm, NULL);
        if (result != tuttiSuccess) return failed(w->comm, result);
        if (n == READY) {
            puts("looping");
            fflush(stdout);
        }
    }
    if (nwrong) return WRONG;
    const tuttiResult_t result = tuttiCommDestroy(w->comm);
    return result == tuttiSuccess ? RIGHT : failed(NULL, result);
}

int main(int argc, char **argv)
{
    struct work w = {0};
    signal(SIGTERM, end);
    w.from = malloc(MOST * sizeof *w.from);
    w.to = malloc(MOST * sizeof *w.to);
    if (!w.from || !w.to) return NO_MEMORY;
    const tuttiResult_t result = tuttiCommInitEnv(&w.comm, NULL, NULL);
    if (result != tuttiSuccess) return failed(NULL, result);
    if (tuttiCommCount(w.comm, &w.nranks) || tuttiCommUserRank(w.comm, &w.rank)) return WRONG;
    const int status = loop(&w, argc == 2 && !strcmp(argv[1], "chain"));
    free(w.from);
    free(w.to);
    return status;
}
