#include "run.h"

#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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
    "      --grace S          seconds between SIGTERM and SIGKILL (default 5)\n"
    "  -h, --help             this text\n"
    "  -V, --version          the version\n"
    "\n"
    "When a rank dies, the others are ended and tutti-run exits with that rank's code, or with\n"
    "128 + the signal that killed it.\n";

static void wrong(const char *format, const char *value)
{
    fputs("tutti-run: ", stderr);
    /* The formats are literals of this file. */
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
    fprintf(stderr, format, value);
#pragma GCC diagnostic pop
    fputs("\nTry 'tutti-run --help'.\n", stderr);
    exit(EXIT_USAGE);
}

static int number(const char *text, int least, int most, const char *complaint)
{
    char *end;
    errno = 0;
    const long value = strtol(text, &end, 10);
    if (end == text || *end || errno || value < least || value > most) wrong(complaint, text);
    return (int)value;
}

static int64_t seconds(const char *text, const char *complaint)
{
    char *end;
    const double value = strtod(text, &end);
    if (end == text || *end || !(value >= 0 && value <= 1e9)) wrong(complaint, text);
    return (int64_t)(value * 1000);
}

static void export(struct options *options, const char *name, int most)
{
    if (!options->exported) options->exported = calloc((size_t)most, sizeof *options->exported);
    if (!options->exported) wrong("-x %s: no memory", name);
    options->exported[options->nexported++] = name;
}

void run_options_parse(struct options *options, int argc, char **argv)
{
    enum {
        BIND = 256,
        TAG,
        PORT,
        TIMEOUT,
        GRACE,
        HOSTS,
        HOSTFILE,
        RSH,
        ADDR,
        SERVE,
        FIRST,
        ANNOUNCE
    };
    static const struct option names[] = {{"ranks", required_argument, NULL, 'n'},
                                          {"bind", required_argument, NULL, BIND},
                                          {"tag-output", no_argument, NULL, TAG},
                                          {"master-port", required_argument, NULL, PORT},
                                          {"timeout", required_argument, NULL, TIMEOUT},
                                          {"grace", required_argument, NULL, GRACE},
                                          {"hosts", required_argument, NULL, HOSTS},
                                          {"hostfile", required_argument, NULL, HOSTFILE},
                                          {"rsh", required_argument, NULL, RSH},
                                          {"master-addr", required_argument, NULL, ADDR},
                                          {"serve", no_argument, NULL, SERVE},
                                          {"first-rank", required_argument, NULL, FIRST},
                                          {"announce", no_argument, NULL, ANNOUNCE},
                                          {"help", no_argument, NULL, 'h'},
                                          {"version", no_argument, NULL, 'V'},
                                          {0}};
    *options = (struct options){
        .bind = true,
        .grace_ms = 5000,
        .rsh = "ssh -T -o BatchMode=yes -o ServerAliveInterval=15 -o ServerAliveCountMax=4"};
    int c;
    optind = 0; /* a server parses a second time */
    while ((c = getopt_long(argc, argv, "+n:x:hV", names, NULL)) != -1) {
        switch (c) {
        case 'n':
            options->nranks =
                number(optarg, 1, RUN_MAX_RANKS, "-n %s: the ranks must be a number, 1 to 4096");
            break;
        case BIND:
            options->bind = options->bind_asked = !strcmp(optarg, "core");
            if (!options->bind && strcmp(optarg, "none") != 0)
                wrong("--bind %s: it must be core or none", optarg);
            break;
        case TAG:
            options->tag_output = true;
            break;
        case PORT:
            options->master_port =
                number(optarg, 1, 65535, "--master-port %s: a port is a number, 1 to 65535");
            break;
        case TIMEOUT:
            options->timeout_ms = seconds(optarg, "--timeout %s: it must be a number of seconds");
            break;
        case GRACE:
            options->grace_ms = seconds(optarg, "--grace %s: it must be a number of seconds");
            break;
        case HOSTS:
            options->hosts = optarg;
            break;
        case HOSTFILE:
            options->hostfile = optarg;
            break;
        case RSH:
            options->rsh = optarg;
            break;
        case ADDR:
            options->master_addr = optarg;
            break;
        case 'x':
            export(options, optarg, argc);
            break;
        case SERVE:
            options->serve = true;
            return; /* the rest comes on stdin */
        case FIRST:
            options->first_rank = number(optarg, 0, RUN_MAX_RANKS, "--first-rank %s");
            break;
        case ANNOUNCE:
            options->announce = true;
            break;
        case 'h':
            fputs(help, stdout);
            exit(0);
        case 'V':
            printf("tutti-run (tutti) %d.%d.%d\n", TUTTI_MAJOR, TUTTI_MINOR, TUTTI_PATCH);
            exit(0);
        default:
            fputs("Try 'tutti-run --help'.\n", stderr);
            exit(EXIT_USAGE);
        }
    }
    if (optind >= argc) wrong("%s", "which program? None was given.");
    options->command = argv + optind;
    if (options->hosts && options->hostfile) wrong("%s", "--hosts or --hostfile, not both");
    if (options->hosts || options->hostfile) return; /* their numbers of ranks come with them */
    if (!options->nranks) options->nranks = run_count_cores();
    if (options->nranks > RUN_MAX_RANKS) options->nranks = RUN_MAX_RANKS;
}
