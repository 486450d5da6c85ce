/* The order of steps: by the seed alone for one host thread. */
#include "testing.h"

#include <pthread.h>
#include <shim.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { STREAMS = 6, ROUNDS = 8, TEXT = 8192 };

static void CUDA_CB nothing(void *arg)
{
    (void)arg;
}

/* Kernels of several streams append to a log and race; the log goes to standard error. */
static void many_streams(void)
{
    CUdeviceptr log = vt_device(1024), word = vt_device(64);
    CUstream streams[STREAMS];
    for (int i = 0; i < STREAMS; i++) streams[i] = vt_stream(CU_STREAM_NON_BLOCKING);
    for (uint32_t round = 0; round < ROUNDS; round++)
        for (uint32_t i = 0; i < STREAMS; i++) {
            uint32_t id = round * STREAMS + i;
            CHECK_EQ(vt_launch(vt.append, 1, streams[i], (void *[]){&log, &id}), CUDA_SUCCESS);
            if (round == 3) CHECK_EQ(cuLaunchHostFunc(streams[i], nothing, NULL), CUDA_SUCCESS);
            if (round == 4)
                CHECK_EQ(vt_launch(vt.put, 1, streams[i], (void *[]){&word, &id}), CUDA_SUCCESS);
        }
    CHECK_EQ(cuCtxSynchronize(), CUDA_SUCCESS);
    for (int i = 1; i <= ROUNDS * STREAMS; i++) fprintf(stderr, "%u ", vt_read(log, i));
    fprintf(stderr, "\n");
}

static void run_with_seed(int seed, char text[TEXT])
{
    char setting[32];
    snprintf(setting, sizeof setting, "VGPU_SEED=%d", seed);
    /* A loaded machine may keep the only thread from calling for long: work does not run by itself
     * meanwhile. */
    CHECK_EQ(
        vt_run((const char *[]){setting, "VGPU_IDLE_MS=60000", NULL}, many_streams, text, TEXT),
        86);
}

/* Device addresses differ from process to process: they are taken out. */
static void without_addresses(char *text)
{
    for (char *at = text; (at = strstr(at, "0x")) != NULL; at++)
        for (char *digit = at + 2; strchr("0123456789abcdef", *digit) != NULL && *digit; digit++)
            *digit = '#';
}

TEST(vgpu_order, a_seed_gives_the_same_order_and_reports_again)
{
    static char first[TEXT], second[TEXT];
    for (int seed = 1; seed <= 3; seed++) {
        run_with_seed(seed, first);
        run_with_seed(seed, second);
        without_addresses(first);
        without_addresses(second);
        CHECK(strstr(first, "race") != NULL);
        CHECK_MESSAGE(strstr(first, "gives the same order again") != NULL, "%s", first);
        CHECK_STR(second, first);
    }
}

/* The line of the log: the first that begins with a digit. */
static char *log_of(char *text)
{
    for (char *at = text; at != NULL && *at != '\0'; at = strchr(at, '\n'), at = at ? at + 1 : at) {
        char *end = strchr(at, '\n');
        if (*at < '0' || *at > '9' || end == NULL) continue;
        *end = '\0';
        return at;
    }
    CHECK_MESSAGE(false, "no log in: %s", text);
    return text;
}

TEST(vgpu_order, seeds_give_different_orders)
{
    static char first[TEXT], other[TEXT];
    int differ = 0;
    run_with_seed(1, first);
    const char *log = log_of(first);
    for (int seed = 2; seed <= 5; seed++) {
        run_with_seed(seed, other);
        differ += strcmp(log, log_of(other)) != 0;
    }
    CHECK_EQ(differ, 4);
}

static void lazy(void)
{
    volatile uint32_t *word = vt_mapped(64);
    CUdeviceptr w = (CUdeviceptr)(uintptr_t)word;
    uint32_t one = 1;
    CHECK_EQ(vt_launch(vt.set, 1, NULL, (void *[]){&w, &one}), CUDA_SUCCESS);
    CHECK_EQ(*word, 0); /* nothing runs until the next call */
    CHECK_EQ(cuCtxSynchronize(), CUDA_SUCCESS);
    CHECK_EQ(*word, 1);
}

TEST(vgpu_order, work_waits_for_the_next_call_of_the_only_thread)
{
    vt_quiet((const char *[]){"VGPU_IDLE_MS=60000", NULL}, lazy);
}

/* The only thread asks again and again, and never waits. */
static void asks(void)
{
    enum { CALLS = 1000, MOST = 100000 };
    const CUstream kernel = vt_stream(CU_STREAM_NON_BLOCKING);
    const CUstream operation = vt_stream(CU_STREAM_NON_BLOCKING);
    volatile uint32_t *word = vt_mapped(64);
    CUdeviceptr w = (CUdeviceptr)(uintptr_t)word;
    int calls = 0;
    OK(vt_await(w, 1, w + 4, kernel));
    OK(cuStreamWaitValue32(operation, w, 1, CU_STREAM_WAIT_VALUE_EQ));
    for (int i = 0; i < CALLS; i++) CHECK_EQ(cuStreamQuery(kernel), CUDA_ERROR_NOT_READY);
    *word = 1;
    while (calls < MOST && cuStreamQuery(kernel) == CUDA_ERROR_NOT_READY) calls++;
    while (calls < MOST && cuStreamQuery(operation) == CUDA_ERROR_NOT_READY) calls++;
    CHECK(calls < MOST);
}

TEST(vgpu_order, work_sees_what_a_thread_writes_that_asks_whether_it_has_ended)
{
    vt_quiet((const char *[]){"VGPU_IDLE_MS=60000", NULL}, asks);
}

static void *call(void *arg)
{
    CUcontext *context = arg;
    CHECK_EQ(cuCtxGetCurrent(context), CUDA_SUCCESS);
    return NULL;
}

static void second_thread(void)
{
    CUcontext context;
    pthread_t thread;
    REQUIRE(pthread_create(&thread, NULL, call, &context) == 0);
    pthread_join(thread, NULL);
    volatile uint32_t *word = vt_mapped(64);
    CUdeviceptr w = (CUdeviceptr)(uintptr_t)word;
    uint32_t one = 1;
    CHECK_EQ(vt_launch(vt.set, 1, NULL, (void *[]){&w, &one}), CUDA_SUCCESS);
    while (*word == 0) { /* no call */
    }
    CHECK_EQ(cuCtxSynchronize(), CUDA_SUCCESS);
}

TEST(vgpu_order, work_runs_by_itself_once_two_threads_have_called)
{
    vt_quiet((const char *[]){"VGPU_IDLE_MS=60000", NULL}, second_thread);
}
