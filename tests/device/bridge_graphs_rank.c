/* A rank of a job on several hosts, each rank on a virtual GPU, that replays CUDA graphs:
 * device_bridge_graphs SCENE.
 *   order     several graphs and direct calls on three streams, without a wait between them
 *   calls     graphs of all kinds of calls, with new data before each replay
 *   leave     the communicator is destroyed while launched replays run; rank 0 launches them late
 *   finalize  the same, finalized before that
 *   exit      rank 0 ends without destroying its communicator, before the others replay
 *   early     rank 0 has done its part of a replay, and destroys, before the last rank replays
 *   parted    rank 0 has done its part of a replay, destroys, and is killed while it waits for rank
 *             1 of its host, which replays late; rank 2 waits for rank 1 and does not miss rank 0
 *   unneeded  rank 2 is killed while rank 1 waits for a message of rank 0, which comes
 *   left      rank 0 has left when the others replay once more
 *   abort     rank 0 aborts its communicator while a replay of all other ranks runs
 *   abort_own rank 0 aborts its communicator while its replay runs, before the others come to it
 *   destroy   rank 0 destroys its communicator while a replay runs to which the others never come
 *   missing   rank 0 replays nothing: all learn that, in time
 *   killed    rank 0 kills itself at some moment of many replays; killed_messages: of messages
 *   unsent    rank 0 is killed after replays whose messages its host could not send, because rank 1
 *             took none
 *   graphless rank 0 makes the call that the others replay, without a graph; graphed: replays what
 *             the others call without a graph
 *   lengths   rank 0 sends, by a replay, more bytes than rank 1 receives
 * In the scenes from `left` on, but for a rank 0 that leaves, each rank prints the error that it
 * gets. */
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "graphs.h"

enum { COUNT = 8000, EARLY_US = 200000, LATE_US = 700000, LONG_MS = 60000 };

static const char *scene;

static bool is_scene(const char *name)
{
    return !strcmp(scene, name);
}

static _Noreturn void fail(tuttiComm_t comm, const char *what)
{
    fprintf(stderr, "%s: %s\n", what, tuttiGetLastError(comm));
    exit(2);
}

static void expect(const struct gpu_rank *rank, tuttiResult_t result, const char *what)
{
    if (result) fail(rank->comm, what);
}

/* ---- Calls of which every replay changes what the ranks have -------------------------------- */

/* What a rank has: two halves. Also of the other ranks, to say what must come out. */
enum { ALL = 2 * COUNT, SUMMED = 100, BROADCAST = 300 };
struct data {
    unsigned *memory; /* of the GPU: [ALL] */
    unsigned all[MOST_RANKS][ALL];
};

static void data_create(const struct gpu_rank *rank, struct data *data)
{
    data->memory = (unsigned *)gpu_memory(rank->gpu, sizeof data->all[0]);
    for (unsigned r = 0; r < (unsigned)rank->nranks; r++)
        for (unsigned i = 0; i < ALL; i++) data->all[r][i] = r * 1000000 + i + 1;
    gpu_write(rank->gpu, data->memory, data->all[rank->rank], sizeof data->all[0]);
}

static void check_data(const struct gpu_rank *rank, const struct data *data)
{
    static unsigned got[ALL];
    gpu_read(rank->gpu, got, data->memory, sizeof got);
    for (int i = 0; i < ALL; i++)
        if (got[i] != data->all[rank->rank][i]) {
            fprintf(stderr, "rank %d: element %d is %u, expected %u\n", rank->rank, i, got[i],
                    data->all[rank->rank][i]);
            exit(1);
        }
}

/* Of the first elements. */
static void issue_sum(const struct gpu_rank *rank, const struct data *data,
                      const struct both *stream)
{
    expect(rank,
           tuttiAllReduce(data->memory, data->memory, SUMMED, tuttiUint32, tuttiSum, rank->comm,
                          stream->tutti),
           "sum");
}

static void expect_sum(const struct gpu_rank *rank, struct data *data)
{
    for (unsigned i = 0; i < SUMMED; i++) {
        unsigned sum = 0;
        for (int r = 0; r < rank->nranks; r++) sum += data->all[r][i];
        for (int r = 0; r < rank->nranks; r++) data->all[r][i] = sum;
    }
}

/* The half `from` goes to the other half of the next rank. */
static void issue_shift(const struct gpu_rank *rank, const struct data *data, int from,
                        const struct both *stream)
{
    const int n = rank->nranks;
    unsigned *halves[2] = {data->memory, data->memory + COUNT};
    expect(rank, tuttiGroupStart(), "group");
    expect(rank,
           tuttiSend(halves[from], COUNT, tuttiUint32, (rank->rank + 1) % n, rank->comm,
                     stream->tutti),
           "send");
    expect(rank,
           tuttiRecv(halves[1 - from], COUNT, tuttiUint32, (rank->rank + n - 1) % n, rank->comm,
                     stream->tutti),
           "receive");
    expect(rank, tuttiGroupEnd(), "group");
}

static void issue_there(const struct gpu_rank *rank, const struct data *data,
                        const struct both *stream)
{
    issue_shift(rank, data, 0, stream);
}

static void issue_back(const struct gpu_rank *rank, const struct data *data,
                       const struct both *stream)
{
    issue_shift(rank, data, 1, stream);
}

static void expect_shift(const struct gpu_rank *rank, struct data *data, int from)
{
    const int n = rank->nranks;
    for (int r = 0; r < n; r++)
        memcpy(data->all[(r + 1) % n] + (1 - from) * COUNT, data->all[r] + from * COUNT,
               COUNT * sizeof data->all[0][0]);
}

/* Of elements from `at` on. */
struct broadcast {
    int at, count, root;
};

static void issue_broadcast(const struct gpu_rank *rank, const struct data *data,
                            const struct broadcast *of, const struct both *stream)
{
    unsigned *memory = data->memory + of->at;
    expect(rank,
           tuttiBroadcast(memory, memory, (size_t)of->count, tuttiUint32, of->root, rank->comm,
                          stream->tutti),
           "broadcast");
}

static void expect_broadcast(const struct gpu_rank *rank, struct data *data,
                             const struct broadcast *of)
{
    for (int r = 0; r < rank->nranks; r++)
        if (r != of->root)
            memcpy(data->all[r] + of->at, data->all[of->root] + of->at,
                   (size_t)of->count * sizeof data->all[0][0]);
}

static CUgraphExec
capture(const struct gpu_rank *rank, const struct data *data, const struct both *stream,
        void (*issue)(const struct gpu_rank *, const struct data *, const struct both *))
{
    capture_begin(stream->cuda, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
    issue(rank, data, stream);
    return capture_end(stream->cuda);
}

/* ---- Scenes that succeed -------------------------------------------------------------------- */

static struct data data; /* of the scene */

/* In some rounds nobody has had anything to do for so long that proxies look less often. */
static void order(struct gpu_rank *rank)
{
    enum { ROUNDS = 24, PAUSE_US = 150000 };
    struct both streams[3];
    streams_create(rank, streams, 3);
    data_create(rank, &data);
    CUgraphExec sum = capture(rank, &data, &streams[0], issue_sum);
    CUgraphExec there = capture(rank, &data, &streams[1], issue_there);
    CUgraphExec back = capture(rank, &data, &streams[1], issue_back);
    for (int round = 0; round < ROUNDS; round++) {
        const struct broadcast broadcast = {SUMMED + BROADCAST * round, BROADCAST,
                                            round % rank->nranks};
        CALL(cuGraphLaunch, sum, streams[0].cuda);
        CALL(cuGraphLaunch, there, streams[1].cuda);
        issue_broadcast(rank, &data, &broadcast, &streams[2]);
        CALL(cuGraphLaunch, sum, streams[0].cuda);
        CALL(cuGraphLaunch, sum, streams[1].cuda);
        CALL(cuGraphLaunch, back, streams[2].cuda);
        expect_sum(rank, &data);
        expect_shift(rank, &data, 0);
        expect_broadcast(rank, &data, &broadcast);
        expect_sum(rank, &data);
        expect_sum(rank, &data);
        expect_shift(rank, &data, 1);
        if (round % 8 < 7) continue;
        for (int i = 0; i < 3; i++) CALL(cuStreamSynchronize, streams[i].cuda);
        check_data(rank, &data);
        usleep(PAUSE_US);
    }
    CALL(cuGraphExecDestroy, sum);
    CALL(cuGraphExecDestroy, there);
    CALL(cuGraphExecDestroy, back);
    streams_destroy(rank, streams, 3);
}

/* One graph of a call of every kind and one of a group of them; between their replays direct calls
 * of the same kinds, and captures of further graphs, which bind what they need while others run. */
static void calls(struct gpu_rank *rank)
{
    enum { ROUNDS = 4, MOST_KINDS = tuttiCollBarrier };
    struct both stream;
    struct placed placed[MOST_KINDS], direct;
    CUgraphExec graphs[2];
    streams_create(rank, &stream, 1);
    for (int kind = 0; kind < MOST_KINDS; kind++) {
        const struct call call = {.kind = kind,
                                  .count = 3000,
                                  .type = kind % 2 ? tuttiInt32 : tuttiFloat32,
                                  .op = tuttiSum,
                                  .root = kind % rank->nranks,
                                  .nranks = rank->nranks};
        place_call(&placed[kind], rank, &call, 0);
    }
    for (int g = 0; g < 2; g++) {
        capture_begin(stream.cuda, CU_STREAM_CAPTURE_MODE_GLOBAL);
        if (g) expect(rank, tuttiGroupStart(), "group");
        for (int kind = 0; kind < MOST_KINDS; kind++)
            expect(rank, issue_call(&placed[kind], stream.tutti), call_text(&placed[kind].call));
        if (g) expect(rank, tuttiGroupEnd(), "group");
        graphs[g] = capture_end(stream.cuda);
    }
    for (int round = 0; round < ROUNDS; round++) {
        const struct call call = {.kind = (round * 5) % MOST_KINDS,
                                  .count = 100000 >> round,
                                  .type = tuttiInt32,
                                  .op = tuttiSum,
                                  .root = round % rank->nranks,
                                  .nranks = rank->nranks};
        for (int kind = 0; kind < MOST_KINDS; kind++) renew(&placed[kind], (uint64_t)round + 1);
        CALL(cuGraphLaunch, graphs[round % 2], stream.cuda);
        place_call(&direct, rank, &call, 0);
        expect(rank, issue_call(&direct, round < 2 ? stream.tutti : NULL), call_text(&call));
        CALL(cuStreamSynchronize, stream.cuda);
        for (int kind = 0; kind < MOST_KINDS; kind++)
            if (!is_right(&placed[kind])) fail(NULL, call_text(&placed[kind].call));
        if (!check_call(&direct)) fail(NULL, call_text(&call));
    }
    for (int g = 0; g < 2; g++) CALL(cuGraphExecDestroy, graphs[g]);
    streams_destroy(rank, &stream, 1);
}

/* Nobody waits for the stream before the communicator's end. */
static void leave(struct gpu_rank *rank)
{
    enum { ROUNDS = 5 };
    struct both stream;
    streams_create(rank, &stream, 1);
    data_create(rank, &data);
    CUgraphExec sum = capture(rank, &data, &stream, issue_sum);
    if (!rank->rank) usleep(LATE_US);
    for (int i = 0; i < ROUNDS; i++) {
        CALL(cuGraphLaunch, sum, stream.cuda);
        expect_sum(rank, &data);
    }
    CALL(cuGraphExecDestroy, sum);
    if (is_scene("finalize")) expect(rank, tuttiCommFinalize(rank->comm), "finalize");
    expect(rank, tuttiCommDestroy(rank->comm), "destroy");
    rank->comm = NULL;
    CALL(cuStreamSynchronize, stream.cuda);
    check_data(rank, &data);
}

static const struct broadcast from_0 = {0, COUNT, 0};

static void issue_from_0(const struct gpu_rank *rank, const struct data *from,
                         const struct both *stream)
{
    issue_broadcast(rank, from, &from_0, stream);
}

/* `exit` and `early`: a broadcast from rank 0, which the others take when it has gone. */
static void go_early(struct gpu_rank *rank)
{
    struct both stream;
    streams_create(rank, &stream, 1);
    data_create(rank, &data);
    /* So that rank 0 tells all ranks that it leaves. */
    CUgraphExec sum = capture(rank, &data, &stream, issue_sum);
    CUgraphExec graph = capture(rank, &data, &stream, issue_from_0);
    replay(sum, stream.cuda);
    expect_sum(rank, &data);
    replay(graph, stream.cuda);
    expect_broadcast(rank, &data, &from_0);
    check_data(rank, &data);
    gpu_fill(rank->gpu, stream.cuda, data.memory, (unsigned)rank->rank + 7, COUNT);
    for (int i = 0; i < COUNT; i++) data.all[rank->rank][i] = 7;
    if (rank->rank == rank->nranks - 1) usleep(LATE_US);
    replay(graph, stream.cuda);
    check_data(rank, &data);
    if (!rank->rank && is_scene("exit")) exit(0);
    CALL(cuGraphExecDestroy, sum);
    CALL(cuGraphExecDestroy, graph);
}

/* Kills the process a moment after the call. */
static void *kill_soon(void *unused)
{
    (void)unused;
    usleep(LATE_US);
    kill(getpid(), SIGKILL);
    return NULL;
}

static void part(struct gpu_rank *rank)
{
    tuttiResult_t result;
    pthread_t thread;
    struct both stream;
    streams_create(rank, &stream, 1);
    data_create(rank, &data);
    CUgraphExec sum = capture(rank, &data, &stream, issue_sum);
    CUgraphExec graph = capture(rank, &data, &stream, issue_from_0);
    replay(sum, stream.cuda);
    expect_sum(rank, &data);
    /* Hosts tell each other of the first of two replays, the second of which follows at once. */
    usleep(EARLY_US);
    replay(graph, stream.cuda);
    if (rank->rank == 1) usleep(3 * LATE_US);
    replay(graph, stream.cuda);
    expect_broadcast(rank, &data, &from_0);
    CALL(cuGraphExecDestroy, sum);
    CALL(cuGraphExecDestroy, graph);
    if (!rank->rank) {
        if (pthread_create(&thread, NULL, kill_soon, NULL)) exit(2);
        (void)tuttiCommDestroy(rank->comm);
        usleep(2 * LATE_US);
    }
    check_data(rank, &data);
    expect(rank, tuttiCommGetAsyncError(rank->comm, &result), "asynchronous error");
    expect(rank, result, "replays");
}

/* ---- Scenes that fail ----------------------------------------------------------------------- */

static void print_error(const struct gpu_rank *rank)
{
    tuttiResult_t result = tuttiSuccess;
    for (int ms = 0; ms < LONG_MS && !result; ms++) {
        usleep(1000);
        expect(rank, tuttiCommGetAsyncError(rank->comm, &result), "asynchronous error");
    }
    printf("rank %d: result %d: %s\n", rank->rank, result, tuttiGetLastError(rank->comm));
}

/* Replays, and waits for the stream. */
static void replay_and_print(const struct gpu_rank *rank, CUgraphExec graph, CUstream stream)
{
    replay(graph, stream);
    print_error(rank);
}

static void *kill_later(void *argument)
{
    usleep(20000 + 3000 * ((unsigned)getpid() % 32));
    (void)argument;
    kill(getpid(), SIGKILL);
    return NULL;
}

/* Many replays; of rank 0 until it is killed. */
static void replay_until_killed(const struct gpu_rank *rank, CUgraphExec graph, CUstream stream)
{
    pthread_t thread;
    tuttiResult_t result = tuttiSuccess;
    if (!rank->rank && pthread_create(&thread, NULL, kill_later, NULL)) exit(2);
    for (int i = 0; i < LONG_MS && !result; i++) {
        replay(graph, stream);
        expect(rank, tuttiCommGetAsyncError(rank->comm, &result), "asynchronous error");
    }
    print_error(rank);
}

/* Nothing takes meanwhile what other ranks send. */
static void stop_for_a_while(void)
{
    const pid_t stopped = getpid();
    if (fork() == 0) {
        usleep(LATE_US);
        kill(stopped, SIGCONT);
        _exit(0);
    }
    raise(SIGSTOP);
}

/* Where rank 1 is late to stop, it misses rank 0 in a later replay. */
static void die_unsent(const struct gpu_rank *rank, CUgraphExec graph, CUstream stream)
{
    enum { AHEAD = 3 };
    if (!rank->rank) {
        usleep(EARLY_US);
        for (int i = 0; i < AHEAD; i++) replay(graph, stream);
        usleep(EARLY_US); /* hosts tell each other of the replays */
        kill(getpid(), SIGKILL);
    }
    stop_for_a_while();
    replay_until_killed(rank, graph, stream);
}

/* Rank 0 sends `extra` elements more than rank 1 receives. */
static void issue_message(const struct gpu_rank *rank, const struct both *stream, size_t extra)
{
    if (rank->rank == 0)
        expect(rank, tuttiSend(data.memory, 100 + extra, tuttiUint32, 1, rank->comm, stream->tutti),
               "send");
    if (rank->rank == 1)
        expect(rank, tuttiRecv(data.memory, 100, tuttiUint32, 0, rank->comm, stream->tutti),
               "receive");
}

static CUgraphExec capture_message(const struct gpu_rank *rank, const struct both *stream)
{
    capture_begin(stream->cuda, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
    issue_message(rank, stream, 0);
    return capture_end(stream->cuda);
}

static void lose_unneeded(struct gpu_rank *rank)
{
    tuttiResult_t result;
    struct both stream;
    streams_create(rank, &stream, 1);
    data_create(rank, &data);
    CUgraphExec sum = capture(rank, &data, &stream, issue_sum);
    CUgraphExec graph = capture_message(rank, &stream);
    replay(sum, stream.cuda);
    usleep(EARLY_US);
    if (rank->rank == 2) kill(getpid(), SIGKILL);
    if (rank->rank == 0) usleep(3 * LATE_US);
    replay(graph, stream.cuda);
    CALL(cuGraphExecDestroy, sum);
    CALL(cuGraphExecDestroy, graph);
    expect(rank, tuttiCommGetAsyncError(rank->comm, &result), "asynchronous error");
    expect(rank, result, "replays");
}

/* Each with a replay: first of the captured lengths, which are alike; then a direct receive of
 * fewer bytes. */
static void differ_in_length(const struct gpu_rank *rank, const struct both *stream)
{
    CUgraphExec graph = capture_message(rank, stream);
    replay(graph, stream->cuda);
    if (rank->rank == 0)
        issue_message(rank, stream, 20);
    else
        CALL(cuGraphLaunch, graph, stream->cuda);
    CALL(cuStreamSynchronize, stream->cuda);
    print_error(rank);
}

static void go_wrong(struct gpu_rank *rank)
{
    struct both stream;
    streams_create(rank, &stream, 1);
    data_create(rank, &data);
    if (is_scene("lengths")) {
        differ_in_length(rank, &stream);
        return;
    }
    const bool first = !rank->rank;
    CUgraphExec graph = capture(rank, &data, &stream,
                                is_scene("killed_messages") ? issue_there
                                : is_scene("unsent")        ? issue_from_0
                                                            : issue_sum);
    replay(graph, stream.cuda);
    if (is_scene("unsent")) {
        die_unsent(rank, graph, stream.cuda);
    } else if (is_scene("killed") || is_scene("killed_messages")) {
        replay_until_killed(rank, graph, stream.cuda);
    } else if ((is_scene("abort") || is_scene("abort_own")) && first) {
        if (is_scene("abort_own")) CALL(cuGraphLaunch, graph, stream.cuda);
        usleep(EARLY_US);
        expect(rank, tuttiCommAbort(rank->comm), "abort");
        rank->comm = NULL;
        CALL(cuStreamSynchronize, stream.cuda);
    } else if (is_scene("destroy") && first) {
        CALL(cuGraphLaunch, graph, stream.cuda);
        (void)tuttiCommDestroy(rank->comm);
        rank->comm = NULL;
        CALL(cuStreamSynchronize, stream.cuda);
    } else if (is_scene("destroy") || (is_scene("missing") && first)) {
        print_error(rank);
    } else if ((is_scene("graphless") && first) || (is_scene("graphed") && !first)) {
        issue_sum(rank, &data, &stream);
        CALL(cuStreamSynchronize, stream.cuda);
        print_error(rank);
    } else if (is_scene("left") && first) {
        CALL(cuGraphExecDestroy, graph);
    } else {
        if (!is_scene("abort")) usleep(LATE_US);
        replay_and_print(rank, graph, stream.cuda);
    }
}

static void run_scene(struct gpu_rank *rank)
{
    if (is_scene("order"))
        order(rank);
    else if (is_scene("calls"))
        calls(rank);
    else if (is_scene("leave") || is_scene("finalize"))
        leave(rank);
    else if (is_scene("exit") || is_scene("early"))
        go_early(rank);
    else if (is_scene("parted"))
        part(rank);
    else if (is_scene("unneeded"))
        lose_unneeded(rank);
    else
        go_wrong(rank);
}

int main(int argc, char **argv)
{
    int local;
    struct gpu_rank rank = {0};
    tuttiConfig_t config = TUTTI_CONFIG_INITIALIZER;
    if (argc < 2 || tuttiGetLauncher(&rank.rank, &rank.nranks, &local)) fail(NULL, "launcher");
    scene = argv[1];
    rank.gpu = config.device = rank.rank % 2;
    expect(&rank, tuttiCommInitEnv(&rank.comm, NULL, &config), "init");
    run_scene(&rank);
    if (rank.comm) expect(&rank, tuttiCommDestroy(rank.comm), "destroy");
    return 0;
}
