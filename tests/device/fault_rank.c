/* The ranks of a job in which something goes wrong. Each makes call after call, compares what comes
 * out, and at the first error judges what the error says. */
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../driver/calls.h"
#include "calls_on_gpu.h"
#include "faults.h"
#include "graphs.h"

enum { MOST_CALLS = 100000, DEADLINE_MS = 3000, LONG_MS = 200000 };

static atomic_int status;

static void says(const struct gpu_rank *rank, int how, const char *format, ...)
{
    va_list arguments;
    char text[1024];
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    fprintf(stderr, "rank %d: %s\n", rank->rank, text);
    atomic_store(&status, how);
}

/* In place of the tests' shim. */
void tt_test_fail(const char *file, int line, const char *format, ...)
{
    va_list arguments;
    fprintf(stderr, "%s:%d: ", file, line);
    va_start(arguments, format);
    vfprintf(stderr, format, arguments);
    va_end(arguments);
    fputc('\n', stderr);
    atomic_store(&status, SAYS_WRONG);
}

static uint64_t next(uint64_t *state)
{
    uint64_t z = *state += 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

static int below(uint64_t *state, int n)
{
    return (int)(next(state) % (uint64_t)n);
}

const char *fault_name(enum fault fault)
{
    static const char *const names[] = {
        "killed",       "aborted",         "never calls",       "abandons a capture",
        "other count",  "other type",      "other operation",   "other root",
        "other call",   "other algorithm", "destroyed",         "out of memory",
        "launch fails", "kernel is lost",  "network is silent", "no fault"};
    return names[fault];
}

bool fault_mixes(void)
{
    return getenv("TT_FAULT_MIXED") != NULL;
}

int fault_hosts(void)
{
    const char *hosts = getenv("TT_FAULT_HOSTS");
    return hosts ? atoi(hosts) : 1;
}

bool fault_has_network(void)
{
    return getenv("TT_FAULT_NETWORK") != NULL;
}

int fault_host_of(int rank)
{
    return rank % fault_hosts();
}

bool fault_spoils_gpu(enum fault fault)
{
    return fault == NO_LAUNCH || fault == LOST;
}

/* TT_FAULT_ONLY: all jobs have the fault of this name. */
static enum fault fault_of(uint64_t seed)
{
    const char *only = getenv("TT_FAULT_ONLY");
    for (int i = 0; only && i < NFAULTS; i++)
        if (!strcmp(only, fault_name((enum fault)i))) return (enum fault)i;
    return (enum fault)(seed % (fault_has_network() ? NFAULTS : SILENT));
}

struct plan plan_of(uint64_t seed)
{
    uint64_t state = seed;
    struct plan plan = {.seed = seed, .fault = fault_of(seed)};
    plan.nranks = 2 + below(&state, 3);
    plan.ngpus = 1 + below(&state, 2);
    plan.faulty = below(&state, plan.nranks);
    plan.at = below(&state, 4);
    plan.delay_us = below(&state, 20000);
    const bool of_a_process =
        plan.fault == KILLED || plan.fault == OUT_OF_MEMORY || fault_spoils_gpu(plan.fault);
    plan.threads = below(&state, 2) && !of_a_process && fault_hosts() == 1;
    if (plan.fault == ABANDONED && (fault_hosts() > 1 || fault_mixes()))
        plan.fault = AWAY; /* nothing is captured */
    if ((plan.fault == OUT_OF_MEMORY || fault_spoils_gpu(plan.fault)) && fault_mixes())
        plan.faulty -= plan.faulty % 2;
    if (of_a_process && plan.fault != KILLED) plan.ngpus = plan.nranks;
    /* While a thread waits in the driver nothing can be captured. */
    plan.replays =
        plan.fault == SILENT && !fault_mixes() && !getenv("TT_FAULT_HELD") && below(&state, 2);
    return plan;
}

static bool is_late(enum fault fault)
{
    return fault == AWAY || fault == ABANDONED;
}

/* Whether the network is silent before any rank has connected with one of the other host. */
static bool is_silent_at_once(const struct plan *plan)
{
    return plan->fault == SILENT && !plan->at;
}

/* The call of this number. */
static struct call call_of(const struct plan *plan, int number)
{
    static const int kinds[] = {tuttiCollAllReduce, tuttiCollBroadcast, tuttiCollAllGather,
                                tuttiCollReduce};
    uint64_t state = plan->seed * 1000 + (uint64_t)number;
    struct call call = {.kind = kinds[below(&state, 4)],
                        .count = 1 + (size_t)below(&state, below(&state, 3) ? 500 : 20000),
                        .type = tuttiFloat32,
                        .op = tuttiSum,
                        .root = below(&state, plan->nranks),
                        .salt = next(&state),
                        .nranks = plan->nranks};
    if (number < plan->at && is_late(plan->fault)) /* in time also on a busy machine */
        call.count = 1 + call.count % 16;
    if (number == plan->at && (plan->fault == OTHER_OP || plan->fault == OTHER_CHOICE))
        call.kind = tuttiCollAllReduce;
    if (number == plan->at && plan->fault == OTHER_ROOT) call.kind = tuttiCollBroadcast;
    if (number >= plan->at && plan->fault == OUT_OF_MEMORY) call.kind = tuttiCollAllToAll;
    return call;
}

/* Another algorithm for the call than all ranks would choose. */
static void choose_other(const struct gpu_rank *rank, const struct call *call)
{
    const char *chosen, *other = "recursive_doubling";
    if (tuttiCommGetAlgorithm(rank->comm, tuttiCollAllReduce, call->count * sizeof(float), &chosen))
        says(rank, SAYS_WRONG, "algorithm: %s", tuttiGetLastError(rank->comm));
    else if (!strcmp(chosen, other))
        other = "ring";
    if (tuttiCommSetAlgorithm(rank->comm, tuttiCollAllReduce, other))
        says(rank, SAYS_WRONG, "algorithm: %s", tuttiGetLastError(rank->comm));
}

/* What the faulty rank calls instead. */
static void spoil_call(const struct gpu_rank *rank, const struct plan *plan, struct call *call)
{
    if (plan->fault == OTHER_COUNT) call->count++;
    if (plan->fault == OTHER_TYPE) call->type = tuttiInt32;
    if (plan->fault == OTHER_OP) call->op = tuttiMax;
    if (plan->fault == OTHER_ROOT) call->root = (call->root + 1) % plan->nranks;
    if (plan->fault == OTHER_KIND) call->kind = tuttiCollReduceScatter;
    if (plan->fault == OTHER_CHOICE) choose_other(rank, call);
}

static bool is_mismatch(enum fault fault)
{
    return fault >= OTHER_COUNT && fault <= OTHER_CHOICE;
}

/* ---- What an error must say ----------------------------------------------------------------- */

static bool names_rank(const char *text, int rank)
{
    char name[16];
    snprintf(name, sizeof name, "rank %d", rank);
    for (const char *at = text; (at = strstr(at, name)) != NULL; at++)
        if (at[strlen(name)] < '0' || at[strlen(name)] > '9') return true;
    return false;
}

/* As the other ranks call it, and as the faulty one does. */
static bool shows_call_twice(const char *text, int number)
{
    char name[24];
    snprintf(name, sizeof name, " number %d ", number);
    const char *at = strstr(text, name);
    return strstr(text, "ranks disagree") && at && strstr(at + 1, name);
}

static bool names_other_host(const struct gpu_rank *rank, const char *text)
{
    for (int r = 0; r < rank->nranks; r++)
        if (fault_host_of(r) != fault_host_of(rank->rank) && names_rank(text, r)) return true;
    return false;
}

static void judge(const struct gpu_rank *rank, const struct plan *plan, tuttiResult_t result)
{
    const bool faulty = rank->rank == plan->faulty;
    const char *error = tuttiGetLastError(rank->comm);
    tuttiResult_t expected = tuttiRemoteError;
    bool right = faulty || names_rank(error, plan->faulty);
    if (is_late(plan->fault)) expected = tuttiTimeout;
    if (is_mismatch(plan->fault)) {
        expected = tuttiInvalidUsage;
        /* Who is held up in the driver has not said yet what it calls. */
        const bool shows = shows_call_twice(error, plan->at + 1) ||
                           (getenv("TT_FAULT_HELD") && strstr(error, "(it has not said what)"));
        right = names_rank(error, plan->faulty) && shows;
    } else if (plan->fault == OUT_OF_MEMORY) { /* the others get the same text */
        expected = tuttiSystemError;
        right = names_rank(error, plan->faulty) && strstr(error, "is out of memory");
    } else if (plan->fault == SILENT) {
        right = names_other_host(rank, error) && strstr(error, "TUTTI_NET_TIMEOUT_MS");
    } else if (fault_spoils_gpu(plan->fault)) { /* known when it calls: not a part of it */
        expected =
            !faulty && strstr(error, "has left") ? tuttiRemoteError : tuttiUnhandledDeviceError;
        right = right && (!faulty || strstr(error, "ILLEGAL_ADDRESS"));
        /* The kernel may be lost after the call has ended. */
        if (faulty && plan->fault == LOST)
            right = right &&
                    ((names_rank(error, plan->faulty) && strstr(error, "is lost, as found in ")) ||
                     strstr(error, ": all calls of tutti on the stream have ended, but "));
    } else if (faulty) {
        expected = result;
    }
    if (result != expected || !right)
        says(rank, SAYS_WRONG, "result %d, expected %d: %s", result, expected, error);
    else if (getenv("TT_FAULT_VERBOSE"))
        fprintf(stderr, "rank %d of %d: %d: %s\n", rank->rank, rank->nranks, result, error);
}

/* ---- Faults --------------------------------------------------------------------------------- */

static void *kill_later(void *argument)
{
    const struct plan *plan = argument;
    usleep((unsigned)plan->delay_us);
    kill(getpid(), SIGKILL);
    return NULL;
}

/* All that with-hosts' bridge has of the rank's host, or for it, vanishes. */
static void silence(const struct plan *plan)
{
    char command[48];
    snprintf(command, sizeof command, "link loss h%d eth0 100", fault_host_of(plan->faulty));
    if (system(command)) atomic_store(&status, SAYS_WRONG);
}

static void *silence_later(void *argument)
{
    const struct plan *plan = argument;
    usleep((unsigned)plan->delay_us);
    silence(plan);
    return NULL;
}

static void take_all_memory(const struct gpu_rank *rank)
{
    CUdeviceptr memory;
    gpu_use(rank->gpu);
    for (size_t nbytes = (size_t)64 << 20; nbytes; nbytes /= 2)
        while (RESULT(cuMemAlloc_v2, &memory, nbytes) == CUDA_SUCCESS) {
        }
}

/* A kernel that stores to address 0. */
static void spoil_context(const struct gpu_rank *rank)
{
    static const char ptx[] = ".version 7.0\n.target sm_75\n.address_size 64\n"
                              ".visible .entry bad() { .reg .b64 %a; .reg .b32 %v;\n"
                              "mov.u64 %a, 0; mov.u32 %v, 1; st.global.u32 [%a], %v; ret; }\n";
    CUmodule module;
    CUfunction function;
    gpu_use(rank->gpu);
    CALL(cuModuleLoadData, &module, ptx);
    CALL(cuModuleGetFunction, &function, module, "bad");
    void *stream = gpu_stream(rank->gpu);
    CALL(cuLaunchKernel, function, 1, 1, 1, 1, 1, 1, 0, stream, NULL, NULL);
    (void)RESULT(cuStreamSynchronize, stream);
}

static void *abort_later(void *argument)
{
    struct gpu_rank *rank = argument;
    const struct plan *plan = rank->arg;
    usleep((unsigned)plan->delay_us);
    if (tuttiCommAbort(rank->comm)) says(rank, SAYS_WRONG, "abort: %s", tuttiGetLastError(NULL));
    return NULL;
}

/* The rest of a rank that calls no more: until it has heard that the others have failed. */
static void stay_away(const struct gpu_rank *rank)
{
    tuttiResult_t result = tuttiSuccess;
    for (int i = 0; i < LONG_MS / 10 && !result; i++) {
        usleep(10000);
        if (tuttiCommGetAsyncError(rank->comm, &result)) break;
    }
    if (!result) says(rank, SAYS_WRONG, "this rank never heard that the others failed");
}

/* Captures the call, and the graph never runs: it is destroyed, or the capture is spoilt, or has no
 * end. */
static void abandon_capture(const struct gpu_rank *rank, const struct plan *plan,
                            const struct placed *placed)
{
    CUstream stream = gpu_stream(rank->gpu);
    CUgraph graph = NULL;
    tuttiStream_t captured;
    gpu_use(rank->gpu);
    capture_begin(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
    if (tuttiStreamFromDevice(&captured, rank->gpu, stream) || issue_call(placed, captured) ||
        tuttiStreamDestroy(captured))
        says(rank, SAYS_WRONG, "a captured call: %s", tuttiGetLastError(rank->comm));
    const int way = (int)(plan->seed / NFAULTS % 3);
    if (way == 0) CALL(cuStreamEndCapture, stream, &graph);
    if (graph) CALL(cuGraphDestroy, graph);
    if (way == 1) (void)RESULT(cuStreamSynchronize, stream);
}

/* Before its call. Whether the rank goes on. */
static bool begin_fault(struct gpu_rank *rank, struct plan *plan, const struct placed *placed)
{
    pthread_t thread;
    switch (plan->fault) {
    case KILLED:
        if (pthread_create(&thread, NULL, kill_later, plan)) abort();
        return true;
    case SILENT:
        if (is_silent_at_once(plan))
            silence(plan);
        else if (pthread_create(&thread, NULL, silence_later, plan))
            abort();
        return true;
    case ABANDONED:
        abandon_capture(rank, plan, placed);
        stay_away(rank);
        return false;
    case AWAY:
        stay_away(rank);
        return false;
    case DESTROYED:
        return false;
    case OUT_OF_MEMORY:
        take_all_memory(rank);
        return true;
    case NO_LAUNCH:
        spoil_context(rank);
        return true;
    default:
        return true;
    }
}

struct holder {
    int gpu;
    sem_t has_context;
};

/* TT_FAULT_HELD: a thread is in the driver, and waits there for all kernels, again and again. */
static void *hold_driver(void *argument)
{
    struct holder *holder = argument;
    gpu_use(holder->gpu);
    sem_post(&holder->has_context);
    while (RESULT(cuCtxSynchronize) == CUDA_SUCCESS) sched_yield();
    return NULL;
}

/* ---- A rank --------------------------------------------------------------------------------- */

/* The call of the rank whose other thread aborts. */
static void be_aborted(struct gpu_rank *rank, const struct placed *placed, tuttiStream_t stream)
{
    pthread_t thread;
    const tuttiResult_t issued = issue_call(placed, stream);
    if (issued) says(rank, SAYS_WRONG, "a call: %s", tuttiGetLastError(rank->comm));
    if (pthread_create(&thread, NULL, abort_later, rank)) abort();
    (void)tuttiStreamSynchronize(stream);
    pthread_join(thread, NULL);
    rank->comm = NULL;
}

/* Replays the call until the communicator has failed. */
static tuttiResult_t replay_call(const struct gpu_rank *rank, const struct placed *placed)
{
    CUstream stream = gpu_stream(rank->gpu);
    tuttiStream_t captured;
    gpu_use(rank->gpu);
    capture_begin(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
    if (tuttiStreamFromDevice(&captured, rank->gpu, stream)) abort();
    tuttiResult_t result = issue_call(placed, captured);
    (void)tuttiStreamDestroy(captured);
    CUgraphExec graph = capture_end(stream);
    for (int i = 0; !result && i < MOST_CALLS; i++) {
        replay(graph, stream);
        if (tuttiCommGetAsyncError(rank->comm, &result)) abort();
        if (!result && !is_right(placed)) {
            says(rank, WRONG_RESULT, "wrong result of a replay of %s", call_text(&placed->call));
            break;
        }
    }
    CALL(cuGraphExecDestroy, graph);
    return result;
}

/* Call `number`. Whether the rank goes on. */
static bool make_call(struct gpu_rank *rank, int number, tuttiStream_t stream)
{
    struct plan *plan = rank->arg;
    struct call call = call_of(plan, number);
    const bool faulty = rank->rank == plan->faulty && number == plan->at;
    struct placed placed;
    if (faulty && is_mismatch(plan->fault)) spoil_call(rank, plan, &call);
    place_call(&placed, rank, &call, 0);
    if (faulty && !begin_fault(rank, plan, &placed)) return false;
    if (faulty && plan->fault == ABORTED) {
        be_aborted(rank, &placed, stream);
        return false;
    }
    if (plan->replays && number == plan->at) {
        judge(rank, plan, replay_call(rank, &placed));
        return false;
    }
    const bool on_stream = number % 2 || (faulty && plan->fault == LOST);
    tuttiResult_t result = issue_call(&placed, on_stream ? stream : NULL);
    if (faulty && plan->fault == LOST) spoil_context(rank);
    if (!result && on_stream) result = tuttiStreamSynchronize(stream);
    if (result) {
        judge(rank, plan, result);
        return false;
    }
    if (faulty && fault_spoils_gpu(plan->fault)) return true; /* its memory cannot be read */
    if (!check_call(&placed)) says(rank, WRONG_RESULT, "wrong result of %s", call_text(&call));
    return !atomic_load(&status);
}

static void make_calls(struct gpu_rank *rank)
{
    tuttiStream_t stream;
    void *device_stream = gpu_stream(rank->gpu);
    if (rank->gpu < 0 ? tuttiStreamCreate(&stream)
                      : tuttiStreamFromDevice(&stream, rank->gpu, device_stream)) {
        says(rank, SAYS_WRONG, "stream: %s", tuttiGetLastError(NULL));
        return;
    }
    for (int i = 0; make_call(rank, i, stream); i++)
        if (i == MOST_CALLS) says(rank, SAYS_WRONG, "%d calls and no error", MOST_CALLS);
    (void)tuttiStreamDestroy(stream);
}

static int gpu_of(const struct plan *plan, int rank)
{
    return fault_mixes() && rank % 2 ? -1 : rank % plan->ngpus;
}

int run_plan(const struct plan *given)
{
    struct plan plan = *given;
    tuttiConfig_t config = TUTTI_CONFIG_INITIALIZER;
    config.timeoutMs = is_late(plan.fault) ? DEADLINE_MS : LONG_MS;
    if (plan.threads) {
        int gpus[MOST_RANKS];
        for (int r = 0; r < plan.nranks; r++) gpus[r] = gpu_of(&plan, r);
        on_devices(plan.nranks, gpus, &config, make_calls, &plan);
        return atomic_load(&status);
    }
    int nranks, local;
    struct gpu_rank rank = {.arg = &plan};
    if (tuttiGetLauncher(&rank.rank, &nranks, &local) != tuttiSuccess) return SAYS_WRONG;
    rank.nranks = nranks;
    rank.gpu = config.device = gpu_of(&plan, local);
    if (tuttiCommInitEnv(&rank.comm, NULL, &config) != tuttiSuccess) {
        says(&rank, SAYS_WRONG, "init: %s", tuttiGetLastError(NULL));
        return SAYS_WRONG;
    }
    static struct holder holder;
    if (getenv("TT_FAULT_HELD")) { /* it has its context before a fault can refuse one */
        pthread_t thread;
        holder.gpu = rank.gpu;
        if (sem_init(&holder.has_context, 0, 0) ||
            pthread_create(&thread, NULL, hold_driver, &holder))
            abort();
        while (sem_wait(&holder.has_context)) { /* a signal */
        }
    }
    make_calls(&rank);
    if (rank.comm) (void)tuttiCommDestroy(rank.comm);
    return atomic_load(&status);
}
