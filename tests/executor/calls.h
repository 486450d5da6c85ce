/* Runs one collective on several ranks in one thread, in a random order of turns, and checks every
 * byte. */
#ifndef TT_TESTS_EXECUTOR_CALLS_H
#define TT_TESTS_EXECUTOR_CALLS_H

#include "executor/work.h"
#include "transport/together.h"

struct trial {
    const struct tt_algorithm *algorithm;
    int nranks, root;
    size_t count;
    bool in_place;
    struct tt_reduction reduction; /* type int32 or float */
    unsigned seed;
};

struct ranks {
    struct together all;
    struct tt_engine engines[TOGETHER_ROOM];
    bool from_copies; /* programs and bindings are copied, and the originals overwritten, before
                       * they run */
    int most_copies;  /* of the programs that have run */
};

/* One rank of an all-reduce (int32, sum); destroy `loaded` when the work has ended. */
struct all_reduce {
    struct tt_loaded *loaded;
    struct tt_binding binding;
    struct tt_work work;
};
/* Makes the rank's work by this algorithm, which has not begun. */
bool all_reduce_make(struct all_reduce *made, struct ranks *ranks, int rank, const char *algorithm,
                     size_t count, const int32_t *input, int32_t *output);

bool ranks_open(struct ranks *ranks, int nranks, const struct tt_fabric_config *config);
/* host_of[r] names rank r's host; hosts are joined by wires over loopback. */
bool ranks_open_on(struct ranks *ranks, int nranks, const uint64_t *host_of,
                   const struct tt_fabric_config *config);
void ranks_close(struct ranks *ranks);

/* Fails the running test, naming the trial, when anything differs. */
void run_trial(struct ranks *ranks, const struct trial *trial);

#endif
