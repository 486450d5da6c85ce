/* For tests: the pieces of operations in another order. A program that has shuffle.c and is linked
 * with --wrap=tr_pool_run calls the pool through it. */
#ifndef TR_TESTS_SHUFFLE_H
#define TR_TESTS_SHUFFLE_H

#include <stdint.h>

/* From now on the pieces of each operation, on all threads, begin in an order that depends on the
 * seed and differs from call to call; 0: in the order of their numbers. Not while a call runs. */
void shuffle_pieces(uint64_t seed);

/* How many pieces this thread has given to the pool so far, in calls of two and more. */
long pieces_given(void);

#endif
