/* Calls on GPU memory that go through memory of the host, where the driver refuses a copy. */
#include <dirent.h>
#include <limits.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <time.h>

#include "driver/cuda.h"
#include "graphs.h"
#include "on_streams.h"
#include "shim.h"

/* A driver that refuses copies of rank 0's GPU, from the one of this number on. The first
 * refusal takes so long. */
static __typeof__(cuMemcpyAsync) *real_copy;
static _Atomic int ncopies, first_refused = INT_MAX;
static _Atomic int refuses_after_ms;

static void sleep_ms(int ms)
{
    nanosleep(&(struct timespec){.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000L}, NULL);
}

static CUresult CUDAAPI refuse_copy(CUdeviceptr to, CUdeviceptr from, size_t nbytes,
                                    CUstream stream)
{
    CUdevice device = 0;
    if (RESULT(cuCtxGetDevice, &device) || device) return real_copy(to, from, nbytes, stream);
    const int number = ncopies++;
    if (number < first_refused) return real_copy(to, from, nbytes, stream);
    if (number == first_refused) sleep_ms(refuses_after_ms);
    return CUDA_ERROR_INVALID_VALUE;
}

static void refuse_from(int number)
{
    ncopies = 0;
    first_refused = number;
}

static void run_refused(int ngpus, void (*body)(struct gpu_rank *rank), void *arg)
{
    tuttiConfig_t config = TUTTI_CONFIG_INITIALIZER;
    config.timeoutMs = 20000;
    struct tt_cuda *driver = (struct tt_cuda *)(uintptr_t)tt_cuda_load();
    real_copy = driver->MemcpyAsync;
    driver->MemcpyAsync = refuse_copy;
    on_gpus(ngpus, ngpus, &config, body, arg);
    refuse_from(INT_MAX);
    driver->MemcpyAsync = real_copy;
}

/* The barrier of both ranks: the first sum of rank 1 may end later than that of rank 0. */
static void refused_copies(struct gpu_rank *rank)
{
    int *memory = make_ints(rank, 1, 100);
    check_success(rank, tuttiAllReduce(memory, memory, 1, tuttiInt32, tuttiSum, rank->comm, NULL),
                  "sum");
    pthread_barrier_wait(rank->arg);
    if (!rank->rank) refuse_from(0);
    const tuttiResult_t result =
        tuttiAllReduce(memory, memory, 100, tuttiInt32, tuttiSum, rank->comm, NULL);
    check_error(rank, result, tuttiUnhandledDeviceError, "rank 0 (host");
    check_error(rank, result, tuttiUnhandledDeviceError, "cuMemcpyAsync failed");
    gpu_free(memory);
}

TEST(staged_errors, a_copy_that_the_driver_refuses_ends_the_call_on_all_ranks)
{
    pthread_barrier_t both;
    pthread_barrier_init(&both, NULL, 2);
    run_refused(2, refused_copies, &both);
    pthread_barrier_destroy(&both);
}

/* What the communicator's calls are, and which copy is refused. */
struct refusal {
    enum { WITHOUT_STREAM, ON_STREAM, ON_TWO_STREAMS, NCALLS } calls;
    int number;
    bool aborts, is_refused;
};

static tuttiResult_t issue(const struct gpu_rank *rank, int *memory, const struct streams *streams)
{
    enum { N = 100 };
    const struct refusal *refusal = rank->arg;
    const tuttiStream_t stream = refusal->calls == WITHOUT_STREAM ? NULL : streams[0].stream;
    CHECK_EQ(tuttiGroupStart(), tuttiSuccess);
    tuttiResult_t result = tuttiSuccess;
    for (int i = 0; !result && i <= (refusal->calls == ON_TWO_STREAMS); i++)
        result = tuttiAllReduce(memory + i * N, memory + i * N, N, tuttiInt32, tuttiSum, rank->comm,
                                i ? streams[1].stream : stream);
    const tuttiResult_t end = tuttiGroupEnd();
    if (!result) result = end;
    for (int i = 0; i < 2; i++) {
        const tuttiResult_t later = tuttiStreamSynchronize(streams[i].stream);
        if (!result) result = later;
    }
    return result;
}

static void end_refused(struct gpu_rank *rank)
{
    struct refusal *refusal = rank->arg;
    struct streams streams[2] = {make_streams(rank), make_streams(rank)};
    int *memory = make_ints(rank, 1, 300);
    if (!rank->rank) refuse_from(refusal->number);
    const tuttiResult_t result = issue(rank, memory, streams);
    if (!rank->rank) refusal->is_refused = ncopies > refusal->number;
    if (result) check_error(rank, result, tuttiUnhandledDeviceError, "cuMemcpyAsync failed");
    if (!rank->rank) CHECK_EQ(result != tuttiSuccess, refusal->is_refused);
    if (result && refusal->aborts) {
        CHECK_EQ(tuttiCommAbort(rank->comm), tuttiSuccess);
        rank->comm = NULL;
    }
    for (int i = 0; i < 2; i++) destroy_streams(rank, &streams[i]);
    gpu_free(memory);
}

static void healthy(struct gpu_rank *rank)
{
    struct streams streams[2] = {make_streams(rank), make_streams(rank)};
    struct refusal none = {.calls = ON_TWO_STREAMS};
    int *memory = make_ints(rank, 1, 300);
    rank->arg = &none;
    check_success(rank, issue(rank, memory, streams), "all-reduces");
    for (int i = 0; i < 2; i++) destroy_streams(rank, &streams[i]);
    gpu_free(memory);
}

static int count_threads(void)
{
    int n = 0;
    DIR *tasks = opendir("/proc/self/task");
    CHECK(tasks);
    while (tasks && readdir(tasks)) n++;
    if (tasks) closedir(tasks);
    return n;
}

/* Each communicator has a thread for as long as it has staging memory. A communicator that begins
 * frees what earlier ones have left to streams. */
static int count_after_healthy(void)
{
    on_gpus(2, 2, NULL, healthy, NULL);
    return count_threads();
}

/* The host's part of the call has ended well by then: its output is refused. */
TEST(staged_errors, a_call_whose_output_the_driver_refuses_late_is_an_error_of_its_stream)
{
    refuses_after_ms = 300;
    struct refusal output = {.calls = ON_STREAM, .number = 1};
    run_refused(2, end_refused, &output);
    CHECK(output.is_refused);
    refuses_after_ms = 0;
}

TEST(staged_errors, staging_memory_is_freed_when_streams_have_passed_a_copy_that_was_refused)
{
    int nrefused = 0;
    const int nthreads = count_after_healthy();
    for (int calls = 0; calls < NCALLS; calls++) {
        struct refusal refusal = {.calls = (__typeof__(refusal.calls))calls, .is_refused = true};
        for (; refusal.is_refused && refusal.number < 20; refusal.number++) {
            refusal.aborts = refusal.number % 2;
            run_refused(2, end_refused, &refusal);
            nrefused += refusal.is_refused;
        }
    }
    CHECK_EQ(nrefused, 8); /* an input and an output of each call */
    int left = count_after_healthy();
    for (int i = 0; i < 1000 && left > nthreads; i++) { /* threads that were joined vanish later */
        sleep_ms(10);
        left = count_threads();
    }
    CHECK_MESSAGE(left <= nthreads, "%d threads, %d before", left, nthreads);
}

/* ---- Waits ---------------------------------------------------------------------------------- */

/* A driver that refuses one wait of rank 0's GPU for an event, and says which words streams have
 * stored. */
static __typeof__(cuStreamWaitEvent) *real_wait;
static __typeof__(cuStreamWriteValue32) *real_store;
static _Atomic int nwaits, refused_wait;
static pthread_mutex_t stores_lock = PTHREAD_MUTEX_INITIALIZER;
static struct {
    CUdeviceptr word;
    cuuint32_t value;
} stores[1000];
static size_t nstores;
static int nrepeated;

static CUresult CUDAAPI refuse_wait(CUstream stream, CUevent event, unsigned flags)
{
    CUdevice device = 0;
    if (!RESULT(cuCtxGetDevice, &device) && !device && nwaits++ == refused_wait)
        return CUDA_ERROR_INVALID_VALUE;
    return real_wait(stream, event, flags);
}

static CUresult CUDAAPI note_store(CUstream stream, CUdeviceptr word, cuuint32_t value,
                                   unsigned flags)
{
    pthread_mutex_lock(&stores_lock);
    for (size_t i = 0; i < nstores; i++)
        nrepeated += stores[i].word == word && stores[i].value == value;
    if (nstores == sizeof stores / sizeof *stores) abort();
    stores[nstores].word = word;
    stores[nstores++].value = value;
    pthread_mutex_unlock(&stores_lock);
    return real_store(stream, word, value, flags);
}

static void end_without_a_wait(struct gpu_rank *rank)
{
    struct refusal *refusal = rank->arg;
    struct streams streams[2] = {make_streams(rank), make_streams(rank)};
    int *memory = make_ints(rank, 1, 300);
    if (!rank->rank) {
        nwaits = 0;
        refused_wait = refusal->number;
    }
    const tuttiResult_t result = issue(rank, memory, streams);
    if (!rank->rank) {
        refusal->is_refused = nwaits > refusal->number;
        refused_wait = INT_MAX;
    }
    if (result) check_error(rank, result, tuttiUnhandledDeviceError, "cuStreamWaitEvent failed");
    for (int i = 0; i < 2; i++) destroy_streams(rank, &streams[i]);
    gpu_free(memory);
}

/* A second store would come when the memory has another use, or is freed. */
TEST(staged_errors, a_stream_tells_once_that_a_call_has_ended)
{
    int nrefused = 0;
    struct tt_cuda *driver = (struct tt_cuda *)(uintptr_t)tt_cuda_load();
    real_wait = driver->StreamWaitEvent;
    real_store = driver->StreamWriteValue32;
    driver->StreamWriteValue32 = note_store;
    struct refusal refusal = {.calls = ON_TWO_STREAMS, .is_refused = true};
    for (; refusal.is_refused && refusal.number < 40; refusal.number++) {
        refused_wait = INT_MAX;
        nstores = 0;
        nrepeated = 0;
        driver->StreamWaitEvent = refuse_wait;
        on_gpus(2, 2, NULL, end_without_a_wait, &refusal);
        driver->StreamWaitEvent = real_wait;
        nrefused += refusal.is_refused;
        CHECK_MESSAGE(!nrepeated, "wait %d refused: %d of %zu stores repeat one", refusal.number,
                      nrepeated, nstores);
    }
    driver->StreamWriteValue32 = real_store;
    CHECK(nrefused > 4 && !refusal.is_refused);
}

/* ---- Memory that a stream has yet to use ------------------------------------------------------
 */

enum { ALONE = 100 }; /* elements of the calls here */

/* Where the last copy from this memory goes. */
static struct {
    const void *from;
    CUdeviceptr to;
} noted;

static CUresult CUDAAPI note_copy(CUdeviceptr to, CUdeviceptr from, size_t nbytes, CUstream stream)
{
    if (from == (CUdeviceptr)(uintptr_t)noted.from) noted.to = to;
    return real_copy(to, from, nbytes, stream);
}

/* A bounce waits on a stream, and the next one, on another stream, is refused. Their communicator
 * is aborted, and another one makes a call. */
static void refuse_behind(tuttiComm_t comms[2], const struct streams streams[2], int *memory)
{
    CUdeviceptr places[2];
    struct gpu_rank rank = {.nranks = 1, .comm = comms[0]};
    noted.from = memory;
    gpu_block(0, streams[0].cuda);
    check_success(&rank,
                  tuttiAllReduce(memory, memory + ALONE, ALONE, tuttiInt32, tuttiSum, comms[0],
                                 streams[0].stream),
                  "call that waits");
    places[0] = noted.to;
    nwaits = refused_wait = 0;
    check_success(&rank,
                  tuttiAllReduce(memory, memory + ALONE, ALONE, tuttiInt32, tuttiSum, comms[0],
                                 streams[1].stream),
                  "call that is refused");
    check_error(&rank, tuttiStreamSynchronize(streams[1].stream), tuttiUnhandledDeviceError,
                "cuStreamWaitEvent failed");
    refused_wait = INT_MAX;
    CHECK_EQ(tuttiCommAbort(comms[0]), tuttiSuccess);
    rank.comm = comms[1];
    check_success(&rank,
                  tuttiAllReduce(memory, memory + 2 * ALONE, ALONE, tuttiInt32, tuttiSum, comms[1],
                                 streams[1].stream),
                  "call of another communicator");
    places[1] = noted.to;
    CHECK(places[0] && places[1] && places[0] != places[1]);
    gpu_unblock();
    for (int i = 0; i < 2; i++) CALL(cuStreamSynchronize, streams[i].cuda);
    check_ints(&rank, memory + 2 * ALONE, 1, ALONE);
}

TEST(staged_errors, a_call_that_is_refused_frees_no_memory_that_another_stream_has_yet_to_use)
{
    const struct gpu_rank rank = {.nranks = 1};
    struct tt_cuda *driver = (struct tt_cuda *)(uintptr_t)tt_cuda_load();
    struct streams streams[2] = {make_streams(&rank), make_streams(&rank)};
    int *memory = make_ints(&rank, 1, 3 * ALONE);
    tuttiComm_t comms[2];
    for (int i = 0; i < 2; i++) REQUIRE(make_alone(&comms[i]) == tuttiSuccess);
    real_wait = driver->StreamWaitEvent;
    real_copy = driver->MemcpyAsync;
    refused_wait = INT_MAX;
    driver->StreamWaitEvent = refuse_wait;
    driver->MemcpyAsync = note_copy;
    gpu_use(0);
    refuse_behind(comms, streams, memory);
    driver->StreamWaitEvent = real_wait;
    driver->MemcpyAsync = real_copy;
    CHECK_EQ(tuttiCommDestroy(comms[1]), tuttiSuccess);
    for (int i = 0; i < 2; i++) destroy_streams(&rank, &streams[i]);
    gpu_free(memory);
    gpu_free_all();
}
