/* PMIx, through libpmix.so.2 loaded at run time: Open MPI's mpirun and srun --mpi=pmix. */
#ifndef TT_BOOTSTRAP_PMIX_H
#define TT_BOOTSTRAP_PMIX_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

struct tt_pmix; /* the loaded library; lives as long as the process */

/* NULL when there is none; `why` then says what was tried. */
const struct tt_pmix *tt_pmix_load(char *why, size_t size);

/* Rank 0's text becomes everyone's. Collective over the launcher's ranks, once a process. Then the
 * process is done with PMIx, unless it has others to use it (`keep`): then at its exit.
 * TT_ERR_TIMEOUT when not all have come by the deadline, TT_ERR_SYSTEM with PMIx's number when it
 * fails. */
TT_NODISCARD tt_status tt_pmix_share(const struct tt_pmix *pmix, int rank, char *text, size_t size,
                                     bool keep, int64_t deadline_ns);

#endif
