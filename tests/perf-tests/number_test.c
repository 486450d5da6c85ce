/* Tests of the perf tests' conversions of small floats. */
#include "common/number.h"

#include <math.h>
#include <string.h>

#include "shim.h"

static const struct perf_type *type_named(const char *name)
{
    return &perf_types[perf_type_find(name)];
}

/* Whether bits are a NaN or infinity. */
static bool is_special(const struct perf_type *type, uint64_t bits)
{
    uint64_t magnitude = bits & ((1ull << (8 * type->bytes - 1)) - 1);
    if (type->type == tuttiFloat8e4m3) return magnitude == 0x7f;
    return magnitude >> type->mantissa_bits == (1ull << type->exponent_bits) - 1;
}

TEST(perf_number, every_small_pattern_survives_decoding_and_encoding)
{
    for (int i = 0; i < PERF_NTYPES; i++) {
        const struct perf_type *type = &perf_types[i];
        if (type->exponent_bits == 0 || type->bytes > 2) continue;
        for (uint64_t bits = 0; bits < 1ull << (8 * type->bytes); bits++) {
            if (is_special(type, bits)) continue;
            uint64_t back = perf_number_encode(type, perf_number_decode(type, bits));
            CHECK_MESSAGE(back == bits, "%s: %llx became %llx", type->name,
                          (unsigned long long)bits, (unsigned long long)back);
            if (back != bits) return;
        }
    }
}

TEST(perf_number, known_values_have_their_bits)
{
    CHECK_EQ(perf_number_encode(type_named("half"), 1.0), 0x3c00);
    CHECK_EQ(perf_number_encode(type_named("half"), -65504.0), 0xfbff);
    CHECK_EQ(perf_number_encode(type_named("half"), ldexp(1, -24)), 0x0001);
    CHECK_EQ(perf_number_encode(type_named("bfloat16"), 1.5), 0x3fc0);
    CHECK_EQ(perf_number_encode(type_named("f8e4m3"), 448.0), 0x7e);
    CHECK_EQ(perf_number_encode(type_named("f8e5m2"), 57344.0), 0x7b);
    CHECK_EQ(perf_number_encode(type_named("f8e4m3"), ldexp(1, -9)), 0x01);
}

TEST(perf_number, ties_go_to_even_and_too_much_overflows)
{
    const struct perf_type *e4m3 = type_named("f8e4m3");
    CHECK_EQ(perf_number_encode(e4m3, 17.0), perf_number_encode(e4m3, 16.0));
    CHECK_EQ(perf_number_encode(e4m3, 19.0), perf_number_encode(e4m3, 20.0));
    CHECK_EQ(perf_number_encode(e4m3, 1000.0), 0x7f);
    CHECK_EQ(perf_number_encode(type_named("half"), 65520.0), 0x7c00);
    CHECK_EQ(perf_number_encode(type_named("half"), 65519.0), 0x7bff);
    CHECK_EQ(perf_number_encode(type_named("half"), ldexp(1, -25)), 0);
}

TEST(perf_number, float_is_encoded_as_the_machine_does)
{
    const struct perf_type *type = type_named("float");
    uint64_t state = 7;
    for (int i = 0; i < 100000; i++) {
        state = state * UINT64_C(6364136223846793005) + 1;
        double value = ldexp((double)(int64_t)state, (int)(state >> 40) % 280 - 200);
        float narrow = (float)value;
        uint32_t bits;
        memcpy(&bits, &narrow, sizeof(bits));
        CHECK_MESSAGE(perf_number_encode(type, value) == bits, "%a", value);
        if (perf_number_encode(type, value) != bits) return;
    }
}
