/* Which small schedules fold every element in one step, in rank order, as verify finds. */
#include <string.h>

#include "hand.h"
#include "shim.h"

/* Reductions over three ranks to rank 2. */
/* clang-format off */
#define SENDS(rank) {rank, 0, {.local = IN(0), .send = PEER(2)}}

static const struct line in_order[] = {
    SENDS(0), SENDS(1),
    {2, 0, {.recv = PEERS(0, 2), .own_at = 2, .op = TT_FOLD, .local = IN(0), .finish = true, .dst = OUT(0)}},
};
static const struct line own_first[] = {
    SENDS(0), SENDS(1),
    {2, 0, {.recv = PEERS(0, 2), .op = TT_FOLD, .local = IN(0), .finish = true, .dst = OUT(0)}},
};
static const struct line backwards[] = {
    SENDS(0), SENDS(1),
    {2, 0, {.recv = {.first = 1, .number = 2, .stride = -1}, .own_at = 2, .op = TT_FOLD, .local = IN(0), .finish = true, .dst = OUT(0)}},
};
static const struct line in_two_steps[] = {
    {0, 0, {.local = IN(0), .send = PEER(1)}},
    {1, 0, {.recv = PEER(0), .own_at = 1, .op = TT_FOLD, .local = IN(0), .send = PEER(2)}},
    {2, 0, {.recv = PEER(1), .own_at = 1, .op = TT_FOLD, .local = IN(0), .finish = true, .dst = OUT(0)}},
};
static const struct line finished_later[] = {
    SENDS(0), SENDS(1),
    {2, 0, {.recv = PEERS(0, 2), .own_at = 2, .op = TT_FOLD, .local = IN(0), .dst = OUT(0)}},
    {2, 0, {.local = OUT(0), .finish = true, .dst = OUT(0)}},
};
static const struct line met[] = {
    {0, 0, {.kind = TT_STEP_MEET, .op = TT_FOLD, .recv = PEERS(0, 3), .local = IN(0)}},
    {1, 0, {.kind = TT_STEP_MEET, .op = TT_FOLD, .recv = PEERS(0, 3), .local = IN(0)}},
    {2, 0, {.kind = TT_STEP_MEET, .op = TT_FOLD, .recv = PEERS(0, 3), .local = IN(0), .finish = true, .dst = OUT(0)}},
};
/* clang-format on */

static const struct {
    const char *name;
    struct hand hand;
    bool is_in_order;
} cases[] = {
#define CASE(lines, is)                                                                            \
    {                                                                                              \
#lines, {.shape = {.collective = TT_REDUCE, .nranks = 3, .root = 2 }, LINES(lines) }, is   \
    }
    CASE(in_order, true),      CASE(own_first, false),      CASE(backwards, false),
    CASE(in_two_steps, false), CASE(finished_later, false), CASE(met, true),
};

TEST(rank_order, is_found_where_one_step_folds_from_the_first_rank_to_the_last)
{
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const struct tt_steps steps = hand_steps(&cases[i].hand);
        struct tt_verify_report report;
        CHECK_MESSAGE(tt_verify(&steps, 10, &report) == TT_OK, "%s: %s", cases[i].name,
                      report.text);
        CHECK_MESSAGE(report.in_rank_order == cases[i].is_in_order, "%s: found %d (%s)",
                      cases[i].name, report.in_rank_order, report.order);
        CHECK_EQ(report.order[0] == '\0', report.in_rank_order);
        CHECK(report.in_rank_order || strstr(report.order, "rank 2 channel 0 step"));
    }
}
