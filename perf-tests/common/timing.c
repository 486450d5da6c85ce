/* The clock, work, and percentiles over iterations. */
#include "common/timing.h"

#include <math.h>
#include <stdlib.h>
#include <time.h>

static double seconds_of(clockid_t clock)
{
    struct timespec now;
    clock_gettime(clock, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

double perf_now(void)
{
    return seconds_of(CLOCK_MONOTONIC);
}

void perf_work(int us)
{
    const double end = seconds_of(CLOCK_THREAD_CPUTIME_ID) + 1e-6 * us;
    while (seconds_of(CLOCK_THREAD_CPUTIME_ID) < end) {
    }
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
        .p90 = percentile(samples, count, 90),
        .p95 = percentile(samples, count, 95),
        .p99 = percentile(samples, count, 99),
        .deviation = deviation,
        .variation = mean > 0 ? 100 * deviation / mean : 0,
    };
}
