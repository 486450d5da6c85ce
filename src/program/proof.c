/* Proves the lowered programs of all ranks: raises them to steps and verifies those. */
#include "program/proof.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "program/check.h"

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
    TT_TRY(tt_program_create(proof->steps.algorithm, shape, rank, &proof->programs[rank]));
    return tt_raised_init(&proof->raised[rank], proof->programs[rank], shape->hosts);
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

/* What all ranks' headers must agree on. */
static bool is_like(const struct tt_program *program, const struct tt_program *first)
{
    return program->algorithm == first->algorithm && program->nranks == first->nranks &&
           program->root == first->root && program->nblocks == first->nblocks &&
           program->nchannels == first->nchannels && program->message == first->message &&
           program->collective == first->collective && program->splits == first->splits &&
           program->meets == first->meets && program->direct_safe == first->direct_safe;
}

/* Whether the step of the program says what each rank puts into the meeting. */
static bool puts_are_right(const struct tt_proof *proof, const struct tt_program *program,
                           int channel, uint32_t index)
{
    const struct tt_program_step *step = tt_program_step(program, channel, index);
    for (int m = 0; step->kind == TT_STEP_MEET && program->nputs && m < program->nranks; m++) {
        const struct tt_program *other = proof->programs[m];
        const struct tt_program_blocks *puts = tt_program_puts(program) + step->recv + m;
        if (index >= tt_program_channel(other, channel)->nsteps) return false;
        const struct tt_program_step *theirs = tt_program_step(other, channel, index);
        if (theirs->kind != TT_STEP_MEET || puts->number != theirs->local.number ||
            (puts->number && (puts->first != theirs->local.first || !theirs->local.contiguous)))
            return false;
    }
    return true;
}

/* The programs have been checked. */
static tt_status check_puts(const struct tt_proof *proof, struct tt_verify_report *report)
{
    for (int rank = 0; rank < proof->steps.shape.nranks; rank++) {
        const struct tt_program *program = proof->programs[rank];
        for (int c = 0; c < program->nchannels; c++)
            for (uint32_t s = 0; s < tt_program_channel(program, c)->nsteps; s++) {
                if (puts_are_right(proof, program, c, s)) continue;
                snprintf(report->text, sizeof report->text,
                         "rank %d channel %d step %u: the table of puts is not what the ranks put "
                         "into the meeting",
                         rank, c, s);
                return TT_ERR_USAGE;
            }
    }
    return TT_OK;
}

/* The part of a proof that looks at each program for itself; then its links may be raised. */
static tt_status check_programs(const struct tt_proof *proof, struct tt_verify_report *report)
{
    const struct tt_steps *steps = &proof->steps;
    for (int rank = 0; rank < steps->shape.nranks; rank++) {
        const struct tt_program *program = proof->programs[rank];
        TT_TRY(tt_program_check(program, report->text, sizeof report->text));
        if (program->rank != rank || !is_like(program, proof->programs[0]) ||
            program->nscratch != tt_nscratch(steps->algorithm, &steps->shape, rank)) {
            snprintf(report->text, sizeof report->text,
                     "rank %d: the program's header differs from that of rank 0, or from the "
                     "algorithm's numbers",
                     rank);
            return TT_ERR_USAGE;
        }
        tt_raised_fill(&proof->raised[rank]);
    }
    return TT_OK;
}

/* Whether what is sent by reference, or posted, may be. */
static tt_status check_in_place(bool refers, bool posts, struct tt_verify_report *report)
{
    const char *what = refers && !report->direct_safe ? "sent by reference"
                       : posts && !report->post_safe  ? "posted"
                                                      : NULL;
    if (!what) return TT_OK;
    snprintf(report->text, sizeof report->text, "messages may be %s, but %s", what,
             refers && !report->direct_safe ? report->direct : report->post);
    return TT_ERR_USAGE;
}

/* A deterministic communicator takes the algorithm at its word. */
static tt_status check_order(const struct tt_algorithm *algorithm, struct tt_verify_report *report)
{
    if (!algorithm->in_rank_order || report->in_rank_order) return TT_OK;
    snprintf(report->text, sizeof report->text,
             "the algorithm is to fold in one step and in rank order, but %s", report->order);
    return TT_ERR_USAGE;
}

static bool any_posts(const struct tt_proof *proof)
{
    int rank = 0;
    while (rank < proof->steps.shape.nranks && !proof->programs[rank]->nposts) rank++;
    return rank < proof->steps.shape.nranks;
}

/* With `count` NULL the blocks have different lengths. */
static tt_status run(const struct tt_proof *proof, const size_t *count, const size_t *counts,
                     struct tt_verify_report *report)
{
    *report = (struct tt_verify_report){.any_count = true};
    TT_TRY(check_programs(proof, report));
    TT_TRY(check_puts(proof, report));
    TT_TRY(count ? tt_verify(&proof->steps, *count, report)
                 : tt_verify_uneven(&proof->steps, counts, report));
    TT_TRY(check_order(proof->steps.algorithm, report));
    return check_in_place(proof->programs[0]->direct_safe, any_posts(proof), report);
}

tt_status tt_proof_of_steps(const struct tt_steps *steps, const size_t *count,
                            struct tt_verify_report *report)
{
    TT_TRY(count ? tt_verify(steps, *count, report) : tt_verify_uneven(steps, NULL, report));
    TT_TRY(check_order(steps->algorithm, report));
    return check_in_place(steps->algorithm->direct_safe, true, report);
}

tt_status tt_proof_run(const struct tt_proof *proof, size_t count, struct tt_verify_report *report)
{
    return run(proof, &count, NULL, report);
}

tt_status tt_proof_run_uneven(const struct tt_proof *proof, const size_t *counts,
                              struct tt_verify_report *report)
{
    return run(proof, NULL, counts, report);
}

const struct tt_steps *tt_proof_steps(const struct tt_proof *proof)
{
    return &proof->steps;
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
