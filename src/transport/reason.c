/* Remembers the latest failure of a communicator of this process. A program that gives up after a
 * failure also destroys the communicators that have not failed: their ranks learn why. */
#include "transport/reason.h"

#include <stdint.h>
#include <stdio.h>

#include "base/clock.h"
#include "base/process_lock.h"

#define RECENT_NS INT64_C(30000000000)

static struct tt_process_lock lock = TT_PROCESS_LOCK;
static char latest[TT_REASON_TEXT]; /* guarded by lock, as the other */
static int64_t failed_ns;           /* 0: no communicator has failed */

void tt_reason_note(const char *failure)
{
    tt_process_lock(&lock);
    snprintf(latest, sizeof latest, "%s", failure);
    failed_ns = failure[0] ? tt_now_ns() : 0;
    tt_process_unlock(&lock);
}

bool tt_reason_recent(char text[TT_REASON_TEXT])
{
    tt_process_lock(&lock);
    const bool recent = failed_ns && tt_now_ns() - failed_ns < RECENT_NS;
    if (recent) snprintf(text, TT_REASON_TEXT, "%s", latest);
    tt_process_unlock(&lock);
    return recent;
}

void tt_reason_describe(const char *reason, char *text, size_t size)
{
    const bool known = reason && reason[0];
    snprintf(text, size, "has left: it destroyed its communicator%s%s",
             known ? ", after another one of its process had failed (ranks as numbered there): "
                   : "",
             known ? reason : "");
}
