/* A table of resolved steps says what walking their spans says: every algorithm, step, channel,
 * copy and round. */
#include "program/resolve.h"

#include <stdlib.h>

#include "algorithms/algorithms.h"
#include "algorithms/each.h"
#include "program/lower.h"
#include "shim.h"

enum { MOST_RANKS = 9, ELEMENT = 4 };

/* One rank's program, bound and resolved. */
struct table {
    struct tt_program *program;
    struct tt_binding binding;
    struct tt_step_table *resolved;
    int nknown, nwalked; /* steps looked at, each in every copy */
};

static bool table_init(struct table *table, const struct tt_algorithm *algorithm,
                       const struct tt_shape *shape, int rank, size_t count, int copies)
{
    const size_t most = 256;
    const struct tt_limits limits = {.slot_bytes = most, .meet_bytes = most, .copies = copies};
    *table = (struct table){.program = NULL};
    if (tt_program_create(algorithm, shape, rank, &table->program) ||
        tt_program_bind(table->program, count, ELEMENT, &limits, &table->binding)) {
        CHECK_MESSAGE(false, "%s:%s: %s", tt_collective_name(shape->collective), algorithm->name,
                      tt_last_error());
        return false;
    }
    const size_t nbytes = tt_step_table_bytes(table->program, &table->binding);
    CHECK(nbytes != SIZE_MAX);
    table->resolved = nbytes == SIZE_MAX ? NULL : aligned_alloc(64, nbytes);
    if (!table->resolved) return false;
    tt_step_table_fill(table->program, &table->binding, table->resolved);
    return true;
}

static void table_fini(struct table *table)
{
    free(table->resolved);
    free(table->program);
}

/* What a walk says of a span in a round. */
struct walked {
    int npieces;
    size_t offset, count; /* of the first piece; of all */
    size_t longest, shortest;
};

static struct walked walk(const struct table *table, const struct tt_program_span *span, int part,
                          uint64_t round, bool whole)
{
    struct walked walked = {.npieces = 0, .shortest = SIZE_MAX};
    struct tt_piece piece;
    struct tt_walk walk = tt_walk_begin(table->program, &table->binding, span, part, round, whole);
    while (tt_walk_next(&walk, &piece)) {
        if (!walked.npieces++) walked.offset = piece.offset;
        walked.count += piece.count;
        if (piece.count > walked.longest) walked.longest = piece.count;
        if (piece.count < walked.shortest) walked.shortest = piece.count;
    }
    return walked;
}

/* The step and the round, for messages. */
struct where {
    const struct table *table;
    int channel, part;
    uint32_t step;
    uint64_t round;
};

static void check_span(const struct where *where, const char *name, const struct walked *walked,
                       size_t offset, size_t count)
{
    const struct tt_program *program = where->table->program;
    if (!walked->npieces) return;
    CHECK_MESSAGE(walked->npieces == 1 && walked->count == count &&
                      (!count || walked->offset == offset),
                  "%s with algorithm %llx, %d ranks, rank %d, count %zu, part %d, round %llu, step "
                  "%u: the walk has %d pieces of %s, at %zu, %zu elements together; the table says "
                  "at %zu, %zu elements",
                  tt_collective_name((enum tt_collective)program->collective),
                  (unsigned long long)program->algorithm, program->nranks, program->rank,
                  where->table->binding.count, where->part, (unsigned long long)where->round,
                  where->step, walked->npieces, name, walked->offset, walked->count, offset, count);
}

static bool is_whole(const struct table *table, const struct tt_program_step *step)
{
    return (!step->local.number || tt_span_is_whole(&table->binding, &step->local)) &&
           (!step->dst.number || tt_span_is_whole(&table->binding, &step->dst));
}

static void check_link(const struct where *where, const struct tt_program_step *step,
                       const struct tt_resolved_round *at)
{
    const bool whole = is_whole(where->table, step);
    const struct walked local = walk(where->table, &step->local, where->part, where->round, whole),
                        dst = walk(where->table, &step->dst, where->part, where->round, whole);
    check_span(where, "local", &local, at->local, at->count);
    check_span(where, "dst", &dst, at->dst, at->count);
}

/* `count` is a block's: of every block that the spans have. */
static void check_meeting(const struct where *where, const struct tt_program_step *step,
                          const struct tt_resolved_round *at)
{
    for (int i = 0; i < 2; i++) {
        const struct tt_program_span *span = i ? &step->dst : &step->local;
        const struct walked blocks = walk(where->table, span, where->part, where->round, false);
        const struct walked all = walk(where->table, span, where->part, where->round,
                                       tt_span_is_whole(&where->table->binding, span));
        if (!span->number) continue;
        CHECK_EQ(blocks.longest, at->count);
        CHECK_EQ(blocks.shortest, at->count);
        check_span(where, i ? "dst" : "local", &all, i ? at->dst : at->local,
                   at->count * (size_t)span->number);
    }
}

/* Whether a table could know the step: the spans are one piece each. */
static bool is_knowable(const struct where *where, const struct tt_program_step *step)
{
    const struct tt_program *program = where->table->program;
    const bool meets = step->kind == TT_STEP_MEET, whole = is_whole(where->table, step);
    const struct tt_program_span *spans[] = {&step->local, &step->dst};
    if (meets && program->splits && program->nblocks > 1) return false;
    if (!meets && program->nblocks && !step->local.number && !step->dst.number) return false;
    for (int i = 0; i < 2; i++) {
        const bool one = meets ? tt_span_is_whole(&where->table->binding, spans[i]) : whole;
        if (walk(where->table, spans[i], where->part, 0, one).npieces > 1) return false;
    }
    return true;
}

static void check_step(struct table *table, struct where *where)
{
    const struct tt_program *program = table->program;
    const uint32_t first = tt_program_channel(program, where->channel)->first;
    const struct tt_program_step *step = &tt_program_steps(program)[first + where->step];
    const uint32_t copy = (uint32_t)(where->part / program->nchannels);
    const struct tt_resolved_step *resolved =
        &table->resolved->steps[copy * table->resolved->nsteps + first + where->step];
    where->round = 0;
    CHECK_EQ(resolved->known, is_knowable(where, step));
    table->nknown += resolved->known;
    table->nwalked += !resolved->known;
    /* One round more than there is: nothing is left then. */
    for (; resolved->known && where->round <= table->binding.nrounds; where->round++) {
        struct tt_resolved_round at;
        tt_resolved_at(resolved, where->round, ELEMENT, &at);
        CHECK_EQ(at.nbytes, at.count * ELEMENT);
        if (where->round == table->binding.nrounds) {
            if (table->binding.nrounds > 1) CHECK_EQ(at.count, 0);
        } else if (step->kind == TT_STEP_MEET) {
            check_meeting(where, step, &at);
        } else {
            check_link(where, step, &at);
        }
    }
}

static void check_table(struct table *table)
{
    const struct tt_program *program = table->program;
    CHECK_EQ(table->resolved->nsteps, program->nsteps);
    CHECK_EQ(table->resolved->footprint.longest,
             table->binding.piece * (size_t)program->message * ELEMENT);
    for (int copy = 0; copy < table->binding.copies; copy++)
        for (int c = 0; c < program->nchannels; c++)
            for (uint32_t s = 0; s < tt_program_channel(program, c)->nsteps; s++) {
                struct where where = {
                    .table = table, .channel = c, .part = copy * program->nchannels + c, .step = s};
                check_step(table, &where);
                if (tt_test_failed()) return;
            }
}

/* What all tables of a test have together. */
struct sum {
    long nknown, nwalked;
    int most_rounds, most_copies;
};

static void check_rank(const struct tt_algorithm *algorithm, const struct tt_shape *shape, int rank,
                       size_t count, int copies, struct sum *sum)
{
    struct table table;
    if (table_init(&table, algorithm, shape, rank, count, copies)) check_table(&table);
    sum->nknown += table.nknown;
    sum->nwalked += table.nwalked;
    if ((int)table.binding.nrounds > sum->most_rounds)
        sum->most_rounds = (int)table.binding.nrounds;
    if (table.binding.copies > sum->most_copies) sum->most_copies = table.binding.copies;
    table_fini(&table);
}

static void check_shape(const struct tt_algorithm *algorithm, const struct tt_shape *shape,
                        struct sum *sum)
{
    static const size_t counts[] = {0, 1, 63, 1000, 4099};
    for (size_t k = 0; k < sizeof counts / sizeof *counts; k++)
        for (int rank = 0; rank < shape->nranks && !tt_test_failed(); rank++)
            for (int copies = 1; copies <= 4; copies += 3)
                check_rank(algorithm, shape, rank, counts[k], copies, sum);
}

TEST(resolve, a_table_says_what_the_walks_say)
{
    const struct tt_algorithm *algorithm;
    struct sum sum = {0};
    for (int i = 0; (algorithm = each(i)) != NULL && !tt_test_failed(); i++)
        for (int n = 1; n <= MOST_RANKS; n++) {
            const struct tt_shape shape =
                shape_of(algorithm, n, tt_collective_has_root(algorithm->collective) ? n / 2 : 0);
            if (!tt_refusal(algorithm, &shape)) check_shape(algorithm, &shape, &sum);
        }
    CHECK(sum.nknown > sum.nwalked && sum.nwalked > 0);
    CHECK(sum.most_rounds > 10 && sum.most_copies == 4);
}

TEST(resolve, a_table_says_what_the_walks_say_on_several_hosts_too)
{
    const struct tt_algorithm *algorithm;
    struct sum sum = {0};
    for (int i = 0; (algorithm = each_pair(i)) != NULL && !tt_test_failed(); i++)
        for (int p = 0; each_placement(p); p += 5) {
            struct placed placed;
            if (!place(&placed, algorithm, each_placement(p))) continue;
            for (int rank = 0; rank < placed.steps.shape.nranks; rank += 2)
                check_rank(algorithm, &placed.steps.shape, rank, 1000, 1 + rank, &sum);
            tt_hosts_destroy(placed.hosts);
        }
    CHECK(sum.nknown > 0);
}

TEST(resolve, there_is_no_table_for_counts_of_the_blocks_own_nor_a_large_one)
{
    const struct tt_limits limits = {.slot_bytes = 4096, .meet_bytes = 4096};
    const struct tt_algorithm *ring = tt_algorithm_find(TT_ALL_GATHER, "ring");
    const size_t own[] = {3, 4};
    const struct tt_counts counts = {.counts = own};
    for (int n = 2; n <= 2048; n *= 1024) {
        const struct tt_shape shape = {.collective = TT_ALL_GATHER, .nranks = n};
        struct tt_program *program;
        struct tt_binding binding, *uneven;
        REQUIRE(!tt_program_create(ring, &shape, 1, &program));
        REQUIRE(!tt_program_bind(program, 100, ELEMENT, &limits, &binding));
        CHECK((tt_step_table_bytes(program, &binding) == SIZE_MAX) == (n > 2));
        if (n == 2) {
            REQUIRE(!tt_program_bind_counts(program, &counts, ELEMENT, &limits, &uneven));
            CHECK_EQ(tt_step_table_bytes(program, uneven), SIZE_MAX);
            free(uneven);
        }
        free(program);
    }
}
