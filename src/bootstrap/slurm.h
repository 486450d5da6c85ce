/* What Slurm's variables say, read without any of its programs. */
#ifndef TT_BOOTSTRAP_SLURM_H
#define TT_BOOTSTRAP_SLURM_H

#include "bootstrap/bootstrap.h"
#include "bootstrap/place.h"

/* The first host of a compressed list such as "n[003-7,9]" or "a1,b[2-3]". TT_ERR_ARGUMENT names
 * the list when it has none that fits `size` bytes. */
TT_NODISCARD tt_status tt_slurm_first_host(char *host, size_t size, const char *list);

/* Entry `node` of a list such as "2(x3),1". TT_ERR_ARGUMENT when it has none. */
TT_NODISCARD tt_status tt_slurm_tasks_of_node(int *ntasks, const char *list, int node);

/* Where rank 0 of this step listens: the step's first host, at a port made of the job's and the
 * step's number, the job's name being part of the key. TT_ERR_USAGE when Slurm does not say on
 * which host rank 0 is. */
TT_NODISCARD tt_status tt_slurm_place(struct tt_place *place, const struct tt_launcher *launcher);

#endif
