/* Tests of the fabric: failures, deaths, segments of several hosts. */
#include <pthread.h>
#include <sched.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "shim.h"
#include "base/clock.h"
#include "transport/together.h"

TEST(fabric, first_failure_is_everyones)
{
    struct together all;
    const struct tt_fabric_config config = together_config();
    REQUIRE(together_open(&all, 3, &config));
    for (int r = 0; r < 3; r++) CHECK_EQ(tt_fabric_check(all.fabrics[r]), TT_OK);
    CHECK_STR(tt_fabric_failure_text(all.fabrics[2]), "");
    CHECK_EQ(tt_fabric_fail(all.fabrics[1], TT_ERR_TIMEOUT, "number %d", 1), TT_ERR_TIMEOUT);
    CHECK_EQ(tt_fabric_fail(all.fabrics[2], TT_ERR_REMOTE, "number %d", 2), TT_ERR_TIMEOUT);
    for (int r = 0; r < 3; r++) {
        CHECK_EQ(tt_fabric_check(all.fabrics[r]), TT_ERR_TIMEOUT);
        CHECK_STR(tt_last_error(), "number 1");
    }
    together_close(&all);
}

TEST(fabric, sees_that_a_rank_left_only_when_it_is_awaited)
{
    struct together all;
    const struct tt_fabric_config config = together_config();
    REQUIRE(together_open(&all, 2, &config));
    atomic_store(&all.fabrics[1]->record->done, 3);
    tt_fabric_destroy(all.fabrics[1]);
    CHECK_EQ(tt_fabric_check_peers(all.fabrics[0], 3, -1, false), TT_OK);
    CHECK_EQ(tt_fabric_check_peers(all.fabrics[0], 4, -1, false), TT_ERR_REMOTE);
    CHECK(strstr(tt_last_error(), "rank 1"));
    CHECK(strstr(tt_last_error(), "left"));
    tt_fabric_destroy(all.fabrics[0]);
}

TEST(fabric, an_abort_concerns_who_waits_for_the_rank_and_nobody_else)
{
    struct together all;
    const struct tt_fabric_config config = together_config();
    REQUIRE(together_open(&all, 2, &config));
    struct tt_fabric **f = all.fabrics;
    atomic_store(&f[1]->record->done, 3);
    tt_fabric_abort(f[1], "rank 1 aborted");
    CHECK_EQ(tt_fabric_check(f[1]), TT_ERR_REMOTE);
    CHECK_STR(tt_last_error(), "rank 1 aborted");
    CHECK_EQ(tt_fabric_failure(f[1], NULL), TT_OK);
    CHECK_EQ(tt_fabric_check(f[0]), TT_OK);
    CHECK_EQ(tt_fabric_check_peers(f[0], 3, -1, false), TT_OK);
    CHECK_EQ(tt_fabric_check(f[0]), TT_OK);
    CHECK_EQ(tt_fabric_fail(f[1], TT_ERR_TIMEOUT, "late"), TT_ERR_REMOTE);
    CHECK_EQ(tt_fabric_check(f[0]), TT_OK);
    CHECK_EQ(tt_fabric_check_peers(f[0], 4, -1, false), TT_ERR_REMOTE);
    CHECK(strstr(tt_last_error(), "rank 1") && strstr(tt_last_error(), "aborted"));
    CHECK_EQ(tt_fabric_check(f[0]), TT_ERR_REMOTE);
    together_close(&all);
}

TEST(fabric, sees_the_death_of_a_process)
{
    struct tt_peer_info infos[2];
    int sockets[2], channel[2];
    REQUIRE(pipe(channel) == 0);
    const struct tt_fabric_config config = together_config();
    REQUIRE(tt_peer_info_init(&infos[0], &config, &sockets[0]) == TT_OK);
    const pid_t child = fork();
    if (child == 0) {
        if (tt_peer_info_init(&infos[1], &config, &sockets[1])) _exit(4);
        if (write(channel[1], &infos[1], sizeof infos[1]) < 0) _exit(1);
        struct tt_fabric *fabric = NULL;
        if (tt_fabric_begin(&fabric, infos, 1, 2, sockets[1], &config)) _exit(2);
        if (tt_fabric_attach(fabric, tt_deadline_ns(5000))) _exit(3);
        _exit(0); /* without leaving */
    }
    REQUIRE(read(channel[0], &infos[1], sizeof infos[1]) == sizeof infos[1]);
    struct tt_fabric *fabric;
    REQUIRE(tt_fabric_begin(&fabric, infos, 0, 2, sockets[0], &config) == TT_OK);
    REQUIRE(tt_fabric_attach(fabric, tt_deadline_ns(5000)) == TT_OK);
    const int64_t deadline = tt_deadline_ns(10000);
    while (!tt_fabric_is_dead(fabric, 1) && !tt_expired(deadline)) tt_cpu_relax();
    fabric->death_grace_ns = INT64_MAX; /* a kernel may still end */
    CHECK_EQ(tt_fabric_check_peers(fabric, 1, -1, false), TT_OK);
    /* The next collective has its own time, once the one before has ended. */
    enum { LONG_AGO_S = 1000 };
    fabric->death_grace_ns = LONG_AGO_S * INT64_C(1000000000) / 2;
    fabric->died_ns -= LONG_AGO_S * INT64_C(1000000000);
    atomic_store(&fabric->record->done, 1);
    CHECK_EQ(tt_fabric_check_peers(fabric, 2, -1, false), TT_OK);
    fabric->died_ns -= LONG_AGO_S * INT64_C(1000000000);
    CHECK_EQ(tt_fabric_check_peers(fabric, 3, -1, false), TT_ERR_REMOTE);
    CHECK(strstr(tt_last_error(), "rank 1"));
    CHECK(strstr(tt_last_error(), "died"));
    int code = -1;
    waitpid(child, &code, 0);
    CHECK_EQ(code, 0);
    tt_fabric_destroy(fabric);
    close(channel[0]);
    close(channel[1]);
}

TEST(fabric, sees_the_death_of_the_process_that_is_to_pass_the_segment)
{
    struct tt_peer_info infos[2];
    int sockets[2], channel[2], code = -1;
    REQUIRE(pipe(channel) == 0);
    const struct tt_fabric_config config = together_config();
    const pid_t child = fork();
    if (child == 0) {
        if (tt_peer_info_init(&infos[0], &config, &sockets[0])) _exit(4);
        _exit(write(channel[1], &infos[0], sizeof infos[0]) < 0);
    }
    REQUIRE(read(channel[0], &infos[0], sizeof infos[0]) == sizeof infos[0]);
    REQUIRE(tt_peer_info_init(&infos[1], &config, &sockets[1]) == TT_OK);
    struct tt_fabric *fabric;
    REQUIRE(tt_fabric_begin(&fabric, infos, 1, 2, sockets[1], &config) == TT_OK);
    CHECK_EQ(tt_fabric_attach(fabric, tt_deadline_ns(20000)), TT_ERR_REMOTE);
    CHECK_MESSAGE(strstr(tt_last_error(), "rank 0 (host ") &&
                      strstr(tt_last_error(), "has died before it passed the host segment"),
                  "%s", tt_last_error());
    tt_fabric_destroy(fabric);
    waitpid(child, &code, 0);
    CHECK_EQ(code, 0);
    close(channel[0]);
    close(channel[1]);
}

/* Hundreds of ranks, each as if in a process of its own: more descriptors than are let to be on
 * their way. */
enum { CROWD = 400 };
struct crowd {
    struct tt_peer_info infos[CROWD];
    int sockets[CROWD];
};

static void *take_all(void *arg)
{
    const struct crowd *crowd = arg;
    for (int r = 1; r < CROWD; r++) {
        struct tt_fd_note note;
        int fd = -1;
        while (tt_fdpass_receive(crowd->sockets[r], crowd->infos[0].secret, &note, &fd) ==
               TT_IN_PROGRESS)
            sched_yield();
        CHECK(fd >= 0);
        close(fd);
    }
    return NULL;
}

TEST(fabric, passes_its_segment_to_more_ranks_than_fit_at_once)
{
    static struct crowd crowd;
    const struct tt_fabric_config config = {
        .nslots = TT_MIN_SLOTS, .slot_bytes = 64, .meet_bytes = 64, .nchannels = TOGETHER_CHANNELS};
    for (int taken = 0; taken < 2; taken++) {
        struct tt_fabric *fabric = NULL;
        pthread_t taker;
        for (int r = 0; r < CROWD; r++) {
            REQUIRE(tt_peer_info_init(&crowd.infos[r], &config, &crowd.sockets[r]) == TT_OK);
            crowd.infos[r].process_id += (uint64_t)r;
        }
        const struct tt_fd_note stranger = {.secret = 1};
        while (!taken &&
               tt_fdpass_send(&crowd.infos[CROWD / 2].fd_address, &stranger, 0, NULL) == TT_OK) {
        }
        REQUIRE(tt_fabric_begin(&fabric, crowd.infos, 0, CROWD, crowd.sockets[0], &config) ==
                TT_OK);
        if (taken) REQUIRE(pthread_create(&taker, NULL, take_all, &crowd) == 0);
        const int64_t deadline = taken ? tt_deadline_ns(30000) : tt_now_ns();
        CHECK_EQ(tt_fabric_attach(fabric, deadline), taken ? TT_OK : TT_ERR_TIMEOUT);
        if (taken)
            pthread_join(taker, NULL);
        else
            CHECK(strstr(tt_last_error(), "descriptors are on their way"));
        tt_fabric_destroy(fabric);
        for (int r = 1; r < CROWD; r++) close(crowd.sockets[r]);
    }
}

TEST(fabric, has_a_segment_for_each_host)
{
    struct together all;
    const struct tt_fabric_config config = together_config();
    const uint64_t host_of[] = {7, 9, 7, 8, 9};
    REQUIRE(together_open_on(&all, 5, host_of, &config));
    struct tt_fabric **f = all.fabrics;
    CHECK_EQ(f[0]->hosts->nhosts, 3);
    CHECK(f[0]->segment == f[2]->segment);
    CHECK(f[1]->segment == f[4]->segment);
    CHECK(f[0]->segment != f[1]->segment && f[3]->segment != f[1]->segment);
    CHECK_EQ(f[3]->segment->header->nlocal, 1);
    CHECK_EQ(f[4]->local, 1);
    CHECK(tt_fabric_record(f[0], 2) == f[2]->record);
    CHECK(tt_fabric_record(f[0], 1) != f[1]->record);
    CHECK_EQ(tt_fabric_record(f[0], 1)->state, TT_RANK_ABSENT);
    char way[64];
    tt_fabric_describe_peer(f[1], 4, way, sizeof way);
    CHECK(strstr(way, "thread"));
    struct tt_link *tx = tt_fabric_tx(f[1], 4, 0), *rx = tt_fabric_rx(f[4], 1, 0);
    *(char *)tx->ops->slot(tx, 1) = 'x';
    tx->ops->publish(tx, 1, 5);
    struct tt_message message;
    REQUIRE(rx->ops->peek(rx, &message) == TT_OK);
    CHECK_EQ(*(const char *)message.data, 'x');
    together_close(&all);
}

TEST(fabric, refuses_ranks_with_different_numbers_of_channels)
{
    struct tt_peer_info infos[3];
    int sockets[3];
    struct tt_fabric_config config = together_config();
    for (int r = 0; r < 3; r++) {
        config.nchannels = r == 2 ? 1 + 5 : 1 + 2;
        REQUIRE(tt_peer_info_init(&infos[r], &config, &sockets[r]) == TT_OK);
    }
    for (int r = 0; r < 3; r++) {
        struct tt_fabric *fabric = NULL;
        config.nchannels = r == 2 ? 1 + 5 : 1 + 2;
        CHECK_EQ(tt_fabric_begin(&fabric, infos, r, 3, sockets[r], &config), TT_ERR_USAGE);
        CHECK(fabric == NULL);
        CHECK_MESSAGE(strstr(tt_last_error(), "rank 0") &&
                          strstr(tt_last_error(), "TUTTI_CHANNELS=2, rank 2") &&
                          strstr(tt_last_error(), "has 5"),
                      "the error names not the ranks and values: %s", tt_last_error());
    }
}

TEST(fabric, refuses_ranks_that_want_different_numbers_of_copies)
{
    struct tt_peer_info infos[2];
    int sockets[2];
    struct tt_fabric_config config = together_config();
    for (int r = 0; r < 2; r++) {
        config.copies = 1 + 3 * r;
        REQUIRE(tt_peer_info_init(&infos[r], &config, &sockets[r]) == TT_OK);
    }
    struct tt_fabric *fabric = NULL;
    CHECK_EQ(tt_fabric_begin(&fabric, infos, 1, 2, sockets[1], &config), TT_ERR_USAGE);
    CHECK_MESSAGE(strstr(tt_last_error(), "TUTTI_COPIES=1, rank 1") &&
                      strstr(tt_last_error(), "has 4"),
                  "the error names not the ranks and values: %s", tt_last_error());
    close(sockets[0]);
}

/* Whether the fabric of two ranks finds that both copy by strings. */
static bool finds_fast_rep_movsb(bool first, bool second)
{
    struct tt_peer_info infos[2];
    struct tt_fabric *fabric = NULL;
    int sockets[2];
    struct tt_fabric_config config = together_config();
    for (int r = 0; r < 2; r++) {
        config.has_fast_rep_movsb = r ? second : first;
        if (tt_peer_info_init(&infos[r], &config, &sockets[r])) return false;
    }
    const tt_status status = tt_fabric_begin(&fabric, infos, 0, 2, sockets[0], &config);
    const bool found = !status && fabric->all_have_fast_rep_movsb;
    CHECK_EQ(status, TT_OK);
    tt_fabric_destroy(fabric);
    close(sockets[1]);
    return found;
}

TEST(fabric, knows_whether_all_ranks_have_fast_rep_movsb)
{
    CHECK(finds_fast_rep_movsb(true, true));
    CHECK(!finds_fast_rep_movsb(true, false));
    CHECK(!finds_fast_rep_movsb(false, true));
    CHECK(!finds_fast_rep_movsb(false, false));
}

TEST(fabric, refuses_ranks_with_different_settings)
{
    struct tt_peer_info infos[2];
    int sockets[2];
    struct tt_fabric_config config = together_config();
    for (int r = 0; r < 2; r++) {
        config.slot_bytes = 1024u << r;
        REQUIRE(tt_peer_info_init(&infos[r], &config, &sockets[r]) == TT_OK);
    }
    struct tt_fabric *fabric = NULL;
    CHECK_EQ(tt_fabric_begin(&fabric, infos, 1, 2, sockets[1], &config), TT_ERR_USAGE);
    CHECK(strstr(tt_last_error(), "rank 0"));
    CHECK(strstr(tt_last_error(), "TUTTI_SLOT_BYTES=1024, rank 1"));
    CHECK(strstr(tt_last_error(), "2048"));
    close(sockets[0]);
}

/* What a call reads that is the first collective of all. */
static const struct tt_lenders all_of_first = {.seq = 1, .peer = -1};

TEST(fabric, nobody_begins_to_read_memory_of_others_after_a_failure)
{
    struct together all;
    const struct tt_fabric_config config = together_config();
    REQUIRE(together_open(&all, 3, &config));
    struct tt_fabric **f = all.fabrics;
    CHECK_EQ(tt_fabric_borrow(f[1], all_of_first), TT_OK);
    CHECK_EQ(tt_fabric_reader(f[0]), 1);
    CHECK_EQ(tt_fabric_reader(f[1]), -1);
    CHECK_EQ(tt_fabric_fail(f[2], TT_ERR_REMOTE, "somebody left"), TT_ERR_REMOTE);
    CHECK_EQ(tt_fabric_reader(f[0]), 1); /* it has begun before */
    tt_fabric_give_back(f[1]);
    CHECK_EQ(tt_fabric_reader(f[0]), -1);
    CHECK_EQ(tt_fabric_borrow(f[1], all_of_first), TT_ERR_REMOTE);
    CHECK_STR(tt_last_error(), "somebody left");
    CHECK_EQ(tt_fabric_reader(f[0]), -1);
    together_close(&all);
}

TEST(fabric, a_rank_that_aborts_waits_only_for_kernels_that_may_use_its_memory)
{
    struct together all;
    const struct tt_fabric_config config = together_config();
    REQUIRE(together_open(&all, 3, &config));
    struct tt_fabric **f = all.fabrics;
    tt_fabric_begin_kernel(f[1], tt_fabric_lender(f[1], 2));
    CHECK_EQ(tt_fabric_user(f[0]), -1);
    CHECK_EQ(tt_fabric_user(f[2]), 1);
    tt_fabric_begin_kernel(f[1], UINT64_MAX); /* a collective's */
    CHECK_EQ(tt_fabric_user(f[0]), 1);
    tt_fabric_abort(f[0], "rank 0 aborted");
    CHECK_EQ(tt_fabric_user(f[0]), 1);
    CHECK_EQ(tt_fabric_reader(f[0]), -1); /* kernels do not use memory of the host */
    for (int i = 0; i < 2; i++) tt_fabric_end_kernel(f[1]);
    tt_fabric_begin_kernel(f[1], tt_fabric_lender(f[1], 2));
    CHECK_EQ(tt_fabric_user(f[0]), -1);
    tt_fabric_end_kernel(f[1]);
    together_close(&all);
}

TEST(fabric, a_rank_that_has_aborted_lends_to_calls_it_has_done_until_it_leaves)
{
    struct together all;
    const struct tt_fabric_config config = together_config();
    REQUIRE(together_open(&all, 2, &config));
    struct tt_fabric **f = all.fabrics;
    atomic_store(&f[0]->record->done, 3);
    CHECK(tt_fabric_lends(f[1], 0, 4));
    CHECK(tt_fabric_lends(f[1], 0, UINT64_MAX));
    tt_fabric_abort(f[0], "rank 0 aborted");
    CHECK(tt_fabric_lends(f[1], 0, 3));
    CHECK(!tt_fabric_lends(f[1], 0, 4));
    CHECK(!tt_fabric_lends(f[1], 0, UINT64_MAX));
    tt_fabric_leave(f[0]);
    CHECK(!tt_fabric_lends(f[1], 0, 3));
    together_close(&all);
}

TEST(fabric, a_rank_that_aborts_waits_for_graphs_until_they_are_closed_to_it)
{
    struct together all;
    const struct tt_fabric_config config = together_config();
    REQUIRE(together_open(&all, 3, &config));
    struct tt_fabric **f = all.fabrics;
    CHECK_EQ(tt_fabric_user(f[0]), -1);
    atomic_store(&f[1]->record->captured, 1);
    CHECK_EQ(tt_fabric_user(f[0]), 1);
    CHECK_EQ(tt_fabric_reader(f[0]), -1);
    tt_fabric_abort(f[0], "rank 0 aborted");
    CHECK_EQ(tt_fabric_user(f[0]), 1);
    atomic_store(&f[1]->record->captured, 2);
    CHECK_EQ(tt_fabric_user(f[0]), -1);
    CHECK_EQ(tt_fabric_user(f[2]), 1); /* which has not left */
    together_close(&all);
}

/* Of a collective of which rank 0 has done its part, and of a message of rank 2, nothing lies in
 * memory of rank 0. */
TEST(fabric, nobody_reads_memory_of_a_rank_that_has_aborted_in_the_call)
{
    struct together all;
    const struct tt_fabric_config config = together_config();
    REQUIRE(together_open(&all, 3, &config));
    struct tt_fabric **f = all.fabrics;
    const struct tt_lenders first = {.seq = 1, .peer = -1}, message = {.peer = 2};
    atomic_store(&f[0]->record->done, 1);
    CHECK_EQ(tt_fabric_check_source(f[1], (struct tt_lenders){.seq = 2, .peer = -1}), TT_OK);
    tt_fabric_abort(f[0], "rank 0 aborted");
    CHECK_EQ(tt_fabric_check_source(f[1], first), TT_OK);
    CHECK_EQ(tt_fabric_borrow(f[1], first), TT_OK);
    tt_fabric_give_back(f[1]);
    CHECK_EQ(tt_fabric_borrow(f[1], message), TT_OK);
    tt_fabric_give_back(f[1]);
    CHECK_EQ(tt_fabric_borrow(f[1], (struct tt_lenders){.peer = 0}), TT_ERR_REMOTE);
    CHECK(strstr(tt_last_error(), "rank 0"));
    CHECK_EQ(tt_fabric_reader(f[0]), -1);
    CHECK_EQ(tt_fabric_check_source(f[2], (struct tt_lenders){.seq = 2, .peer = -1}),
             TT_ERR_REMOTE);
    together_close(&all);
}
