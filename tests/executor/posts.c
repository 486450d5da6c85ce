/* Posts of a call that fails. */
#include "algorithms/algorithms.h"
#include "executor/calls.h"
#include "program/lower.h"
#include "shim.h"

enum { NRANKS = 3, BLOCK_BYTES = 8192, COUNT = NRANKS * BLOCK_BYTES / sizeof(int32_t) };

/* One rank of an all-reduce. With two_shot every rank sends each peer a part of its input, folds
 * what comes, and sends both peers the result, for which they have posted places. */
struct part {
    struct tt_loaded *loaded;
    struct tt_binding binding;
    struct tt_work work;
    int32_t input[COUNT], output[COUNT];
};

struct posted {
    struct ranks ranks;
    struct part parts[NRANKS];
};

static bool begin_rank(struct posted *all, int rank)
{
    struct part *part = &all->parts[rank];
    struct tt_fabric *fabric = all->ranks.all.fabrics[rank];
    const struct tt_segment_header *header = fabric->segment->header;
    const struct tt_limits limits = {.slot_bytes = header->slot_bytes,
                                     .meet_bytes = header->meet_bytes};
    const struct tt_shape shape = {
        .collective = TT_ALL_REDUCE, .nranks = NRANKS, .hosts = fabric->hosts};
    struct tt_program *program;
    if (tt_program_create(tt_algorithm_find(TT_ALL_REDUCE, "two_shot"), &shape, rank, &program) ||
        tt_loaded_create(program, fabric, &part->loaded) ||
        tt_program_bind(program, COUNT, sizeof(int32_t), &limits, &part->binding))
        return false;
    struct tt_call call = {.loaded = part->loaded,
                           .binding = &part->binding,
                           .input = part->input,
                           .output = part->output,
                           .reduction = {.type = TT_INT32, .op = TT_SUM, .nranks = NRANKS}};
    for (int i = 0; i < COUNT; i++) {
        part->input[i] = (rank + 1) * (i + 1);
        part->output[i] = -1;
    }
    call.signature = tt_call_signature(program, COUNT, &call.reduction);
    call.entry = tt_call_entry_make(program, COUNT, &call.reduction);
    tt_work_collective(&part->work, &all->ranks.engines[rank], &call);
    return tt_work_advance(&part->work) == TT_IN_PROGRESS && part->work.collective.posts;
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
    const uint64_t signature = all->parts[0].work.collective.signature;
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
    all.parts[0].work.deadline_ns = 1;
    CHECK(tt_run(&all.parts[0].work, false) < 0);
    CHECK(claim(&all, comes_late) == NULL);
    tt_loaded_destroy(all.parts[0].loaded);
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
            CHECK(tt_work_advance(&all->parts[r].work) >= 0);
            ndone += tt_work_is_done(&all->parts[r].work);
        }
    }
    for (int r = 0; r < NRANKS; r++) {
        for (int block = 0; block < NRANKS; block++)
            CHECK_EQ(count_results(&all->parts[r], block * COUNT / NRANKS), COUNT / NRANKS);
        tt_loaded_destroy(all->parts[r].loaded);
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
    CHECK(all.parts[0].work.collective.references);
    finish_all(&all);
}

TEST(posts, and_references_get_the_same_result_of_one_fold)
{
    for (int without = 1; without < NRANKS; without++) check_mixed(without);
}
