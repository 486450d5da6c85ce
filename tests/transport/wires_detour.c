/* Networks that lead nowhere: a wire takes another one, and the process remembers. */
#include "transport/wired.h"

#include <netinet/in.h>
#include <stdio.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "shim.h"
#include "transport/wires_internal.h"

static void set_address(struct tt_wire_address *at, uint32_t host, int port, uint32_t prefix,
                        const char *interface)
{
    const struct sockaddr_in in = {
        .sin_family = AF_INET, .sin_port = htons((uint16_t)port), .sin_addr.s_addr = htonl(host)};
    *at = (struct tt_wire_address){.prefix = prefix};
    tt_address_set(&at->address, (const struct sockaddr *)&in);
    snprintf(at->interface, TT_INTERFACE_NAME, "%s", interface);
}

/* A place of 127.0.0.3 where connections are begun and never answered: its queue is full. */
struct hole {
    int listener, waiting[8], port;
};

static void dig(struct hole *hole)
{
    struct sockaddr_in in = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(0x7f000003)};
    socklen_t nbytes = sizeof in;
    hole->listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    REQUIRE(!bind(hole->listener, (struct sockaddr *)&in, nbytes) && !listen(hole->listener, 0));
    REQUIRE(!getsockname(hole->listener, (struct sockaddr *)&in, &nbytes));
    hole->port = ntohs(in.sin_port);
    for (int i = 0; i < 8; i++) {
        hole->waiting[i] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
        (void)connect(hole->waiting[i], (struct sockaddr *)&in, nbytes);
    }
}

static void fill_in(struct hole *hole)
{
    for (int i = 0; i < 8; i++) close(hole->waiting[i]);
    close(hole->listener);
}

/* Two ranks with two networks each, on the first of which nothing arrives: at the hole, or, without
 * one, at an address to which there is no way from this one. */
static bool open_beside(struct wired *all, const struct hole *hole, const char *bad, bool has_good)
{
    const struct tt_wires_config config = wired_config();
    if (!wired_open(all, 2, &config)) return false;
    for (int r = 0; r < 2; r++) {
        struct tt_wires_info *info = &all->infos[r];
        const int port = tt_address_port(&info->loopback);
        info->network_id = (uint64_t)r + 1;
        info->naddresses = has_good ? 2 : 1;
        set_address(&info->addresses[0],
                    hole ? 0x7f000003
                    : r  ? 0x0afffff1
                         : 0x7f000002,
                    hole ? hole->port : port, 0, bad);
        set_address(&info->addresses[1], 0x7f000001, port, 8, "good0");
    }
    for (int r = 0; r < 2; r++) memcpy(all->wires[r]->infos, all->infos, sizeof all->infos[0] * 2);
    return true;
}

static bool say(struct wired *all)
{
    struct tt_link *tx = tt_wires_tx(all->wires[0], 1, 0);
    struct tt_message message;
    int *slot = wired_slot(all, 0, 1, 0, sizeof *slot);
    if (!slot) return false;
    *slot = 77;
    tx->ops->publish(tx, sizeof *slot, 1);
    return wired_peek(all, 0, 1, 0, &message) && *(const int *)message.data == 77;
}

static void say_by_detour(const struct hole *hole, const char *bad)
{
    for (int turn = 0; turn < 2; turn++) {
        struct wired all;
        char text[160];
        REQUIRE(open_beside(&all, hole, bad, true));
        const int64_t start_ns = tt_now_ns();
        const struct tt_wire *wire = tt_wire_to(all.wires[0], 1);
        REQUIRE(wire);
        CHECK_EQ(wire->nroutes, 2);
        CHECK_STR(wire->routes[0].interface, turn ? "good0" : bad);
        REQUIRE(say(&all));
        CHECK_STR(wire->routes[0].interface, "good0");
        tt_wires_describe(all.wires[1], 0, text, sizeof text);
        CHECK_MESSAGE(strstr(text, "good0") && !strstr(text, bad), "rank 1 says: %s", text);
        if (turn) CHECK(tt_now_ns() - start_ns < 500000000); /* before the first attempt's end */
        wired_close(&all);
    }
}

TEST(wires_detour, a_network_that_swallows_everything_is_tried_once_by_a_process)
{
    struct hole hole;
    setenv("TUTTI_NET_TIMEOUT_MS", "2000", 1);
    tt_config_reload();
    dig(&hole);
    say_by_detour(&hole, "hole0");
    fill_in(&hole);
    unsetenv("TUTTI_NET_TIMEOUT_MS");
    tt_config_reload();
}

TEST(wires_detour, a_network_without_a_way_to_the_peer_is_tried_once_by_a_process)
{
    say_by_detour(NULL, "wayless0");
}

TEST(wires_detour, without_another_network_the_error_names_the_setting)
{
    struct hole hole;
    struct wired all;
    setenv("TUTTI_NET_TIMEOUT_MS", "300", 1);
    tt_config_reload();
    dig(&hole);
    REQUIRE(open_beside(&all, &hole, "hole1", false));
    REQUIRE(tt_wire_to(all.wires[0], 1));
    const int64_t deadline_ns = tt_deadline_ns(20000);
    while (tt_wires_progress(all.wires[0]) >= 0 && !tt_expired(deadline_ns))
        tt_wires_wait(all.wires[0], 1000);
    const char *text = tt_fabric_failure_text(all.ranks.fabrics[0]);
    CHECK_MESSAGE(strstr(text, "over hole1") && strstr(text, "for TUTTI_NET_TIMEOUT_MS=300 ms") &&
                      strstr(text, "TUTTI_SOCKET_INTERFACE"),
                  "unexpected: %s", text);
    wired_close(&all);
    fill_in(&hole);
    unsetenv("TUTTI_NET_TIMEOUT_MS");
    tt_config_reload();
}

/* A rank without a call goes on connecting. The next call has its whole time. */
TEST(wires_detour, time_that_passes_while_a_rank_makes_no_call_does_not_count)
{
    struct hole hole;
    struct wired all;
    setenv("TUTTI_NET_TIMEOUT_MS", "300", 1);
    tt_config_reload();
    dig(&hole);
    REQUIRE(open_beside(&all, &hole, "hole2", false));
    REQUIRE(tt_wire_to(all.wires[0], 1));
    int64_t begin_ns;
    const int64_t deadline_ns = tt_deadline_ns(20000), listens_until_ns = tt_deadline_ns(900);
    do {
        begin_ns = tt_now_ns();
        REQUIRE(tt_wires_listen(all.wires[0]) >= 0);
        usleep(1000);
    } while (!tt_expired(listens_until_ns));
    while (tt_wires_progress(all.wires[0]) >= 0 && !tt_expired(deadline_ns))
        tt_wires_wait(all.wires[0], 1000);
    CHECK(tt_now_ns() - begin_ns >= 300000000);
    CHECK(strstr(tt_fabric_failure_text(all.ranks.fabrics[0]), "TUTTI_NET_TIMEOUT_MS=300 ms"));
    wired_close(&all);
    fill_in(&hole);
    unsetenv("TUTTI_NET_TIMEOUT_MS");
    tt_config_reload();
}

TEST(wires_detour, all_pairs_of_addresses_are_offered_those_of_one_subnet_first)
{
    struct tt_wires_info mine = {.naddresses = 2}, theirs = {.naddresses = 2};
    struct tt_route route;
    char got[64] = "";
    set_address(&mine.addresses[0], 0x0a000001, 1, 24, "a");
    set_address(&mine.addresses[1], 0x0a010001, 1, 24, "b");
    set_address(&theirs.addresses[0], 0x0a010002, 1, 24, "c");
    set_address(&theirs.addresses[1], 0x0a000002, 1, 24, "d");
    for (int i = 0; tt_wire_any_route(&route, &mine, &theirs, i); i++) {
        strcat(got, route.interface);
        strcat(got, route.their_interface);
        strcat(got, route.source.nbytes ? "! " : " ");
    }
    CHECK_STR(got, "ad! bc! ac bd ");
}
