/* The clock, work that takes time, and statistics over iterations. */
#ifndef TT_PERF_TIMING_H
#define TT_PERF_TIMING_H

/* Seconds of a clock that all processes of the host share and that never goes back. */
double perf_now(void);

/* Keeps the calling thread computing until it has had this many microseconds of a processor: longer
 * by the clock where other threads have the processor meanwhile. */
void perf_work(int us);

/* All in the samples' unit. */
struct perf_statistics {
    double min;
    double max;
    double mean;
    double p50;
    double p90;
    double p95; /* nearest rank: the least sample that at least 95 % do not exceed */
    double p99;
    double deviation; /* of the population */
    double variation; /* deviation in percent of the mean; 0 when the mean is 0 */
};

/* count >= 1; sorts the samples. */
struct perf_statistics perf_statistics_of(double *samples, int count);

#endif
