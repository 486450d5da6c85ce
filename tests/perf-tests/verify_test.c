/* Tests of the perf tests' data and of their verification. */
#include "common/verify.h"

#include <string.h>

#include "common/number.h"
#include "shim.h"

#define COUNT 200
#define MAX_RANKS 300

static const int rank_counts[] = {1, 2, 3, 5, 8, 9, 16, 33, 64, MAX_RANKS};
#define NRANK_COUNTS (sizeof(rank_counts) / sizeof(rank_counts[0]))

static unsigned char inputs[MAX_RANKS][COUNT * 8];

static uint64_t next_random(uint64_t *state)
{
    *state = *state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return *state >> 33;
}

static void fill_inputs(const struct perf_data *data)
{
    for (int rank = 0; rank < data->nranks; rank++) {
        perf_fill_input(data, rank, 0, COUNT, inputs[rank]);
    }
}

static uint64_t element(const struct perf_data *data, const void *from, size_t index)
{
    uint64_t bits = 0;
    memcpy(&bits, (const char *)from + index * data->type->bytes, data->type->bytes);
    return bits;
}

static void shuffle(int *order, int n, uint64_t *state)
{
    for (int i = 0; i < n; i++) order[i] = i;
    for (int i = n - 1; i > 0; i--) {
        int j = (int)(next_random(state) % (uint64_t)(i + 1));
        int kept = order[i];
        order[i] = order[j];
        order[j] = kept;
    }
}

static double combine_floats(enum perf_op_kind kind, double a, double b)
{
    switch (kind) {
    case PERF_PROD:
        return a * b;
    case PERF_MAX:
        return b > a ? b : a;
    case PERF_MIN:
        return b < a ? b : a;
    default:
        return a + b;
    }
}

/* A rank's element as it enters the fold. */
static double float_term_of(const struct perf_data *data, int rank, size_t index)
{
    const struct perf_type *type = data->type;
    double value = perf_number_decode(type, element(data, inputs[rank], index));
    if (data->op->kind == PERF_MULSUM) {
        unsigned char scalar[8];
        perf_mulsum_scalar(type, rank, scalar);
        value *= perf_number_decode(type, element(data, scalar, 0));
    }
    if (data->op->kind == PERF_AVG) {
        if (type->bytes == 8) value /= data->nranks;
        if (type->bytes == 4) value = (float)value / (float)data->nranks;
        if (type->bytes < 4) value = (float)value * (1 / (float)data->nranks);
    }
    return perf_number_decode(type, perf_number_encode(type, value));
}

/* The fold of the ranks in the given order, rounded to the type after every step: one rank after
 * the other, or as a tree, in which partial results at random places are combined. */
static uint64_t fold_float(const struct perf_data *data, const int *order, bool as_tree,
                           uint64_t *state, size_t index)
{
    const struct perf_type *type = data->type;
    double parts[MAX_RANKS];
    for (int i = 0; i < data->nranks; i++) parts[i] = float_term_of(data, order[i], index);
    for (int n = data->nranks; n > 1; n--) {
        int at = as_tree ? (int)(next_random(state) % (uint64_t)(n - 1)) : 0;
        int from = as_tree ? n - 1 : data->nranks - n + 1;
        double result = combine_floats(data->op->kind, parts[at], parts[from]);
        parts[at] = perf_number_decode(type, perf_number_encode(type, result));
    }
    return perf_number_encode(type, parts[0]);
}

static void check_float(const struct perf_data *data)
{
    uint64_t state = 11;
    int order[MAX_RANKS];
    unsigned char reduced[COUNT * 8];
    fill_inputs(data);
    perf_fill_reduced(data, 0, COUNT, reduced);
    for (int trial = 0; trial < 4; trial++) {
        shuffle(order, data->nranks, &state);
        for (size_t i = 0; i < COUNT; i++) {
            uint64_t folded = fold_float(data, order, trial % 2 == 1, &state, i);
            bool same = folded == element(data, reduced, i);
            CHECK_MESSAGE(same, "%s %s of %d ranks, element %zu: folded %llx, expected %llx",
                          data->type->name, data->op->name, data->nranks, i,
                          (unsigned long long)folded,
                          (unsigned long long)element(data, reduced, i));
            if (!same) return;
        }
    }
}

TEST(perf_verify, float_reductions_are_exact_in_any_order)
{
    for (int t = 0; t < PERF_NTYPES; t++) {
        for (int o = 0; o < PERF_NOPS; o++) {
            if (perf_types[t].exponent_bits == 0 || perf_ops[o].integers_only) continue;
            for (size_t n = 0; n < NRANK_COUNTS; n++) {
                check_float(&(struct perf_data){.type = &perf_types[t],
                                                .op = &perf_ops[o],
                                                .seed = 3,
                                                .nranks = rank_counts[n],
                                                .count = COUNT});
            }
        }
    }
}

/* What a step of the fold makes of two int16 or uint16, by the machine's own arithmetic. */
static int64_t combine16(enum perf_op_kind kind, bool is_signed, int64_t a, int64_t b)
{
    int64_t result;
    switch (kind) {
    case PERF_PROD:
        result = a * b;
        break;
    case PERF_MAX:
        result = a > b ? a : b;
        break;
    case PERF_MIN:
        result = a < b ? a : b;
        break;
    case PERF_BAND:
        result = a & b;
        break;
    case PERF_BOR:
        result = a | b;
        break;
    case PERF_BXOR:
        result = a ^ b;
        break;
    case PERF_LAND:
        result = a && b;
        break;
    case PERF_LOR:
        result = a || b;
        break;
    case PERF_LXOR:
        result = !a != !b;
        break;
    default:
        result = a + b;
    }
    return is_signed ? (int16_t)result : (uint16_t)result;
}

static void check_int16(const struct perf_data *data)
{
    bool is_signed = data->type->is_signed;
    bool logical = data->op->kind >= PERF_LAND;
    unsigned char reduced[COUNT * 8];
    fill_inputs(data);
    perf_fill_reduced(data, 0, COUNT, reduced);
    for (size_t i = 0; i < COUNT; i++) {
        int64_t result = 0;
        int64_t wide_sum = 0;
        for (int rank = data->nranks - 1; rank >= 0; rank--) {
            uint64_t bits = element(data, inputs[rank], i);
            int64_t value = is_signed ? (int16_t)bits : (uint16_t)bits;
            if (data->op->kind == PERF_MULSUM) value *= rank % 2 ? 1 : 2;
            if (logical) value = value != 0;
            wide_sum += value;
            bool first = rank == data->nranks - 1;
            result = first ? combine16(PERF_BOR, is_signed, value, 0)
                           : combine16(data->op->kind, is_signed, result, value);
        }
        if (data->op->kind == PERF_AVG) {
            CHECK_EQ(result, wide_sum);
            result /= data->nranks;
        }
        uint64_t want = element(data, reduced, i);
        CHECK_MESSAGE((uint16_t)result == want, "%s %s of %d ranks, element %zu", data->type->name,
                      data->op->name, data->nranks, i);
        if ((uint16_t)result != want) return;
    }
}

TEST(perf_verify, integer_reductions_are_what_the_machine_computes)
{
    static const char *const names[] = {"int16", "uint16"};
    for (int t = 0; t < 2; t++) {
        for (int o = 0; o < PERF_NOPS; o++) {
            for (size_t n = 0; n < NRANK_COUNTS; n++) {
                check_int16(&(struct perf_data){.type = &perf_types[perf_type_find(names[t])],
                                                .op = &perf_ops[o],
                                                .seed = 5,
                                                .nranks = rank_counts[n],
                                                .count = COUNT});
            }
        }
    }
}

TEST(perf_verify, any_part_of_the_data_is_the_same_data)
{
    struct perf_data data = {
        .type = &perf_types[perf_type_find("half")], .op = &perf_ops[0], .seed = 9, .nranks = 3};
    unsigned char whole[COUNT * 2];
    unsigned char part[COUNT * 2];
    perf_fill_input(&data, 1, 0, COUNT, whole);
    perf_fill_input(&data, 1, 77, 10, part);
    CHECK(memcmp(whole + 77 * 2, part, 20) == 0);
    perf_fill_reduced(&data, 0, COUNT, whole);
    perf_fill_reduced(&data, 77, 10, part);
    CHECK(memcmp(whole + 77 * 2, part, 20) == 0);
}

TEST(perf_verify, ranks_seeds_and_indexes_have_different_data)
{
    struct perf_data data = {.type = &perf_types[perf_type_find("int64")], .seed = 1, .nranks = 2};
    uint64_t values[4];
    perf_fill_input(&data, 0, 0, 2, &values[0]);
    perf_fill_input(&data, 1, 0, 1, &values[2]);
    data.seed = 2;
    perf_fill_input(&data, 0, 0, 1, &values[3]);
    for (int i = 0; i < 4; i++) {
        for (int j = 0; j < i; j++) CHECK(values[i] != values[j]);
    }
}

TEST(perf_verify, one_wrong_bit_is_one_wrong_element)
{
    for (int t = 0; t < PERF_NTYPES; t++) {
        struct perf_data data = {
            .type = &perf_types[t], .op = &perf_ops[PERF_SUM], .seed = 4, .nranks = 4};
        unsigned char want[COUNT * 8];
        unsigned char got[COUNT * 8];
        perf_fill_reduced(&data, 0, COUNT, want);
        memcpy(got, want, sizeof(got));
        CHECK_EQ(perf_count_wrong(&data, got, want, COUNT), 0);
        got[(COUNT - 1) * data.type->bytes] ^= 1;
        CHECK_EQ(perf_count_wrong(&data, got, want, COUNT), 1);
        got[0] ^= 0x10;
        CHECK_EQ(perf_count_wrong(&data, got, want, COUNT), 2);
    }
}

/* Data that were all alike, or 0, would hide mistakes. */
TEST(perf_verify, averages_are_of_different_numbers)
{
    for (int t = 0; t < PERF_NTYPES; t++) {
        if (perf_types[t].exponent_bits == 0) continue;
        for (size_t n = 0; n < NRANK_COUNTS; n++) {
            const struct perf_data data = {.type = &perf_types[t],
                                           .op = &perf_ops[PERF_AVG],
                                           .seed = 6,
                                           .nranks = rank_counts[n]};
            unsigned char reduced[COUNT * 8];
            int nzeros = 0, nalike = 0;
            perf_fill_reduced(&data, 0, COUNT, reduced);
            for (size_t i = 0; i < COUNT; i++) {
                nzeros += perf_number_decode(data.type, element(&data, reduced, i)) == 0;
                nalike += i > 0 && element(&data, reduced, i) == element(&data, reduced, i - 1);
            }
            CHECK_MESSAGE(nzeros < COUNT / 2 && nalike < COUNT / 2,
                          "%s of %d ranks: %d zeros, %d alike", data.type->name, data.nranks,
                          nzeros, nalike);
        }
    }
}

TEST(perf_verify, a_buffer_that_was_not_written_is_wrong)
{
    for (int t = 0; t < PERF_NTYPES; t++) {
        struct perf_data data = {
            .type = &perf_types[t], .op = &perf_ops[PERF_SUM], .seed = 4, .nranks = 2};
        unsigned char want[COUNT * 8];
        unsigned char got[COUNT * 8];
        perf_fill_reduced(&data, 0, COUNT, want);
        perf_fill_untouched(&data, COUNT, got);
        CHECK(perf_count_wrong(&data, got, want, COUNT) > COUNT * 9 / 10);
    }
}

static void note_block(const struct perf_data *data, int block, size_t first, size_t count,
                       void *to)
{
    unsigned char *at = to;
    (void)data;
    for (size_t i = 0; i < count; i++) at[i] = (unsigned char)(10 * block + (int)(first + i));
}

TEST(perf_verify, blocks_are_split_at_their_ends)
{
    struct perf_data data = {
        .type = &perf_types[0], .nranks = 3, .blocks = {.count = 3, .nranks = 3}};
    const unsigned char want[] = {2, 10, 11, 12, 20, 21}, linear[] = {11, 12, 20, 21};
    unsigned char got[6];
    perf_fill_blocks(&data, 2, 6, got, note_block);
    CHECK(memcmp(got, want, sizeof(want)) == 0);
    data.blocks.spread = PERF_LINEAR; /* 0, 3 and 6 elements */
    perf_fill_blocks(&data, 1, 4, got, note_block);
    CHECK(memcmp(got, linear, sizeof(linear)) == 0);
}
