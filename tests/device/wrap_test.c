/* The kernel while counts of messages pass 2^31 and 2^32: right results, and nothing that was
 * written 2^32 messages ago is taken for what comes now. With run_test.c one program. */
#include <stdio.h>

#include "schedule/collective.h"
#include "shim.h"
#include "world.h"

enum { SHORT = 2, LONG = 60, NRANKS = 3 };

static const uint32_t boundaries[] = {1u << 31, 0};
static const unsigned slots[] = {2, 4, 8};
enum { NBOUNDARIES = 2, NSLOTS = 3 };

static bool make(struct job *job, const struct tt_algorithm *algorithm, uint32_t protocol,
                 size_t count)
{
    *job = (struct job){.algorithm = algorithm,
                        .nranks = NRANKS,
                        .copies = 1,
                        .count = count,
                        .protocol = protocol,
                        .slot_bytes = WORLD_SLOT_BYTES,
                        .line_bytes = WORLD_LINE_BYTES,
                        .reduction = {.type = TT_FLOAT32, .op = TT_SUM, .nranks = NRANKS}};
    return job_make(job);
}

/* Launches that pass the boundary: after the k-th, or in its middle. */
static void pass(struct world *world, const struct tt_algorithm *algorithm, uint32_t boundary,
                 unsigned k)
{
    for (uint32_t protocol = 0; protocol < TT_NPROTOCOLS; protocol++) {
        struct job job;
        char what[160];
        snprintf(what, sizeof what, "%s:%s by protocol %u with %u slots, %u messages before %#x",
                 tt_collective_name(algorithm->collective), algorithm->name, protocol,
                 world->config.nslots, k, boundary);
        if (!make(&job, algorithm, protocol, 37)) {
            CHECK_MESSAGE(false, "%s is not made: %s", what, tt_last_error());
            return;
        }
        const struct world_call call = {
            .job = &job, .signature = 5, .ntimes = k + 2, .apart = k % 2, .reference_bytes = 64};
        world_count_from(world, boundary - k, true);
        world_try(world, &call, what, k);
        job_clear(&job);
    }
}

TEST(wrap, every_algorithm_is_right_while_counts_pass_their_ends)
{
    unsigned k = 0;
    for (int i = 0; i < NBOUNDARIES * NSLOTS && !tt_test_failed(); i++) {
        struct world world;
        const struct world_config config = {.nranks = NRANKS,
                                            .nslots = slots[i / NBOUNDARIES],
                                            .reaches = i % 4 != 3,
                                            .system = i % 3 == 2};
        REQUIRE(world_open(&world, &config));
        for (int c = 0; c < TT_NCOLLECTIVES; c++) {
            const struct tt_algorithm *algorithm;
            for (int a = 0; (algorithm = tt_algorithm_at((enum tt_collective)c, a)) != NULL; a++)
                if (!algorithm->parts && k++ % 6 == (unsigned)i && !tt_test_failed())
                    pass(&world, algorithm, boundaries[i % NBOUNDARIES], k % 3);
        }
        world_close(&world);
    }
}

/* Brings every link to the boundary by messages in lines, of which each has one. */
static void approach(struct world *world, const struct tt_algorithm *algorithm, uint32_t boundary)
{
    struct job job;
    const unsigned n = world->config.nslots + 1;
    REQUIRE(make(&job, algorithm, TT_PROTOCOL_LINES, SHORT));
    world_count_from(world, boundary - n, false);
    world_try(world, &(struct world_call){.job = &job, .signature = 6, .ntimes = n}, "short calls",
              2);
    job_clear(&job);
}

/* Long messages, then 2^32 others that are short, then long ones: with the same numbers, and from
 * the same call. Those of the last rank look for the first message before it is sent. */
static void come_round(struct world *world, const struct tt_algorithm *algorithm, uint32_t protocol)
{
    struct job job;
    const unsigned nslots = world->config.nslots;
    REQUIRE(make(&job, algorithm, protocol, LONG));
    const struct world_call call = {
        .job = &job, .signature = 5, .reference_bytes = SIZE_MAX, .apart = true, .scrambled = true};
    world_count_from(world, 0, true);
    world_try(world, &call, "long messages", 1);
    for (int i = 0; i < NBOUNDARIES; i++) {
        const uint32_t from = boundaries[i] - nslots - 1;
        approach(world, algorithm, boundaries[i]);
        const uint32_t oldest = world_oldest(world, from);
        CHECK_MESSAGE(oldest > 0 && oldest <= 2 * nslots,
                      "%s with %u slots: %u messages after %#x the memory of a link says something "
                      "that is %u messages old",
                      algorithm->name, nslots, nslots + 1, from, oldest);
    }
    world_try(world, &call, "long messages again", 3);
    job_clear(&job);
}

TEST(wrap, what_was_written_2_to_32_messages_ago_is_not_taken_again)
{
    for (int i = 0; i < NSLOTS && !tt_test_failed(); i++) {
        struct world world;
        const struct world_config config = {.nranks = NRANKS, .nslots = slots[i], .reaches = true};
        REQUIRE(world_open(&world, &config));
        for (uint32_t protocol = 0; protocol < TT_NPROTOCOLS; protocol++) {
            come_round(&world, tt_algorithm_find(TT_BROADCAST, "chain"), protocol);
            come_round(&world, tt_algorithm_find(TT_ALL_REDUCE, "meet"), protocol);
        }
        world_close(&world);
    }
}
