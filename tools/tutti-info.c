/* tutti-info: what tutti found here and what it will use. */
#include <getopt.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "escape.h"
#include "programs/streams.h"
#include "tutti.h"

static const char usage[] =
    "usage: tutti-info [OPTION]...\n"
    "Shows the version, the CPU features in use, the topology, the GPUs, the links between ranks,\n"
    "the costs and choices of algorithms, and the settings. With options, only what they name,\n"
    "without headings.\n"
    "Started by tutti-run or another launcher it shows the links of that job.\n"
    "\n"
    "  --cpu                   CPU features found and in use\n"
    "  --topology              packages, NUMA nodes, caches, cores and CPUs\n"
    "  --xml                   the topology as XML, for TUTTI_TOPOLOGY_FILE or lstopo\n"
    "  --gpus                  the GPUs that CUDA's driver finds\n"
    "  --links                 how ranks reach each other\n"
    "  --costs                 the cost model and the algorithms chosen from it\n"
    "  --config                every setting: value, where it came from, what it does\n"
    "  --config-markdown       the settings as a Markdown table\n"
    "  --nccl-env              lets NCCL's variables count, as libnccl.so.2 does, and lists them:\n"
    "                          which setting each sets, or why it has no effect\n"
    "  --topology-file FILE    use FILE (hwloc XML) as the topology, as TUTTI_TOPOLOGY_FILE does\n"
    "  --version               print the version and exit\n"
    "  --help                  print this and exit\n";

static const struct {
    const char *option, *heading; /* no heading: shown only when asked for */
    tuttiDescribe_t what;
} sections[] = {
    {"cpu", "CPU", tuttiDescribeCpu},
    {"topology", "Topology", tuttiDescribeTopology},
    {"xml", NULL, tuttiDescribeTopologyXml},
    {"gpus", "GPUs", tuttiDescribeGpus},
    {"links", "Links", tuttiDescribeLinks},
    {"costs", "Costs and choices", tuttiDescribeCosts},
    {"config", "Config", tuttiDescribeConfig},
    {"config-markdown", NULL, tuttiDescribeConfigMarkdown},
    {"nccl-env", NULL, tuttiDescribeNcclSettings},
};
enum { NSECTIONS = sizeof sections / sizeof *sections, TOPOLOGY_FILE = NSECTIONS, VERSION, HELP };

static void print_line(void *arg, const char *line)
{
    printf("%s%s\n", (const char *)arg, line);
}

static tuttiResult_t report(const char *section, tuttiResult_t result)
{
    if (result != tuttiSuccess) {
        fflush(stdout);
        fprintf(stderr, "tutti-info: %s: %s: %s\n", section, tuttiGetErrorString(result),
                tuttiGetLastError(NULL));
    }
    return result;
}

/* Before the library reads its settings. */
static void want(bool *section, tuttiDescribe_t what)
{
    *section = true;
    if (what == tuttiDescribeNcclSettings) (void)tuttiUseNcclSettings();
}

/* Two ranks in this process, to show how they reach each other. */
static tuttiResult_t show_local_links(char *indent)
{
    tuttiComm_t comms[2] = {NULL, NULL};
    tuttiResult_t result = tuttiCommInitAll(comms, 2, NULL);
    if (result != tuttiSuccess) return report("links", result);
    printf("%stwo ranks in this process:\n", indent);
    result = report("links", tuttiDescribe(tuttiDescribeLinks, comms[0], print_line, indent));
    for (int rank = 0; rank < 2; rank++) (void)tuttiCommDestroy(comms[rank]);
    return result;
}

/* Every rank of the launcher's job in turn. */
static tuttiResult_t show_job_links(char *indent)
{
    tuttiComm_t comm = NULL;
    int rank = 0, nranks = 0;
    tuttiResult_t result = tuttiCommInitEnv(&comm, NULL, NULL);
    if (result != tuttiSuccess) return report("links", result);
    result = tuttiCommUserRank(comm, &rank);
    if (result == tuttiSuccess) result = tuttiCommCount(comm, &nranks);
    if (result == tuttiSuccess) result = tuttiBarrier(comm, NULL); /* connects some of the hosts */
    for (int turn = 0; result == tuttiSuccess && turn < nranks; turn++) {
        if (turn == rank) {
            printf("%srank %d of %d:\n", indent, rank, nranks);
            result = tuttiDescribe(tuttiDescribeLinks, comm, print_line, indent);
            fflush(stdout);
        }
        if (result == tuttiSuccess) result = tuttiBarrier(comm, NULL);
    }
    (void)report("links", result);
    (void)tuttiCommDestroy(comm);
    return result;
}

static void print_version(void)
{
    int version = 0;
    (void)tuttiGetVersion(&version);
    printf("tutti-info %d.%d.%d\n", version / 10000, version / 100 % 100, version % 100);
}

/* This process among those that a launcher started. */
struct job {
    int rank, nranks, local_rank;
};

/* The first process of a job speaks for the host; links are each rank's own. */
static tuttiResult_t show_section(int section, bool with_heading, const struct job *job)
{
    char indent[] = "  ";
    if (!with_heading) indent[0] = '\0';
    if (with_heading && job->rank == 0) printf("\n%s\n", sections[section].heading);
    fflush(stdout);
    if (sections[section].what == tuttiDescribeLinks)
        return job->nranks > 1 ? show_job_links(indent) : show_local_links(indent);
    if (job->rank > 0) return tuttiSuccess;
    return report(sections[section].option,
                  tuttiDescribe(sections[section].what, NULL, print_line, indent));
}

static int show(const bool wanted[NSECTIONS])
{
    struct job job = {.nranks = 1};
    int status = 0;
    bool any = false;
    if (report("launcher", tuttiGetLauncher(&job.rank, &job.nranks, &job.local_rank)) !=
        tuttiSuccess)
        return 1;
    for (int i = 0; i < NSECTIONS; i++) any |= wanted[i];
    if (!any && job.rank == 0) print_version();
    for (int i = 0; i < NSECTIONS; i++) {
        const bool shown = any ? wanted[i] : sections[i].heading != NULL;
        if (shown && show_section(i, !any, &job) != tuttiSuccess) status = 1;
    }
    return status;
}

int main(int argc, char **argv)
{
    struct option options[NSECTIONS + 4] = {
        [TOPOLOGY_FILE] = {"topology-file", required_argument, NULL, TOPOLOGY_FILE},
        [VERSION] = {"version", no_argument, NULL, VERSION},
        [HELP] = {"help", no_argument, NULL, HELP},
    };
    bool wanted[NSECTIONS] = {false};
    streams_begin("tutti-info");
    for (int i = 0; i < NSECTIONS; i++)
        options[i] = (struct option){sections[i].option, no_argument, NULL, i};
    int option;
    while ((option = getopt_long(argc, argv, "h", options, NULL)) != -1) {
        if (option >= 0 && option < NSECTIONS)
            want(&wanted[option], sections[option].what);
        else if (option == TOPOLOGY_FILE)
            setenv("TUTTI_TOPOLOGY_FILE", optarg, 1);
        else if (option == VERSION)
            return print_version(), 0;
        else if (option == HELP || option == 'h')
            return fputs(usage, stdout), 0;
        else
            return fputs("try 'tutti-info --help'\n", stderr), 2;
    }
    if (optind < argc) {
        char shown[256];
        fprintf(stderr, "tutti-info: '%s' is no option; try 'tutti-info --help'\n",
                escape_controls(shown, sizeof shown, argv[optind]));
        return 2;
    }
    return show(wanted);
}
