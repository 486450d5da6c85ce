/* Small right schedules: verify must prove them, count and print must say what they are. */
#include <stdio.h>
#include <string.h>

#include "hand.h"
#include "interpreter.h"
#include "schedule/schedule.h"
#include "shim.h"

/* clang-format off */
/* All-reduce round a ring of three, in blocks 0, 1, 2. */
static const struct line ring_lines[] = {
    {0, 0, {.local = IN(2), .send = PEER(1)}},
    {0, 0, {.recv = PEER(2), .op = TT_FOLD, .local = IN(1), .send = PEER(1)}},
    {0, 0, {.recv = PEER(2), .op = TT_FOLD, .local = IN(0), .finish = true, .dst = OUT(0), .send = PEER(1)}},
    {0, 0, {.recv = PEER(2), .dst = OUT(2), .send = PEER(1)}},
    {0, 0, {.recv = PEER(2), .dst = OUT(1)}},
    {1, 0, {.local = IN(0), .send = PEER(2)}},
    {1, 0, {.recv = PEER(0), .op = TT_FOLD, .local = IN(2), .send = PEER(2)}},
    {1, 0, {.recv = PEER(0), .op = TT_FOLD, .local = IN(1), .finish = true, .dst = OUT(1), .send = PEER(2)}},
    {1, 0, {.recv = PEER(0), .dst = OUT(0), .send = PEER(2)}},
    {1, 0, {.recv = PEER(0), .dst = OUT(2)}},
    {2, 0, {.local = IN(1), .send = PEER(0)}},
    {2, 0, {.recv = PEER(1), .op = TT_FOLD, .local = IN(0), .send = PEER(0)}},
    {2, 0, {.recv = PEER(1), .op = TT_FOLD, .local = IN(2), .finish = true, .dst = OUT(2), .send = PEER(0)}},
    {2, 0, {.recv = PEER(1), .dst = OUT(1), .send = PEER(0)}},
    {2, 0, {.recv = PEER(1), .dst = OUT(0)}},
};
/* clang-format on */
static const struct hand ring = {.shape = {.collective = TT_ALL_REDUCE, .nranks = 3, .root = 0},
                                 .nblocks = 3,
                                 LINES(ring_lines)};

TEST(proved, a_ring_of_three_by_hand)
{
    EXPECT_PROVED(ring, 1000);
    EXPECT_PROVED(ring, 0);
    EXPECT_PROVED(ring, 1);
}

TEST(proved, the_ring_of_three_is_safe_for_direct_links_and_for_every_count)
{
    const struct tt_steps steps = hand_steps(&ring);
    struct tt_verify_report report;
    REQUIRE(tt_verify(&steps, 10, &report) == TT_OK);
    CHECK(report.direct_safe);
    CHECK(report.any_count);
    CHECK_EQ(report.nsteps, 15);
    CHECK_EQ(report.nmessages, 12);
    CHECK_STR(report.text, "");
    CHECK_STR(report.direct, "");
}

TEST(count, the_ring_of_three)
{
    const struct tt_steps steps = hand_steps(&ring);
    struct tt_formula counted;
    REQUIRE(tt_count(&steps, &counted) == TT_OK);
    CHECK_EQ(counted.steps, 5);
    CHECK_EQ(counted.depth, 4);
    CHECK_EQ(counted.sent, 4);
    CHECK_EQ(counted.reduced, 4);
    CHECK_EQ(counted.scratch, 0);
    CHECK_EQ(counted.message, 1);
}

/* Rank 1 folds in rank order: its own contribution takes the second place. */
static const struct line in_order_lines[] = {
    {0, 0, {.local = IN(0), .send = PEER(1)}},
    {1,
     0,
     {.recv = {.first = 0, .number = 2, .stride = 1, .has_gap = true, .gap = 1},
      .own_at = 1,
      .op = TT_FOLD,
      .local = IN(0),
      .finish = true,
      .dst = OUT(0)}},
    {2, 0, {.local = IN(0), .send = PEER(1)}},
};

TEST(proved, a_reduction_with_its_own_part_between_two_others)
{
    const struct hand hand = {.shape = {.collective = TT_REDUCE, .nranks = 3, .root = 1},
                              LINES(in_order_lines)};
    EXPECT_PROVED(hand, 5);
    const struct tt_steps steps = hand_steps(&hand);
    struct tt_formula counted;
    REQUIRE(tt_count(&steps, &counted) == TT_OK);
    CHECK_EQ(counted.reduced, 3);
    CHECK_EQ(counted.depth, 1);
}

/* Two ranks, two channels with different directions of the same exchange. */
static const struct line two_channels_lines[] = {
    {0, 0, {.local = IN(0), .send = PEER(1)}},
    {0, 0, {.recv = PEER(1), .dst = OUT(1)}},
    {0, 0, {.local = IN(0), .dst = OUT(0)}},
    {0, 1, {.local = IN(0), .dst = OUT(0), .send = PEER(1)}},
    {0, 1, {.recv = PEER(1), .dst = OUT(1)}},
    {1, 0, {.recv = PEER(0), .dst = OUT(0)}},
    {1, 0, {.local = IN(1), .dst = OUT(1), .send = PEER(0)}},
    {1, 1, {.local = IN(1), .dst = OUT(1), .send = PEER(0)}},
    {1, 1, {.recv = PEER(0), .dst = OUT(0)}},
};

TEST(proved, two_channels_that_work_in_different_order)
{
    const struct hand hand = {.shape = {.collective = TT_ALL_GATHER, .nranks = 2, .root = 0},
                              .nchannels = 2,
                              LINES(two_channels_lines)};
    EXPECT_PROVED(hand, 5);
}

/* Rank 1 takes through scratch, under another name in another slot. */
static const struct line scratch_lines[] = {
    {0, 0, {.local = SPAN(TT_INPUT, 0, 2), .send = PEER(1)}},
    {0, 0, {.local = IN(0), .dst = OUT(0)}},
    {0, 0, {.recv = PEER(1), .dst = OUT(1)}},
    {1,
     0,
     {.recv = PEER(0),
      .dst = {.buffer = TT_SCRATCH,
              .first = 0,
              .number = 2,
              .run = 2,
              .stride = 0,
              .slot_rule = TT_SLOT_IN_ORDER,
              .slot = 1}}},
    {1,
     0,
     {.local = {.buffer = TT_SCRATCH,
                .first = 0,
                .number = 1,
                .run = 1,
                .stride = 0,
                .slot_rule = TT_SLOT_IN_ORDER,
                .slot = 2},
      .dst = OUT(0)}},
    {1, 0, {.local = IN(1), .dst = OUT(1)}},
    {1, 0, {.local = IN(0), .send = PEER(0)}},
};

TEST(proved, an_all_to_all_through_scratch_slots)
{
    const struct hand hand = {.shape = {.collective = TT_ALL_TO_ALL, .nranks = 2, .root = 0},
                              .nscratch = 3,
                              LINES(scratch_lines)};
    EXPECT_PROVED(hand, 4);
}

/* clang-format off */
static const struct line meeting_lines[] = {
    {0, 0, {.kind = TT_STEP_MEET, .op = TT_FOLD, .recv = PEERS(0, 2), .local = SPAN(TT_INPUT, 0, 2), .finish = true, .dst = OUT(0)}},
    {0, 0, {.kind = TT_STEP_MEET, .recv = PEERS(0, 2), .local = OUT(0), .dst = SPAN(TT_OUTPUT, 0, 2)}},
    {1, 0, {.kind = TT_STEP_MEET, .op = TT_FOLD, .recv = PEERS(0, 2), .local = SPAN(TT_INPUT, 0, 2), .finish = true, .dst = OUT(1)}},
    {1, 0, {.kind = TT_STEP_MEET, .recv = PEERS(0, 2), .local = OUT(1), .dst = SPAN(TT_OUTPUT, 0, 2)}},
};

/* clang-format on */

TEST(proved, an_all_reduce_in_two_meetings)
{
    const struct hand hand = {.shape = {.collective = TT_ALL_REDUCE, .nranks = 2, .root = 0},
                              .nblocks = 2,
                              LINES(meeting_lines)};
    EXPECT_PROVED(hand, 5);
    const struct tt_steps steps = hand_steps(&hand);
    struct tt_formula counted;
    REQUIRE(tt_count(&steps, &counted) == TT_OK);
    CHECK_EQ(counted.depth, 2);
    CHECK_EQ(counted.sent, 3);
    CHECK_EQ(counted.reduced, 2);
    CHECK_EQ(counted.message, 2);
}

/* Equal lengths make block 0 and block 1 exchangeable for even counts only. */
static const struct line renamed_lines[] = {
    {0, 0, {.local = IN(0), .send = PEER(1)}},
    {0, 0, {.local = IN(1), .send = PEER(1)}},
    {0, 0, {.local = SPAN(TT_INPUT, 0, 2), .dst = SPAN(TT_OUTPUT, 0, 2)}},
    {1, 0, {.recv = PEER(0), .dst = SLOT(1, 0)}},
    {1, 0, {.recv = PEER(0), .dst = OUT(1)}},
    {1, 0, {.local = SLOT(1, 0), .dst = OUT(0)}},
};

TEST(proved, other_names_of_the_same_length_only_for_counts_that_make_them_so)
{
    const struct hand hand = {.shape = {.collective = TT_BROADCAST, .nranks = 2, .root = 0},
                              .nblocks = 2,
                              .nscratch = 1,
                              LINES(renamed_lines)};
    const struct tt_steps steps = hand_steps(&hand);
    struct tt_verify_report report;
    REQUIRE(tt_verify(&steps, 128, &report) == TT_OK);
    CHECK(!report.any_count);
    EXPECT_REFUTED(hand, 5,
                   "rank 1 channel 0 step 0: takes block 0 from rank 0 as block 1, which has "
                   "another length");
}

/* ---- Direct links --------------------------------------------------------------------------- */

/* Each sends its input and then overwrites it with the sum, in place: nothing says that the other
 * has read. */
static const struct line exchange_lines[] = {
    {0, 0, {.local = IN(0), .send = PEER(1)}},
    {0, 0, {.recv = PEER(1), .op = TT_FOLD, .local = IN(0), .finish = true, .dst = OUT(0)}},
    {1, 0, {.local = IN(0), .send = PEER(0)}},
    {1, 0, {.recv = PEER(0), .op = TT_FOLD, .local = IN(0), .finish = true, .dst = OUT(0)}},
};

TEST(direct, an_exchange_in_place_is_right_but_not_safe)
{
    const struct hand hand = {.shape = {.collective = TT_ALL_REDUCE, .nranks = 2, .root = 0},
                              LINES(exchange_lines)};
    const struct tt_steps steps = hand_steps(&hand);
    struct tt_verify_report report;
    REQUIRE(tt_verify(&steps, 5, &report) == TT_OK);
    CHECK(!report.direct_safe);
    CHECK_MESSAGE(strstr(report.direct, "overwrites OUTPUT[0], which rank ") &&
                      strstr(report.direct, "(in place)"),
                  "%s", report.direct);
}

/* Each rank first sends back what it has read by reference, from scratch, and waits for that of the
 * other, before it overwrites what it sent. */
static const struct line thanks_lines[] = {
    {0, 0, {.local = IN(0), .send = PEER(1)}},
    {0, 0, {.recv = PEER(1), .dst = SLOT(0, 0), .send = PEER(1)}},
    {0, 0, {.recv = PEER(1), .dst = SLOT(0, 1)}},
    {0, 0, {.local = IN(0), .dst = SLOT(0, 1), .send = PEER(1)}},
    {0, 0, {.recv = PEER(1), .op = TT_FOLD, .local = IN(0), .finish = true, .dst = OUT(0)}},
    {1, 0, {.local = IN(0), .send = PEER(0)}},
    {1, 0, {.recv = PEER(0), .dst = SLOT(0, 0), .send = PEER(0)}},
    {1, 0, {.recv = PEER(0), .dst = SLOT(0, 1)}},
    {1, 0, {.local = IN(0), .dst = SLOT(0, 1), .send = PEER(0)}},
    {1, 0, {.recv = PEER(0), .op = TT_FOLD, .local = IN(0), .finish = true, .dst = OUT(0)}},
};

TEST(direct, a_message_back_makes_it_safe)
{
    const struct hand hand = {.shape = {.collective = TT_ALL_REDUCE, .nranks = 2, .root = 0},
                              .nscratch = 2,
                              LINES(thanks_lines)};
    const struct tt_steps steps = hand_steps(&hand);
    struct tt_verify_report report;
    REQUIRE(tt_verify(&steps, 5, &report) == TT_OK);
    CHECK_MESSAGE(report.direct_safe, "%s", report.direct);
}

/* Rank 0 sends OUTPUT[0], hears from rank 1, and overwrites it, also out of place. */
static const struct line overwrite_lines[] = {
    {0, 0, {.local = IN(0), .dst = OUT(0), .send = PEER(1)}},
    {0, 0, {.recv = PEER(1), .dst = OUT(1)}},
    {0, 0, {.local = OUT(1), .dst = OUT(0), .send = PEER(1)}},
    {0, 0, {.recv = PEER(1), .dst = OUT(0)}},
    {1, 0, {.recv = PEER(0), .dst = OUT(0)}},
    {1, 0, {.local = IN(1), .dst = OUT(1), .send = PEER(0)}},
    {1, 0, {.recv = PEER(0), .dst = SLOT(0, 0)}},
    {1, 0, {.local = OUT(0), .send = PEER(0)}},
};

TEST(direct, an_answer_counts_only_when_it_is_sent_after_the_reading)
{
    struct line lines[sizeof overwrite_lines / sizeof *overwrite_lines];
    memcpy(lines, overwrite_lines, sizeof lines);
    const struct hand hand = {.shape = {.collective = TT_ALL_GATHER, .nranks = 2, .root = 0},
                              .nscratch = 1,
                              LINES(lines)};
    const struct tt_steps steps = hand_steps(&hand);
    struct tt_verify_report report;
    tt_status status = tt_verify(&steps, 5, &report);
    CHECK_MESSAGE(status == TT_OK, "%s", report.text);
    CHECK_MESSAGE(report.direct_safe, "%s", report.direct);
    lines[4] = overwrite_lines[5];
    lines[5] = overwrite_lines[4];
    status = tt_verify(&steps, 5, &report);
    CHECK_MESSAGE(status == TT_OK, "%s", report.text);
    CHECK(!report.direct_safe);
    CHECK_MESSAGE(strstr(report.direct,
                         "rank 0 channel 0 step 2 overwrites OUTPUT[0], which rank 1 "
                         "may not have read yet (sent in step 0)"),
                  "%s", report.direct);
}

/* ---- Posts ---------------------------------------------------------------------------------- */

static void check_posts(const struct hand *hand, bool safe, const char *text)
{
    const struct tt_steps steps = hand_steps(hand);
    struct tt_verify_report report;
    const tt_status status = tt_verify(&steps, 5, &report);
    CHECK_MESSAGE(status == TT_OK, "%s", report.text);
    CHECK_EQ(report.post_safe, safe);
    CHECK_MESSAGE(safe ? !report.post[0] : strstr(report.post, text) != NULL, "%s", report.post);
}

#define GATHER2 .shape = {.collective = TT_ALL_GATHER, .nranks = 2, .root = 0}
#define ALL2 .shape = {.collective = TT_ALL_REDUCE, .nranks = 2, .root = 0}

/* Rank 1 uses the place of rank 0's block for something else before that block comes. */
static const struct line own_use_lines[] = {
    {0, 0, {.local = IN(0), .dst = OUT(0), .send = PEER(1)}},
    {0, 0, {.recv = PEER(1), .dst = OUT(1)}},
    {1, 0, {.local = IN(1), .dst = OUT(0)}},
    {1, 0, {.local = OUT(0), .dst = OUT(1), .send = PEER(0)}},
    {1, 0, {.recv = PEER(0), .dst = OUT(0)}},
};

TEST(posts, are_refused_for_memory_that_the_receiver_itself_uses_before)
{
    check_posts(&(struct hand){GATHER2, LINES(own_use_lines)}, false,
                "rank 1 channel 0 step 2: rank 0 may not write OUTPUT[0] itself in its step 0, as "
                "its own rank 1 may still use that memory");
}

/* Rank 1 uses the memory before, but rank 0 sends when rank 1 has said, with its own block, that
 * the place is free. */
static const struct line answered_lines[] = {
    {0, 0, {.local = IN(0), .dst = OUT(0)}},    {0, 0, {.recv = PEER(1), .dst = OUT(1)}},
    {0, 0, {.local = OUT(0), .send = PEER(1)}}, {1, 0, {.local = IN(1), .dst = OUT(0)}},
    {1, 0, {.local = OUT(0), .dst = OUT(1)}},   {1, 0, {.local = OUT(1), .send = PEER(0)}},
    {1, 0, {.recv = PEER(0), .dst = OUT(0)}},
};

TEST(posts, are_allowed_when_the_sender_knows_that_the_memory_is_free)
{
    check_posts(&(struct hand){GATHER2, LINES(answered_lines)}, true, "");
}

/* Rank 1 sends its block, from which rank 0 sees that it may send its own, before rank 1 has stored
 * that block at the place of rank 0's. */
static const struct line late_store_lines[] = {
    {0, 0, {.local = IN(0), .dst = OUT(0)}},
    {0, 0, {.recv = PEER(1), .dst = OUT(1)}},
    {0, 0, {.local = IN(0), .send = PEER(1)}},
    {1, 0, {.local = IN(1), .dst = OUT(0), .send = PEER(0)}},
    {1, 0, {.local = IN(1), .dst = OUT(1)}},
    {1, 0, {.recv = PEER(0), .dst = OUT(0)}},
};

/* Rank 1 sends a sum, which rank 0 finishes and sends back, before rank 1 has stored it. */
static const struct line late_fold_lines[] = {
    {0, 0, {.local = IN(0), .send = PEER(1)}},
    {0, 0, {.recv = PEER(1), .finish = true, .dst = OUT(0), .send = PEER(1)}},
    {1, 0, {.recv = PEER(0), .op = TT_FOLD, .local = IN(0), .dst = OUT(0), .send = PEER(0)}},
    {1, 0, {.recv = PEER(0), .dst = OUT(0)}},
};

/* Whether some execution with posts goes wrong. */
static bool goes_wrong_with_posts(const struct hand *hand)
{
    const struct tt_steps steps = hand_steps(hand);
    bool wrong = false;
    for (uint64_t seed = 1; seed <= 200 && !wrong; seed++)
        wrong = interpret(&steps, &(struct run){.count = 5, .posts = true, .seed = seed}) != NULL;
    return wrong;
}

TEST(posts, are_refused_for_memory_in_which_the_receiver_stores_after_it_has_sent)
{
    const struct hand copy = {GATHER2, LINES(late_store_lines)};
    CHECK(goes_wrong_with_posts(&copy));
    check_posts(&copy, false,
                "rank 1 channel 0 step 2: rank 0 may not write OUTPUT[0] itself in its step 2, as "
                "its own rank 1 may still use that memory");
    const struct hand fold = {ALL2, LINES(late_fold_lines)};
    CHECK(goes_wrong_with_posts(&fold));
    check_posts(&fold, false,
                "rank 1 channel 0 step 1: rank 0 may not write OUTPUT[0] itself in its step 1, as "
                "its own rank 1 may still use that memory");
}

/* Rank 0 finishes the sum of the meeting and sends it, before rank 1 has stored that sum. */
static const struct line late_meeting_lines[] = {
    {0,
     0,
     {.kind = TT_STEP_MEET, .op = TT_FOLD, .recv = PEERS(0, 2), .local = IN(0), .dst = OUT(0)}},
    {0, 0, {.local = OUT(0), .finish = true, .dst = OUT(0), .send = PEER(1)}},
    {1,
     0,
     {.kind = TT_STEP_MEET, .op = TT_FOLD, .recv = PEERS(0, 2), .local = IN(0), .dst = OUT(0)}},
    {1, 0, {.recv = PEER(0), .dst = OUT(0)}},
};

/* Rank 1 says that it has stored the sum of the meeting before rank 0 sends the finished one. */
static const struct line answered_meeting_lines[] = {
    {0,
     0,
     {.kind = TT_STEP_MEET, .op = TT_FOLD, .recv = PEERS(0, 2), .local = IN(0), .dst = OUT(0)}},
    {0, 0, {.recv = PEER(1), .finish = true, .dst = OUT(0)}},
    {0, 0, {.local = OUT(0), .send = PEER(1)}},
    {1,
     0,
     {.kind = TT_STEP_MEET, .op = TT_FOLD, .recv = PEERS(0, 2), .local = IN(0), .dst = OUT(0)}},
    {1, 0, {.local = OUT(0), .send = PEER(0)}},
    {1, 0, {.recv = PEER(0), .dst = OUT(0)}},
};

TEST(posts, are_refused_for_memory_in_which_the_receiver_stores_the_result_of_a_meeting)
{
    const struct hand late = {ALL2, LINES(late_meeting_lines)};
    CHECK(goes_wrong_with_posts(&late));
    check_posts(&late, false,
                "rank 1 channel 0 step 1: rank 0 may not write OUTPUT[0] itself in its step 1, as "
                "its own rank 1 may still use that memory");
    const struct hand answered = {ALL2, LINES(answered_meeting_lines)};
    CHECK(!goes_wrong_with_posts(&answered));
    check_posts(&answered, true, "");
}

/* ---- Printing ------------------------------------------------------------------------------- */

static void collect(void *arg, const char *line)
{
    char *text = arg;
    const size_t used = strlen(text);
    snprintf(text + used, 2048 - used, "%s\n", line);
}

TEST(print, the_ring_of_three_in_columns)
{
    const struct tt_steps steps = hand_steps(&ring);
    char text[2048] = "";
    tt_print(&steps, 0, collect, text);
    CHECK_STR(text, "0: INPUT[2]               send 1\n"
                    "1: recv 2 reduce INPUT[1] send 1\n"
                    "2: recv 2 reduce INPUT[0] finish -> OUTPUT[0] send 1\n"
                    "3: recv 2                 -> OUTPUT[2] send 1\n"
                    "4: recv 2                 -> OUTPUT[1]\n");
}

static void check_print(const struct tt_step *step, const char *expected)
{
    const struct tt_shape shape = {.collective = TT_ALL_REDUCE, .nranks = 16};
    char text[256];
    tt_step_print(step, &shape, 8, text, sizeof text);
    CHECK_STR(text, expected);
}

TEST(print, spans_and_peers_of_every_form)
{
    check_print(&(struct tt_step){.local = SPAN(TT_INPUT, 2, 2), .send = PEER(1)},
                "INPUT[2..3] send 1");
    check_print(&(struct tt_step){.local = SPAN(TT_OUTPUT, 6, 4), .send = PEERS(0, 16)},
                "OUTPUT[6..1] send 0..15");
    check_print(
        &(struct tt_step){
            .local = {.buffer = TT_OUTPUT, .first = 1, .number = 3, .run = 1, .stride = 2},
            .send = {.first = 14, .number = 3, .stride = 1}},
        "OUTPUT[1,3,5] send 14,15,0");
    check_print(&(struct tt_step){.recv = PEER(3),
                                  .dst = {.buffer = TT_SCRATCH,
                                          .first = 1,
                                          .number = 4,
                                          .run = 2,
                                          .stride = 4,
                                          .slot_rule = TT_SLOT_IN_ORDER,
                                          .slot = 0}},
                "recv 3 -> SCRATCH[1..2,5..6]@0");
    check_print(&(struct tt_step){.kind = TT_STEP_MEET,
                                  .op = TT_FOLD,
                                  .recv = PEERS(0, 4),
                                  .local = IN(0),
                                  .dst = OUT(0)},
                "meet 0..3 reduce INPUT[0] -> OUTPUT[0]");
    check_print(&(struct tt_step){.recv = PEER(1), .send = PEER(2)}, "recv 1 send 2");
    check_print(&(struct tt_step){.send = PEER(2)}, "send 2");
    check_print(&(struct tt_step){.send = {.first = 0, .number = 16, .stride = -1}},
                "send 0,15,14,..,1");
}

TEST(print, a_short_buffer_cuts_the_text)
{
    const struct tt_shape shape = {.collective = TT_ALL_REDUCE, .nranks = 16};
    const struct tt_step step = {.local = IN(2), .send = PEER(1)};
    char text[8];
    tt_step_print(&step, &shape, 8, text, sizeof text);
    CHECK_STR(text, "INPUT[2");
}

/* ---- Materialised --------------------------------------------------------------------------- */

TEST(create, the_array_holds_what_the_functions_say)
{
    const struct tt_steps steps = hand_steps(&ring);
    struct tt_schedule *schedule;
    REQUIRE(tt_schedule_create(steps.algorithm, &steps.shape, 1, &schedule) == TT_OK);
    CHECK_EQ(schedule->nchannels, 1);
    CHECK_EQ(schedule->nsteps[0], 5);
    CHECK_EQ(schedule->nblocks, 3);
    CHECK(!schedule->meets);
    for (int i = 0; i < 5; i++)
        CHECK(memcmp(&schedule->steps[0][i], &ring_lines[5 + i].step, sizeof(struct tt_step)) == 0);
    tt_schedule_destroy(schedule);
    tt_schedule_destroy(NULL);
}

TEST(create, shapes_out_of_range_are_refused)
{
    const struct tt_steps steps = hand_steps(&ring);
    struct tt_schedule *schedule = NULL;
    const struct tt_shape none = {TT_ALL_REDUCE, 0, 0, NULL}, other = {TT_REDUCE, 3, 0, NULL},
                          root = {TT_ALL_REDUCE, 3, 3, NULL};
    CHECK_EQ(tt_schedule_create(steps.algorithm, &none, 0, &schedule), TT_ERR_ARGUMENT);
    CHECK_EQ(tt_schedule_create(steps.algorithm, &other, 0, &schedule), TT_ERR_ARGUMENT);
    CHECK_EQ(tt_schedule_create(steps.algorithm, &root, 0, &schedule), TT_ERR_ARGUMENT);
    CHECK_EQ(tt_schedule_create(steps.algorithm, &steps.shape, 3, &schedule), TT_ERR_ARGUMENT);
    CHECK_EQ(tt_schedule_create(steps.algorithm, &steps.shape, -1, &schedule), TT_ERR_ARGUMENT);
    CHECK(schedule == NULL);
}

TEST(create, the_first_wrong_step_is_reported)
{
    struct line lines[sizeof ring_lines / sizeof *ring_lines];
    memcpy(lines, ring_lines, sizeof lines);
    lines[1].step.send.first = 3;
    lines[2].step.send.first = -1;
    const struct hand hand = {
        .shape = {.collective = TT_ALL_REDUCE, .nranks = 3, .root = 0}, .nblocks = 3, LINES(lines)};
    const struct tt_steps steps = hand_steps(&hand);
    struct tt_schedule *schedule = NULL;
    CHECK_EQ(tt_schedule_create(steps.algorithm, &steps.shape, 0, &schedule), TT_ERR_INTERNAL);
    CHECK_STR(tt_last_error(), "all_reduce:by hand over 3 ranks, rank 0 channel 0 step 1: "
                               "the first peer is not a rank");
    CHECK(schedule == NULL);
}
