/* Starting the library's own threads. */
#ifndef TT_BASE_THREAD_H
#define TT_BASE_THREAD_H

#include <pthread.h>

/* As pthread_create; attributes may be NULL. The thread takes no signal that is sent to the
 * process: those are for the application's threads. The signals of a fault in the thread itself
 * (SIGSEGV and the other synchronous ones) are left as they are in the caller: were they blocked,
 * the kernel would end the process without running the application's handler. 0, or an errno. */
int tt_thread_start(pthread_t *thread, const pthread_attr_t *attributes, void *(*run)(void *),
                    void *argument);

/* How many threads this process can have at most, by the limits of the system and the user. *limit:
 * the name of the least of these. */
long tt_thread_limit(const char **limit);

#endif
