/* Names that the resolver does not resolve in time. This program's own getaddrinfo stands before
 * libc's: it keeps those who ask for one name waiting until the test lets them go. */
#include <dlfcn.h>
#include <netdb.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "ranks.h"
#include "shim.h"

enum { GIVE_UP_S = 30 }; /* so that a test of a resolver that waits for ever fails, and ends */
static const char slow_name[] = "slow.tutti.test";
static sem_t let_go, freed;
static atomic_int nasked;

static bool await(sem_t *event)
{
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += GIVE_UP_S;
    return sem_timedwait(event, &until) == 0;
}

static void *next_of(const char *name)
{
    return dlsym(RTLD_NEXT, name);
}

int getaddrinfo(const char *host, const char *service, const struct addrinfo *hints,
                struct addrinfo **list)
{
    int (*next)(const char *, const char *, const struct addrinfo *, struct addrinfo **);
    void *found = next_of("getaddrinfo");
    memcpy(&next, &found, sizeof next);
    const bool numeric = hints && hints->ai_flags & AI_NUMERICHOST;
    if (!host || numeric || strcmp(host, slow_name) != 0) return next(host, service, hints, list);
    atomic_fetch_add(&nasked, 1);
    if (!await(&let_go)) return EAI_AGAIN;
    return next("127.0.0.1", service, hints, list);
}

void freeaddrinfo(struct addrinfo *list)
{
    void (*next)(struct addrinfo *);
    void *found = next_of("freeaddrinfo");
    memcpy(&next, &found, sizeof next);
    next(list);
    sem_post(&freed);
}

static struct rank_run run_of(const char *method, int64_t timeout_ms)
{
    const struct tt_unique_id none = {0};
    struct rank_run run = rank_run_of(&none, 0, 2);
    run.method = method;
    run.nprocesses = 2;
    run.timeout_ms = timeout_ms;
    return run;
}

TEST(resolve, a_name_server_that_is_silent_ends_at_the_init_deadline)
{
    sem_init(&let_go, 0, 0);
    sem_init(&freed, 0, 0);
    struct rank_run run = run_of("tcp://slow.tutti.test:29511", 200);
    run_rank(&run);
    expect_ranks(&run, 1, TT_ERR_TIMEOUT, "'slow.tutti.test'");
    expect_ranks(&run, 1, TT_ERR_TIMEOUT, "TUTTI_INIT_TIMEOUT_MS");
    CHECK_EQ(atomic_load(&nasked), 1);
    sem_post(&let_go); /* the answer comes when nobody waits for it: it is freed all the same */
    CHECK(await(&freed));
}

TEST(resolve, many_names_that_are_late_do_no_harm_to_later_ones)
{
    enum { MANY = 8 };
    struct rank_run runs[MANY];
    sem_init(&let_go, 0, 0);
    sem_init(&freed, 0, 0);
    for (int i = 0; i < MANY; i++) runs[i] = run_of("tcp://slow.tutti.test:29511", 100);
    run_ranks(runs, MANY);
    expect_ranks(runs, MANY, TT_ERR_TIMEOUT, "'slow.tutti.test'");
    struct rank_run other = run_of("tcp://nonexistent.invalid:29511", 20000);
    run_rank(&other);
    expect_ranks(&other, 1, TT_ERR_SYSTEM, "'nonexistent.invalid'");
    for (int i = 0; i < MANY; i++) sem_post(&let_go);
    for (int i = 0; i < MANY; i++) CHECK(await(&freed));
}

TEST(resolve, a_name_that_is_late_but_in_time_is_used)
{
    sem_init(&let_go, 0, 1);
    struct rank_run run = run_of("tcp://slow.tutti.test:1", 200);
    run.process = run.rank = 1; /* resolves, and then finds nobody */
    run_rank(&run);
    expect_ranks(&run, 1, TT_ERR_TIMEOUT, "no root at 127.0.0.1:1");
}
