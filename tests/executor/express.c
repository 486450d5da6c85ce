/* Express calls between ranks of two processes: long ones, with references and posts, and brief
 * ones. */
#include <pthread.h>
#include <stdlib.h>

#include "algorithms/algorithms.h"
#include "executor/calls.h"
#include "executor/express.h"
#include "executor/internal.h"
#include "program/lower.h"
#include "shim.h"
#include "transport/window.h"

enum { NRANKS = 2, COUNT = 4096, NBYTES = COUNT * sizeof(int32_t), NTIMES = 60 };

struct part {
    struct tt_fabric *fabric;
    struct tt_engine engine;
    struct tt_loaded *loaded;
    struct tt_binding binding;
    struct tt_step_table *resolved;
    struct tt_call call;
    enum tt_express kind;
    struct tt_work work;
    int32_t *memory; /* a window: input, output */
};

/* Ranks in processes of their own as far as they know. */
struct pair {
    struct together all;
    struct part parts[NRANKS];
};

static bool open_ranks(struct pair *pair)
{
    struct tt_fabric_config config = together_config();
    struct tt_peer_info infos[NRANKS];
    int sockets[NRANKS];
    config.slot_bytes = 2 * NBYTES;
    config.always_spin = true; /* also where there is one core */
    *pair = (struct pair){.all.nranks = NRANKS};
    for (int r = 0; r < NRANKS; r++) {
        if (tt_peer_info_init(&infos[r], &config, &sockets[r])) return false;
        infos[r].process_id += (uint64_t)r;
    }
    for (int r = 0; r < NRANKS; r++)
        if (tt_fabric_begin(&pair->all.fabrics[r], infos, r, NRANKS, sockets[r], &config))
            return false;
    for (int r = 0; r < NRANKS; r++)
        if (tt_fabric_attach(pair->all.fabrics[r], INT64_MAX)) return false;
    for (int r = 0; r < NRANKS; r++) {
        struct part *part = &pair->parts[r];
        void *memory;
        part->fabric = pair->all.fabrics[r];
        tt_fabric_finish(part->fabric);
        if (tt_engine_init(&part->engine, part->fabric, 0, "test")) return false;
        if (tt_window_create(&memory, 2 * NBYTES)) return false;
        part->memory = memory;
    }
    return true;
}

static void close_ranks(struct pair *pair)
{
    for (int r = 0; r < NRANKS; r++) {
        struct part *part = &pair->parts[r];
        tt_loaded_destroy(part->loaded);
        free(part->resolved);
        tt_engine_fini(&part->engine);
        CHECK_EQ(tt_window_free(part->memory), TT_OK);
    }
    together_close(&pair->all);
}

static int32_t *output_of(const struct part *part)
{
    return part->memory + COUNT;
}

/* Prepares a call of `count` elements together; says how it goes express. */
static enum tt_express prepare_of(struct part *part, enum tt_collective collective,
                                  const char *algorithm, size_t count)
{
    const struct tt_segment_header *header = part->fabric->segment->header;
    const struct tt_limits limits = {.slot_bytes = header->slot_bytes,
                                     .meet_bytes = header->meet_bytes};
    const struct tt_shape shape = {
        .collective = collective, .nranks = NRANKS, .hosts = part->fabric->hosts};
    struct tt_program *program;
    if (!tt_collective_splits(collective)) count /= NRANKS;
    if (tt_program_create(tt_algorithm_find(collective, algorithm), &shape, part->fabric->rank,
                          &program) ||
        tt_loaded_create(program, part->fabric, &part->loaded) ||
        tt_program_bind(program, count, sizeof(int32_t), &limits, &part->binding))
        return TT_EXPRESS_NOT;
    part->resolved = aligned_alloc(64, tt_step_table_bytes(program, &part->binding));
    if (!part->resolved) return TT_EXPRESS_NOT;
    tt_step_table_fill(program, &part->binding, part->resolved);
    part->call = (struct tt_call){.loaded = part->loaded,
                                  .binding = &part->binding,
                                  .resolved = part->resolved,
                                  .input = part->memory,
                                  .output = output_of(part),
                                  .reduction = {.type = TT_INT32, .op = TT_SUM, .nranks = NRANKS}};
    part->call.signature = tt_call_signature(program, count, &part->call.reduction);
    part->call.entry = tt_call_entry_make(program, count, &part->call.reduction);
    return part->kind = tt_express_kind(&part->engine, &part->call);
}

/* A long call, of COUNT elements. */
static bool prepare(struct part *part, enum tt_collective collective, const char *algorithm)
{
    return prepare_of(part, collective, algorithm, COUNT) == TT_EXPRESS_WHOLE;
}

static void fill(struct part *part, int seed)
{
    for (int i = 0; i < COUNT; i++) {
        part->memory[i] = (part->fabric->rank + 1) * (i + seed);
        output_of(part)[i] = -1;
    }
}

/* Elements [first, first + number) of an all-reduce's output that are right. */
static int count_sums(const struct part *part, int first, int number, int seed)
{
    int n = 0;
    for (int i = first; i < first + number; i++) n += output_of(part)[i] == 3 * (i + seed);
    return n;
}

/* Begins the next call: what can be done at once. */
static tt_status begin(struct part *part)
{
    if (!tt_engine_enter_if_idle(&part->engine)) return TT_ERR_INTERNAL;
    return tt_express_begin(&part->work, &part->engine, &part->call, part->kind);
}

static const struct tt_position *position_of(const struct part *part)
{
    return &part->work.collective.channels[0];
}

/* An all-reduce in which rank 0 comes first and is left alone, and rank 1 then does its part. */
static void run_until_folded(struct pair *pair)
{
    REQUIRE(open_ranks(pair));
    for (int r = 0; r < NRANKS; r++) {
        fill(&pair->parts[r], 1);
        REQUIRE(prepare(&pair->parts[r], TT_ALL_REDUCE, "ring"));
    }
    CHECK_EQ(begin(&pair->parts[0]), TT_IN_PROGRESS);
    CHECK_EQ(position_of(&pair->parts[0])->step, 1);
    CHECK(pair->parts[0].work.collective.references && pair->parts[0].work.collective.posts);
    CHECK_EQ(begin(&pair->parts[1]), TT_IN_PROGRESS);
    CHECK_EQ(position_of(&pair->parts[1])->step, 2);
}

TEST(express, refers_and_writes_to_windows_and_goes_on_in_the_wait_loop)
{
    static struct pair pair;
    struct part *parts = pair.parts;
    run_until_folded(&pair);
    enum { HALF = COUNT / 2 };
    CHECK_EQ(count_sums(&parts[0], HALF, HALF, 1), HALF); /* rank 1 has written it */
    CHECK_EQ(output_of(&parts[0])[0], -1);
    for (int r = 0; r < NRANKS; r++) CHECK(!tt_engine_idle(&parts[r].engine));
    while (!tt_work_is_done(&parts[0].work) || !tt_work_is_done(&parts[1].work))
        for (int r = 0; r < NRANKS; r++) REQUIRE(tt_work_advance(&parts[r].work) >= 0);
    for (int r = 0; r < NRANKS; r++) {
        CHECK_EQ(count_sums(&parts[r], 0, COUNT, 1), COUNT);
        CHECK_EQ(atomic_load(&parts[r].fabric->nbytes_copied), 0);
        CHECK(tt_engine_idle(&parts[r].engine));
    }
    close_ranks(&pair);
}

TEST(express, a_call_that_differs_fails_and_writes_nothing)
{
    static struct pair pair;
    REQUIRE(open_ranks(&pair));
    for (int r = 0; r < NRANKS; r++) {
        fill(&pair.parts[r], 1);
        REQUIRE(prepare(&pair.parts[r], TT_ALL_REDUCE, "ring"));
        pair.parts[r].call.signature += (uint64_t)r;
    }
    CHECK_EQ(begin(&pair.parts[0]), TT_IN_PROGRESS);
    tt_status status = begin(&pair.parts[1]);
    while (status == TT_IN_PROGRESS) status = tt_work_advance(&pair.parts[1].work);
    CHECK_EQ(status, TT_ERR_USAGE);
    while ((status = tt_work_advance(&pair.parts[0].work)) == TT_IN_PROGRESS) continue;
    CHECK_EQ(status, TT_ERR_USAGE);
    for (int r = 0; r < NRANKS; r++)
        for (int i = 0; i < COUNT; i++) REQUIRE(output_of(&pair.parts[r])[i] == -1);
    close_ranks(&pair);
}

/* A call that fails waits for a rank that has claimed its post, and has not published yet. */
TEST(express, a_post_is_withdrawn_after_a_failure)
{
    static struct pair pair;
    struct tt_work *work = &pair.parts[0].work;
    REQUIRE(open_ranks(&pair));
    for (int r = 0; r < NRANKS; r++) REQUIRE(prepare(&pair.parts[r], TT_ALL_REDUCE, "ring"));
    struct tt_link *link = tt_fabric_tx(pair.all.fabrics[1], 0, 0);
    CHECK_EQ(begin(&pair.parts[0]), TT_IN_PROGRESS);
    CHECK(link->ops->slot(link, 1) != NULL); /* in place of rank 1's reference */
    link->ops->publish(link, 1, 0);
    struct tt_posted posted = {.nbytes = NBYTES / 2, .signature = work->collective.signature};
    CHECK(link->ops->slot(link, NBYTES / 2) && link->ops->posts->claim(link, &posted));
    tt_ignore(tt_fabric_fail(pair.all.fabrics[1], TT_ERR_REMOTE, "a failure"));
    for (int i = 0; i < 10; i++) {
        tt_work_examine(work);
        CHECK_EQ(tt_work_advance(work), TT_IN_PROGRESS);
    }
    CHECK_EQ(work->state, TT_WORK_WITHDRAWING);
    tt_ignore(link->ops->posts->withdraw(link));
    CHECK_EQ(tt_work_advance(work), TT_ERR_REMOTE);
    close_ranks(&pair);
}

/* A broadcast whose root has sent its reference, and waits until that has been taken. */
static void run_root(struct pair *pair)
{
    REQUIRE(open_ranks(pair));
    for (int r = 0; r < NRANKS; r++) {
        fill(&pair->parts[r], 1);
        REQUIRE(prepare(&pair->parts[r], TT_BROADCAST, "direct"));
    }
    CHECK_EQ(begin(&pair->parts[0]), TT_IN_PROGRESS);
    CHECK(position_of(&pair->parts[0])->done && pair->parts[0].work.collective.references);
}

TEST(express, a_call_waits_until_its_references_are_taken)
{
    static struct pair pair;
    run_root(&pair);
    CHECK_EQ(tt_work_advance(&pair.parts[0].work), TT_IN_PROGRESS);
    CHECK_EQ(begin(&pair.parts[1]), TT_OK);
    CHECK_EQ(tt_work_advance(&pair.parts[0].work), TT_OK);
    CHECK_EQ(output_of(&pair.parts[1])[7], 8);
    close_ranks(&pair);
}

/* What was read by reference may have been freed by a peer that saw the failure. */
TEST(express, a_call_is_not_done_after_a_failure)
{
    static struct pair pair;
    run_root(&pair);
    tt_ignore(tt_fabric_fail(pair.all.fabrics[0], TT_ERR_REMOTE, "a failure"));
    tt_status status = begin(&pair.parts[1]);
    CHECK(position_of(&pair.parts[1])->done);
    while (status == TT_IN_PROGRESS) status = tt_work_advance(&pair.parts[1].work);
    CHECK_EQ(status, TT_ERR_REMOTE);
    close_ranks(&pair);
}

/* ---- Brief calls ---------------------------------------------------------------------------- */

enum { FEW = 6 };

static void prepare_brief(struct pair *pair, const char *algorithm, enum tt_express kind)
{
    REQUIRE(open_ranks(pair));
    for (int r = 0; r < NRANKS; r++) {
        fill(&pair->parts[r], 1);
        CHECK_EQ(prepare_of(&pair->parts[r], TT_ALL_REDUCE, algorithm, FEW), kind);
    }
}

static void finish_brief(struct pair *pair)
{
    struct part *parts = pair->parts;
    CHECK_EQ(begin(&parts[1]), TT_OK);
    CHECK_EQ(tt_work_advance(&parts[0].work), TT_OK);
    for (int r = 0; r < NRANKS; r++) {
        CHECK_EQ(count_sums(&parts[r], 0, FEW, 1), FEW);
        CHECK_EQ(output_of(&parts[r])[FEW], -1);
        CHECK(tt_engine_idle(&parts[r].engine));
        CHECK_EQ(atomic_load(&parts[r].fabric->record->done), 1);
    }
    close_ranks(pair);
}

TEST(express, a_brief_call_waits_in_the_wait_loop_for_a_late_message)
{
    static struct pair pair;
    prepare_brief(&pair, "parallel", TT_EXPRESS_LINKS);
    CHECK_EQ(begin(&pair.parts[0]), TT_IN_PROGRESS);
    CHECK_EQ(position_of(&pair.parts[0])->step, 1);
    CHECK(!tt_engine_idle(&pair.parts[0].engine));
    CHECK_EQ(tt_work_advance(&pair.parts[0].work), TT_IN_PROGRESS);
    finish_brief(&pair);
}

TEST(express, a_brief_meeting_waits_in_the_wait_loop_for_a_late_part)
{
    static struct pair pair;
    prepare_brief(&pair, "meet", TT_EXPRESS_MEETING);
    CHECK_EQ(begin(&pair.parts[0]), TT_IN_PROGRESS);
    CHECK(position_of(&pair.parts[0])->entered);
    CHECK_EQ(tt_work_advance(&pair.parts[0].work), TT_IN_PROGRESS);
    finish_brief(&pair);
}

static void check_brief_difference(const char *algorithm, enum tt_express kind)
{
    static struct pair pair;
    prepare_brief(&pair, algorithm, kind);
    pair.parts[1].call.signature++;
    CHECK_EQ(begin(&pair.parts[0]), TT_IN_PROGRESS);
    CHECK_EQ(begin(&pair.parts[1]), TT_ERR_USAGE);
    CHECK(tt_work_is_done(&pair.parts[1].work));
    CHECK_EQ(tt_work_advance(&pair.parts[0].work), TT_ERR_USAGE);
    for (int r = 0; r < NRANKS; r++) {
        CHECK_EQ(output_of(&pair.parts[r])[0], -1);
        CHECK(tt_engine_idle(&pair.parts[r].engine));
    }
    close_ranks(&pair);
}

TEST(express, a_brief_call_that_differs_fails_and_writes_nothing)
{
    check_brief_difference("parallel", TT_EXPRESS_LINKS);
    check_brief_difference("meet", TT_EXPRESS_MEETING);
}

TEST(express, what_must_be_looked_up_is_not_brief)
{
    static struct pair pair;
    struct part *part = &pair.parts[0];
    REQUIRE(open_ranks(&pair));
    CHECK_EQ(prepare_of(part, TT_ALL_REDUCE, "parallel", FEW), TT_EXPRESS_LINKS);
    part->call.reduction.op = TT_PREMUL_SUM; /* its raw sources are this rank's to change */
    CHECK_EQ(tt_express_kind(&part->engine, &part->call), TT_EXPRESS_WHOLE);
    part->call.reduction.op = TT_SUM;
    part->call.resolved = NULL;
    CHECK_EQ(tt_express_kind(&part->engine, &part->call), TT_EXPRESS_WHOLE);
    part->call.scalar = part->memory;
    CHECK_EQ(tt_express_kind(&part->engine, &part->call), TT_EXPRESS_NOT);
    close_ranks(&pair);
}

/* ---- Two threads ---------------------------------------------------------------------------- */

struct kind {
    enum tt_collective collective;
    const char *algorithm;
    int count;
    enum tt_express kind;
};

struct runner {
    struct part *part;
    enum tt_collective collective;
    int count, nwrong;
    tt_status status;
};

static int32_t expected(const struct runner *runner, int i, int seed)
{
    const enum tt_collective collective = runner->collective;
    if (collective == TT_ALL_REDUCE) return 3 * (i + seed);
    if (collective == TT_BROADCAST) return i + seed;
    const int half = runner->count / 2; /* all_gather */
    return (i / half + 1) * (i % half + seed);
}

static void *run_all(void *arg)
{
    struct runner *runner = arg;
    struct part *part = runner->part;
    const int number = runner->count;
    unsigned state = (unsigned)part->fabric->rank;
    for (int seed = 0; seed < NTIMES && !runner->status; seed++) {
        fill(part, seed);
        state = state * 1103515245 + 12345;
        for (volatile unsigned pause = state % 7 ? 0 : state >> 16; pause > 0; pause--) continue;
        if (!tt_engine_enter_if_idle(&part->engine)) runner->nwrong++;
        runner->status = tt_express_run(&part->engine, &part->call, part->kind);
        for (int i = 0; i < number; i++)
            runner->nwrong += output_of(part)[i] != expected(runner, i, seed);
    }
    return NULL;
}

static void run_together(const struct kind *kind)
{
    static struct pair pair;
    struct runner runners[NRANKS];
    pthread_t threads[NRANKS];
    REQUIRE(open_ranks(&pair));
    for (int r = 0; r < NRANKS; r++) {
        runners[r] = (struct runner){
            .part = &pair.parts[r], .collective = kind->collective, .count = kind->count};
        CHECK_EQ(prepare_of(&pair.parts[r], kind->collective, kind->algorithm, (size_t)kind->count),
                 kind->kind);
    }
    for (int r = 0; r < NRANKS; r++)
        REQUIRE(pthread_create(&threads[r], NULL, run_all, &runners[r]) == 0);
    for (int r = 0; r < NRANKS; r++) {
        pthread_join(threads[r], NULL);
        CHECK_EQ(runners[r].status, TT_OK);
        CHECK_EQ(runners[r].nwrong, 0);
        if (kind->count == COUNT) CHECK_EQ(atomic_load(&pair.parts[r].fabric->nbytes_copied), 0);
    }
    close_ranks(&pair);
}

TEST(express, gives_the_collectives_definition_whoever_comes_late)
{
    static const struct kind kinds[] = {{TT_ALL_REDUCE, "ring", COUNT, TT_EXPRESS_WHOLE},
                                        {TT_ALL_GATHER, "ring", COUNT, TT_EXPRESS_WHOLE},
                                        {TT_BROADCAST, "direct", COUNT, TT_EXPRESS_WHOLE},
                                        {TT_ALL_REDUCE, "parallel", FEW, TT_EXPRESS_LINKS},
                                        {TT_ALL_REDUCE, "ring", FEW, TT_EXPRESS_LINKS},
                                        {TT_ALL_GATHER, "recursive", FEW, TT_EXPRESS_LINKS},
                                        {TT_BROADCAST, "direct", FEW, TT_EXPRESS_LINKS},
                                        {TT_ALL_REDUCE, "meet", FEW, TT_EXPRESS_MEETING},
                                        {TT_ALL_GATHER, "meet", FEW, TT_EXPRESS_MEETING},
                                        {TT_BROADCAST, "meet", FEW, TT_EXPRESS_MEETING}};
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) run_together(&kinds[i]);
}
