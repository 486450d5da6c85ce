/* GPUs opened, closed and given kernels to run, on two virtual GPUs. */
#include <cuda.h>
#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../driver/calls.h"
#include "device/device.h"
#include "shim.h"

static struct tt_device *open_gpu(int gpu)
{
    struct tt_device *device = NULL;
    CHECK_EQ(tt_device_open(gpu, &device), TT_OK);
    return device;
}

TEST(launch, a_gpu_is_one_device_for_all_who_open_it)
{
    struct tt_device *first = open_gpu(0), *second = open_gpu(0), *other = open_gpu(1);
    CHECK(first == second && first != other);
    CHECK_EQ(tt_context_gpu(tt_device_context(first)), 0);
    CHECK_EQ(tt_context_gpu(tt_device_context(other)), 1);
    tt_device_close(first);
    CHECK(tt_device_capacity(second) > 0);
    tt_device_close(second);
    tt_device_close(other);
    tt_device_close(NULL);
    first = open_gpu(0);
    CHECK(first && tt_device_capacity(first) > 0);
    tt_device_close(first);
}

TEST(launch, a_gpu_that_does_not_exist_is_an_error_that_names_it)
{
    struct tt_device *device = NULL;
    CHECK_EQ(tt_device_open(2, &device), TT_ERR_ARGUMENT);
    CHECK(strstr(tt_last_error(), "GPU 2 does not exist") != NULL);
    CHECK(device == NULL);
}

TEST(launch, a_batch_without_blocks_launches_nothing)
{
    struct tt_device *device = open_gpu(0);
    struct tt_device_batch batch = {.ncalls = 0};
    REQUIRE(device);
    CHECK_EQ(tt_device_launch(device, NULL, &batch), TT_OK);
    batch.ncalls = TT_DEVICE_MOST_CALLS;
    CHECK_EQ(tt_device_launch(device, NULL, &batch), TT_OK);
    tt_device_close(device);
}

TEST(launch, more_blocks_than_the_gpu_holds_are_refused_with_both_numbers)
{
    struct tt_device *device = open_gpu(0);
    struct tt_device_batch batch = {.ncalls = 2};
    char expected[64];
    REQUIRE(device);
    const int capacity = tt_device_capacity(device);
    batch.calls[0].nblocks = (uint32_t)capacity;
    batch.calls[1].nblocks = 1;
    CHECK_EQ(tt_device_launch(device, NULL, &batch), TT_ERR_USAGE);
    snprintf(expected, sizeof expected, "%d blocks in one launch; GPU 0 (", capacity + 1);
    CHECK_MESSAGE(strstr(tt_last_error(), expected) != NULL, "%s", tt_last_error());
    snprintf(expected, sizeof expected, "holds %d at the same time", capacity);
    CHECK_MESSAGE(strstr(tt_last_error(), expected) != NULL, "%s", tt_last_error());
    batch.calls[0].nblocks = batch.calls[1].nblocks = UINT32_MAX; /* 2^32 - 2 in 32 bits */
    CHECK_EQ(tt_device_launch(device, NULL, &batch), TT_ERR_USAGE);
    batch = (struct tt_device_batch){.ncalls = TT_DEVICE_MOST_CALLS + 1};
    CHECK_EQ(tt_device_launch(device, NULL, &batch), TT_ERR_USAGE);
    CHECK(strstr(tt_last_error(), "9 calls in one launch; at most 8") != NULL);
    tt_device_close(device);
}

/* A call whose blocks would report into memory that does not exist. */
TEST(launch, a_node_that_was_emptied_makes_no_call)
{
    struct tt_device *device = open_gpu(0);
    struct tt_device_batch batch = {.ncalls = 1};
    CUgraph graph = NULL;
    CUgraphExec made = NULL;
    void *node = NULL;
    REQUIRE(device && tt_context_enter(tt_device_context(device)) == TT_OK);
    batch.calls[0].nblocks = 3;
    CALL(cuGraphCreate, &graph, 0);
    CHECK_EQ(tt_device_add_node(device, graph, NULL, 0, &batch, &node), TT_OK);
    CHECK_EQ(tt_device_empty_node(device, node), TT_OK);
    CALL(cuGraphInstantiateWithFlags, &made, graph, 0);
    CALL(cuGraphLaunch, made, NULL);
    CALL(cuStreamSynchronize, NULL);
    CALL(cuGraphExecDestroy, made);
    CALL(cuGraphDestroy, graph);
    tt_context_leave(tt_device_context(device));
    tt_device_close(device);
}

static CUcontext current(void)
{
    CUresult (*get)(CUcontext *);
    void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL), *symbol;
    CUcontext context = NULL;
    symbol = library ? dlsym(library, "cuCtxGetCurrent") : NULL;
    memcpy(&get, &symbol, sizeof get);
    CHECK(symbol && get(&context) == CUDA_SUCCESS);
    return context;
}

TEST(launch, the_current_context_of_the_thread_stays_as_it_was)
{
    struct tt_device *device, *other = open_gpu(1);
    struct tt_device_batch batch = {.ncalls = 1};
    REQUIRE(other && tt_context_enter(tt_device_context(other)) == TT_OK);
    const CUcontext mine = current();
    device = open_gpu(0);
    CHECK(mine && current() == mine);
    CHECK(device && tt_device_launch(device, NULL, &batch) == TT_OK);
    CHECK(current() == mine);
    tt_device_close(device);
    CHECK(current() == mine);
    tt_context_leave(tt_device_context(other));
    tt_device_close(other);
    CHECK(current() == NULL);
}

enum { THREADS = 4, TURNS = 2 };
static pthread_barrier_t together;
static _Atomic(struct tt_device *) seen[THREADS];

static void *open_and_close(void *argument)
{
    const int self = (int)(intptr_t)argument;
    struct tt_device_batch batch = {.ncalls = 1};
    for (int turn = 0; turn < TURNS; turn++) {
        struct tt_device *device = NULL;
        pthread_barrier_wait(&together);
        CHECK_EQ(tt_device_open(0, &device), TT_OK);
        seen[self] = device;
        pthread_barrier_wait(&together);
        CHECK(device && device == seen[(self + 1) % THREADS]);
        if (device) CHECK_EQ(tt_device_launch(device, NULL, &batch), TT_OK);
        tt_device_close(device);
        /* Again, while others close. */
        CHECK_EQ(tt_device_open(0, &device), TT_OK);
        tt_device_close(device);
    }
    return NULL;
}

TEST(launch, threads_that_open_a_gpu_at_the_same_time_get_the_same_device)
{
    pthread_t threads[THREADS];
    pthread_barrier_init(&together, NULL, THREADS);
    for (int i = 0; i < THREADS; i++)
        CHECK_EQ(pthread_create(&threads[i], NULL, open_and_close, (void *)(intptr_t)i), 0);
    for (int i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
    pthread_barrier_destroy(&together);
}

static bool child_is_refused(struct tt_device *device)
{
    struct tt_device *again = NULL, *other = NULL;
    const bool refused = tt_device_open(0, &again) == TT_ERR_USAGE && !again &&
                         strstr(tt_last_error(), "before it forked") != NULL;
    const bool fails = tt_device_open(1, &other) == TT_ERR_USAGE && !other &&
                       strstr(tt_last_error(), "before it forked") != NULL;
    tt_device_close(device);
    if (!refused || !fails) fprintf(stderr, "in the child: %s\n", tt_last_error());
    return refused && fails;
}

TEST(launch, a_child_made_by_fork_is_told_that_it_cannot_use_the_gpu)
{
    struct tt_device *device = open_gpu(0);
    int status = -1;
    REQUIRE(device);
    const pid_t child = fork();
    if (child == 0) _exit(child_is_refused(device) ? 0 : 1);
    CHECK(child > 0 && waitpid(child, &status, 0) == child);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    struct tt_device_batch batch = {.ncalls = 0};
    CHECK_EQ(tt_device_launch(device, NULL, &batch), TT_OK);
    tt_device_close(device);
}
