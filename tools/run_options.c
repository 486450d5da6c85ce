/* Parses the command line of tutti-run. */
#include "run.h"

#include <errno.h>
#include <getopt.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "decimal.h"
#include "escape.h"
#include "tutti.h"

static const char help[] =
    "usage: tutti-run [options] [--] program [arguments]\n"
    "\n"
    "Runs the program once for every rank, on this host or several, with torchrun's variables "
    "set.\n"
    "\n"
    "  -n, --ranks N          ranks to start (default: one a core)\n"
    "      --hosts A,B:2      on these hosts, through ssh; so many ranks on each (default: N "
    "shared\n"
    "                         evenly, without -n one each)\n"
    "      --hostfile FILE    the same, a host a line: NAME, NAME:RANKS or NAME slots=RANKS\n"
    "      --rsh COMMAND      instead of ssh: called as COMMAND HOST TUTTI-RUN --serve\n"
    "      --master-addr A    what the hosts call the first one (default: its address)\n"
    "  -x NAME[=VALUE]        pass this variable on to the hosts too (TUTTI_* always are)\n"
    "      --bind core|none   each rank on a core of its own while there are enough (default),\n"
    "                         or wherever the kernel likes\n"
    "      --tag-output       put \"[rank] \" before every line that a rank writes\n"
    "      --master-port P    port where the ranks meet (default: a free one)\n"
    "      --timeout S        end the job after S seconds (exit code 124)\n"
    "      --grace S          seconds between SIGTERM and SIGKILL (default 30)\n"
    "  -h, --help             this text\n"
    "  -V, --version          the version\n"
    "\n"
    "When a rank dies, the others are ended and tutti-run exits with that rank's code, or with\n"
    "128 + the signal that killed it.\n";

static void wrong(const char *format, const char *value)
{
    char shown[512];
    fputs("tutti-run: ", stderr);
    /* The formats are literals of this file. */
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
    fprintf(stderr, format, value ? escape_controls(shown, sizeof shown, value) : NULL);
#pragma GCC diagnostic pop
    fputs("\nTry 'tutti-run --help'.\n", stderr);
    exit(EXIT_USAGE);
}

/* ---- The options ----------------------------------------------------------------------------- */

enum kind { FLAG, INT, SECONDS, TEXT, BIND, EXPORT, HELP, VERSION };

/* What each takes, and where that goes. Options without a letter have a number above all letters.
 */
struct row {
    int letter;
    const char *name; /* NULL: a letter only */
    enum kind kind;
    size_t field;
    int low, high;         /* INT */
    const char *complaint; /* INT, SECONDS: with the value in it */
};

enum { LONG_ONLY = 256, SERVE = 300 };

#define FIELD(name) offsetof(struct options, name)

/* clang-format off */
static const struct row rows[] = {
    {'n', "ranks", INT, FIELD(nranks), 1, RUN_MAX_RANKS, "-n %s: the ranks must be a number, 1 to 4096"},
    {LONG_ONLY, "bind", BIND, FIELD(bind), 0, 0, NULL},
    {LONG_ONLY + 1, "tag-output", FLAG, FIELD(tag_output), 0, 0, NULL},
    {LONG_ONLY + 2, "master-port", INT, FIELD(master_port), 1, 65535, "--master-port %s: a port is a number, 1 to 65535"},
    {LONG_ONLY + 3, "timeout", SECONDS, FIELD(timeout_ms), 0, 0, "--timeout %s: it must be a number of seconds"},
    {LONG_ONLY + 4, "grace", SECONDS, FIELD(grace_ms), 0, 0, "--grace %s: it must be a number of seconds"},
    {LONG_ONLY + 5, "hosts", TEXT, FIELD(hosts), 0, 0, NULL},
    {LONG_ONLY + 6, "hostfile", TEXT, FIELD(hostfile), 0, 0, NULL},
    {LONG_ONLY + 7, "rsh", TEXT, FIELD(rsh), 0, 0, NULL},
    {LONG_ONLY + 8, "master-addr", TEXT, FIELD(master_addr), 0, 0, NULL},
    {'x', NULL, EXPORT, FIELD(exported), 0, 0, NULL},
    {SERVE, "serve", FLAG, FIELD(serve), 0, 0, NULL},
    {LONG_ONLY + 9, "first-rank", INT, FIELD(first_rank), 0, RUN_MAX_RANKS, "--first-rank %s: it must be a number, 0 to 4096"},
    {LONG_ONLY + 10, "announce", FLAG, FIELD(announce), 0, 0, NULL},
    {'h', "help", HELP, 0, 0, 0, NULL},
    {'V', "version", VERSION, 0, 0, 0, NULL},
};
/* clang-format on */

enum { NROWS = sizeof rows / sizeof *rows };

/* ---- Taking them ----------------------------------------------------------------------------- */

static int number(const char *text, const struct row *row)
{
    char *end;
    errno = 0;
    const long value = strtol(text, &end, 10);
    if (text[strspn(text, "+-0123456789")] || end == text || *end || errno || value < row->low ||
        value > row->high)
        wrong(row->complaint, text);
    return (int)value;
}

static int64_t milliseconds(const char *text, const struct row *row)
{
    double value;
    if (!read_decimal(text, &value) || !(value >= 0 && value <= 1e9)) wrong(row->complaint, text);
    return (int64_t)ceil(value * 1000); /* a short time is not none */
}

static void bind_to(struct options *options, const char *what)
{
    options->bind = options->bind_asked = !strcmp(what, "core");
    if (!options->bind && strcmp(what, "none") != 0)
        wrong("--bind %s: it must be core or none", what);
}

static void export(struct options *options, const char *name, int most)
{
    if (!options->exported) options->exported = calloc((size_t)most, sizeof *options->exported);
    if (!options->exported) wrong("-x %s: no memory", name);
    options->exported[options->nexported++] = name;
}

/* Ends the process for --help and --version. */
static void take(struct options *options, const struct row *row, const char *text, int argc)
{
    void *field = (char *)options + row->field;
    switch (row->kind) {
    case FLAG:
        *(bool *)field = true;
        break;
    case INT:
        *(int *)field = number(text, row);
        break;
    case SECONDS:
        *(int64_t *)field = milliseconds(text, row);
        break;
    case TEXT:
        *(const char **)field = text;
        break;
    case BIND:
        bind_to(options, text);
        break;
    case EXPORT:
        export(options, text, argc);
        break;
    case HELP:
        fputs(help, stdout);
        exit(0);
    case VERSION:
        printf("tutti-run (tutti) %d.%d.%d\n", TUTTI_MAJOR, TUTTI_MINOR, TUTTI_PATCH);
        exit(0);
    }
}

/* ---- Parsing --------------------------------------------------------------------------------- */

/* getopt's two tables, made from rows. */
struct tables {
    char letters[2 + 2 * NROWS];
    struct option names[NROWS + 1];
};

static void make_tables(struct tables *tables)
{
    char *letter = tables->letters;
    struct option *name = tables->names;
    *letter++ = '+'; /* what follows the program is its own */
    for (size_t i = 0; i < NROWS; i++) {
        const enum kind kind = rows[i].kind;
        const bool takes_value = kind != FLAG && kind != HELP && kind != VERSION;
        if (rows[i].name)
            *name++ = (struct option){rows[i].name, takes_value, NULL, rows[i].letter};
        if (rows[i].letter >= LONG_ONLY) continue;
        *letter++ = (char)rows[i].letter;
        if (takes_value) *letter++ = ':';
    }
    *letter = '\0';
    *name = (struct option){0};
}

static const struct row *row_of(int letter)
{
    for (size_t i = 0; i < NROWS; i++)
        if (rows[i].letter == letter) return &rows[i];
    return NULL;
}

void run_options_parse(struct options *options, int argc, char **argv)
{
    struct tables tables;
    int letter;
    make_tables(&tables);
    *options = (struct options){
        .bind = true,
        .grace_ms = 30000,
        .rsh = "ssh -T -o BatchMode=yes -o ServerAliveInterval=15 -o ServerAliveCountMax=4"};
    optind = 0; /* a server parses a second time */
    while ((letter = getopt_long(argc, argv, tables.letters, tables.names, NULL)) != -1) {
        const struct row *row = row_of(letter);
        if (!row) {
            fputs("Try 'tutti-run --help'.\n", stderr);
            exit(EXIT_USAGE);
        }
        take(options, row, optarg, argc);
        if (letter == SERVE) return; /* the rest comes on stdin */
    }
    if (optind >= argc) wrong("%s", "which program? None was given.");
    options->command = argv + optind;
    if (options->hosts && options->hostfile) wrong("%s", "--hosts or --hostfile, not both");
    if (options->hosts || options->hostfile) return; /* their numbers of ranks come with them */
    if (!options->nranks) options->nranks = run_count_cores();
    if (options->nranks > RUN_MAX_RANKS) options->nranks = RUN_MAX_RANKS;
}
