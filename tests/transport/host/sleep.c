/* Tests of sleep.h with real threads and system calls. A lost wake is a sleep of an hour here,
 * which the time limit of ctest ends. tests/model explores all interleavings. */
#include "transport/host/sleep.h"

#include <pthread.h>
#include <string.h>

#include "base/clock.h"
#include "base/pause.h"
#include "shim.h"
#include "transport/host/meeting.h"
#include "transport/together.h"

enum { NTURNS = 300 };
static const int64_t an_hour_ns = 3600 * INT64_C(1000000000);

static struct tt_sleep *sleep_of(const struct together *all, int rank)
{
    return &all->fabrics[rank]->host.sleep;
}

#define NO_BARRIER "the kernel gives no memory barriers to other processes (membarrier)"

/* False: no rank is woken here, and all are closed. */
static bool may_sleep(struct together *all)
{
    const bool is_woken = sleep_of(all, 0)->is_woken;
    if (!is_woken) together_close(all);
    return is_woken;
}

static bool is_asleep(const struct together *all, int rank)
{
    return atomic_load(&sleep_of(all, rank)->sleepers->each[rank].asleep);
}

static void await_sleeper(const struct together *all, int rank)
{
    struct tt_pause pause = {0};
    while (!is_asleep(all, rank)) tt_pause(&pause);
}

/* What a rank waits for. */
struct waiter {
    struct together *all;
    int rank;
    bool (*look)(struct waiter *waiter);
    struct tt_link *link;
    struct tt_meeting *meeting;
    pthread_mutex_t *lock; /* of a rank's threads, one of which looks at a time; NULL: it has one */
    int nturns;            /* left */
};

static bool look(struct waiter *waiter)
{
    if (waiter->lock) pthread_mutex_lock(waiter->lock);
    const bool found = waiter->look(waiter);
    if (waiter->lock) pthread_mutex_unlock(waiter->lock);
    return found;
}

/* Sleeps until `look` has found something so many times. */
static void *wait_asleep(void *argument)
{
    struct waiter *waiter = argument;
    struct tt_sleep *sleep = sleep_of(waiter->all, waiter->rank);
    while (waiter->nturns) {
        uint32_t nwakes;
        const bool found = look(waiter);
        waiter->nturns -= found;
        if (found) continue;
        if (!tt_sleep_arm(sleep, &nwakes)) return NULL;
        if (look(waiter))
            waiter->nturns--;
        else
            tt_sleep_wait(sleep, nwakes, an_hour_ns);
    }
    return NULL;
}

static bool look_for_message(struct waiter *waiter)
{
    struct tt_message message;
    if (waiter->link->ops->peek(waiter->link, &message) != TT_OK) return false;
    waiter->link->ops->release(waiter->link);
    return true;
}

static void send_short(struct tt_link *link)
{
    while (!link->ops->slot(link, 8)) tt_cpu_relax();
    link->ops->publish(link, 8, 1);
}

TEST(sleep, a_receiver_is_woken_by_each_message)
{
    struct together all;
    const struct tt_fabric_config config = together_config();
    REQUIRE(together_open(&all, 2, &config));
    if (!may_sleep(&all)) SKIP(NO_BARRIER);
    struct waiter waiter = {.all = &all,
                            .rank = 1,
                            .look = look_for_message,
                            .link = tt_fabric_rx(all.fabrics[1], 0, 0),
                            .nturns = NTURNS};
    struct tt_link *tx = tt_fabric_tx(all.fabrics[0], 1, 0);
    pthread_t thread;
    REQUIRE(pthread_create(&thread, NULL, wait_asleep, &waiter) == 0);
    for (int i = 0; i < NTURNS; i++) {
        await_sleeper(&all, 1);
        send_short(tx);
    }
    pthread_join(thread, NULL);
    CHECK_EQ(waiter.nturns, 0);
    CHECK(atomic_load(&sleep_of(&all, 1)->nsleeps) > 0);
    CHECK_EQ(atomic_load(&sleep_of(&all, 1)->nbarriers), 1);
    CHECK_EQ(atomic_load(&sleep_of(&all, 0)->nbarriers), 0);
    together_close(&all);
}

static bool look_for_room(struct waiter *waiter)
{
    char *slot = waiter->link->ops->slot(waiter->link, 4096);
    if (slot) waiter->link->ops->publish(waiter->link, 4096, 1);
    return slot;
}

TEST(sleep, a_sender_whose_link_is_full_is_woken_by_a_release)
{
    struct together all;
    const struct tt_fabric_config config = together_config();
    REQUIRE(together_open(&all, 2, &config));
    if (!may_sleep(&all)) SKIP(NO_BARRIER);
    struct waiter waiter = {.all = &all,
                            .rank = 0,
                            .look = look_for_room,
                            .link = tt_fabric_tx(all.fabrics[0], 1, 0),
                            .nturns = NTURNS};
    struct waiter receiver = {.link = tt_fabric_rx(all.fabrics[1], 0, 0)};
    pthread_t thread;
    REQUIRE(pthread_create(&thread, NULL, wait_asleep, &waiter) == 0);
    /* The sender is as many messages ahead as there are slots. */
    for (int i = 0; i < NTURNS - (int)config.nslots; i++) {
        await_sleeper(&all, 0);
        CHECK(look_for_message(&receiver));
    }
    pthread_join(thread, NULL);
    CHECK_EQ(waiter.nturns, 0);
    together_close(&all);
}

static bool look_for_parts(struct waiter *waiter)
{
    int member = 0;
    while (member < waiter->meeting->nmembers && tt_meeting_is_in(waiter->meeting, member))
        member++;
    return member == waiter->meeting->nmembers;
}

static bool look_for_result(struct waiter *waiter)
{
    return tt_meeting_is_published(waiter->meeting);
}

/* Ranks 0 and 1 sleep in a meeting; rank 2 comes last, and all are woken. */
static void meet_asleep(bool (*looks)(struct waiter *waiter), bool publishes)
{
    enum { N = 3 };
    struct together all;
    struct tt_meeting meetings[N];
    const struct tt_fabric_config config = together_config();
    const struct tt_part part = {.nbytes = 8, .number = 1};
    REQUIRE(together_open(&all, N, &config));
    if (!may_sleep(&all)) SKIP(NO_BARRIER);
    for (int r = 0; r < N; r++)
        REQUIRE(tt_meeting_init(&meetings[r], all.fabrics[r]->segment, sleep_of(&all, r), 0) ==
                TT_OK);
    for (int turn = 0; turn < NTURNS; turn++) {
        struct waiter waiters[2];
        pthread_t threads[2];
        for (int r = 0; r < 2; r++) {
            waiters[r] = (struct waiter){
                .all = &all, .rank = r, .look = looks, .meeting = &meetings[r], .nturns = 1};
            tt_meeting_put(&meetings[r], &part, !publishes);
            REQUIRE(pthread_create(&threads[r], NULL, wait_asleep, &waiters[r]) == 0);
        }
        await_sleeper(&all, 0);
        await_sleeper(&all, 1);
        tt_meeting_put(&meetings[2], &part, !publishes);
        if (publishes) tt_meeting_publish(&meetings[2]);
        for (int r = 0; r < 2; r++) pthread_join(threads[r], NULL);
        for (int r = 0; r < N; r++) tt_meeting_finish(&meetings[r]);
    }
    for (int r = 0; r < N; r++) tt_meeting_fini(&meetings[r]);
    together_close(&all);
}

TEST(sleep, members_of_a_meeting_are_woken_by_the_last_part)
{
    meet_asleep(look_for_parts, false);
}

TEST(sleep, members_of_a_meeting_are_woken_by_who_publishes_the_result)
{
    meet_asleep(look_for_result, true);
}

TEST(sleep, two_threads_of_a_rank_are_both_woken)
{
    struct together all;
    const struct tt_fabric_config config = together_config();
    REQUIRE(together_open(&all, 2, &config));
    if (!may_sleep(&all)) SKIP(NO_BARRIER);
    struct waiter waiters[2];
    pthread_t threads[2];
    pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    for (int i = 0; i < 2; i++) {
        waiters[i] = (struct waiter){.all = &all,
                                     .rank = 1,
                                     .look = look_for_message,
                                     .lock = &lock,
                                     .link = tt_fabric_rx(all.fabrics[1], 0, i),
                                     .nturns = NTURNS};
        REQUIRE(pthread_create(&threads[i], NULL, wait_asleep, &waiters[i]) == 0);
    }
    for (int turn = 0; turn < NTURNS; turn++)
        for (int i = 0; i < 2; i++) send_short(tt_fabric_tx(all.fabrics[0], 1, i));
    for (int i = 0; i < 2; i++) {
        pthread_join(threads[i], NULL);
        CHECK_EQ(waiters[i].nturns, 0);
    }
    together_close(&all);
}

TEST(sleep, a_rank_that_often_finds_nobody_asleep_makes_the_others_look_no_more)
{
    struct together all;
    const struct tt_fabric_config config = together_config();
    uint32_t nwakes;
    REQUIRE(together_open(&all, 2, &config));
    if (!may_sleep(&all)) SKIP(NO_BARRIER);
    struct tt_sleep *sleep = sleep_of(&all, 0);
    CHECK(tt_sleep_arm(sleep, &nwakes));
    CHECK_EQ(atomic_load(&sleep->sleepers->number), 1);
    struct tt_link *tx = tt_fabric_tx(all.fabrics[0], 1, 0);
    struct waiter receiver = {.link = tt_fabric_rx(all.fabrics[1], 0, 0)};
    for (int i = 0; i <= TT_SLEEP_PASSES; i++) {
        CHECK_EQ(atomic_load(&sleep->sleepers->number), 1);
        send_short(tx);
        CHECK(look_for_message(&receiver));
    }
    CHECK_EQ(atomic_load(&sleep->sleepers->number), 0);
    CHECK_EQ(atomic_load(&sleep->nbarriers), 1);
    CHECK(tt_sleep_arm(sleep, &nwakes));
    CHECK_EQ(atomic_load(&sleep->sleepers->number), 1);
    CHECK_EQ(atomic_load(&sleep->nbarriers), 2);
    together_close(&all);
}

TEST(sleep, nobody_sleeps_where_a_process_could_not_register_for_the_barrier)
{
    struct together all;
    const struct tt_fabric_config config = together_config();
    uint32_t nwakes;
    REQUIRE(together_open(&all, 2, &config));
    atomic_store(&sleep_of(&all, 1)->sleepers->each[1].wakes, 0);
    for (int r = 0; r < 2; r++) {
        tt_sleep_finish(sleep_of(&all, r));
        CHECK(!tt_sleep_arm(sleep_of(&all, r), &nwakes));
        CHECK(!is_asleep(&all, r));
    }
    CHECK_EQ(atomic_load(&sleep_of(&all, 0)->sleepers->number), 0);
    together_close(&all);
}
