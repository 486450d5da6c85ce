#include "program/proof.h"

#include <stdlib.h>

struct tt_proof {
    struct tt_steps steps;
    struct tt_program *programs[TT_PROOF_MOST_RANKS];
    struct tt_raised raised[TT_PROOF_MOST_RANKS];
};

static int raised_nsteps(void *arg, int rank, int channel)
{
    const struct tt_proof *proof = arg;
    return (int)tt_program_channel(proof->programs[rank], channel)->nsteps;
}

static void raised_step(void *arg, int rank, int channel, int index, struct tt_step *step)
{
    const struct tt_proof *proof = arg;
    tt_raise(&proof->raised[rank], channel, index, step);
}

static tt_status add_rank(struct tt_proof *proof, int rank)
{
    const struct tt_shape *shape = &proof->steps.shape;
    struct tt_schedule *schedule;
    TT_TRY(tt_schedule_create(proof->steps.algorithm, shape, rank, &schedule));
    const tt_status status = tt_program_lower(schedule, &proof->programs[rank]);
    tt_schedule_destroy(schedule);
    return status ? status
                  : tt_raised_init(&proof->raised[rank], proof->programs[rank], shape->hosts);
}

tt_status tt_proof_create(const struct tt_algorithm *algorithm, const struct tt_shape *shape,
                          struct tt_proof **out)
{
    if (shape->nranks > TT_PROOF_MOST_RANKS)
        return tt_fail(TT_ERR_ARGUMENT,
                       "the programs of %d ranks are too many to prove at once: "
                       "at most %d",
                       shape->nranks, TT_PROOF_MOST_RANKS);
    struct tt_proof *proof = calloc(1, sizeof *proof);
    if (!proof) return tt_fail(TT_ERR_SYSTEM, "out of memory for a proof");
    proof->steps = (struct tt_steps){.algorithm = algorithm,
                                     .shape = *shape,
                                     .nsteps = raised_nsteps,
                                     .step = raised_step,
                                     .arg = proof};
    for (int rank = 0; rank < shape->nranks; rank++) {
        const tt_status status = add_rank(proof, rank);
        if (!status) continue;
        tt_proof_destroy(proof);
        return status;
    }
    *out = proof;
    return TT_OK;
}

tt_status tt_proof_run(const struct tt_proof *proof, size_t count, struct tt_verify_report *report)
{
    return tt_verify(&proof->steps, count, report);
}

struct tt_program *tt_proof_program(struct tt_proof *proof, int rank)
{
    return proof->programs[rank];
}

void tt_proof_destroy(struct tt_proof *proof)
{
    if (!proof) return;
    for (int rank = 0; rank < TT_PROOF_MOST_RANKS; rank++) {
        tt_raised_fini(&proof->raised[rank]);
        free(proof->programs[rank]);
    }
    free(proof);
}
