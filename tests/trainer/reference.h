/* A few operations once more, in double and as plainly as they can be said, with numbers to feed
 * them and a way to compare. Whole models in double are oracle.h's. */
#ifndef TT_TESTS_TRAINER_REFERENCE_H
#define TT_TESTS_TRAINER_REFERENCE_H

#include <stdint.h>

void ref_linear(double *y, const double *x, const double *w, const double *b,
                const double *residual, long rows, long in, long out);
void ref_norm(double *y, const double *x, const double *gamma, const double *beta, long rows,
              long n);
void ref_gelu(double *y, const double *x, long n);

/* Numbers in [-scale, scale], the same for the same seed. */
void fill(float *x, long n, float scale, uint64_t seed);
double *widen(const float *x, long n); /* free() it */

/* The largest |a - b| over the largest |b| (or over 1e-30). */
double difference(const float *a, const double *b, long n);

#endif
