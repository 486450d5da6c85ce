/* Independent arithmetic for the tests of src/datatype: small floats as (sign, exponent, mantissa)
 * turned into doubles by ldexp, and rounding by search among all values of the type. */
#ifndef TT_TESTS_DATATYPE_REFERENCE_H
#define TT_TESTS_DATATYPE_REFERENCE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct small_float {
    const char *name;
    int exponent_bits, mantissa_bits, bias;
    bool has_infinity; /* else all exponent bits set is finite, but for the one NaN magnitude */
    bool saturates;    /* finite values out of range become the largest */
    unsigned nan;      /* the NaN that conversions make */
};

extern const struct small_float small_f16, small_bf16, small_e4m3, small_e5m2;

/* The value with these bits; NaN and infinities as such. */
double reference_widen(const struct small_float *format, unsigned bits);

/* The bits nearest to value, ties to even. */
unsigned reference_narrow(const struct small_float *format, double value);

/* A deterministic generator: splitmix64. */
uint64_t random_next(uint64_t *state);

#endif
