/* PMI-1, the line protocol that MPICH's and Intel MPI's mpiexec and srun --mpi=pmi2 speak on the
 * descriptor PMI_FD. An MPI library in the same process owns that descriptor. */
#ifndef TT_BOOTSTRAP_PMI_H
#define TT_BOOTSTRAP_PMI_H

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

/* Rank 0's text (no blank, '=' or newline) becomes everyone's. Collective over the launcher's
 * ranks, once a process: the launcher is told that this process is done with PMI. `fd` stays open.
 * TT_ERR_TIMEOUT when not all have come by the deadline, TT_ERR_SYSTEM when the launcher refuses
 * or has gone. */
TT_NODISCARD tt_status tt_pmi_share(int fd, int rank, char *text, size_t size, int64_t deadline_ns);

#endif
