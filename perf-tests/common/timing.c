/* The clock, and percentiles over iterations. */
#include "common/timing.h"

#include <math.h>
#include <stdlib.h>
#include <time.h>

double perf_now(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a;
    double y = *(const double *)b;
    return (x > y) - (x < y);
}

static double percentile(const double *sorted, int count, int percent)
{
    long rank = ((long)count * percent + 99) / 100;
    return sorted[rank > 0 ? rank - 1 : 0];
}

struct perf_statistics perf_statistics_of(double *samples, int count)
{
    qsort(samples, (size_t)count, sizeof(*samples), compare);
    double sum = 0;
    for (int i = 0; i < count; i++) sum += samples[i];
    double mean = sum / count;
    double squares = 0;
    for (int i = 0; i < count; i++) squares += (samples[i] - mean) * (samples[i] - mean);
    double deviation = sqrt(squares / count);
    return (struct perf_statistics){
        .min = samples[0],
        .max = samples[count - 1],
        .mean = mean,
        .p50 = percentile(samples, count, 50),
        .p95 = percentile(samples, count, 95),
        .p99 = percentile(samples, count, 99),
        .deviation = deviation,
        .variation = mean > 0 ? 100 * deviation / mean : 0,
    };
}
