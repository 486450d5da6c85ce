/* Tests of the pipeline schedules, their verifier and drawing. */
#include <stdlib.h>
#include <string.h>

#include "parallel/schedule.h"
#include "shim.h"

enum { MOST_STAGES = 16, MOST_STEPS = 4 * 100 + 2 };

static int least(int a, int b)
{
    return a < b ? a : b;
}

/* ---- All schedules -------------------------------------------------------------------------- */

/* One stage, counted from its steps alone. */
static void check_stage(const struct tr_schedule *schedule, const long *starts, long *end)
{
    const int p = schedule->nstages, m = schedule->nbatches, s = schedule->stage;
    int forwards = 0, backwards = 0, in_flight = 0, most = 0, messages = 0;
    long busy = 0;
    for (int i = 0; i < schedule->nsteps; ++i) {
        const struct tr_schedule_step *step = &schedule->steps[i];
        const bool forward = step->action == TR_FORWARD, backward = step->action == TR_BACKWARD;
        const long units = forward ? 1 : backward ? 2 : 0;
        if (i > 0) CHECK(starts[i] >= *end);
        *end = starts[i] + units;
        busy += units;
        messages += (step->to_next >= 0) + (step->to_previous >= 0);
        in_flight += s == 0 ? forward : step->from_previous >= 0;
        if (in_flight > most) most = in_flight;
        in_flight -= backward;
        if (forward) CHECK_EQ(step->batch, forwards++);
        if (backward) CHECK_EQ(step->batch, backwards++);
    }
    CHECK_EQ(forwards, m);
    CHECK_EQ(backwards, m);
    CHECK_EQ(busy, 3 * m);
    CHECK_EQ(messages, m * ((s > 0) + (s < p - 1)));
    CHECK_EQ(most, schedule->kind == TR_GPIPE ? m : least(p - s, m));
    CHECK_EQ(schedule->nsets, most);
}

static void check_schedule(enum tr_schedule_kind kind, int p, int m)
{
    static long starts[MOST_STAGES][MOST_STEPS];
    long *rows[MOST_STAGES], last = 0;
    for (int s = 0; s < p; ++s) rows[s] = starts[s];
    struct tr_schedule *schedules;
    REQUIRE(tr_schedules_create(&schedules, kind, p, m) == TR_OK);
    CHECK_MESSAGE(tr_schedule_verify(schedules, rows) == TR_OK, "%s", tr_error());
    for (int s = 0; s < p; ++s) {
        long end = 0;
        check_stage(&schedules[s], starts[s], &end);
        if (end > last) last = end;
    }
    CHECK_EQ(last, (m + p - 1) * 3);
    tr_schedules_destroy(schedules);
    if (tt_test_failed()) tt_test_fail(__FILE__, __LINE__, "kind %d, p = %d, m = %d", kind, p, m);
}

TEST(schedule, all_kinds_keep_the_formulas_for_8_stages_and_32_micro_batches)
{
    for (int kind = 0; kind < TR_NUM_SCHEDULES; ++kind)
        for (int p = 1; p <= 8; ++p)
            for (int m = 1; m <= 32 && !tt_test_failed(); ++m)
                check_schedule((enum tr_schedule_kind)kind, p, m);
}

TEST(schedule, larger_ones_keep_them_too)
{
    for (int kind = 0; kind < TR_NUM_SCHEDULES; ++kind) {
        check_schedule((enum tr_schedule_kind)kind, 16, 5);
        check_schedule((enum tr_schedule_kind)kind, 16, 100);
        check_schedule((enum tr_schedule_kind)kind, 3, 100);
    }
}

/* "<p0" receives from the previous stage, ">n0" sends to the next; {} is one group. */
static void print_steps(char *text, size_t nbytes, const struct tr_schedule *schedule)
{
    FILE *out = fmemopen(text, nbytes, "w");
    for (int i = 0; i < schedule->nsteps; ++i) {
        const struct tr_schedule_step *step = &schedule->steps[i];
        if (step->action != TR_EXCHANGE) {
            fprintf(out, " %c%d", "FB"[step->action], step -> batch);
            continue;
        }
        fprintf(out, " {");
        if (step->to_previous >= 0) fprintf(out, ">p%d", step->to_previous);
        if (step->to_next >= 0) fprintf(out, ">n%d", step->to_next);
        if (step->from_previous >= 0) fprintf(out, "<p%d", step->from_previous);
        if (step->from_next >= 0) fprintf(out, "<n%d", step->from_next);
        fprintf(out, "}");
    }
    fclose(out);
}

TEST(schedule, the_messages_between_two_computes_are_one_group_unless_one_needs_the_other)
{
    static const struct {
        enum tr_schedule_kind kind;
        int p, m, stage;
        const char *steps;
    } cases[] = {
        {TR_GPIPE, 3, 2, 0, " F0 {>n0} F1 {>n1} {<n0} B0 {<n1} B1"},
        {TR_GPIPE, 3, 2, 1, " {<p0} F0 {>n0<p1} F1 {>n1} {<n0} B0 {>p0<n1} B1 {>p1}"},
        {TR_GPIPE, 3, 2, 2, " {<p0} F0 {<p1} F1 B0 {>p0} B1 {>p1}"},
        {TR_1F1B, 3, 4, 0, " F0 {>n0} F1 {>n1} F2 {>n2<n0} B0 F3 {>n3<n1} B1 {<n2} B2 {<n3} B3"},
        {TR_1F1B, 3, 4, 1,
         " {<p0} F0 {>n0<p1} F1 {>n1<n0} B0 {>p0<p2} F2 {>n2<n1} B1 {>p1<p3} F3 {>n3<n2} B2"
         " {>p2<n3} B3 {>p3}"},
        {TR_1F1B, 3, 4, 2, " {<p0} F0 B0 {>p0<p1} F1 B1 {>p1<p2} F2 B2 {>p2<p3} F3 B3 {>p3}"},
        {TR_1F1B, 4, 2, 1, " {<p0} F0 {>n0<p1} F1 {>n1} {<n0} B0 {>p0<n1} B1 {>p1}"},
        {TR_1F1B, 1, 2, 0, " F0 B0 F1 B1"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; ++i) {
        char text[512] = "";
        struct tr_schedule schedule;
        REQUIRE(tr_schedule_init(&schedule, cases[i].kind, cases[i].p, cases[i].m,
                                 cases[i].stage) == TR_OK);
        print_steps(text, sizeof text, &schedule);
        CHECK_STR(text, cases[i].steps);
        tr_schedule_fini(&schedule);
    }
}

TEST(schedule, sizes_that_cannot_be_are_errors_with_the_value)
{
    struct tr_schedule schedule;
    CHECK(tr_schedule_init(&schedule, TR_GPIPE, 0, 1, 0) == TR_FAILED);
    CHECK_STR(tr_error(), "a pipeline of 0 stages: 1 to 65536 are possible");
    CHECK(tr_schedule_init(&schedule, TR_GPIPE, 2, 0, 0) == TR_FAILED);
    CHECK_STR(tr_error(), "a pipeline for 0 micro-batches: 1 to 1048576 are possible");
    CHECK(tr_schedule_init(&schedule, TR_GPIPE, 2, 1, 2) == TR_FAILED);
    CHECK_STR(tr_error(), "stage 2 of a pipeline with stages 0 to 1");
}

/* ---- The verifier refuses mistakes ---------------------------------------------------------- */

static int find(const struct tr_schedule *schedule, enum tr_schedule_action action, int batch)
{
    int i = 0;
    while (schedule->steps[i].action != action || schedule->steps[i].batch != batch) ++i;
    return i;
}

/* The EXCHANGE after (places = 1) or before (-1) a compute step. */
static struct tr_schedule_step *beside(struct tr_schedule *schedule, enum tr_schedule_action action,
                                       int batch, int places)
{
    return &schedule->steps[find(schedule, action, batch) + places];
}

static void take_out(struct tr_schedule *schedule, int index)
{
    --schedule->nsteps;
    memmove(&schedule->steps[index], &schedule->steps[index + 1],
            (size_t)(schedule->nsteps - index) * sizeof *schedule->steps);
}

static void put_in(struct tr_schedule *schedule, int index, struct tr_schedule_step step)
{
    const size_t nsteps = (size_t)schedule->nsteps + 1;
    schedule->steps = realloc(schedule->steps, nsteps * sizeof step);
    memmove(&schedule->steps[index + 1], &schedule->steps[index],
            (size_t)(schedule->nsteps++ - index) * sizeof step);
    schedule->steps[index] = step;
}

static void swap(struct tr_schedule *schedule, int a, int b)
{
    const struct tr_schedule_step step = schedule->steps[a];
    schedule->steps[a] = schedule->steps[b];
    schedule->steps[b] = step;
}

static void swap_sends(struct tr_schedule *all)
{
    beside(&all[0], TR_FORWARD, 0, 1)->to_next = 1;
    beside(&all[0], TR_FORWARD, 1, 1)->to_next = 0;
}

static void swap_receives(struct tr_schedule *all)
{
    beside(&all[1], TR_BACKWARD, 0, -1)->from_next = 1;
    beside(&all[1], TR_BACKWARD, 1, -1)->from_next = 0;
}

static void forget_send(struct tr_schedule *all)
{
    take_out(&all[0], find(&all[0], TR_FORWARD, 1) + 1);
}

static void forget_last_send(struct tr_schedule *all)
{
    take_out(&all[2], all[2].nsteps - 1);
}

static void forget_gradient(struct tr_schedule *all)
{
    beside(&all[1], TR_BACKWARD, 0, -1)->from_next = -1;
}

static void forget_input(struct tr_schedule *all)
{
    struct tr_schedule_step *step = beside(&all[1], TR_FORWARD, 1, -1);
    step->from_previous = step->set = -1;
}

static void send_twice(struct tr_schedule *all)
{
    beside(&all[1], TR_BACKWARD, 0, 1)->to_next = 1;
}

static void send_gradient_twice(struct tr_schedule *all)
{
    beside(&all[1], TR_FORWARD, 2, 1)->to_previous = 0;
}

static void receive_gradient_early(struct tr_schedule *all)
{
    put_in(&all[0], find(&all[0], TR_BACKWARD, 2), *beside(&all[0], TR_BACKWARD, 3, -1));
}

static void receive_one_more(struct tr_schedule *all)
{
    struct tr_schedule_step *last = &all[1].steps[all[1].nsteps - 1];
    last->from_previous = 4;
    last->set = 0;
}

static void send_beyond_the_end(struct tr_schedule *all)
{
    beside(&all[2], TR_BACKWARD, 0, 1)->to_next = 0;
}

static void send_before_the_beginning(struct tr_schedule *all)
{
    beside(&all[0], TR_FORWARD, 0, 1)->to_previous = 0;
}

static void exchange_nothing(struct tr_schedule *all)
{
    beside(&all[0], TR_FORWARD, 0, 1)->to_next = -1;
}

static void use_another_set(struct tr_schedule *all)
{
    all[0].steps[find(&all[0], TR_BACKWARD, 1)].set = 2;
}

static void use_a_busy_set(struct tr_schedule *all)
{
    beside(&all[1], TR_FORWARD, 1, -1)->set = 0;
    all[1].steps[find(&all[1], TR_FORWARD, 1)].set = 0;
    all[1].steps[find(&all[1], TR_BACKWARD, 1)].set = 0;
}

static void use_a_set_too_many(struct tr_schedule *all)
{
    all[0].steps[find(&all[0], TR_FORWARD, 2)].set = 3;
}

static void set_without_input(struct tr_schedule *all)
{
    beside(&all[0], TR_FORWARD, 0, 1)->set = 0;
}

static void count_a_set_too_many(struct tr_schedule *all)
{
    ++all[1].nsets;
}

static void forget_backward(struct tr_schedule *all)
{
    take_out(&all[0], find(&all[0], TR_BACKWARD, 3));
}

static void forget_backward_and_messages(struct tr_schedule *all)
{
    all[0].nsteps -= 2;
}

static void forget_forward(struct tr_schedule *all)
{
    take_out(&all[0], find(&all[0], TR_FORWARD, 3));
}

static void backward_twice(struct tr_schedule *all)
{
    const int index = find(&all[0], TR_BACKWARD, 0);
    put_in(&all[0], index, all[0].steps[index]);
}

static void backward_too_early(struct tr_schedule *all)
{
    swap(&all[2], find(&all[2], TR_FORWARD, 0), find(&all[2], TR_BACKWARD, 0));
}

static void backward_descending(struct tr_schedule *all)
{
    for (int s = 0; s < 3; ++s) {
        for (int i = 0; i < all[s].nsteps; ++i) {
            struct tr_schedule_step *step = &all[s].steps[i];
            if (step->action == TR_BACKWARD) step->set = step->batch = 3 - step->batch;
            if (step->from_next >= 0) step->from_next = 3 - step->from_next;
            if (step->to_previous >= 0) step->to_previous = 3 - step->to_previous;
        }
    }
}

static void another_chunk(struct tr_schedule *all)
{
    all[1].steps[find(&all[1], TR_FORWARD, 2)].chunk = 1;
}

static void flag_no_send(struct tr_schedule *all)
{
    all[1].steps[find(&all[1], TR_FORWARD, 2)].sends = false;
}

static void flag_a_receive(struct tr_schedule *all)
{
    all[2].steps[find(&all[2], TR_BACKWARD, 2)].receives = true;
}

/* Both neighbours send first: the group of the steady state as single calls. */
static void split_groups(struct tr_schedule *all)
{
    for (int s = 1; s < 3; ++s) {
        const int index = s == 1 ? find(&all[1], TR_BACKWARD, 0) - 1 //
                                 : find(&all[2], TR_BACKWARD, 0) + 1;
        struct tr_schedule_step receive = all[s].steps[index];
        receive.to_next = receive.to_previous = -1;
        all[s].steps[index].from_next = all[s].steps[index].from_previous = -1;
        all[s].steps[index].set = -1;
        put_in(&all[s], index + 1, receive);
    }
}

static void reverse_exchanges(struct tr_schedule *all)
{
    const int index = find(&all[1], TR_BACKWARD, 0);
    swap(&all[1], index - 2, index - 1);
}

/* The output goes out in one group with the gradient that depends on it. */
static void join_exchanges(struct tr_schedule *all)
{
    const int index = find(&all[1], TR_BACKWARD, 0);
    all[1].steps[index - 1].to_next = all[1].steps[index - 2].to_next;
    take_out(&all[1], index - 2);
}

/* Nothing is wrong but the time: the last stage waits for the second input before it begins. */
static void begin_late(struct tr_schedule *all)
{
    const int index = find(&all[2], TR_FORWARD, 0);
    swap(&all[2], index, index + 1);
}

/* The steps of the first of two stages, which warms up with one forward less. */
static void warm_up_too_little(struct tr_schedule *all)
{
    tr_schedule_fini(&all[0]);
    REQUIRE(tr_schedule_init(&all[0], TR_1F1B, 2, 4, 0) == TR_OK);
    all[0].nstages = all[0].nsets = 3;
}

static void exchange_stages(struct tr_schedule *all)
{
    const struct tr_schedule schedule = all[1];
    all[1] = all[2];
    all[2] = schedule;
}

TEST(schedule, the_verifier_refuses_each_planted_mistake)
{
    static const struct {
        const char *name;
        enum tr_schedule_kind kind; /* 3 stages, 4 micro-batches */
        void (*mutate)(struct tr_schedule *all);
        const char *where, *reason;
    } mistakes[] = {
        {"swapped sends", TR_1F1B, swap_sends, "stage 0, step 1",
         "output buffer holds micro-batch 0"},
        {"swapped receives", TR_1F1B, swap_receives, "stage 1, step 4",
         "expected the output gradient"},
        {"send left out", TR_1F1B, forget_send, "stage 0, step 3",
         "overwrites the result of micro-ba"},
        {"last send left out", TR_1F1B, forget_last_send, "stage 2",
         "gradient of micro-batch 3 is not s"},
        {"gradient left out", TR_1F1B, forget_gradient, "stage 1, step 5", "has not been received"},
        {"input left out", TR_1F1B, forget_input, "stage 1, step 3",
         "does not hold this micro-batch"},
        {"sent twice", TR_1F1B, send_twice, "stage 1, step 6",
         "the output buffer holds micro-batch -1"},
        {"gradient sent twice", TR_1F1B, send_gradient_twice, "stage 1, step 8",
         "buffer holds micro-batch -1"},
        {"gradient too early", TR_1F1B, receive_gradient_early, "stage 0", "is not used yet"},
        {"an input more", TR_1F1B, receive_one_more, "stage 1",
         "expected the input of micro-batch 4"},
        {"send beyond the end", TR_1F1B, send_beyond_the_end, "stage 2, step 3", "no next stage"},
        {"send before stage 0", TR_1F1B, send_before_the_beginning, "stage 0, step 1",
         "no previous stage"},
        {"empty exchange", TR_1F1B, exchange_nothing, "stage 0, step 1", "exchanges nothing"},
        {"wrong set", TR_1F1B, use_another_set, "stage 0, step 9", "set 2 does not hold"},
        {"busy set", TR_1F1B, use_a_busy_set, "stage 1, step 2",
         "set 0 is in use by micro-batch 0"},
        {"set that is not there", TR_1F1B, use_a_set_too_many, "stage 0, step 4",
         "there are 0 to 2"},
        {"set without input", TR_1F1B, set_without_input, "stage 0, step 1", "receives no input"},
        {"number of sets", TR_1F1B, count_a_set_too_many, "stage 1, step 0",
         "3 activation sets, expected 2"},
        {"missing backward", TR_1F1B, forget_backward, "stage 0, step 13 (the end)",
         "3 backwards ran"},
        {"missing last message", TR_1F1B, forget_backward_and_messages, "stage 0",
         "3 backwards ran"},
        {"missing forward", TR_1F1B, forget_forward, "stage 0, step 7",
         "output buffer holds micro-batch -1"},
        {"backward twice", TR_1F1B, backward_twice, "stage 0, step 7",
         "expected micro-batch 1 of 0 to 3"},
        {"backward first", TR_1F1B, backward_too_early, "stage 2, step 1",
         "its forward has not run"},
        {"descending backward", TR_GPIPE, backward_descending, "stage 0, step 8",
         "expected the output gr"},
        {"another chunk", TR_1F1B, another_chunk, "stage 1, step 7", "chunk 1, expected 0"},
        {"flag of a send", TR_1F1B, flag_no_send, "stage 1, step 7", "`sends` is 0"},
        {"flag of a receive", TR_1F1B, flag_a_receive, "stage 2", "`receives` is 1"},
        {"groups as single calls", TR_1F1B, split_groups, "stage 1, step 4",
         "deadlock: stage 2 is at step 3"},
        {"exchanges reversed", TR_GPIPE, reverse_exchanges, "stage 1, step 8",
         "deadlock: stage 2 is at step 6"},
        {"send joined to its answer", TR_GPIPE, join_exchanges, "stage 1, step 8",
         "deadlock when groups move as a"},
        {"late begin", TR_GPIPE, begin_late, "stage 0", "ends after 19 units of time, expected 18"},
        {"short warm-up", TR_1F1B, warm_up_too_little, "stage 0",
         "at most 2 micro-batches were in flight"},
        {"stages exchanged", TR_1F1B, exchange_stages, "stage 2, step 0", "expected stage 1"},
    };
    for (size_t i = 0; i < sizeof mistakes / sizeof *mistakes; ++i) {
        struct tr_schedule *all;
        REQUIRE(tr_schedules_create(&all, mistakes[i].kind, 3, 4) == TR_OK);
        CHECK(tr_schedule_verify(all, NULL) == TR_OK);
        mistakes[i].mutate(all);
        const bool refused = tr_schedule_verify(all, NULL) == TR_FAILED;
        CHECK_MESSAGE(refused && strstr(tr_error(), mistakes[i].where) &&
                          strstr(tr_error(), mistakes[i].reason),
                      "%s: expected \"%s ... %s\", got %s", mistakes[i].name, mistakes[i].where,
                      mistakes[i].reason, refused ? tr_error() : "no error");
        all[0].nstages = 3;
        tr_schedules_destroy(all);
    }
}

TEST(schedule, an_error_names_schedule_stage_step_and_reason)
{
    struct tr_schedule *all;
    REQUIRE(tr_schedules_create(&all, TR_GPIPE, 3, 4) == TR_OK);
    reverse_exchanges(all);
    CHECK(tr_schedule_verify(all, NULL) == TR_FAILED);
    CHECK_STR(
        tr_error(),
        "schedule gpipe of 3 stages and 4 micro-batches: stage 1, step 8 (exchange, from next: "
        "0): deadlock: stage 2 is at step 6 (exchange, from previous: 3), and they wait for "
        "each other");
    tr_schedules_destroy(all);
}

/* ---- The drawing ---------------------------------------------------------------------------- */

static char *drawing(enum tr_schedule_kind kind, int p, int m)
{
    char *text = NULL;
    size_t nbytes;
    FILE *out = open_memstream(&text, &nbytes);
    CHECK_MESSAGE(tr_schedule_draw(out, kind, p, m) == TR_OK, "%s", tr_error());
    fclose(out);
    return text;
}

TEST(schedule, the_drawing_has_a_line_a_stage_and_a_column_a_unit)
{
    char *text = drawing(TR_GPIPE, 3, 4);
    CHECK_STR(
        text,
        "gpipe, stages: 3, micro-batches: 4, units of time: 18, each stage idle for 6 (33.3 %)\n"
        "activation sets: 4 4 4\n"
        "time        0  1  2  3  4  5  6  7  8  9  10 11 12 13 14 15 16 17\n"
        "stage 0     F0 F1 F2 F3 .  .  .  .  .  .  B0 B0 B1 B1 B2 B2 B3 B3\n"
        "stage 1     .  F0 F1 F2 F3 .  .  .  B0 B0 B1 B1 B2 B2 B3 B3 .  .\n"
        "stage 2     .  .  F0 F1 F2 F3 B0 B0 B1 B1 B2 B2 B3 B3 .  .  .  .\n");
    free(text);
    text = drawing(TR_1F1B, 3, 4);
    CHECK_STR(
        text,
        "1f1b, stages: 3, micro-batches: 4, units of time: 18, each stage idle for 6 (33.3 %)\n"
        "activation sets: 3 2 1\n"
        "time        0  1  2  3  4  5  6  7  8  9  10 11 12 13 14 15 16 17\n"
        "stage 0     F0 F1 F2 .  .  .  .  B0 B0 F3 B1 B1 .  B2 B2 .  B3 B3\n"
        "stage 1     .  F0 F1 .  .  B0 B0 F2 B1 B1 F3 B2 B2 .  B3 B3 .  .\n"
        "stage 2     .  .  F0 B0 B0 F1 B1 B1 F2 B2 B2 F3 B3 B3 .  .  .  .\n");
    free(text);
}

TEST(schedule, a_wide_drawing_goes_on_below_within_120_characters)
{
    for (int m = 9; m <= 32; ++m) {
        char *text = drawing(TR_1F1B, 8, m);
        int stage_lines = 0;
        for (char *save = NULL, *line = strtok_r(text, "\n", &save); line;
             line = strtok_r(NULL, "\n", &save)) {
            CHECK_MESSAGE(strlen(line) <= 120 && line[strlen(line) - 1] != ' ', "%s", line);
            stage_lines += strncmp(line, "stage 7", 7) == 0;
        }
        const int units = 3 * (m + 7), panel = 109 / (m > 10 ? 4 : 3);
        CHECK_EQ(stage_lines, (units + panel - 1) / panel);
        free(text);
    }
}
