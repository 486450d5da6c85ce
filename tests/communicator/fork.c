/* What a child made by fork does with its parent's communicators. */
#include <sys/wait.h>
#include <unistd.h>

#include "communicator/communicator.h"
#include "shim.h"

static bool both_reduce(const tuttiComm_t *comms)
{
    int data[2] = {3, 4};
    if (tuttiGroupStart() != tuttiSuccess) return false;
    for (int r = 0; r < 2; r++)
        if (tuttiAllReduce(&data[r], &data[r], 1, tuttiInt32, tuttiSum, comms[r], NULL))
            return false;
    return tuttiGroupEnd() == tuttiSuccess && data[0] == 7 && data[1] == 7;
}

/* A child ends one of two communicators that were used before; the parent goes on. */
static void end_in_child(tuttiResult_t (*end)(tuttiComm_t), bool in_call)
{
    tuttiComm_t comms[2];
    int how = -1;
    REQUIRE(tuttiCommInitAll(comms, 2, NULL) == tuttiSuccess);
    REQUIRE(both_reduce(comms));
    if (in_call) tt_engine_enter(&comms[0]->engine); /* as another thread of the parent would */
    const pid_t child = fork();
    REQUIRE(child >= 0);
    if (child == 0) {
        alarm(20);
        _exit(end(comms[0]) == tuttiSuccess ? 0 : 1);
    }
    REQUIRE(waitpid(child, &how, 0) == child);
    if (in_call) tt_engine_leave(&comms[0]->engine);
    CHECK_MESSAGE(WIFEXITED(how) && WEXITSTATUS(how) == 0, "the child ended with status %#x", how);
    CHECK_EQ(atomic_load(&comms[0]->fabric->record->state), TT_RANK_HERE);
    CHECK_EQ(tt_fabric_check(comms[0]->fabric), TT_OK);
    CHECK(both_reduce(comms));
    for (int r = 0; r < 2; r++) CHECK_EQ(tuttiCommDestroy(comms[r]), tuttiSuccess);
}

TEST(fork, a_child_that_destroys_a_communicator_leaves_its_parents_as_it_is)
{
    end_in_child(tuttiCommDestroy, false);
}

TEST(fork, a_child_that_aborts_a_communicator_leaves_its_parents_as_it_is)
{
    end_in_child(tuttiCommAbort, false);
}

TEST(fork, a_child_that_ends_a_communicator_waits_for_no_call_of_its_parent)
{
    end_in_child(tuttiCommAbort, true);
}
