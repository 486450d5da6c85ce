/* Ranks of other hosts that are gone: who has no connection with them finds out, tells others, and
 * believes others only what it finds itself. */
#include "transport/wired.h"

#include <unistd.h>

#include "base/clock.h"
#include "shim.h"
#include "transport/wires_internal.h"

enum { NRANKS = 4, LONG_MS = 20000, REFUSALS_MS = 2000 /* far longer than all attempts take */ };

static bool open_all(struct wired *all, int nranks)
{
    const struct tt_wires_config config = wired_config();
    if (!wired_open(all, nranks, &config)) return false;
    for (int r = 0; r < nranks; r++) all->ranks.fabrics[r]->wires = all->wires[r];
    return true;
}

static void leave(struct wired *all, int rank)
{
    tt_fabric_disconnect(all->ranks.fabrics[rank]);
    all->wires[rank] = NULL;
}

static void close_all(struct wired *all)
{
    for (int r = 0; r < all->ranks.nranks; r++) leave(all, r);
    wired_close(all);
}

static bool is_any(const void *arg, int rank)
{
    (void)arg, (void)rank;
    return true;
}

static bool is_rank(const void *arg, int rank)
{
    return rank == *(const int *)arg;
}

/* Rank `rank` seeks until it knows who is gone, or for so long. Who it is; -1: nobody. */
static int seek(struct wired *all, int rank, const struct tt_missing *missing, int64_t timeout_ms)
{
    const int64_t deadline_ns = tt_deadline_ns(timeout_ms);
    const char *text;
    int gone;
    while ((gone = tt_fabric_gone(all->ranks.fabrics[rank], &text)) < 0 &&
           !tt_expired(deadline_ns)) {
        tt_wires_seek_gone(all->wires[rank], missing);
        usleep(1000);
    }
    return gone;
}

static void connect_ranks(struct wired *all, int from, int to)
{
    struct tt_message message;
    REQUIRE(wired_slot(all, from, to, 0, 8));
    struct tt_link *link = tt_wires_tx(all->wires[from], to, 0);
    link->ops->publish(link, 8, 1);
    REQUIRE(wired_peek(all, from, to, 0, &message));
}

TEST(wires_seek, a_rank_that_has_ended_is_found_among_those_that_live)
{
    struct wired all;
    const struct tt_missing missing = {.is_missing = is_any};
    const char *text = "";
    REQUIRE(open_all(&all, NRANKS));
    CHECK_EQ(seek(&all, 0, &missing, REFUSALS_MS), -1); /* ranks that make no call live */
    leave(&all, 2);
    CHECK_EQ(seek(&all, 0, &missing, LONG_MS), 2);
    CHECK_EQ(tt_fabric_gone(all.ranks.fabrics[0], &text), 2);
    CHECK_MESSAGE(strstr(text, "rank 0 cannot reach rank 2 (host ") &&
                      strstr(text, "nothing listens there any more"),
                  "unexpected: %s", text);
    CHECK(!all.wires[0]->first); /* that it asked has connected nobody */
    CHECK_EQ(tt_fabric_check(all.ranks.fabrics[0]), TT_OK);
    close_all(&all);
}

TEST(wires_seek, only_ranks_that_may_be_waited_for_are_asked)
{
    struct wired all;
    const int other = 1;
    const struct tt_missing missing = {.is_missing = is_rank, .arg = &other};
    REQUIRE(open_all(&all, NRANKS));
    leave(&all, 2);
    CHECK_EQ(seek(&all, 0, &missing, REFUSALS_MS), -1);
    close_all(&all);
}

/* Turns of everyone until rank `rank` has been told, and has had the time to find out. */
static int follow(struct wired *all, int rank, int64_t timeout_ms)
{
    const int64_t deadline_ns = tt_deadline_ns(timeout_ms);
    const char *text;
    int gone = -1;
    while (gone < 0 && !tt_expired(deadline_ns)) {
        if (!wired_turn(all)) return -2;
        for (int r = 0; r < 2; r++) tt_fabric_follow_gone(all->ranks.fabrics[r]);
        gone = tt_fabric_gone(all->ranks.fabrics[rank], &text);
        usleep(1000);
    }
    return gone;
}

TEST(wires_seek, a_rank_that_is_told_of_another_one_finds_out_itself)
{
    for (int lives = 0; lives < 2; lives++) {
        struct wired all;
        REQUIRE(open_all(&all, 3));
        connect_ranks(&all, 0, 1);
        tt_fabric_note_gone(all.ranks.fabrics[0], 2, "the network refuses rank 2");
        if (!lives) leave(&all, 2);
        struct wired two = all;
        two.ranks.nranks = 2; /* whose turns are taken */
        CHECK_EQ(follow(&two, 1, lives ? REFUSALS_MS : LONG_MS), lives ? -1 : 2);
        CHECK(all.wires[1]->table[0]->knows_gone && !all.wires[1]->table[2]);
        close_all(&all);
    }
}

/* A call may end while a rank has refused once. The thread that looks at communicators at rest
 * looks often only while it seeks. */
TEST(wires_seek, a_search_that_is_not_gone_on_with_needs_no_more_looks)
{
    struct wired all;
    const int other = 2;
    const struct tt_missing missing = {.is_missing = is_rank, .arg = &other};
    const int64_t deadline_ns = tt_deadline_ns(LONG_MS);
    REQUIRE(open_all(&all, 3));
    leave(&all, 2);
    while (!all.wires[0]->seek.nrefused && !tt_expired(deadline_ns)) {
        const bool soon = tt_wires_seek_gone(all.wires[0], &missing);
        CHECK_EQ(soon, all.wires[0]->seek.fd >= 0 || all.wires[0]->seek.nrefused);
        usleep(1000);
    }
    CHECK_EQ(all.wires[0]->seek.nrefused, 1);
    CHECK_EQ(tt_wires_listen(all.wires[0]), TT_OK);
    close_all(&all);
}

/* A rank without a call connects for as long as its peer does not answer. */
TEST(wires_seek, a_rank_that_refuses_a_connection_that_is_being_made_is_gone)
{
    struct wired all;
    const int64_t deadline_ns = tt_deadline_ns(LONG_MS);
    const char *text;
    REQUIRE(open_all(&all, 3));
    leave(&all, 2);
    REQUIRE(tt_wire_to(all.wires[1], 2));
    tt_fabric_note_gone(all.ranks.fabrics[1], 2, "rank 0 says so");
    CHECK_EQ(tt_fabric_gone(all.ranks.fabrics[1], &text), -1);
    while (tt_fabric_gone(all.ranks.fabrics[1], &text) < 0 && !tt_expired(deadline_ns)) {
        REQUIRE(tt_wires_listen(all.wires[1]) >= 0);
        usleep(1000);
    }
    CHECK_EQ(tt_fabric_gone(all.ranks.fabrics[1], &text), 2);
    CHECK_EQ(tt_fabric_check(all.ranks.fabrics[1]), TT_OK);
    close_all(&all);
}
