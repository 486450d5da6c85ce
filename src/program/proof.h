/* Proving programs: the programs of all ranks are raised to steps, and verify runs those. */
#ifndef TT_PROGRAM_PROOF_H
#define TT_PROGRAM_PROOF_H

#include "program/lower.h"

/* Above this number of ranks the programs of all ranks take too much memory to be made together. */
enum { TT_PROOF_MOST_RANKS = 64 };

/* The programs of all ranks. Owned by its creator. */
struct tt_proof;

/* Lowers the schedule of every rank. The shape's hosts are borrowed. TT_ERR_ARGUMENT and
 * TT_ERR_USAGE as tt_schedule_create; TT_ERR_ARGUMENT for more than TT_PROOF_MOST_RANKS. */
TT_NODISCARD tt_status tt_proof_create(const struct tt_algorithm *algorithm,
                                       const struct tt_shape *shape, struct tt_proof **proof);
/* Proves the raised programs for `count` elements: results as tt_verify. */
TT_NODISCARD tt_status tt_proof_run(const struct tt_proof *proof, size_t count,
                                    struct tt_verify_report *report);
/* One rank's program, owned by the proof. */
struct tt_program *tt_proof_program(struct tt_proof *proof, int rank);
/* NULL is allowed. */
void tt_proof_destroy(struct tt_proof *proof);

#endif
