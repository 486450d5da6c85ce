/* Express calls with long messages: references and posts between ranks of two processes. */
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

/* Prepares a call of COUNT elements. */
static bool prepare(struct part *part, enum tt_collective collective, const char *algorithm)
{
    const struct tt_segment_header *header = part->fabric->segment->header;
    const struct tt_limits limits = {.slot_bytes = header->slot_bytes,
                                     .meet_bytes = header->meet_bytes};
    const struct tt_shape shape = {
        .collective = collective, .nranks = NRANKS, .hosts = part->fabric->hosts};
    const size_t count = tt_collective_splits(collective) ? COUNT : COUNT / NRANKS;
    struct tt_program *program;
    if (tt_program_create(tt_algorithm_find(collective, algorithm), &shape, part->fabric->rank,
                          &program) ||
        tt_loaded_create(program, part->fabric, &part->loaded) ||
        tt_program_bind(program, count, sizeof(int32_t), &limits, &part->binding))
        return false;
    part->resolved = malloc(tt_step_table_bytes(program, &part->binding));
    if (!part->resolved) return false;
    tt_step_table_fill(program, &part->binding, part->resolved);
    part->call = (struct tt_call){.loaded = part->loaded,
                                  .binding = &part->binding,
                                  .resolved = part->resolved,
                                  .input = part->memory,
                                  .output = output_of(part),
                                  .reduction = {.type = TT_INT32, .op = TT_SUM, .nranks = NRANKS}};
    part->call.signature = tt_call_signature(program, count, &part->call.reduction);
    part->call.entry = tt_call_entry_make(program, count, &part->call.reduction);
    part->kind = tt_express_kind(&part->engine, &part->call);
    return part->kind == TT_EXPRESS_WHOLE;
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

/* ---- Two threads ---------------------------------------------------------------------------- */

struct kind {
    enum tt_collective collective;
    const char *algorithm;
};

struct runner {
    struct part *part;
    enum tt_collective collective;
    int nwrong;
    tt_status status;
};

static int32_t expected(enum tt_collective collective, int i, int seed)
{
    if (collective == TT_ALL_REDUCE) return 3 * (i + seed);
    if (collective == TT_BROADCAST) return i + seed;
    const int half = COUNT / 2; /* all_gather */
    return (i / half + 1) * (i % half + seed);
}

static void *run_all(void *arg)
{
    struct runner *runner = arg;
    struct part *part = runner->part;
    const int number = runner->collective == TT_BROADCAST ? COUNT / 2 : COUNT;
    unsigned state = (unsigned)part->fabric->rank;
    for (int seed = 0; seed < NTIMES && !runner->status; seed++) {
        fill(part, seed);
        state = state * 1103515245 + 12345;
        for (volatile unsigned pause = state % 7 ? 0 : state >> 16; pause > 0; pause--) continue;
        if (!tt_engine_enter_if_idle(&part->engine)) runner->nwrong++;
        runner->status = tt_express_run(&part->engine, &part->call, part->kind);
        for (int i = 0; i < number; i++)
            runner->nwrong += output_of(part)[i] != expected(runner->collective, i, seed);
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
        runners[r] = (struct runner){.part = &pair.parts[r], .collective = kind->collective};
        CHECK_MESSAGE(prepare(&pair.parts[r], kind->collective, kind->algorithm),
                      "%s:%s is no express call", tt_collective_name(kind->collective),
                      kind->algorithm);
    }
    for (int r = 0; r < NRANKS; r++)
        REQUIRE(pthread_create(&threads[r], NULL, run_all, &runners[r]) == 0);
    for (int r = 0; r < NRANKS; r++) {
        pthread_join(threads[r], NULL);
        CHECK_EQ(runners[r].status, TT_OK);
        CHECK_EQ(runners[r].nwrong, 0);
        CHECK_EQ(atomic_load(&pair.parts[r].fabric->nbytes_copied), 0);
    }
    close_ranks(&pair);
}

TEST(express, gives_the_collectives_definition_whoever_comes_late)
{
    static const struct kind kinds[] = {
        {TT_ALL_REDUCE, "ring"}, {TT_ALL_GATHER, "ring"}, {TT_BROADCAST, "direct"}};
    for (int i = 0; i < 3; i++) run_together(&kinds[i]);
}
