/* When the log says for whom an init waits: first after 10 s, or after TUTTI_LATE_MS where that is
 * set and shorter, then each time the wait has lasted twice as long. */
#ifndef TT_BOOTSTRAP_NOTICE_H
#define TT_BOOTSTRAP_NOTICE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/clock.h"
#include "base/config.h"

/* Of one wait; owned by the thread that waits. */
struct tt_notice {
    int64_t start_ns, next_ns;
};

static inline struct tt_notice tt_notice_begin(void)
{
    enum { NOTICE_MS = 10000 };
    const int64_t late_ms = tt_config_int(TT_CONFIG_LATE_MS);
    const bool sooner = late_ms > 0 && late_ms < NOTICE_MS;
    return (struct tt_notice){.start_ns = tt_now_ns(),
                              .next_ns = tt_deadline_ns(sooner ? late_ms : NOTICE_MS)};
}

/* Whether the log is to say something now; if so, the next time is set. */
static inline bool tt_notice_is_due(struct tt_notice *notice)
{
    if (!tt_expired(notice->next_ns)) return false;
    notice->next_ns = 2 * tt_now_ns() - notice->start_ns;
    return true;
}

static inline long long tt_notice_waited_s(const struct tt_notice *notice)
{
    return (tt_now_ns() - notice->start_ns) / 1000000000;
}

#endif
