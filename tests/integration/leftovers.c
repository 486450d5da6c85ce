/* What a communicator, a stream, an event and window memory took is given back. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "ranks.h"
#include "shim.h"

enum { NCYCLES = SANITIZED ? 10 : 50, NRANKS = 3 };

/* A field of /proc/self/status, e.g. VmRSS in KiB or Threads. */
static long status_field(const char *name)
{
    char line[256];
    long value = -1;
    FILE *file = fopen("/proc/self/status", "re");
    if (!file) return -1;
    while (fgets(line, sizeof line, file))
        if (!strncmp(line, name, strlen(name))) value = strtol(line + strlen(name) + 1, NULL, 10);
    fclose(file);
    return value;
}

static int count_maps(void)
{
    int n = 0, c;
    FILE *file = fopen("/proc/self/maps", "re");
    if (!file) return -1;
    while ((c = getc(file)) != EOF) n += c == '\n';
    fclose(file);
    return n;
}

static void use_everything(int rank, tuttiComm_t comm, void *arg)
{
    (void)arg;
    enum { COUNT = 50000 };
    tuttiStream_t stream;
    tuttiEvent_t event;
    tuttiComm_t half = NULL;
    void *window, *handle;
    REQUIRE(tuttiMemAlloc(&window, COUNT * sizeof(int)) == tuttiSuccess);
    memset(window, 0, COUNT * sizeof(int));
    REQUIRE(tuttiStreamCreate(&stream) == tuttiSuccess);
    REQUIRE(tuttiEventCreate(&event) == tuttiSuccess);
    int *ordinary = calloc(COUNT, sizeof *ordinary);
    CHECK_EQ(tuttiCommRegister(comm, ordinary, COUNT * sizeof *ordinary, &handle), tuttiSuccess);
    CHECK_EQ(tuttiCommSplit(comm, rank % 2, rank, &half, NULL), tuttiSuccess);
    CHECK_EQ(tuttiAllReduce(window, window, COUNT, tuttiInt32, tuttiSum, comm, stream),
             tuttiSuccess);
    CHECK_EQ(tuttiEventRecord(event, stream), tuttiSuccess);
    CHECK_EQ(tuttiAllReduce(ordinary, ordinary, COUNT, tuttiInt32, tuttiSum, half, stream),
             tuttiSuccess);
    CHECK_EQ(tuttiStreamSynchronize(stream), tuttiSuccess);
    CHECK_EQ(tuttiCommDeregister(comm, handle), tuttiSuccess);
    CHECK_EQ(tuttiCommDestroy(half), tuttiSuccess);
    CHECK_EQ(tuttiEventDestroy(event), tuttiSuccess);
    CHECK_EQ(tuttiStreamDestroy(stream), tuttiSuccess);
    CHECK_EQ(tuttiBarrier(comm, NULL), tuttiSuccess); /* nobody reads the window any more */
    CHECK_EQ(tuttiMemFree(window), tuttiSuccess);
    free(ordinary);
}

/* The thread that served the unique id ends by itself, a moment after the last rank came. */
static void wait_for_threads(long nthreads)
{
    const int64_t deadline = now_ms() + 5000;
    while (status_field("Threads:") > nthreads && now_ms() < deadline) usleep(1000);
}

TEST(leftovers, fifty_cycles_leave_no_descriptor_thread_mapping_or_memory)
{
    for (int i = 0; i < 3; i++)
        as_threads(NRANKS, NULL, use_everything, NULL); /* what is kept for good is there now */
    wait_for_threads(1);
    const int fds = count_fds(), maps = count_maps();
    const long rss = status_field("VmRSS:"), threads = status_field("Threads:");
    for (int i = 0; i < NCYCLES && !tt_test_failed(); i++)
        as_threads(NRANKS, NULL, use_everything, NULL);
    wait_for_threads(threads);
    CHECK_EQ(status_field("Threads:"), threads);
    CHECK_EQ(count_fds(), fds);
    CHECK_MESSAGE(count_maps() <= maps + NCYCLES / 2 || SANITIZED, "%d mappings before, %d after",
                  maps, count_maps());
    CHECK_MESSAGE(status_field("VmRSS:") - rss < 4096 || SANITIZED,
                  "%ld KiB before, %ld KiB after %d cycles", rss, status_field("VmRSS:"), NCYCLES);
}

/* Resident memory, shared pages counted once: all ranks are in this process. */
TEST(leftovers, a_communicator_takes_little_memory)
{
    enum { N = 8, COUNT = 1 << 16 };
    tuttiComm_t comms[N];
    static float data[N][COUNT];
    memset(data, 0, sizeof data);
    const long before = status_field("VmRSS:");
    REQUIRE(tuttiCommInitAll(comms, N, NULL) == tuttiSuccess);
    const long made = status_field("VmRSS:") - before;
    REQUIRE(tuttiGroupStart() == tuttiSuccess);
    for (int r = 0; r < N; r++)
        CHECK_EQ(tuttiAllReduce(data[r], data[r], COUNT, tuttiFloat32, tuttiSum, comms[r], NULL),
                 tuttiSuccess);
    REQUIRE(tuttiGroupEnd() == tuttiSuccess);
    const long used = status_field("VmRSS:") - before;
    printf("%d ranks: %ld KiB when made, %ld KiB in use\n", N, made, used);
    CHECK_MESSAGE(made < N * 1024L || SANITIZED, "%ld KiB", made);
    CHECK_MESSAGE(used < N * (N - 1) * 4096L || SANITIZED, "%ld KiB", used);
    tuttiCounters_t counters;
    CHECK_EQ(tuttiCommCounters(comms[0], &counters), tuttiSuccess);
    CHECK_EQ(counters.collectives, 1);
    CHECK(counters.memoryBytes > 0);
    for (int r = 0; r < N; r++) CHECK_EQ(tuttiCommDestroy(comms[r]), tuttiSuccess);
}

TEST(leftovers, a_communicator_takes_one_descriptor_however_many_processes_it_has)
{
    static struct job job;
    REQUIRE(job_start(&job, 4, (const char *const[]){"many_communicators", NULL}, NULL, NULL));
    CHECK_MESSAGE(job_wait(&job, 60000), "some rank did not end");
    job_check_exit(&job, 0);
}

/* malloc keeps no small pieces that were freed: they would count as taken. */
TEST(leftovers, a_communicator_says_how_much_memory_it_has_taken)
{
    static const char *const layouts[] = {"aaaa", "aaaabbbb", "abcdefgh"};
    static const char *const extra[] = {"GLIBC_TUNABLES=glibc.malloc.tcache_count=0", NULL};
    for (size_t i = 0; i < sizeof layouts / sizeof *layouts; i++) {
        static struct job job;
        REQUIRE(job_start_on(&job, layouts[i], (const char *const[]){"held", NULL}, extra));
        CHECK_MESSAGE(job_wait(&job, 60000), "%s: some rank did not end", layouts[i]);
        job_check_exit(&job, 0);
    }
}
