/* When the log is to say that a wait lasts long: after a time, then each time it has doubled. */
#include "executor/late.h"

#include "base/clock.h"

bool tt_late_is_due(struct tt_late *late, int64_t late_ms, uint64_t mark, int64_t *waited_ms)
{
    if (late_ms <= 0) return false;
    const int64_t now_ns = tt_now_ns();
    if (!late->since_ns || late->mark != mark)
        *late = (struct tt_late){.since_ns = now_ns, .next_ns = late_ms * 1000000, .mark = mark};
    const int64_t waited_ns = now_ns - late->since_ns;
    if (waited_ns < late->next_ns) return false;
    while (late->next_ns <= waited_ns) late->next_ns *= 2;
    *waited_ms = waited_ns / 1000000;
    return true;
}
