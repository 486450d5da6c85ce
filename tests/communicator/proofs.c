/* A communicator proves a program that ./check does not cover before the first call that uses it.
 */
#include <string.h>

#include "algorithms/algorithms.h"
#include "communicator/communicator.h"
#include "integration/ranks.h"
#include "program/covered.h"
#include "program/first_use.h"
#include "shim.h"

enum { MANY = 40, FEW = 4 };

static void sum_up(int rank, tuttiComm_t comm, void *arg)
{
    int in = rank, out = -1, nranks;
    (void)arg;
    CHECK_EQ(tuttiCommCount(comm, &nranks), tuttiSuccess);
    CHECK_EQ(tuttiCommSetAlgorithm(comm, tuttiCollAllReduce, "ring"), tuttiSuccess);
    for (int again = 0; again < 2; again++) {
        CHECK_EQ(tuttiAllReduce(&in, &out, 1, tuttiInt32, tuttiSum, comm, NULL), tuttiSuccess);
        CHECK_EQ(out, nranks * (nranks - 1) / 2);
    }
}

TEST(proofs, are_run_once_a_process_for_more_ranks_than_check_covers)
{
    CHECK((int)MANY > (int)TT_COVERED_RANKS);
    uint64_t before = tt_first_use_proofs();
    as_threads(MANY, NULL, sum_up, NULL);
    CHECK_EQ(tt_first_use_proofs() - before, 1u);
    before = tt_first_use_proofs();
    as_threads(FEW, NULL, sum_up, NULL);
    CHECK_EQ(tt_first_use_proofs() - before, 0u);
}

static void wrong_step(const struct tt_algorithm *self, const struct tt_shape *shape, int rank,
                       int channel, int index, struct tt_step *step)
{
    tt_algorithm_find(TT_ALL_REDUCE, "ring")->step(self, shape, rank, channel, index, step);
    if (rank == 5 && index == 2) step->local.first = (step->local.first + 1) % shape->nranks;
}

static struct tt_algorithm wrong;

static void call_wrong(int rank, tuttiComm_t comm, void *arg)
{
    int in = rank, out = -1;
    (void)arg;
    comm->forced[TT_ALL_REDUCE] = &wrong;
    CHECK_EQ(tuttiAllReduce(&in, &out, 1, tuttiInt32, tuttiSum, comm, NULL), tuttiInternalError);
    CHECK_MESSAGE(strstr(tuttiGetLastError(comm), "rank 5 channel 0 step 2"), "%s",
                  tuttiGetLastError(comm));
    CHECK_EQ(out, -1);
    CHECK_EQ(tuttiCommSetAlgorithm(comm, tuttiCollAllReduce, "tree"), tuttiSuccess);
    CHECK_EQ(tuttiAllReduce(&in, &out, 1, tuttiInt32, tuttiSum, comm, NULL), tuttiSuccess);
    CHECK_EQ(out, MANY * (MANY - 1) / 2);
}

TEST(proofs, keep_a_wrong_program_from_running)
{
    wrong = *tt_algorithm_find(TT_ALL_REDUCE, "ring");
    wrong.name = "wrong";
    wrong.step = wrong_step;
    as_threads(MANY, NULL, call_wrong, NULL);
}
