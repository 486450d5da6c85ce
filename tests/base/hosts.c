/* Tests of base/hosts.h. */
#include "base/hosts.h"

#include "shim.h"

TEST(hosts, ranks_are_grouped_by_identity_in_rank_order)
{
    static const uint64_t ids[] = {7, 3, 7, 3, 3, 9};
    static const int host_of[] = {0, 1, 0, 1, 1, 2}, local_of[] = {0, 0, 1, 1, 2, 0};
    static const int ranks[] = {0, 2, 1, 3, 4, 5};
    struct tt_hosts *hosts;
    REQUIRE(tt_hosts_create(ids, 6, &hosts) == TT_OK);
    CHECK_EQ(hosts->nhosts, 3);
    CHECK_EQ(hosts->least, 1);
    CHECK_EQ(hosts->most, 3);
    CHECK(!tt_hosts_even(hosts));
    for (int r = 0; r < 6; r++) {
        CHECK_EQ(hosts->host_of[r], host_of[r]);
        CHECK_EQ(hosts->local_of[r], local_of[r]);
        CHECK_EQ(hosts->ranks[r], ranks[r]);
    }
    const struct tt_group inside = tt_hosts_inside(hosts, 1), lane = tt_hosts_lane(hosts, 0);
    CHECK_EQ(inside.number, 3);
    CHECK_EQ(tt_group_rank(&inside, 2), 4);
    CHECK_EQ(lane.number, 3);
    CHECK_EQ(tt_group_rank(&lane, 1), 1);
    CHECK_EQ(tt_group_rank(&lane, 2), 5);
    tt_hosts_destroy(hosts);
}

TEST(hosts, lanes_of_even_hosts_are_an_order_of_all_ranks)
{
    static const uint64_t ids[] = {1, 2, 1, 2};
    static const int lanes[] = {0, 1, 2, 3};
    struct tt_hosts *hosts;
    REQUIRE(tt_hosts_create(ids, 4, &hosts) == TT_OK);
    CHECK(tt_hosts_even(hosts));
    for (int i = 0; i < 4; i++) CHECK_EQ(hosts->lanes[i], lanes[i]);
    struct tt_group lane = tt_hosts_lane(hosts, 1);
    CHECK_EQ(tt_group_rank(&lane, 0), 2);
    lane.replaces = true, lane.at = 0, lane.by = 3;
    CHECK_EQ(tt_group_rank(&lane, 0), 3);
    CHECK_EQ(tt_group_rank(&lane, 1), 3);
    tt_hosts_destroy(hosts);
}
