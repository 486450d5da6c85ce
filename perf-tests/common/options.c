/* Reads the command line of the perf tests: one table has the options, their values and their
 * help. */
#include "common/options.h"

#include <getopt.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "common/hogs.h"
#include "common/values.h"

#define MAX_RANKS 4096

const struct perf_ignored perf_ignored_options[PERF_NIGNORED] = {
    {'G', "there are no CUDA graphs on host memory", NULL},
    {'x', "there are no thread blocks on host memory", "TUTTI_DEVICE_CHANNELS sets the blocks"},
    {'D', "there are no device kernels on host memory", "there is one kind of kernel"},
    {'V', "there are no device kernels on host memory", "TUTTI_DEVICE_CHANNELS sets the blocks"},
};

/* ---- The options -------------------------------------------------------------------------------
 */

enum kind {
    INT,
    SIZE,
    FLAG,
    NOT_FLAG,
    WORD,
    EITHER,
    TYPE,
    OP,
    SEED,
    BANDWIDTH,
    TEXT,
    ALGORITHM,
    IGNORED,
    HELP,
    VERSION
};

/* Letters of options that have none. */
enum {
    LONG_ONLY = 256,
    DEVICE,
    RANKS,
    ALGORITHM_NAME,
    TRANSPORT,
    MEMORY,
    STREAM,
    ROTATE,
    ALIGN,
    SEED_NUMBER,
    MIN_BW,
    SPREAD,
    HOGS,
    WORK,
    LIBRARY,
    VERSION_TEXT
};

#define FIELD(name) offsetof(struct perf_options, name)

/* An option: its names, what it takes, and where that goes. */
struct row {
    int letter;
    const char *name;
    enum kind kind;
    size_t field;
    int low; /* INT: the range */
    int high;
    const char *words; /* WORD, EITHER: what is allowed, one space between */
};

/* clang-format off */
static const struct row rows[] = {
    {'t', "nthreads", INT, FIELD(threads), 1, MAX_RANKS, NULL},
    {'g', "ngpus", INT, FIELD(ranks_per_thread), 1, MAX_RANKS, NULL},
    {RANKS, "ranks", INT, FIELD(ranks_per_thread), 1, MAX_RANKS, NULL},
    {'b', "minbytes", SIZE, FIELD(min_bytes), 0, 0, NULL},
    {'e', "maxbytes", SIZE, FIELD(max_bytes), 0, 0, NULL},
    {'i', "stepbytes", SIZE, FIELD(step_bytes), 0, 0, NULL},
    {'f', "stepfactor", INT, FIELD(step_factor), 0, INT_MAX, NULL},
    {'n', "iters", INT, FIELD(iterations), 1, INT_MAX / 2, NULL},
    {'m', "agg_iters", INT, FIELD(aggregate), 1, 1 << 20, NULL},
    {'w', "warmup_iters", INT, FIELD(warmup), 0, INT_MAX, NULL},
    {'N', "run_cycles", INT, FIELD(cycles), 0, INT_MAX, NULL},
    {'p', "parallel_init", FLAG, FIELD(parallel_init), 0, 0, NULL},
    {'c', "check", INT, FIELD(check), 0, INT_MAX, NULL},
    {'o', "op", OP, FIELD(op), 0, 0, NULL},
    {'d', "datatype", TYPE, FIELD(type), 0, 0, NULL},
    {'r', "root", INT, FIELD(root), -1, INT_MAX, NULL},
    {'z', "blocking", INT, FIELD(blocking), 0, 3, NULL},
    {'y', "stream_null", NOT_FLAG, FIELD(own_streams), 0, 0, NULL},
    {'T', "timeout", INT, FIELD(timeout_s), 0, INT_MAX / 1000, NULL},
    {'G', "cudagraph", INT, FIELD(graphs), 0, 1 << 20, NULL},
    {'C', "report_cputime", FLAG, FIELD(cpu_time), 0, 0, NULL},
    {'S', "report_timestamps", FLAG, FIELD(timestamps), 0, 0, NULL},
    {'J', "output_file", TEXT, FIELD(json_path), 0, 0, NULL},
    {'a', "average", INT, FIELD(average), 0, 3, NULL},
    {'R', "local_register", INT, FIELD(registration), 0, 2, NULL},
    {'x', "cta_policy", IGNORED, 0, 0, INT_MAX, NULL},
    {'D', "device_implementation", IGNORED, 0, 0, INT_MAX, NULL},
    {'V', "device_cta_count", IGNORED, 0, 0, INT_MAX, NULL},
    {'M', "memory_report", FLAG, FIELD(memory_report), 0, 0, NULL},
    {'u', "unalign", INT, FIELD(unalign), 0, 1 << 20, NULL},
    {'I', "per_iter_timing", FLAG, FIELD(per_iteration), 0, 0, NULL},
    {'K', "per_iter_skip", INT, FIELD(skip), 0, INT_MAX, NULL},
    {DEVICE, "device", EITHER, FIELD(on_gpus), 0, 0, "host cuda"},
    {ALGORITHM_NAME, "algorithm", ALGORITHM, FIELD(algorithm), 0, 0, NULL},
    {TRANSPORT, "transport", WORD, FIELD(transport), 0, 0, "shm window cma tcp rdma"},
    {MEMORY, "memory", EITHER, FIELD(tutti_memory), 0, 0, "malloc tutti"},
    {STREAM, "stream", EITHER, FIELD(own_streams), 0, 0, "null own"},
    {ROTATE, "rotate", SIZE, FIELD(rotate_bytes), 0, 0, NULL},
    {ALIGN, "align", INT, FIELD(align_bytes), 1, 1 << 20, NULL},
    {SEED_NUMBER, "seed", SEED, FIELD(seed), 0, 0, NULL},
    {MIN_BW, "min-bw", BANDWIDTH, FIELD(min_bandwidth), 0, 0, NULL},
    {SPREAD, "spread", WORD, FIELD(spread_name), 0, 0, "even linear one"},
    {HOGS, "hogs", INT, FIELD(hogs), 0, PERF_MOST_HOGS, NULL},
    {WORK, "work", INT, FIELD(work_us), 0, 10000000, NULL},
    {LIBRARY, "library", TEXT, FIELD(library_path), 0, 0, NULL},
    {'h', "help", HELP, 0, 0, 0, NULL},
    {VERSION_TEXT, "version", VERSION, 0, 0, 0, NULL},
};
/* clang-format on */

#define NROWS (sizeof(rows) / sizeof(rows[0]))

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
    "  -y, --stream_null 0|1      0: --stream own, 1: --stream null (1; on GPUs 0)\n"
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
    "  -G, --cudagraph N          on GPUs: all iterations are captured into a CUDA graph, which "
    "is\n"
    "                             launched N times (0)\n"
    "  -x, -D, -V N               accepted and ignored, with a note that says why\n"
    "      --device host|cuda     memory of the host, or of GPUs: the ranks of a host take its "
    "GPUs "
    "in\n"
    "                             turn, so that several may share one (host)\n"
    "      --library PATH         measure the libnccl.so.2 at PATH through NCCL's functions: "
    "tutti's "
    "with\n"
    "                             either memory, NVIDIA's with --device cuda (tutti itself)\n"
    "      --algorithm NAME       force an algorithm\n"
    "      --transport NAME       shm, window or cma between local ranks; tcp or rdma between all\n"
    "                             ranks, also those of one host: each needs a process of its own\n"
    "      --memory malloc|tutti  where the buffers come from (malloc)\n"
    "      --stream null|own      calls run in the thread, or on a stream for each rank (null);\n"
    "                             on GPUs: each call waits for its end, or is on a CUDA stream "
    "(own)\n"
    "      --rotate SIZE          memory through which small messages move on (64M)\n"
    "      --align BYTES          blocks are multiples of this (16)\n"
    "      --spread even|linear|one  lengths of the blocks of a collective with counts: all "
    "alike,\n"
    "                             growing from 0 to twice the average, or one has all (linear)\n"
    "      --hogs N               busy loops beside the ranks of each host, on no core of their "
    "own "
    "(0)\n"
    "      --work US              microseconds that each thread computes between iterations, which "
    "are\n"
    "                             in no time; each iteration is waited for (0)\n"
    "      --seed N               of the data that is checked, decimal (1)\n"
    "      --min-bw GBPS          fail when the average bus bandwidth is below 0.9 of this\n"
    "  -h, --help\n"
    "      --version\n"
    "Exit status: 0 all right, 1 wrong results or an error, 2 a bad command line.\n";

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
        .library = &perf_tutti,
    };
}

/* ---- Taking them -------------------------------------------------------------------------------
 */

static bool take_algorithm(const struct perf_value *value, const struct perf_collective *collective,
                           const char **algorithm)
{
    if (collective->collective == PERF_NO_COLLECTIVE) {
        return perf_value_refuse(value, "%s is made of sends and receives and has none",
                                 collective->name);
    }
    tuttiCollective_t number = (tuttiCollective_t)collective->collective;
    char names[512] = "";
    for (int i = 0; tuttiAlgorithmName(number, i) != NULL; i++) {
        const char *name = tuttiAlgorithmName(number, i);
        if (strcmp(name, value->text) == 0) {
            *algorithm = value->text;
            return true;
        }
        size_t used = strlen(names);
        snprintf(names + used, sizeof(names) - used, " %s", name);
    }
    return perf_value_refuse(value, "%s has no '%s'; use one of%s", collective->name, value->text,
                             names);
}

static bool take(const struct perf_value *value, const struct row *row,
                 const struct perf_collective *collective, struct perf_options *options)
{
    void *field = (char *)options + row->field;
    bool flag;
    int ignored;
    if (row->field == FIELD(own_streams)) options->says_streams = true;
    switch (row->kind) {
    case INT:
        return perf_value_int(value, row->low, row->high, field);
    case SIZE:
        return perf_value_size(value, field);
    case FLAG:
        return perf_value_flag(value, field);
    case NOT_FLAG:
        if (!perf_value_flag(value, &flag)) return false;
        *(bool *)field = !flag;
        return true;
    case WORD:
        return perf_value_word(value, row->words, field);
    case EITHER:
        return perf_value_either(value, row->words, field);
    case TYPE:
        return perf_value_type(value, field);
    case OP:
        return perf_value_op(value, field);
    case SEED:
        return perf_value_seed(value, field);
    case BANDWIDTH:
        return perf_value_bandwidth(value, field);
    case ALGORITHM:
        return take_algorithm(value, collective, field);
    case IGNORED:
        for (unsigned i = 0; i < PERF_NIGNORED; i++) {
            if (perf_ignored_options[i].letter == row->letter) options->ignored |= 1u << i;
        }
        return perf_value_int(value, row->low, row->high, &ignored);
    default:
        *(const char **)field = value->text;
        return true;
    }
}

static enum perf_spread spread_of(const char *name)
{
    if (name == NULL || strcmp(name, "linear") == 0) return PERF_LINEAR;
    return strcmp(name, "one") == 0 ? PERF_ONE : PERF_EVEN;
}

/* What memory of GPUs rules out. */
static bool agree_on_gpus(struct perf_value *about, struct perf_options *options)
{
    if (options->transport != NULL) {
        about->name = "--transport";
        return perf_value_refuse(about,
                                 "'%s' is a way between memory of the host: leave it out with "
                                 "--device cuda",
                                 options->transport);
    }
    if (options->tutti_memory || options->registration == 2) {
        about->name = options->registration == 2 ? "-R" : "--memory";
        return perf_value_refuse(about, "tuttiMemAlloc gives memory of the host: leave it out with "
                                        "--device cuda");
    }
    if (!options->says_streams) options->own_streams = true;
    if (options->graphs == 0) return true;
    about->name = "-G";
    if (!options->own_streams) {
        return perf_value_refuse(about, "streams are captured: leave out --stream null");
    }
    if (options->blocking != PERF_BLOCKING_NONE || options->per_iteration) {
        return perf_value_refuse(about,
                                 "in a graph nobody waits for a single call or takes its time: "
                                 "leave out -z and -I");
    }
    return true;
}

/* What a library of NCCL's rules out. */
static bool agree_with_nccl(struct perf_value *about, const struct perf_options *options,
                            const struct perf_collective *collective)
{
    const struct {
        bool given;
        const char *name, *why;
    } options_of_tutti[] = {
        {options->algorithm != NULL, "--algorithm", "NCCL chooses itself: set NCCL_ALGO"},
        {options->transport != NULL, "--transport", "NCCL chooses itself: set its variables"},
        {options->timeout_s > 0, "-T", "NCCL's calls have no deadline: leave it out"},
        {options->tutti_memory, "--memory", "tuttiMemAlloc is tutti's: leave it out"},
        {options->registration == 2, "-R", "tuttiMemAlloc is tutti's: use -R 1"},
        {options->own_streams && !options->on_gpus, "--stream",
         "NCCL's streams are CUDA's: add --device cuda"},
        {!options->own_streams && options->on_gpus, "--stream",
         "calls are on a stream of each rank: leave it out"},
    };
    about->name = "--library";
    if (collective->nccl == NULL)
        return perf_value_refuse(about, "NCCL has no %s: leave it out", collective->name);
    for (size_t i = 0; i < sizeof(options_of_tutti) / sizeof(options_of_tutti[0]); i++) {
        if (!options_of_tutti[i].given) continue;
        about->name = options_of_tutti[i].name;
        return perf_value_refuse(about, "with --library %s", options_of_tutti[i].why);
    }
    const struct perf_type *type = options->type < 0 ? NULL : &perf_types[options->type];
    const struct perf_op *op = options->op < 0 ? NULL : &perf_ops[options->op];
    if (type != NULL && (int)type->type >= options->library->ntypes) {
        about->name = "-d";
        return perf_value_refuse(about, "NCCL has no %s: use another type with --library",
                                 type->name);
    }
    if (collective->reduces && op != NULL && (int)op->op >= options->library->nops) {
        about->name = "-o";
        return perf_value_refuse(about, "NCCL has no %s: use another operation with --library",
                                 op->name);
    }
    return true;
}

/* What computing between iterations rules out. */
static bool agree_on_work(struct perf_value *about, const struct perf_options *options)
{
    about->name = "--work";
    if (options->graphs > 0) {
        return perf_value_refuse(about,
                                 "in a graph nobody computes between iterations: leave out -G");
    }
    if (options->cpu_time) {
        return perf_value_refuse(about, "each iteration is waited for, so there is no time without "
                                        "the wait: leave out -C");
    }
    return true;
}

/* What no option can tell alone. */
static bool agree(char *error, size_t nbytes, struct perf_options *options,
                  const struct perf_collective *collective)
{
    struct perf_value about = {.error = error, .error_bytes = nbytes};
    if (options->min_bytes > options->max_bytes) {
        about.name = "-b";
        return perf_value_refuse(
            &about, "the smallest size, %zu bytes, is above the largest, %zu: set -e too",
            options->min_bytes, options->max_bytes);
    }
    if (options->step_factor <= 1 && options->step_bytes == 0) {
        about.name = "-i";
        return perf_value_refuse(&about, "a step of 0 never reaches the largest size");
    }
    if (options->skip > 0 && !options->per_iteration) {
        about.name = "-K";
        return perf_value_refuse(&about,
                                 "only the per-iteration columns skip iterations: set -I 1 too");
    }
    if (options->skip >= options->iterations) {
        about.name = "-K";
        return perf_value_refuse(&about, "skipping %d of %d iterations leaves none", options->skip,
                                 options->iterations);
    }
    if (collective->reduces && options->op >= 0 && options->type >= 0 &&
        !perf_op_supports(&perf_ops[options->op], &perf_types[options->type])) {
        about.name = "-o";
        return perf_value_refuse(&about, "%s takes integers only, not %s: set -d",
                                 perf_ops[options->op].name, perf_types[options->type].name);
    }
    if (options->spread_name != NULL && !collective->uneven) {
        about.name = "--spread";
        return perf_value_refuse(&about,
                                 "the blocks of %s are all alike: use a program whose name ends in "
                                 "v, such as all_gatherv_perf",
                                 collective->name);
    }
    if (options->on_gpus && !agree_on_gpus(&about, options)) return false;
    if (options->graphs > 0 && !options->on_gpus) {
        options->ignored |= 1u; /* -G is the first of perf_ignored_options */
        options->graphs = 0;
    }
    if (options->work_us > 0 && !agree_on_work(&about, options)) return false;
    if (options->library_path != NULL) options->library = &perf_nccl;
    if (options->library_path != NULL && !agree_with_nccl(&about, options, collective))
        return false;
    options->spread = spread_of(options->spread_name);
    if (options->registration == 2) options->tutti_memory = true;
    return true;
}

static enum perf_parse print_help(const struct perf_collective *collective, FILE *out)
{
    fprintf(out, "usage: %s_perf [options]\n", collective->name);
    fprintf(out,
            "Times %s on memory of the host or of GPUs, alone or under tutti-run, and checks the "
            "results.\n",
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

/* ---- Parsing -----------------------------------------------------------------------------------
 */

/* getopt's two tables, made from rows. */
struct tables {
    char letters[3 + 2 * NROWS];
    struct option names[NROWS + 1];
};

static void make_tables(struct tables *tables)
{
    char *at = tables->letters;
    *at++ = ':'; /* getopt tells a missing value from an unknown option, and prints neither */
    for (size_t i = 0; i < NROWS; i++) {
        bool takes_value = rows[i].kind != HELP && rows[i].kind != VERSION;
        tables->names[i] = (struct option){rows[i].name, takes_value, NULL, rows[i].letter};
        if (rows[i].letter >= LONG_ONLY) continue;
        *at++ = (char)rows[i].letter;
        if (takes_value) *at++ = ':';
    }
    *at = '\0';
    tables->names[NROWS] = (struct option){NULL, 0, NULL, 0};
}

static const struct row *row_of(int letter)
{
    for (size_t i = 0; i < NROWS; i++) {
        if (rows[i].letter == letter) return &rows[i];
    }
    return NULL;
}

static enum perf_parse refuse_word(char *error, size_t nbytes, int letter, char **argv)
{
    const char *word = argv[optind - 1];
    if (letter == ':') {
        snprintf(error, nbytes, "'%s' lacks its value", word);
    } else if (optopt > 0 && optopt < LONG_ONLY) {
        snprintf(error, nbytes, "-%c is no option", optopt);
    } else {
        snprintf(error, nbytes, "'%s' is no option, or not a clear one", word);
    }
    return PERF_PARSE_USAGE;
}

enum perf_parse perf_options_parse(struct perf_options *options,
                                   const struct perf_collective *collective, int argc, char **argv,
                                   FILE *out, char *error, size_t error_bytes)
{
    struct tables tables;
    int letter;
    make_tables(&tables);
    set_defaults(options);
    optind = 0; /* getopt starts afresh: tests parse more than once */
    while ((letter = getopt_long(argc, argv, tables.letters, tables.names, NULL)) != -1) {
        const struct row *row = row_of(letter);
        if (row == NULL) return refuse_word(error, error_bytes, letter, argv);
        if (row->kind == HELP) return print_help(collective, out);
        if (row->kind == VERSION) {
            fprintf(out, "tutti-perf %d.%d.%d\n", TUTTI_MAJOR, TUTTI_MINOR, TUTTI_PATCH);
            return PERF_PARSE_DONE;
        }
        char name[64];
        if (letter < LONG_ONLY) {
            snprintf(name, sizeof(name), "-%c", letter);
        } else {
            snprintf(name, sizeof(name), "--%s", row->name);
        }
        struct perf_value value = {name, optarg, error, error_bytes};
        if (!take(&value, row, collective, options)) return PERF_PARSE_USAGE;
    }
    if (optind < argc) {
        snprintf(error, error_bytes, "'%s' is no option", argv[optind]);
        return PERF_PARSE_USAGE;
    }
    return agree(error, error_bytes, options, collective) ? PERF_PARSE_RUN : PERF_PARSE_USAGE;
}

bool perf_options_next_size(const struct perf_options *options, size_t *size)
{
    size_t next;
    if (options->step_factor > 1) {
        size_t factor = (size_t)options->step_factor;
        if (*size > SIZE_MAX / factor) return false;
        next = *size == 0 ? 1 : *size * factor;
    } else {
        if (*size > SIZE_MAX - options->step_bytes) return false;
        next = *size + options->step_bytes;
    }
    if (next > options->max_bytes) return false;
    *size = next;
    return true;
}
