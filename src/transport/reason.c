/* Remembers the latest failure of a communicator of this process. A program that gives up after a
 * failure also destroys the communicators that have not failed, or ends: their ranks learn why, or
 * at least that the process knew of a failure. */
#include "transport/reason.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/process_lock.h"

#define RECENT_NS INT64_C(30000000000)
#define HAS_LEFT "has left: "
#define AFTER_ANOTHER ", after another one of its process had failed (ranks as numbered there): "

static struct tt_process_lock lock = TT_PROCESS_LOCK;
static char latest[TT_REASON_TEXT];    /* guarded by lock, as the other */
static int64_t noted_ns;               /* when `latest` was noted; 0: there is none */
static struct tt_reason_place *places; /* guarded by lock; each change is one store */

/* Where the reason begins that the last of the ranks gave which have left; the whole failure where
 * none did. So the text does not grow from process to process, and keeps its cause. */
static const char *last_reason(const char *failure)
{
    for (const char *at; (at = strstr(failure, AFTER_ANOTHER));)
        failure = at + sizeof AFTER_ANOTHER - 1;
    return failure;
}

/* The bytes of the failure that say what happened before a rank left; 0: it says nothing else. Only
 * "rank 1 has died, and rank 0 has left: ..." does. */
static size_t length_of_cause(const char *failure)
{
    static const char joint[] = ", and ";
    const char *left = strstr(failure, HAS_LEFT), *end = NULL;
    if (!left) return strlen(failure);
    for (const char *at = strstr(failure, joint); at && at < left; at = strstr(at + 1, joint))
        end = at;
    return end ? (size_t)(end - failure) : 0;
}

void tt_reason_note(const char *failure)
{
    const bool has_text = failure[0];
    size_t length = length_of_cause(failure);
    if (!length) { /* a rank has left: for its reason */
        failure = last_reason(failure);
        length = length_of_cause(failure);
    }
    if (!length && has_text) return;
    tt_process_lock(&lock);
    snprintf(latest, sizeof latest, "%.*s", (int)length, failure);
    noted_ns = length ? tt_now_ns() : 0;
    tt_process_unlock(&lock);
}

bool tt_reason_recent(int64_t since_ns, char text[TT_REASON_TEXT])
{
    tt_process_lock(&lock);
    const bool recent = noted_ns && noted_ns >= since_ns && tt_now_ns() - noted_ns < RECENT_NS;
    if (recent) snprintf(text, TT_REASON_TEXT, "%s", latest);
    tt_process_unlock(&lock);
    return recent;
}

void tt_reason_enlist(struct tt_reason_place *place, _Atomic int64_t *failed_ns)
{
    tt_process_lock(&lock);
    *place = (struct tt_reason_place){failed_ns, getpid(), places};
    places = place;
    tt_process_unlock(&lock);
}

void tt_reason_delist(struct tt_reason_place *place)
{
    if (!place->failed_ns) return;
    tt_process_lock(&lock);
    struct tt_reason_place **at = &places;
    while (*at && *at != place) at = &(*at)->next;
    if (*at) *at = place->next;
    tt_process_unlock(&lock);
    place->failed_ns = NULL;
}

/* A child made by fork has the places of its parent's ranks, for which it does not speak. */
void tt_reason_tell(void)
{
    const pid_t process = getpid();
    const int64_t now_ns = tt_now_ns();
    tt_process_lock(&lock);
    for (struct tt_reason_place *place = places; place; place = place->next)
        if (place->process == process)
            atomic_store_explicit(place->failed_ns, now_ns, memory_order_relaxed);
    tt_process_unlock(&lock);
}

const char *tt_reason_how_left(const char *reason)
{
    return reason[0] == TT_REASON_EXITS ? HAS_LEFT
               "its process exited without destroying its communicator"
                                        : HAS_LEFT "it destroyed its communicator";
}

void tt_reason_describe(const char *reason, char *text, size_t size)
{
    const char *failure = tt_reason_failure(reason);
    snprintf(text, size, "%s%s%s", tt_reason_how_left(reason), failure[0] ? AFTER_ANOTHER : "",
             failure);
}
