/* The kernel tutti_run on a virtual GPU, all ranks on one: right, with the host's bits, and without
 * races. TT_DEVICE_LONG=N runs N times as much. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "device/tables.h"
#include "schedule/collective.h"
#include "shim.h"
#include "world.h"

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
            if (!algorithm->parts && !tt_meets(algorithm) && index-- == 0) return algorithm;
    }
    return NULL;
}

/* Makes and runs one call whose settings follow from the numbers. */
static void try_one(struct world *world, const struct tt_algorithm *algorithm, uint32_t protocol,
                    enum tt_type type, enum tt_op op, uint64_t *numbers)
{
    static const size_t counts[] = {0, 1, 5, 37, 64, 129, 700, 1531};
    static const size_t references[] = {0, 256, SIZE_MAX};
    struct job job = {.algorithm = algorithm,
                      .nranks = world->config.nranks,
                      .protocol = protocol,
                      .slot_bytes = WORLD_SLOT_BYTES,
                      .line_bytes = WORLD_LINE_BYTES,
                      .reduction = {.type = type, .op = op, .nranks = world->config.nranks}};
    const struct tt_collective_row *row = tt_collective_row(algorithm->collective);
    const size_t few = row->splits || job.nranks < 3 ? 8 : 6;
    job.count = counts[next(numbers) % few];
    if (tt_collective_has_root(algorithm->collective))
        job.root = (int)(next(numbers) % (unsigned)job.nranks);
    job.copies = 1 + (int)(next(numbers) % 2);
    job.reduction.scalar[0] = 3;
    if (!job_make(&job)) {
        CHECK_MESSAGE(false, "%s is not made: %s", algorithm->name, tt_last_error());
        return;
    }
    const struct world_call call = {.job = &job,
                                    .reference_bytes = references[next(numbers) % 3],
                                    .misaligned = next(numbers) % 3 == 0 ? 4 : 0,
                                    .in_place = row->in_place && next(numbers) % 3 == 0,
                                    .apart = next(numbers) % 3 == 0,
                                    .scrambled = next(numbers) % 2,
                                    .signature = (uint32_t)next(numbers)};
    char what[160];
    snprintf(what, sizeof what, "%s:%s over %d ranks, root %d, count %zu, %s, %d parts%s%s",
             tt_collective_name(algorithm->collective), algorithm->name, job.nranks, job.root,
             job.count, protocol_names[protocol], (int)job_nparts(&job),
             call.in_place ? ", in place" : "", call.apart ? ", apart" : "");
    const clock_t before = clock();
    world_try(world, &call, what, *numbers);
    if (getenv("TT_DEVICE_VERBOSE"))
        fprintf(stderr, "%4d ms %s\n", (int)((clock() - before) / (CLOCKS_PER_SEC / 1000)), what);
    job_clear(&job);
}

TEST(run, every_algorithm_gives_the_hosts_bits)
{
    uint64_t numbers = seed();
    for (int nranks = 1; nranks <= JOB_MOST_RANKS; nranks++) {
        struct world world;
        const struct world_config config = {.nranks = nranks,
                                            .nslots = next(&numbers) % 2 ? 4 : 2,
                                            .reaches = next(&numbers) % 4 != 0,
                                            .system = next(&numbers) % 4 == 0};
        REQUIRE(world_open(&world, &config));
        const struct tt_algorithm *algorithm;
        for (int i = 0; !tt_test_failed() && (algorithm = algorithm_at(i)) != NULL; i++)
            for (uint32_t p = 0; p < TT_NPROTOCOLS && !tt_test_failed(); p++)
                for (unsigned t = 0; t < turns(); t++)
                    try_one(&world, algorithm, p, TT_FLOAT32, TT_SUM, &numbers);
        world_close(&world);
    }
}
