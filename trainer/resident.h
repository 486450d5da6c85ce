/* The memory that the kernel counts for the process of a rank (VmHWM), planned and measured. */
#ifndef TR_RESIDENT_H
#define TR_RESIDENT_H

#include "rehearse.h"

/* Bytes of the process of a rank, at most. They are doubles: a plan may be of more than 64 bits
 * count. */
struct tr_resident {
    double own;     /* the rank's arenas, in whole huge pages */
    double peers;   /* arenas of other ranks of the host that the process maps */
    double process; /* code, libraries and their buffers, threads */
};

/* What `nthreads` threads of a rank take together beyond one: a worker of the pool has room for
 * scores, a stack, and buffers of its own in oneDNN. */
uint64_t tr_resident_threads(int nthreads);

/* What the process of a rank of one thread will have, whose arenas have the bytes of `own`. `tied`:
 * those of the rank of the other end stage that holds the same tied table; NULL when there is none.
 * All ranks count as ranks of one host, and every message between two of them as read in place:
 * what two ranks do. Larger groups may copy some messages instead, and then have less. The text,
 * and 4 MiB while a checkpoint is read, are not included. */
void tr_resident_of(const int size[TR_NUM_AXES], enum tr_sharding sharding,
                    const struct tr_memory *own, const struct tr_memory *tied,
                    struct tr_resident *resident);

double tr_resident_sum(const struct tr_resident *resident);

/* The largest resident set that this process has had, VmHWM; 0 where the kernel does not tell. */
uint64_t tr_resident_peak(void);

#endif
