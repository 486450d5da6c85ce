/* How long ranks take to find each other, and what it takes of messages.
 *
 * The processes of the launcher share the ranks of a row evenly, a thread each. For every sample
 * they meet, process 0 makes a unique id, all ranks start at once, and each makes a communicator,
 * meets the others in it and destroys it. Links are made small (unless the settings say otherwise),
 * so that it is not their memory that is measured. */
#include <errno.h>
#include <getopt.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "common/ranks.h"
#include "common/timing.h"
#include "programs/streams.h"
#include "tutti.h"

enum { EXIT_RIGHT = 0, EXIT_WRONG = 1, EXIT_USAGE = 2 };
enum { MAX_RANKS = 8192, MAX_SAMPLES = 1000, TREE_FANOUT = 8, STACK_BYTES = 512 * 1024 };

struct options {
    int min_ranks, max_ranks, factor, samples;
};

/* What is measured, in the columns' order: times in seconds first. */
enum figure { JOIN, INIT, FIRST, DESTROY, CONNECTIONS, MESSAGES, BYTES, NFIGURES };

/* This process's part of a run. */
struct run {
    struct options options;
    int process, nprocesses;
    tuttiComm_t control; /* of the processes; NULL: there is one */
    /* of the row; immutable while threads run */
    int nranks, first, here;
    tuttiUniqueId id;
    pthread_barrier_t gate;
};

struct rank {
    struct run *run;
    pthread_t thread;
    int rank;
    double began, figures[NFIGURES];
    tuttiResult_t result;
    char error[512];
};

/* ---- A rank ---------------------------------------------------------------------------------- */

static tuttiResult_t measure(struct rank *self)
{
    tuttiComm_t comm;
    tuttiCounters_t counters;
    tuttiResult_t result = tuttiCommInitRank(&comm, self->run->nranks, self->run->id, self->rank);
    if (result != tuttiSuccess) return result;
    const double made = perf_now();
    result = tuttiBarrier(comm, NULL);
    const double met = perf_now();
    if (result == tuttiSuccess) result = tuttiCommCounters(comm, &counters);
    if (result != tuttiSuccess) {
        snprintf(self->error, sizeof self->error, "%s", tuttiGetLastError(comm));
        tuttiCommAbort(comm);
        return result;
    }
    const double leaving = perf_now();
    result = tuttiCommDestroy(comm);
    self->figures[INIT] = made - self->began;
    self->figures[JOIN] =
        self->figures[INIT] - 1e-9 * (double)(counters.initNs - counters.initJoinNs);
    self->figures[FIRST] = met - made;
    self->figures[DESTROY] = perf_now() - leaving;
    self->figures[CONNECTIONS] = (double)counters.initConnections;
    self->figures[MESSAGES] = (double)counters.initMessages;
    self->figures[BYTES] = (double)counters.initBytes;
    return result;
}

static void *run_rank(void *argument)
{
    struct rank *self = argument;
    pthread_barrier_wait(&self->run->gate);
    self->began = perf_now();
    self->result = measure(self);
    if (self->result != tuttiSuccess && self->error[0] == '\0')
        snprintf(self->error, sizeof self->error, "%s", tuttiGetLastError(NULL));
    return NULL;
}

/* ---- The processes --------------------------------------------------------------------------- */

static tuttiResult_t meet(const struct run *run)
{
    return run->control == NULL ? tuttiSuccess : tuttiBarrier(run->control, NULL);
}

/* Over all processes, on all. */
static tuttiResult_t reduce(const struct run *run, double *values, size_t count, tuttiRedOp_t op)
{
    if (run->control == NULL) return tuttiSuccess;
    return tuttiAllReduce(values, values, count, tuttiDouble, op, run->control, NULL);
}

/* Process 0's unique id, on all. */
static tuttiResult_t share_id(struct run *run)
{
    tuttiResult_t result = tuttiSuccess;
    if (run->process == 0) result = tuttiGetUniqueId(&run->id);
    if (result != tuttiSuccess || run->control == NULL) return result;
    return tuttiBroadcast(&run->id, &run->id, sizeof run->id, tuttiUint8, 0, run->control, NULL);
}

/* Starts the ranks of this process, which go once all have been started, and waits for them. */
static void run_ranks(struct run *run, struct rank *ranks)
{
    pthread_attr_t attributes;
    if (run->here == 0) return;
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, STACK_BYTES);
    pthread_barrier_init(&run->gate, NULL, (unsigned)run->here);
    for (int i = 0; i < run->here; i++) {
        ranks[i] = (struct rank){.run = run, .rank = run->first + i};
        const int error = pthread_create(&ranks[i].thread, &attributes, run_rank, &ranks[i]);
        if (error == 0) continue;
        fprintf(stderr, "bootstrap_perf: cannot start thread %d of %d: %s\n", i + 1, run->here,
                strerror(error));
        exit(EXIT_WRONG); /* without all its ranks a run would only wait for a deadline */
    }
    for (int i = 0; i < run->here; i++) pthread_join(ranks[i].thread, NULL);
    pthread_barrier_destroy(&run->gate);
    pthread_attr_destroy(&attributes);
}

/* Everything once. figures: the most of any rank. */
static tuttiResult_t sample(struct run *run, struct rank *ranks, double figures[NFIGURES])
{
    tuttiResult_t result = share_id(run);
    if (result == tuttiSuccess) result = meet(run);
    if (result != tuttiSuccess) {
        fprintf(stderr, "bootstrap_perf: %s\n", tuttiGetLastError(NULL));
        return result;
    }
    memset(figures, 0, NFIGURES * sizeof *figures);
    run_ranks(run, ranks);
    for (int i = 0; i < run->here; i++) {
        for (int f = 0; f < NFIGURES; f++)
            if (ranks[i].figures[f] > figures[f]) figures[f] = ranks[i].figures[f];
        if (ranks[i].result == tuttiSuccess || result != tuttiSuccess) continue;
        result = ranks[i].result;
        fprintf(stderr, "bootstrap_perf: rank %d: %s\n", ranks[i].rank, ranks[i].error);
    }
    return result == tuttiSuccess ? reduce(run, figures, NFIGURES, tuttiMax) : result;
}

/* ---- The table ------------------------------------------------------------------------------- */

static int tree_depth(int nranks)
{
    int depth = 0;
    for (long long reached = 1, level = 1; reached < nranks; depth++) {
        level *= TREE_FANOUT;
        reached += level;
    }
    return depth;
}

static void print_head(const struct run *run)
{
    const struct options *options = &run->options;
    printf("# bootstrap_perf: tutti %d.%d.%d, %d process%s, %d to %d ranks, %d samples\n",
           TUTTI_MAJOR, TUTTI_MINOR, TUTTI_PATCH, run->nprocesses, run->nprocesses > 1 ? "es" : "",
           options->min_ranks, options->max_ranks, options->samples);
    printf(
        "# depth: of the tree of fan-out %d. connections, messages, bytes: of the rank that has "
        "most.\n# Times: of the slowest rank; init, barrier, destroy: the median of the samples, "
        "min: the least.\n# cpu: processor time of all ranks and the root for all of it, a "
        "rank.\n#\n",
        TREE_FANOUT);
    printf("# %6s  %5s  %11s  %8s  %10s  %9s  %10s  %10s  %10s  %10s  %9s  %9s\n", "ranks", "depth",
           "connections", "messages", "bytes", "join(min)", "init(min)", "init", "init/rank",
           "barrier", "destroy", "cpu/rank");
    printf("# %6s  %5s  %11s  %8s  %10s  %9s  %10s  %10s  %10s  %10s  %9s  %9s\n", "", "", "", "",
           "(B)", "(us)", "(us)", "(us)", "(us)", "(us)", "(us)", "(us)");
    fflush(stdout);
}

/* A row's samples of each time. */
struct series {
    double seconds[DESTROY + 1][MAX_SAMPLES];
    double last[NFIGURES];
};

static void print_row(int nranks, struct series *series, int samples, double cpu_seconds)
{
    struct perf_statistics times[DESTROY + 1];
    for (int f = 0; f <= DESTROY; f++) times[f] = perf_statistics_of(series->seconds[f], samples);
    printf(
        "  %6d  %5d  %11.0f  %8.0f  %10.0f  %9.1f  %10.1f  %10.1f  %10.2f  %10.1f  %9.1f  %9.1f\n",
        nranks, tree_depth(nranks), series->last[CONNECTIONS], series->last[MESSAGES],
        series->last[BYTES], 1e6 * times[JOIN].min, 1e6 * times[INIT].min, 1e6 * times[INIT].p50,
        1e6 * times[INIT].p50 / nranks, 1e6 * times[FIRST].p50, 1e6 * times[DESTROY].p50,
        1e6 * cpu_seconds / samples / nranks);
    fflush(stdout);
}

static double cpu_seconds(void)
{
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return (double)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
           1e-6 * (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec);
}

/* All samples for run->nranks. */
static tuttiResult_t run_samples(struct run *run, struct rank *ranks, struct series *series)
{
    double cpu = -cpu_seconds();
    for (int i = 0; i < run->options.samples; i++) {
        const tuttiResult_t result = sample(run, ranks, series->last);
        if (result != tuttiSuccess) return result;
        for (int f = 0; f <= DESTROY; f++) series->seconds[f][i] = series->last[f];
    }
    cpu += cpu_seconds();
    const tuttiResult_t result = reduce(run, &cpu, 1, tuttiSum);
    if (result == tuttiSuccess && run->process == 0)
        print_row(run->nranks, series, run->options.samples, cpu);
    return result;
}

static tuttiResult_t run_row(struct run *run, int nranks)
{
    const int least = nranks / run->nprocesses, more = nranks % run->nprocesses;
    run->nranks = nranks;
    run->here = least + (run->process < more);
    run->first = least * run->process + (run->process < more ? run->process : more);
    struct series *series = calloc(1, sizeof *series);
    struct rank *ranks = calloc((size_t)run->here + 1, sizeof *ranks);
    tuttiResult_t result = tuttiSystemError;
    if (series != NULL && ranks != NULL)
        result = run_samples(run, ranks, series);
    else
        fprintf(stderr, "bootstrap_perf: out of memory\n");
    free(ranks);
    free(series);
    return result;
}

/* ---- The program ----------------------------------------------------------------------------- */

static const char usage[] =
    "usage: bootstrap_perf [OPTION]...\n"
    "Times how ranks find each other. Ranks are threads, of all processes of the launcher.\n\n"
    "  -b, --minranks N    ranks of the first row (8)\n"
    "  -e, --maxranks N    ranks of the last row (512)\n"
    "  -f, --stepfactor N  from one row to the next (2)\n"
    "  -n, --iters N       samples a row (5)\n"
    "  -h, --help\n";

static int parse_number(int *number, const char *text, int least, int greatest)
{
    char *end;
    errno = 0;
    const long value = strtol(text, &end, 10);
    if (errno || end == text || *end || value < least || value > greatest) return -1;
    *number = (int)value;
    return 0;
}

/* EXIT_RIGHT: run; else print what to exit with. */
static int parse(struct options *options, int argc, char **argv)
{
    static const struct option longs[] = {{"minranks", required_argument, NULL, 'b'},
                                          {"maxranks", required_argument, NULL, 'e'},
                                          {"stepfactor", required_argument, NULL, 'f'},
                                          {"iters", required_argument, NULL, 'n'},
                                          {"help", no_argument, NULL, 'h'},
                                          {NULL, 0, NULL, 0}};
    *options = (struct options){.min_ranks = 8, .max_ranks = 512, .factor = 2, .samples = 5};
    for (int letter; (letter = getopt_long(argc, argv, "b:e:f:n:h", longs, NULL)) != -1;) {
        int *number = letter == 'b'   ? &options->min_ranks
                      : letter == 'e' ? &options->max_ranks
                      : letter == 'f' ? &options->factor
                                      : &options->samples;
        const int least = letter == 'f' ? 2 : 1;
        const int greatest = letter == 'n' ? MAX_SAMPLES : MAX_RANKS;
        if (letter == 'h') {
            fputs(usage, stdout);
            exit(EXIT_RIGHT);
        }
        if (letter == '?') return EXIT_USAGE;
        if (parse_number(number, optarg, least, greatest) != 0) {
            fprintf(stderr, "bootstrap_perf: -%c: '%s' is not a whole number from %d to %d\n",
                    letter, optarg, least, greatest);
            return EXIT_USAGE;
        }
    }
    if (optind == argc) return EXIT_RIGHT;
    fprintf(stderr, "bootstrap_perf: '%s' is no option; see --help\n", argv[optind]);
    return EXIT_USAGE;
}

static tuttiResult_t open_run(struct run *run)
{
    int local;
    setenv("TUTTI_SLOT_BYTES", "1K", 0);
    setenv("TUTTI_SLOTS", "2", 0);
    setenv("TUTTI_MEET_BYTES", "1K", 0);
    tuttiResult_t result = tuttiGetLauncher(&run->process, &run->nprocesses, &local);
    if (result != tuttiSuccess || run->nprocesses == 1) return result;
    return tuttiCommInitEnv(&run->control, NULL, NULL);
}

int main(int argc, char **argv)
{
    struct run run = {0};
    streams_begin("bootstrap_perf");
    const int code = parse(&run.options, argc, argv);
    if (code != EXIT_RIGHT) return code;
    tuttiResult_t result = open_run(&run);
    if (result != tuttiSuccess) {
        fprintf(stderr, "bootstrap_perf: %s\n", tuttiGetLastError(NULL));
        return EXIT_WRONG;
    }
    perf_make_room(run.options.max_ranks / run.nprocesses + 1);
    if (run.process == 0) print_head(&run);
    for (int nranks = run.options.min_ranks;
         nranks <= run.options.max_ranks && result == tuttiSuccess; nranks *= run.options.factor)
        result = run_row(&run, nranks);
    if (run.control != NULL && result == tuttiSuccess) result = tuttiCommDestroy(run.control);
    if (run.process == 0 && result == tuttiSuccess) printf("#\n# bootstrap_perf concluded\n");
    return result == tuttiSuccess ? EXIT_RIGHT : EXIT_WRONG;
}
