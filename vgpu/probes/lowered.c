/* Runs lowered programs on the device: all ranks are blocks of one launch on one GPU. Compares with
 * the host's bits and measures every protocol. Each algorithm and number of ranks is a process, so
 * that a kernel that never ends loses no more than that. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "driver.h"
#include "lowered_host.h"

static const char *const protocol_names[NPROTOCOLS] = {
    "slots", "direct", "lines of 8 (4 + 4)", "lines of 16 (8 + 8)", "lines of 16 (12 + 4)"};
static const char *const kernel_names[NPROTOCOLS] = {"walk_slots", "walk_direct", "walk_lines8",
                                                     "walk_lines16", "walk_lines16d"};
static CUfunction kernels[2][NPROTOCOLS]; /* plain, fast */
static CUevent begin_event, end_event;

/* One allocation, given out from the beginning for each job. */
static struct {
    CUdeviceptr memory;
    size_t size, used;
} arena;

static CUdeviceptr take(size_t nbytes)
{
    const CUdeviceptr at = arena.memory + arena.used;
    arena.used += (nbytes + 511) / 512 * 512;
    if (arena.used > arena.size) die("the arena of %zu bytes is too small", arena.size);
    return at;
}

static CUdeviceptr upload(const void *data, size_t nbytes)
{
    const CUdeviceptr at = take(nbytes);
    CHECK(cu.MemcpyHtoD(at, data, nbytes));
    return at;
}

/* What a job has on the device. */
struct placed {
    CUdeviceptr views, inputs[MOST_PEERS], outputs[MOST_PEERS], links;
    unsigned nblocks, shared_bytes;
};

/* Slots, head, tail and references of the link from -> to of a part lie together. */
static size_t link_stride(const struct job *job)
{
    return (size_t)DEPTH * job->slot_bytes + 512;
}

static struct link_end end_for(const struct job *job, CUdeviceptr links, int part, int from, int to,
                               bool outgoing)
{
    const size_t index = (size_t)((part * job->nranks + from) * job->nranks + to);
    char *at = (char *)(uintptr_t)(links + index * link_stride(job));
    return (struct link_end){.slots = at + 512,
                             .references = (uint64_t *)(at + 256),
                             .head = (uint32_t *)at,
                             .tail = (uint32_t *)(at + 128),
                             .outgoing = outgoing};
}

/* The ends of one rank: the table of links has an entry for each use, an end for each peer. */
static CUdeviceptr place_ends(const struct job *job, int rank, CUdeviceptr links, uint16_t *end_of,
                              uint32_t *nends)
{
    const struct tt_program *program = job->programs[rank];
    const struct tt_program_link *table = tt_program_links(program);
    struct {
        int peer, channel;
        bool outgoing;
    } found[MOST_ENDS];
    uint32_t n = 0;
    for (uint32_t i = 0; i < program->nlinks; i++) {
        uint32_t e = 0;
        while (e < n && (found[e].peer != table[i].peer || found[e].channel != table[i].channel ||
                         found[e].outgoing != table[i].outgoing))
            e++;
        if (e == MOST_ENDS) die("rank %d has more than %d links", rank, MOST_ENDS);
        if (e == n) {
            found[n].peer = table[i].peer;
            found[n].channel = table[i].channel;
            found[n++].outgoing = table[i].outgoing;
        }
        end_of[i] = (uint16_t)e;
    }
    const int copies = job->bindings[rank].copies;
    struct link_end *ends = calloc((size_t)copies * n + 1, sizeof *ends);
    for (int copy = 0; copy < copies; copy++)
        for (uint32_t e = 0; e < n; e++) {
            const int part = copy * program->nchannels + found[e].channel;
            const int from = found[e].outgoing ? rank : found[e].peer,
                      to = found[e].outgoing ? found[e].peer : rank;
            ends[(uint32_t)copy * n + e] = end_for(job, links, part, from, to, found[e].outgoing);
        }
    const CUdeviceptr at = upload(ends, ((size_t)copies * n + 1) * sizeof *ends);
    free(ends);
    *nends = n;
    return at;
}

static void place(const struct job *job, struct placed *placed)
{
    struct rank_view views[MOST_PEERS] = {0};
    const int nparts = job->bindings[0].copies * job->programs[0]->nchannels;
    const size_t links_bytes = (size_t)(nparts * job->nranks * job->nranks) * link_stride(job);
    arena.used = 0;
    placed->links = take(links_bytes);
    CHECK(cu.MemsetD8(placed->links, 0, links_bytes));
    placed->shared_bytes = 0;
    for (int r = 0; r < job->nranks; r++) {
        const struct tt_program *program = job->programs[r];
        const struct tt_binding *binding = &job->bindings[r];
        uint16_t *end_of = calloc(program->nlinks + 1, sizeof *end_of);
        struct rank_view *view = &views[r];
        placed->inputs[r] = take(job->input_bytes[r]);
        placed->outputs[r] = take(job->output_bytes[r]);
        view->program = (void *)(uintptr_t)upload(program, program->nbytes);
        view->binding = (void *)(uintptr_t)upload(binding, sizeof *binding);
        view->input = (char *)(uintptr_t)placed->inputs[r] - binding->skipped[0];
        view->output = (char *)(uintptr_t)placed->outputs[r] - binding->skipped[1];
        view->scratch = (char *)(uintptr_t)take(job->scratch_bytes[r]);
        view->ends = (void *)(uintptr_t)place_ends(job, r, placed->links, end_of, &view->nends);
        view->end_of = (void *)(uintptr_t)upload(end_of, (program->nlinks + 1) * sizeof *end_of);
        view->slot_bytes = (uint32_t)job->slot_bytes;
        const unsigned bytes =
            program->nbytes + 16 + (unsigned)sizeof *binding + 16 + program->nlinks * 2 + 16;
        if (bytes > placed->shared_bytes) placed->shared_bytes = bytes;
        free(end_of);
    }
    placed->nblocks = (unsigned)(nparts * job->nranks);
    placed->views = upload(views, sizeof views);
}

/* Launches the kernel; returns the us between two events around it. */
static double launch(const struct job *job, const struct placed *placed, unsigned ntimes)
{
    float ms;
    unsigned nranks = (unsigned)job->nranks;
    CUdeviceptr views = placed->views, ticks = 0;
    CHECK(cu.EventRecord(begin_event, NULL));
    CHECK(cu.LaunchCooperativeKernel(kernels[job->fast][job->protocol], placed->nblocks, 1, 1,
                                     THREADS, 1, 1, placed->shared_bytes, NULL,
                                     (void *[]){&views, &nranks, &ntimes, &ticks}));
    CHECK(cu.EventRecord(end_event, NULL));
    CHECK(cu.EventSynchronize(end_event));
    CHECK(cu.EventElapsedTime(&ms, begin_event, end_event));
    return (double)ms * 1000;
}

/* A row for each step of rank 0: ticks until everything was there, computed, published. */
static void print_ticks(const struct job *job, const struct placed *placed, CUmodule module)
{
    enum { TIMES = 200, MOST = 64 };
    unsigned long long sums[MOST][4];
    char name[64];
    unsigned nranks = (unsigned)job->nranks, ntimes = TIMES;
    CUdeviceptr views = placed->views, ticks = take(sizeof sums);
    CHECK(cu.MemsetD8(ticks, 0, sizeof sums));
    snprintf(name, sizeof name, "%s%s_timed", kernel_names[job->protocol],
             job->fast ? "_fast" : "");
    CHECK(cu.LaunchCooperativeKernel(get_function(module, name), placed->nblocks, 1, 1, THREADS, 1,
                                     1, placed->shared_bytes, NULL,
                                     (void *[]){&views, &nranks, &ntimes, &ticks}));
    CHECK(cu.MemcpyDtoH(sums, ticks, sizeof sums));
    for (uint32_t s = 0; s < tt_program_channel(job->programs[0], 0)->nsteps && s < MOST; s++) {
        const double n = (double)sums[s][3];
        row_begin("lowered, ticks", tt_collective_name(job->collective));
        row_text("algorithm", job->algorithm);
        row_number("ranks", job->nranks);
        row_text("protocol", protocol_names[job->protocol]);
        row_text("mode", job->fast ? "fast" : "plain");
        row_number("count", (double)job->count);
        row_number("step", s);
        row_number("until_prepared", (double)sums[s][0] / n);
        row_number("until_computed", (double)sums[s][1] / n);
        row_number("until_published", (double)sums[s][2] / n);
        row_end();
    }
}

/* Whether all ranks' outputs have the host's bits after a few runs. */
static bool verify(const struct job *job, const struct placed *placed)
{
    float *inputs[MOST_PEERS], *wanted[MOST_PEERS];
    bool right = true;
    for (int r = 0; r < job->nranks; r++) {
        inputs[r] = malloc(job->input_bytes[r] + 4);
        wanted[r] = malloc(job->output_bytes[r] + 4);
        for (size_t i = 0; i < job->input_bytes[r] / sizeof(float); i++)
            inputs[r][i] =
                (float)((double)(int64_t)mix64((uint64_t)r << 40 | i) / 9.2233720368547758e18);
        CHECK(cu.MemsetD8(placed->outputs[r], 0xff, job->output_bytes[r] + !job->output_bytes[r]));
        if (job->input_bytes[r])
            CHECK(cu.MemcpyHtoD(placed->inputs[r], inputs[r], job->input_bytes[r]));
    }
    launch(job, placed, 3);
    job_simulate(job, inputs, wanted);
    for (int r = 0; r < job->nranks; r++) {
        float *got = malloc(job->output_bytes[r] + 4);
        if (job->output_bytes[r]) {
            CHECK(cu.MemcpyDtoH(got, placed->outputs[r], job->output_bytes[r]));
            right = right && !memcmp(got, wanted[r], job->output_bytes[r]);
        }
        free(got);
        free(inputs[r]);
        free(wanted[r]);
    }
    return right;
}

/* What element i of rank r's output must be, for inputs of small integers. */
static float exact(const struct job *job, int r, size_t i)
{
#define VALUE(rank, at) (float)(mix64((uint64_t)(rank) << 40 | (at)) % 16)
    const size_t count = job->count;
    float sum = 0;
    switch (job->collective) {
    case TT_ALL_REDUCE:
        for (int k = 0; k < job->nranks; k++) sum += VALUE(k, i);
        return sum;
    case TT_REDUCE_SCATTER:
        for (int k = 0; k < job->nranks; k++) sum += VALUE(k, (size_t)r * count + i);
        return sum;
    case TT_ALL_GATHER:
        return VALUE(i / count, i % count);
    case TT_BROADCAST:
        return VALUE(0, i);
    default:
        return VALUE(i / count, (size_t)r * count + i % count);
    }
}

/* Checks the simulation itself, without a GPU. */
static void check_simulation(enum tt_collective collective, const char *algorithm, int nranks)
{
    for (size_t nbytes = 4; nbytes < 1 << 20; nbytes = nbytes * 5 + 4) {
        struct job job = {.collective = collective,
                          .algorithm = algorithm,
                          .nranks = nranks,
                          .copies = nbytes > 4096 ? 4 : 1,
                          .count = nbytes / 4,
                          .slot_bytes = 32768};
        float *inputs[MOST_PEERS], *outputs[MOST_PEERS];
        job_make(&job);
        for (int r = 0; r < nranks; r++) {
            inputs[r] = malloc(job.input_bytes[r] + 4);
            outputs[r] = malloc(job.output_bytes[r] + 4);
            for (size_t i = 0; i < job.input_bytes[r] / 4; i++) inputs[r][i] = VALUE(r, i);
        }
        job_simulate(&job, inputs, outputs);
        for (int r = 0; r < nranks; r++) {
            for (size_t i = 0; i < job.output_bytes[r] / 4; i++)
                if (outputs[r][i] != exact(&job, r, i))
                    die("%s over %d ranks: element %zu of rank %d is wrong", algorithm, nranks, i,
                        r);
            free(inputs[r]);
            free(outputs[r]);
        }
        job_clear(&job);
    }
}

static bool small; /* for tools that make kernels slow */
static bool once;  /* results only, with small slots: for a virtual GPU */
static const size_t verified_most = 1 << 20;

static void begin_row(const struct job *job, size_t nbytes, const struct placed *placed)
{
    row_begin("lowered", tt_collective_name(job->collective));
    row_text("algorithm", job->algorithm);
    row_number("ranks", job->nranks);
    row_text("protocol", protocol_names[job->protocol]);
    row_text("mode", job->fast ? "fast" : "plain");
    row_number("bytes", (double)nbytes);
    row_number("copies", job->bindings[0].copies);
    row_number("blocks", placed->nblocks);
    row_number("slot_bytes", (double)job->slot_bytes);
    row_number("rounds", (double)job->bindings[0].nrounds);
}

/* Runs one job and prints its row. */
static void run(struct job *job, size_t nbytes, CUmodule module)
{
    struct placed placed;
    const char *verdict = "not compared";
    double single[5], many[3];
    const bool splits = tt_collective_row(job->collective)->splits;
    job->count = splits ? nbytes / sizeof(float) : nbytes / sizeof(float) / (size_t)job->nranks;
    if (!job->count) return;
    job_make(job);
    place(job, &placed);
    int per_multiprocessor;
    CHECK(cu.OccupancyMaxActiveBlocksPerMultiprocessor(
        &per_multiprocessor, kernels[job->fast][job->protocol], THREADS, placed.shared_bytes));
    if (placed.nblocks <= (unsigned)(per_multiprocessor * nprocessors())) {
        alarm(small ? 200 : 20);
        if (nbytes <= verified_most) verdict = verify(job, &placed) ? "the host's bits" : "WRONG";
        if (once) {
            begin_row(job, nbytes, &placed);
            row_text("result", verdict);
            row_end();
            job_clear(job);
            return;
        }
        const unsigned ntimes = nbytes <= 65536 ? 100 : nbytes <= 4 << 20 ? 30 : 4;
        for (int i = 0; i < 5; i++) single[i] = launch(job, &placed, 1);
        for (int i = 0; i < 3; i++) many[i] = launch(job, &placed, ntimes) / ntimes;
        alarm(0);
        const double us = median(many, 3);
        begin_row(job, nbytes, &placed);
        row_text("result", verdict);
        row_number("us_of_a_launch", median(single, 5));
        row_number("us", us);
        row_number("gb_per_s", (double)nbytes / us / 1000);
        row_end();
        if (nbytes == 256 && job->copies == 1) print_ticks(job, &placed, module);
    }
    job_clear(job);
}

/* All protocols, sizes and numbers of copies of one algorithm and number of ranks. */
static void run_all(enum tt_collective collective, const char *algorithm, int nranks)
{
    static const size_t sizes[] = {8,       256,     4096,     65536,    262144,
                                   1 << 20, 4 << 20, 16 << 20, 64 << 20, 256 << 20};
    static const int copies[] = {1, 4, 16, 64};
    driver_open(true);
    CUmodule module = load_module("lowered.fatbin");
    for (int p = 0; p < NPROTOCOLS; p++) {
        char name[64];
        snprintf(name, sizeof name, "%s_fast", kernel_names[p]);
        kernels[0][p] = get_function(module, kernel_names[p]);
        kernels[1][p] = get_function(module, name);
    }
    CHECK(cu.EventCreate(&begin_event, 0));
    CHECK(cu.EventCreate(&end_event, 0));
    arena.size = (size_t)(once ? 1 : small ? 8 : 48) << 30;
    CHECK(cu.MemAlloc(&arena.memory, arena.size));
    for (int p = 0; p < NPROTOCOLS; p++)
        for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
            if ((p > DIRECT && sizes[s] > 4 << 20) || (small && sizes[s] > 256) ||
                (once && sizes[s] != 4096))
                continue;
            for (size_t c = 0; c < sizeof copies / sizeof *copies; c++) {
                struct job job = {.collective = collective,
                                  .algorithm = algorithm,
                                  .nranks = nranks,
                                  .protocol = p,
                                  .copies = copies[c],
                                  .slot_bytes = once         ? 1024
                                                : p > DIRECT ? 65536
                                                             : 131072};
                if (once && copies[c] > 4) continue;
                if (copies[c] > 1 && sizes[s] / (size_t)(copies[c] * nranks) < 64) continue;
                if (copies[c] < 16 && sizes[s] > 16 << 20) continue;
                run(&job, sizes[s], module);
                job.fast = true;
                run(&job, sizes[s], module);
                if (p != SLOTS || sizes[s] < 64 << 20) continue;
                job.slot_bytes = 32768;
                run(&job, sizes[s], module);
                job.slot_bytes = 524288;
                run(&job, sizes[s], module);
            }
        }
}

int main(int argc, char **argv)
{
    static const struct {
        enum tt_collective collective;
        const char *algorithm;
    } cases[] = {
        {TT_ALL_REDUCE, "ring"},     {TT_ALL_REDUCE, "parallel"}, {TT_ALL_REDUCE, "two_shot"},
        {TT_REDUCE_SCATTER, "ring"}, {TT_ALL_GATHER, "ring"},     {TT_BROADCAST, "chain"},
        {TT_BROADCAST, "direct"},    {TT_ALL_TO_ALL, "pairwise"}, {TT_REDUCE_SCATTER, "parallel"},
        {TT_ALL_GATHER, "parallel"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (int nranks = 2; nranks <= 8; nranks *= 2) {
            if (argc > 1 && !strcmp(argv[1], "host")) {
                check_simulation(cases[i].collective, cases[i].algorithm, nranks);
                continue;
            }
            if (argc > 1 && strcmp(argv[1], cases[i].algorithm) && strcmp(argv[1], "small") &&
                strcmp(argv[1], "once"))
                continue;
            small = argc > 1 && !strcmp(argv[1], "small");
            once = argc > 1 && !strcmp(argv[1], "once");
            fflush(stdout);
            const pid_t child = fork();
            if (!child) {
                run_all(cases[i].collective, cases[i].algorithm, nranks);
                fflush(stdout);
                _exit(0);
            }
            int status;
            waitpid(child, &status, 0);
            if (!status) continue;
            row_begin("lowered", tt_collective_name(cases[i].collective));
            row_text("algorithm", cases[i].algorithm);
            row_number("ranks", nranks);
            row_text("result", WIFSIGNALED(status) ? strsignal(WTERMSIG(status)) : "ended early");
            row_end();
        }
    return 0;
}
