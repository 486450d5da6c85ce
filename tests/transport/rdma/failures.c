/* Tests of RDMA links over ports that go down, lose packets or delay them. Needs devices. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/config.h"
#include "transport/rdma/pair.h"
#include "shim.h"

static bool in_machine(void)
{
    return getenv("RDMA_VM") != NULL;
}

static const char machine_only[] =
    "would break the network of this host; tests/transport/rdma/suite.sh runs "
    "this in a virtual machine";

/* Sends from rank 0 to 1 until it fails; the text. */
static const char *text_of_failure(struct pair *pair)
{
    const int64_t deadline = tt_deadline_ns(120000);
    tt_status status = TT_OK;
    while (!status && !tt_expired(deadline)) status = pair_exchange(pair, 0, 0, 100, 1);
    CHECK_EQ(status, TT_ERR_REMOTE);
    return tt_fabric_failure_text(pair->all.fabrics[0]);
}

static void check_names_everything(const char *text)
{
    static const char *const words[] = {
        "rank 1 (host ",          "rxe0 port 1",
        "10.77.0.1 to 10.77.0.2", "transport retry counter exceeded",
        "vendor error",           "UDP port 4791",
        "TUTTI_RDMA_TIMEOUT"};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        CHECK_MESSAGE(strstr(text, words[i]), "no \"%s\" in: %s", words[i], text);
}

TEST(rdma_failures, a_port_that_stays_down_is_named_with_peer_and_what_to_check)
{
    if (pair_unable()) SKIP(pair_unable());
    if (!in_machine()) SKIP(machine_only);
    struct pair pair;
    REQUIRE(pair_open(&pair, "=rxe0", "=rxe1"));
    REQUIRE(pair_connect(&pair));
    CHECK_EQ(pair_exchange(&pair, 0, 0, 1000, 1), TT_OK);
    REQUIRE(pair_shell("ip link set port1 down"));
    check_names_everything(text_of_failure(&pair));
    pair_shell("ip link set port1 up");
    pair_close(&pair);
}

TEST(rdma_failures, lost_packets_end_in_an_error_too)
{
    if (pair_unable()) SKIP(pair_unable());
    if (!in_machine()) SKIP(machine_only);
    struct pair pair;
    REQUIRE(pair_open(&pair, "=rxe0", "=rxe1"));
    REQUIRE(pair_connect(&pair));
    REQUIRE(pair_shell("tc qdisc add dev rdma0 root netem loss 100%"));
    check_names_everything(text_of_failure(&pair));
    pair_shell("tc qdisc del dev rdma0 root");
    pair_close(&pair);
}

/* TUTTI_RDMA_TIMEOUT is raised so that the window is seconds wide. */
TEST(rdma_failures, a_port_that_comes_back_in_time_goes_on)
{
    if (pair_unable()) SKIP(pair_unable());
    if (!in_machine()) SKIP(machine_only);
    struct pair pair;
    setenv("TUTTI_RDMA_TIMEOUT", "19", 1);
    REQUIRE(pair_open(&pair, "=rxe0", "=rxe1"));
    REQUIRE(pair_connect(&pair));
    REQUIRE(pair_shell("ip link set port1 down; (sleep 2; ip link set port1 up) &"));
    for (unsigned i = 0; i < 10 && !tt_test_failed(); i++)
        CHECK_EQ(pair_exchange(&pair, (int)(i & 1), 0, 10000, i), TT_OK);
    CHECK_STR(tt_fabric_failure_text(pair.all.fabrics[0]), "");
    pair_close(&pair);
    unsetenv("TUTTI_RDMA_TIMEOUT");
    tt_config_reload();
}

/* With this TUTTI_RDMA_TIMEOUT the device would try for hours. */
TEST(rdma_failures, a_device_that_does_not_give_up_is_given_up)
{
    if (pair_unable()) SKIP(pair_unable());
    if (!in_machine()) SKIP(machine_only);
    struct pair pair;
    setenv("TUTTI_RDMA_TIMEOUT", "31", 1);
    setenv("TUTTI_NET_TIMEOUT_MS", "1000", 1);
    REQUIRE(pair_open(&pair, "=rxe0", "=rxe1"));
    REQUIRE(pair_connect(&pair));
    REQUIRE(pair_shell("ip link set port1 down"));
    const char *text = text_of_failure(&pair);
    CHECK_MESSAGE(strstr(text, "TUTTI_NET_TIMEOUT_MS") && strstr(text, "rank 1 (host ") &&
                      strstr(text, "rxe0 port 1"),
                  "%s", text);
    pair_shell("ip link set port1 up");
    pair_close(&pair);
    unsetenv("TUTTI_RDMA_TIMEOUT");
    unsetenv("TUTTI_NET_TIMEOUT_MS");
    tt_config_reload();
}

TEST(rdma_failures, lost_and_late_packets_do_not_change_results)
{
    if (pair_unable()) SKIP(pair_unable());
    if (!in_machine()) SKIP(machine_only);
    static const char *const faults[] = {"loss 1%", "delay 50ms"};
    for (size_t f = 0; f < 2 && !tt_test_failed(); f++) {
        struct pair pair;
        char command[128];
        REQUIRE(pair_open(&pair, "=rxe0", "=rxe1"));
        REQUIRE(pair_connect(&pair));
        snprintf(command, sizeof command, "tc qdisc add dev rdma1 root netem %s", faults[f]);
        REQUIRE(pair_shell(command));
        for (unsigned i = 0; i < 30 && !tt_test_failed(); i++)
            CHECK_EQ(pair_exchange(&pair, (int)(i & 1), 2, 20000, i), TT_OK);
        pair_shell("tc qdisc del dev rdma1 root");
        pair_close(&pair);
    }
}

TEST(rdma_failures, a_peer_that_is_gone_is_named)
{
    if (pair_unable()) SKIP(pair_unable());
    struct pair pair;
    REQUIRE(pair_open(&pair, NULL, NULL));
    REQUIRE(pair_connect(&pair));
    CHECK_EQ(pair_exchange(&pair, 0, 0, 10, 1), TT_OK);
    tt_rdma_wire_destroy(pair.wires[1]);
    pair.wires[1] = NULL;
    struct tt_link *tx = tt_rdma_tx(pair.wires[0], 0);
    const int64_t deadline = tt_deadline_ns(120000);
    if (tx->ops->slot(tx, 10)) tx->ops->publish(tx, 10, 1);
    tt_status status = TT_OK;
    while (!status && !tt_expired(deadline)) status = tt_rdma_wire_progress(pair.wires[0]);
    CHECK_EQ(status, TT_ERR_REMOTE);
    CHECK(strstr(tt_fabric_failure_text(pair.all.fabrics[0]), "rank 1 (host "));
    CHECK(tx->ops->slot(tx, 10) == NULL);
    pair_close(&pair);
}

TEST(rdma_failures, a_peer_that_announced_its_end_is_none)
{
    if (pair_unable()) SKIP(pair_unable());
    struct pair pair;
    REQUIRE(pair_open(&pair, NULL, NULL));
    REQUIRE(pair_connect(&pair));
    struct tt_link *tx = tt_rdma_tx(pair.wires[0], 0);
    tt_rdma_wire_destroy(pair.wires[1]);
    pair.wires[1] = NULL;
    if (tx->ops->slot(tx, 10)) tx->ops->publish(tx, 10, 1);
    tt_rdma_wire_quiet(pair.wires[0]);
    const int64_t deadline = tt_deadline_ns(120000);
    while (pair.wires[0]->nposted != pair.wires[0]->ncompleted && !tt_expired(deadline)) {
        struct ibv_wc done;
        if (ibv_poll_cq(pair.wires[0]->used[0]->cq, 1, &done) != 1) continue;
        CHECK(done.status != IBV_WC_SUCCESS);
        CHECK_EQ(tt_rdma_fail_completion(pair.wires[0]->used[0], &done), TT_OK);
        break;
    }
    CHECK_EQ(tt_rdma_wire_progress(pair.wires[0]), TT_OK);
    CHECK_STR(tt_fabric_failure_text(pair.all.fabrics[0]), "");
    pair_close(&pair);
}

/* Rank 1 loses rank 0, from which a message of 100 bytes has come that is not read yet. */
static bool lose_behind_a_message(struct pair *pair)
{
    struct tt_link *tx = tt_rdma_tx(pair->wires[0], 0);
    void *slot = tx->ops->slot(tx, 100);
    if (!slot) return false;
    pair_fill(slot, 100, 7);
    tx->ops->publish(tx, 100, 9);
    const int64_t deadline = tt_deadline_ns(60000);
    while (pair->wires[1]->nreceived == 0 && !tt_expired(deadline))
        if (tt_rdma_wire_progress(pair->wires[1])) return false;
    tt_rdma_wire_lost(pair->wires[1]);
    return pair->wires[1]->nreceived > 0;
}

TEST(rdma_failures, of_a_lost_peer_what_has_come_is_given_and_more_is_missed)
{
    if (pair_unable()) SKIP(pair_unable());
    struct pair pair;
    REQUIRE(pair_open(&pair, NULL, NULL));
    REQUIRE(pair_connect(&pair));
    struct tt_link *rx = tt_rdma_rx(pair.wires[1], 0);
    struct tt_link *back = tt_rdma_tx(pair.wires[1], 0);
    REQUIRE(lose_behind_a_message(&pair));
    struct tt_message message;
    REQUIRE(rx->ops->peek(rx, &message) == TT_OK);
    CHECK_EQ(message.signature, 9);
    rx->ops->release(rx);
    CHECK(back->ops->drained(back) && back->ops->flushed(rx));
    CHECK_EQ(tt_fabric_check(pair.all.fabrics[1]), TT_OK);
    CHECK(back->ops->slot(back, 4) == NULL);
    CHECK_STR(strstr(tt_fabric_failure_text(pair.all.fabrics[1]), "is gone"), "is gone");
    CHECK_EQ(rx->ops->peek(rx, &message), TT_ERR_REMOTE);
    pair_close(&pair);
}

/* Its header is read after the peer has announced its end, when failures are not the wire's any
 * more. */
TEST(rdma_failures, a_message_of_a_lost_peer_that_is_not_what_it_should_be_is_missed)
{
    if (pair_unable()) SKIP(pair_unable());
    struct pair pair;
    REQUIRE(pair_open(&pair, NULL, NULL));
    REQUIRE(pair_connect(&pair));
    struct tt_link *rx = tt_rdma_rx(pair.wires[1], 0);
    REQUIRE(lose_behind_a_message(&pair));
    struct tt_message message = {.nbytes = 77};
    const struct tt_rdma_link *end = rx->end;
    char *payload =
        end->wire->memory + tt_rdma_slot_at(end->wire, false, 0, end->next % PAIR_SLOTS);
    struct tt_rdma_header *header = (struct tt_rdma_header *)(void *)payload - 1;
    CHECK_EQ(header->nbytes, 100);
    header->nbytes = PAIR_SLOT_BYTES + 1;
    CHECK_EQ(rx->ops->peek(rx, &message), TT_ERR_REMOTE);
    CHECK_EQ(message.nbytes, 77);
    CHECK_STR(strstr(tt_fabric_failure_text(pair.all.fabrics[1]), "is gone"), "is gone");
    pair_close(&pair);
}

/* ---- Bad input ------------------------------------------------------------------------------ */

/* What connecting with an offer that was changed at `offset` says. */
static void check_refused(struct pair *pair, size_t offset, uint8_t value, const char *words)
{
    struct tt_room_offer offer = pair->offers[1];
    offer.bytes[offset] = value;
    CHECK_EQ(tt_rdma_wire_connect(pair->wires[0], &offer), TT_ERR_REMOTE);
    CHECK_MESSAGE(strstr(tt_last_error(), words), "no \"%s\" in: %s", words, tt_last_error());
    CHECK(strstr(tt_last_error(), "rank 1 (host "));
}

TEST(rdma_failures, offers_that_do_not_fit_are_refused)
{
    if (pair_unable()) SKIP(pair_unable());
    struct pair pair;
    REQUIRE(pair_open(&pair, NULL, NULL));
    const size_t first_end = 40;
    check_refused(&pair, 0, 77, "another version");
    check_refused(&pair, 4, 200, "another version");
    check_refused(&pair, 8, 33, "TUTTI_SLOTS");
    check_refused(&pair, 16, 33, "TUTTI_SLOT_BYTES");
    check_refused(&pair, 24, 33, "TUTTI_CHANNELS");
    check_refused(&pair, first_end + offsetof(struct tt_rdma_end, mtu), 6, "damaged");
    check_refused(&pair, first_end + offsetof(struct tt_rdma_end, ngids), 4, "damaged");
    struct tt_room_offer empty = {0};
    CHECK_EQ(tt_rdma_wire_connect(pair.wires[0], &empty), TT_ERR_REMOTE);
    REQUIRE(pair_connect(&pair));
    CHECK_EQ(pair_exchange(&pair, 0, 0, 1000, 1), TT_OK);
    pair_close(&pair);
}

static void check_open_fails(const char *name, const char *value, const char *words)
{
    struct together all;
    const struct tt_fabric_config config = together_config();
    struct tt_rdma *rdma;
    REQUIRE(together_open(&all, 1, &config));
    setenv(name, value, 1);
    tt_config_reload();
    CHECK_EQ(tt_rdma_open(&rdma, &pair_config), TT_ERR_ARGUMENT);
    CHECK_MESSAGE(strstr(tt_last_error(), words), "no \"%s\" in: %s", words, tt_last_error());
    CHECK(strstr(tt_last_error(), name));
    CHECK(!rdma);
    unsetenv(name);
    tt_config_reload();
    together_close(&all);
}

TEST(rdma_failures, settings_that_cannot_be_met_say_what_could)
{
    if (pair_unable()) SKIP(pair_unable());
    check_open_fails("TUTTI_RDMA_DEVICE", "mlx9", "rxe0:1");
    check_open_fails("TUTTI_RDMA_GID_INDEX", "99", "(10.77.0.");
    check_open_fails("TUTTI_RDMA_RETRIES", "7", "expected 0 to 6");
    check_open_fails("TUTTI_RDMA_TIMEOUT", "0", "expected 1 to 31");
    check_open_fails("TUTTI_RDMA_SERVICE_LEVEL", "16", "expected 0 to 15");
    check_open_fails("TUTTI_RDMA_TRAFFIC_CLASS", "256", "expected 0 to 255");
}

TEST(rdma_failures, a_device_without_an_active_port_is_not_kept_open)
{
    if (pair_unable()) SKIP(pair_unable());
    if (!in_machine()) SKIP(machine_only);
    struct tt_rdma *rdma = NULL;
    setenv("TUTTI_RDMA_DEVICE", "=rxe0,rxe1", 1);
    tt_config_reload();
    REQUIRE(pair_shell("ip link set rdma0 down"));
    CHECK_EQ(tt_rdma_open(&rdma, &pair_config), TT_OK);
    pair_shell("ip link set rdma0 up; for j in 2 3 4; do ip neigh replace 10.77.0.$j lladdr "
               "02:77:00:00:00:0$j dev rdma0 nud permanent; done");
    REQUIRE(rdma != NULL);
    CHECK_EQ(rdma->nports, 1);
    CHECK_EQ(rdma->ndevices, 1);
    CHECK_STR(rdma->devices[0].name, "rxe1");
    CHECK(rdma->ports[0].device == &rdma->devices[0]);
    tt_rdma_close(rdma);
    unsetenv("TUTTI_RDMA_DEVICE");
    tt_config_reload();
}

/* In a process of its own that is not root, for root may lock as much as it likes. */
static int without_locked_memory(void)
{
    struct pair pair = {0};
    const struct tt_fabric_config config = together_config();
    const struct rlimit limit = {.rlim_cur = 65536, .rlim_max = 65536};
    if (!together_open(&pair.all, 2, &config) || setrlimit(RLIMIT_MEMLOCK, &limit) ||
        setresuid(65534, 65534, 65534))
        return 2;
    if (tt_rdma_open(&pair.rdma[0], &pair_config)) return 3;
    if (!pair.rdma[0]) return 4;
    tt_rdma_start(pair.rdma[0], &pair.all.fabrics[0]->context);
    pair.offers[0].nbytes = 1;
    if (!tt_rdma_wire_create(&pair.wires[0], pair.rdma[0], 1, &pair.offers[0])) return 5;
    if (!strstr(tt_last_error(), "ulimit -l is 64 KiB") || pair.offers[0].nbytes) return 6;
    return 0;
}

TEST(rdma_failures, too_little_locked_memory_is_said_and_offers_nothing)
{
    if (pair_unable()) SKIP(pair_unable());
    if (getuid() != 0) SKIP("needs root, to become another user");
    const pid_t child = fork();
    REQUIRE(child >= 0);
    if (child == 0) _exit(without_locked_memory());
    int status;
    REQUIRE(waitpid(child, &status, 0) == child);
    CHECK_EQ(status, 0);
}
