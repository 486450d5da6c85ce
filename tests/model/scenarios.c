/* The scenarios: ranks of one host that send messages, meet, and wait in the library's wait loop.
 */
#include "scenarios.h"

#include "executor/internal.h"
#include "ranks.h"

bool tt_scenarios_look_once;

/* ---- Waits ---------------------------------------------------------------------------------- */

/* What a work of these scenarios waits for; beside the work. */
struct awaited {
    struct tt_work work; /* first */
    int from;            /* that many messages of this rank */
    int nmessages, npassed;
};

static tt_status nothing(struct tt_work *work)
{
    (void)work;
    return TT_OK;
}

static void no_end(struct tt_work *work, tt_status status)
{
    (void)work, (void)status;
}

static bool is_blind(void)
{
    return tt_scenarios_look_once && tt_machine_is_armed();
}

/* Takes messages: the data behind each flag must be seen. */
static tt_status take(struct tt_work *work)
{
    struct awaited *awaited = (struct awaited *)work;
    struct tt_link *link = &tt_model_ranks[tt_machine_rank].from[awaited->from].link;
    struct tt_message message;
    if (is_blind()) return TT_IN_PROGRESS;
    while (awaited->npassed < awaited->nmessages) {
        TT_AWAIT(link->ops->peek(link, &message));
        const uint64_t found = tt_machine_read(
            &tt_model_data[awaited->from][tt_machine_rank][(message.signature - 1) % CELLS]);
        if (found != message.signature)
            tt_machine_fail("message %d has data %d", (int)message.signature, (int)found);
        link->ops->release(link);
        awaited->npassed++;
        work->progress++;
    }
    return TT_OK;
}

/* Until the receiver has released what lies in a slot. */
static tt_status drain(struct tt_work *work)
{
    struct awaited *awaited = (struct awaited *)work;
    struct tt_link *link = &tt_model_ranks[tt_machine_rank].to[awaited->from].link;
    return !is_blind() && link->ops->drained(link) ? TT_OK : TT_IN_PROGRESS;
}

static tt_status take_parts(struct tt_work *work)
{
    const struct tt_meeting *meeting = &tt_model_ranks[tt_machine_rank].meeting;
    struct awaited *awaited = (struct awaited *)work;
    if (is_blind()) return TT_IN_PROGRESS;
    for (; awaited->npassed < awaited->nmessages; awaited->npassed++, work->progress++) {
        if (!tt_meeting_is_in(meeting, awaited->npassed)) return TT_IN_PROGRESS;
        if (tt_machine_read(&tt_model_data[awaited->npassed][tt_machine_rank][0]) != 1)
            tt_machine_fail("a part without its data");
    }
    return TT_OK;
}

static tt_status take_result(struct tt_work *work)
{
    const struct awaited *awaited = (const struct awaited *)work;
    if (is_blind() || !tt_meeting_is_published(&tt_model_ranks[tt_machine_rank].meeting))
        return TT_IN_PROGRESS;
    if (tt_machine_read(&tt_model_data[RANKS - 1][tt_machine_rank][awaited->from]) != 1)
        tt_machine_fail("a result without its data");
    return TT_OK;
}

static const struct tt_work_ops take_ops = {.ready = nothing,
                                            .start = nothing,
                                            .advance = take,
                                            .flush = nothing,
                                            .check = nothing,
                                            .stop = nothing,
                                            .end = no_end,
                                            .is_woken = true};
static const struct tt_work_ops drain_ops = {.ready = nothing,
                                             .start = nothing,
                                             .advance = drain,
                                             .flush = nothing,
                                             .check = nothing,
                                             .stop = nothing,
                                             .end = no_end,
                                             .is_woken = true};
static const struct tt_work_ops parts_ops = {.ready = nothing,
                                             .start = nothing,
                                             .advance = take_parts,
                                             .flush = nothing,
                                             .check = nothing,
                                             .stop = nothing,
                                             .end = no_end,
                                             .is_woken = true};
static const struct tt_work_ops result_ops = {.ready = nothing,
                                              .start = nothing,
                                              .advance = take_result,
                                              .flush = nothing,
                                              .check = nothing,
                                              .stop = nothing,
                                              .end = no_end,
                                              .is_woken = true};

static struct awaited awaits(const struct tt_work_ops *ops, int engine, int from, int nmessages)
{
    struct tt_engine *of = &tt_model_ranks[tt_machine_rank].engines[engine];
    const uint64_t turn = ++of->collectives_issued;
    of->outstanding++; /* by the only thread of the engine */
    return (struct awaited){
        .work = {.ops = ops, .engine = of, .turns = &of->collectives_done, .turn = turn},
        .from = from,
        .nmessages = nmessages};
}

static void run(struct awaited *awaited)
{
    if (tt_run(&awaited->work, true)) tt_machine_fail("%s", tt_last_error());
}

/* The library's wait loop (run.c), until the messages are there. */
static void receive(int engine, int from, int nmessages)
{
    struct awaited awaited = awaits(&take_ops, engine, from, nmessages);
    run(&awaited);
}

/* ---- Messages ------------------------------------------------------------------------------- */

static void send_bytes(int to, uint64_t value, size_t nbytes)
{
    struct tt_link *link = &tt_model_ranks[tt_machine_rank].to[to].link;
    if (!link->ops->slot(link, nbytes)) tt_machine_fail("there is no slot");
    tt_machine_write(&tt_model_data[tt_machine_rank][to][(value - 1) % CELLS], value);
    link->ops->publish(link, nbytes, value);
}

static void send_word(int to, uint64_t value)
{
    send_bytes(to, value, 8);
}

static void send_to_0(void)
{
    send_word(0, 1);
}

static void send_twice_to_0(void)
{
    send_word(0, 1);
    send_word(0, 2);
}

static void send_to_0_and_2(void)
{
    send_word(0, 1);
    send_word(2, 1);
}

static void receive_from_1(void)
{
    receive(0, 1, 1);
}

static void receive_twice_from_1(void)
{
    receive(0, 1, 2);
}

static void receive_one_and_one_from_1(void)
{
    receive(0, 1, 1);
    receive(0, 1, 1);
}

/* Two works that one thread runs together. Neither waits for the other's turn. */
static void receive_from_both(void)
{
    struct awaited first = awaits(&take_ops, 0, 1, 1), second = awaits(&take_ops, 0, 2, 1);
    second.work.turns = &tt_model_ranks[tt_machine_rank].other_turns;
    second.work.turn = 1;
    first.work.next = &second.work;
    run(&first);
}

static void send_and_receive_from_1(void)
{
    send_word(1, 1);
    receive(0, 1, 1);
}

static void receive_and_answer_0(void)
{
    receive(0, 0, 1);
    send_word(0, 1);
}

static void send_slots_to_0(void)
{
    struct awaited awaited = awaits(&drain_ops, 0, 0, 0);
    send_bytes(0, 1, TT_CACHE_LINE);
    run(&awaited);
    send_bytes(0, 1 + CELLS, TT_CACHE_LINE);
}

/* ---- Meetings ------------------------------------------------------------------------------- */

static void set_up_two(void)
{
    tt_model_set_up();
    for (int r = 0; r < RANKS; r++) tt_model_ranks[r].meeting.nmembers = 2;
}

static void put_in(bool wakes)
{
    struct tt_meeting *meeting = &tt_model_ranks[tt_machine_rank].meeting;
    for (int member = 0; member < meeting->nmembers; member++)
        tt_machine_write(&tt_model_data[tt_machine_rank][member][0], 1);
    tt_meeting_put(meeting, &(struct tt_part){.nbytes = 8}, wakes);
}

static void meet(void)
{
    put_in(true);
    struct awaited awaited =
        awaits(&parts_ops, 0, 0, tt_model_ranks[tt_machine_rank].meeting.nmembers);
    run(&awaited);
}

/* The last to arrive makes the result, for which it reads all parts. */
static void arrive(void)
{
    struct tt_meeting *meeting = &tt_model_ranks[tt_machine_rank].meeting;
    put_in(false);
    if (tt_meeting_arrive(meeting)) {
        for (int member = 0; member < meeting->nmembers; member++)
            if (tt_machine_read(&tt_model_data[member][tt_machine_rank][0]) != 1)
                tt_machine_fail("the last to arrive misses a part");
        for (int member = 0; member < meeting->nmembers; member++)
            tt_machine_write(&tt_model_data[RANKS - 1][member][0], 1);
        tt_meeting_publish(meeting);
    }
}

static void meet_at_the_last(void)
{
    arrive();
    struct awaited awaited = awaits(&result_ops, 0, 0, 0);
    run(&awaited);
}

static void publish_to_two_threads(void)
{
    for (int thread = 0; thread < 2; thread++)
        tt_machine_write(&tt_model_data[RANKS - 1][0][thread], 1);
    tt_meeting_publish(&tt_model_ranks[tt_machine_rank].meeting);
}

static void await_result(int thread)
{
    struct awaited awaited = awaits(&result_ops, thread, thread, 0);
    run(&awaited);
}

static void await_result_0(void)
{
    await_result(0);
}

static void await_result_1(void)
{
    await_result(1);
}

/* ---- Ranks that retire ---------------------------------------------------------------------- */

static void retire(void)
{
    tt_sleep_retire(tt_model_sleep(tt_machine_rank));
}

/* The model is compiled for few passes (CMakeLists.txt). */
static void send_often_to_2(void)
{
    for (uint64_t n = 1; n <= 2; n++) send_word(2, n);
}

/* Rank 0 counts, retires, and, where it has counted again, stays counted for its next message. */
static void count_and_pass(void)
{
    _Atomic bool *is_counted = &tt_model_sleep(0)->is_counted;
    receive(0, 1, 1);
    send_often_to_2();
    if (*is_counted) tt_machine_fail("rank 0 is counted after two messages to ranks not asleep");
    receive(0, 1, 1);
    const bool was_counted = *is_counted;
    send_word(2, 3);
    if (*is_counted != was_counted) tt_machine_fail("rank 0 has retired after one message");
}

static void answer_and_retire(void)
{
    if (tt_machine_rank == 0)
        send_and_receive_from_1();
    else
        receive_and_answer_0();
    retire();
}

static void leave_and_enter(void)
{
    tt_engine_enter(&tt_model_ranks[tt_machine_rank].engines[0]);
    tt_engine_leave(&tt_model_ranks[tt_machine_rank].engines[0]);
}

/* ---- What holds at the end ------------------------------------------------------------------ */

static void counts_agree(void)
{
    unsigned ncounted = 0;
    for (int r = 0; r < RANKS; r++) ncounted += tt_model_ranks[r].fabric.host.sleep.is_counted;
    const unsigned number = tt_segment_sleepers(tt_model_segment)->number;
    if (number != ncounted)
        tt_machine_fail("%u ranks are counted as sleepers, expected %u", number, ncounted);
    for (int r = 0; r < RANKS; r++) {
        const struct tt_sleep *sleep = tt_model_sleep(r);
        const struct tt_machine_counts made = tt_machine_count(r);
        if (sleep->nsleeps != made.waits)
            tt_machine_fail("rank %d has counted %d sleeps, expected %u", r, (int)sleep->nsleeps,
                            made.waits);
        if (sleep->nbarriers != made.barriers)
            tt_machine_fail("rank %d has counted %d barriers, expected %u", r,
                            (int)sleep->nbarriers, made.barriers);
    }
    const struct tt_machine_counts all = tt_machine_count(-1);
    if (all.wakes > all.arms)
        tt_machine_fail("%u calls of FUTEX_WAKE, but only %u sleeps were armed", all.wakes,
                        all.arms);
}

static uint64_t left(void)
{
    const struct tt_sleep *sleep = tt_model_sleep(tt_machine_rank);
    return sleep->nsleeps << 32 | sleep->nbarriers << 1 | sleep->is_counted;
}

static void nobody_is_counted(void)
{
    const unsigned number = tt_segment_sleepers(tt_model_segment)->number;
    counts_agree();
    if (number) tt_machine_fail("%u ranks are counted that have retired", number);
}

/* Nothing but stores and loads, while nobody is counted. */
static void send_cheaply(void)
{
    const int to = tt_machine_rank == 1 ? 2 : 1;
    send_word(to, 1);
    tt_meeting_put(&tt_model_ranks[tt_machine_rank].meeting, &(struct tt_part){.nbytes = 8}, true);
    tt_meeting_publish(&tt_model_ranks[tt_machine_rank].meeting);
    if (tt_machine_system_calls() || tt_machine_fences())
        tt_machine_fail("%u system calls and %u fences while nobody sleeps",
                        tt_machine_system_calls(), tt_machine_fences());
}

/* Of rank 1, while rank 2's process is not registered. */
static void open_and_finish(void)
{
    struct tt_sleep *sleep = tt_model_sleep(tt_machine_rank);
    tt_sleep_open(sleep, tt_model_segment, tt_machine_rank);
    tt_machine_meet();
    tt_sleep_finish(sleep);
    if (!sleep->is_woken) tt_machine_fail("rank %d has not seen that all wake it", tt_machine_rank);
}

static void open_and_learn(void)
{
    struct tt_sleep *sleep = tt_model_sleep(tt_machine_rank);
    tt_sleep_open(sleep, tt_model_segment, tt_machine_rank);
    tt_machine_meet();
    tt_sleep_finish(sleep);
    if (sleep->is_woken)
        tt_machine_fail("rank %d counts on one that wakes nobody", tt_machine_rank);
}

const struct tt_scenario tt_scenarios[] = {
    {.number = 0,
     .name = "one_message",
     .says = "a rank waits for a message",
     .set_up = tt_model_set_up,
     .threads = {{receive_from_1, 0}, {send_to_0, 1}},
     .end = counts_agree,
     .left = left},
    {.number = 1,
     .name = "answer",
     .says = "both ranks wait and publish",
     .set_up = tt_model_set_up,
     .threads = {{send_and_receive_from_1, 0}, {receive_and_answer_0, 1}},
     .end = counts_agree,
     .left = left},
    {.number = 2,
     .name = "two_messages",
     .says = "a rank sleeps twice",
     .set_up = tt_model_set_up,
     .threads = {{receive_one_and_one_from_1, 0}, {send_twice_to_0, 1}},
     .end = counts_agree,
     .left = left},
    {.number = 3,
     .name = "one_after_another",
     .says = "some progress ends a sleep, and the wait goes on",
     .set_up = tt_model_set_up,
     .threads = {{receive_twice_from_1, 0}, {send_twice_to_0, 1}},
     .end = counts_agree,
     .left = left},
    {.number = 4,
     .name = "meeting_of_two",
     .says = "each rank waits for the parts of all",
     .set_up = set_up_two,
     .threads = {{meet, 0}, {meet, 1}},
     .end = counts_agree,
     .left = left},
    {.number = 5,
     .name = "meeting_by_the_last",
     .says = "the last of two ranks to arrive publishes",
     .set_up = set_up_two,
     .threads = {{meet_at_the_last, 0}, {meet_at_the_last, 1}},
     .end = counts_agree,
     .left = left},
    {.number = 6,
     .name = "released",
     .says = "a sender waits until its slot is released, and reuses it",
     .set_up = tt_model_set_up,
     .threads = {{receive_twice_from_1, 0}, {send_slots_to_0, 1}},
     .end = counts_agree,
     .left = left},
    {.number = 7,
     .name = "retires",
     .says = "another thread retires the rank while it sleeps",
     .set_up = tt_model_set_up,
     .threads = {{receive_from_1, 0}, {retire, 0}, {send_to_0, 1}},
     .end = counts_agree,
     .left = left},
    {.number = 8,
     .name = "engine_is_taken",
     .says = "another thread has the engine when a rank looks again",
     .set_up = tt_model_set_up,
     .threads = {{receive_from_1, 0}, {leave_and_enter, 0}, {send_to_0, 1}},
     .end = counts_agree,
     .left = left},
    {.number = 9,
     .name = "not_registered",
     .says = "one process could not register: nobody sleeps who is not woken",
     .set_up = tt_model_set_up,
     .threads = {{receive_from_both, 0}, {send_to_0, 1}, {send_to_0, 2}},
     .end = counts_agree,
     .left = left,
     .nobody_sleeps = true,
     .not_registered = 1u << 2},
    {.number = 10,
     .name = "barrier_refused",
     .says = "the kernel refuses the barrier: nobody sleeps who is not woken",
     .set_up = tt_model_set_up,
     .threads = {{receive_from_1, 0}, {send_to_0, 1}},
     .end = counts_agree,
     .left = left,
     .nobody_sleeps = true,
     .refuses_barrier = true},
    {.number = 11,
     .name = "nobody_counted",
     .says = "publishing takes no fence and no system call",
     .set_up = tt_model_set_up,
     .threads = {{send_cheaply, 1}, {send_cheaply, 2}},
     .end = counts_agree,
     .left = left,
     .nobody_sleeps = true},
    {.number = 12,
     .name = "opening",
     .says = "all ranks learn that all wake",
     .set_up = tt_model_set_up_closed,
     .threads = {{open_and_finish, 0}, {open_and_finish, 1}, {open_and_finish, 2}},
     .nobody_sleeps = true},
    {.number = 13,
     .name = "opening_without_one",
     .says = "all ranks learn that one does not wake",
     .set_up = tt_model_set_up_closed,
     .threads = {{open_and_learn, 0}, {open_and_learn, 1}, {open_and_learn, 2}},
     .nobody_sleeps = true,
     .not_registered = 1u << 2},
    {.number = 14,
     .name = "answer_and_retire",
     .says = "both ranks count and retire",
     .set_up = tt_model_set_up,
     .threads = {{answer_and_retire, 0}, {answer_and_retire, 1}},
     .end = nobody_is_counted,
     .left = left},
    {.number = 15,
     .name = "counts_again",
     .says = "a rank retires by its messages, and counts again",
     .set_up = tt_model_set_up,
     .threads = {{count_and_pass, 0}, {send_twice_to_0, 1}},
     .end = counts_agree,
     .left = left},
    {.number = 16,
     .name = "barrier_refused_twice",
     .says = "the kernel refuses the barrier of two ranks",
     .set_up = tt_model_set_up,
     .threads = {{receive_from_1, 0}, {receive_from_1, 2}, {send_to_0_and_2, 1}},
     .end = nobody_is_counted,
     .left = left,
     .nobody_sleeps = true,
     .refuses_barrier = true},
    {.number = 17,
     .name = "two_threads",
     .says = "two threads of a rank sleep",
     .set_up = tt_model_set_up,
     .threads = {{await_result_0, 0}, {await_result_1, 0}, {publish_to_two_threads, 1}},
     .end = counts_agree,
     .left = left},
    {.number = 18,
     .name = "two_publishers",
     .says = "one thread waits for messages of two ranks",
     .set_up = tt_model_set_up,
     .threads = {{receive_from_both, 0}, {send_to_0, 1}, {send_to_0, 2}},
     .end = counts_agree,
     .left = left},
    {.number = 19,
     .name = "passes",
     .says = "a rank retires that often finds nobody asleep",
     .set_up = tt_model_set_up,
     .threads = {{receive_from_1, 0}, {send_often_to_2, 0}, {send_to_0, 1}},
     .end = counts_agree,
     .left = left},
    {.number = 20,
     .name = "two_sleepers",
     .says = "two ranks wait for one",
     .set_up = tt_model_set_up,
     .threads = {{receive_from_1, 0}, {receive_from_1, 2}, {send_to_0_and_2, 1}},
     .end = counts_agree,
     .left = left,
     .is_large = true},
    {.number = 21,
     .name = "meeting_of_three",
     .says = "the last of three ranks to arrive publishes",
     .set_up = tt_model_set_up,
     .threads = {{meet_at_the_last, 0}, {meet_at_the_last, 1}, {arrive, 2}},
     .end = counts_agree,
     .left = left,
     .is_large = true},
};
const int tt_nscenarios = sizeof tt_scenarios / sizeof *tt_scenarios;
