/* More ranks on a host than its links have address space for at full size. */
#include "algorithms/algorithms.h"
#include "executor/calls.h"
#include "shim.h"

static void all_reduce(struct ranks *ranks, const char *name, size_t count)
{
    const int nranks = ranks->all.nranks;
    const struct trial trial = {.algorithm = tt_algorithm_find(TT_ALL_REDUCE, name),
                                .nranks = nranks,
                                .count = count,
                                .reduction = {.type = TT_INT32, .op = TT_SUM, .nranks = nranks},
                                .seed = (unsigned)nranks};
    REQUIRE(trial.algorithm != NULL);
    run_trial(ranks, &trial);
}

/* In these a rank keeps a message of one neighbour while it waits for a slot to the next. */
static void pass_on(int nranks, size_t slot_bytes)
{
    static struct ranks ranks;
    const struct tt_fabric_config config = {
        .nslots = 6, .slot_bytes = slot_bytes, .meet_bytes = 32 << 10, .allow_window = true};
    REQUIRE(ranks_open(&ranks, nranks, &config));
    const struct tt_segment *segment = ranks.all.fabrics[0]->segment;
    CHECK_MESSAGE(segment->nbytes < (size_t)65 << 30, "%zu bytes of addresses", segment->nbytes);
    all_reduce(&ranks, "ring", (size_t)nranks + 7);
    all_reduce(&ranks, "recursive_halving", (size_t)nranks + 7);
    ranks_close(&ranks);
}

TEST(many_ranks, on_a_host_pass_messages_on)
{
    pass_on(242, 128 << 10);
}

TEST(many_ranks, with_large_slots_pass_messages_on)
{
    pass_on(43, 4 << 20);
}
