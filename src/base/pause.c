/* Pauses of loops that wait. */
#include "base/pause.h"

#include <sched.h>
#include <time.h>

#include "base/clock.h"
#include "base/thread.h"

enum { YIELDS_NS = 50000, SLEEP_NS = 50000 };

void tt_pause(struct tt_pause *pause)
{
    const int64_t now_ns = tt_now_ns();
    if (!pause->sleep_ns) pause->sleep_ns = now_ns + YIELDS_NS;
    if (now_ns < pause->sleep_ns) {
        sched_yield();
        return;
    }
    TT_CANCELS_WAIT;
    nanosleep(&(struct timespec){.tv_nsec = SLEEP_NS}, NULL);
}
