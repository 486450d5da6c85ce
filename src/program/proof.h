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
/* Proves the programs for `count` elements: each is well-formed, the raised steps are verified, and
 * what is sent by reference may be. Results as tt_verify. Programs may have changed since they were
 * made. */
TT_NODISCARD tt_status tt_proof_run(const struct tt_proof *proof, size_t count,
                                    struct tt_verify_report *report);
/* Proves the programs, as tt_proof_run, for blocks of different lengths: counts as for
 * tt_verify_uneven. */
TT_NODISCARD tt_status tt_proof_run_uneven(const struct tt_proof *proof, const size_t *counts,
                                           struct tt_verify_report *report);
/* Proves an algorithm's steps as they will be run: also that what is sent by reference, or posted,
 * may be. With `count` NULL no two blocks have the same length. For any number of ranks. */
TT_NODISCARD tt_status tt_proof_of_steps(const struct tt_steps *steps, const size_t *count,
                                         struct tt_verify_report *report);
/* The raised steps of all ranks, as they were when the proof last ran. Owned by the proof. */
const struct tt_steps *tt_proof_steps(const struct tt_proof *proof);
/* One rank's program, owned by the proof. */
struct tt_program *tt_proof_program(struct tt_proof *proof, int rank);
/* NULL is allowed. */
void tt_proof_destroy(struct tt_proof *proof);

#endif
