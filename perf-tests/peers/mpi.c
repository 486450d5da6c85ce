/* MPI's collectives for bench.c; any implementation's mpicc compiles it. */
#include "peer.h"

#include <mpi.h>
#include <stdlib.h>

static int my_rank, my_nranks;

bool peer_open(int *argc, char ***argv, int *rank, int *nranks)
{
    if (MPI_Init(argc, argv) != MPI_SUCCESS) return false;
    MPI_Comm_rank(MPI_COMM_WORLD, &my_rank);
    MPI_Comm_size(MPI_COMM_WORLD, &my_nranks);
    *rank = my_rank;
    *nranks = my_nranks;
    return true;
}

void peer_close(void)
{
    MPI_Finalize();
}

void *peer_alloc(size_t nbytes)
{
    return malloc(nbytes);
}

void peer_free(void *memory)
{
    free(memory);
}

bool peer_has(enum peer_operation operation)
{
    return operation < PEER_NOPERATIONS;
}

static int ping_pong(const float *input, float *output, int n)
{
    if (my_rank > 1) return MPI_SUCCESS;
    const int other = 1 - my_rank;
    int result = MPI_SUCCESS;
    if (my_rank == 0) result = MPI_Send(input, n, MPI_FLOAT, other, 0, MPI_COMM_WORLD);
    if (result == MPI_SUCCESS)
        result = MPI_Recv(output, n, MPI_FLOAT, other, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    if (result == MPI_SUCCESS && my_rank == 1)
        result = MPI_Send(output, n, MPI_FLOAT, other, 0, MPI_COMM_WORLD);
    return result;
}

bool peer_run(enum peer_operation operation, const float *input, float *output, size_t count)
{
    const MPI_Comm comm = MPI_COMM_WORLD;
    const int n = (int)count;
    const int next = (my_rank + 1) % my_nranks, previous = (my_rank + my_nranks - 1) % my_nranks;
    int result = MPI_ERR_ARG;
    switch (operation) {
    case PEER_ALL_REDUCE:
        result = MPI_Allreduce(input, output, n, MPI_FLOAT, MPI_SUM, comm);
        break;
    case PEER_BROADCAST: /* in place by definition: the buffer that rotates is the output */
        result = MPI_Bcast(output, n, MPI_FLOAT, 0, comm);
        break;
    case PEER_REDUCE:
        result = MPI_Reduce(input, output, n, MPI_FLOAT, MPI_SUM, 0, comm);
        break;
    case PEER_ALL_GATHER:
        result = MPI_Allgather(input, n, MPI_FLOAT, output, n, MPI_FLOAT, comm);
        break;
    case PEER_REDUCE_SCATTER:
        result = MPI_Reduce_scatter_block(input, output, n, MPI_FLOAT, MPI_SUM, comm);
        break;
    case PEER_ALL_TO_ALL:
        result = MPI_Alltoall(input, n, MPI_FLOAT, output, n, MPI_FLOAT, comm);
        break;
    case PEER_SCATTER:
        result = MPI_Scatter(input, n, MPI_FLOAT, output, n, MPI_FLOAT, 0, comm);
        break;
    case PEER_GATHER:
        result = MPI_Gather(input, n, MPI_FLOAT, output, n, MPI_FLOAT, 0, comm);
        break;
    case PEER_SEND_RECV:
        result = MPI_Sendrecv(input, n, MPI_FLOAT, next, 0, output, n, MPI_FLOAT, previous, 0, comm,
                              MPI_STATUS_IGNORE);
        break;
    case PEER_BARRIER:
        result = MPI_Barrier(comm);
        break;
    case PEER_PING_PONG:
        result = ping_pong(input, output, n);
        break;
    case PEER_STREAM:
        result = my_rank == 0   ? MPI_Send(input, n, MPI_FLOAT, 1, 0, comm)
                 : my_rank == 1 ? MPI_Recv(output, n, MPI_FLOAT, 0, 0, comm, MPI_STATUS_IGNORE)
                                : MPI_SUCCESS;
        break;
    case PEER_NOPERATIONS:
        break;
    }
    return result == MPI_SUCCESS;
}

bool peer_max(double *values, size_t count)
{
    return MPI_Allreduce(MPI_IN_PLACE, values, (int)count, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD) ==
           MPI_SUCCESS;
}
