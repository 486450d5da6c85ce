/* tt_reduce against arithmetic done otherwise: integers in 64 bits, fp32 folds in double with one
 * rounding each (which is innocuous: 53 >= 2 x 24 + 2), small floats by search. */
#include "datatype/datatype.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "datatype/convert.h"
#include "datatype/kernels.h"
#include "reference.h"
#include "shim.h"

enum { COUNT = 600, NSRC = 6 }; /* more than a block of many sources */

static const struct small_float *small_of(enum tt_type type)
{
    return type == TT_FLOAT16      ? &small_f16
           : type == TT_BFLOAT16   ? &small_bf16
           : type == TT_FLOAT8E4M3 ? &small_e4m3
                                   : &small_e5m2;
}

static bool is_float(enum tt_type type)
{
    return type >= TT_FLOAT16 && type <= TT_FLOAT8E5M2;
}

static bool is_signed(enum tt_type type)
{
    return type == TT_INT8 || type == TT_INT16 || type == TT_INT32 || type == TT_INT64;
}

static uint64_t get_bits(const char *from, size_t size)
{
    uint64_t bits = 0;
    memcpy(&bits, from, size);
    return bits;
}

/* The integer with these bits, extended to 64. */
static uint64_t extend(enum tt_type type, uint64_t bits)
{
    const unsigned unused = 64 - 8 * (unsigned)tt_type_size(type);
    return is_signed(type) ? (uint64_t)((int64_t)(bits << unused) >> unused)
                           : bits << unused >> unused;
}

static uint64_t integer_step(enum tt_type type, enum tt_op op, uint64_t a, uint64_t b)
{
    const bool less = is_signed(type) ? (int64_t)a < (int64_t)b : a < b;
    switch (op) {
    case TT_PROD:
        return a * b;
    case TT_MAX:
        return less ? b : a;
    case TT_MIN:
        return less ? a : b;
    case TT_BIT_AND:
        return a & b;
    case TT_BIT_OR:
        return a | b;
    case TT_BIT_XOR:
        return a ^ b;
    case TT_LOGICAL_AND:
        return a && b;
    case TT_LOGICAL_OR:
        return a || b;
    case TT_LOGICAL_XOR:
        return !a != !b;
    default:
        return a + b;
    }
}

/* A source as it enters the fold. */
static uint64_t integer_source(const struct tt_reduction *r, uint64_t bits, bool raw)
{
    const uint64_t value = extend(r->type, bits);
    if (!raw || r->op != TT_PREMUL_SUM) return value;
    return extend(r->type, value * extend(r->type, get_bits(r->scalar, tt_type_size(r->type))));
}

static uint64_t integer_fold(const struct tt_reduction *r, const uint64_t *bits, const bool *raw,
                             int nsrc)
{
    uint64_t acc = integer_source(r, bits[0], raw[0]);
    if (r->op >= TT_LOGICAL_AND) acc = acc != 0;
    for (int s = 1; s < nsrc; s++)
        acc =
            extend(r->type, integer_step(r->type, r->op, acc, integer_source(r, bits[s], raw[s])));
    if (r->op != TT_AVG) return acc;
    return is_signed(r->type) ? (uint64_t)((int64_t)acc / r->nranks) : acc / (uint64_t)r->nranks;
}

/* Rounded to the type that folds: double as it is, the others to fp32. */
static double settle(enum tt_type type, double value)
{
    return type == TT_FLOAT64 ? value : (double)(float)value;
}

static double float_step(enum tt_op op, double a, double b)
{
    const bool extremum = op == TT_MAX || op == TT_MIN;
    if (extremum && (isnan(a) || isnan(b))) return NAN;
    if (extremum && a == b) return (op == TT_MAX) == (signbit(a) != 0) ? b : a;
    if (op == TT_MAX) return a > b ? a : b;
    if (op == TT_MIN) return a < b ? a : b;
    return op == TT_PROD ? a * b : a + b;
}

static double float_value(enum tt_type type, uint64_t bits)
{
    double wide;
    float single;
    const uint32_t low = (uint32_t)bits;
    memcpy(&wide, &bits, sizeof wide);
    memcpy(&single, &low, sizeof single);
    if (type == TT_FLOAT64) return wide;
    return type == TT_FLOAT32 ? (double)single : reference_widen(small_of(type), low);
}

static uint64_t float_bits(enum tt_type type, double value)
{
    const float single = (float)value;
    uint64_t wide;
    memcpy(&wide, &value, sizeof wide);
    if (type == TT_FLOAT64) return isnan(value) ? 0x7ff8000000000000 : wide;
    if (type == TT_FLOAT32) return isnan(value) ? TT_F32_NAN : tt_f32_bits(single);
    return reference_narrow(small_of(type), value);
}

/* A source as it enters the fold: a product or a quotient is rounded to the type. */
static double float_source(const struct tt_reduction *r, uint64_t bits, bool raw)
{
    const double value = float_value(r->type, bits);
    const double scalar = float_value(r->type, get_bits(r->scalar, tt_type_size(r->type)));
    if (!raw || (r->op != TT_PREMUL_SUM && r->op != TT_AVG)) return value;
    const double reciprocal = settle(r->type, 1.0 / r->nranks);
    const bool is_small = tt_type_size(r->type) < 4;
    const double changed = r->op != TT_AVG ? value * scalar
                           : is_small      ? value * reciprocal
                                           : value / r->nranks;
    return float_value(r->type, float_bits(r->type, settle(r->type, changed)));
}

/* What becomes of a number beyond the largest finite one, `largest`, that finite ones have made. */
static double hold(const struct tt_reduction *r, double value, double largest)
{
    const bool holds = r->op == TT_AVG && r->nranks > 1;
    return holds && isinf(value) ? copysign(largest, value) : value;
}

/* A step of a fold, and the rounding of its result to the type. */
static double float_add(const struct tt_reduction *r, double a, double b)
{
    const double result = settle(r->type, float_step(r->op, a, b));
    const bool finite = isfinite(a) && isfinite(b);
    return finite ? hold(r, result, r->type == TT_FLOAT64 ? DBL_MAX : FLT_MAX) : result;
}

static uint64_t float_result(const struct tt_reduction *r, double value)
{
    const uint64_t bits = float_bits(r->type, value);
    if (!isfinite(value) || isfinite(float_value(r->type, bits))) return bits;
    const double largest = r->type == TT_FLOAT16 ? 65504 : 0x1.fep127;
    return float_bits(r->type, hold(r, float_value(r->type, bits), largest));
}

static uint64_t float_fold(const struct tt_reduction *r, const uint64_t *bits, const bool *raw,
                           int nsrc)
{
    double acc = float_source(r, bits[0], raw[0]);
    for (int s = 1; s < nsrc; s++) acc = float_add(r, acc, float_source(r, bits[s], raw[s]));
    return float_result(r, acc);
}

static void make_element(enum tt_type type, char *to, uint64_t *seed)
{
    uint64_t bits = random_next(seed);
    const uint64_t pick = random_next(seed) % 8;
    if (pick == 0) bits &= 0x8080808080808080;
    if (pick == 1) bits |= 0x7f7f7f7f7f7f7f7f;
    if (pick > 3 && type == TT_FLOAT32) bits = (bits & 0x80ffffff) | 0x3f000000;
    if (pick > 3 && type == TT_FLOAT64) bits = (bits & 0x801fffffffffffff) | 0x3fe0000000000000;
    memcpy(to, &bits, tt_type_size(type));
}

static bool check_pair(enum tt_type type, enum tt_op op, uint64_t *seed)
{
    static char in[NSRC][COUNT * 8], out[COUNT * 8];
    const size_t size = tt_type_size(type);
    const void *src[NSRC];
    for (int round = 0; round < 60; round++) {
        bool raw[NSRC];
        const int nsrc = 1 + round % NSRC;
        struct tt_reduction reduction = {.type = type, .op = op, .nranks = 1 + round % 13};
        if (nsrc == 1 && op != TT_PREMUL_SUM && (op != TT_AVG || reduction.nranks == 1))
            continue; /* a copy */
        make_element(type, reduction.scalar, seed);
        for (int s = 0; s < nsrc; s++) {
            for (int i = 0; i < COUNT; i++) make_element(type, in[s] + (size_t)i * size, seed);
            src[s] = in[s];
            raw[s] = nsrc == 1 || random_next(seed) % 2;
        }
        const struct tt_target target = {.data = out};
        const struct tt_sources sources = {src, raw, nsrc};
        if (nsrc == 1)
            tt_reduce_with(&tt_kernels_scalar, &reduction, out, src, 1, COUNT, TT_RAW | TT_FINISH);
        else
            tt_reduce_to_with(&tt_kernels_scalar, &reduction, &target, 1, &sources, COUNT,
                              TT_FINISH);
        for (size_t i = 0; i < COUNT; i++) {
            uint64_t bits[NSRC];
            for (int s = 0; s < nsrc; s++) bits[s] = get_bits(in[s] + i * size, size);
            const uint64_t expected = is_float(type) ? float_fold(&reduction, bits, raw, nsrc)
                                                     : integer_fold(&reduction, bits, raw, nsrc);
            const uint64_t got = get_bits(out + i * size, size);
            const uint64_t mask = ~(uint64_t)0 >> (64 - 8 * size);
            CHECK_MESSAGE(got == (expected & mask),
                          "%s %s of %d: %#llx op %#llx ... gives %#llx, expected %#llx",
                          tt_type_name(type), tt_op_name(op), nsrc, (unsigned long long)bits[0],
                          (unsigned long long)bits[nsrc - 1], (unsigned long long)got,
                          (unsigned long long)(expected & mask));
            if (tt_test_failed()) return false;
        }
    }
    return true;
}

TEST(reduce, scalar_agrees_with_arithmetic_done_otherwise)
{
    uint64_t seed = 99;
    printf("seed %llu\n", (unsigned long long)seed);
    for (int type = 0; type < TT_NTYPES; type++)
        for (int op = 0; op < TT_NOPS; op++)
            if (tt_op_supports((enum tt_op)op, (enum tt_type)type) &&
                !check_pair((enum tt_type)type, (enum tt_op)op, &seed))
                return;
}

/* The 65536 pairs of an 8-bit type. */
TEST(reduce, every_pair_of_8_bit_values_is_right)
{
    static const enum tt_type types[] = {TT_INT8, TT_UINT8, TT_FLOAT8E4M3, TT_FLOAT8E5M2};
    static const enum tt_op ops[] = {TT_SUM, TT_PROD, TT_MAX, TT_MIN, TT_AVG};
    static uint8_t a[65536], b[65536], out[65536];
    for (int i = 0; i < 65536; i++) {
        a[i] = (uint8_t)(i >> 8);
        b[i] = (uint8_t)i;
    }
    const void *src[] = {a, b};
    for (int t = 0; t < 4; t++) {
        for (int o = 0; o < 5; o++) {
            const struct tt_reduction reduction = {types[t], ops[o], 2, {0}};
            const bool raw[] = {ops[o] == TT_AVG, true};
            const struct tt_sources sources = {src, raw, 2};
            tt_reduce_to(&reduction, &(struct tt_target){.data = out}, 1, &sources, 65536,
                         TT_FINISH);
            for (int i = 0; i < 65536; i++) {
                const uint64_t bits[] = {a[i], b[i]};
                const uint8_t expected =
                    (uint8_t)(is_float(types[t]) ? float_fold(&reduction, bits, raw, 2)
                                                 : integer_fold(&reduction, bits, raw, 2));
                CHECK_MESSAGE(out[i] == expected, "%s %s: %#x and %#x give %#x, expected %#x",
                              tt_type_name(types[t]), tt_op_name(ops[o]), a[i], b[i], out[i],
                              expected);
                if (tt_test_failed()) return;
            }
        }
    }
}

static float reduce_floats(enum tt_op op, float a, float b)
{
    const struct tt_reduction reduction = {.type = TT_FLOAT32, .op = op, .nranks = 1};
    const void *src[] = {&a, &b};
    float out;
    tt_reduce(&reduction, &out, src, 2, 1, TT_FINISH);
    return out;
}

TEST(reduce, nan_is_kept_by_min_and_max_and_zeros_are_ordered)
{
    CHECK(isnan(reduce_floats(TT_MAX, NAN, 1)) && isnan(reduce_floats(TT_MAX, 1, NAN)));
    CHECK(isnan(reduce_floats(TT_MIN, NAN, 1)) && isnan(reduce_floats(TT_MIN, 1, NAN)));
    CHECK(!signbit(reduce_floats(TT_MAX, -0.0f, 0)) && !signbit(reduce_floats(TT_MAX, 0, -0.0f)));
    CHECK(signbit(reduce_floats(TT_MIN, -0.0f, 0)) && signbit(reduce_floats(TT_MIN, 0, -0.0f)));
    CHECK_EQ(tt_f32_bits(reduce_floats(TT_SUM, INFINITY, -INFINITY)), TT_F32_NAN);
    CHECK_EQ(tt_f32_bits(reduce_floats(TT_SUM, -NAN, 1)), TT_F32_NAN);
}

TEST(reduce, small_floats_round_once_a_pass)
{
    /* 2048 + 1 is a tie in fp16: rounding after each source would stay at 2048. */
    const uint16_t big = tt_f32_to_f16(2048), one = tt_f32_to_f16(1);
    const void *src[] = {&big, &one, &one, &one};
    const struct tt_reduction reduction = {.type = TT_FLOAT16, .op = TT_SUM, .nranks = 4};
    uint16_t out;
    tt_reduce(&reduction, &out, src, 4, 1, 0);
    CHECK_EQ(tt_f16_to_f32(out), 2052); /* 2051 lies between 2050 and 2052, the even one */
}

/* Of the largest finite number, in a step for each rank. */
TEST(reduce, averages_of_floats_stay_finite)
{
    static const struct {
        enum tt_type type;
        uint64_t largest;
    } types[] = {{TT_FLOAT64, 0x7fefffffffffffff},
                 {TT_FLOAT32, 0x7f7fffff},
                 {TT_FLOAT16, 0x7bff},
                 {TT_BFLOAT16, 0x7f7f},
                 {TT_FLOAT8E4M3, 0x7e},
                 {TT_FLOAT8E5M2, 0x7b}};
    for (size_t t = 0; t < sizeof types / sizeof *types; t++)
        for (int nranks = 1; nranks <= 40; nranks++) {
            struct tt_reduction reduction = {types[t].type, TT_AVG, nranks, {0}};
            uint64_t value = types[t].largest, acc = 0, next = 0;
            const double largest = float_value(types[t].type, value);
            const void *raw[] = {&value}, *both[] = {&acc, &next};
            tt_reduce(&reduction, &next, raw, 1, 1, TT_RAW);
            acc = next;
            for (int r = 1; r < nranks; r++) tt_reduce(&reduction, &acc, both, 2, 1, 0);
            const double got = float_value(types[t].type, acc);
            CHECK_MESSAGE(isfinite(got) && got >= largest / (2 * nranks), "%s of %d: %g, from %g",
                          tt_type_name(types[t].type), nranks, got, largest);
        }
}

TEST(reduce, averages_of_floats_keep_infinities_and_equal_numbers)
{
    float a = INFINITY, b = 7, out;
    static const bool raw[] = {true, true};
    const void *src[] = {&a, &b};
    const struct tt_reduction reduction = {TT_FLOAT32, TT_AVG, 2, {0}};
    const struct tt_sources sources = {src, raw, 2};
    const struct tt_target target = {.data = &out};
    tt_reduce_to(&reduction, &target, 1, &sources, 1, 0);
    CHECK(isinf(out) && out > 0);
    b = -INFINITY;
    tt_reduce_to(&reduction, &target, 1, &sources, 1, 0);
    CHECK(isnan(out));
    a = b = FLT_MAX;
    tt_reduce_to(&reduction, &target, 1, &sources, 1, 0);
    CHECK(out == FLT_MAX);
    a = b = FLT_MIN;
    tt_reduce_to(&reduction, &target, 1, &sources, 1, 0);
    CHECK(out == FLT_MIN);
}

TEST(reduce, averages_of_integers_truncate_towards_zero_at_the_finish_only)
{
    const int32_t a = -7, b = 0;
    const void *src[] = {&a, &b};
    const struct tt_reduction reduction = {.type = TT_INT32, .op = TT_AVG, .nranks = 2};
    int32_t out;
    tt_reduce(&reduction, &out, src, 2, 1, 0);
    CHECK_EQ(out, -7);
    tt_reduce(&reduction, &out, src, 2, 1, TT_FINISH);
    CHECK_EQ(out, -3);
}

/* Quotients by float and by double are exact only if every dividend is. */
TEST(reduce, averages_are_exact_at_the_ends_of_the_integers)
{
    static const int32_t ends[] = {INT32_MIN, INT32_MIN + 1, INT32_MAX, INT32_MAX - 1, 6, 7};
    static const int divisors[] = {1, 2, 3, 7, 65535, 65536, 16777217, INT32_MAX - 1, INT32_MAX};
    for (size_t i = 0; i < sizeof ends / sizeof ends[0]; i++) {
        for (size_t j = 0; j < sizeof divisors / sizeof divisors[0]; j++) {
            const void *src[] = {&ends[i]};
            struct tt_reduction reduction = {TT_INT32, TT_AVG, divisors[j], {0}};
            int32_t out;
            uint32_t unsigned_out;
            tt_reduce(&reduction, &out, src, 1, 1, TT_FINISH);
            CHECK_EQ(out, ends[i] / divisors[j]);
            reduction.type = TT_UINT32;
            tt_reduce(&reduction, &unsigned_out, src, 1, 1, TT_FINISH);
            CHECK_EQ(unsigned_out, (uint32_t)ends[i] / (uint32_t)divisors[j]);
        }
    }
}

TEST(reduce, the_scalar_multiplies_raw_sources_only)
{
    const double a = 3, b = 10, k = 0.5;
    static const bool raw[][2] = {{true, false}, {false, true}, {true, true}, {false, false}};
    static const double expected[] = {11.5, 8, 6.5, 13};
    const void *src[] = {&a, &b};
    struct tt_reduction reduction = {.type = TT_FLOAT64, .op = TT_PREMUL_SUM, .nranks = 2};
    memcpy(reduction.scalar, &k, sizeof k);
    double out = 0;
    const struct tt_target target = {.data = &out};
    for (int i = 0; i < 4; i++) {
        const struct tt_sources sources = {src, raw[i], 2};
        tt_reduce_to(&reduction, &target, 1, &sources, 1, 0);
        CHECK(out == expected[i]);
    }
    tt_reduce(&reduction, &out, src, 1, 1, TT_RAW);
    CHECK(out == 1.5);
    tt_reduce(&reduction, &out, src, 1, 1, 0);
    CHECK(out == 3);
}

TEST(reduce, a_single_source_is_copied_bit_for_bit_and_a_logical_one_becomes_0_or_1)
{
    const uint32_t nan = 0xff812345, five = 5;
    uint32_t out = 0;
    const void *src[] = {&nan};
    struct tt_reduction reduction = {.type = TT_FLOAT32, .op = TT_SUM, .nranks = 1};
    tt_reduce(&reduction, &out, src, 1, 1, TT_FINISH);
    CHECK_EQ(out, nan);
    src[0] = &five;
    reduction.type = TT_UINT32;
    reduction.op = TT_LOGICAL_AND;
    tt_reduce(&reduction, &out, src, 1, 1, 0);
    CHECK_EQ(out, 1);
}

static void check_every_copy(void)
{
    enum { ROOM = 5000 };
    static char from[ROOM + 200], to[ROOM + 200];
    static const size_t lengths[] = {100, 127, 128, 129, 1000, 1023, 1024, 1025, 4096, ROOM};
    uint64_t seed = 3;
    for (size_t i = 0; i < sizeof from; i++) from[i] = (char)random_next(&seed);
    for (size_t i = 0; i < 70 + sizeof lengths / sizeof lengths[0]; i++) {
        const size_t nbytes = i < 70 ? i : lengths[i - 70];
        for (size_t shift = 0; shift < 66; shift += 1 + shift % 3) {
            const size_t at = 65 - shift;
            memset(to, 0x33, sizeof to);
            tt_copy(to + at, from + shift, nbytes, shift % 2 == 0);
            CHECK(memcmp(to + at, from + shift, nbytes) == 0);
            CHECK(to[at + nbytes] == 0x33 && (at == 0 || to[at - 1] == 0x33));
        }
    }
}

TEST(copy, every_length_and_misalignment_arrives_and_nothing_else_changes)
{
    (void)tt_kernels_in_use(); /* which says what this CPU does best */
    const bool best = tt_copies_by_rep_movsb;
    for (int by_string = 0; by_string < 2; by_string++) {
        tt_copies_by_rep_movsb = by_string;
        check_every_copy();
    }
    tt_copies_by_rep_movsb = best;
}

TEST(copy, to_several_targets_arrives_at_each_and_nothing_else_changes)
{
    enum { ROOM = 9000, NTARGETS = 3 };
    static char from[ROOM + 200], to[NTARGETS][ROOM + 200];
    static const size_t lengths[] = {0, 1, 63, 64, 65, 1000, 1023, 1024, 1025, 4096, ROOM};
    uint64_t seed = 5;
    for (size_t i = 0; i < sizeof from; i++) from[i] = (char)random_next(&seed);
    for (size_t i = 0; i < sizeof lengths / sizeof lengths[0]; i++)
        for (size_t shift = 0; shift < 66; shift += 1 + shift % 3) {
            struct tt_target targets[NTARGETS];
            const size_t nbytes = lengths[i];
            memset(to, 0x33, sizeof to);
            for (size_t t = 0; t < NTARGETS; t++)
                targets[t] = (struct tt_target){.data = to[t] + 1 + (shift * (t + 1)) % 66,
                                                .nontemporal = (shift + t) % 2 == 0};
            tt_copy_to(targets, NTARGETS, from + shift, nbytes);
            for (int t = 0; t < NTARGETS; t++) {
                const char *data = targets[t].data;
                CHECK(memcmp(data, from + shift, nbytes) == 0);
                CHECK(data[nbytes] == 0x33 && data[-1] == 0x33);
            }
        }
}
