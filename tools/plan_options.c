/* Parses the command line of tutti-plan. */
#include "plan_options.h"

#include <errno.h>
#include <getopt.h>
#include <limits.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "decimal.h"
#include "escape.h"
#include "tutti.h"

static const char usage[] =
    "usage: tutti-plan list [--deterministic]\n"
    "       tutti-plan print COLLECTIVE:ALGORITHM --ranks N|--hosts H [--root R] [--rank K]\n"
    "       tutti-plan verify COLLECTIVE[:ALGORITHM]...|--all --ranks LIST|--hosts H... "
    "[--root R|all] [--counts LIST]\n"
    "       tutti-plan count COLLECTIVE[:ALGORITHM]... --ranks LIST|--hosts H... --bytes SIZE "
    "[--root R] [--exact]\n"
    "       tutti-plan cost [COLLECTIVE[:ALGORITHM]] --gpus G --bytes SIZE [--link LINK] [--blocks "
    "N|--staged]\n"
    "       tutti-plan tune [--output FILE] [--ranks LIST] [--seconds S]\n"
    "Looks at schedules: what every rank does in a collective. Needs no other process, but for "
    "tune.\n"
    "\n"
    "  list            every COLLECTIVE:ALGORITHM, one a line\n"
    "  print           the steps of every rank, or of one\n"
    "  verify          proves result, single counting, matching, ranges, deadlock, races, in "
    "place\n"
    "  count           steps, longest chain of messages, bytes and memory of the busiest rank\n"
    "  cost            a model of the time of a call on GPUs, step by step, with its constants and "
    "their sources\n"
    "  tune            measures the constants by which algorithms are chosen, on this machine, for "
    "TUTTI_COST_FILE\n"
    "\n"
    "  --ranks LIST    numbers and ranges: 8, 1-33, 2,4,8\n"
    "  --hosts H       hosts and their ranks: 2x4, 3,1,4, 2x2:cyclic (in turns), abba (a letter a "
    "rank)\n"
    "  --root R        the root (0); verify tries all by default\n"
    "  --rank K        print only this rank\n"
    "  --all           every algorithm there is; verify without --hosts then takes X/Y on usual "
    "hosts\n"
    "  --counts LIST   element counts to verify; N is the number of ranks (0,1,N-1,N,N+1,1000)\n"
    "  --bytes SIZE    bytes that the call's count stands for: 64K, 16M, 1G\n"
    "  --gpus G        GPUs of one host, 8, or of several, 2x8 (as --hosts); a rank has each\n"
    "  --link LINK     between the GPUs of a host: nvlink3, nvlink4 (the default), nvlink5, pcie4, "
    "pcie5, or gpu\n"
    "                  (all ranks on one); between hosts, with nvlink4 inside: tcp (the default), "
    "rdma, dmabuf\n"
    "  --blocks N      of threads that a GPU may have in a call, 2 to 64 (TUTTI_DEVICE_CHANNELS)\n"
    "  --staged        between hosts: through memory of the host, as with "
    "TUTTI_DEVICE_BRIDGES=0\n"
    "  --deterministic only algorithms that a deterministic communicator may use\n"
    "  --exact         also count the steps of every rank, and compare with the formulas\n"
    "  --output FILE   where tune writes the constants (-: the standard output)\n"
    "  --seconds S     how long tune takes, 1 to 600 (15)\n"
    "  --version       print the version and exit\n"
    "  --help          print this and exit\n"
    "\n"
    "Exit status: 0 done, 1 a schedule is wrong or a count differs, 2 wrong usage.\n";

int plan_complain(const char *problem, const char *value)
{
    char shown[512] = "";
    if (value) escape_controls(shown, sizeof shown, value);
    fprintf(stderr, "tutti-plan: %s%s%s%s\nTry 'tutti-plan --help'.\n", problem, value ? " '" : "",
            shown, value ? "'" : "");
    return PLAN_BAD_USAGE;
}

static bool parse_int(const char **text, int *number)
{
    char *end;
    errno = 0;
    const long value = strtol(*text, &end, 10);
    if (end == *text || errno || value < 0 || value > INT_MAX) return false;
    *text = end;
    *number = (int)value;
    return true;
}

static bool parse_whole_int(const char *text, int *number)
{
    return parse_int(&text, number) && *text == '\0';
}

static bool parse_ranks(struct plan_options *options, const char *text)
{
    options->nranges = 0;
    do {
        if (options->nranges == PLAN_MOST_ITEMS) return false;
        struct plan_range *range = &options->ranks[options->nranges++];
        if (!parse_int(&text, &range->from)) return false;
        range->to = range->from;
        if (*text == '-') {
            text++;
            if (!parse_int(&text, &range->to)) return false;
        }
        if (range->from < 1 || range->to < range->from) return false;
    } while (*text++ == ',');
    return text[-1] == '\0';
}

/* "1000", "N", "N-1", "N+2". */
static bool parse_count(const char **text, struct plan_count *count)
{
    *count = (struct plan_count){.has_n = **text == 'N'};
    int number = 0;
    if (!count->has_n) {
        if (!parse_int(text, &number)) return false;
        count->offset = number;
        return true;
    }
    const char sign = *++*text;
    if (sign != '+' && sign != '-') return true;
    ++*text;
    if (!parse_int(text, &number)) return false;
    count->offset = sign == '-' ? -number : number;
    return true;
}

static bool parse_counts(struct plan_options *options, const char *text)
{
    options->ncounts = 0;
    do {
        if (options->ncounts == PLAN_MOST_ITEMS) return false;
        if (!parse_count(&text, &options->counts[options->ncounts++])) return false;
    } while (*text++ == ',');
    return text[-1] == '\0';
}

static bool parse_bytes(struct plan_options *options, const char *text)
{
    static const char units[] = "KMGT";
    char *end;
    errno = 0;
    const unsigned long long value = strtoull(text, &end, 10);
    if (end == text || *text == '-' || errno) return false;
    unsigned shift = 0;
    const char *unit = *end ? strchr(units, *end) : NULL;
    if (unit) {
        shift = 10 * (unsigned)(unit - units + 1);
        end++;
    }
    if (*end != '\0' || value > SIZE_MAX >> shift) return false;
    options->nbytes = (size_t)value << shift;
    options->has_bytes = true;
    return true;
}

static bool parse_root(struct plan_options *options, const char *text)
{
    options->has_root = true;
    options->root = PLAN_ALL_ROOTS;
    return strcmp(text, "all") == 0 || parse_whole_int(text, &options->root);
}

static bool parse_seconds(struct plan_options *options, const char *text)
{
    return read_decimal(text, &options->seconds) && options->seconds >= 1 &&
           options->seconds <= 600;
}

static bool parse_hosts(struct plan_options *options, const char *text)
{
    if (options->nplaces == PLAN_MOST_ITEMS) return false;
    return plan_place_parse(&options->places[options->nplaces++], text);
}

static bool parse_gpus(struct plan_options *options, const char *text)
{
    return options->gpus.nranks == 0 && plan_place_parse(&options->gpus, text);
}

static bool parse_blocks(struct plan_options *options, const char *text)
{
    return parse_whole_int(text, &options->nblocks) && options->nblocks > 0;
}

static const struct option table[] = {
    {"ranks", required_argument, NULL, 'n'},   {"hosts", required_argument, NULL, 'o'},
    {"root", required_argument, NULL, 'r'},    {"rank", required_argument, NULL, 'k'},
    {"counts", required_argument, NULL, 'c'},  {"bytes", required_argument, NULL, 'b'},
    {"all", no_argument, NULL, 'a'},           {"deterministic", no_argument, NULL, 'd'},
    {"exact", no_argument, NULL, 'e'},         {"gpus", required_argument, NULL, 'g'},
    {"link", required_argument, NULL, 'l'},    {"blocks", required_argument, NULL, 'B'},
    {"staged", no_argument, NULL, 'S'},        {"output", required_argument, NULL, 'f'},
    {"seconds", required_argument, NULL, 's'}, {"version", no_argument, NULL, 'v'},
    {"help", no_argument, NULL, 'h'},          {NULL, 0, NULL, 0}};

/* A command, and the letters of the options that it takes. */
static const struct {
    const char *name, *takes;
} commands[] = {{"list", "d"},        {"print", "nork"}, {"verify", "norcad"},
                {"count", "norbade"}, {"cost", "gblBS"}, {"tune", "nfs"}};

static bool parse_option(struct plan_options *options, int option, const char *text)
{
    switch (option) {
    case 'n':
        return parse_ranks(options, text);
    case 'o':
        return parse_hosts(options, text);
    case 'r':
        return parse_root(options, text);
    case 'k':
        options->has_rank = true;
        return parse_whole_int(text, &options->rank);
    case 'c':
        return parse_counts(options, text);
    case 'b':
        return parse_bytes(options, text);
    case 'f':
        options->output = text;
        return *text != '\0';
    case 's':
        return parse_seconds(options, text);
    case 'g':
        return parse_gpus(options, text);
    case 'l':
        options->link = text;
        return true;
    case 'B':
        return parse_blocks(options, text);
    case 'S':
        options->staged = true;
        return true;
    case 'a':
        options->all = true;
        return true;
    case 'd':
        options->deterministic = true;
        return true;
    default:
        options->exact = true;
        return true;
    }
}

/* What an option's value must be. */
static const char *expected(int option)
{
    switch (option) {
    case 'n':
        return "numbers and ranges from 1 on: 8, 1-33 or 2,4,8";
    case 'o':
        return "hosts and their ranks, at most 4096 in all: 2x4, 3,1,4, 2x2:cyclic or abba";
    case 'r':
        return "a rank or all";
    case 'c':
        return "counts, where N is the number of ranks: 0,1,N-1,N+1";
    case 'b':
        return "bytes, or a number with K, M, G or T";
    case 'f':
        return "the path of a file, or - for the standard output";
    case 'g':
        return "GPUs of a host, or hosts and their GPUs, once: 8, 2x8 or 3,1,4";
    case 'B':
        return "a number from 2 to 64";
    case 's':
        return "seconds from 1 to 600";
    default:
        return "a rank";
    }
}

/* Names the options that a command takes: "--gpus, --bytes". */
static void name_options(const char *letters, char *text, size_t size)
{
    size_t used = 0;
    text[0] = '\0';
    for (const struct option *option = table; option->name && used < size; option++)
        if (strchr(letters, option->val))
            used += (size_t)snprintf(text + used, size - used, "%s--%s", used ? ", " : "",
                                     option->name);
}

/* Whether the command takes all options that were given, which are marked by their place in the
 * table. Which commands there are is the program's business. */
static bool check_given(const char *command, const bool given[])
{
    size_t c = 0;
    while (c < sizeof commands / sizeof *commands && strcmp(commands[c].name, command)) c++;
    if (c == sizeof commands / sizeof *commands) return true;
    for (int i = 0; table[i].name; i++) {
        char takes[256], problem[384];
        if (!given[i] || strchr(commands[c].takes, table[i].val)) continue;
        name_options(commands[c].takes, takes, sizeof takes);
        snprintf(problem, sizeof problem, "--%s is no option of %s, which takes %s", table[i].name,
                 command, takes);
        (void)plan_complain(problem, NULL);
        return false;
    }
    return true;
}

int plan_options_parse(struct plan_options *options, int argc, char *argv[])
{
    *options = (struct plan_options){.nranges = 0, .seconds = 15};
    parse_counts(options, "0,1,N-1,N,N+1,1000");
    bool given[sizeof table / sizeof *table] = {false};
    int option, which = 0;
    while ((option = getopt_long(argc, argv, "", table, &which)) != -1) {
        if (option == '?') {
            fputs("Try 'tutti-plan --help'.\n", stderr);
            return PLAN_BAD_USAGE;
        }
        if (option == 'h') {
            fputs(usage, stdout);
            exit(PLAN_DONE);
        }
        if (option == 'v') {
            printf("tutti-plan %d.%d.%d\n", TUTTI_MAJOR, TUTTI_MINOR, TUTTI_PATCH);
            exit(PLAN_DONE);
        }
        if (!parse_option(options, option, optarg)) {
            char problem[128];
            snprintf(problem, sizeof problem, "--%s takes %s, not", table[which].name,
                     expected(option));
            return plan_complain(problem, optarg);
        }
        given[which] = true;
    }
    if (optind == argc)
        return plan_complain("no command: list, print, verify, count, cost or tune", NULL);
    options->command = argv[optind];
    options->names = argv + optind + 1;
    options->nnames = argc - optind - 1;
    return check_given(options->command, given) ? PLAN_DONE : PLAN_BAD_USAGE;
}
