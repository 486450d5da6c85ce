/* Tests of base/clock.h. */
#include "base/clock.h"

#include "shim.h"

TEST(clock, time_does_not_go_back)
{
    int64_t last = tt_now_ns();
    for (int i = 0; i < 1000; i++) {
        const int64_t now = tt_now_ns();
        CHECK(now >= last);
        last = now;
    }
}

TEST(clock, zero_and_negative_timeouts_mean_no_deadline)
{
    CHECK_EQ(tt_deadline_ns(0), INT64_MAX);
    CHECK_EQ(tt_deadline_ns(-1), INT64_MAX);
    CHECK(!tt_expired(INT64_MAX));
    CHECK_EQ(tt_left_ms(INT64_MAX), -1);
}

TEST(clock, what_is_left_is_rounded_up_and_never_negative)
{
    CHECK_EQ(tt_left_ms(tt_now_ns() - 1), 0);
    CHECK(tt_expired(tt_now_ns() - 1));
    const int64_t deadline = tt_deadline_ns(600000);
    CHECK(!tt_expired(deadline));
    const int left = tt_left_ms(deadline);
    CHECK_MESSAGE(left > 590000 && left <= 600000, "%d ms left of 600000", left);
    CHECK(tt_left_ms(tt_deadline_ns(INT64_C(1000000000000))) > 0);
}
