/* One of two ranks, each on a virtual GPU and a host of its own, that exchange messages over RDMA.
 * Their devices cannot use a virtual GPU's memory; dmabuf_verbs.h makes it so that they can.
 *
 * gpu_rank messages SEED N  N messages at random: from and to registered memory of the GPU, memory
 *                           that cannot be used in place, and the host's; then messages in a CUDA
 *                           graph, replayed before and after deregistering. How often the library
 *                           copies is checked, and flushes where EXPECT_FLUSH is set. REFUSES
 *                           names a device of the rank
 * gpu_rank errors           a message of another length, a rank that aborts, one that dies; each in
 *                           a communicator of its own */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../../device/graphs.h"
#include "base/config.h"
#include "driver/cuda.h"
#include "shim.h"
#include "transport/rdma/dmabuf_verbs.h"

enum {
    IN_PLACE_MIN = 16384, /* shorter messages are copied */
    AREA = 4 << 20,       /* of messages that are sent; behind it: of those received */
    GUARD = 64,
    INSIDE =
        9000, /* an allocation: where memory begins, neither at its beginning nor at a page's */
};

__attribute__((noreturn)) static void fail(tuttiComm_t comm, const char *what)
{
    fprintf(stderr, "%s: %s\n", what, tuttiGetLastError(comm));
    exit(2);
}

/* ---- What the library asks the driver for --------------------------------------------------- */

static int ncopies, nflushes;
static struct tt_cuda driver;

static CUresult CUDAAPI count_copy(CUdeviceptr to, CUdeviceptr from, size_t nbytes, CUstream stream)
{
    __atomic_fetch_add(&ncopies, 1, __ATOMIC_RELAXED);
    return driver.MemcpyAsync(to, from, nbytes, stream);
}

static CUresult CUDAAPI count_flush(CUflushGPUDirectRDMAWritesTarget target,
                                    CUflushGPUDirectRDMAWritesScope scope)
{
    __atomic_fetch_add(&nflushes, 1, __ATOMIC_RELAXED);
    return driver.FlushGPUDirectRDMAWrites(target, scope);
}

/* The driver's table is not constant: only who asks for it may not write it. */
static void count_calls(void)
{
    struct tt_cuda *table = (struct tt_cuda *)(uintptr_t)tt_cuda_load();
    if (!table) exit(3);
    driver = *table;
    table->MemcpyAsync = count_copy;
    table->FlushGPUDirectRDMAWrites = count_flush;
}

/* ---- Memory --------------------------------------------------------------------------------- */

enum where {
    REGISTERED,
    PLAIN,
    REFUSED, /* registered while a device refuses */
    OFF,     /* registered while TUTTI_RDMA_GPU is off */
    HOST,
    NWHERE,
};

static struct {
    char *memory[NWHERE];
    void *handles[NWHERE];
} own;

static void do_register(const struct gpu_rank *rank, enum where where)
{
    if (tuttiCommRegister(rank->comm, own.memory[where], 2 * AREA, &own.handles[where]))
        fail(rank->comm, "register");
}

static void place_memory(const struct gpu_rank *rank)
{
    const int nregions = dmabuf_verbs_count();
    for (enum where w = 0; w < NWHERE; w++)
        own.memory[w] = w == HOST ? malloc(2 * AREA) : gpu_memory(rank->gpu, 3 * AREA) + INSIDE;
    setenv("TUTTI_RDMA_GPU", "off", 1);
    tt_config_reload();
    do_register(rank, OFF);
    unsetenv("TUTTI_RDMA_GPU");
    tt_config_reload();
    dmabuf_verbs_refuse(getenv("REFUSES"), ENOMEM);
    do_register(rank, REFUSED);
    dmabuf_verbs_refuse(NULL, 0);
    if (dmabuf_verbs_count() != nregions) fail(NULL, "memory is registered that should not be");
    do_register(rank, REGISTERED);
    if (dmabuf_verbs_count() == nregions) fail(NULL, "no memory is registered");
}

static void put(const struct gpu_rank *rank, enum where where, size_t at, const char *data,
                size_t nbytes)
{
    if (where == HOST)
        memcpy(own.memory[where] + at, data, nbytes);
    else
        gpu_write(rank->gpu, own.memory[where] + at, data, nbytes);
}

static void get(const struct gpu_rank *rank, enum where where, size_t at, char *data, size_t nbytes)
{
    if (where == HOST)
        memcpy(data, own.memory[where] + at, nbytes);
    else
        gpu_read(rank->gpu, data, own.memory[where] + at, nbytes);
}

static void draw_bytes(char *data, size_t nbytes, uint64_t seed)
{
    for (size_t i = 0; i < nbytes; i += sizeof seed) {
        const uint64_t word = next_number(&seed);
        memcpy(data + i, &word, nbytes - i < sizeof word ? nbytes - i : sizeof word);
    }
}

/* ---- Messages ------------------------------------------------------------------------------- */

struct message {
    int from;
    size_t nbytes, at[2]; /* in the areas of sender and receiver */
    enum where where[2];
    bool on_stream[2];
    uint64_t seed;
};

static struct message draw_message(uint64_t *state, int from)
{
    static const size_t lengths[] = {1,     100,    16383,   16384,         16385,
                                     65536, 300001, 1 << 20, (1 << 20) + 7, 3 << 20};
    struct message message = {.from = from};
    message.nbytes = lengths[next_number(state) % (sizeof lengths / sizeof *lengths)];
    for (int side = 0; side < 2; side++) {
        message.where[side] = (enum where)(next_number(state) % (2 * NWHERE));
        if (message.where[side] >= NWHERE) message.where[side] = REGISTERED;
        message.at[side] = next_number(state) % 300 + GUARD;
        message.on_stream[side] = next_number(state) % 2 && message.where[side] != HOST;
    }
    message.seed = next_number(state);
    return message;
}

static char *data_of(const struct message *message, int side)
{
    return own.memory[message->where[side]] + message->at[side] + (side ? AREA : 0);
}

static void prepare(const struct gpu_rank *rank, const struct message *message)
{
    static char data[AREA];
    if (rank->rank == message->from) {
        draw_bytes(data, message->nbytes, message->seed);
        put(rank, message->where[0], message->at[0], data, message->nbytes);
    } else {
        memset(data, 0x3c, message->nbytes + 2 * GUARD);
        put(rank, message->where[1], AREA + message->at[1] - GUARD, data,
            message->nbytes + 2 * GUARD);
    }
}

static tuttiResult_t issue(const struct gpu_rank *rank, const struct message *message,
                           tuttiStream_t stream)
{
    const int side = rank->rank != message->from;
    char *data = data_of(message, side);
    if (!message->on_stream[side]) stream = NULL;
    return side ? tuttiRecv(data, message->nbytes, tuttiUint8, 1 - rank->rank, rank->comm, stream)
                : tuttiSend(data, message->nbytes, tuttiUint8, 1 - rank->rank, rank->comm, stream);
}

static bool is_right_there(const struct gpu_rank *rank, const struct message *message)
{
    static char data[AREA], expected[AREA];
    if (rank->rank == message->from) return true;
    memset(expected, 0x3c, message->nbytes + 2 * GUARD);
    draw_bytes(expected + GUARD, message->nbytes, message->seed);
    get(rank, message->where[1], AREA + message->at[1] - GUARD, data, message->nbytes + 2 * GUARD);
    return !memcmp(data, expected, message->nbytes + 2 * GUARD);
}

/* Whether this rank's device moves the message, so that the library copies nothing. */
static bool is_in_place(const struct gpu_rank *rank, const struct message *message)
{
    const bool sender = message->where[0] == REGISTERED && message->nbytes >= IN_PLACE_MIN;
    return rank->rank == message->from ? sender : sender && message->where[1] == REGISTERED;
}

/* One message, or two that pass each other in a group. */
static bool exchange(const struct gpu_rank *rank, const struct both *stream,
                     const struct message *messages, int n)
{
    bool copies = false, moves = false;
    for (int i = 0; i < n; i++) {
        const bool own_device = is_in_place(rank, &messages[i]);
        copies |= !own_device && messages[i].where[rank->rank != messages[i].from] != HOST;
        moves |= own_device && rank->rank != messages[i].from;
        prepare(rank, &messages[i]);
    }
    const int before = ncopies, flushes = nflushes;
    tuttiResult_t result = tuttiSuccess;
    if (n > 1) result = tuttiGroupStart();
    for (int i = 0; i < n && !result; i++) result = issue(rank, &messages[i], stream->tutti);
    if (n > 1 && !result) result = tuttiGroupEnd();
    if (!result) result = tuttiStreamSynchronize(stream->tutti);
    if (result) fail(rank->comm, "message");
    bool right = (ncopies != before) == copies;
    if (!right) fprintf(stderr, "rank %d: %d copies\n", rank->rank, ncopies - before);
    if (getenv("EXPECT_FLUSH") && (nflushes != flushes) != moves) {
        fprintf(stderr, "rank %d: %d flushes\n", rank->rank, nflushes - flushes);
        right = false;
    }
    for (int i = 0; i < n; i++)
        if (!is_right_there(rank, &messages[i])) {
            fprintf(stderr, "rank %d: wrong bytes\n", rank->rank);
            right = false;
        }
    if (right) return true;
    for (int i = 0; i < n; i++)
        fprintf(stderr, "  from %d, %zu bytes, %d at %zu to %d at %zu, streams %d %d\n",
                messages[i].from, messages[i].nbytes, messages[i].where[0], messages[i].at[0],
                messages[i].where[1], messages[i].at[1], messages[i].on_stream[0],
                messages[i].on_stream[1]);
    return false;
}

static int run_random(const struct gpu_rank *rank, uint64_t state, int n)
{
    int nwrong = 0;
    struct both stream;
    streams_create(rank, &stream, 1);
    for (int i = 0; i < n && !nwrong; i++) {
        const int first = (int)(next_number(&state) % 2), number = (int)(next_number(&state) % 2);
        struct message messages[2];
        for (int m = 0; m <= number; m++) messages[m] = draw_message(&state, first ^ m);
        nwrong += !exchange(rank, &stream, messages, number + 1);
    }
    streams_destroy(rank, &stream, 1);
    return nwrong;
}

/* ---- The rest ------------------------------------------------------------------------------- */

static struct message registered(int from, size_t nbytes, uint64_t seed)
{
    return (struct message){.from = from,
                            .nbytes = nbytes,
                            .at = {GUARD, GUARD},
                            .on_stream = {true, true},
                            .seed = seed};
}

static bool replay_messages(const struct gpu_rank *rank, const struct both *stream,
                            CUgraphExec graph, struct message *messages, bool copies)
{
    for (int m = 0; m < 2; m++) {
        messages[m].seed++;
        prepare(rank, &messages[m]);
    }
    const int before = ncopies;
    replay(graph, stream->cuda);
    const bool right = is_right_there(rank, &messages[0]) && is_right_there(rank, &messages[1]) &&
                       (ncopies != before) == copies;
    if (!right) fprintf(stderr, "rank %d: a replay, %d copies\n", rank->rank, ncopies - before);
    return right;
}

static int run_graph(const struct gpu_rank *rank)
{
    struct both stream;
    struct message messages[2] = {registered(0, 2 << 20, 1), registered(1, 70001, 100)};
    int nwrong = 0;
    streams_create(rank, &stream, 1);
    capture_begin(stream.cuda, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
    if (tuttiGroupStart() || issue(rank, &messages[0], stream.tutti) ||
        issue(rank, &messages[1], stream.tutti) || tuttiGroupEnd())
        fail(rank->comm, "capture");
    CUgraphExec graph = capture_end(stream.cuda);
    for (int i = 0; i < 3; i++) nwrong += !replay_messages(rank, &stream, graph, messages, false);
    if (tuttiCommDeregister(rank->comm, own.handles[REGISTERED])) fail(rank->comm, "deregister");
    if (dmabuf_verbs_count()) fail(NULL, "memory is still registered");
    for (int i = 0; i < 2; i++) nwrong += !replay_messages(rank, &stream, graph, messages, true);
    CALL(cuGraphExecDestroy, graph);
    streams_destroy(rank, &stream, 1);
    return nwrong;
}

static void init(struct gpu_rank *rank)
{
    tuttiConfig_t config = TUTTI_CONFIG_INITIALIZER;
    config.device = rank->gpu;
    if (tuttiCommInitEnv(&rank->comm, NULL, &config)) fail(NULL, "init");
    place_memory(rank);
}

enum fault { MISMATCH, ABORTS, DIES, NFAULTS };

/* Rank 0 sends rank 1 two messages. The first arrives. The second does not, because rank 1 receives
 * another length, aborts or dies. Prints the error. */
static bool fails(struct gpu_rank *rank, enum fault fault)
{
    struct both stream;
    struct message message = registered(0, AREA / 2, 5);
    init(rank);
    streams_create(rank, &stream, 1);
    if (!exchange(rank, &stream, &message, 1)) return false;
    if (rank->rank == 1 && fault == DIES) kill(getpid(), SIGKILL);
    if (rank->rank == 1 && fault == MISMATCH) message.nbytes--;
    prepare(rank, &message);
    tuttiResult_t result = tuttiInvalidUsage;
    if (rank->rank == 0 || fault != ABORTS) {
        (void)issue(rank, &message, stream.tutti);
        result = tuttiStreamSynchronize(stream.tutti);
        printf("rank %d: %s\n", rank->rank, tuttiGetLastError(rank->comm));
    }
    if (tuttiCommAbort(rank->comm)) fail(NULL, "abort");
    streams_destroy(rank, &stream, 1);
    if (dmabuf_verbs_count()) fail(NULL, "memory is registered after the abort");
    return result != tuttiSuccess;
}

int main(int argc, char **argv)
{
    if (argc < 2) return 2;
    struct gpu_rank rank = {.nranks = 2};
    int local, status = 0;
    if (!dmabuf_verbs_install()) return 2;
    count_calls();
    if (tuttiGetLauncher(&rank.rank, &rank.nranks, &local)) fail(NULL, "launcher");
    if (!strcmp(argv[1], "errors")) {
        for (enum fault fault = 0; fault < NFAULTS && !status; fault++)
            status = !fails(&rank, fault);
    } else if (argc > 3) {
        init(&rank);
        status = run_random(&rank, strtoull(argv[2], NULL, 0), atoi(argv[3])) + run_graph(&rank);
        if (tuttiCommDestroy(rank.comm)) fail(NULL, "destroy");
    }
    if (!status) printf("right\n");
    return status;
}
