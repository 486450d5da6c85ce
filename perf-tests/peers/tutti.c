/* tutti's collectives for bench.c. With -DSHARED_MEMORY its buffers come from tuttiMemAlloc. */
#include "peer.h"

#include <stdio.h>
#include <stdlib.h>

#include "tutti.h"

static tuttiComm_t comm;
static int my_rank, my_nranks;

static bool worked(tuttiResult_t result)
{
    if (result == tuttiSuccess) return true;
    fprintf(stderr, "%s: %s\n", tuttiGetErrorString(result), tuttiGetLastError(comm));
    return false;
}

bool peer_open(int *argc, char ***argv, int *rank, int *nranks)
{
    (void)argc, (void)argv;
    if (!worked(tuttiCommInitEnv(&comm, NULL, NULL)) ||
        !worked(tuttiCommUserRank(comm, &my_rank)) || !worked(tuttiCommCount(comm, &my_nranks)))
        return false;
    *rank = my_rank;
    *nranks = my_nranks;
    return true;
}

void peer_close(void)
{
    (void)worked(tuttiCommFinalize(comm));
    (void)worked(tuttiCommDestroy(comm));
    comm = NULL;
}

#ifdef SHARED_MEMORY
void *peer_alloc(size_t nbytes)
{
    void *memory = NULL;
    return worked(tuttiMemAlloc(&memory, nbytes)) ? memory : NULL;
}

void peer_free(void *memory)
{
    (void)worked(tuttiMemFree(memory));
}
#else
void *peer_alloc(size_t nbytes)
{
    return malloc(nbytes);
}

void peer_free(void *memory)
{
    free(memory);
}
#endif

bool peer_has(enum peer_operation operation)
{
    return operation < PEER_NOPERATIONS;
}

static tuttiResult_t send_and_receive(const float *input, float *output, size_t count)
{
    const int next = (my_rank + 1) % my_nranks, previous = (my_rank + my_nranks - 1) % my_nranks;
    tuttiResult_t result = tuttiGroupStart();
    if (result != tuttiSuccess) return result;
    result = tuttiSend(input, count, tuttiFloat32, next, comm, NULL);
    const tuttiResult_t received = tuttiRecv(output, count, tuttiFloat32, previous, comm, NULL);
    const tuttiResult_t ended = tuttiGroupEnd();
    if (result != tuttiSuccess) return result;
    return received != tuttiSuccess ? received : ended;
}

static tuttiResult_t ping_pong(const float *input, float *output, size_t count)
{
    if (my_rank > 1) return tuttiSuccess;
    const int other = 1 - my_rank;
    tuttiResult_t result = tuttiSuccess;
    if (my_rank == 0) result = tuttiSend(input, count, tuttiFloat32, other, comm, NULL);
    if (result == tuttiSuccess) result = tuttiRecv(output, count, tuttiFloat32, other, comm, NULL);
    if (result == tuttiSuccess && my_rank == 1)
        result = tuttiSend(output, count, tuttiFloat32, other, comm, NULL);
    return result;
}

bool peer_run(enum peer_operation operation, const float *input, float *output, size_t count)
{
    const tuttiDataType_t type = tuttiFloat32;
    tuttiResult_t result = tuttiInvalidArgument;
    switch (operation) {
    case PEER_ALL_REDUCE:
        result = tuttiAllReduce(input, output, count, type, tuttiSum, comm, NULL);
        break;
    case PEER_BROADCAST: /* in place, as MPI_Bcast is */
        result = tuttiBroadcast(output, output, count, type, 0, comm, NULL);
        break;
    case PEER_REDUCE:
        result = tuttiReduce(input, output, count, type, tuttiSum, 0, comm, NULL);
        break;
    case PEER_ALL_GATHER:
        result = tuttiAllGather(input, output, count, type, comm, NULL);
        break;
    case PEER_REDUCE_SCATTER:
        result = tuttiReduceScatter(input, output, count, type, tuttiSum, comm, NULL);
        break;
    case PEER_ALL_TO_ALL:
        result = tuttiAlltoAll(input, output, count, type, comm, NULL);
        break;
    case PEER_SCATTER:
        result = tuttiScatter(input, output, count, type, 0, comm, NULL);
        break;
    case PEER_GATHER:
        result = tuttiGather(input, output, count, type, 0, comm, NULL);
        break;
    case PEER_SEND_RECV:
        result = send_and_receive(input, output, count);
        break;
    case PEER_BARRIER:
        result = tuttiBarrier(comm, NULL);
        break;
    case PEER_PING_PONG:
        result = ping_pong(input, output, count);
        break;
    case PEER_STREAM:
        result = my_rank == 0   ? tuttiSend(input, count, type, 1, comm, NULL)
                 : my_rank == 1 ? tuttiRecv(output, count, type, 0, comm, NULL)
                                : tuttiSuccess;
        break;
    case PEER_NOPERATIONS:
        break;
    }
    return worked(result);
}

bool peer_max(double *values, size_t count)
{
    return worked(tuttiAllReduce(values, values, count, tuttiFloat64, tuttiMax, comm, NULL));
}
