/* Posts of a call that fails. */
#include "executor/calls.h"
#include "shim.h"

enum { NRANKS = 3, BLOCK_BYTES = 8192, COUNT = NRANKS * BLOCK_BYTES / sizeof(int32_t) };

/* One rank of an all-reduce. With two_shot every rank sends each peer a part of its input, folds
 * what comes, and sends both peers the result, for which they have posted places. */
struct part {
    struct all_reduce call;
    int32_t input[COUNT], output[COUNT];
};

struct posted {
    struct ranks ranks;
    struct part parts[NRANKS];
};

static bool begin_rank(struct posted *all, int rank)
{
    struct part *part = &all->parts[rank];
    for (int i = 0; i < COUNT; i++) {
        part->input[i] = (rank + 1) * (i + 1);
        part->output[i] = -1;
    }
    if (!all_reduce_make(&part->call, &all->ranks, rank, "two_shot", COUNT, part->input,
                         part->output))
        return false;
    return tt_work_advance(&part->call.work) == TT_IN_PROGRESS && part->call.work.collective.posts;
}

static bool open_ranks(struct posted *all)
{
    struct tt_fabric_config config = together_config();
    return ranks_open(&all->ranks, NRANKS, &config);
}

/* Sends rank 0 a first message. */
static struct tt_link *send_first(struct posted *all, int rank)
{
    struct tt_link *link = tt_fabric_tx(all->ranks.all.fabrics[rank], 0, 0);
    if (link->ops->slot(link, 1)) link->ops->publish(link, 1, 0);
    return link;
}

static void *claim(const struct posted *all, struct tt_link *link)
{
    const uint64_t signature = all->parts[0].call.work.collective.signature;
    struct tt_posted posted = {.nbytes = BLOCK_BYTES, .signature = signature};
    const bool claimed =
        link->ops->slot(link, BLOCK_BYTES) && link->ops->posts->claim(link, &posted);
    return claimed ? posted.to : NULL;
}

static void check_withdrawn(int writer)
{
    static struct posted all;
    REQUIRE(open_ranks(&all) && begin_rank(&all, 0));
    struct tt_link *writes = send_first(&all, writer), *comes_late = send_first(&all, 3 - writer);
    REQUIRE(claim(&all, writes) != NULL);
    tt_ignore(tt_fabric_fail(all.ranks.all.fabrics[1], TT_ERR_REMOTE, "a failure"));
    all.parts[0].call.work.deadline_ns = 1;
    CHECK(tt_run(&all.parts[0].call.work, false) < 0);
    CHECK(claim(&all, comes_late) == NULL);
    tt_loaded_destroy(all.parts[0].call.loaded);
    ranks_close(&all.ranks);
}

TEST(posts, are_all_withdrawn_from_peers_that_do_not_write_even_where_one_does_not_end)
{
    for (int writer = 1; writer < NRANKS; writer++) check_withdrawn(writer);
}

/* Ends the post of a rank for the result of rank 0. */
static tt_status withdraw(const struct posted *all, int rank)
{
    struct tt_link *link = tt_fabric_rx(all->ranks.all.fabrics[rank], 0, 0);
    return link->ops->posts->withdraw(link);
}

static int count_results(const struct part *part, int first)
{
    int n = 0;
    for (int i = first; i < first + COUNT / NRANKS; i++) n += part->output[i] == 6 * (i + 1);
    return n;
}

/* In turns, in this thread. */
static void finish_all(struct posted *all)
{
    for (int ndone = 0; ndone < NRANKS && !tt_test_failed();) {
        ndone = 0;
        for (int r = 0; r < NRANKS; r++) {
            CHECK(tt_work_advance(&all->parts[r].call.work) >= 0);
            ndone += tt_work_is_done(&all->parts[r].call.work);
        }
    }
    for (int r = 0; r < NRANKS; r++) {
        for (int block = 0; block < NRANKS; block++)
            CHECK_EQ(count_results(&all->parts[r], block * COUNT / NRANKS), COUNT / NRANKS);
        tt_loaded_destroy(all->parts[r].call.loaded);
    }
    ranks_close(&all->ranks);
}

/* Rank 0 folds its block once, into its own output and into that of the peer that has posted; the
 * other peer reads rank 0's output. */
static void check_mixed(int without)
{
    enum { BLOCK = COUNT / NRANKS };
    static struct posted all;
    const int with = 3 - without;
    REQUIRE(open_ranks(&all) && begin_rank(&all, with) && begin_rank(&all, without));
    REQUIRE(withdraw(&all, without) == TT_OK);
    REQUIRE(begin_rank(&all, 0));
    CHECK_EQ(count_results(&all.parts[0], 0), BLOCK);
    CHECK_EQ(count_results(&all.parts[with], 0), BLOCK);
    CHECK_EQ(all.parts[without].output[0], -1);
    CHECK(all.parts[0].call.work.collective.references);
    finish_all(&all);
}

TEST(posts, and_references_get_the_same_result_of_one_fold)
{
    for (int without = 1; without < NRANKS; without++) check_mixed(without);
}
