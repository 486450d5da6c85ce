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
    "Runs the program once for every rank on this host, with torchrun's variables set.\n"
    "\n"
    "  -n, --ranks N          ranks to start (default: one a core)\n"
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

void run_options_parse(struct options *options, int argc, char **argv)
{
    enum { BIND = 256, TAG, PORT, TIMEOUT, GRACE };
    static const struct option names[] = {{"ranks", required_argument, NULL, 'n'},
                                          {"bind", required_argument, NULL, BIND},
                                          {"tag-output", no_argument, NULL, TAG},
                                          {"master-port", required_argument, NULL, PORT},
                                          {"timeout", required_argument, NULL, TIMEOUT},
                                          {"grace", required_argument, NULL, GRACE},
                                          {"help", no_argument, NULL, 'h'},
                                          {"version", no_argument, NULL, 'V'},
                                          {0}};
    *options = (struct options){.bind = true, .grace_ms = 5000};
    int c;
    while ((c = getopt_long(argc, argv, "+n:hV", names, NULL)) != -1) {
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
    if (optind == argc) wrong("%s", "which program? None was given.");
    options->command = argv + optind;
    if (!options->nranks) options->nranks = run_count_cores();
    if (options->nranks > RUN_MAX_RANKS) options->nranks = RUN_MAX_RANKS;
}
