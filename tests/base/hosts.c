/* Tests of base/hosts.h. */
#include "base/hosts.h"

#include <string.h>

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

/* ---- Groups of one host --------------------------------------------------------------------- */

/* Of ranks on GPUs, a digit for each. near: pairs of GPUs of one group, as "02 13"; their distance
 * is 1, that of others 3. Returns the groups. */
static struct tt_hosts *group(const char *gpus, const char *near)
{
    uint8_t distances[64];
    struct tt_hosts *groups = NULL;
    const int n = (int)strlen(gpus);
    for (int a = 0; a < n; a++)
        for (int b = 0; b < n; b++) {
            const char pair[] = {gpus[a] < gpus[b] ? gpus[a] : gpus[b],
                                 gpus[a] < gpus[b] ? gpus[b] : gpus[a], 0};
            distances[a * n + b] = gpus[a] == gpus[b] || strstr(near, pair) ? 1 : 3;
        }
    CHECK_EQ(tt_hosts_by_distance(distances, n, &groups), TT_OK);
    return groups;
}

static void check_ranks(const struct tt_hosts *groups, const int *ranks)
{
    REQUIRE(groups);
    CHECK(groups->one_host);
    for (int r = 0; r < groups->nranks; r++) CHECK_EQ(groups->ranks[r], ranks[r]);
}

TEST(hosts, ranks_that_are_near_to_one_another_are_a_group)
{
    struct tt_hosts *groups = group("0123", "02 13");
    check_ranks(groups, (const int[]){0, 2, 1, 3});
    CHECK_EQ(groups->nhosts, 2);
    tt_hosts_destroy(groups);
    groups = group("010122", "01"); /* of which one has a pair between */
    check_ranks(groups, (const int[]){0, 1, 2, 3, 4, 5});
    CHECK_EQ(groups->nhosts, 2);
    tt_hosts_destroy(groups);
    groups = group("20310", "01 12"); /* 0 and 2 are near to 1 */
    check_ranks(groups, (const int[]){0, 1, 3, 4, 2});
    tt_hosts_destroy(groups);
}

TEST(hosts, ranks_that_are_all_alike_are_no_groups)
{
    CHECK(!group("0", ""));
    CHECK(!group("01", ""));
    CHECK(!group("0123", ""));
    CHECK(!group("0123", "01 02 03 12 13 23"));
    CHECK(!group("0123", "01 12 23")); /* each by one between */
}

/* A rank that does not see the other's GPU says 0. */
TEST(hosts, the_larger_distance_of_both_directions_counts)
{
    static const uint8_t distances[] = {1, 1, 0, 0, 1, 1, 0, 0, 3, 3, 1, 1, 3, 3, 1, 1};
    static const uint8_t seen_by_first[] = {1, 1, 1, 1, 0, 1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1};
    struct tt_hosts *groups = NULL;
    REQUIRE(tt_hosts_by_distance(distances, 4, &groups) == TT_OK);
    check_ranks(groups, (const int[]){0, 1, 2, 3});
    CHECK_EQ(groups->nhosts, 2);
    tt_hosts_destroy(groups);
    REQUIRE(tt_hosts_by_distance(seen_by_first, 4, &groups) == TT_OK);
    CHECK(!groups);
}
