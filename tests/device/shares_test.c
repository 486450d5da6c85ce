/* Shares of a GPU: who has one of its own, who joins which, and what is left when they are closed.
 */
#include <cuda.h>
#include <pthread.h>
#include <string.h>
#include <time.h>

#include "device/shares.h"
#include "driver/capture.h"
#include "driver/cuda.h"
#include "shim.h"

/* Of a GPU that runs 20 blocks at the same time. */
static struct tt_context *context;
static void *last; /* the event of all ranks' launches */
static struct tt_shares shares;

static void begin(void)
{
    shares = (struct tt_shares){.capacity = 20};
    CHECK_EQ(tt_context_open(0, &context), TT_OK);
    CHECK_EQ(tt_context_event_create(context, &last), TT_OK);
}

static void end(void)
{
    CHECK_EQ(shares.taken, 0);
    CHECK_EQ(shares.nkernels, 0);
    CHECK(!shares.list && !shares.teams);
    tt_context_event_destroy(context, last);
    tt_context_close(context);
}

/* Of rank `rank` of a communicator whose ranks are on the GPU, nteam of them in this process; each
 * has a thread of its own. */
static struct tt_share_request request_of(uint64_t team, int nteam, int rank)
{
    return (struct tt_share_request){.context = context,
                                     .last = last,
                                     .team = team,
                                     .rank = rank,
                                     .nranks = nteam,
                                     .nteam = nteam,
                                     .capacity = 20,
                                     .least = 2,
                                     .wanted = 8,
                                     .opener = 1 + (uint64_t)rank,
                                     .nopened = 1};
}

static struct tt_share_place open_rank(uint64_t team, int nteam, int rank)
{
    const struct tt_share_request request = request_of(team, nteam, rank);
    struct tt_share_place place = {.share = NULL};
    CHECK_EQ(tt_share_open(&shares, &request, &place), TT_OK);
    return place;
}

TEST(shares, ranks_have_their_own_while_there_is_room)
{
    struct tt_share_place a[2], b[2];
    begin();
    for (int r = 0; r < 2; r++) a[r] = open_rank(1, 2, r);
    CHECK_EQ(a[0].share->nblocks, 8);
    for (int r = 0; r < 2; r++) b[r] = open_rank(2, 2, r);
    CHECK_EQ(b[1].share->nblocks, 2); /* of the 4 that are left */
    CHECK_EQ(shares.taken, 20);
    CHECK(a[0].share != a[1].share && b[0].share != b[1].share && !b[0].takes_turns);
    CHECK(!tt_share_has_order(a[0].share));
    for (int r = 0; r < 2; r++) tt_share_close(&shares, &a[r]);
    CHECK_EQ(shares.taken, 4);
    for (int r = 0; r < 2; r++) tt_share_close(&shares, &b[r]);
    end();
}

/* Opens communicators of one rank on a GPU of so many blocks, until none is left. */
static void check_sequence(int capacity, int wanted, const int *expected, int n)
{
    struct tt_share_place places[16];
    begin();
    shares.capacity = capacity;
    for (int i = 0; i < n; i++) {
        struct tt_share_request request = request_of(1 + (uint64_t)i, 1, 0);
        request.capacity = capacity;
        request.wanted = wanted;
        CHECK_EQ(tt_share_open(&shares, &request, &places[i]), TT_OK);
        CHECK_EQ(places[i].share->nblocks, expected[i]);
        CHECK(!places[i].takes_turns);
    }
    CHECK(capacity - shares.taken < 2);
    for (int i = 0; i < n; i++) tt_share_close(&shares, &places[i]);
    end();
}

TEST(shares, eight_communicators_of_a_process_have_blocks_of_their_own)
{
    check_sequence(132, 32, (const int[]){32, 32, 28, 8, 8, 8, 8, 8}, 8); /* H100 */
    check_sequence(108, 32, (const int[]){32, 28, 8, 8, 8, 8, 8, 8}, 8);  /* A100 */
    check_sequence(132, 64, (const int[]){64, 20, 8, 8, 8, 8, 8, 8}, 8);
    check_sequence(128, 8, (const int[]){8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8}, 16);
}

TEST(shares, a_communicator_has_at_most_half_of_what_is_left)
{
    check_sequence(58, 32, (const int[]){29, 14, 8, 7}, 4);
    check_sequence(16, 32, (const int[]){8, 8}, 2);
    check_sequence(10, 32, (const int[]){8, 2}, 2);
    check_sequence(5, 32, (const int[]){5}, 1);
}

TEST(shares, a_communicator_that_needs_more_than_half_gets_what_it_needs)
{
    struct tt_share_place a, b;
    begin();
    struct tt_share_request request = request_of(1, 1, 0);
    request.least = 12;
    request.wanted = 16;
    CHECK_EQ(tt_share_open(&shares, &request, &a), TT_OK);
    CHECK(!a.takes_turns);
    CHECK_EQ(a.share->nblocks, 12);
    request.team = 2;
    request.least = 9; /* 8 are left */
    request.parent = a.share;
    CHECK_EQ(tt_share_open(&shares, &request, &b), TT_OK);
    CHECK(b.share == a.share && b.takes_turns);
    tt_share_close(&shares, &b);
    tt_share_close(&shares, &a);
    end();
}

/* Whoever comes when others have gone gets what they had. */
TEST(shares, what_communicators_leave_is_for_later_ones)
{
    struct tt_share_place places[8], again;
    begin();
    shares.capacity = 132;
    for (int i = 0; i <= 8; i++) {
        struct tt_share_request request = request_of(1 + (uint64_t)i, 1, 0);
        request.capacity = 132;
        request.wanted = 32;
        if (i == 8) tt_share_close(&shares, &places[0]);
        CHECK_EQ(tt_share_open(&shares, &request, i < 8 ? &places[i] : &again), TT_OK);
    }
    CHECK_EQ(again.share->nblocks, 16);
    tt_share_close(&shares, &again);
    for (int i = 1; i < 8; i++) tt_share_close(&shares, &places[i]);
    end();
}

TEST(shares, without_room_a_rank_joins_one_of_its_thread)
{
    struct tt_share_place a[2], b[2];
    begin();
    for (int r = 0; r < 2; r++) a[r] = open_rank(1, 2, r);
    struct tt_share_place c = open_rank(3, 1, 5); /* another thread's: what is left */
    CHECK_EQ(c.share->nblocks, 4);
    for (int r = 1; r >= 0; r--) b[r] = open_rank(2, 2, r);
    CHECK(b[0].share == a[0].share && b[1].share == a[1].share && b[0].takes_turns);
    CHECK(tt_share_has_order(a[0].share) && !tt_share_has_order(c.share));
    tt_share_close(&shares, &a[0]);
    tt_share_close(&shares, &a[1]);
    CHECK_EQ(shares.taken, 20); /* b has them still */
    tt_share_close(&shares, &c);
    tt_share_close(&shares, &b[0]);
    tt_share_close(&shares, &b[1]);
    end();
}

TEST(shares, ranks_of_one_thread_join_those_of_its_ranks_in_order)
{
    struct tt_share_place a[4], b[2];
    begin();
    for (int r = 3; r >= 0; r--) {
        struct tt_share_request request = request_of(1, 4, r);
        request.opener = 7;
        request.nopened = 4;
        request.place = r;
        CHECK_EQ(tt_share_open(&shares, &request, &a[r]), TT_OK);
    }
    CHECK_EQ(shares.taken, 20);
    for (int r = 0; r < 2; r++) {
        struct tt_share_request request = request_of(2, 2, 10 + r);
        request.opener = 7;
        request.nopened = 2;
        request.place = r;
        CHECK_EQ(tt_share_open(&shares, &request, &b[r]), TT_OK);
    }
    CHECK(b[0].share == a[0].share && b[1].share == a[1].share);
    for (int r = 0; r < 4; r++) tt_share_close(&shares, &a[r]);
    for (int r = 0; r < 2; r++) tt_share_close(&shares, &b[r]);
    end();
}

TEST(shares, a_rank_joins_that_of_its_parent)
{
    struct tt_share_place a[2], b;
    begin();
    for (int r = 0; r < 2; r++) a[r] = open_rank(1, 2, r);
    struct tt_share_place c = open_rank(2, 1, 5);
    struct tt_share_request request = request_of(3, 1, 0);
    request.parent = a[1].share;
    CHECK_EQ(tt_share_open(&shares, &request, &b), TT_OK);
    CHECK(b.share == a[1].share);
    tt_share_close(&shares, &b);
    tt_share_close(&shares, &c);
    for (int r = 0; r < 2; r++) tt_share_close(&shares, &a[r]);
    end();
}

TEST(shares, two_ranks_of_a_communicator_never_have_one_share)
{
    struct tt_share_place a, b, none = {.share = NULL};
    begin();
    shares.capacity = 8;
    a = open_rank(1, 1, 0);
    struct tt_share_request request = request_of(2, 2, 0);
    request.parent = a.share;
    CHECK_EQ(tt_share_open(&shares, &request, &b), TT_OK);
    request.rank = 1;
    CHECK_EQ(tt_share_open(&shares, &request, &none), TT_ERR_USAGE);
    CHECK(none.share == NULL);
    tt_share_close(&shares, &none);
    tt_share_close(&shares, &b);
    tt_share_close(&shares, &a);
    end();
}

TEST(shares, without_a_share_to_join_the_error_says_what_there_is)
{
    struct tt_share_place a, none;
    begin();
    shares.capacity = 9;
    struct tt_share_request request = request_of(1, 1, 0);
    CHECK_EQ(tt_share_open(&shares, &request, &a), TT_OK);
    request = request_of(2, 1, 1);
    CHECK_EQ(tt_share_open(&shares, &request, &none), TT_ERR_USAGE);
    CHECK_MESSAGE(strstr(tt_last_error(), "have 8 of the 9 blocks of threads, and 1 of the 128 "
                                          "kernels, that it may run on GPU 0"),
                  "%s", tt_last_error());
    tt_share_close(&shares, &a);
    end();
}

TEST(shares, a_process_has_its_part_of_a_gpu_that_others_use)
{
    struct tt_share_place a, b, none;
    begin();
    a = open_rank(1, 1, 0);
    struct tt_share_request request = request_of(2, 1, 0);
    request.nranks = 2; /* one in another process: this one may have 10 blocks */
    CHECK_EQ(tt_share_open(&shares, &request, &b), TT_OK);
    CHECK_EQ(b.share->nblocks, 2);
    CHECK(!b.takes_turns);
    request.team = 3;
    request.nranks = 4; /* 5 blocks, and the process has 10 */
    CHECK_EQ(tt_share_open(&shares, &request, &none), TT_ERR_USAGE);
    CHECK_MESSAGE(strstr(tt_last_error(), "have 10 blocks of threads on GPU 0; its ranks' part of "
                                          "the GPU, which other processes use too, is 5"),
                  "%s", tt_last_error());
    tt_share_close(&shares, &a);
    tt_share_close(&shares, &b);
    end();
}

/* 3 ranks cannot have all of 20 blocks; but the process may use them. */
TEST(shares, a_communicator_of_fewer_ranks_takes_turns_and_leaves_the_process_its_part)
{
    struct tt_share_place a[10], b[3];
    begin();
    for (int r = 0; r < 10; r++) a[r] = open_rank(1, 10, r);
    CHECK_EQ(shares.taken, 20);
    for (int r = 0; r < 3; r++) b[r] = open_rank(2, 3, r);
    for (int r = 0; r < 3; r++) CHECK(b[r].share == a[r].share);
    CHECK_EQ(shares.most, 20);
    CHECK_EQ(shares.most_kernels, TT_MOST_KERNELS);
    for (int r = 0; r < 10; r++) tt_share_close(&shares, &a[r]);
    for (int r = 0; r < 3; r++) tt_share_close(&shares, &b[r]);
    end();
}

/* Of a parent with as many ranks in another process, of which the split has one and two. */
TEST(shares, a_split_of_processes_leaves_each_its_part)
{
    struct tt_share_place a[2], b;
    begin();
    for (int r = 0; r < 2; r++) {
        struct tt_share_request request = request_of(1, 2, r);
        request.nranks = 4;
        CHECK_EQ(tt_share_open(&shares, &request, &a[r]), TT_OK);
    }
    CHECK_EQ(shares.taken, 10);
    struct tt_share_request request = request_of(2, 1, 0);
    request.nranks = 3; /* 6 blocks for one rank of three */
    request.parent = a[1].share;
    REQUIRE(tt_share_open(&shares, &request, &b) == TT_OK);
    CHECK(b.share == a[1].share);
    CHECK_EQ(shares.most, 10);
    tt_share_close(&shares, &b);
    for (int r = 0; r < 2; r++) tt_share_close(&shares, &a[r]);
    end();
}

TEST(shares, there_are_no_more_than_the_gpu_runs_kernels)
{
    struct tt_share_place a[2], b;
    begin();
    shares.capacity = 1000;
    for (int r = 0; r < 2; r++) {
        struct tt_share_request request = request_of(1, 2, r);
        request.nranks = 100; /* 98 in other processes: 2 kernels for this one */
        request.capacity = 1000;
        CHECK_EQ(tt_share_open(&shares, &request, &a[r]), TT_OK);
    }
    struct tt_share_request request = request_of(2, 1, 0);
    CHECK_EQ(tt_share_open(&shares, &request, &b), TT_OK);
    CHECK(b.share == a[0].share);
    for (int r = 0; r < 2; r++) tt_share_close(&shares, &a[r]);
    tt_share_close(&shares, &b);
    end();
}

/* ---- Order ---------------------------------------------------------------------------------- */

struct beginner {
    struct tt_share *share;
    _Atomic bool released;
    bool waited;
};

static void *begin_order(void *argument)
{
    struct beginner *beginner = argument;
    CHECK_EQ(tt_share_begin_order(beginner->share), TT_OK);
    beginner->waited = beginner->released;
    return NULL;
}

TEST(shares, no_order_begins_while_one_is_held)
{
    pthread_t thread;
    begin();
    struct tt_share_place a = open_rank(1, 1, 0);
    struct beginner beginner = {.share = a.share};
    for (int i = 0; i < 2; i++) CHECK(tt_share_hold(a.share));
    CHECK(pthread_create(&thread, NULL, begin_order, &beginner) == 0);
    tt_share_release(a.share);
    nanosleep(&(struct timespec){.tv_nsec = 20000000}, NULL);
    CHECK(!tt_share_has_order(a.share));
    beginner.released = true;
    tt_share_release(a.share);
    pthread_join(thread, NULL);
    CHECK(beginner.waited);
    CHECK(tt_share_has_order(a.share));
    CHECK(!tt_share_hold(a.share));
    tt_share_close(&shares, &a);
    end();
}

static __typeof__(cuEventRecord) *real_record;

static CUresult CUDAAPI refuse(CUevent event, CUstream stream)
{
    (void)event, (void)stream;
    return CUDA_ERROR_UNKNOWN;
}

TEST(shares, a_kernel_whose_end_is_not_recorded_lets_no_other_begin)
{
    void *stream;
    begin();
    CHECK_EQ(tt_context_stream_create(context, &stream), TT_OK);
    struct tt_share_request request = request_of(1, 1, 0);
    struct tt_share_place a = {.share = NULL}, b = {.share = NULL};
    struct tt_cuda *driver = (struct tt_cuda *)(uintptr_t)tt_cuda_load();
    request.stream = stream;
    CHECK_EQ(tt_share_open(&shares, &request, &a), TT_OK);
    request.team = 2;
    request.parent = a.share;
    shares.most_kernels = 1;
    CHECK_EQ(tt_share_open(&shares, &request, &b), TT_OK);
    REQUIRE(b.share == a.share);
    CHECK_EQ(tt_share_begin(b.share, stream), TT_OK);
    real_record = driver->EventRecord;
    driver->EventRecord = refuse;
    CHECK_EQ(tt_share_end(&b, stream), TT_ERR_DEVICE);
    driver->EventRecord = real_record;
    CHECK_EQ(tt_share_begin(a.share, stream), TT_ERR_DEVICE);
    CHECK_EQ(tt_share_begin_order(a.share), TT_ERR_DEVICE);
    tt_share_close(&shares, &b);
    CHECK_EQ(tt_share_begin(a.share, stream), TT_OK);
    CHECK_EQ(tt_share_end(&a, stream), TT_OK);
    tt_share_close(&shares, &a);
    tt_context_stream_destroy(context, stream);
    end();
}
