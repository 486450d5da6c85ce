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

/* Takes the parts of a GPU out of the list. */
static struct tt_left_part *take(int gpu)
{
    struct tt_left_part *taken = NULL;
    tt_process_lock(&lock);
    forget_inherited_locked();
    for (struct tt_left_part **at = &parts; *at;) {
        struct tt_left_part *part = *at;
        if (part->gpu != gpu) {
            at = &part->next;
            continue;
        }
        *at = part->next;
        part->next = taken;
        taken = part;
    }
    tt_process_unlock(&lock);
    return taken;
}

/* The lock is for all GPUs, so nothing asks a driver with it. */
void tt_left_free(int gpu)
{
    struct tt_left_part *part = take(gpu);
    while (part) {
        struct tt_left_part *next = part->next;
        if (part->is_unused(part->part))
            part->free(part->part);
        else
            tt_left_add(part);
        part = next;
    }
}
