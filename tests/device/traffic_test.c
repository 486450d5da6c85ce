/* What the kernels move: bytes of device memory that each rank loads and stores in a collective of
 * 1 MiB, counted by the virtual GPU, beside those that the algorithm's steps need.
 *
 * The data is the larger buffer of a rank. The settings are the library's own. A rank loads what
 * its steps take of its buffers and of messages, and stores what they put into its buffers and into
 * messages. A message is as long as its data in a slot, twice as long as lines. Where ranks share a
 * GPU, or have registered their buffers, a message that is just as it stands in a buffer is not
 * stored, nor loaded for that.
 * Loads that wait are left out: how many there are is chance. TT_TRAFFIC_RANKS=8 also measures 8
 * ranks, which takes as long as all others together. */
#include <dlfcn.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <vgpu/traffic.h>

#include "calls_on_gpu.h"
#include "shim.h"

/* BLOCKS: of threads, of each call. */
enum { DATA = 1 << 20, ROOT = 0, BLOCKS = 32 };

static __typeof__(vgpu_traffic) *traffic_of;

/* What a rank does, in blocks of 1/n of the data (a broadcast: of all data). */
struct blocks {
    int loaded, stored; /* of its buffers */
    int taken, sent;    /* messages */
    int bare;           /* sent: alone, from a buffer, by a step that does nothing else */
    int kept;           /* sent: by a step that keeps the same in a buffer */
    int sending;        /* steps that send */
    int meetings;       /* in slots: as many messages without data to each rank, and from it */
    int peers;          /* whose messages it takes */
};

/* By hand, from the drawings in src/algorithms. */
static struct blocks ring_or_two_shot(int n, int rank)
{
    (void)rank;
    if (n == 2) return (struct blocks){n, n, 2, 2, 1, 1, 2, 0, 1};
    return (struct blocks){n, n, 2 * (n - 1), 2 * (n - 1), n - 1, n - 1, n, 0, n - 1};
}

static struct blocks gather_ring(int n, int rank)
{
    (void)rank;
    return (struct blocks){1, n, n - 1, n - 1, 0, n - 1, n - 1, 0, 1};
}

static struct blocks scatter_parallel(int n, int rank)
{
    (void)rank;
    return (struct blocks){n, 1, n - 1, n - 1, n - 1, 0, n - 1, 0, n - 1};
}

/* In slots: into the own place, and out of all places. */
static struct blocks meet_two_shot(int n, int rank)
{
    (void)rank;
    return (struct blocks){.loaded = 3 * n + 1, .stored = 2 * n + 2, .meetings = 2, .peers = n - 1};
}

static struct blocks gather_meet(int n, int rank)
{
    (void)rank;
    return (struct blocks){.loaded = n + 1, .stored = n + 1, .meetings = 1, .peers = n - 1};
}

/* In lines: a rank reads what it takes of its own where it has put that in from. */
static struct blocks gather_meet_in_lines(int n, int rank)
{
    (void)rank;
    return (struct blocks){.loaded = 2, .stored = n, .taken = n - 1, .sent = n - 1, .peers = n - 1};
}

static struct blocks chain(int n, int rank)
{
    const int sends = rank < n - 1;
    return (struct blocks){rank == ROOT, 1, rank != ROOT, sends, 0, sends, sends, 0, rank != ROOT};
}

/* With what the library chooses. */
static const struct row {
    int kind;
    const char *of_two, *of_more;
    struct blocks (*blocks)(int nranks, int rank);
    struct blocks (*in_lines)(int nranks, int rank); /* NULL: the same */
} rows[] = {{tuttiCollAllReduce, "ring", "two_shot", ring_or_two_shot, NULL},
            {tuttiCollAllReduce, "meet_two_shot", "meet_two_shot", meet_two_shot, NULL},
            {tuttiCollAllGather, "ring", "ring", gather_ring, NULL},
            {tuttiCollAllGather, "meet", "meet", gather_meet, gather_meet_in_lines},
            {tuttiCollReduceScatter, "parallel", "parallel", scatter_parallel, NULL},
            {tuttiCollBroadcast, "chain", "chain", chain, NULL}};
enum { NROWS = sizeof rows / sizeof *rows };

/* What all ranks of a communicator share. */
struct shared {
    pthread_barrier_t barrier;
    int nranks, ngpus;
    bool registers;                                            /* the buffers of each call */
    struct vgpu_traffic before[MOST_RANKS], after[MOST_RANKS]; /* of each GPU */
};

/* Loads that move data, and stores. */
static double loaded(const struct vgpu_traffic *t)
{
    return (double)(t->weak_loaded + t->strong_loaded - t->waited);
}

static double stored(const struct vgpu_traffic *t)
{
    return (double)(t->weak_stored + t->strong_stored);
}

struct need {
    double loaded, stored; /* bytes */
    double fences;         /* at most, of all blocks of threads */
    bool lines;            /* as the kernel did it */
};

static struct vgpu_traffic difference(const struct shared *all, int gpu)
{
    const struct vgpu_traffic *a = &all->after[gpu], *b = &all->before[gpu];
    return (struct vgpu_traffic){.instructions = a->instructions - b->instructions,
                                 .weak_loaded = a->weak_loaded - b->weak_loaded,
                                 .weak_stored = a->weak_stored - b->weak_stored,
                                 .strong_loaded = a->strong_loaded - b->strong_loaded,
                                 .strong_stored = a->strong_stored - b->strong_stored,
                                 .waited = a->waited - b->waited,
                                 .barriers = a->barriers - b->barriers,
                                 .fences = a->fences - b->fences};
}

/* Fences of a block of threads at most, however many peers it has: one for each step in slots that
 * sends, which also releases what was read; in lines one for every second message that it takes
 * from a peer; in slots one for what is read after the last step that sends; one for each peer
 * whose memory it reads; and one at its end. */
static int fences_of(const struct blocks *b, int n, bool lines)
{
    const int taken = b->taken + b->meetings * (n - 1), of_one = b->peers ? taken / b->peers : 0;
    return 1 + (lines ? (of_one + 1) / 2 : b->sending + b->meetings + (taken > 0));
}

/* What the ranks of a GPU need by the algorithm's steps. A call of a rank has two fences more: it
 * asks the host, and tells it the end. */
static void add_need(const struct shared *all, const struct row *row, int gpu, struct need *need)
{
    const int n = all->nranks, m = need->lines ? 2 : 1;
    const bool refers = (all->registers || all->ngpus < n) && !need->lines;
    const bool opens = all->registers && !need->lines;
    const double block = row->kind == tuttiCollBroadcast ? DATA : DATA / n;
    for (int rank = gpu; rank < n; rank += all->ngpus) {
        const struct blocks b =
            need->lines && row->in_lines ? row->in_lines(n, rank) : row->blocks(n, rank);
        need->loaded += block * (b.loaded + m * b.taken - (refers ? b.bare : 0));
        need->stored += block * (b.stored + m * b.sent - (refers ? b.bare + b.kept : 0));
        need->fences += BLOCKS * (fences_of(&b, n, need->lines) + (opens ? b.peers : 0)) + 2;
    }
}

/* Checks all GPUs and prints the one with the largest ratio. */
static void compare(const struct shared *all, const struct row *row)
{
    const char *name = tuttiCollectiveName((tuttiCollective_t)row->kind);
    const char *algorithm = all->nranks == 2 ? row->of_two : row->of_more;
    struct vgpu_traffic worst = {0};
    struct need needed = {0};
    double ratio = 0;
    for (int gpu = 0; gpu < all->ngpus; gpu++) {
        const struct vgpu_traffic t = difference(all, gpu);
        struct need need = {.lines = 4 * t.strong_stored > t.weak_stored};
        add_need(all, row, gpu, &need);
        const double most = fmax(loaded(&t) / need.loaded, stored(&t) / need.stored);
        CHECK_MESSAGE(most > 0.99 && most <= 1.1, "%s:%s over %d ranks%s: GPU %d: %.3f", name,
                      algorithm, all->nranks, all->registers ? ", registered" : "", gpu, most);
        /* Of what all ranks have a rank reads each byte once, and writes it once. */
        const bool is_gather = row->kind == tuttiCollAllGather && strcmp(algorithm, "meet");
        if (all->registers && is_gather && !need.lines)
            CHECK(loaded(&t) <= 1.1 * DATA && stored(&t) <= 1.1 * DATA);
        CHECK_MESSAGE((double)t.fences <= need.fences,
                      "%s:%s over %d ranks: GPU %d: %llu fences, at most %.0f", name, algorithm,
                      all->nranks, gpu, (unsigned long long)t.fences, need.fences);
        if (most < ratio) continue;
        ratio = most;
        worst = t;
        needed = need;
    }
    const double calls = (double)all->nranks / all->ngpus * BLOCKS;
    printf("| %s | %s | %d | %d | %s | %.3f | %.3f | %.3f | %.3f | %.3f | %.1f | %.2f | %.2f | "
           "%.2f |\n",
           name, algorithm, all->nranks, all->ngpus,
           needed.lines     ? "lines"
           : all->registers ? "in place"
                            : "slots",
           loaded(&worst) / DATA, needed.loaded / DATA, stored(&worst) / DATA, needed.stored / DATA,
           ratio, (double)worst.instructions * 16 / (loaded(&worst) + stored(&worst)),
           (double)worst.barriers / calls, (double)worst.fences / calls, needed.fences / calls);
}

static void snapshot(struct shared *all, const struct gpu_rank *rank, struct vgpu_traffic *to)
{
    pthread_barrier_wait(&all->barrier);
    for (int gpu = 0; gpu < all->ngpus && rank->rank == 0; gpu++)
        CHECK_EQ(traffic_of(gpu, &to[gpu]), 0);
    pthread_barrier_wait(&all->barrier);
}

/* Peers open the memory when they issue a call; the next call finds it open. */
static void open_memory(const struct gpu_rank *rank, const struct placed *placed, void *handles[2])
{
    struct shared *all = rank->arg;
    if (!all->registers) return;
    const size_t nbytes[2] = {placed->input_bytes, placed->output_bytes};
    for (int i = 0; i < 2; i++)
        if (placed->memory[i] && nbytes[i])
            CHECK_EQ(tuttiCommRegister(rank->comm, placed->memory[i], nbytes[i], &handles[i]),
                     tuttiSuccess);
    pthread_barrier_wait(&all->barrier);
    CHECK_EQ(issue_call(placed, NULL), tuttiSuccess);
}

static void measure(struct gpu_rank *rank)
{
    struct shared *all = rank->arg;
    const int n = rank->nranks;
    for (int i = 0; i < NROWS; i++) {
        const struct row *row = &rows[i];
        const bool blocks = row->kind == tuttiCollAllGather || row->kind == tuttiCollReduceScatter;
        const struct call call = {.kind = row->kind,
                                  .count = DATA / sizeof(float) / (blocks ? (size_t)n : 1),
                                  .type = tuttiFloat32,
                                  .op = tuttiSum,
                                  .root = ROOT,
                                  .nranks = n};
        struct placed placed;
        CHECK_EQ(tuttiCommSetAlgorithm(rank->comm, (tuttiCollective_t)row->kind,
                                       n == 2 ? row->of_two : row->of_more),
                 tuttiSuccess);
        place_call(&placed, rank, &call, 0);
        void *handles[2] = {NULL, NULL};
        open_memory(rank, &placed, handles);
        snapshot(all, rank, all->before);
        const tuttiResult_t result = issue_call(&placed, NULL);
        CHECK_MESSAGE(result == tuttiSuccess, "%s", tuttiGetLastError(rank->comm));
        snapshot(all, rank, all->after);
        for (int k = 0; k < 2; k++)
            if (handles[k]) CHECK_EQ(tuttiCommDeregister(rank->comm, handles[k]), tuttiSuccess);
        CHECK(check_call(&placed));
        if (rank->rank == 0) compare(all, row);
    }
}

/* registers: messages go as lines only where they are short, so that these are in place. */
static void measure_on(int nranks, int ngpus, bool registers)
{
    if (registers) setenv("TUTTI_DEVICE_LINE_BYTES", "4K", 1);
    struct shared all = {.nranks = nranks, .ngpus = ngpus, .registers = registers};
    pthread_barrier_init(&all.barrier, NULL, (unsigned)nranks);
    on_gpus(nranks, ngpus, NULL, measure, &all);
    pthread_barrier_destroy(&all.barrier);
    unsetenv("TUTTI_DEVICE_LINE_BYTES");
}

TEST(device_traffic, kernels_move_at_most_a_tenth_more_than_the_steps_need)
{
    void *library = dlopen("libcuda.so.1", RTLD_NOW);
    void *symbol = library ? dlsym(library, "vgpu_traffic") : NULL;
    REQUIRE(symbol);
    memcpy(&traffic_of, &symbol, sizeof symbol);
    printf(
        "MiB that the GPU with the largest ratio loads and stores; instructions of threads for "
        "each 16 bytes (one access moves as much); barriers and fences of a block of threads\n"
        "| collective | algorithm | ranks | GPUs | messages | loads | needed | stores | needed | "
        "ratio | instructions | barriers | fences | at most |\n"
        "|---|---|---|---|---|---|---|---|---|---|---|---|---|---|\n");
    const char *asked = getenv("TT_TRAFFIC_RANKS");
    const int most = asked ? atoi(asked) : 4;
    for (int nranks = 2; nranks <= most && nranks <= 8; nranks *= 2) {
        measure_on(nranks, nranks, false);
        measure_on(nranks, nranks, true);
    }
    measure_on(2, 1, false);
}
