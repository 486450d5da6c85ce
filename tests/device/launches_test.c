/* How many kernels the calls of groups are, counted by the virtual GPU: all calls of a rank are one
 * launch, and so are those of the ranks that one thread drives on one GPU and stream. */
#include <dlfcn.h>
#include <pthread.h>
#include <string.h>
#include <time.h>
#include <vgpu/traffic.h>

#include "driven.h"
#include "communicator/communicator.h"
#include "carrier/kernel/kernel.h"
#include "driver/cuda.h"
#include "shim.h"
#include "threads.h"

enum { ALL_GPUS = 2, SHORT_MS = 300, PATIENT_MS = 5000, LONG_MS = 60000 };

/* All GPUs together. */
static uint64_t count_launches(void)
{
    uint64_t sum = 0;
    __typeof__(vgpu_traffic) *traffic_of;
    void *library = dlopen("libcuda.so.1", RTLD_NOW);
    void *symbol = library ? dlsym(library, "vgpu_traffic") : NULL;
    memcpy(&traffic_of, &symbol, sizeof symbol);
    for (int gpu = 0; gpu < ALL_GPUS; gpu++) {
        struct vgpu_traffic traffic = {.launches = 0};
        CHECK(traffic_of && traffic_of(gpu, &traffic) == 0);
        sum += traffic.launches;
    }
    if (library) dlclose(library);
    return sum;
}

static void run_sums(int nranks, int ngpus, int ncalls, driven_choice stream, uint64_t nlaunches)
{
    struct driven d;
    if (!driven_begin(&d, nranks, ngpus)) return;
    for (int again = 0; again < 2; again++) {
        driven_write_numbers(&d);
        const uint64_t before = count_launches();
        driven_issue_sums(&d, ncalls, stream);
        driven_synchronize(&d);
        CHECK_EQ(count_launches() - before, nlaunches);
        driven_check_sums(&d, ncalls);
    }
    driven_finish(&d);
}

TEST(device_launches, ranks_of_a_gpu_on_one_stream_share_one_launch)
{
    run_sums(8, 1, 1, driven_stream_of_gpu, 1);
}

TEST(device_launches, a_group_of_all_ranks_of_two_gpus_is_one_launch_a_gpu)
{
    run_sums(4, 2, 2, driven_no_stream, 2);
}

TEST(device_launches, ranks_on_streams_of_their_own_have_a_launch_each)
{
    run_sums(2, 1, 3, driven_stream_of_rank, 2);
}

/* A launch holds eight calls: of three ranks two each. */
TEST(device_launches, long_groups_are_launches_of_eight_calls)
{
    run_sums(3, 1, 5, driven_stream_of_gpu, 3);
    run_sums(1, 1, 17, driven_stream_of_gpu, 3);
}

/* Another thread's communicator joins the share of rank 1 while ranks 0 and 1 share a launch: the
 * share's order begins when the launch is in it. */
static struct {
    __typeof__(cuLaunchKernel) *real;
    struct tt_share *share;
    pthread_t thread;
    int nlaunches;
    bool has_order;
} joining;

static void *join_share(void *argument)
{
    (void)argument;
    CHECK_EQ(tt_share_begin_order(joining.share), TT_OK);
    return NULL;
}

static CUresult CUDAAPI join_and_launch(CUfunction function, unsigned gx, unsigned gy, unsigned gz,
                                        unsigned bx, unsigned by, unsigned bz, unsigned shared,
                                        CUstream stream, void **parameters, void **extra)
{
    if (!joining.nlaunches++) {
        CHECK(pthread_create(&joining.thread, NULL, join_share, NULL) == 0);
        nanosleep(&(struct timespec){.tv_nsec = 20000000}, NULL);
        joining.has_order = tt_share_has_order(joining.share);
    }
    return joining.real(function, gx, gy, gz, bx, by, bz, shared, stream, parameters, extra);
}

TEST(device_launches, a_share_that_is_joined_during_a_launch_has_the_launch_in_its_order)
{
    struct driven d;
    if (!driven_begin(&d, 2, 1)) return;
    struct tt_cuda *driver = (struct tt_cuda *)(uintptr_t)tt_cuda_load();
    joining.real = driver->LaunchKernel;
    joining.share = d.comms[1]->core.kernel->place.share;
    driver->LaunchKernel = join_and_launch;
    driven_issue_sums(&d, 1, driven_stream_of_gpu);
    driver->LaunchKernel = joining.real;
    pthread_join(joining.thread, NULL);
    CHECK_EQ(joining.nlaunches, 1);
    CHECK(!joining.has_order);
    CHECK(tt_share_has_order(joining.share));
    driven_synchronize(&d);
    driven_check_sums(&d, 1);
    driven_finish(&d);
}

/* What rank 1 has to do on another stream comes before its call: the other rank's does not wait for
 * that. */
TEST(device_launches, a_rank_that_comes_from_another_stream_has_a_launch_of_its_own)
{
    struct driven d;
    if (!driven_begin(&d, 2, 1)) return;
    gpu_block(0, d.device_streams[1]);
    const uint64_t before = count_launches();
    for (int r = 0; r < 2; r++)
        CHECK_EQ(
            tuttiBroadcast(d.memory[r], d.memory[r], 8, tuttiInt32, 0, d.comms[r], d.streams[r]),
            tuttiSuccess);
    driven_issue_sums(&d, 1, driven_stream_of_gpu);
    gpu_unblock();
    driven_synchronize(&d);
    CHECK_EQ(count_launches() - before, 4);
    driven_finish(&d);
}

/* ---- Messages ------------------------------------------------------------------------------- */

/* Around the ring of ranks. */
static void issue_ring(struct driven *d, int from, int to)
{
    CHECK_EQ(tuttiGroupStart(), tuttiSuccess);
    for (int r = from; r < to; r++) {
        const int next = (r + 1) % d->nranks, last = (r + d->nranks - 1) % d->nranks;
        int *memory = d->memory[r];
        tuttiStream_t stream = d->streams[from];
        CHECK_EQ(tuttiSend(memory, DRIVEN_N / 2, tuttiInt32, next, d->comms[r], stream),
                 tuttiSuccess);
        CHECK_EQ(
            tuttiRecv(memory + DRIVEN_N / 2, DRIVEN_N / 2, tuttiInt32, last, d->comms[r], stream),
            tuttiSuccess);
    }
    CHECK_EQ(tuttiGroupEnd(), tuttiSuccess);
}

/* split: ranks from there on are another group. */
static void run_ring(int split, uint64_t nlaunches)
{
    struct driven d;
    int data[DRIVEN_N], nwrong = 0;
    if (!driven_begin(&d, 3, 1)) return;
    const uint64_t before = count_launches();
    if (split) issue_ring(&d, 0, split);
    issue_ring(&d, split, d.nranks);
    driven_synchronize(&d);
    CHECK_EQ(count_launches() - before, nlaunches);
    for (int r = 0; r < d.nranks; r++) {
        gpu_read(0, data, d.memory[r], sizeof data);
        for (int i = 0; i < DRIVEN_N / 2; i++) nwrong += data[DRIVEN_N / 2 + i] != (r + 2) % 3 + i;
    }
    CHECK_EQ(nwrong, 0);
    driven_finish(&d);
}

TEST(device_launches, messages_among_the_ranks_of_a_group_share_one_launch)
{
    run_ring(0, 1);
}

/* What they need of a rank outside may have to wait for one of them alone. */
TEST(device_launches, messages_with_a_rank_outside_of_the_group_share_none)
{
    run_ring(2, 3);
}

/* The last two ranks have a message behind the sum. */
static void run_sum_and_message(int nranks, uint64_t nlaunches)
{
    struct driven d;
    if (!driven_begin_with(&d, nranks, 1, PATIENT_MS)) return;
    const int from = nranks - 2, to = nranks - 1;
    int number = 0;
    const uint64_t before = count_launches();
    CHECK_EQ(tuttiGroupStart(), tuttiSuccess);
    for (int r = 0; r < nranks; r++)
        CHECK_EQ(tuttiAllReduce(d.memory[r], d.memory[r], 1, tuttiInt32, tuttiSum, d.comms[r],
                                d.streams[0]),
                 tuttiSuccess);
    CHECK_EQ(tuttiSend(d.memory[from] + 1, 1, tuttiInt32, to, d.comms[from], d.streams[0]),
             tuttiSuccess);
    CHECK_EQ(tuttiRecv(d.memory[to] + 2, 1, tuttiInt32, from, d.comms[to], d.streams[0]),
             tuttiSuccess);
    CHECK_EQ(tuttiGroupEnd(), tuttiSuccess);
    driven_synchronize(&d);
    CHECK_EQ(count_launches() - before, nlaunches);
    gpu_read(0, &number, d.memory[to] + 2, sizeof number);
    CHECK_EQ(number, from + 1);
    driven_finish(&d);
}

/* Of three ranks a launch holds two calls each, of six one. */
TEST(device_launches, ranks_of_a_launch_may_have_more_calls_than_the_first_of_them)
{
    run_sum_and_message(3, 1);
    run_sum_and_message(6, 2);
}

/* Rank 0 sends; rank 1 receives that in a later group, on another stream. */
TEST(device_launches, a_message_that_a_later_group_receives_does_not_hold_up_its_receiver)
{
    struct driven d;
    int number = 0;
    if (!driven_begin_with(&d, 3, 1, PATIENT_MS)) return;
    CHECK_EQ(tuttiGroupStart(), tuttiSuccess);
    for (int r = 0; r < 2; r++)
        CHECK_EQ(tuttiSend(d.memory[r] + 1, 1, tuttiInt32, r + 1, d.comms[r], d.streams[0]),
                 tuttiSuccess);
    CHECK_EQ(tuttiRecv(d.memory[2], 1, tuttiInt32, 1, d.comms[2], d.streams[0]), tuttiSuccess);
    CHECK_EQ(tuttiGroupEnd(), tuttiSuccess);
    CHECK_EQ(tuttiRecv(d.memory[1], 1, tuttiInt32, 0, d.comms[1], d.streams[1]), tuttiSuccess);
    driven_synchronize(&d);
    for (int r = 1; r < 3; r++) {
        gpu_read(0, &number, d.memory[r], sizeof number);
        CHECK_EQ(number, r);
    }
    driven_finish(&d);
}

/* Rank 1 waits for a message of rank 2 before it answers rank 0, which shares no launch with rank 2
 * then: what rank 2 sends behind it would wait for rank 1. */
TEST(device_launches, a_peer_that_is_not_ready_does_not_hold_up_other_ranks)
{
    struct driven d;
    int numbers[2] = {0, 0};
    if (!driven_begin_with(&d, 3, 1, PATIENT_MS)) return;
    CHECK_EQ(tuttiRecv(d.memory[1], 1, tuttiInt32, 2, d.comms[1], d.streams[1]), tuttiSuccess);
    CHECK_EQ(tuttiGroupStart(), tuttiSuccess);
    for (int r = 0; r < 3; r++) {
        const int from = (r + 2) % 3, to = (r + 1) % 3;
        if (r != 1)
            CHECK_EQ(tuttiSend(d.memory[r] + 2, 1, tuttiInt32, to, d.comms[r], d.streams[0]),
                     tuttiSuccess);
        if (r != 2)
            CHECK_EQ(tuttiRecv(d.memory[r] + 1, 1, tuttiInt32, from, d.comms[r], d.streams[0]),
                     tuttiSuccess);
    }
    CHECK_EQ(tuttiGroupEnd(), tuttiSuccess);
    CHECK_EQ(tuttiSend(d.memory[2], 1, tuttiInt32, 1, d.comms[2], d.streams[2]), tuttiSuccess);
    driven_synchronize(&d);
    gpu_read(0, numbers, d.memory[1], sizeof numbers);
    CHECK_EQ(numbers[0], 2);
    CHECK_EQ(numbers[1], 2);
    driven_finish(&d);
}

/* Rank 3, of a thread of its own: passes on what it gets. */
static void *pass_on(void *argument)
{
    const struct driven *d = argument;
    CHECK_EQ(tuttiRecv(d->memory[3], DRIVEN_N, tuttiInt32, 1, d->comms[3], d->streams[3]),
             tuttiSuccess);
    CHECK_EQ(tuttiSend(d->memory[3], DRIVEN_N, tuttiInt32, 2, d->comms[3], d->streams[3]),
             tuttiSuccess);
    CHECK_EQ(tuttiStreamSynchronize(d->streams[3]), tuttiSuccess);
    return NULL;
}

/* Rank 2 takes rank 0's message of the group when it has rank 3's, which comes when rank 1 has sent
 * on another stream, after the group: so rank 1 must not wait for rank 0. */
TEST(device_launches, messages_to_a_rank_that_waits_on_another_stream_share_none)
{
    enum { PATIENCE_MS = 5000 };
    struct driven d;
    pthread_t thread;
    int data[DRIVEN_N];
    if (!driven_begin_with(&d, 4, 1, PATIENCE_MS)) return;
    CHECK_EQ(pthread_create(&thread, NULL, pass_on, &d), 0);
    CHECK_EQ(tuttiRecv(d.memory[2], DRIVEN_N, tuttiInt32, 3, d.comms[2], d.streams[2]),
             tuttiSuccess);
    CHECK_EQ(tuttiGroupStart(), tuttiSuccess);
    for (int to = 1; to <= 2; to++) {
        CHECK_EQ(tuttiSend(d.memory[0], DRIVEN_N / 2, tuttiInt32, to, d.comms[0], d.streams[0]),
                 tuttiSuccess);
        CHECK_EQ(tuttiRecv(d.memory[to], DRIVEN_N / 2, tuttiInt32, 0, d.comms[to],
                           d.streams[to == 2 ? 2 : 0]),
                 tuttiSuccess);
    }
    CHECK_EQ(tuttiGroupEnd(), tuttiSuccess);
    CHECK_EQ(tuttiSend(d.memory[1], DRIVEN_N, tuttiInt32, 3, d.comms[1], d.streams[1]),
             tuttiSuccess);
    driven_synchronize(&d);
    pthread_join(thread, NULL);
    gpu_read(0, data, d.memory[2], sizeof data);
    CHECK_EQ(data[DRIVEN_N / 2 - 1], DRIVEN_N / 2 - 1);
    CHECK_EQ(data[DRIVEN_N - 1], DRIVEN_N);
    driven_finish(&d);
}

/* ---- The attendant -------------------------------------------------------------------------- */

TEST(device_attendant, all_communicators_of_a_process_have_one_thread)
{
    struct driven first, more;
    if (!driven_begin(&first, 2, 2) || !driven_begin(&more, 1, 1)) return;
    driven_finish(&more);
    const int nthreads = count_threads();
    if (!driven_begin(&more, 4, 2)) return;
    CHECK_EQ(count_threads(), nthreads);
    driven_issue_sums(&more, 1, driven_stream_of_gpu);
    CHECK_EQ(count_threads(), nthreads);
    driven_synchronize(&more);
    driven_check_sums(&more, 1);
    driven_finish(&more);
    driven_finish(&first);
}

/* Of rank `from` on: one call on each rank's stream. */
static void issue_from(struct driven *d, int from)
{
    for (int r = from; r < d->nranks; r++)
        CHECK_EQ(tuttiAllReduce(d->memory[r], d->memory[r], DRIVEN_N, tuttiInt32, tuttiSum,
                                d->comms[r], d->streams[r]),
                 tuttiSuccess);
}

/* The call of each communicator but one waits for its rank 0. */
TEST(device_attendant, a_communicator_that_waits_or_fails_does_not_hold_up_another)
{
    struct driven waits, fails, works;
    if (!driven_begin_with(&waits, 2, 1, LONG_MS) || !driven_begin_with(&fails, 2, 1, SHORT_MS))
        return;
    if (!driven_begin(&works, 2, 1)) return;
    issue_from(&waits, 1);
    issue_from(&fails, 1);
    issue_from(&works, 0);
    driven_synchronize(&works);
    driven_check_sums(&works, 1);
    CHECK_EQ(tuttiStreamSynchronize(fails.streams[1]), tuttiTimeout);
    CHECK(strstr(tuttiGetLastError(NULL), "rank 0"));
    CHECK_EQ(tuttiStreamQuery(waits.streams[1]), tuttiInProgress);
    driven_issue_sums(&works, 1, driven_stream_of_rank);
    driven_synchronize(&works);
    waits.nranks = 1;
    issue_from(&waits, 0);
    waits.nranks = 2;
    driven_synchronize(&waits);
    driven_check_sums(&waits, 1);
    driven_finish(&works);
    driven_finish(&fails);
    driven_finish(&waits);
}
