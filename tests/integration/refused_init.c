/* A rank whose init fails before it joins: the others, which wait for it, have its error at once.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "ranks.h"
#include "shim.h"
#include "threads.h"

enum { MAX_RANKS = 3, TEXT_BYTES = 1024 };

static tuttiResult_t bad_algorithm(int nranks, tuttiUniqueId id, int rank)
{
    tuttiComm_t comm = NULL;
    const tuttiConfig_t config = CONFIG_WITHIN(60000, 60000, .algorithm = "fastest");
    return tuttiCommInitRankConfig(&comm, nranks, id, rank, &config);
}

static tuttiResult_t no_place(int nranks, tuttiUniqueId id, int rank)
{
    return tuttiCommInitRank(NULL, nranks, id, rank);
}

static tuttiResult_t failed_group(int nranks, tuttiUniqueId id, int rank)
{
    tuttiComm_t comm = NULL;
    float buffer[4];
    CHECK_EQ(tuttiGroupStart(), tuttiSuccess);
    CHECK_EQ(tuttiCommInitRank(&comm, nranks, id, rank), tuttiSuccess);
    CHECK(tuttiAllReduce(buffer, buffer, 4, tuttiFloat32, tuttiSum, NULL, NULL) != tuttiSuccess);
    return tuttiGroupEnd();
}

static const struct refusal {
    tuttiResult_t (*call)(int nranks, tuttiUniqueId id, int rank);
    const char *text; /* of the error on each rank */
} refusals[] = {
    {bad_algorithm, "fastest"},
    {no_place, "the place for the communicator is NULL"},
    {failed_group, "the communicator is NULL"},
};

/* What the ranks share; those of processes have it in shared memory. */
struct scene {
    const struct refusal *refusal;
    tuttiUniqueId id;
    int nranks, culprit;
    atomic_int nended; /* ranks other than the culprit */
    struct {
        tuttiResult_t result;
        char text[TEXT_BYTES];
    } ranks[MAX_RANKS];
};

struct one_rank {
    struct scene *scene;
    int rank;
};

static void await_count(atomic_int *count, int number)
{
    while (atomic_load(count) < number) usleep(1000);
}

/* The culprit stays until the others have ended: they do not hear of its end. */
static void *run_one(void *argument)
{
    const struct one_rank *self = argument;
    struct scene *scene = self->scene;
    tuttiComm_t comm = NULL;
    const tuttiConfig_t config = CONFIG_WITHIN(60000, 60000);
    const bool refuses = self->rank == scene->culprit;
    const tuttiResult_t result =
        refuses ? scene->refusal->call(scene->nranks, scene->id, self->rank)
                : tuttiCommInitRankConfig(&comm, scene->nranks, scene->id, self->rank, &config);
    scene->ranks[self->rank].result = result;
    snprintf(scene->ranks[self->rank].text, TEXT_BYTES, "%s", tuttiGetLastError(NULL));
    if (!refuses) atomic_fetch_add(&scene->nended, 1);
    await_count(&scene->nended, scene->nranks - 1);
    return NULL;
}

static void start_processes(const struct one_rank *ranks, int nranks, pid_t *pids)
{
    for (int r = 1; r < nranks; r++) {
        pids[r] = fork();
        if (pids[r]) continue;
        struct one_rank self = ranks[r];
        run_one(&self);
        _exit(0);
    }
}

static void check_scene(const struct scene *scene, const char *how)
{
    char culprit[32];
    snprintf(culprit, sizeof culprit, "rank %d (pid ", scene->culprit);
    for (int r = 0; r < scene->nranks; r++)
        CHECK_MESSAGE(scene->ranks[r].result == tuttiInvalidArgument &&
                          strstr(scene->ranks[r].text, scene->refusal->text) &&
                          (r == scene->culprit || strstr(scene->ranks[r].text, culprit)),
                      "%s, rank %d of %d, where rank %d fails with \"%s\": %s: %s", how, r,
                      scene->nranks, scene->culprit, scene->refusal->text,
                      tuttiGetErrorString(scene->ranks[r].result), scene->ranks[r].text);
}

/* Rank 0 is of this process, which has made the id. */
static void play(struct scene *scene, bool as_processes)
{
    struct one_rank ranks[MAX_RANKS];
    pthread_t threads[MAX_RANKS];
    pid_t pids[MAX_RANKS];
    REQUIRE(tuttiGetUniqueId(&scene->id) == tuttiSuccess);
    for (int r = 0; r < scene->nranks; r++) ranks[r] = (struct one_rank){scene, r};
    if (as_processes) start_processes(ranks, scene->nranks, pids);
    for (int r = 1; r < scene->nranks && !as_processes; r++)
        CHECK(pthread_create(&threads[r], NULL, run_one, &ranks[r]) == 0);
    run_one(&ranks[0]);
    for (int r = 1; r < scene->nranks; r++)
        if (as_processes)
            CHECK(waitpid(pids[r], NULL, 0) == pids[r]);
        else
            pthread_join(threads[r], NULL);
    check_scene(scene, as_processes ? "processes" : "threads");
}

/* Lets roots end that have told their ranks of a failure: each serves for two seconds more, in a
 * thread, with which ThreadSanitizer lets no later test fork. Its own thread may have begun since.
 */
static void await_roots(int nthreads)
{
    for (int i = 0; i < 4000 && count_now() > nthreads; i++) usleep(1000);
}

static void play_all(bool as_processes)
{
    const int nthreads = count_now();
    struct scene *scene =
        mmap(NULL, sizeof *scene, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    REQUIRE(scene != MAP_FAILED);
    for (size_t i = 0; i < sizeof refusals / sizeof *refusals; i++)
        for (int nranks = 2; nranks <= MAX_RANKS; nranks++)
            for (int culprit = 0; culprit < nranks; culprit++) {
                *scene =
                    (struct scene){.refusal = &refusals[i], .nranks = nranks, .culprit = culprit};
                play(scene, as_processes);
            }
    munmap(scene, sizeof *scene);
    await_roots(nthreads);
}

TEST(refused_init, threads_that_wait_for_a_rank_that_cannot_join_have_its_error)
{
    play_all(false);
}

TEST(refused_init, processes_that_wait_for_a_rank_that_cannot_join_have_its_error)
{
#ifdef __SANITIZE_THREAD__
    SKIP("ThreadSanitizer allows no threads after a fork");
#endif
    play_all(true);
}

/* The ranks of one process try again with the same id, to which no other process has come. */
TEST(refused_init, an_id_that_nobody_has_come_to_is_good_for_another_try)
{
    tuttiComm_t comms[2] = {NULL, NULL};
    tuttiUniqueId id;
    const int nthreads = count_now();
    const tuttiConfig_t bad = CONFIG_WITHIN(60000, 60000, .algorithm = "fastest");
    REQUIRE(tuttiGetUniqueId(&id) == tuttiSuccess);
    for (int attempt = 0; attempt < 2; attempt++) {
        CHECK_EQ(tuttiGroupStart(), tuttiSuccess);
        CHECK_EQ(tuttiCommInitRank(&comms[0], 2, id, 0), tuttiSuccess);
        const tuttiResult_t result =
            tuttiCommInitRankConfig(&comms[1], 2, id, 1, attempt ? NULL : &bad);
        CHECK_EQ(result, attempt ? tuttiSuccess : tuttiInvalidArgument);
        CHECK_EQ(tuttiGroupEnd(), result);
    }
    for (int r = 0; r < 2; r++) CHECK_EQ(tuttiCommDestroy(comms[r]), tuttiSuccess);
    await_roots(nthreads);
}
