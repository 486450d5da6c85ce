/* One of two processes on a GPU: device_leave [killed]. Rank 0 broadcasts, of which its part ends
 * at once, and destroys its communicator. Rank 1 takes the result far later than rank 0 waits for
 * ranks of its own process; with `killed` it ends instead. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "carrier/kernel/kernel.h"
#include "communicator/communicator.h"
#include "ranks_on_gpus.h"
#include "shim.h"

enum { VALUE = 7, COUNT = 4, HELD_MS = 1, LATE_MS = 300 };

static int fail(tuttiComm_t comm, const char *what)
{
    fprintf(stderr, "%s: %s\n", what, tuttiGetLastError(comm));
    return 2;
}

/* Until rank 0 has done its part and waits. 0: it has not left. */
static int await_rank_0(tuttiComm_t comm)
{
    const struct tt_rank_record *record = tt_fabric_record(comm->core.fabric, 0);
    const uint64_t calls = comm->core.engine.collectives_issued + 1;
    while (atomic_load(&record->done) < calls) usleep(1000);
    usleep(LATE_MS * 1000);
    if (atomic_load(&record->state) == TT_RANK_HERE) return 0;
    fprintf(stderr, "rank 0 has left before this rank has its result\n");
    return 1;
}

static int broadcast(tuttiComm_t comm, int rank)
{
    int data[COUNT] = {rank ? 0 : VALUE};
    int *memory = (int *)gpu_memory(0, sizeof data);
    gpu_write(0, memory, data, sizeof data);
    if (tuttiBroadcast(memory, memory, COUNT, tuttiInt32, 0, comm, NULL))
        return fail(comm, "broadcast");
    gpu_read(0, data, memory, sizeof data);
    return data[0] == VALUE ? 0 : 1;
}

int main(int argc, char **argv)
{
    int rank, nranks, local;
    tuttiComm_t comm;
    tuttiConfig_t config = TUTTI_CONFIG_INITIALIZER;
    if (tuttiGetLauncher(&rank, &nranks, &local) != tuttiSuccess) return fail(NULL, "launcher");
    config.device = 0;
    if (tuttiCommInitEnv(&comm, NULL, &config) != tuttiSuccess) return fail(NULL, "init");
    if (!comm->core.kernel || broadcast(comm, rank)) return fail(comm, "the first broadcast");
    if (tuttiCommSetTimeout(comm, 0) != tuttiSuccess) return fail(comm, "timeout");
    comm->core.kernel->held_ms = HELD_MS;
    if (rank && await_rank_0(comm)) return 1;
    if (rank && argc > 1) kill(getpid(), SIGKILL);
    const int status = broadcast(comm, rank);
    if (tuttiCommDestroy(comm) != tuttiSuccess) return fail(NULL, "destroy");
    (void)argv;
    return status;
}
