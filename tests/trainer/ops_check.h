/* What the tests of the operations share: builds, memory, comparisons, finite differences. */
#ifndef TT_TESTS_TRAINER_OPS_CHECK_H
#define TT_TESTS_TRAINER_OPS_CHECK_H

#include <stdbool.h>
#include <stdint.h>

#include "../../trainer/ops/backend.h"
#include "floats.h"
#include "reference.h"

/* Runs what follows with each build of the operations that this processor can run. */
#define FOR_EACH_BUILD(ops)                                                                        \
    for (int build_ = 0; build_ < 3; ++build_)                                                     \
        for (const struct tr_backend *ops = build(build_); ops; ops = NULL)
const struct tr_backend *build(int index);

/* Sizes below, at and above a vector's 16 floats, and a larger prime; ends with 0. */
extern const long odd_sizes[];

/* Memory that free_all() frees: n floats in [-scale, scale], n zeros, a copy, n doubles. */
float *some(long n, float scale, uint64_t seed);
float *zeros(long n);
float *copy_of(const float *x, long n);
double *wide_of(const float *x, long n);
double *wide_zeros(long n);
void free_all(void);

bool same_bits(const float *a, const float *b, long n);

double weighted_sum(const double *a, const float *b, long n);

/* One input of an operation: its values, and the gradient that backward gave. */
struct input {
    const char *name;
    const float *values, *gradient;
    long n;
};

/* The weighted sum of an operation's outputs, as a function of all inputs in double. */
typedef double (*objective)(double *const *inputs, void *arg);

/* Compares each input's gradient with central differences at some of its elements. */
void check_gradients(const char *what, const struct input *inputs, int n, objective f, void *arg);

#endif
