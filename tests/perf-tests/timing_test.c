/* Tests of the perf tests' clock and percentiles. */
#include "common/timing.h"

#include <math.h>
#include <time.h>

#include "shim.h"

TEST(perf_timing, percentiles_are_the_nearest_rank)
{
    double samples[200];
    for (int i = 0; i < 200; i++) samples[i] = 200 - i;
    struct perf_statistics statistics = perf_statistics_of(samples, 200);
    CHECK(statistics.min == 1);
    CHECK(statistics.max == 200);
    CHECK(statistics.mean == 100.5);
    CHECK(statistics.p50 == 100);
    CHECK(statistics.p90 == 180);
    CHECK(statistics.p95 == 190);
    CHECK(statistics.p99 == 198);
    CHECK(fabs(statistics.deviation - sqrt((200.0 * 200 - 1) / 12)) < 1e-9);
}

TEST(perf_timing, one_sample_is_everything)
{
    double sample = 3;
    struct perf_statistics statistics = perf_statistics_of(&sample, 1);
    CHECK(statistics.min == 3 && statistics.p99 == 3 && statistics.mean == 3);
    CHECK(statistics.deviation == 0 && statistics.variation == 0);
}

TEST(perf_timing, the_clock_does_not_go_back)
{
    double before = perf_now();
    for (int i = 0; i < 1000; i++) {
        double now = perf_now();
        CHECK(now >= before);
        before = now;
    }
}

TEST(perf_timing, work_takes_the_processor_for_as_long_as_it_says)
{
    const clock_t before = clock();
    perf_work(30000);
    CHECK(clock() - before >= 30000 * (CLOCKS_PER_SEC / 1000000) - CLOCKS_PER_SEC / 1000);
}
