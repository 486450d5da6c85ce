/* Ranks that one thread drives: their calls are issued in groups. */
#ifndef TT_TESTS_DEVICE_DRIVEN_H
#define TT_TESTS_DEVICE_DRIVEN_H

#include "ranks_on_gpus.h"

enum { DRIVEN_N = 120 };

/* Each rank has DRIVEN_N numbers, which its calls add up in place. */
struct driven {
    int nranks;
    int gpus[MOST_RANKS];
    tuttiComm_t comms[MOST_RANKS];
    int *memory[MOST_RANKS];
    void *device_streams[MOST_RANKS];
    tuttiStream_t streams[MOST_RANKS];
};

/* Rank r on GPU r % ngpus. timeout_ms 0: the setting's. */
bool driven_begin_with(struct driven *d, int nranks, int ngpus, int timeout_ms);
bool driven_begin(struct driven *d, int nranks, int ngpus);
void driven_finish(struct driven *d);

/* The stream of a rank's calls: that of the first rank on its GPU, its own, or none. */
typedef tuttiStream_t (*driven_choice)(const struct driven *d, int rank);
tuttiStream_t driven_stream_of_gpu(const struct driven *d, int rank);
tuttiStream_t driven_stream_of_rank(const struct driven *d, int rank);
tuttiStream_t driven_no_stream(const struct driven *d, int rank);

void driven_write_numbers(struct driven *d);
/* Sums of sums, which are right only one after the other; a group of all ranks. */
void driven_issue_sums(struct driven *d, int ncalls, driven_choice stream);
void driven_synchronize(struct driven *d);
/* As driven_issue_sums leaves them. */
void driven_check_sums(struct driven *d, int ncalls);

#endif
