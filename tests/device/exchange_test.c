/* Sends and receives on the memory of virtual GPUs, through tutti.h: groups of any pattern, against
 * contents that are computed from who sends what, and the errors of those that cannot succeed. */
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ranks_on_gpus.h"
#include "shim.h"

static uint64_t mix(uint64_t x)
{
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    return x ^ x >> 31;
}

static void check_result(const struct gpu_rank *rank, tuttiResult_t result, const char *what)
{
    CHECK_MESSAGE(result == tuttiSuccess, "rank %d: %s: %s", rank->rank, what,
                  tuttiGetLastError(rank->comm));
}

/* ---- Groups of any pattern ------------------------------------------------------------------ */

/* Of a run of groups, alike on all ranks. */
struct pattern {
    uint64_t seed;
    int ngroups, most; /* messages from one rank to another */
    size_t longest;
};

/* The message number i of a group from one rank to another. */
struct message {
    int from, to, i;
};

static uint64_t hash_of(const struct pattern *p, int group, const struct message *m)
{
    return mix(p->seed * 1000003 + (uint64_t)group * 4099 + (uint64_t)m->from * 257 +
               (uint64_t)m->to * 17 + (uint64_t)m->i);
}

static int number_of(const struct pattern *p, int group, int from, int to)
{
    const struct message all = {from, to, 99};
    return (int)(hash_of(p, group, &all) % (uint64_t)(p->most + 1));
}

static size_t length_of(const struct pattern *p, int group, const struct message *m)
{
    const uint64_t h = hash_of(p, group, m), kind = h % 8;
    return kind == 0 ? 0 : (size_t)((h >> 8) % (kind < 6 ? 2000 : p->longest));
}

static void fill(const struct pattern *p, int group, const struct message *m, char *data)
{
    const uint64_t h = hash_of(p, group, m);
    const size_t nbytes = length_of(p, group, m);
    for (size_t i = 0; i < nbytes; i++) data[i] = (char)mix(h + i / 8) ^ (char)i;
}

/* One call of a rank, and where its data lies. */
struct planned {
    struct message message;
    bool sends;
    char *data;
};

enum { MOST_PLANNED = 2 * MOST_RANKS * 4, GAP = 5 };

/* A rank's calls, in an order of its own in which only those with the same peer and direction keep
 * theirs. Returns their number; *nbytes: of all. */
static int plan(const struct pattern *p, int group, const struct gpu_rank *rank,
                struct planned all[MOST_PLANNED], size_t *nbytes)
{
    int n = 0;
    *nbytes = 1;
    for (int i = 0; i < p->most; i++)
        for (int peer = 0; peer < rank->nranks; peer++)
            for (int sends = 0; sends < 2; sends++) {
                const struct message m = sends ? (struct message){rank->rank, peer, i}
                                               : (struct message){peer, rank->rank, i};
                if (i >= number_of(p, group, m.from, m.to)) continue;
                all[n++] = (struct planned){m, sends, NULL};
                *nbytes += length_of(p, group, &m) + GAP;
            }
    for (int k = n - 1; k > 0; k--) { /* neighbours of different peers or directions change */
        const uint64_t h = mix(p->seed + (uint64_t)(k * 31 + rank->rank * 7 + group));
        for (int i = k; i > 0 && h >> i % 60 & 1; i--) {
            struct planned *a = &all[i - 1], *b = &all[i], was = *a;
            if (a->sends == b->sends && a->message.to == b->message.to &&
                a->message.from == b->message.from)
                break;
            *a = *b;
            *b = was;
        }
    }
    return n;
}

static tuttiResult_t issue(const struct planned *call, const struct pattern *p, int group,
                           const struct gpu_rank *rank, tuttiStream_t stream)
{
    const size_t nbytes = length_of(p, group, &call->message);
    return call->sends
               ? tuttiSend(call->data, nbytes, tuttiUint8, call->message.to, rank->comm, stream)
               : tuttiRecv(call->data, nbytes, tuttiUint8, call->message.from, rank->comm, stream);
}

/* What the memory must hold: before the group the sent data only. */
static void expect(const struct pattern *p, int group, const struct planned *all, int n,
                   char *memory, const char *device, size_t nbytes, bool before)
{
    memset(memory, 0xa5, nbytes);
    for (int i = 0; i < n; i++)
        if (all[i].sends || !before)
            fill(p, group, &all[i].message, memory + (all[i].data - device));
}

/* One group of a rank's calls, on two streams in turn where there are any. */
static void run_group(const struct pattern *p, int group, const struct gpu_rank *rank,
                      const tuttiStream_t streams[2])
{
    struct planned all[MOST_PLANNED];
    size_t nbytes, at = 0;
    const int n = plan(p, group, rank, all, &nbytes);
    char *device = gpu_memory(rank->gpu, nbytes), *host = malloc(nbytes), *got = malloc(nbytes);
    for (int i = 0; i < n; i++) {
        all[i].data = device + at;
        at += length_of(p, group, &all[i].message) + GAP;
    }
    expect(p, group, all, n, host, device, nbytes, true);
    gpu_write(rank->gpu, device, host, nbytes);
    CHECK_EQ(tuttiGroupStart(), tuttiSuccess);
    for (int i = 0; i < n; i++)
        check_result(rank, issue(&all[i], p, group, rank, streams ? streams[i % 2] : NULL),
                     "issue");
    check_result(rank, tuttiGroupEnd(), "group");
    for (int s = 0; streams && s < 2; s++)
        check_result(rank, tuttiStreamSynchronize(streams[s]), "synchronize");
    expect(p, group, all, n, host, device, nbytes, false);
    gpu_read(rank->gpu, got, device, nbytes);
    size_t wrong = 0;
    while (wrong < nbytes && got[wrong] == host[wrong]) wrong++;
    CHECK_MESSAGE(wrong == nbytes, "rank %d of %d: group %d of seed %llu: byte %zu of %zu",
                  rank->rank, rank->nranks, group, (unsigned long long)p->seed, wrong, nbytes);
    gpu_free(device);
    free(host);
    free(got);
}

static void run_pattern(struct gpu_rank *rank)
{
    const struct pattern *p = rank->arg;
    for (int g = 0; g < p->ngroups; g++) run_group(p, g, rank, NULL);
}

TEST(device_exchange, groups_of_any_pattern_are_right)
{
    for (int nranks = 1; nranks <= MOST_RANKS; nranks += nranks < 4 ? 1 : 4) {
        struct pattern p = {.seed = (uint64_t)nranks, .ngroups = 2, .most = 3, .longest = 4000};
        on_gpus(nranks, 1 + nranks % 2, NULL, run_pattern, &p);
    }
}

TEST(device_exchange, long_messages_in_several_parts_are_right)
{
    struct pattern p = {.seed = 21, .ngroups = 1, .most = 2, .longest = 700000};
    on_gpus(2, 1, NULL, run_pattern, &p); /* by reference */
    p.longest = 400000;
    on_gpus(3, 2, NULL, run_pattern, &p);
}

/* Of each part more than a flow copies in a turn, which is less than a slot where the settings say
 * so (CMakeLists.txt). */
static void exchanges_long_parts(struct gpu_rank *rank)
{
    enum { NPARTS = 3, NBYTES = NPARTS * ((1 << 20) + 5000) };
    char *device = gpu_memory(rank->gpu, NBYTES), *host = malloc(NBYTES);
    for (int i = 0; i < NBYTES; i++) host[i] = (char)mix((uint64_t)(i / 64));
    gpu_write(rank->gpu, device, host, rank->rank ? 0 : NBYTES);
    check_result(rank,
                 rank->rank ? tuttiRecv(device, NBYTES, tuttiUint8, 0, rank->comm, NULL)
                            : tuttiSend(device, NBYTES, tuttiUint8, 1, rank->comm, NULL),
                 "message");
    char *got = malloc(NBYTES);
    gpu_read(rank->gpu, got, device, NBYTES);
    CHECK(!memcmp(got, host, NBYTES));
    gpu_free(device);
    free(host);
    free(got);
}

TEST(device_exchange, parts_longer_than_a_turn_are_right)
{
    on_gpus(2, 2, NULL, exchanges_long_parts, NULL);
}

/* In the same group to the same peer: only the long one has a second part, which goes over a link
 * that another block has used for the collective. */
static void exchanges_short_and_long(struct gpu_rank *rank)
{
    enum { SHORT = 1000, LONG = 700000, NBYTES = SHORT + LONG, COUNT = 5000 };
    char *device = gpu_memory(rank->gpu, NBYTES), *sums = gpu_memory(rank->gpu, COUNT * 4),
         *host = malloc(NBYTES), *got = malloc(NBYTES);
    for (int i = 0; i < NBYTES; i++) host[i] = (char)mix((uint64_t)(i / 64));
    gpu_write(rank->gpu, device, host, rank->rank ? 0 : NBYTES);
    gpu_write(rank->gpu, sums, host, COUNT * 4);
    CHECK_EQ(tuttiGroupStart(), tuttiSuccess);
    check_result(rank, tuttiAllReduce(sums, sums, COUNT, tuttiInt32, tuttiSum, rank->comm, NULL),
                 "all-reduce");
    for (size_t i = 0; i < 2; i++) {
        const size_t at = i * SHORT, nbytes = i ? LONG : SHORT;
        check_result(rank,
                     rank->rank ? tuttiRecv(device + at, nbytes, tuttiUint8, 0, rank->comm, NULL)
                                : tuttiSend(device + at, nbytes, tuttiUint8, 1, rank->comm, NULL),
                     "issue");
    }
    check_result(rank, tuttiGroupEnd(), "group");
    gpu_read(rank->gpu, got, device, NBYTES);
    CHECK(!memcmp(got, host, NBYTES));
    gpu_free(sums);
    gpu_free(device);
    free(host);
    free(got);
}

TEST(device_exchange, short_and_long_messages_behind_a_collective_are_right)
{
    on_gpus(2, 1, NULL, exchanges_short_and_long, NULL);
}

static void run_on_streams(struct gpu_rank *rank)
{
    const struct pattern *p = rank->arg;
    tuttiStream_t streams[2];
    void *device_streams[2];
    for (int s = 0; s < 2; s++) {
        device_streams[s] = gpu_stream(rank->gpu);
        CHECK_EQ(tuttiStreamFromDevice(&streams[s], rank->gpu, device_streams[s]), tuttiSuccess);
    }
    for (int g = 0; g < p->ngroups; g++) run_group(p, g, rank, streams);
    for (int s = 0; s < 2; s++) {
        CHECK_EQ(tuttiStreamDestroy(streams[s]), tuttiSuccess);
        gpu_stream_destroy(rank->gpu, device_streams[s]);
    }
}

TEST(device_exchange, a_group_on_two_streams_is_done_when_both_are)
{
    struct pattern p = {.seed = 31, .ngroups = 2, .most = 2, .longest = 3000};
    on_gpus(4, 2, NULL, run_on_streams, &p);
}

/* The collective comes first, on the stream of the later half of the exchange. */
static void mixed_on_streams(struct gpu_rank *rank)
{
    enum { N = 10 };
    const int peer = 1 - rank->rank;
    int *memory = (int *)gpu_memory(rank->gpu, 5 * N * sizeof(int)), data[5 * N];
    tuttiStream_t streams[2];
    void *cuda[2];
    for (int i = 0; i < 5 * N; i++) data[i] = rank->rank + 1;
    gpu_write(rank->gpu, memory, data, sizeof data);
    for (int s = 0; s < 2; s++) {
        cuda[s] = gpu_stream(rank->gpu);
        CHECK_EQ(tuttiStreamFromDevice(&streams[s], rank->gpu, cuda[s]), tuttiSuccess);
    }
    CHECK_EQ(tuttiGroupStart(), tuttiSuccess);
    check_result(rank, tuttiSend(memory, N, tuttiInt32, peer, rank->comm, streams[0]), "send");
    for (int i = 2; i < 5; i++) /* on the streams 1, 0, 1 */
        check_result(rank,
                     tuttiAllReduce(memory + i * N, memory + i * N, N, tuttiInt32, tuttiSum,
                                    rank->comm, streams[(i + 1) % 2]),
                     "all-reduce");
    check_result(rank, tuttiRecv(memory + N, N, tuttiInt32, peer, rank->comm, streams[1]), "recv");
    check_result(rank, tuttiGroupEnd(), "group");
    for (int s = 0; s < 2; s++)
        check_result(rank, tuttiStreamSynchronize(streams[s]), "synchronize");
    gpu_read(rank->gpu, data, memory, sizeof data);
    CHECK_EQ(data[N], peer + 1);
    for (int i = 2; i < 5; i++) CHECK_EQ(data[i * N], 3);
    for (int s = 0; s < 2; s++) {
        CHECK_EQ(tuttiStreamDestroy(streams[s]), tuttiSuccess);
        gpu_stream_destroy(rank->gpu, cuda[s]);
    }
    gpu_free(memory);
}

TEST(device_exchange, a_group_whose_calls_take_turns_on_two_streams_ends)
{
    on_gpus(2, 1, NULL, mixed_on_streams, NULL);
}

/* More tables in flight than the ring of a rank holds at first, on a stream that does not begin. */
static void many_in_flight(struct gpu_rank *rank)
{
    enum { N = 1760, GROUP = 8 };
    const int peer = 1 - rank->rank;
    int *memory = (int *)gpu_memory(rank->gpu, (size_t)2 * N * sizeof(int)), data[2 * N];
    tuttiStream_t stream;
    void *device_stream = gpu_stream(rank->gpu);
    CHECK_EQ(tuttiStreamFromDevice(&stream, rank->gpu, device_stream), tuttiSuccess);
    for (int i = 0; i < N; i++) data[i] = i * 10 + rank->rank;
    gpu_write(rank->gpu, memory, data, (size_t)N * sizeof(int));
    if (rank->rank == 0) gpu_block(rank->gpu, device_stream);
    for (int i = 0; i < N; i++) {
        if (i % GROUP == 0) CHECK_EQ(tuttiGroupStart(), tuttiSuccess);
        check_result(rank,
                     rank->rank ? tuttiRecv(memory + N + i, 1, tuttiInt32, peer, rank->comm, stream)
                                : tuttiSend(memory + i, 1, tuttiInt32, peer, rank->comm, stream),
                     "issue");
        if (i % GROUP == GROUP - 1) check_result(rank, tuttiGroupEnd(), "group");
    }
    if (rank->rank == 0) gpu_unblock();
    check_result(rank, tuttiStreamSynchronize(stream), "synchronize");
    gpu_read(rank->gpu, data, memory, sizeof data);
    int nwrong = 0;
    for (int i = 0; i < N; i++) nwrong += rank->rank && data[N + i] != i * 10;
    CHECK_EQ(nwrong, 0);
    CHECK_EQ(tuttiStreamDestroy(stream), tuttiSuccess);
    gpu_stream_destroy(rank->gpu, device_stream);
    gpu_free(memory);
}

TEST(device_exchange, sends_that_wait_in_a_stream_keep_their_order_and_data)
{
    on_gpus(2, 1, NULL, many_in_flight, NULL);
}

/* A group of one thread for all ranks, with a collective of each communicator in the middle. */
TEST(device_exchange, one_thread_drives_a_ring_of_ranks_with_a_collective_in_the_group)
{
    enum { NRANKS = 3, N = 1000 };
    const int devices[NRANKS] = {0, 1, 0};
    tuttiComm_t comms[NRANKS] = {NULL};
    int *memory[NRANKS], data[3 * N];
    REQUIRE(tuttiCommInitAll(comms, NRANKS, devices) == tuttiSuccess);
    for (int r = 0; r < NRANKS; r++) {
        memory[r] = (int *)gpu_memory(devices[r], sizeof data);
        for (int i = 0; i < 3 * N; i++) data[i] = r + i;
        gpu_write(devices[r], memory[r], data, sizeof data);
    }
    CHECK_EQ(tuttiGroupStart(), tuttiSuccess);
    for (int r = 0; r < NRANKS; r++) {
        int *m = memory[r];
        CHECK_EQ(tuttiSend(m, N, tuttiInt32, (r + 1) % NRANKS, comms[r], NULL), tuttiSuccess);
        CHECK_EQ(tuttiAllReduce(m + N, m + N, N, tuttiInt32, tuttiSum, comms[r], NULL),
                 tuttiSuccess);
        CHECK_EQ(tuttiRecv(m + 2 * N, N, tuttiInt32, (r + 2) % NRANKS, comms[r], NULL),
                 tuttiSuccess);
    }
    CHECK_EQ(tuttiGroupEnd(), tuttiSuccess);
    for (int r = 0; r < NRANKS; r++) {
        int nwrong = 0;
        gpu_read(devices[r], data, memory[r], sizeof data);
        for (int i = 0; i < N; i++)
            nwrong += (data[i] != r + i) + (data[N + i] != 3 * (N + i) + 3) +
                      (data[2 * N + i] != (r + 2) % NRANKS + i);
        CHECK_EQ(nwrong, 0);
        gpu_free(memory[r]);
    }
    for (int r = 0; r < NRANKS; r++) CHECK_EQ(tuttiCommDestroy(comms[r]), tuttiSuccess);
    gpu_free_all();
}

/* Ranks whose memory is empty, or whose pointers say nothing. */
static void without_data(struct gpu_rank *rank)
{
    const int last = rank->nranks - 1;
    size_t counts[MOST_RANKS] = {0}, none[MOST_RANKS] = {0};
    counts[last] = 7;
    int *memory = (int *)gpu_memory(rank->gpu, 64);
    check_result(rank,
                 tuttiAllGatherV(memory, memory + 8, counts, NULL, tuttiInt32, rank->comm, NULL),
                 "all-gather");
    check_result(rank,
                 tuttiGatherV(memory, memory + 8, counts, NULL, tuttiInt32, 0, rank->comm, NULL),
                 "gather");
    check_result(rank,
                 tuttiAlltoAllV(memory, rank->rank ? none : counts, NULL, memory + 8,
                                rank->rank == last ? (const size_t[MOST_RANKS]){7} : none, NULL,
                                tuttiInt32, rank->comm, NULL),
                 "all-to-all");
    CHECK_EQ(tuttiGroupStart(), tuttiSuccess);
    check_result(rank, tuttiSend(memory, 0, tuttiInt32, 0, rank->comm, NULL), "send");
    for (int r = 0; !rank->rank && r < rank->nranks; r++)
        check_result(rank, tuttiRecv(memory, 0, tuttiInt32, r, rank->comm, NULL), "receive");
    check_result(rank, tuttiGroupEnd(), "group");
    gpu_free(memory);
}

TEST(device_exchange, ranks_without_data_take_part)
{
    on_gpus(3, 2, NULL, without_data, NULL);
}

/* ---- Errors --------------------------------------------------------------------------------- */

static void check_error(const struct gpu_rank *rank, tuttiResult_t result, tuttiResult_t expected,
                        const char *text)
{
    const char *error = tuttiGetLastError(rank->comm);
    if (!*error) error = tuttiGetLastError(NULL);
    CHECK_MESSAGE(result == expected, "rank %d: result %d, expected %d: %s", rank->rank,
                  (int)result, (int)expected, error);
    CHECK_MESSAGE(strstr(error, text), "rank %d: '%s' is not in '%s'", rank->rank, text, error);
}

/* Rank 0 sends to rank 1. */
static tuttiResult_t one_message(const struct gpu_rank *rank, char *memory, size_t sent,
                                 size_t received)
{
    return rank->rank ? tuttiRecv(memory, received, tuttiUint8, 0, rank->comm, NULL)
                      : tuttiSend(memory, sent, tuttiUint8, 1, rank->comm, NULL);
}

static void different_lengths(struct gpu_rank *rank)
{
    const size_t *lengths = rank->arg;
    char *memory = gpu_memory(rank->gpu, 600000);
    char text[128];
    snprintf(text, sizeof text, "sends %zu bytes", lengths[0]);
    check_error(rank, one_message(rank, memory, lengths[0], lengths[1]), tuttiInvalidUsage, text);
    snprintf(text, sizeof text, "receives %zu bytes: give both the same count", lengths[1]);
    check_error(rank, one_message(rank, memory, lengths[0], lengths[1]), tuttiInvalidUsage, text);
    gpu_free(memory);
}

TEST(device_exchange_errors, a_receive_of_another_length_is_an_error_that_shows_both)
{
    const size_t lengths[][2] = {{100, 99}, {0, 1}, {1, 0}, {400000, 100}, {9000, 600000}};
    for (int i = 0; i < 5; i++)
        on_gpus(2, 1 + i % 2, NULL, different_lengths, (void *)(uintptr_t)lengths[i]);
}

/* Rank 1 does not call. */
static void one_stays_away(struct gpu_rank *rank)
{
    char *memory = gpu_memory(rank->gpu, 400);
    if (rank->rank != 1) {
        CHECK_EQ(tuttiGroupStart(), tuttiSuccess);
        for (int peer = 0; peer < 3; peer++) {
            if (peer == rank->rank) continue;
            CHECK_EQ(tuttiSend(memory, 100, tuttiUint8, peer, rank->comm, NULL), tuttiSuccess);
            CHECK_EQ(tuttiRecv(memory + 200, 100, tuttiUint8, peer, rank->comm, NULL),
                     tuttiSuccess);
        }
        check_error(rank, tuttiGroupEnd(), tuttiTimeout, "rank 1");
        const char *error = tuttiGetLastError(rank->comm);
        CHECK(error && strstr(error, "a group of 4 sends and receives on a GPU"));
        CHECK(error && strstr(error, "has not yet received all"));
        CHECK(error && strstr(error, "has not yet sent all"));
    }
    pthread_barrier_wait(rank->arg);
    gpu_free(memory);
}

TEST(device_exchange_errors, a_rank_that_does_not_come_is_named_at_the_deadline)
{
    tuttiConfig_t config = TUTTI_CONFIG_INITIALIZER;
    config.timeoutMs = 1500;
    on_gpus_together(3, 1, &config, one_stays_away);
}

/* Rank 0 sends from memory of the host. */
static void on_the_host(struct gpu_rank *rank)
{
    char on_host[100] = {0};
    char *memory = gpu_memory(rank->gpu, 400);
    const tuttiResult_t result = one_message(rank, rank->rank ? memory : on_host, 100, 100);
    if (rank->rank) check_error(rank, result, tuttiTimeout, "but something in memory of the host");
    pthread_barrier_wait(rank->arg);
    gpu_free(memory);
}

TEST(device_exchange_errors, a_send_of_the_host_does_not_reach_a_receive_on_a_gpu)
{
    tuttiConfig_t config = TUTTI_CONFIG_INITIALIZER;
    config.timeoutMs = 1500;
    on_gpus_together(2, 1, &config, on_the_host);
}

static void one_leaves(struct gpu_rank *rank)
{
    char *memory = gpu_memory(rank->gpu, 400);
    if (rank->rank == 0) {
        CHECK_EQ(*(const bool *)rank->arg ? tuttiCommAbort(rank->comm)
                                          : tuttiCommDestroy(rank->comm),
                 tuttiSuccess);
        rank->comm = NULL;
    } else {
        check_error(rank, one_message(rank, memory, 100, 100), tuttiRemoteError, "rank 0");
    }
    gpu_free(memory);
}

TEST(device_exchange_errors, a_rank_that_leaves_or_aborts_instead_is_named)
{
    for (int aborts = 0; aborts < 2; aborts++) {
        bool how = aborts;
        on_gpus(2, 2, NULL, one_leaves, &how);
    }
}

/* Rank 0 leaves when the kernel of rank 1 may wait for it. */
static void leaves_later(struct gpu_rank *rank)
{
    char *memory = gpu_memory(rank->gpu, 400);
    tuttiStream_t stream;
    void *device_stream = gpu_stream(rank->gpu);
    CHECK_EQ(tuttiStreamFromDevice(&stream, rank->gpu, device_stream), tuttiSuccess);
    if (rank->rank)
        check_result(rank, tuttiRecv(memory, 100, tuttiUint8, 0, rank->comm, stream), "issue");
    pthread_barrier_wait(rank->arg);
    if (rank->rank)
        check_error(rank, tuttiStreamSynchronize(stream), tuttiRemoteError, "rank 0");
    else
        CHECK_EQ(tuttiCommDestroy(rank->comm), tuttiSuccess);
    if (!rank->rank) rank->comm = NULL;
    CHECK_EQ(tuttiStreamDestroy(stream), tuttiSuccess);
    gpu_stream_destroy(rank->gpu, device_stream);
    gpu_free(memory);
}

TEST(device_exchange_errors, a_rank_that_leaves_while_another_waits_for_it_is_named)
{
    on_gpus_together(2, 1, NULL, leaves_later);
}

/* These leave the communicator as it was. */
static void to_oneself(struct gpu_rank *rank)
{
    char *memory = gpu_memory(rank->gpu, 400);
    const int self = rank->rank;
    check_error(rank, tuttiSend(memory, 10, tuttiUint8, self, rank->comm, NULL), tuttiInvalidUsage,
                "outside a group");
    CHECK_EQ(tuttiGroupStart(), tuttiSuccess);
    CHECK_EQ(tuttiSend(memory, 10, tuttiUint8, self, rank->comm, NULL), tuttiSuccess);
    check_error(rank, tuttiGroupEnd(), tuttiInvalidUsage, "receives 0 from itself");
    CHECK_EQ(tuttiGroupStart(), tuttiSuccess);
    CHECK_EQ(tuttiRecv(memory + 100, 9, tuttiUint8, self, rank->comm, NULL), tuttiSuccess);
    CHECK_EQ(tuttiSend(memory, 10, tuttiUint8, self, rank->comm, NULL), tuttiSuccess);
    check_error(rank, tuttiGroupEnd(), tuttiInvalidUsage, "and receives 9 bytes");
    check_result(rank, one_message(rank, memory, 100, 100), "a message afterwards");
    gpu_free(memory);
}

TEST(device_exchange_errors, messages_to_oneself_that_do_not_match_are_refused)
{
    on_gpus(2, 1, NULL, to_oneself, NULL);
}

/* A rank that has received everything may leave at once. */
static void leaves_at_once(struct gpu_rank *rank)
{
    enum { NBYTES = 300000 };
    char *memory = gpu_memory(rank->gpu, NBYTES);
    check_result(rank, one_message(rank, memory, NBYTES, NBYTES), "message");
    gpu_free(memory);
}

TEST(device_exchange, ranks_may_leave_as_soon_as_their_calls_are_done)
{
    for (int ngpus = 1; ngpus <= 2; ngpus++) on_gpus(2, ngpus, NULL, leaves_at_once, NULL);
}

/* Rank 2 sends to rank 0 in place of its call. What rank 0 has sent by reference rank 1 has read,
 * but releases only with the next message. */
static void one_sends_instead(struct gpu_rank *rank)
{
    enum { N = 75000, NBYTES = N * sizeof(float) };
    char *memory = gpu_memory(rank->gpu, NBYTES);
    tuttiStream_t stream;
    void *device_stream = gpu_stream(rank->gpu);
    CHECK_EQ(tuttiStreamFromDevice(&stream, rank->gpu, device_stream), tuttiSuccess);
    CHECK_EQ(tuttiCommSetAlgorithm(rank->comm, tuttiCollAllReduce, "ring"), tuttiSuccess);
    if (rank->rank < 2)
        check_result(rank,
                     tuttiAllReduce(memory, memory, N, tuttiFloat32, tuttiSum, rank->comm, stream),
                     "all-reduce");
    pthread_barrier_wait(rank->arg);
    if (rank->rank == 2) { /* the others' kernels have some time */
        gpu_free(gpu_memory(rank->gpu, NBYTES));
        check_result(rank, tuttiSend(memory, NBYTES, tuttiUint8, 0, rank->comm, stream), "send");
    }
    check_error(rank, tuttiStreamSynchronize(stream), tuttiInvalidUsage, "ranks disagree");
    CHECK_EQ(tuttiStreamDestroy(stream), tuttiSuccess);
    gpu_stream_destroy(rank->gpu, device_stream);
    gpu_free(memory);
}

TEST(device_exchange_errors, a_message_in_place_of_a_collective_is_told_before_the_deadline)
{
    tuttiConfig_t config = TUTTI_CONFIG_INITIALIZER;
    config.timeoutMs = 15000;
    on_gpus_together(3, 1, &config, one_sends_instead);
}
