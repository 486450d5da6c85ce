/* Tells that something takes long, while it does: a disk that hangs tells nothing itself. */
#ifndef TR_SLOW_H
#define TR_SLOW_H

#include <pthread.h>
#include <semaphore.h>
#include <stdbool.h>

/* From tr_slow_begin to tr_slow_end; the caller's, which stays at its place. */
struct tr_slow {
    char note[512];
    pthread_t thread;
    sem_t over;
    bool has_thread;
};

/* Prints the line `note` to the standard error after 5 s, unless tr_slow_end came before. Where
 * there is no thread for it, nothing is printed. */
void tr_slow_begin(struct tr_slow *slow, const char *note);
void tr_slow_end(struct tr_slow *slow);

#endif
