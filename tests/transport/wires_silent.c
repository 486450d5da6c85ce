/* A network that is silent from the middle of a handshake on: neither data nor acknowledgements. */
#include "transport/wired.h"

#include <linux/filter.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/config.h"
#include "shim.h"
#include "transport/wires_internal.h"

/* The kernel drops all that comes for the socket from now on. */
static bool be_silent(int fd)
{
    struct sock_filter nothing = BPF_STMT(BPF_RET | BPF_K, 0);
    const struct sock_fprog filter = {.len = 1, .filter = &nothing};
    return setsockopt(fd, SOL_SOCKET, SO_ATTACH_FILTER, &filter, sizeof filter) == 0;
}

/* Turns of both ranks until the greeting of rank 1 has come to rank 0, which has not read it. */
static bool await_greeting(struct wired *all, const struct tt_dial *dial)
{
    const int64_t deadline_ns = tt_deadline_ns(20000);
    int nbytes = 0;
    while (dial->fd < 0 || dial->state != TT_DIAL_GREETING)
        if (tt_wires_progress(all->wires[0]) < 0 || tt_expired(deadline_ns)) return false;
    while (!ioctl(dial->fd, FIONREAD, &nbytes) && nbytes < (int)sizeof dial->greeting)
        if (tt_wires_progress(all->wires[1]) < 0 || tt_expired(deadline_ns)) return false;
    return true;
}

TEST(wires_silent, a_hello_that_nothing_acknowledges_is_an_error_in_time)
{
    struct wired all;
    const struct tt_wires_config config = wired_config();
    setenv("TUTTI_NET_TIMEOUT_MS", "1000", 1);
    tt_config_reload();
    REQUIRE(wired_open(&all, 2, &config));
    struct tt_link *tx = tt_wires_tx(all.wires[0], 1, 0);
    CHECK(tx->ops->slot(tx, 4) == NULL);
    const struct tt_dial *dial = &all.wires[0]->table[1]->dial;
    REQUIRE(await_greeting(&all, dial) && be_silent(dial->fd));
    const int64_t deadline_ns = tt_deadline_ns(20000);
    while (tt_wires_progress(all.wires[0]) >= 0 && !tt_expired(deadline_ns))
        tt_wires_wait(all.wires[0], 1000);
    CHECK_EQ(tt_fabric_check(all.ranks.fabrics[0]), TT_ERR_REMOTE);
    const char *text = tt_fabric_failure_text(all.ranks.fabrics[0]);
    CHECK_MESSAGE(text && strstr(text, "rank 0 cannot reach rank 1 (host ") &&
                      strstr(text, "for TUTTI_NET_TIMEOUT_MS=1000 ms"),
                  "unexpected: %s", text ? text : "no failure");
    wired_close(&all);
    unsetenv("TUTTI_NET_TIMEOUT_MS");
    tt_config_reload();
}

/* Rank 0 makes no call, and connects with rank 1 until the network is silent for too long. The
 * network leads there again after that. rank 1 reads: the hello, while nothing leads back. */
static bool break_handshake(struct wired *all, bool rank_1_reads)
{
    const int64_t deadline_ns = tt_deadline_ns(20000);
    struct tt_wire *wire = tt_wire_to(all->wires[0], 1);
    if (!wire || !await_greeting(all, &wire->dial) || !be_silent(wire->dial.fd)) return false;
    const int fd = wire->dial.fd;
    while (wire->dial.fd == fd && wire->dial.state != TT_DIAL_CONNECTING) {
        if (tt_wires_listen(all->wires[0]) < 0 || tt_expired(deadline_ns)) return false;
        if (rank_1_reads && tt_wires_listen(all->wires[1]) < 0) return false;
        usleep(1000);
    }
    return true;
}

TEST(wires_silent, a_hello_that_was_given_up_is_not_read_later)
{
    struct wired all;
    const struct tt_wires_config config = wired_config();
    const int64_t deadline_ns = tt_deadline_ns(20000);
    setenv("TUTTI_NET_TIMEOUT_MS", "1000", 1);
    tt_config_reload();
    REQUIRE(wired_open(&all, 2, &config) && break_handshake(&all, false));
    const struct tt_wire *wire = all.wires[0]->table[1];
    while (wire->state != TT_WIRE_UP && !tt_expired(deadline_ns)) {
        for (int r = 1; r >= 0; r--) REQUIRE(tt_wires_listen(all.wires[r]) >= 0);
        usleep(1000);
    }
    CHECK(wired_slot(&all, 0, 1, 0, 4) && wired_slot(&all, 1, 0, 0, 4));
    wired_close(&all);
    unsetenv("TUTTI_NET_TIMEOUT_MS");
    tt_config_reload();
}

/* Rank 1 takes the two for connected. Without a third rank it listens no more. */
TEST(wires_silent, a_connection_that_only_the_peer_has_is_lost_for_who_needs_it)
{
    for (int i = 0; i < 4; i++) {
        const int nranks = 2 + i / 2, reads = i % 2; /* whose call needs it */
        struct wired all;
        const struct tt_wires_config config = wired_config();
        const int64_t deadline_ns = tt_deadline_ns(20000);
        setenv("TUTTI_NET_TIMEOUT_MS", "1000", 1);
        tt_config_reload();
        REQUIRE(wired_open(&all, nranks, &config) && break_handshake(&all, true));
        const struct tt_wire *wire = all.wires[0]->table[1];
        while (wire->state != TT_WIRE_GONE && !tt_expired(deadline_ns)) {
            for (int r = 0; r < 2; r++) REQUIRE(tt_wires_listen(all.wires[r]) >= 0);
            usleep(1000);
        }
        REQUIRE(wire->state == TT_WIRE_GONE);
        CHECK_EQ(tt_fabric_check(all.ranks.fabrics[0]), TT_OK);
        struct tt_link *link = tt_wires_tx(all.wires[reads], !reads, 0);
        CHECK(!link->ops->slot(link, 4));
        while (!tt_fabric_check(all.ranks.fabrics[reads]) && !tt_expired(deadline_ns)) {
            tt_ignore(tt_wires_progress(all.wires[reads]));
            CHECK(!link->ops->slot(link, 4));
        }
        const char *text = tt_fabric_failure_text(all.ranks.fabrics[reads]);
        CHECK_MESSAGE(strstr(text, reads ? "rank 0 (host " : "rank 1 (host "), "unexpected: %s",
                      text);
        wired_close(&all);
        unsetenv("TUTTI_NET_TIMEOUT_MS");
        tt_config_reload();
    }
}
