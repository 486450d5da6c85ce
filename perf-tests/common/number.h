/* Small floating-point formats, converted bit by bit: the scalar arithmetic of the verification,
 * made apart from the library's kernels so that both cannot be wrong in the same way. */
#ifndef TT_PERF_NUMBER_H
#define TT_PERF_NUMBER_H

#include <stdint.h>

#include "common/types.h"

/* The bits of `value` in a floating-point type, rounded once to nearest even. Too large a value
 * becomes infinity, or NaN in f8e4m3, which has none. `value` must not be NaN. */
uint64_t perf_number_encode(const struct perf_type *type, double value);

/* The value of finite bits. */
double perf_number_decode(const struct perf_type *type, uint64_t bits);

#endif
