/* Pauses of a loop that waits for another thread, for the kernel or for a device, and looks again
 * after each pause. */
#ifndef TT_BASE_PAUSE_H
#define TT_BASE_PAUSE_H

#include <stdint.h>

/* One for each wait; begins zeroed. */
struct tt_pause {
    int64_t sleep_ns; /* from when on pauses are sleeps; 0: there was no pause yet */
};

/* Yields the core for the first 50 us of the wait, and no more once a yield was slow, because then
 * another program has used the core for that time; else sleeps for 50 us. */
void tt_pause(struct tt_pause *pause);

#endif
