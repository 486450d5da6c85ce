/* Streams of tuttiStreamOfDevice, on two virtual GPUs: which CUDA stream has which, and what a call
 * costs. */
#include <cuda.h>
#include <pthread.h>
#include <stdint.h>

#include "carrier/gpu_stream.h"
#include "driver/calls.h"
#include "driver/context_internal.h"
#include "shim.h"
#include "tutti.h"
#ifdef TT_COUNTS_ALLOCATIONS
#include "allocations.h"
#endif

/* The GPU's context is the thread's current one. */
static void use_gpu(int gpu)
{
    CUcontext context = NULL;
    CALL(cuInit, 0);
    CALL(cuDevicePrimaryCtxRetain, &context, gpu);
    CALL(cuCtxSetCurrent, context);
}

static CUstream make(int priority)
{
    CUstream stream = NULL;
    CALL(cuStreamCreateWithPriority, &stream, CU_STREAM_NON_BLOCKING, priority);
    return stream;
}

static tuttiStream_t find(int gpu, CUstream handle)
{
    tuttiStream_t stream = NULL;
    CHECK_MESSAGE(tuttiStreamOfDevice(&stream, gpu, handle) == tuttiSuccess, "%s",
                  tuttiGetLastError(NULL));
    return stream;
}

static const struct tt_gpu_stream *own(tuttiStream_t stream)
{
    return tt_gpu_stream_of((struct tt_stream *)stream);
}

static void check_error(tuttiResult_t result, tuttiResult_t expected, const char *text)
{
    CHECK_EQ(result, expected);
    CHECK_MESSAGE(strstr(tuttiGetLastError(NULL), text), "'%s' is not in '%s'", text,
                  tuttiGetLastError(NULL));
}

TEST(gpu_streams, a_cuda_stream_has_one_stream_and_each_default_stream_its_own)
{
    use_gpu(0);
    const CUstream handles[] = {make(0), make(0), NULL, CU_STREAM_LEGACY, CU_STREAM_PER_THREAD};
    enum { N = sizeof handles / sizeof *handles };
    tuttiStream_t streams[N + 1];
    for (int i = 0; i < N; i++) streams[i] = find(0, handles[i]);
    streams[N] = find(1, NULL); /* of another GPU */
    for (int i = 0; i <= N; i++) {
        CHECK(streams[i]);
        for (int j = 0; j < i; j++) CHECK(streams[i] != streams[j]);
    }
    for (int i = 0; i < N; i++) CHECK(find(0, handles[i]) == streams[i]);
    CHECK(own(streams[2])->facts.is_legacy && own(streams[3])->facts.is_legacy);
    CHECK(own(streams[4])->facts.is_each_threads && !own(streams[0])->facts.blocks);
    CHECK_EQ(tt_context_gpu(own(streams[N])->context), 1);
    for (int i = 0; i < 2; i++) CALL(cuStreamDestroy_v2, handles[i]);
}

/* Makes streams until one has the address. */
static CUstream make_at(CUstream address, int priority)
{
    enum { MOST = 64 };
    CUstream made[MOST];
    int n = 0;
    do made[n] = make(priority);
    while (made[n] != address && ++n < MOST);
    for (int i = 0; i < n; i++) CALL(cuStreamDestroy_v2, made[i]);
    CHECK_MESSAGE(n < MOST, "no stream of %d came to lie at %p", MOST, (void *)address);
    return n < MOST ? made[n] : NULL;
}

TEST(gpu_streams, another_stream_at_the_same_address_is_another_stream_in_the_same_memory)
{
    if (tt_test_sanitized()) SKIP("a sanitizer's malloc gives no address again soon");
    use_gpu(0);
    CUstream handle = make(0);
    const tuttiStream_t stream = find(0, handle);
    const uint64_t number = own(stream)->number;
    CHECK_EQ(own(stream)->facts.priority, 0);
    CALL(cuStreamDestroy_v2, handle);
    REQUIRE(make_at(handle, -1));
    CHECK(find(0, handle) == stream);
    CHECK_EQ(own(stream)->facts.priority, -1);
    CHECK(own(stream)->number != number);
    CALL(cuStreamDestroy_v2, handle);
}

TEST(gpu_streams, a_stream_whose_calls_have_not_ended_keeps_its_memory)
{
    if (tt_test_sanitized()) SKIP("a sanitizer's malloc gives no address again soon");
    use_gpu(0);
    CUstream handle = make(0);
    const tuttiStream_t before = find(0, handle);
    tt_stream_begin((struct tt_stream *)before); /* as a call does */
    CALL(cuStreamDestroy_v2, handle);
    REQUIRE(make_at(handle, 0));
    const tuttiStream_t second = find(0, handle);
    CHECK(second != before);
    CHECK(find(0, handle) == second);
    tt_stream_begin((struct tt_stream *)second);
    tt_stream_end((struct tt_stream *)before, TT_OK);
    CALL(cuStreamDestroy_v2, handle);
    REQUIRE(make_at(handle, 0));
    CHECK(find(0, handle) == before);
    tt_stream_end((struct tt_stream *)second, TT_OK);
    CALL(cuStreamDestroy_v2, handle);
}

static CUresult CUDAAPI say_green(CUstream stream, CUgreenCtx *green)
{
    *green = (CUgreenCtx)(uintptr_t)stream;
    return CUDA_SUCCESS;
}

/* The driver says that the stream is one. */
TEST(gpu_streams, a_stream_of_a_green_context_is_an_error_that_says_so)
{
    tuttiStream_t stream = NULL;
    struct tt_cuda *driver = (struct tt_cuda *)(uintptr_t)tt_cuda_load();
    const char *text = "is a stream of a green context (cuGreenCtxStreamCreate), expected one of "
                       "GPU 1's primary context";
    use_gpu(1);
    CUstream other = make(0);
    __typeof__(cuStreamGetGreenCtx) *const real = driver->StreamGetGreenCtx;
    driver->StreamGetGreenCtx = say_green;
    check_error(tuttiStreamOfDevice(&stream, 1, other), tuttiInvalidArgument, text);
    check_error(tuttiStreamFromDevice(&stream, 1, other), tuttiInvalidArgument, text);
    driver->StreamGetGreenCtx = real;
    CHECK(find(1, other));
    CALL(cuStreamDestroy_v2, other);
}

TEST(gpu_streams, what_cannot_be_is_an_error_that_names_it)
{
    tuttiStream_t stream = NULL;
    use_gpu(1);
    CUstream other = make(0);
    check_error(tuttiStreamOfDevice(NULL, 0, NULL), tuttiInvalidArgument, "stream is NULL");
    check_error(tuttiStreamOfDevice(&stream, 7, NULL), tuttiInvalidArgument,
                "GPU 7 does not exist; this process can use 2");
    check_error(tuttiStreamOfDevice(&stream, 0, other), tuttiInvalidArgument,
                "is no stream of GPU 0's primary context");
    check_error(tuttiStreamOfDevice(&stream, -1, other), tuttiInvalidArgument,
                "device -1 is no GPU");
    check_error(tuttiStreamDestroy(find(1, other)), tuttiInvalidUsage,
                "the stream is one of tuttiStreamOfDevice, which keeps it");
    CALL(cuStreamDestroy_v2, other);
    check_error(tuttiStreamOfDevice(&stream, 1, other), tuttiInvalidArgument, "is no CUDA stream");
    CHECK(!stream);
    CHECK_EQ(tuttiStreamOfDevice(&stream, -1, NULL), tuttiSuccess);
    CHECK(!stream);
}

TEST(gpu_streams, a_thread_without_a_current_context_finds_the_same_stream)
{
    use_gpu(0);
    CUstream handle = make(0);
    const tuttiStream_t stream = find(0, handle);
    CALL(cuCtxSetCurrent, NULL);
    CHECK(find(0, handle) == stream);
    use_gpu(1);
    CHECK(find(0, handle) == stream);
    CALL(cuStreamDestroy_v2, handle);
}

/* The memory that communicators had goes back to the driver though streams are kept. */
TEST(gpu_streams, streams_that_are_kept_keep_no_memory_of_the_gpu)
{
    struct tt_context *context = NULL;
    size_t before = 0, meanwhile = 0, after = 0, total;
    void *memory;
    use_gpu(0);
    (void)find(0, NULL);
    CALL(cuMemGetInfo_v2, &before, &total);
    REQUIRE(tt_context_open(0, &context) == TT_OK);
    CHECK_EQ(tt_context_allocate(context, 16 << 20, &memory), TT_OK);
    CALL(cuMemGetInfo_v2, &meanwhile, &total);
    tt_context_free(context, memory);
    tt_context_close(context);
    CALL(cuMemGetInfo_v2, &after, &total);
    CHECK(meanwhile < before);
    CHECK_EQ(after, before);
}

/* ---- Several threads ------------------------------------------------------------------------ */

enum { THREADS = 6, STREAMS = 40, ROUNDS = 200 };

struct shared {
    pthread_barrier_t together;
    CUstream handles[STREAMS];
    tuttiStream_t streams[THREADS][STREAMS];
};

struct finder {
    struct shared *shared;
    int number;
};

/* All threads find the same streams, which nobody has found before. */
static void *find_all(void *argument)
{
    const struct finder *finder = argument;
    struct shared *shared = finder->shared;
    use_gpu(0);
    pthread_barrier_wait(&shared->together);
    for (int i = 0; i < STREAMS; i++)
        shared->streams[finder->number][i] = find(0, shared->handles[i]);
    for (int round = 0; round < ROUNDS; round++)
        for (int i = 0; i < STREAMS; i++)
            CHECK(find(0, shared->handles[i]) == shared->streams[finder->number][i]);
    return NULL;
}

TEST(gpu_streams, threads_find_the_same_stream)
{
    struct shared shared;
    struct finder finders[THREADS];
    pthread_t threads[THREADS];
    use_gpu(0);
    pthread_barrier_init(&shared.together, NULL, THREADS);
    for (int i = 0; i < STREAMS; i++) shared.handles[i] = make(0);
    for (int t = 0; t < THREADS; t++) {
        finders[t] = (struct finder){&shared, t};
        REQUIRE(pthread_create(&threads[t], NULL, find_all, &finders[t]) == 0);
    }
    for (int t = 0; t < THREADS; t++) pthread_join(threads[t], NULL);
    for (int t = 1; t < THREADS; t++)
        CHECK(!memcmp(shared.streams[t], shared.streams[0], sizeof shared.streams[0]));
    for (int i = 0; i < STREAMS; i++) CALL(cuStreamDestroy_v2, shared.handles[i]);
    pthread_barrier_destroy(&shared.together);
}

/* ---- What a call costs ---------------------------------------------------------------------- */

static struct tt_cuda real;
static int ncalls;

static CUresult CUDAAPI count_get_id(CUstream stream, unsigned long long *id)
{
    ncalls++;
    return real.StreamGetId(stream, id);
}

static CUresult CUDAAPI refuse(void)
{
    tt_test_fail(__FILE__, __LINE__, "a call of the driver that finding a stream should not need");
    return CUDA_ERROR_NOT_SUPPORTED;
}

static void replace(struct tt_cuda *table)
{
    void (*const other)(void) = (void (*)(void))refuse;
    real = *table;
    for (size_t at = 0; at < sizeof *table; at += sizeof other)
        memcpy((char *)table + at, &other, sizeof other);
    table->StreamGetId = count_get_id;
}

TEST(gpu_streams, a_call_asks_the_driver_once_and_takes_no_memory)
{
    struct tt_cuda *table = (struct tt_cuda *)(uintptr_t)tt_cuda_load();
    CUstream handles[STREAMS];
    tuttiStream_t streams[STREAMS];
    REQUIRE(table);
    use_gpu(0);
    for (int i = 0; i < STREAMS; i++) streams[i] = find(0, handles[i] = i ? make(0) : NULL);
    replace(table);
    ncalls = 0;
#ifdef TT_COUNTS_ALLOCATIONS
    const uint64_t before = allocations();
#endif
    for (int i = 0; i < STREAMS; i++) CHECK(find(0, handles[i]) == streams[i]);
#ifdef TT_COUNTS_ALLOCATIONS
    CHECK_EQ(allocations() - before, 0);
#endif
    *table = real;
    CHECK_EQ(ncalls, STREAMS - 1); /* none for the default stream */
    for (int i = 1; i < STREAMS; i++) CALL(cuStreamDestroy_v2, handles[i]);
}
