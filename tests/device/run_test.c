/* The kernel tutti_run on a virtual GPU, all ranks on one: right, with the host's bits, and without
 * races. TT_DEVICE_LONG=N runs N times as much. mutants.sh says what these tests catch. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "device/tables.h"
#include "schedule/collective.h"
#include "shim.h"
#include "world.h"

enum { MOST_RANKS = 8 }; /* that every algorithm is run with */

static const char *const protocol_names[TT_NPROTOCOLS] = {"slots", "lines"};

static uint64_t seed(void)
{
    const char *text = getenv("VGPU_SEED");
    return text ? strtoull(text, NULL, 0) : 1;
}

static unsigned turns(void)
{
    const char *text = getenv("TT_DEVICE_LONG");
    return text ? (unsigned)strtoul(text, NULL, 0) : 1;
}

/* TT_DEVICE_RANKS: most ranks of every algorithm's calls. */
static int most_ranks(void)
{
    const char *text = getenv("TT_DEVICE_RANKS");
    const int most = text ? atoi(text) : MOST_RANKS;
    return most < MOST_RANKS ? most : MOST_RANKS;
}

/* A stream of numbers. */
static uint64_t next(uint64_t *state)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return *state >> 33;
}

/* The index-th algorithm that is not made of others. */
static const struct tt_algorithm *algorithm_at(int index)
{
    for (int c = 0; c < TT_NCOLLECTIVES; c++) {
        const struct tt_algorithm *algorithm;
        for (int k = 0; (algorithm = tt_algorithm_at((enum tt_collective)c, k)) != NULL; k++)
            if (!algorithm->parts && index-- == 0) return algorithm;
    }
    return NULL;
}

/* What a call is, besides what the numbers choose. */
struct kind {
    const struct tt_algorithm *algorithm;
    uint32_t protocol;
    enum tt_type type;
    enum tt_op op;
    bool uneven;       /* a count for each block */
    bool by_reference; /* every message that can be */
};

/* A scalar that is no power of two. */
static void set_scalar(struct tt_reduction *reduction)
{
    const float single = 1.7f;
    const double twice = 1.7;
    memset(reduction->scalar, 0x3b, sizeof reduction->scalar);
    if (reduction->type == TT_FLOAT32) memcpy(reduction->scalar, &single, sizeof single);
    if (reduction->type == TT_FLOAT64) memcpy(reduction->scalar, &twice, sizeof twice);
}

static void choose_counts(struct job *job, uint64_t *numbers, size_t *own)
{
    static const size_t counts[] = {0, 1, 5, 37, 64, 129, 700, 1531};
    const struct tt_collective_row *row = tt_collective_row(job->algorithm->collective);
    const unsigned few = job->nranks < 3 || (row->splits && job->nranks < 6) ? 8
                         : job->nranks < 6 || row->splits                    ? 6
                                                                             : 5;
    job->count = counts[next(numbers) % few];
    for (int r = 0; r < job->nranks; r++) own[r] = counts[next(numbers) % 6];
}

/* Makes and runs one call whose settings follow from the numbers. */
static void try_one(struct world *world, const struct kind *kind, uint64_t *numbers)
{
    static const size_t references[] = {0, 256, SIZE_MAX};
    const struct tt_algorithm *algorithm = kind->algorithm;
    size_t own[JOB_MOST_RANKS];
    struct job job = {
        .algorithm = algorithm,
        .nranks = world->config.nranks,
        .protocol = kind->protocol,
        .slot_bytes = WORLD_SLOT_BYTES,
        .line_bytes = WORLD_LINE_BYTES,
        .reduction = {.type = kind->type, .op = kind->op, .nranks = world->config.nranks}};
    choose_counts(&job, numbers, own);
    set_scalar(&job.reduction);
    if (kind->uneven) job.counts = own;
    if (tt_collective_has_root(algorithm->collective))
        job.root = (int)(next(numbers) % (unsigned)job.nranks);
    job.copies = 1 + (int)(next(numbers) % 4 == 0);
    if (!job_make(&job)) {
        CHECK_MESSAGE(false, "%s is not made: %s", algorithm->name, tt_last_error());
        return;
    }
    const unsigned element = (unsigned)tt_type_size(kind->type);
    const struct world_call call = {
        .job = &job,
        .reference_bytes = kind->by_reference ? 0 : references[next(numbers) % 3],
        .misaligned = next(numbers) % 3 ? 0 : element * (unsigned)(next(numbers) % 8),
        .in_place = tt_collective_row(algorithm->collective)->in_place && next(numbers) % 3 == 0,
        .apart = next(numbers) % 3 == 0 || job.nranks > TT_DEVICE_MOST_CALLS,
        .scrambled = next(numbers) % 2,
        .scalar_on_device = next(numbers) % 2,
        .signature = (uint32_t)next(numbers)};
    char what[256];
    snprintf(what, sizeof what,
             "%s:%s over %d ranks, root %d, count %zu%s, %s of %s, %s, %d parts, references from "
             "%zu%s%s, %u bytes off",
             tt_collective_name(algorithm->collective), algorithm->name, job.nranks, job.root,
             job.count, kind->uneven ? " (own counts)" : "", tt_op_name(kind->op),
             tt_type_name(kind->type), protocol_names[kind->protocol], (int)job_nparts(&job),
             call.reference_bytes, call.in_place ? ", in place" : "", call.apart ? ", apart" : "",
             call.misaligned);
    const clock_t before = clock();
    world_try(world, &call, what, *numbers);
    if (getenv("TT_DEVICE_VERBOSE"))
        fprintf(stderr, "%4d ms %s\n", (int)((clock() - before) / (CLOCKS_PER_SEC / 1000)), what);
    job_clear(&job);
}

static bool open_some(struct world *world, int nranks, uint64_t *numbers)
{
    const struct world_config config = {.nranks = nranks,
                                        .nslots = next(numbers) % 2 ? 4 : 2,
                                        .reaches = next(numbers) % 4 != 0,
                                        .opens = next(numbers) % 3 == 0,
                                        .system = next(numbers) % 4 == 0,
                                        .narrow = next(numbers) % 4 == 0};
    return world_open(world, &config);
}

TEST(run, every_algorithm_gives_the_hosts_bits)
{
    uint64_t numbers = seed();
    for (int nranks = 1; nranks <= most_ranks(); nranks++) {
        struct world world;
        struct kind kind = {.type = TT_FLOAT32, .op = TT_SUM};
        REQUIRE(open_some(&world, nranks, &numbers));
        for (int i = 0; !tt_test_failed() && (kind.algorithm = algorithm_at(i)) != NULL; i++)
            for (kind.protocol = 0; kind.protocol < TT_NPROTOCOLS && !tt_test_failed();
                 kind.protocol++)
                for (unsigned t = 0; t < turns(); t++) try_one(&world, &kind, &numbers);
        world_close(&world);
    }
}

/* A warp tells of the ends of a block, 32 at a time. */
TEST(run, blocks_with_more_ends_than_a_warp_has_threads_give_the_hosts_bits)
{
    enum { MANY = 18 };
    uint64_t numbers = seed();
    struct world world;
    struct kind kind = {.type = TT_FLOAT32, .op = TT_SUM};
    int ntried = 0;
    REQUIRE(open_some(&world, MANY, &numbers));
    for (int i = 0; !tt_test_failed() && (kind.algorithm = algorithm_at(i)) != NULL; i++) {
        const char *name = kind.algorithm->name;
        if (kind.algorithm->collective != TT_ALL_REDUCE) continue;
        if (strcmp(name, "two_shot") && strcmp(name, "meet_two_shot")) continue;
        for (kind.protocol = 0; kind.protocol < TT_NPROTOCOLS; kind.protocol++, ntried++)
            try_one(&world, &kind, &numbers);
    }
    CHECK_EQ(ntried, 2 * TT_NPROTOCOLS);
    world_close(&world);
}

/* The algorithm with these properties, from a random place on. */
static const struct tt_algorithm *some_algorithm(bool reduces, bool uneven, uint64_t *numbers)
{
    for (;;) {
        const struct tt_algorithm *algorithm = algorithm_at((int)(next(numbers) % 64));
        if (!algorithm) continue;
        if (reduces && !tt_collective_reduces(algorithm->collective)) continue;
        if (!uneven || algorithm->uneven) return algorithm;
    }
}

TEST(run, every_type_and_operation_and_own_counts_give_the_hosts_bits)
{
    uint64_t numbers = seed() + 1000;
    for (unsigned t = 0; t < turns(); t++)
        for (int type = 0; type < TT_NTYPES; type++) {
            struct world world;
            REQUIRE(open_some(&world, 2 + (int)(next(&numbers) % 4), &numbers));
            for (int op = 0; op < TT_NOPS && !tt_test_failed(); op++) {
                if (!tt_op_supports((enum tt_op)op, (enum tt_type)type)) continue;
                const bool uneven = next(&numbers) % 4 == 0;
                const struct kind kind = {.algorithm = some_algorithm(true, uneven, &numbers),
                                          .protocol = (uint32_t)(next(&numbers) % TT_NPROTOCOLS),
                                          .type = (enum tt_type)type,
                                          .op = (enum tt_op)op,
                                          .uneven = uneven};
                try_one(&world, &kind, &numbers);
            }
            world_close(&world);
        }
}

/* Whoever reads another rank's input in its place divides it. */
TEST(run, averages_of_input_by_reference_give_the_hosts_bits)
{
    static const enum tt_type types[] = {TT_FLOAT32, TT_FLOAT16, TT_FLOAT64, TT_FLOAT8E4M3,
                                         TT_BFLOAT16};
    uint64_t numbers = seed() + 3000;
    for (int nranks = 2; nranks <= 4; nranks++) {
        const struct world_config config = {.nranks = nranks, .nslots = 4, .reaches = true};
        struct kind kind = {.op = TT_AVG, .protocol = TT_PROTOCOL_SLOTS, .by_reference = true};
        struct world world;
        REQUIRE(world_open(&world, &config));
        for (int i = 0; !tt_test_failed() && (kind.algorithm = algorithm_at(i)) != NULL; i++) {
            kind.type = types[(i + nranks) % 5];
            if (tt_collective_reduces(kind.algorithm->collective) && kind.algorithm->direct_safe)
                try_one(&world, &kind, &numbers);
        }
        world_close(&world);
    }
}

TEST(run, calls_with_a_count_for_each_rank_give_the_hosts_bits)
{
    uint64_t numbers = seed() + 2000;
    for (int i = 0; i < 8 * (int)turns() && !tt_test_failed(); i++) {
        struct world world;
        REQUIRE(open_some(&world, 1 + (int)(next(&numbers) % 6), &numbers));
        for (uint32_t p = 0; p < TT_NPROTOCOLS; p++) {
            const struct kind kind = {.algorithm = some_algorithm(false, true, &numbers),
                                      .protocol = p,
                                      .type = TT_BFLOAT16,
                                      .op = TT_AVG,
                                      .uneven = true};
            try_one(&world, &kind, &numbers);
        }
        world_close(&world);
    }
}

/* By links, and by meetings. */
static const char *const kinds[] = {"ring", "meet_two_shot"};
enum { NKINDS = sizeof kinds / sizeof *kinds };

/* An all-reduce of 100 floats over three ranks. */
static void make_small(struct job *job, const char *algorithm, uint32_t protocol)
{
    *job = (struct job){.algorithm = tt_algorithm_find(TT_ALL_REDUCE, algorithm),
                        .nranks = 3,
                        .copies = 2,
                        .count = 100,
                        .protocol = protocol,
                        .slot_bytes = WORLD_SLOT_BYTES,
                        .line_bytes = WORLD_LINE_BYTES,
                        .reduction = {.type = TT_FLOAT32, .op = TT_SUM, .nranks = 3}};
    REQUIRE(job_make(job));
}

TEST(run, a_launch_again_is_another_call)
{
    struct world world;
    struct job job;
    for (uint32_t p = 0; p < TT_NPROTOCOLS; p++)
        for (int i = 0; i < 4 * NKINDS; i++) {
            const struct world_config config = {.nranks = 3,
                                                .nslots = i % 3 ? 4 : 2,
                                                .reaches = true,
                                                .system = i % 4 > 1,
                                                .ngpus = i % 4 == 3 ? 2 : 1};
            make_small(&job, kinds[i / 4], p);
            REQUIRE(world_open(&world, &config));
            const struct world_call call = {
                .job = &job, .signature = 5, .ntimes = 9, .apart = i % 4 > 0};
            world_try(&world, &call, "nine launches of one call", 1);
            world_close(&world);
            job_clear(&job);
        }
}

/* A broadcast along a line, whose sender is soon as many messages ahead as there are slots: a
 * receiver that releases a message before it has read it finds the next one in its place. */
TEST(run, a_message_is_released_only_when_it_is_read)
{
    static const size_t references[] = {0, SIZE_MAX};
    struct world world;
    for (int i = 0; i < 4; i++) {
        struct job job = {.algorithm = tt_algorithm_find(TT_BROADCAST, "chain"),
                          .nranks = 3,
                          .copies = 1,
                          .count = 16 * WORLD_SLOT_BYTES / sizeof(float),
                          .slot_bytes = WORLD_SLOT_BYTES,
                          .line_bytes = WORLD_LINE_BYTES,
                          .reduction = {.type = TT_FLOAT32, .op = TT_SUM, .nranks = 3}};
        const struct world_config config = {
            .nranks = 3, .nslots = i / 2 ? 4 : 2, .reaches = true, .system = i % 2 == 0};
        REQUIRE(job_make(&job));
        REQUIRE(world_open(&world, &config));
        const struct world_call call = {
            .job = &job, .signature = 5, .reference_bytes = references[i % 2]};
        world_try(&world, &call, "a broadcast of 16 messages", 1);
        world_close(&world);
        job_clear(&job);
    }
}

static void pause_briefly(void)
{
    const struct timespec moment = {.tv_nsec = 20000000};
    nanosleep(&moment, NULL);
}

/* Runs a call that cannot end well. The host says abort as soon as rank `first` has reported a
 * failure; -1: while the kernels wait, however far they are. */
static void run_failing(struct world *world, const struct world_call *call, int first)
{
    static char zeros[4096];
    char *inputs[JOB_MOST_RANKS];
    struct world_run run;
    for (int r = 0; r < JOB_MOST_RANKS; r++) inputs[r] = zeros;
    world_place(world, call, inputs, &run);
    for (int i = 1; i <= 2; i++) { /* after a failure a call ends at once */
        for (int r = 0; r < call->job->nranks; r++) run.batch.calls[r].number = (uint64_t)i;
        world_launch(world, call, &run);
    }
    for (int r = 0; r < world->config.nranks; r++)
        for (int i = 0; !(call->absent >> r & 1) && i < 1000; i++) {
            if (__atomic_load_n(&world->reports[r]->nbegun, __ATOMIC_ACQUIRE)) break;
            pause_briefly();
        }
    pause_briefly();
    for (int i = 0; first >= 0 && i < 1000; i++) {
        if (__atomic_load_n(&world->reports[first]->failure, __ATOMIC_ACQUIRE)) break;
        pause_briefly();
    }
    world_abort(world, 1);
    world_wait(world);
    world_remove(world, &run);
}

TEST(run, abort_ends_kernels_that_wait_for_a_rank_that_never_comes)
{
    struct world world;
    struct job job;
    const struct world_config config = {.nranks = 3, .nslots = 4, .reaches = true};
    for (uint32_t p = 0; p < TT_NPROTOCOLS; p++)
        for (int i = 0; i < 2 * NKINDS; i++) {
            make_small(&job, kinds[i / 2], p);
            REQUIRE(world_open(&world, &config));
            const struct world_call call = {
                .job = &job, .signature = 5, .absent = 2, .apart = i % 2};
            run_failing(&world, &call, -1);
            for (int r = 0; r < 3; r += 2) {
                const struct tt_device_report *report = world.reports[r];
                CHECK_EQ(report->failure, TT_DEVICE_ABORTED);
                CHECK(report->peer >= 0 && report->peer < 3 && report->peer != r);
                CHECK_EQ(report->nbegun, 2);
                CHECK_EQ(report->nended, 2);
            }
            /* In a ring rank 2 takes from rank 1; in a meeting from all, who may be late. */
            CHECK(world.reports[2]->peer == 1 || i / 2);
            CHECK_EQ(world.reports[1]->nbegun, 0);
            world_close(&world);
            job_clear(&job);
        }
}

TEST(run, a_message_of_another_call_is_a_mismatch_that_names_the_peer)
{
    struct world world;
    struct job job;
    const struct world_config config = {.nranks = 3, .nslots = 4, .reaches = true};
    for (uint32_t p = 0; p < TT_NPROTOCOLS; p++)
        for (int i = 0; i < 2 * NKINDS; i++) {
            make_small(&job, kinds[i / 2], p);
            REQUIRE(world_open(&world, &config));
            const struct world_call call = {
                .job = &job, .signature = 5, .other = 2, .apart = i % 2};
            run_failing(&world, &call, 2);
            const struct tt_device_report *report = world.reports[2];
            CHECK_EQ(report->failure, TT_DEVICE_MISMATCH);
            CHECK_EQ(report->peer, 1);
            /* Rank 2 passes nothing on: not even the first call of rank 0 has a result. */
            CHECK(world.reports[0]->failure); /* in a meeting it may find the mismatch itself */
            CHECK_EQ(world.reports[0]->sound, 0);
            CHECK(report->channel < 2 && report->step < 6);
            for (int r = 0; r < 3; r++) CHECK_EQ(world.reports[r]->nended, 2);
            world_close(&world);
            job_clear(&job);
        }
}
