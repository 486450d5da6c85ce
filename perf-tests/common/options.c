#include "common/options.h"

#include <ctype.h>
#include <errno.h>
#include <getopt.h>
#include <limits.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#define MAX_RANKS 4096

const struct perf_ignored perf_ignored_options[PERF_NIGNORED] = {
    {'G', "-G ignored: there are no CUDA graphs on host memory"},
    {'x', "-x ignored: there are no thread blocks on host memory"},
    {'D', "-D ignored: there are no device kernels on host memory"},
    {'V', "-V ignored: there are no device kernels on host memory"},
};

enum long_option {
    ALGORITHM = 256,
    TRANSPORT,
    MEMORY,
    STREAM,
    ROTATE,
    ALIGN,
    SEED,
    MIN_BW,
    VERSION
};

static const struct option long_options[] = {
    {"nthreads", required_argument, NULL, 't'},
    {"ngpus", required_argument, NULL, 'g'},
    {"ranks", required_argument, NULL, 'g'},
    {"minbytes", required_argument, NULL, 'b'},
    {"maxbytes", required_argument, NULL, 'e'},
    {"stepbytes", required_argument, NULL, 'i'},
    {"stepfactor", required_argument, NULL, 'f'},
    {"iters", required_argument, NULL, 'n'},
    {"agg_iters", required_argument, NULL, 'm'},
    {"warmup_iters", required_argument, NULL, 'w'},
    {"run_cycles", required_argument, NULL, 'N'},
    {"parallel_init", required_argument, NULL, 'p'},
    {"check", required_argument, NULL, 'c'},
    {"op", required_argument, NULL, 'o'},
    {"datatype", required_argument, NULL, 'd'},
    {"root", required_argument, NULL, 'r'},
    {"blocking", required_argument, NULL, 'z'},
    {"stream_null", required_argument, NULL, 'y'},
    {"timeout", required_argument, NULL, 'T'},
    {"cudagraph", required_argument, NULL, 'G'},
    {"report_cputime", required_argument, NULL, 'C'},
    {"report_timestamps", required_argument, NULL, 'S'},
    {"output_file", required_argument, NULL, 'J'},
    {"average", required_argument, NULL, 'a'},
    {"local_register", required_argument, NULL, 'R'},
    {"cta_policy", required_argument, NULL, 'x'},
    {"device_implementation", required_argument, NULL, 'D'},
    {"device_cta_count", required_argument, NULL, 'V'},
    {"memory_report", required_argument, NULL, 'M'},
    {"unalign", required_argument, NULL, 'u'},
    {"per_iter_timing", required_argument, NULL, 'I'},
    {"per_iter_skip", required_argument, NULL, 'K'},
    {"algorithm", required_argument, NULL, ALGORITHM},
    {"transport", required_argument, NULL, TRANSPORT},
    {"memory", required_argument, NULL, MEMORY},
    {"stream", required_argument, NULL, STREAM},
    {"rotate", required_argument, NULL, ROTATE},
    {"align", required_argument, NULL, ALIGN},
    {"seed", required_argument, NULL, SEED},
    {"min-bw", required_argument, NULL, MIN_BW},
    {"help", no_argument, NULL, 'h'},
    {"version", no_argument, NULL, VERSION},
    {NULL, 0, NULL, 0},
};

static const char short_options[] =
    ":t:g:b:e:i:f:n:m:w:N:p:c:o:d:r:z:y:T:G:C:S:J:a:R:x:D:V:M:u:I:K:h";

static const char help_text[] =
    "  -t, --nthreads N           threads a process (1)\n"
    "  -g, --ngpus, --ranks N     ranks a thread (1)\n"
    "  -b, --minbytes SIZE        smallest size; K, M, G are binary (32M)\n"
    "  -e, --maxbytes SIZE        largest size (32M)\n"
    "  -i, --stepbytes SIZE       from size to size by addition (1M)\n"
    "  -f, --stepfactor N         from size to size by multiplication (off)\n"
    "  -n, --iters N              timed iterations (20)\n"
    "  -m, --agg_iters N          calls in one group an iteration (1)\n"
    "  -w, --warmup_iters N       warm-up iterations a size (1)\n"
    "  -N, --run_cycles N         times all sizes are run; 0: for ever (1)\n"
    "  -p, --parallel_init 0|1    threads join one by one, at the same time (0)\n"
    "  -c, --check N              checks of the results a row; 0: none (1)\n"
    "  -o, --op NAME              sum prod max min avg mulsum band bor bxor land lor lxor all "
    "(sum)\n"
    "  -d, --datatype NAME        int8 uint8 int16 uint16 int32 uint32 int64 uint64 half float "
    "double\n"
    "                             bfloat16 f8e4m3 f8e5m2 all (float)\n"
    "  -r, --root N               root; -1: every rank in turn (0)\n"
    "  -z, --blocking 0..3        1: wait and barrier after each call, 2: wait after each call,\n"
    "                             3: wait and barrier after each iteration (0)\n"
    "  -y, --stream_null 0|1      0: --stream own, 1: --stream null (1)\n"
    "  -T, --timeout SECONDS      deadline of each call (the library's)\n"
    "  -C, --report_cputime 0|1   report the time of the calls without the wait (0)\n"
    "  -S, --report_timestamps 0|1  print when each row ended (0)\n"
    "  -J, --output_file FILE     also write JSON\n"
    "  -a, --average 0..3         time of rank 0, mean, least, most over the ranks (1)\n"
    "  -R, --local_register 0..2  1: register the buffers, 2: and take them from tuttiMemAlloc "
    "(0)\n"
    "  -M, --memory_report 0|1    report memory use (0)\n"
    "  -u, --unalign N            put the buffers N elements off their alignment (0)\n"
    "  -I, --per_iter_timing 0|1  columns over single iterations (0)\n"
    "  -K, --per_iter_skip N      iterations left out of them (0)\n"
    "  -G, -x, -D, -V N           accepted and ignored: they concern GPUs\n"
    "      --algorithm NAME       force an algorithm\n"
    "      --transport NAME       shm, window or cma between local ranks\n"
    "      --memory malloc|tutti  where the buffers come from (malloc)\n"
    "      --stream null|own      calls run in the thread, or on a stream for each rank (null)\n"
    "      --rotate SIZE          memory through which small messages move on (64M)\n"
    "      --align BYTES          blocks are multiples of this (16)\n"
    "      --seed N               of the data that is checked (1)\n"
    "      --min-bw GBPS          fail when the average bus bandwidth is below 0.9 of this\n"
    "  -h, --help\n"
    "      --version\n"
    "Exit status: 0 all right, 1 wrong results or an error, 2 a bad command line.\n";

/* ---- Values ---------------------------------------------------------------------------------- */

/* Where a parser writes its complaint. */
struct complaint {
    char *text;
    size_t nbytes;
};

static bool complain(struct complaint *complaint, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

static bool complain(struct complaint *complaint, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(complaint->text, complaint->nbytes, format, arguments);
    va_end(arguments);
    return false;
}

bool perf_parse_size(const char *text, size_t *nbytes)
{
    if (!isdigit((unsigned char)text[0])) return false;
    char *end;
    double value = strtod(text, &end);
    double unit = 1;
    if (*end != '\0') {
        switch (toupper((unsigned char)*end)) {
        case 'K':
            unit = 1024.0;
            break;
        case 'M':
            unit = 1024.0 * 1024;
            break;
        case 'G':
            unit = 1024.0 * 1024 * 1024;
            break;
        default:
            return false;
        }
        if (end[1] != '\0') return false;
    }
    value *= unit;
    if (!(value < 9.0e18)) return false;
    *nbytes = (size_t)value;
    return true;
}

static bool take_size(struct complaint *complaint, const char *name, const char *text, size_t *size)
{
    if (perf_parse_size(text, size)) return true;
    return complain(complaint, "%s: '%s' is no size: give bytes, or a number with K, M or G", name,
                    text);
}

static bool take_int(struct complaint *complaint, const char *name, int low, int high, int *value)
{
    char *end;
    errno = 0;
    long parsed = strtol(optarg, &end, 10);
    if (errno != 0 || end == optarg || *end != '\0' || parsed < low || parsed > high) {
        if (high == INT_MAX) {
            return complain(complaint, "%s: '%s' is not a whole number from %d up", name, optarg,
                            low);
        }
        return complain(complaint, "%s: '%s' is not a whole number from %d to %d", name, optarg,
                        low, high);
    }
    *value = (int)parsed;
    return true;
}

static bool take_bool(struct complaint *complaint, const char *name, bool *value)
{
    int number;
    if (!take_int(complaint, name, 0, 1, &number)) return false;
    *value = number != 0;
    return true;
}

/* One of two words: *second tells which. */
static bool take_word(struct complaint *complaint, const char *name, const char *word0,
                      const char *word1, bool *second)
{
    if (strcmp(optarg, word0) != 0 && strcmp(optarg, word1) != 0) {
        return complain(complaint, "%s: '%s' is unknown; use %s or %s", name, optarg, word0, word1);
    }
    *second = strcmp(optarg, word1) == 0;
    return true;
}

static bool take_type(struct complaint *complaint, int *type)
{
    *type = perf_type_find(optarg);
    if (*type >= PERF_ALL) return true;
    return complain(complaint,
                    "-d: '%s' is no type; use int8 uint8 int16 uint16 int32 uint32 int64 uint64 "
                    "half float double bfloat16 f8e4m3 f8e5m2 or all",
                    optarg);
}

static bool take_op(struct complaint *complaint, int *op)
{
    *op = perf_op_find(optarg);
    if (*op >= PERF_ALL) return true;
    return complain(complaint,
                    "-o: '%s' is no operation; use sum prod max min avg mulsum band bor bxor land "
                    "lor lxor or all",
                    optarg);
}

static bool take_transport(struct complaint *complaint, const char **transport)
{
    static const char *const names[] = {"shm", "window", "cma"};
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        if (strcmp(optarg, names[i]) == 0) {
            *transport = names[i];
            return true;
        }
    }
    return complain(complaint, "--transport: '%s' is unknown; use shm, window or cma", optarg);
}

static bool take_bandwidth(struct complaint *complaint, double *bandwidth)
{
    char *end;
    *bandwidth = strtod(optarg, &end);
    if (end != optarg && *end == '\0' && *bandwidth >= 0 && isfinite(*bandwidth)) return true;
    return complain(complaint, "--min-bw: '%s' is no bandwidth in GB/s", optarg);
}

static bool take_seed(struct complaint *complaint, uint64_t *seed)
{
    char *end;
    errno = 0;
    *seed = strtoull(optarg, &end, 0);
    if (errno == 0 && end != optarg && *end == '\0' && optarg[0] != '-') return true;
    return complain(complaint, "--seed: '%s' is not a whole number from 0 up", optarg);
}

static bool take_algorithm(struct complaint *complaint, const struct perf_collective *collective,
                           const char **algorithm)
{
    if (collective->collective == PERF_NO_COLLECTIVE) {
        return complain(complaint, "--algorithm: %s is made of sends and receives and has none",
                        collective->name);
    }
    tuttiCollective_t number = (tuttiCollective_t)collective->collective;
    char names[512] = "";
    for (int i = 0; tuttiAlgorithmName(number, i) != NULL; i++) {
        const char *name = tuttiAlgorithmName(number, i);
        if (strcmp(name, optarg) == 0) {
            *algorithm = optarg;
            return true;
        }
        size_t used = strlen(names);
        snprintf(names + used, sizeof(names) - used, " %s", name);
    }
    return complain(complaint, "--algorithm: %s has no '%s'; use one of%s", collective->name,
                    optarg, names);
}

/* ---- Options --------------------------------------------------------------------------------- */

static void set_defaults(struct perf_options *options)
{
    *options = (struct perf_options){
        .threads = 1,
        .ranks_per_thread = 1,
        .min_bytes = 32u << 20,
        .max_bytes = 32u << 20,
        .step_bytes = 1u << 20,
        .step_factor = 1,
        .iterations = 20,
        .aggregate = 1,
        .warmup = 1,
        .cycles = 1,
        .check = 1,
        .type = perf_type_find("float"),
        .op = perf_op_find("sum"),
        .average = PERF_AVERAGE_MEAN,
        .rotate_bytes = 64u << 20,
        .align_bytes = 16,
        .seed = 1,
        .min_bandwidth = -1,
    };
}

static bool ignore(struct complaint *complaint, struct perf_options *options, int letter)
{
    int value;
    char name[3] = {'-', (char)letter, '\0'};
    for (unsigned i = 0; i < PERF_NIGNORED; i++) {
        if (perf_ignored_options[i].letter == letter) options->ignored |= 1u << i;
    }
    return take_int(complaint, name, 0, INT_MAX, &value);
}

/* The sizes, and how the data lies. */
static bool take_size_option(struct complaint *complaint, struct perf_options *options, int letter)
{
    int number;
    switch (letter) {
    case 'b':
        return take_size(complaint, "-b", optarg, &options->min_bytes);
    case 'e':
        return take_size(complaint, "-e", optarg, &options->max_bytes);
    case 'i':
        return take_size(complaint, "-i", optarg, &options->step_bytes);
    case 'f':
        if (!take_int(complaint, "-f", 0, INT_MAX, &number)) return false;
        options->step_factor = (size_t)number;
        return true;
    case ROTATE:
        return take_size(complaint, "--rotate", optarg, &options->rotate_bytes);
    case ALIGN:
        if (!take_int(complaint, "--align", 1, 1 << 20, &number)) return false;
        options->align_bytes = (size_t)number;
        return true;
    default:
        return take_int(complaint, "-u", 0, 1 << 20, &options->unalign);
    }
}

/* What is run, and how often. */
static bool take_run_option(struct complaint *complaint, struct perf_options *options, int letter)
{
    int number;
    switch (letter) {
    case 't':
        return take_int(complaint, "-t", 1, MAX_RANKS, &options->threads);
    case 'g':
        return take_int(complaint, "-g", 1, MAX_RANKS, &options->ranks_per_thread);
    case 'n':
        return take_int(complaint, "-n", 1, INT_MAX / 2, &options->iterations);
    case 'm':
        return take_int(complaint, "-m", 1, 1 << 20, &options->aggregate);
    case 'w':
        return take_int(complaint, "-w", 0, INT_MAX, &options->warmup);
    case 'N':
        return take_int(complaint, "-N", 0, INT_MAX, &options->cycles);
    case 'c':
        return take_int(complaint, "-c", 0, INT_MAX, &options->check);
    case 'o':
        return take_op(complaint, &options->op);
    case 'd':
        return take_type(complaint, &options->type);
    case 'r':
        return take_int(complaint, "-r", -1, INT_MAX, &options->root);
    case 'z':
        if (!take_int(complaint, "-z", 0, 3, &number)) return false;
        options->blocking = (enum perf_blocking)number;
        return true;
    case 'T':
        return take_int(complaint, "-T", 0, INT_MAX / 1000, &options->timeout_s);
    case 'p':
        return take_bool(complaint, "-p", &options->parallel_init);
    case SEED:
        return take_seed(complaint, &options->seed);
    default:
        return take_bool(complaint, "-I", &options->per_iteration);
    }
}

/* How it is measured and reported. */
static bool take_report_option(struct complaint *complaint, struct perf_options *options,
                               int letter)
{
    int number;
    bool null_stream;
    switch (letter) {
    case 'y':
        if (!take_bool(complaint, "-y", &null_stream)) return false;
        options->own_streams = !null_stream;
        return true;
    case STREAM:
        return take_word(complaint, "--stream", "null", "own", &options->own_streams);
    case 'C':
        return take_bool(complaint, "-C", &options->cpu_time);
    case 'S':
        return take_bool(complaint, "-S", &options->timestamps);
    case 'J':
        options->json_path = optarg;
        return true;
    case 'a':
        if (!take_int(complaint, "-a", 0, 3, &number)) return false;
        options->average = (enum perf_average)number;
        return true;
    case 'R':
        return take_int(complaint, "-R", 0, 2, &options->registration);
    case 'M':
        return take_bool(complaint, "-M", &options->memory_report);
    case 'K':
        return take_int(complaint, "-K", 0, INT_MAX, &options->skip);
    case TRANSPORT:
        return take_transport(complaint, &options->transport);
    case MEMORY:
        return take_word(complaint, "--memory", "malloc", "tutti", &options->tutti_memory);
    default:
        return take_bandwidth(complaint, &options->min_bandwidth);
    }
}

static bool take_option(struct complaint *complaint, struct perf_options *options,
                        const struct perf_collective *collective, int letter)
{
    switch (letter) {
    case 'b':
    case 'e':
    case 'i':
    case 'f':
    case 'u':
    case ROTATE:
    case ALIGN:
        return take_size_option(complaint, options, letter);
    case 't':
    case 'g':
    case 'n':
    case 'm':
    case 'w':
    case 'N':
    case 'c':
    case 'o':
    case 'd':
    case 'r':
    case 'z':
    case 'T':
    case 'p':
    case 'I':
    case SEED:
        return take_run_option(complaint, options, letter);
    case 'G':
    case 'x':
    case 'D':
    case 'V':
        return ignore(complaint, options, letter);
    case ALGORITHM:
        return take_algorithm(complaint, collective, &options->algorithm);
    default:
        return take_report_option(complaint, options, letter);
    }
}

static bool agree(struct complaint *complaint, struct perf_options *options,
                  const struct perf_collective *collective)
{
    if (options->min_bytes > options->max_bytes) {
        return complain(complaint,
                        "-b: the smallest size, %zu bytes, is above the largest, %zu: set -e too",
                        options->min_bytes, options->max_bytes);
    }
    if (options->step_factor <= 1 && options->step_bytes == 0) {
        return complain(complaint, "-i: a step of 0 never reaches the largest size");
    }
    if (options->skip > 0 && !options->per_iteration) {
        return complain(complaint,
                        "-K: only the per-iteration columns skip iterations: set -I 1 too");
    }
    if (options->skip >= options->iterations) {
        return complain(complaint, "-K: skipping %d of %d iterations leaves none", options->skip,
                        options->iterations);
    }
    if (collective->reduces && options->op >= 0 && options->type >= 0 &&
        !perf_op_supports(&perf_ops[options->op], &perf_types[options->type])) {
        return complain(complaint, "-o: %s takes integers only, not %s: set -d",
                        perf_ops[options->op].name, perf_types[options->type].name);
    }
    if (options->registration == 2) options->tutti_memory = true;
    return true;
}

static enum perf_parse print_help(const struct perf_collective *collective, FILE *out)
{
    fprintf(out, "usage: %s_perf [options]\n", collective->name);
    fprintf(out, "Times %s on host memory, alone or under tutti-run, and checks the results.\n",
            collective->name);
    fputs(help_text, out);
    if (collective->collective == PERF_NO_COLLECTIVE) return PERF_PARSE_DONE;

    tuttiCollective_t number = (tuttiCollective_t)collective->collective;
    fprintf(out, "Algorithms:");
    for (int i = 0; tuttiAlgorithmName(number, i) != NULL; i++) {
        fprintf(out, " %s", tuttiAlgorithmName(number, i));
    }
    fprintf(out, "\n");
    return PERF_PARSE_DONE;
}

enum perf_parse perf_options_parse(struct perf_options *options,
                                   const struct perf_collective *collective, int argc, char **argv,
                                   FILE *out, char *error, size_t error_bytes)
{
    struct complaint complaint = {error, error_bytes};
    set_defaults(options);
    optind = 0; /* getopt starts afresh: tests parse more than once */
    opterr = 0;
    for (;;) {
        int letter = getopt_long(argc, argv, short_options, long_options, NULL);
        switch (letter) {
        case -1:
            if (optind < argc) {
                complain(&complaint, "'%s' is no option", argv[optind]);
                return PERF_PARSE_USAGE;
            }
            return agree(&complaint, options, collective) ? PERF_PARSE_RUN : PERF_PARSE_USAGE;
        case 'h':
            return print_help(collective, out);
        case VERSION:
            fprintf(out, "tutti-perf %d.%d.%d\n", TUTTI_MAJOR, TUTTI_MINOR, TUTTI_PATCH);
            return PERF_PARSE_DONE;
        case '?':
            if (optopt > 0 && optopt < 256) {
                complain(&complaint, "-%c is no option", optopt);
            } else {
                complain(&complaint, "'%s' is no option, or not a clear one", argv[optind - 1]);
            }
            return PERF_PARSE_USAGE;
        case ':':
            complain(&complaint, "'%s' lacks its value", argv[optind - 1]);
            return PERF_PARSE_USAGE;
        default:
            if (!take_option(&complaint, options, collective, letter)) return PERF_PARSE_USAGE;
        }
    }
}

bool perf_options_next_size(const struct perf_options *options, size_t *size)
{
    size_t next;
    if (options->step_factor > 1) {
        if (*size > SIZE_MAX / options->step_factor) return false;
        next = *size == 0 ? 1 : *size * options->step_factor;
    } else {
        if (*size > SIZE_MAX - options->step_bytes) return false;
        next = *size + options->step_bytes;
    }
    if (next > options->max_bytes) return false;
    *size = next;
    return true;
}
