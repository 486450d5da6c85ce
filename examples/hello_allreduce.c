/* Four ranks as threads of one process add up their numbers. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <tutti.h>

enum { NRANKS = 4, COUNT = 1000 };

static void try(tuttiResult_t result, const char *what)
{
    if (result == tuttiSuccess) return;
    fprintf(stderr, "%s: %s: %s\n", what, tuttiGetErrorString(result), tuttiGetLastError(NULL));
    exit(1);
}

static void *one_rank(void *argument)
{
    const tuttiComm_t comm = argument;
    int rank;
    try(tuttiCommUserRank(comm, &rank), "rank");

    float *data = malloc(COUNT * sizeof *data);
    if (!data) abort();
    for (int i = 0; i < COUNT; i++) data[i] = (float)(rank + 1);

    try(tuttiAllReduce(data, data, COUNT, tuttiFloat32, tuttiSum, comm, NULL), "all-reduce");
    printf("rank %d has %g everywhere (1 + 2 + 3 + 4)\n", rank, (double)data[COUNT - 1]);
    free(data);
    return NULL;
}

int main(void)
{
    tuttiComm_t comms[NRANKS];
    pthread_t threads[NRANKS];
    try(tuttiCommInitAll(comms, NRANKS, NULL), "init");
    for (int i = 0; i < NRANKS; i++)
        if (pthread_create(&threads[i], NULL, one_rank, comms[i])) abort();
    for (int i = 0; i < NRANKS; i++) pthread_join(threads[i], NULL);
    for (int i = 0; i < NRANKS; i++) try(tuttiCommDestroy(comms[i]), "destroy");
    return fflush(stdout) == 0 ? 0 : 1; /* a full disk */
}
