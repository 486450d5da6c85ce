/* A network that is silent from the middle of a handshake on: neither data nor acknowledgements. */
#include "transport/wired.h"

#include <linux/filter.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

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
