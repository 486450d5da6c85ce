/* The wait loop over operations of several communicators. */
#include <pthread.h>
#include <string.h>

#include "base/clock.h"
#include "executor/calls.h"
#include "shim.h"

enum { PATIENCE_MS = 20000 };

/* Rank 0 of two communicators receives from rank 1 of each, in one wait loop. */
struct receiver {
    struct tt_work works[2];
    char data[2];
    tt_status status;
    char text[TT_ERROR_TEXT];
};

static void receiver_init(struct receiver *receiver, struct ranks *first, struct ranks *second)
{
    *receiver = (struct receiver){.status = TT_IN_PROGRESS};
    tt_work_recv(&receiver->works[0], &first->engines[0], &receiver->data[0], 1, 1);
    tt_work_recv(&receiver->works[1], &second->engines[0], &receiver->data[1], 1, 1);
    receiver->works[0].next = &receiver->works[1];
}

static void *receive(void *argument)
{
    struct receiver *receiver = argument;
    receiver->status = tt_run(receiver->works, false);
    strcpy(receiver->text, tt_last_error());
    return NULL;
}

/* Waits until the wait loop has looked at the rank's communicator twice more. */
static bool was_looked_at(const struct ranks *ranks)
{
    const int64_t deadline = tt_deadline_ns(PATIENCE_MS);
    const struct tt_rank_record *record = ranks->all.fabrics[0]->record;
    for (int i = 0; i < 2; i++) {
        const int64_t before = atomic_load(&record->seen_ns);
        while (atomic_load(&record->seen_ns) == before)
            if (tt_expired(deadline)) return false;
    }
    return true;
}

TEST(run, a_long_wait_sleeps_until_the_message_comes)
{
    const struct tt_fabric_config config = together_config();
    struct ranks ranks;
    struct tt_work send, recv;
    pthread_t thread;
    char data = 0;
    REQUIRE(ranks_open(&ranks, 2, &config));
    const struct tt_sleep *sleep = &ranks.all.fabrics[0]->host.sleep;
    if (!sleep->is_woken) {
        ranks_close(&ranks);
        SKIP("the kernel gives no memory barriers to other processes (membarrier)");
    }
    tt_work_recv(&recv, &ranks.engines[0], &data, 1, 1);
    struct receiver receiver = {.works = {recv}, .status = TT_IN_PROGRESS};
    REQUIRE(pthread_create(&thread, NULL, receive, &receiver) == 0);
    const int64_t deadline = tt_deadline_ns(PATIENCE_MS);
    while (atomic_load(&sleep->nsleeps) < 3 && !tt_expired(deadline)) tt_cpu_relax();
    CHECK(atomic_load(&sleep->nsleeps) >= 3); /* each lasts a millisecond at most */
    CHECK_EQ(atomic_load(&sleep->nbarriers), 1);
    tt_work_send(&send, &ranks.engines[1], "x", 1, 0);
    CHECK_EQ(tt_run(&send, false), TT_OK);
    pthread_join(thread, NULL);
    CHECK_EQ(receiver.status, TT_OK);
    ranks_close(&ranks);
}

TEST(run, a_communicator_may_end_while_its_group_waits_for_another)
{
    const struct tt_fabric_config config = together_config();
    struct ranks ended, alive;
    struct receiver receiver;
    struct tt_work send;
    pthread_t thread;
    REQUIRE(ranks_open(&ended, 2, &config) && ranks_open(&alive, 2, &config));
    receiver_init(&receiver, &ended, &alive);
    REQUIRE(pthread_create(&thread, NULL, receive, &receiver) == 0);
    CHECK_EQ(tt_fabric_fail(ended.all.fabrics[0], TT_ERR_REMOTE, "aborted"), TT_ERR_REMOTE);
    const int64_t deadline = tt_deadline_ns(PATIENCE_MS);
    while (!tt_engine_idle(&ended.engines[0]) && !tt_expired(deadline)) tt_cpu_relax();
    CHECK(tt_engine_idle(&ended.engines[0]));
    ranks_close(&ended);
    memset(&ended, 0, sizeof ended); /* a look at it is a look at address 0 */
    CHECK(was_looked_at(&alive));
    tt_work_send(&send, &alive.engines[1], "x", 1, 0);
    CHECK_EQ(tt_run(&send, true), TT_OK);
    pthread_join(thread, NULL);
    CHECK_EQ(receiver.status, TT_ERR_REMOTE);
    CHECK_EQ(receiver.data[1], 'x');
    ranks_close(&alive);
}

TEST(run, returns_code_and_text_of_the_first_failure)
{
    const struct tt_fabric_config config = together_config();
    struct ranks ranks[2];
    struct receiver receiver;
    for (int i = 0; i < 2; i++) REQUIRE(ranks_open(&ranks[i], 2, &config));
    receiver_init(&receiver, &ranks[0], &ranks[1]);
    CHECK_EQ(tt_fabric_fail(ranks[0].all.fabrics[0], TT_ERR_USAGE, "first"), TT_ERR_USAGE);
    CHECK_EQ(tt_fabric_fail(ranks[1].all.fabrics[0], TT_ERR_REMOTE, "second"), TT_ERR_REMOTE);
    receive(&receiver);
    CHECK_EQ(receiver.status, TT_ERR_USAGE);
    CHECK_STR(receiver.text, "first");
    for (int i = 0; i < 2; i++) ranks_close(&ranks[i]);
}
