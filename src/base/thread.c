/* Starts a thread with all signals blocked that belong to the application. */
#include "base/thread.h"

#include <signal.h>

/* Signals that a thread's own instructions raise. */
static const int of_faults[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT, SIGTRAP, SIGSYS};

int tt_thread_start(pthread_t *thread, const pthread_attr_t *attributes, void *(*run)(void *),
                    void *argument)
{
    sigset_t others, before;
    sigfillset(&others);
    for (size_t i = 0; i < sizeof of_faults / sizeof *of_faults; i++)
        sigdelset(&others, of_faults[i]);
    pthread_sigmask(SIG_BLOCK, &others, &before);
    const int error = pthread_create(thread, attributes, run, argument);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return error;
}
