/* Schedules written by hand, for tests. */
#ifndef TT_TESTS_SCHEDULE_HAND_H
#define TT_TESTS_SCHEDULE_HAND_H

#include "schedule/schedule.h"

/* One step; the steps of a rank and channel run in the order of their lines. */
struct line {
    int rank, channel;
    struct tt_step step;
};

/* A schedule family of all ranks. nblocks counts only where the collective lets the algorithm
 * choose. */
struct hand {
    struct tt_shape shape;
    int nblocks, nchannels, nscratch; /* 0: 1, 1, 0 */
    const struct line *lines;
    int nlines;
};

/* clang-format off */
#define SPAN(where, from, blocks) \
    {.buffer = (where), .first = (from), .number = (blocks), .run = (blocks)}
#define IN(block) SPAN(TT_INPUT, block, 1)
#define OUT(block) SPAN(TT_OUTPUT, block, 1)
#define SLOT(block, place) \
    {.buffer = TT_SCRATCH, .first = (block), .number = 1, .run = 1, .slot_rule = TT_SLOT_IN_ORDER, .slot = (place)}
#define PEERS(from, peers) {.first = (from), .number = (peers), .stride = 1}
#define PEER(rank) {.first = (rank), .number = 1}
/* clang-format on */
#define LINES(array) .lines = array, .nlines = (int)(sizeof(array) / sizeof(array)[0])

/* The steps of `hand`, for tt_verify and its like. Uses static storage: one at a time. */
struct tt_steps hand_steps(const struct hand *hand);

/* Proves for `count`; on refutation fails the test. */
void expect_proved(const struct hand *hand, size_t count, const char *file, int line);
/* Must be refuted with a text that contains `text`. */
void expect_refuted(const struct hand *hand, size_t count, const char *text, const char *file,
                    int line);
#define EXPECT_PROVED(hand, count) expect_proved(&(hand), count, __FILE__, __LINE__)
#define EXPECT_REFUTED(hand, count, text) expect_refuted(&(hand), count, text, __FILE__, __LINE__)

#endif
