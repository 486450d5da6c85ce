/* Buffers that overlap: refused, but where the config takes them. */
#include <string.h>

#include "shim.h"
#include "tutti.h"

enum { N = 3 };

static void make_pair(int overlaps, tuttiComm_t comms[2])
{
    tuttiUniqueId id;
    tuttiConfig_t config = TUTTI_CONFIG_INITIALIZER;
    config.overlaps = overlaps;
    REQUIRE(tuttiGetUniqueId(&id) == tuttiSuccess);
    tuttiGroupStart();
    for (int rank = 0; rank < 2; rank++)
        CHECK_EQ(tuttiCommInitRankConfig(&comms[rank], 2, id, rank, &config), tuttiSuccess);
    REQUIRE(tuttiGroupEnd() == tuttiSuccess);
}

/* All-to-all in place, and an all-reduce whose buffers overlap by all but one element. Returns the
 * result of each. */
static void call_both(tuttiComm_t comms[2], tuttiResult_t results[2])
{
    int data[2][2 * N + 1];
    memset(data, 0, sizeof data);
    for (int which = 0; which < 2; which++) {
        tuttiGroupStart();
        for (int rank = 0; rank < 2; rank++)
            (void)(which ? tuttiAllReduce(data[rank], data[rank] + 1, 2 * N, tuttiInt32, tuttiSum,
                                          comms[rank], NULL)
                         : tuttiAlltoAll(data[rank], data[rank], N, tuttiInt32, comms[rank], NULL));
        results[which] = tuttiGroupEnd();
    }
}

TEST(overlaps, are_taken_where_the_config_says_so_and_refused_elsewhere)
{
    tuttiComm_t comms[2];
    tuttiResult_t results[2];
    for (int overlaps = 0; overlaps < 2; overlaps++) {
        const tuttiResult_t expected = overlaps ? tuttiSuccess : tuttiInvalidArgument;
        make_pair(overlaps, comms);
        call_both(comms, results);
        CHECK_EQ(results[0], expected);
        CHECK_EQ(results[1], expected);
        for (int rank = 0; rank < 2; rank++) CHECK_EQ(tuttiCommDestroy(comms[rank]), tuttiSuccess);
    }
}

TEST(overlaps, are_inherited_by_a_split)
{
    tuttiComm_t comm, part;
    tuttiUniqueId id;
    int data[2 * N] = {0};
    tuttiConfig_t config = TUTTI_CONFIG_INITIALIZER;
    config.overlaps = 1;
    REQUIRE(tuttiGetUniqueId(&id) == tuttiSuccess);
    REQUIRE(tuttiCommInitRankConfig(&comm, 1, id, 0, &config) == tuttiSuccess);
    REQUIRE(tuttiCommSplit(comm, 0, 0, &part, NULL) == tuttiSuccess);
    CHECK_EQ(tuttiAlltoAll(data, data, N, tuttiInt32, part, NULL), tuttiSuccess);
    CHECK_EQ(tuttiCommDestroy(part), tuttiSuccess);
    config.overlaps = 0;
    REQUIRE(tuttiCommSplit(comm, 0, 0, &part, &config) == tuttiSuccess);
    CHECK_EQ(tuttiAlltoAll(data, data, N, tuttiInt32, part, NULL), tuttiInvalidArgument);
    CHECK_EQ(tuttiCommDestroy(part), tuttiSuccess);
    CHECK_EQ(tuttiCommDestroy(comm), tuttiSuccess);
}

/* A call like the last one is checked by its pointers alone, and with the same pointers not at all.
 */
TEST(overlaps, are_refused_in_every_call_also_where_all_else_is_as_in_the_last_one)
{
    tuttiComm_t comm;
    tuttiUniqueId id;
    int data[3 * N] = {0};
    int *const refused[] = {data + 1, NULL, data + N - 1};
    int *const taken[] = {data + N, data, data + 2 * N};
    REQUIRE(tuttiGetUniqueId(&id) == tuttiSuccess);
    REQUIRE(tuttiCommInitRank(&comm, 1, id, 0) == tuttiSuccess);
    for (int i = 0; i < 3; i++) {
        for (int again = 0; again < 3; again++)
            CHECK_EQ(tuttiAllReduce(data, refused[i], N, tuttiInt32, tuttiSum, comm, NULL),
                     tuttiInvalidArgument);
        for (int again = 0; again < 3; again++)
            CHECK_EQ(tuttiAllReduce(data, taken[i], N, tuttiInt32, tuttiSum, comm, NULL),
                     tuttiSuccess);
    }
    CHECK_EQ(tuttiAllReduce(NULL, data + 2 * N, N, tuttiInt32, tuttiSum, comm, NULL),
             tuttiInvalidArgument);
    CHECK_EQ(tuttiAllReduce(data + N + 1, data + 2 * N, N, tuttiInt32, tuttiSum, comm, NULL),
             tuttiInvalidArgument);
    CHECK_EQ(tuttiCommDestroy(comm), tuttiSuccess);
}

TEST(overlaps, of_another_value_is_refused)
{
    tuttiComm_t comm;
    tuttiUniqueId id;
    tuttiConfig_t config = TUTTI_CONFIG_INITIALIZER;
    config.overlaps = 2;
    REQUIRE(tuttiGetUniqueId(&id) == tuttiSuccess);
    CHECK_EQ(tuttiCommInitRankConfig(&comm, 1, id, 0, &config), tuttiInvalidArgument);
    CHECK(strstr(tuttiGetLastError(NULL), "overlaps is 2"));
}
