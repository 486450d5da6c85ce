/* Tests of the conversions of small floats, against the reference. */
#include "datatype/convert.h"

#include <math.h>

#include "reference.h"
#include "shim.h"

static float widen(const struct small_float *format, unsigned bits)
{
    if (format == &small_f16) return tt_f16_to_f32((uint16_t)bits);
    if (format == &small_bf16) return tt_bf16_to_f32((uint16_t)bits);
    if (format == &small_e4m3) return tt_e4m3_to_f32((uint8_t)bits);
    return tt_e5m2_to_f32((uint8_t)bits);
}

static unsigned narrow(const struct small_float *format, float value)
{
    if (format == &small_f16) return tt_f32_to_f16(value);
    if (format == &small_bf16) return tt_f32_to_bf16(value);
    if (format == &small_e4m3) return tt_f32_to_e4m3(value);
    return tt_f32_to_e5m2(value);
}

static const struct small_float *const formats[] = {&small_f16, &small_bf16, &small_e4m3,
                                                    &small_e5m2};
enum { NFORMATS = sizeof formats / sizeof formats[0] };

static unsigned nvalues(const struct small_float *format)
{
    return 2u << (format->exponent_bits + format->mantissa_bits);
}

TEST(convert, every_small_value_widens_exactly_and_comes_back)
{
    for (int f = 0; f < NFORMATS; f++) {
        for (unsigned bits = 0; bits < nvalues(formats[f]); bits++) {
            const double expected = reference_widen(formats[f], bits);
            const float got = widen(formats[f], bits);
            const unsigned back = isnan(expected) ? formats[f]->nan : bits;
            CHECK_MESSAGE(
                isnan(expected) ? isnan(got)
                                : (double)got == expected && !signbit(got) == !signbit(expected),
                "%s %#x widens to %a, expected %a", formats[f]->name, bits, (double)got, expected);
            CHECK_MESSAGE(narrow(formats[f], got) == back, "%s %#x comes back as %#x, expected %#x",
                          formats[f]->name, bits, narrow(formats[f], got), back);
            if (tt_test_failed()) return;
        }
    }
}

static bool agrees(const struct small_float *format, float value)
{
    const unsigned got = narrow(format, value), expected = reference_narrow(format, (double)value);
    CHECK_MESSAGE(got == expected, "%a to %s gives %#x, expected %#x", (double)value, format->name,
                  got, expected);
    return got == expected;
}

/* Each value and the middle to the next, with the fp32 neighbours of both: that is where rounding
 * changes its mind. */
TEST(convert, rounding_is_to_nearest_even_around_every_value_and_every_tie)
{
    for (int f = 0; f < NFORMATS; f++) {
        for (unsigned bits = 0; bits < nvalues(formats[f]); bits++) {
            const double here = reference_widen(formats[f], bits);
            const double next = reference_widen(formats[f], bits + 1);
            const float points[] = {(float)here, (float)((here + next) / 2)};
            for (int p = 0; p < 2; p++)
                if (!agrees(formats[f], points[p]) ||
                    !agrees(formats[f], nextafterf(points[p], INFINITY)) ||
                    !agrees(formats[f], nextafterf(points[p], -INFINITY)))
                    return;
        }
    }
}

TEST(convert, random_and_extreme_numbers_round_as_the_reference)
{
    const float extremes[] = {0,
                              -0.0f,
                              INFINITY,
                              -INFINITY,
                              NAN,
                              -NAN,
                              0x1p-149f,
                              -0x1p-149f,
                              0x1p-126f,
                              0x1.fffffep127f,
                              65504,
                              65519,
                              65520,
                              65535,
                              65536,
                              448,
                              464,
                              479,
                              480,
                              57344,
                              61439,
                              61440,
                              65535.996f,
                              0x1p-25f,
                              0x1.000002p-25f,
                              0x1p-10f,
                              0x1.000002p-10f,
                              0x1p-17f,
                              0x1.000002p-17f,
                              0x1.fefffep127f,
                              0x1.ffp127f,
                              0x1p-134f,
                              0x1.8p-133f};
    uint64_t seed = 1;
    for (int f = 0; f < NFORMATS; f++) {
        for (size_t i = 0; i < sizeof extremes / sizeof extremes[0]; i++)
            if (!agrees(formats[f], extremes[i]) || !agrees(formats[f], -extremes[i])) return;
        for (int i = 0; i < 200000; i++)
            if (!agrees(formats[f], tt_f32_from_bits((uint32_t)random_next(&seed)))) return;
    }
}

TEST(convert, fp8_saturates_and_e5m2_keeps_infinity)
{
    CHECK_EQ(tt_f32_to_e4m3(1e9f), 0x7e);
    CHECK_EQ(tt_f32_to_e4m3(-1e9f), 0xfe);
    CHECK_EQ(tt_f32_to_e4m3(INFINITY), 0x7e);
    CHECK_EQ(tt_f32_to_e5m2(1e9f), 0x7b);
    CHECK_EQ(tt_f32_to_e5m2(INFINITY), 0x7c);
    CHECK_EQ(tt_f32_to_e5m2(-INFINITY), 0xfc);
    CHECK_EQ(tt_f32_to_f16(65520), 0x7c00);
    CHECK_EQ(tt_f32_to_bf16(0x1.ffp127f), 0x7f80);
}
