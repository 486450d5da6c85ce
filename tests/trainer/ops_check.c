/* What the tests of the operations share. */
#include "ops_check.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "memory.h"
#include "shim.h"

const long odd_sizes[] = {1, 15, 16, 17, 37, 0};

const struct tr_backend *build(int index)
{
    static const char *const names[] = {"baseline", "v3", "v4"};
    tr_process_tune();
    return tr_backend_choose(names[index]);
}

/* Blocks handed out since the last free_all(). */
static void *blocks[4096];
static int nblocks;

static void *take(size_t nbytes)
{
    void *block = calloc(1, nbytes ? nbytes : 1);
    if (!block || nblocks == sizeof blocks / sizeof blocks[0]) abort();
    return blocks[nblocks++] = block;
}

void free_all(void)
{
    while (nblocks) free(blocks[--nblocks]);
}

float *zeros(long n)
{
    return take((size_t)n * sizeof(float));
}

double *wide_zeros(long n)
{
    return take((size_t)n * sizeof(double));
}

float *some(long n, float scale, uint64_t seed)
{
    float *x = zeros(n);
    fill(x, n, scale, seed);
    return x;
}

float *copy_of(const float *x, long n)
{
    return memcpy(zeros(n), x, (size_t)n * sizeof *x);
}

double *wide_of(const float *x, long n)
{
    double *wide = wide_zeros(n);
    for (long i = 0; i < n; ++i) wide[i] = (double)x[i];
    return wide;
}

bool same_bits(const float *a, const float *b, long n)
{
    return memcmp(a, b, (size_t)n * sizeof *a) == 0;
}

double weighted_sum(const double *a, const float *b, long n)
{
    double sum = 0;
    for (long i = 0; i < n; ++i) sum += a[i] * (double)b[i];
    return sum;
}

void check_gradients(const char *what, const struct input *inputs, int n, objective f, void *arg)
{
    double *wide[8];
    for (int k = 0; k < n; ++k) wide[k] = widen(inputs[k].values, inputs[k].n);
    for (int k = 0; k < n; ++k) {
        const long stride = inputs[k].n / 61 + 1;
        double most = 0, largest = 0.1; /* some are 0: a norm's over rows of one element */
        for (long i = 0; i < inputs[k].n; i += stride) {
            const double h = 1e-5, x = wide[k][i];
            wide[k][i] = x + h;
            const double above = f(wide, arg);
            wide[k][i] = x - h;
            const double below = f(wide, arg);
            wide[k][i] = x;
            const double numeric = (above - below) / (2 * h);
            most = fmax(most, fabs(numeric - (double)inputs[k].gradient[i]));
            largest = fmax(largest, fabs(numeric));
        }
        CHECK_MESSAGE(most < 2e-5 * largest, "%s: gradient of %s is off by %g, its largest is %g",
                      what, inputs[k].name, most, largest);
    }
    for (int k = 0; k < n; ++k) free(wide[k]);
}
