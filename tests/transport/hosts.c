/* Fabrics of several hosts, joined by wires over loopback. */
#include <string.h>

#include "base/clock.h"
#include "shim.h"
#include "transport/together.h"

static bool open_hosts(struct together *all, int nranks, const uint64_t *host_of)
{
    const struct tt_fabric_config config = together_config();
    return together_open_on(all, nranks, host_of, &config) && together_join(all, &config);
}

static void turn(struct together *all)
{
    for (int r = 0; r < all->nranks; r++) tt_ignore(tt_wires_progress(all->fabrics[r]->wires));
}

/* Sends one byte, so that there is a wire; false when it does not come. */
static bool connect_ranks(struct together *all, int from, int to)
{
    const int64_t deadline = tt_deadline_ns(20000);
    struct tt_message message;
    char *slot = NULL;
    bool come = false;
    while (!come && !tt_expired(deadline)) {
        struct tt_link *tx = tt_fabric_tx(all->fabrics[from], to, 0);
        struct tt_link *rx = tt_fabric_rx(all->fabrics[to], from, 0);
        if (!slot && (slot = tx->ops->slot(tx, 1))) {
            *slot = 'x';
            tx->ops->publish(tx, 1, 9);
        }
        come = rx->ops->peek(rx, &message) == TT_OK;
        if (come) rx->ops->release(rx);
        turn(all);
    }
    return come;
}

static bool fails_soon(struct together *all, int rank, int code)
{
    const int64_t deadline = tt_deadline_ns(20000);
    while (tt_fabric_check(all->fabrics[rank]) == TT_OK && !tt_expired(deadline)) turn(all);
    return tt_fabric_check(all->fabrics[rank]) == code;
}

TEST(hosts, a_failure_goes_from_host_to_host_over_ranks_that_are_connected)
{
    struct together all;
    const uint64_t host_of[] = {1, 2, 2, 3};
    REQUIRE(open_hosts(&all, 4, host_of));
    REQUIRE(connect_ranks(&all, 0, 1));
    REQUIRE(connect_ranks(&all, 2, 3));
    CHECK_EQ(tt_fabric_fail(all.fabrics[0], TT_ERR_TIMEOUT, "number %d", 7), TT_ERR_TIMEOUT);
    CHECK(fails_soon(&all, 1, TT_ERR_TIMEOUT));
    CHECK_STR(tt_fabric_failure_text(all.fabrics[2]), "number 7"); /* of the same host */
    CHECK_EQ(tt_fabric_check(all.fabrics[3]), TT_OK);
    tt_fabric_pass_on(all.fabrics[2]);
    CHECK(fails_soon(&all, 3, TT_ERR_TIMEOUT));
    CHECK_STR(tt_fabric_failure_text(all.fabrics[3]), "number 7");
    together_close(&all);
}

TEST(hosts, a_rank_that_left_another_host_is_missed_only_when_it_is_awaited)
{
    struct together all;
    const uint64_t host_of[] = {1, 2};
    REQUIRE(open_hosts(&all, 2, host_of));
    REQUIRE(connect_ranks(&all, 1, 0));
    atomic_store(&all.fabrics[1]->record->done, 3);
    tt_fabric_destroy(all.fabrics[1]);
    all.nranks = 1;
    const int64_t deadline = tt_deadline_ns(20000);
    while (tt_fabric_record(all.fabrics[0], 1)->state != TT_RANK_LEFT && !tt_expired(deadline))
        turn(&all);
    CHECK_EQ(tt_fabric_check_peers(all.fabrics[0], 3, -1, false), TT_OK);
    /* Until then another rank may say why. */
    while (tt_fabric_check_peers(all.fabrics[0], 4, -1, false) == TT_OK && !tt_expired(deadline))
        turn(&all);
    CHECK_EQ(tt_fabric_check_peers(all.fabrics[0], 4, -1, false), TT_ERR_REMOTE);
    CHECK(strstr(tt_last_error(), "rank 1"));
    CHECK(strstr(tt_last_error(), "left"));
    tt_fabric_destroy(all.fabrics[0]);
}

/* What rank 0 knows when it has heard that rank 1 has ended so many replays. */
static uint64_t tell_replays(struct together *all, uint64_t number)
{
    const int64_t deadline = tt_deadline_ns(20000);
    struct tt_rank_record *known = tt_fabric_record(all->fabrics[0], 1);
    atomic_store(&all->fabrics[1]->record->replays, number);
    atomic_store(&all->fabrics[1]->replays_sent, number / 2);
    atomic_store(&known->seen_ns, 0);
    while (!tt_wires_send_record(all->fabrics[1]->wires) && !tt_expired(deadline)) turn(all);
    while (!atomic_load(&known->seen_ns) && !tt_expired(deadline)) turn(all);
    return atomic_load(&known->replays);
}

/* A record has the lower half of the number. */
TEST(hosts, count_replays_on_beyond_2_to_32)
{
    static const uint64_t numbers[] = {5,           0x70000000,  0xe0000000,
                                       0x150000000, 0x1b0000000, 0x210000000};
    struct together all;
    const uint64_t host_of[] = {1, 2};
    REQUIRE(open_hosts(&all, 2, host_of));
    REQUIRE(connect_ranks(&all, 1, 0));
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        CHECK_EQ(tell_replays(&all, numbers[i]), numbers[i]);
        CHECK_EQ(tell_replays(&all, numbers[i] - 3), numbers[i]); /* a record that comes late */
    }
    together_close(&all);
}

TEST(hosts, say_how_they_are_reached)
{
    struct together all;
    const uint64_t host_of[] = {1, 2};
    char way[128];
    REQUIRE(open_hosts(&all, 2, host_of));
    tt_fabric_describe_peer(all.fabrics[0], 1, way, sizeof way);
    CHECK_STR(way, "not connected yet, will not be encrypted");
    REQUIRE(connect_ranks(&all, 0, 1));
    tt_fabric_describe_peer(all.fabrics[0], 1, way, sizeof way);
    CHECK(strstr(way, "tcp") && strstr(way, ", not encrypted"));
    together_close(&all);
}

/* Ranks of two machines with CPUs 0 and 1 each. */
static void fill_infos(struct tt_peer_info *infos, int nranks, const uint64_t *machine_of)
{
    memset(infos, 0, (size_t)nranks * sizeof *infos);
    for (int r = 0; r < nranks; r++) {
        infos[r].host_id = (uint64_t)r / 2;
        infos[r].machine_id = machine_of[r];
        infos[r].cpus[0] = 3;
    }
}

TEST(hosts, that_are_on_two_machines_are_refused)
{
    struct tt_peer_info infos[4];
    const uint64_t ids[] = {0, 0, 1, 1}, good[] = {5, 5, 6, 6}, bad[] = {5, 5, 6, 5};
    struct tt_hosts *hosts;
    REQUIRE(tt_hosts_create(ids, 4, &hosts) == TT_OK);
    fill_infos(infos, 4, good);
    CHECK_EQ(tt_peers_check_hosts(infos, hosts), TT_OK);
    fill_infos(infos, 4, bad);
    CHECK_EQ(tt_peers_check_hosts(infos, hosts), TT_ERR_USAGE);
    CHECK(strstr(tt_last_error(), "rank 2") && strstr(tt_last_error(), "rank 3"));
    CHECK(strstr(tt_last_error(), "TUTTI_HOST_ID"));
    tt_hosts_destroy(hosts);
}

TEST(hosts, of_one_machine_share_its_cores)
{
    struct tt_peer_info infos[4];
    const uint64_t ids[] = {0, 0, 1, 1}, apart[] = {5, 5, 6, 6}, same[] = {5, 5, 5, 5};
    struct tt_hosts *hosts;
    REQUIRE(tt_hosts_create(ids, 4, &hosts) == TT_OK);
    fill_infos(infos, 4, apart);
    CHECK(!tt_peers_oversubscribed(infos, hosts, 0) && !tt_peers_oversubscribed(infos, hosts, 1));
    CHECK(tt_peers_per_core(infos, hosts, 0) == 1 && tt_peers_per_core(infos, hosts, 1) == 1);
    infos[2].cpus[0] = 2; /* both ranks may use the same core, one of them another one too */
    CHECK(tt_peers_per_core(infos, hosts, 1) == 1);
    infos[3].cpus[0] = 2;
    CHECK(tt_peers_per_core(infos, hosts, 1) == 2 && tt_peers_oversubscribed(infos, hosts, 1));
    infos[2].cpus[0] = infos[3].cpus[0] = 0;
    CHECK(tt_peers_per_core(infos, hosts, 1) == 1);
    fill_infos(infos, 4, same);
    CHECK(tt_peers_oversubscribed(infos, hosts, 0) && tt_peers_oversubscribed(infos, hosts, 1));
    CHECK(tt_peers_per_core(infos, hosts, 0) == 2 && tt_peers_per_core(infos, hosts, 1) == 2);
    infos[2].always_spin = 1; /* its host's first rank decides */
    CHECK(tt_peers_oversubscribed(infos, hosts, 0) && !tt_peers_oversubscribed(infos, hosts, 1));
    fill_infos(infos, 4, apart);
    infos[0].oversubscribed = 1;
    CHECK(tt_peers_oversubscribed(infos, hosts, 0) && !tt_peers_oversubscribed(infos, hosts, 1));
    tt_hosts_destroy(hosts);
}

/* A letter a rank names its host; capital: it has a GPU. */
static bool bridges(const char *placement, int without_kernels, int without_bridges)
{
    struct tt_peer_info infos[8] = {{.pid = 0}};
    int n = 0;
    for (; placement[n]; n++)
        infos[n] = (struct tt_peer_info){.host_id = (uint64_t)placement[n] | 32,
                                         .gpu = placement[n] < 'a' ? n : -1,
                                         .allow_kernels = n != without_kernels,
                                         .allow_bridges = n != without_bridges};
    return tt_peers_may_bridge(infos, n);
}

TEST(hosts, have_bridges_only_where_a_gpu_has_ranks_that_it_does_not_reach)
{
    CHECK(bridges("AB", -1, -1) && bridges("AABB", -1, -1) && bridges("Ab", -1, -1));
    CHECK(bridges("aA", -1, -1) && bridges("aaB", -1, -1));
    CHECK(!bridges("A", -1, -1) && !bridges("AAA", -1, -1));
    CHECK(!bridges("a", -1, -1) && !bridges("ab", -1, -1) && !bridges("aabb", -1, -1));
    for (int r = 0; r < 3; r++) CHECK(!bridges("AbB", r, -1) && !bridges("AbB", -1, r));
}
