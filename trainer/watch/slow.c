/* A thread that waits for the end, or prints. */
#include "slow.h"

#include <errno.h>
#include <stdio.h>
#include <time.h>

#include "pipe.h"
#include "thread.h"

enum { SECONDS = 5 };

static void *wait_or_tell(void *arg)
{
    struct tr_slow *slow = arg;
    struct timespec until;
    int failed;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += SECONDS;
    do failed = sem_clockwait(&slow->over, CLOCK_MONOTONIC, &until);
    while (failed && errno == EINTR);
    if (failed && errno == ETIMEDOUT) tr_say(stderr, "%s\n", slow->note);
    return NULL;
}

void tr_slow_begin(struct tr_slow *slow, const char *note)
{
    snprintf(slow->note, sizeof slow->note, "%s", note);
    sem_init(&slow->over, 0, 0);
    slow->has_thread = tr_thread_start(&slow->thread, wait_or_tell, slow);
}

void tr_slow_end(struct tr_slow *slow)
{
    sem_post(&slow->over);
    if (slow->has_thread) pthread_join(slow->thread, NULL);
    slow->has_thread = false;
    sem_destroy(&slow->over);
}
