/* Threads beside the main one. */
#ifndef TR_THREAD_H
#define TR_THREAD_H

#include <pthread.h>
#include <signal.h>
#include <stdbool.h>

/* Starts a thread to which no signal is delivered: the main thread keeps them in mind. */
static inline bool tr_thread_start(pthread_t *thread, void *(*run)(void *), void *arg)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, &before);
    const int error = pthread_create(thread, NULL, run, arg);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return error == 0;
}

#endif
