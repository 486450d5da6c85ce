/* Waits that last long: when the log is to say so (TUTTI_LATE_MS). */
#ifndef TT_EXECUTOR_LATE_H
#define TT_EXECUTOR_LATE_H

#include <stdbool.h>
#include <stdint.h>

/* One wait. Zero: it has not begun. */
struct tt_late {
    int64_t since_ns; /* since when nothing has moved; 0: it was not looked at yet */
    int64_t next_ns;  /* after how long that is said next */
    uint64_t mark;    /* as it was then */
};

/* Looks at a wait in which `mark` changes whenever something moves. True when nothing has moved for
 * late_ms, then for twice as long, and so on, once each: *waited_ms says for how long. late_ms 0:
 * never. */
bool tt_late_is_due(struct tt_late *late, int64_t late_ms, uint64_t mark, int64_t *waited_ms);

#endif
