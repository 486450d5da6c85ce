/* The thread that looks after GPUs: one a process, for many things of different needs. */
#include "carrier/kernel/attendant.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "executor/calls.h"
#include "shim.h"

enum { SOON_NS = 10000, MANY = 50, NEVER_MS = 60000 };

/* Counts its looks. */
struct counter {
    struct tt_attended attended; /* first */
    int64_t pause_ns;
    _Atomic int nlooks;
    _Atomic pthread_t thread;
};

static int64_t count(struct tt_attended *attended)
{
    struct counter *counter = (struct counter *)attended;
    atomic_store(&counter->thread, pthread_self());
    atomic_fetch_add(&counter->nlooks, 1);
    return counter->pause_ns;
}

static bool await_looks(const struct counter *counter, int n)
{
    const int64_t deadline_ns = tt_deadline_ns(NEVER_MS);
    while (atomic_load(&counter->nlooks) < n)
        if (tt_expired(deadline_ns)) return false;
    return true;
}

TEST(attendant, its_users_have_one_thread_which_looks_as_often_as_each_wants)
{
    struct tt_attendant *attendants[2];
    struct counter often = {.attended.look = count, .pause_ns = SOON_NS};
    struct counter once = {.attended.look = count, .pause_ns = INT64_MAX};
    for (int i = 0; i < 2; i++) REQUIRE(tt_attendant_get(&attendants[i]) == TT_OK);
    CHECK(attendants[0] == attendants[1]);
    tt_attend(attendants[0], &once.attended);
    tt_attend(attendants[1], &often.attended);
    CHECK(await_looks(&once, 1));
    CHECK(await_looks(&often, MANY));
    CHECK_EQ(atomic_load(&once.nlooks), 1);
    CHECK(pthread_equal(atomic_load(&once.thread), atomic_load(&often.thread)));
    CHECK(!pthread_equal(atomic_load(&once.thread), pthread_self()));
    tt_unattend(attendants[1], &often.attended);
    const int nlooks = atomic_load(&often.nlooks);
    tt_attendant_put(attendants[1]);
    tt_unattend(attendants[0], &once.attended);
    CHECK_EQ(atomic_load(&often.nlooks), nlooks);
    tt_attendant_put(attendants[0]);
}

/* A user that comes when the last one goes has an attendant too. */
static void *come_and_go(void *unused)
{
    for (int i = 0; i < MANY; i++) {
        struct tt_attendant *attendant;
        struct counter counter = {.attended.look = count, .pause_ns = SOON_NS};
        if (tt_attendant_get(&attendant)) abort();
        tt_attend(attendant, &counter.attended);
        CHECK(await_looks(&counter, 2));
        tt_unattend(attendant, &counter.attended);
        tt_attendant_put(attendant);
    }
    return unused;
}

TEST(attendant, users_of_several_threads_may_come_and_go)
{
    pthread_t threads[3];
    for (int i = 0; i < 3; i++) REQUIRE(!pthread_create(&threads[i], NULL, come_and_go, NULL));
    for (int i = 0; i < 3; i++) pthread_join(threads[i], NULL);
}

TEST(attendant, a_child_made_by_fork_has_one_of_its_own)
{
#if defined __SANITIZE_THREAD__
    SKIP("ThreadSanitizer allows no thread in a child made by fork");
#endif
    struct tt_attendant *attendant;
    struct counter counter = {.attended.look = count, .pause_ns = SOON_NS};
    REQUIRE(tt_attendant_get(&attendant) == TT_OK);
    const pid_t child = fork();
    if (child == 0) {
        struct tt_attendant *own;
        if (tt_attendant_get(&own)) _exit(1);
        tt_attend(own, &counter.attended);
        const bool looks = await_looks(&counter, 2);
        tt_unattend(own, &counter.attended);
        tt_attendant_put(own);
        tt_attendant_put(attendant); /* the parent's: nothing happens */
        _exit(looks && own != attendant ? 0 : 2);
    }
    int status = -1;
    CHECK_EQ(waitpid(child, &status, 0), child);
    CHECK_EQ(status, 0);
    tt_attendant_put(attendant);
}

/* ---- Works ---------------------------------------------------------------------------------- */

/* One message of a rank. */
struct message {
    struct tt_attended_works works; /* first */
    struct tt_work work;
    char data;
    _Atomic bool done;
};

static void end_message(struct tt_attended_works *works)
{
    atomic_store(&((struct message *)works)->done, true);
}

static void push_message(struct tt_attended_queue *queue, struct message *message)
{
    message->works = (struct tt_attended_works){.works = &message->work, .done = end_message};
    tt_attended_push(queue, &message->works);
}

/* Receives wait for a long time while another communicator's messages are moved. */
TEST(attendant, works_of_a_queue_run_in_order_and_wait_for_none_of_another)
{
    static struct message messages[2][2][MANY]; /* of a communicator: received, sent */
    const struct tt_fabric_config config = together_config();
    struct tt_attended_queue queues[2][2];
    struct ranks ranks[2];
    for (int c = 0; c < 2; c++) REQUIRE(ranks_open(&ranks[c], 2, &config));
    for (int q = 0; q < 4; q++) REQUIRE(tt_attended_open(&queues[q / 2][q % 2]) == TT_OK);
    for (int c = 0; c < 2; c++)
        for (int i = 0; i < MANY; i++) {
            struct message *message = &messages[c][0][i];
            *message = (struct message){.data = 0};
            tt_work_recv(&message->work, &ranks[c].engines[0], &message->data, 1, 1);
            push_message(&queues[c][0], message);
        }
    for (int c = 1; c >= 0; c--) {
        for (int i = 0; i < MANY; i++) {
            struct message *message = &messages[c][1][i];
            *message = (struct message){.data = (char)(i + 1)};
            tt_work_send(&message->work, &ranks[c].engines[1], &message->data, 1, 0);
            push_message(&queues[c][1], message);
        }
        for (int r = 0; r < 2; r++) tt_attended_close(&queues[c][r]);
        for (int i = 0; i < MANY; i++) {
            CHECK(atomic_load(&messages[c][0][i].done) && atomic_load(&messages[c][1][i].done));
            CHECK_EQ(messages[c][0][i].data, i + 1);
            CHECK(c == 0 || !atomic_load(&messages[0][0][i].done));
        }
    }
    for (int c = 0; c < 2; c++) ranks_close(&ranks[c]);
}
