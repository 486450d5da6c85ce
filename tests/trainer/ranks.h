/* Ranks as threads of the test program: each has a communicator of all of them. */
#ifndef TT_TESTS_TRAINER_RANKS_H
#define TT_TESTS_TRAINER_RANKS_H

#include <pthread.h>
#include <stdbool.h>

#include "tutti.h"

enum { MOST_RANKS = 8 };

struct rank {
    pthread_t thread;
    tuttiComm_t world; /* for tr_mesh_init, which takes it over */
    int rank, nranks;
    const void *arg;
    void (*body)(struct rank *self);
};

static inline void *rank_thread(void *arg)
{
    struct rank *self = arg;
    self->body(self);
    return NULL;
}

/* Runs body on `nranks` ranks and waits for them. False when they could not be made. */
static inline bool run_ranks(int nranks, void (*body)(struct rank *self), const void *arg)
{
    tuttiComm_t comms[MOST_RANKS];
    struct rank ranks[MOST_RANKS];
    if (tuttiCommInitAll(comms, nranks, NULL) != tuttiSuccess) return false;
    int n = 0;
    for (; n < nranks; ++n) {
        ranks[n] =
            (struct rank){.world = comms[n], .rank = n, .nranks = nranks, .arg = arg, .body = body};
        if (pthread_create(&ranks[n].thread, NULL, rank_thread, &ranks[n])) break;
    }
    for (int r = 0; r < n; ++r) pthread_join(ranks[r].thread, NULL);
    return n == nranks;
}

#endif
