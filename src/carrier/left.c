/* The list of the parts that were left to GPUs. */
#include "carrier/left.h"

#include <unistd.h>

#include "base/process_lock.h"

static struct tt_process_lock lock = TT_PROCESS_LOCK;
static struct tt_left_part *parts;
static pid_t left_by; /* this process, or its parent */

/* In a child made by fork the parts are the parent's: their memory is not there, and a thread that
 * the child does not have may hold their locks. */
static void forget_inherited_locked(void)
{
    if (left_by != getpid()) parts = NULL;
    left_by = getpid();
}

void tt_left_add(struct tt_left_part *part)
{
    tt_process_lock(&lock);
    forget_inherited_locked();
    part->next = parts;
    parts = part;
    tt_process_unlock(&lock);
}

void tt_left_free(void)
{
    tt_process_lock(&lock);
    forget_inherited_locked();
    for (struct tt_left_part **at = &parts; *at;) {
        struct tt_left_part *part = *at;
        if (!part->is_unused(part->part)) {
            at = &part->next;
            continue;
        }
        *at = part->next;
        part->free(part->part);
    }
    tt_process_unlock(&lock);
}
