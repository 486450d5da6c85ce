/* More ranks on a host than its links have address space for at full size. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "algorithms/algorithms.h"
#include "executor/calls.h"
#include "program/lower.h"
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
    const struct tt_fabric_config config = {.nslots = 6,
                                            .slot_bytes = slot_bytes,
                                            .meet_bytes = 32 << 10,
                                            .nchannels = TOGETHER_CHANNELS,
                                            .allow_window = true};
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

/* Whether the call can be bound; it may be refused only where it does not fit, and the error says
 * what would. */
static bool fits(const struct ranks *ranks, const struct trial *trial)
{
    const struct tt_segment_header *header = ranks->all.fabrics[0]->segment->header;
    const struct tt_limits limits = {.slot_bytes = header->slot_bytes,
                                     .meet_bytes = header->meet_bytes};
    const struct tt_shape shape = {.collective = trial->algorithm->collective,
                                   .nranks = trial->nranks,
                                   .root = trial->root,
                                   .hosts = ranks->all.fabrics[0]->hosts};
    struct tt_program *program = NULL;
    struct tt_binding binding;
    if (tt_program_create(trial->algorithm, &shape, 0, &program)) return false;
    const tt_status status = tt_program_bind(program, trial->count, 4, &limits, &binding);
    const int need = program->message * 4;
    free(program);
    if (status == TT_OK) return true;
    char value[64], least[64];
    snprintf(value, sizeof value, "TUTTI_%s_BYTES=256",
             trial->algorithm->one_host ? "MEET" : "SLOT");
    snprintf(least, sizeof least, "at least %d",
             (need + TT_CACHE_LINE - 1) / TT_CACHE_LINE * TT_CACHE_LINE);
    CHECK_EQ(status, TT_ERR_USAGE);
    CHECK_MESSAGE(need > 256, "%d bytes do not fit", need);
    CHECK_MESSAGE(strstr(tt_last_error(), value) && strstr(tt_last_error(), least) &&
                      strstr(tt_last_error(), tt_collective_name(shape.collective)),
                  "expected \"%s\" and \"%s\" in: %s", value, least, tt_last_error());
    return false;
}

TEST(many_ranks, get_the_collectives_definition_or_an_error_from_small_slots_and_meetings)
{
    static struct ranks ranks;
    const int nranks = 130;
    const struct tt_fabric_config config = {
        .nslots = 2, .slot_bytes = 256, .meet_bytes = 256, .nchannels = TOGETHER_CHANNELS};
    int nrefused = 0;
    REQUIRE(ranks_open(&ranks, nranks, &config));
    const struct tt_algorithm *algorithm;
    for (int c = 0; c < TT_NCOLLECTIVES; c++)
        for (int a = 0; (algorithm = tt_algorithm_at((enum tt_collective)c, a)); a++) {
            if (algorithm->parts || tt_test_failed()) break;
            const struct trial trial = {
                .algorithm = algorithm,
                .nranks = nranks,
                .root = tt_collective_has_root(algorithm->collective) ? 7 : 0,
                .count = c == TT_BARRIER                               ? 0
                         : tt_collective_splits(algorithm->collective) ? 301
                                                                       : 1,
                .reduction = {.type = TT_INT32, .op = TT_SUM, .nranks = nranks},
                .seed = (unsigned)a};
            if (fits(&ranks, &trial))
                run_trial(&ranks, &trial);
            else
                nrefused++;
        }
    CHECK(nrefused > 0);
    ranks_close(&ranks);
}
