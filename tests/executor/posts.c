/* Posts of a call that fails. */
#include "algorithms/algorithms.h"
#include "executor/calls.h"
#include "program/lower.h"
#include "shim.h"

enum { NRANKS = 3, BLOCK_BYTES = 8192, COUNT = NRANKS * BLOCK_BYTES / sizeof(int32_t) };

/* The all-reduce of rank 0, which has posted a place for a second message of each peer. */
struct posted {
    struct ranks ranks;
    struct tt_loaded *loaded;
    struct tt_binding binding;
    struct tt_work work;
    int32_t input[COUNT], output[COUNT];
};

static bool begin(struct posted *all)
{
    struct tt_fabric_config config = together_config();
    if (!ranks_open(&all->ranks, NRANKS, &config)) return false;
    struct tt_fabric *fabric = all->ranks.all.fabrics[0];
    const struct tt_segment_header *header = fabric->segment->header;
    const struct tt_limits limits = {.slot_bytes = header->slot_bytes,
                                     .meet_bytes = header->meet_bytes};
    const struct tt_shape shape = {
        .collective = TT_ALL_REDUCE, .nranks = NRANKS, .hosts = fabric->hosts};
    struct tt_program *program;
    if (tt_program_create(tt_algorithm_find(TT_ALL_REDUCE, "two_shot"), &shape, 0, &program) ||
        tt_loaded_create(program, fabric, &all->loaded) ||
        tt_program_bind(program, COUNT, sizeof(int32_t), &limits, &all->binding))
        return false;
    struct tt_call call = {.loaded = all->loaded,
                           .binding = &all->binding,
                           .input = all->input,
                           .output = all->output,
                           .reduction = {.type = TT_INT32, .op = TT_SUM, .nranks = NRANKS}};
    call.signature = tt_call_signature(program, COUNT, &call.reduction);
    call.entry = tt_call_entry_make(program, COUNT, &call.reduction);
    tt_work_collective(&all->work, &all->ranks.engines[0], &call);
    return tt_work_advance(&all->work) == TT_IN_PROGRESS && all->work.collective.posts;
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
    const uint64_t signature = all->work.collective.signature;
    return link->ops->slot(link, BLOCK_BYTES)
               ? link->ops->posts->claim(link, BLOCK_BYTES, signature)
               : NULL;
}

static void check_withdrawn(int writer)
{
    static struct posted all;
    REQUIRE(begin(&all));
    struct tt_link *writes = send_first(&all, writer), *comes_late = send_first(&all, 3 - writer);
    REQUIRE(claim(&all, writes) != NULL);
    tt_ignore(tt_fabric_fail(all.ranks.all.fabrics[1], TT_ERR_REMOTE, "a failure"));
    all.work.deadline_ns = 1;
    CHECK(tt_run(&all.work, 1, false) < 0);
    CHECK(claim(&all, comes_late) == NULL);
    tt_loaded_destroy(all.loaded);
    ranks_close(&all.ranks);
}

TEST(posts, are_all_withdrawn_from_peers_that_do_not_write_even_where_one_does_not_end)
{
    for (int writer = 1; writer < NRANKS; writer++) check_withdrawn(writer);
}
