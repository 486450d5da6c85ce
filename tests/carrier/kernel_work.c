/* What the host makes of a kernel's report. */
#include "carrier/kernel/work.h"

#include <stdlib.h>
#include <string.h>

#include "carrier/kernel/exchange.h"
#include "carrier/kernel/graphs.h"
#include "carrier/kernel/kernel.h"
#include "executor/calls.h"
#include "shim.h"
#include "transport/host/segment.h"

/* A collective of the rank, which the kernel with this number carries out. */
static void begin(struct tt_kernel_work *work, struct tt_kernel_life *life,
                  struct tt_engine *engine, uint64_t number)
{
    static struct tt_program program;
    static const struct tt_loaded loaded = {.program = &program};
    static const struct tt_binding binding;
    const struct tt_call call = {.loaded = &loaded, .binding = &binding};
    tt_kernel_begin_collective(work, life, engine, &call);
    work->number = number;
}

static void end(struct tt_kernel_work *work, tt_status status)
{
    work->work.ops->end(&work->work, status);
}

/* Until then other ranks keep the memory that it uses. */
TEST(kernel_work, a_kernel_that_runs_longer_than_its_call_uses_memory_of_others_until_it_ends)
{
    struct tt_rank_record record = {.kernels = 2}; /* two calls */
    struct tt_segment_header *header = calloc(1, sizeof *header);
    struct tt_segment segment = {.header = header};
    struct tt_fabric fabric = {.record = &record, .segment = &segment};
    struct tt_engine engine = {.fabric = &fabric};
    struct tt_device_report report = {.nbegun = 1, .begun = 1};
    struct tt_kernel_life life = {.report = &report, .nborrowed = 2};
    struct tt_kernel_work work;
    begin(&work, &life, &engine, 1);
    work.uses_peers = true;
    end(&work, TT_ERR_TIMEOUT);
    CHECK_EQ(atomic_load(&record.kernels), 2);
    begin(&work, &life, &engine, 2);
    work.uses_peers = true;
    end(&work, TT_OK);
    CHECK_EQ(atomic_load(&record.kernels), 1);
    tt_kernel_leave_all_peers(&life, &fabric);
    tt_kernel_leave_all_peers(&life, &fabric);
    CHECK_EQ(atomic_load(&record.kernels), 0);
    free(header);
}

/* Calls 1 to 3 have ended, of which the third failed. */
TEST(kernel_work, the_failure_of_a_later_call_is_none_of_a_call_that_ended_before)
{
    struct tt_device_report report = {.nbegun = 3, .nended = 3, .begun = 3, .ended = 3, .sound = 2};
    struct tt_kernel_life life = {.report = &report};
    struct tt_engine engine = {.timeout_ms = 0};
    struct tt_kernel_work work;
    report.failure = TT_DEVICE_MISMATCH;
    for (uint64_t number = 1; number <= 2; number++) {
        begin(&work, &life, &engine, number);
        CHECK_EQ(work.work.ops->advance(&work.work), TT_OK);
    }
    begin(&work, &life, &engine, 4);
    CHECK_EQ(work.work.ops->advance(&work.work), TT_IN_PROGRESS);
}

/* A send to rank 1 and a receive from it, both in two parts, of which the first are done. */
static void with_halves(struct tt_fabric *fabric,
                        void (*body)(struct tt_fabric *fabric, struct tt_group_exchange *exchange,
                                     struct tt_device_flow *flows))
{
    enum { NFLOWS = 4 };
    struct tt_device_exchange *table =
        calloc(1, sizeof *table + NFLOWS * sizeof(struct tt_device_flow));
    struct tt_group_exchange *exchange = calloc(1, sizeof *exchange);
    table->nflows = NFLOWS;
    for (uint32_t i = 0; i < NFLOWS; i++)
        tt_device_flows(table)[i] = (struct tt_device_flow){
            .peer = 1, .outgoing = i < 2, .part = i % 2, .done = i % 2 == 0};
    exchange->table = table;
    body(fabric, exchange, tt_device_flows(table));
    free(exchange);
    free(table);
}

static void list_halves(struct tt_fabric *fabric, struct tt_group_exchange *exchange,
                        struct tt_device_flow *flows)
{
    char text[640];
    tt_exchange_missing(exchange, fabric, text, sizeof text);
    CHECK_MESSAGE(strstr(text, "has not yet received all that this rank sends; ") &&
                      strstr(text, "has not yet sent all that this rank receives"),
                  "unexpected: %s", text);
    flows[0].done = flows[2].done = 0;
    const size_t length = strlen(text);
    tt_exchange_missing(exchange, fabric, text, sizeof text);
    CHECK_EQ(strlen(text), length);
}

static void leave_halves(struct tt_fabric *fabric, struct tt_group_exchange *exchange,
                         struct tt_device_flow *flows)
{
    struct tt_exchange_grace grace = {.until_ns = 0};
    CHECK_EQ(tt_exchange_check(exchange, fabric, &grace), TT_OK);
    atomic_store(&tt_fabric_record(fabric, 1)->state, TT_RANK_LEFT);
    flows[1].done = flows[3].done = 1;
    CHECK_EQ(tt_exchange_check(exchange, fabric, &grace), TT_OK);
    flows[3].done = 0;
    CHECK_EQ(tt_exchange_check(exchange, fabric, &grace), TT_OK);
    grace.until_ns = 1; /* long ago */
    CHECK_EQ(tt_exchange_check(exchange, fabric, &grace), TT_ERR_REMOTE);
    const char *text = tt_fabric_failure_text(fabric);
    CHECK_MESSAGE(strstr(text, "rank 1 ") && strstr(text, "has left"), "unexpected: %s", text);
}

TEST(kernel_work, a_rank_that_is_gone_after_the_first_part_of_a_message_is_noticed)
{
    const struct tt_fabric_config config = together_config();
    struct ranks ranks;
    REQUIRE(ranks_open(&ranks, 2, &config));
    with_halves(ranks.engines[0].fabric, list_halves);
    with_halves(ranks.engines[0].fabric, leave_halves);
    ranks_close(&ranks);
}

/* Rank 1 ends when its part is done, which rank 0 sees later; then rank 2 does the same. */
static void leave_one_by_one(struct tt_fabric *fabric, struct tt_group_exchange *exchange,
                             struct tt_device_flow *flows)
{
    struct tt_exchange_grace grace = {.until_ns = 0};
    flows[1].done = flows[3].done = 1;
    flows[0].done = flows[2].done = 0;
    flows[2].peer = flows[3].peer = 2;
    atomic_store(&tt_fabric_record(fabric, 1)->state, TT_RANK_LEFT);
    CHECK_EQ(tt_exchange_check(exchange, fabric, &grace), TT_OK);
    grace.until_ns = 1; /* long ago */
    flows[0].done = 1;
    CHECK_EQ(tt_exchange_check(exchange, fabric, &grace), TT_OK);
    CHECK_EQ(grace.until_ns, 0);
    flows[0].done = 0;
    CHECK_EQ(tt_exchange_check(exchange, fabric, &grace), TT_OK);
    atomic_store(&tt_fabric_record(fabric, 2)->state, TT_RANK_LEFT);
    CHECK_EQ(tt_exchange_check(exchange, fabric, &grace), TT_OK);
    CHECK_EQ(grace.peer, 1);
    grace.until_ns = 1;
    flows[0].done = 1;
    CHECK_EQ(tt_exchange_check(exchange, fabric, &grace), TT_OK);
    CHECK_EQ(grace.peer, 2);
    grace.until_ns = 1;
    flows[0].done = 0; /* of a rank whose time does not run */
    CHECK_EQ(tt_exchange_check(exchange, fabric, &grace), TT_ERR_REMOTE);
    const char *text = tt_fabric_failure_text(fabric);
    CHECK_MESSAGE(strstr(text, "rank 2 ") && strstr(text, "has left"), "unexpected: %s", text);
}

TEST(kernel_work, each_rank_that_is_gone_has_its_own_time)
{
    const struct tt_fabric_config config = together_config();
    struct ranks ranks;
    REQUIRE(ranks_open(&ranks, 3, &config));
    with_halves(ranks.engines[0].fabric, leave_one_by_one);
    ranks_close(&ranks);
}

/* A rank without a GPU has few channels, into which programs are cut everywhere. */
TEST(kernel_work, channels_of_the_host_do_not_limit_the_messages_of_a_group)
{
    struct tt_fabric fabric = {.mixed = {.is_mixed = false}};
    struct tt_kernel_part part = {.most_blocks = 16};
    struct tt_comm_core core = {.fabric = &fabric, .kernel = &part};
    tt_kernel_agree(&core, 8);
    CHECK_EQ(part.most_blocks, 8);
    CHECK_EQ(part.exchange_blocks, 8);
    fabric.mixed.is_mixed = true;
    tt_kernel_agree(&core, 2);
    CHECK_EQ(part.most_blocks, 2);
    CHECK_EQ(part.exchange_blocks, 8);
    CHECK_EQ(fabric.mixed.nparts, 2);
}

/* ---- Replays --------------------------------------------------------------------------------- */

/* A kernel stores `replays` before `nended`: between the two no rank that is gone may be missed.
 * The third replay, behind a plain call. */
TEST(kernel_work, a_replay_that_has_done_its_part_does_not_run_where_its_number_lags_behind)
{
    struct tt_device_report report = {.nbegun = 4, .nended = 3, .replays = 5, .captured = 1};
    const struct tt_seen_replays seen = tt_graphs_read(&report);
    CHECK(seen.runs && !seen.is_exchange);
    CHECK_EQ(seen.replays, 5);
    report.replays = 6;
    CHECK(!tt_graphs_read(&report).runs);
    report.nended = 4;
    CHECK(!tt_graphs_read(&report).runs);
}

TEST(kernel_work, what_runs_is_a_replay_only_if_it_was_captured)
{
    struct tt_device_report report = {.nbegun = 4, .nended = 3, .replays = 6};
    CHECK(!tt_graphs_read(&report).runs);
    report.captured = TT_GRAPH_EXCHANGE_BIT | 1; /* which `replays` does not count */
    CHECK(tt_graphs_read(&report).runs && tt_graphs_read(&report).is_exchange);
    report.nended = 4;
    CHECK(!tt_graphs_read(&report).runs);
}
