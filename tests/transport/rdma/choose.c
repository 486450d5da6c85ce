/* Tests of choosing RDMA ports and pairing them with the peer's. Needs no device. */
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/config.h"
#include "shim.h"
#include "transport/rdma/rdma_choose.h"

static const struct tt_rdma_candidate there[] = {
    {.device = "mlx5_10", .port = 1, .distance = 20, .gpu_distance = TT_ACROSS_ROOTS},
    {.device = "mlx5_2", .port = 2, .distance = 20, .gpu_distance = TT_ACROSS_ROOTS},
    {.device = "mlx5_2", .port = 1, .distance = 20, .gpu_distance = TT_ACROSS_ROOTS},
    {.device = "rxe0", .port = 1, .distance = 10, .gpu_distance = TT_ACROSS_ROOTS},
    {.device = "rxe1", .port = 1, .distance = 10, .gpu_distance = TT_ACROSS_ROOTS},
};
enum { NTHERE = sizeof there / sizeof *there };

/* "rxe0/1 rxe1/1", or the error. */
static const char *chosen(const char *list)
{
    static char text[1024];
    struct tt_rdma_candidate ports[NTHERE];
    int n;
    memcpy(ports, there, sizeof there);
    if (tt_rdma_choose_ports(ports, NTHERE, list, &n)) return tt_last_error();
    size_t used = 0;
    *text = 0;
    for (int i = 0; i < n; i++)
        used += (size_t)snprintf(text + used, sizeof text - used, "%s%s/%d", i ? " " : "",
                                 ports[i].device, ports[i].port);
    return text;
}

TEST(rdma_choose, takes_the_nearest_ports_when_none_are_named)
{
    CHECK_STR(chosen(""), "rxe0/1 rxe1/1");
}

/* Distances from the CPUs and from the GPU: a port of each pair. */
static const char *chosen_of(int n, const int (*distances)[2])
{
    static char text[64];
    struct tt_rdma_candidate ports[8];
    int nchosen;
    size_t used = 0;
    for (int i = 0; i < n; i++) {
        ports[i] = (struct tt_rdma_candidate){
            .port = 1, .distance = distances[i][0], .gpu_distance = distances[i][1]};
        snprintf(ports[i].device, sizeof ports[i].device, "d%d", i);
    }
    if (tt_rdma_choose_ports(ports, n, "", &nchosen)) return tt_last_error();
    *text = 0;
    for (int i = 0; i < nchosen; i++)
        used += (size_t)snprintf(text + used, sizeof text - used, "%s%s", i ? " " : "",
                                 ports[i].device);
    return text;
}

TEST(rdma_choose, takes_those_near_to_the_cpus_and_to_the_gpu_and_these_first)
{
    enum { S = TT_BELOW_SWITCH, R = TT_BELOW_ROOT, A = TT_ACROSS_ROOTS };
    CHECK_STR(chosen_of(4, (const int[][2]){{10, R}, {10, S}, {10, A}, {20, A}}), "d1 d0 d2");
    CHECK_STR(chosen_of(3, (const int[][2]){{10, A}, {20, S}, {20, R}}), "d1 d0");
    CHECK_STR(chosen_of(3, (const int[][2]){{10, A}, {20, A}, {10, A}}), "d0 d2");
    CHECK_EQ(tt_rdma_gpu_distance(TT_DISTANCE_UNKNOWN), A);
}

TEST(rdma_choose, takes_what_is_named_the_nearest_first)
{
    CHECK_STR(chosen("mlx5,rxe0"), "rxe0/1 mlx5_2/1 mlx5_2/2 mlx5_10/1");
    CHECK_STR(chosen("mlx5_2:2,rxe1:1"), "rxe1/1 mlx5_2/2");
    CHECK_STR(chosen("mlx5_1"), "mlx5_10/1");
    CHECK_STR(chosen("=mlx5_2"), "mlx5_2/1 mlx5_2/2");
    CHECK_STR(chosen("=mlx5_2:1,rxe0"), "rxe0/1 mlx5_2/1");
    CHECK_STR(chosen("^mlx5"), "rxe0/1 rxe1/1");
    CHECK_STR(chosen("^=mlx5_2,rxe0"), "rxe1/1 mlx5_10/1");
}

TEST(rdma_choose, lists_what_there_is_when_a_name_does_not_exist)
{
    static const char all[] = "rxe0:1, rxe1:1, mlx5_2:1, mlx5_2:2, mlx5_10:1";
    static const char *const wrong[] = {"rxe7",  "=rxe",       "rxe0:2", "=mlx5_1",
                                        "^eth0", "rxe0,,rxe1", "rxe0:"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        const char *text = chosen(wrong[i]);
        CHECK_MESSAGE(strstr(text, all) && strstr(text, "TUTTI_RDMA_DEVICE"), "%s: %s", wrong[i],
                      text);
    }
    int n;
    struct tt_rdma_candidate none;
    CHECK_EQ(tt_rdma_choose_ports(&none, 0, "rxe0", &n), TT_ERR_ARGUMENT);
    CHECK(strstr(tt_last_error(), "no RDMA device"));
    CHECK_EQ(tt_rdma_choose_ports(&none, 0, "", &n), TT_OK);
    CHECK_EQ(n, 0);
}

TEST(rdma_choose, passes_over_names_of_nccls_list_that_do_not_exist)
{
    setenv("NCCL_IB_HCA", "rxe7", 1); /* any: the list in force is NCCL's */
    tt_config_reload_with_nccl(true);
    CHECK_STR(chosen("rxe7,rxe1"), "rxe1/1");
    CHECK_STR(chosen("=mlx5_1,mlx5_2:2"), "mlx5_2/2");
    CHECK_STR(chosen("^eth0,rxe"), "mlx5_2/1 mlx5_2/2 mlx5_10/1");
    CHECK_STR(chosen("rxe7"), "");
    unsetenv("NCCL_IB_HCA");
    tt_config_reload_with_nccl(false);
}

static const struct tt_gid link_local = {{0xfe, 0x80, [15] = 1}};

static struct tt_gid v4(int a, int b, int c, int d)
{
    return (struct tt_gid){{[10] = 0xff, 0xff, (uint8_t)a, (uint8_t)b, (uint8_t)c, (uint8_t)d}};
}

static struct tt_gid v6(int subnet, int host)
{
    return (struct tt_gid){{0xfd, [7] = (uint8_t)subnet, [15] = (uint8_t)host}};
}

TEST(rdma_choose, tells_kinds_of_gids_apart_and_names_them)
{
    char name[64];
    const struct tt_gid none = {{0}}, a = v4(10, 77, 0, 1), b = v6(0, 1);
    CHECK_EQ(tt_gid_kind(&none), TT_GID_NONE);
    CHECK_EQ(tt_gid_kind(&link_local), TT_GID_LINK_LOCAL);
    CHECK_EQ(tt_gid_kind(&a), TT_GID_IPV4);
    CHECK_EQ(tt_gid_kind(&b), TT_GID_GLOBAL);
    tt_gid_name(&a, name, sizeof name);
    CHECK_STR(name, "10.77.0.1");
    tt_gid_name(&b, name, sizeof name);
    CHECK_STR(name, "fd00::1");
}

static struct tt_rdma_end end_with(bool ethernet, int ngids, struct tt_gid a, struct tt_gid b)
{
    return (struct tt_rdma_end){
        .ethernet = ethernet, .ngids = (uint8_t)ngids, .mtu = 3, .gids = {a, b}};
}

TEST(rdma_choose, pairs_ports_one_to_one_on_one_subnet)
{
    struct tt_rdma_end low[4], high[2];
    struct tt_rdma_pair pairs[TT_RDMA_MAX_PORTS];
    for (int i = 0; i < 4; i++) low[i] = end_with(true, 1, v4(10, 77, 0, 1 + i), link_local);
    for (int i = 0; i < 2; i++) high[i] = end_with(true, 1, v4(10, 77, 0, 9 + i), link_local);
    REQUIRE(tt_rdma_pair_ends(low, 4, high, 2, pairs) == 2);
    for (int i = 0; i < 2; i++) {
        CHECK_EQ(pairs[i].low, i);
        CHECK_EQ(pairs[i].high, i);
    }
}

TEST(rdma_choose, pairs_ports_of_the_same_subnet_whatever_their_order)
{
    struct tt_rdma_end low[2], high[2];
    struct tt_rdma_pair pairs[TT_RDMA_MAX_PORTS];
    for (int i = 0; i < 2; i++) {
        low[i] = end_with(true, 1, v4(10, 0, i, 1), link_local);
        high[i] = end_with(true, 1, v4(10, 0, 1 - i, 2), link_local);
    }
    REQUIRE(tt_rdma_pair_ends(low, 2, high, 2, pairs) == 2);
    for (int i = 0; i < 2; i++) CHECK_EQ(pairs[i].low, 1 - pairs[i].high);
}

static struct tt_rdma_end of_rail(int rail, int host, bool is_near)
{
    struct tt_rdma_end end = end_with(true, 1, v4(10, 0, rail, host), link_local);
    end.is_near = is_near;
    return end;
}

/* Hosts with two ports, each near to one of two GPUs, on one subnet or on two. */
TEST(rdma_choose, pairs_the_ports_that_are_near_to_the_gpus_where_they_share_a_subnet)
{
    struct tt_rdma_pair pairs[TT_RDMA_MAX_PORTS];
    const struct tt_rdma_end flat[2] = {of_rail(0, 1, false), of_rail(0, 2, true)},
                             peers[2] = {of_rail(0, 3, true), of_rail(0, 4, false)};
    REQUIRE(tt_rdma_pair_ends(flat, 2, peers, 2, pairs) == 1);
    CHECK(pairs[0].low == 1 && pairs[0].high == 0);
    const struct tt_rdma_end low[2] = {of_rail(0, 1, true), of_rail(1, 1, false)},
                             same[2] = {of_rail(0, 2, true), of_rail(1, 2, false)},
                             across[2] = {of_rail(0, 2, false), of_rail(1, 2, true)};
    REQUIRE(tt_rdma_pair_ends(low, 2, same, 2, pairs) == 1);
    CHECK(pairs[0].low == 0 && pairs[0].high == 0);
    REQUIRE(tt_rdma_pair_ends(low, 2, across, 2, pairs) == 2);
    for (int i = 0; i < 2; i++) CHECK_EQ(pairs[i].low, pairs[i].high);
}

TEST(rdma_choose, prefers_ipv4_then_global_ipv6_then_link_local)
{
    struct tt_rdma_pair pairs[TT_RDMA_MAX_PORTS];
    const struct tt_rdma_end both = end_with(true, 2, v4(10, 0, 0, 1), v6(0, 1));
    const struct tt_rdma_end backwards = end_with(true, 2, v6(0, 2), v4(10, 0, 0, 2));
    const struct tt_rdma_end only_v6 = end_with(true, 2, link_local, v6(0, 3));
    const struct tt_rdma_end local = end_with(true, 1, link_local, link_local);
    REQUIRE(tt_rdma_pair_ends(&both, 1, &backwards, 1, pairs) == 1);
    CHECK_EQ(pairs[0].low_gid, 0);
    CHECK_EQ(pairs[0].high_gid, 1);
    REQUIRE(tt_rdma_pair_ends(&both, 1, &only_v6, 1, pairs) == 1);
    CHECK_EQ(pairs[0].low_gid, 1);
    CHECK_EQ(pairs[0].high_gid, 1);
    REQUIRE(tt_rdma_pair_ends(&only_v6, 1, &local, 1, pairs) == 1);
    CHECK_EQ(pairs[0].low_gid, 0);
    CHECK_EQ(tt_rdma_pair_ends(&both, 1, &local, 1, pairs), 0);
}

TEST(rdma_choose, does_not_pair_what_cannot_talk)
{
    struct tt_rdma_pair pairs[TT_RDMA_MAX_PORTS];
    const struct tt_rdma_end roce = end_with(true, 1, link_local, link_local);
    const struct tt_rdma_end infiniband = end_with(false, 1, link_local, link_local);
    const struct tt_rdma_end elsewhere = end_with(false, 1, v6(1, 1), link_local);
    const struct tt_rdma_end silent = end_with(true, 0, link_local, link_local);
    CHECK_EQ(tt_rdma_pair_ends(&roce, 1, &infiniband, 1, pairs), 0);
    CHECK_EQ(tt_rdma_pair_ends(&infiniband, 1, &elsewhere, 1, pairs), 0);
    CHECK_EQ(tt_rdma_pair_ends(&roce, 1, &silent, 1, pairs), 0);
    CHECK_EQ(tt_rdma_pair_ends(&roce, 1, &roce, 0, pairs), 0);
    CHECK_EQ(tt_rdma_pair_ends(&infiniband, 1, &infiniband, 1, pairs), 1);
}
