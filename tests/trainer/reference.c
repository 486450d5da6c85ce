/* A few operations in double, numbers to feed them, and comparisons. */
#include "reference.h"

#include <math.h>
#include <stdlib.h>

#include "random.h"

void ref_linear(double *y, const double *x, const double *w, const double *b,
                const double *residual, long rows, long in, long out)
{
    for (long r = 0; r < rows; ++r) {
        for (long o = 0; o < out; ++o) {
            double sum = (b ? b[o] : 0) + (residual ? residual[r * out + o] : 0);
            for (long i = 0; i < in; ++i) sum += x[r * in + i] * w[o * in + i];
            y[r * out + o] = sum;
        }
    }
}

void ref_norm(double *y, const double *x, const double *gamma, const double *beta, long rows,
              long n)
{
    for (long r = 0; r < rows; ++r, x += n, y += n) {
        double mean = 0, square = 0;
        for (long i = 0; i < n; ++i) mean += x[i] / (double)n;
        for (long i = 0; i < n; ++i) square += (x[i] - mean) * (x[i] - mean) / (double)n;
        for (long i = 0; i < n; ++i)
            y[i] = (x[i] - mean) / sqrt(square + 1e-5) * gamma[i] + beta[i];
    }
}

void ref_gelu(double *y, const double *x, long n)
{
    for (long i = 0; i < n; ++i)
        y[i] = 0.5 * x[i] *
               (1 + tanh(sqrt(2 / 3.14159265358979323846) * (x[i] + 0.044715 * pow(x[i], 3))));
}

void fill(float *x, long n, float scale, uint64_t seed)
{
    for (long i = 0; i < n; ++i)
        x[i] = scale * (float)(2 * tr_random_uniform(seed, TR_RANDOM_WEIGHTS, 0, (uint64_t)i) - 1);
}

double *widen(const float *x, long n)
{
    double *wide = malloc((size_t)n * sizeof *wide);
    for (long i = 0; i < n; ++i) wide[i] = (double)x[i];
    return wide;
}

double difference(const float *a, const double *b, long n)
{
    double most = 0, largest = 1e-30;
    for (long i = 0; i < n; ++i) {
        if (!(fabs((double)a[i] - b[i]) <= most)) most = fabs((double)a[i] - b[i]);
        if (fabs(b[i]) > largest) largest = fabs(b[i]);
    }
    return most / largest;
}
