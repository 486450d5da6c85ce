/* A rank that waits long sleeps until another rank of its host wakes it. */
#include <unistd.h>

#include "communicator/communicator.h"
#include "shim.h"

/* Rank 1 wakes rank 0 from the first call. The second one waits for the first, so rank 0 may sleep.
 */
TEST(sleeps, a_call_sleeps_also_where_another_one_is_queued_behind_it)
{
    enum { NCALLS = 2, LATE_US = 100000 };
    tuttiComm_t comms[2];
    tuttiStream_t stream;
    int values[2][NCALLS] = {{1, 2}, {3, 4}};
    REQUIRE(!tuttiCommInitAll(comms, 2, NULL) && !tuttiStreamCreate(&stream));
    const struct tt_sleep *sleep = &comms[0]->core.fabric->host.sleep;
    const uint64_t before = atomic_load(&sleep->nsleeps);
    for (int i = 0; i < NCALLS; i++)
        CHECK_EQ(
            tuttiAllReduce(&values[0][i], &values[0][i], 1, tuttiInt, tuttiSum, comms[0], stream),
            tuttiSuccess);
    usleep(LATE_US);
    for (int i = 0; i < NCALLS; i++)
        CHECK_EQ(
            tuttiAllReduce(&values[1][i], &values[1][i], 1, tuttiInt, tuttiSum, comms[1], NULL),
            tuttiSuccess);
    CHECK_EQ(tuttiStreamSynchronize(stream), tuttiSuccess);
    CHECK(values[0][0] == 4 && values[0][1] == 6 && values[1][0] == 4 && values[1][1] == 6);
    CHECK(atomic_load(&sleep->nsleeps) > before);
    CHECK_EQ(tuttiStreamDestroy(stream), tuttiSuccess);
    for (int i = 0; i < 2; i++) CHECK_EQ(tuttiCommDestroy(comms[i]), tuttiSuccess);
}
