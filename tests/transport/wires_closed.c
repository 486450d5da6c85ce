/* A program that closes the descriptor with which the library waits for other hosts, and has an
 * epoll instance of its own under the number. */
#include "transport/wired.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "own_epoll.h"
#include "shim.h"
#include "transport/wires_internal.h"

/* A message on channel 0, so that the two are connected. */
static bool connect_ranks(struct wired *all)
{
    struct tt_message message;
    if (!wired_slot(all, 0, 1, 0, 4)) return false;
    struct tt_link *tx = tt_wires_tx(all->wires[0], 1, 0);
    tx->ops->publish(tx, 4, 1);
    return wired_peek(all, 0, 1, 0, &message);
}

/* What programs keep in an event: a descriptor, an address, anything. */
static const uint64_t of_program[] = {0, 3, 8, UINT64_MAX, UINT64_C(0x7fff12345678)};

/* first: what looks at the instance first. Rank 0's number is the program's from then on. */
static void lose(void (*first)(struct wired *all), bool connected)
{
    for (size_t i = 0; i < sizeof of_program / sizeof *of_program && !tt_test_failed(); i++) {
        struct wired all;
        const struct tt_wires_config config = wired_config();
        REQUIRE(wired_open(&all, 2, &config));
        if (connected) REQUIRE(connect_ranks(&all));
        const int number = all.wires[0]->epoll.fd;
        REQUIRE(own_epoll_put(number, of_program[i]));
        first(&all);
        CHECK_EQ(tt_wires_progress(all.wires[0]), TT_ERR_USAGE);
        const char *text = tt_fabric_failure_text(all.ranks.fabrics[0]);
        CHECK_MESSAGE(strstr(text, "rank 0 has closed the descriptor with which it waits for other "
                                   "hosts: a program must leave tutti's descriptors open"),
                      "%s", text);
        wired_close(&all);
        CHECK_MESSAGE(own_epoll_take(number, of_program[i]), "the program's instance was changed");
    }
}

static void look(struct wired *all)
{
    CHECK_EQ(tt_wires_progress(all->wires[0]), TT_ERR_USAGE);
}

static void sleep_first(struct wired *all)
{
    tt_wires_wait(all->wires[0], 1000);
}

TEST(wires_closed, an_instance_of_the_program_is_noticed_by_a_rank_that_looks)
{
    lose(look, true);
    lose(look, false);
}

TEST(wires_closed, an_instance_of_the_program_is_noticed_by_a_rank_that_sleeps)
{
    lose(sleep_first, true);
}

TEST(wires_closed, a_rank_whose_communicator_has_failed_leaves_an_instance_of_the_program_alone)
{
    struct wired all;
    const struct tt_wires_config config = wired_config();
    REQUIRE(wired_open(&all, 2, &config));
    REQUIRE(connect_ranks(&all));
    tt_ignore(tt_fabric_fail(all.ranks.fabrics[0], TT_ERR_REMOTE, "somebody has died"));
    const int number = all.wires[0]->epoll.fd;
    REQUIRE(own_epoll_put(number, 8));
    tt_wires_begin_telling(all.wires[0]);
    tt_wires_tell(all.wires[0]);
    tt_wires_tell(all.wires[0]);
    wired_close(&all);
    CHECK_MESSAGE(own_epoll_take(number, 8), "the program's instance was changed");
}

/* What is sent then would go into a file of the program's that has got the number. */
static void send_over_closed(bool (*sends)(struct tt_wires *wires))
{
    struct wired all;
    int ends[2];
    char byte;
    const struct tt_wires_config config = wired_config();
    REQUIRE(wired_open(&all, 2, &config) && connect_ranks(&all));
    const int number = all.wires[0]->table[1]->tcp.sockets[0].fd;
    REQUIRE(!socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends));
    REQUIRE(dup2(ends[1], number) == number);
    sends(all.wires[0]);
    CHECK_EQ(recv(ends[0], &byte, 1, MSG_DONTWAIT), -1);
    CHECK(tt_wires_closed_here(all.wires[0]));
    wired_close(&all);
    CHECK(fcntl(number, F_GETFD) >= 0); /* the program's file is left alone */
    close(number);
    for (int i = 0; i < 2; i++) close(ends[i]);
}

static bool send_gone(struct tt_wires *wires)
{
    tt_wires_send_gone(wires, 0, 1, "rank 1 is gone");
    return true;
}

TEST(wires_closed, nothing_is_sent_over_a_connection_that_the_program_has_closed)
{
    send_over_closed(send_gone);
    send_over_closed(tt_wires_send_record);
}

/* As where RDMA carries the data: nothing is read from the sockets or sent over them. */
TEST(wires_closed, a_connection_that_the_program_closes_is_noticed_though_nobody_uses_it)
{
    struct wired all;
    const struct tt_wires_config config = wired_config();
    REQUIRE(wired_open(&all, 2, &config));
    REQUIRE(connect_ranks(&all));
    close(all.wires[0]->table[1]->tcp.sockets[0].fd);
    const int64_t deadline_ns = tt_deadline_ns(20000);
    while (!tt_wires_closed_here(all.wires[0]) && !tt_expired(deadline_ns)) {
        REQUIRE(tt_wires_progress(all.wires[0]) >= 0);
        tt_test_pause();
    }
    const char *text = tt_wires_closed_here(all.wires[0]);
    REQUIRE(text != NULL);
    CHECK_MESSAGE(strstr(text, "rank 0 has closed the descriptor of its connection with rank 1"),
                  "%s", text);
    wired_close(&all);
}
