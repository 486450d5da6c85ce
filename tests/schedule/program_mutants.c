/* Mutants of programs: one field of one step or link of one rank's program is changed. The proof
 * must refuse every wrong one; whether one that it lets pass is wrong, the interpreter decides. */
#include <stdio.h>
#include <string.h>

#include "algorithms/algorithms.h"
#include "interpreter.h"
#include "program/proof.h"
#include "shim.h"

#define SPAN_FIELD(span, field, by_flags)                                                          \
    {                                                                                              \
#span "." #field, offsetof(struct tt_program_step, span.field),                            \
            sizeof(((struct tt_program_step *)0)->span.field), false, by_flags                     \
    }
#define SPAN_FIELDS(span)                                                                          \
    SPAN_FIELD(span, first, false), SPAN_FIELD(span, number, false), SPAN_FIELD(span, run, false), \
        SPAN_FIELD(span, stride, false), SPAN_FIELD(span, base, false),                            \
        SPAN_FIELD(span, modulo, false), SPAN_FIELD(span, order, false),                           \
        SPAN_FIELD(span, slot, false), SPAN_FIELD(span, buffer, false),                            \
        SPAN_FIELD(span, slot_rule, false), SPAN_FIELD(span, contiguous, true),                    \
        SPAN_FIELD(span, all, true)
#define STEP_FIELD(field)                                                                          \
    {                                                                                              \
#field, offsetof(struct tt_program_step, field),                                           \
            sizeof(((struct tt_program_step *)0)->field), false, false                             \
    }
#define LINK_FIELD(field, unseen)                                                                  \
    {                                                                                              \
        "link." #field, offsetof(struct tt_program_link, field),                                   \
            sizeof(((struct tt_program_link *)0)->field), true, unseen                             \
    }

/* unseen: the interpreter does not look at the field; setting it must be refused. */
static const struct field {
    const char *name;
    size_t offset, nbytes;
    bool of_link, unseen;
} fields[] = {
    SPAN_FIELDS(local),        SPAN_FIELDS(dst),           STEP_FIELD(recv),
    STEP_FIELD(nrecv),         STEP_FIELD(send),           STEP_FIELD(nsend),
    STEP_FIELD(own_at),        STEP_FIELD(kind),           STEP_FIELD(op),
    STEP_FIELD(finish),        STEP_FIELD(meeting),        LINK_FIELD(peer, false),
    LINK_FIELD(channel, true), LINK_FIELD(outgoing, true),
};
enum { NFIELDS = sizeof fields / sizeof *fields, TRIES = 3 };

static struct {
    int mutants, refused, passed_and_right;
} tally[NFIELDS];

static uint64_t draw(uint64_t *seed)
{
    *seed ^= *seed << 13;
    *seed ^= *seed >> 7;
    *seed ^= *seed << 17;
    return *seed >> 11;
}

static int64_t get(const char *at, size_t nbytes)
{
    int32_t number = 0;
    memcpy(&number, at, nbytes); /* little-endian, and never negative where it is shorter */
    return number;
}

static void put(char *at, size_t nbytes, int64_t value)
{
    const int32_t number = (int32_t)value;
    memcpy(at, &number, nbytes);
}

/* The field's place in a random step or link of the program; NULL: there is none. */
static char *draw_place(struct tt_program *program, const struct field *field, uint64_t *seed)
{
    const uint32_t number = field->of_link ? program->nlinks : program->nsteps;
    if (!number) return NULL;
    const size_t at = draw(seed) % number;
    return (char *)program +
           (field->of_link ? program->links_at + at * sizeof(struct tt_program_link)
                           : program->steps_at + at * sizeof(struct tt_program_step)) +
           field->offset;
}

/* One more, one less, 0, or a small number. */
static int64_t draw_value(int64_t value, uint64_t *seed)
{
    switch (draw(seed) % 4) {
    case 0:
        return value + 1;
    case 1:
        return value > 0 ? value - 1 : value + 1;
    case 2:
        return 0;
    default:
        return (int64_t)(draw(seed) % 9);
    }
}

static bool is_refused(const struct tt_proof *proof)
{
    static const size_t counts[] = {37, 1, 0};
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        struct tt_verify_report report;
        if (tt_proof_run(proof, counts[i], &report) != TT_OK) return true;
        if (report.any_count) return false;
    }
    return false;
}

static const char *find_wrong(const struct tt_proof *proof, uint64_t seed)
{
    const struct tt_steps *steps = tt_proof_steps(proof);
    const enum tt_collective collective = steps->shape.collective;
    const bool in_place = collective != TT_ALL_TO_ALL && collective != TT_BARRIER;
    for (uint64_t i = 0; i < 20; i++) {
        const struct run run = {
            .count = i % 4 ? 37 : 1, .in_place = in_place && i % 2, .seed = seed % 1000003 + i + 1};
        const char *wrong = interpret(steps, &run);
        if (wrong) return wrong;
    }
    return NULL;
}

static void judge(const struct tt_proof *proof, int f, int64_t before, int64_t after, uint64_t seed)
{
    const struct tt_steps *steps = tt_proof_steps(proof);
    tally[f].mutants++;
    if (is_refused(proof)) {
        tally[f].refused++;
        return;
    }
    /* To walk contiguous blocks piece by piece is right, though slower. */
    const char *wrong = fields[f].unseen && after ? "no one looks at it" : find_wrong(proof, seed);
    tally[f].passed_and_right += !wrong;
    CHECK_MESSAGE(!wrong,
                  "%s:%s over %d ranks, root %d: %s = %lld instead of %lld: the proof lets it "
                  "pass, but %s",
                  tt_collective_name(steps->shape.collective), steps->algorithm->name,
                  steps->shape.nranks, steps->shape.root, fields[f].name, (long long)after,
                  (long long)before, wrong);
}

static void mutate_algorithm(const struct tt_algorithm *algorithm, int nranks, uint64_t seed)
{
    struct tt_proof *proof;
    seed = seed * 0x9e3779b97f4a7c15u + 1;
    draw(&seed);
    const bool has_root = tt_collective_has_root(algorithm->collective);
    const struct tt_shape shape = {.collective = algorithm->collective,
                                   .nranks = nranks,
                                   .root = has_root ? (int)(draw(&seed) % (uint64_t)nranks) : 0};
    REQUIRE(tt_proof_create(algorithm, &shape, &proof) == TT_OK);
    CHECK(!is_refused(proof));
    for (int i = 0; i < TRIES * NFIELDS && !tt_test_failed(); i++) {
        const int f = i % NFIELDS;
        const size_t nbytes = fields[f].nbytes;
        struct tt_program *program = tt_proof_program(proof, (int)(draw(&seed) % (uint64_t)nranks));
        char *place = draw_place(program, &fields[f], &seed);
        if (!place) continue;
        const int64_t before = get(place, nbytes), after = draw_value(before, &seed);
        if (after == before) continue;
        put(place, nbytes, after);
        judge(proof, f, before, after, seed);
        put(place, nbytes, before);
    }
    CHECK(!is_refused(proof)); /* as it was */
    tt_proof_destroy(proof);
}

static void print_tally(void)
{
    int mutants = 0, refused = 0, right = 0;
    printf("%-18s %8s %8s %18s\n", "field", "mutants", "refused", "passed, not wrong");
    for (int f = 0; f < NFIELDS; f++) {
        printf("%-18s %8d %8d %18d\n", fields[f].name, tally[f].mutants, tally[f].refused,
               tally[f].passed_and_right);
        mutants += tally[f].mutants;
        refused += tally[f].refused;
        right += tally[f].passed_and_right;
    }
    printf("%d of %d mutants of programs refused (%.1f %%), %d passed and are not wrong\n", refused,
           mutants, 100.0 * refused / (mutants ? mutants : 1), right);
}

TEST(program_mutants, every_wrong_one_is_refused)
{
    static const int sizes[] = {2, 3, 4, 5, 8};
    const uint64_t seed = 20261122;
    const struct tt_algorithm *algorithm;
    printf("seed %llu\n", (unsigned long long)seed);
    for (int c = 0; c < TT_NCOLLECTIVES; c++)
        for (int i = 0; (algorithm = tt_algorithm_at((enum tt_collective)c, i)); i++)
            for (size_t k = 0; !algorithm->parts && k < sizeof sizes / sizeof *sizes; k++)
                mutate_algorithm(algorithm, sizes[k], seed + (uint64_t)(c * 100 + i) * 10 + k);
    print_tally();
}
