/* tutti-plan cost: checks what is asked for, and prints what the models of walk.c and staged.c say.
 */
#include "cost/cost.h"

#include <stdlib.h>
#include <string.h>

#include "base/config.h"
#include "base/hosts.h"
#include "cost/staged.h"
#include "cost/walk.h"

/* MOST_RANKS: of kernels between hosts. */
enum { MOST_GPUS = 64, MOST_RANKS = 128, MOST_BLOCKS = 64, LEAST_BLOCKS = 2 };
static const char *const INSIDE_HOSTS = "nvlink4";
static const size_t MOST_BYTES = (size_t)64 << 30; /* each round is walked: seconds */

/* A request that was understood. */
struct subject {
    const struct cost_request *request;
    enum tt_collective collective;
    const struct tt_algorithm *algorithm; /* NULL: the library chooses */
    const struct cost_link *link;         /* as asked for */
    int nblocks;
    size_t nbytes;
};

void cost_links(char *text, size_t size)
{
    const struct cost_link *link;
    size_t used = 0;
    if (size) text[0] = '\0';
    for (int i = 0; (link = cost_link_at(i)) != NULL && used < size; i++) {
        const int length = snprintf(text + used, size - used, "%s%s", i ? ", " : "", link->name);
        used += length > 0 ? (size_t)length : 0;
    }
}

/* ---- What is asked for ---------------------------------------------------------------------- */

static bool find_name(struct subject *subject, char *problem)
{
    const char *name = subject->request->name, *colon = strchr(name, ':');
    const size_t length = colon ? (size_t)(colon - name) : strlen(name);
    int i = 0;
    while (i < TT_NCOLLECTIVES &&
           (strlen(tt_collective_name((enum tt_collective)i)) != length ||
            strncmp(tt_collective_name((enum tt_collective)i), name, length)))
        i++;
    if (i == TT_NCOLLECTIVES) {
        snprintf(problem, COST_PROBLEM,
                 "there is no such collective (see tutti-plan list): '%.200s'", name);
        return false;
    }
    subject->collective = (enum tt_collective)i;
    if (!colon) return true;
    subject->algorithm = tt_algorithm_find(subject->collective, colon + 1);
    if (subject->algorithm) return true;
    char names[512];
    tt_algorithm_names(subject->collective, names, sizeof names);
    snprintf(problem, COST_PROBLEM, "%s has no algorithm '%.200s': there are %s",
             tt_collective_name(subject->collective), colon + 1, names);
    return false;
}

static bool find_link(struct subject *subject, char *problem)
{
    const struct cost_request *request = subject->request;
    const char *asked = request->link;
    char names[256];
    cost_links(names, sizeof names);
    subject->link = cost_link_find(asked);
    if (!subject->link)
        snprintf(problem, COST_PROBLEM, "--link takes one of %s, not '%.200s'", names, asked);
    else if (subject->link->hosts && !request->host_of)
        snprintf(problem, COST_PROBLEM,
                 "--link %s is between hosts, and all GPUs are on one: give --gpus 2x8, or another "
                 "of %s",
                 asked, names);
    else if (!subject->link->hosts && request->host_of)
        snprintf(problem, COST_PROBLEM,
                 "--link %s is inside a host: between hosts --link takes tcp, rdma or dmabuf",
                 asked);
    else if (request->staged && !request->host_of)
        snprintf(problem, COST_PROBLEM,
                 "--staged is of several hosts, and all GPUs are on one: give --gpus 2x8");
    else if (request->staged && subject->link->direct)
        snprintf(problem, COST_PROBLEM,
                 "--staged goes through memory of the host, where --link %s does not differ from "
                 "rdma: give --link rdma",
                 asked);
    else
        return true;
    return false;
}

/* GPUs of the largest host. */
static int most_of_a_host(const struct cost_request *request)
{
    int most = 0;
    for (int r = 0; r < request->nranks; r++) {
        int n = 0;
        for (int i = 0; i < request->nranks; i++)
            n += !request->host_of || request->host_of[i] == request->host_of[r];
        if (n > most) most = n;
    }
    return most;
}

static bool check_gpus(const struct cost_request *request, char *problem)
{
    const int most = most_of_a_host(request);
    if (request->staged) return true;
    if (most > MOST_GPUS)
        snprintf(problem, COST_PROBLEM,
                 "--gpus %d: the model takes at most %d GPUs of a host, or hosts, as in 2x8", most,
                 MOST_GPUS);
    else if (request->host_of && request->nranks > MOST_RANKS)
        snprintf(problem, COST_PROBLEM,
                 "--gpus %d: kernels between hosts take at most %d GPUs: give --staged",
                 request->nranks, MOST_RANKS);
    else
        return true;
    return false;
}

static bool check_numbers(struct subject *subject, char *problem)
{
    const struct cost_request *request = subject->request;
    subject->nblocks =
        request->nblocks ? request->nblocks : (int)tt_config_int(TT_CONFIG_DEVICE_CHANNELS);
    const size_t least = 4 * (size_t)tt_collective_counts(subject->collective, request->nranks);
    subject->nbytes = request->nbytes;
    if (!check_gpus(request, problem)) return false;
    if (request->staged && request->nblocks)
        snprintf(problem, COST_PROBLEM,
                 "--blocks is of kernels, and --staged calls have none: leave one of them out");
    else if (subject->nblocks < LEAST_BLOCKS || subject->nblocks > MOST_BLOCKS)
        snprintf(problem, COST_PROBLEM, "--blocks takes a number from %d to %d, not '%d'",
                 LEAST_BLOCKS, MOST_BLOCKS, subject->nblocks);
    else if (subject->nbytes < least)
        snprintf(problem, COST_PROBLEM,
                 "--bytes %zu: %s over %d GPUs has at least %zu bytes, 4 for each element",
                 subject->nbytes, tt_collective_name(subject->collective), request->nranks, least);
    else if (subject->nbytes > MOST_BYTES)
        snprintf(problem, COST_PROBLEM, "--bytes %zu: the model takes at most 64G",
                 subject->nbytes);
    else
        return true;
    return false;
}

/* ---- Constants ------------------------------------------------------------------------------ */

static void print_constant(FILE *out, const struct cost_constant *constant)
{
    if (!constant->name) return;
    fprintf(out, "  %-14s %8g %-5s %-9s  %s\n", constant->name, constant->value, constant->unit,
            cost_kind_name(constant->kind), constant->source);
}

static void print_range(FILE *out, enum cost_key first, enum cost_key last)
{
    for (int i = (int)first; i <= (int)last; i++) print_constant(out, &cost_constants[i]);
}

static void print_link(FILE *out, const struct cost_link *link)
{
    for (int i = 0; i < COST_NLINK_KEYS; i++) print_constant(out, &link->at[i]);
}

static void print_heading(FILE *out, const char *more)
{
    fprintf(out,
            "constants (measured: on one H100, docs/cuda-measured.md; fitted: to all-reduces "
            "measured there%s):\n",
            more);
}

/* ---- Kernels -------------------------------------------------------------------------------- */

static void print_bandwidth(FILE *out, const struct subject *subject, double us)
{
    const double algorithm = (double)subject->nbytes / us / 1e3;
    fprintf(out, "time %.1f us, algorithm bandwidth %.2f GB/s, bus bandwidth %.2f GB/s\n", us,
            algorithm, algorithm * cost_bus_factor(subject->collective, subject->request->nranks));
}

/* What bounds most of a step's time to move data. */
static const char *limit_name(const struct cost_step *step)
{
    static const char *const names[] = {[COST_BY_BLOCK] = "block",
                                        [COST_BY_LINK] = "link",
                                        [COST_BY_MEMORY] = "memory",
                                        [COST_BY_HOST] = "PCIe"};
    int most = 0;
    for (int i = 1; i < COST_NLIMITS; i++)
        if (step->limit_us[i] > step->limit_us[most]) most = i;
    return step->data_us > 0 ? names[most] : "-";
}

static void print_step(FILE *out, const struct cost_call *call, const struct cost_walk *walk,
                       const struct cost_step *step)
{
    const struct tt_shape shape = {.collective = call->algorithm->collective,
                                   .nranks = call->nranks,
                                   .root = call->root,
                                   .hosts = call->hosts};
    struct tt_step of = {.kind = TT_STEP_LINK};
    char text[256];
    tt_step(call->algorithm, &shape, walk->rank, walk->channel, step->index, &of);
    tt_step_print(&of, &shape, tt_nblocks(call->algorithm, &shape), text, sizeof text);
    fprintf(out, "%4d %9.1f %9.1f %9.1f %9.1f %9.1f  %-6s %8llu %6llu %12.0f", step->index,
            step->wait_us + step->fixed_us + step->fence_us + step->data_us, step->wait_us,
            step->fixed_us, step->fence_us, step->data_us, limit_name(step), step->messages,
            step->fences, step->over_link);
    if (call->hosts) fprintf(out, " %12.0f", step->over_net);
    fprintf(out, "  %s\n", text);
}

static void print_title(FILE *out, const struct subject *subject, const struct cost_call *call)
{
    fprintf(out, "%s:%s of %zu bytes on %d ", tt_collective_name(subject->collective),
            call->algorithm->name, subject->nbytes, call->nranks);
    if (call->hosts)
        fprintf(out, "GPUs of %d hosts over %s", call->hosts->nhosts, call->between->name);
    else if (call->link->shared)
        fprintf(out, "ranks that share one GPU");
    else
        fprintf(out, "GPUs over %s", call->link->name);
    fprintf(out, ": a model, not a measurement\n");
    if (call->hosts)
        fprintf(out,
                "kernels, inside a host over %s; between hosts a proxy for each GPU moves messages "
                "%s\n",
                call->link->name,
                call->between->direct
                    ? "that network devices load from, and store to, memory of GPUs"
                    : "through slots in pinned memory");
}

static void print_part(FILE *out, const char *what, double us, const struct cost_walk *walk)
{
    if (us > 0)
        fprintf(out, "the %s takes %.1f us, %.0f %% of the time\n", what, us, 100 * us / walk->us);
}

/* Most bytes that the ranks of a host send to others. */
static double most_sent(const struct cost_call *call, const struct cost_walk *walk)
{
    double most = 0;
    for (int h = 0; h < call->hosts->nhosts; h++) {
        double sum = 0;
        for (int i = call->hosts->begin[h]; i < call->hosts->begin[h + 1]; i++)
            sum += walk->busy[call->hosts->ranks[i]].net_bytes;
        if (sum > most) most = sum;
    }
    return most;
}

static void print_walk(FILE *out, const struct subject *subject, const struct cost_call *call,
                       const struct cost_walk *walk)
{
    print_title(out, subject, call);
    fprintf(out,
            "%d blocks of %d threads a rank, %zu rounds; messages as %s, %d of %zu bytes a link; "
            "%g bytes of a thread on their way\n",
            walk->nblocks, call->nthreads, walk->nrounds, walk->lines ? "lines" : "slots",
            walk->nslots, walk->lines ? walk->line_bytes : walk->slot_bytes,
            cost_constants[walk->lines ? COST_LINES_IN_FLIGHT : COST_SLOTS_IN_FLIGHT].value);
    fprintf(out,
            "one block of rank %d, which ends last; us of all rounds; over link%s: bytes of all "
            "its blocks\n",
            walk->rank, call->hosts ? ", to hosts" : "");
    fprintf(out, "%4s %9s %9s %9s %9s %9s  %-6s %8s %6s %12s", "step", "us", "wait", "fixed",
            "fence", "data", "bound", "messages", "fences", "over link");
    fprintf(out, call->hosts ? " %12s  what\n" : "%s  what\n", call->hosts ? "to hosts" : "");
    for (int i = 0; i < walk->nsteps; i++) print_step(out, call, walk, &walk->steps[i]);
    fprintf(out, "call %9.1f\n", walk->call_us);
    print_bandwidth(out, subject, walk->us);
    print_part(out, "link alone", walk->link_us, walk);
    if (call->hosts) {
        print_part(out, "network alone", walk->net_us, walk);
        print_part(out, "busiest proxy alone", walk->proxy_us, walk);
        fprintf(out, "a host sends %.0f bytes to others\n", most_sent(call, walk));
    }
    print_heading(out, call->hosts ? "; of proxies and TCP: on another machine's processor, "
                                     "tests/carrier/bridge_times.c"
                                   : "");
    print_range(out, COST_CALL, COST_STORE);
    print_link(out, call->link);
    if (!call->hosts) return;
    print_range(out, COST_HOST_FLAG, COST_PROXY_COPY);
    print_link(out, call->between);
}

static tt_status walk_kernels(const struct subject *subject, FILE *out,
                              const struct tt_hosts *hosts)
{
    const int nranks = subject->request->nranks;
    const struct tt_shape shape = {
        .collective = subject->collective, .nranks = nranks, .hosts = hosts};
    const struct cost_link *between = hosts ? subject->link : NULL;
    const struct tt_setting setting = cost_setting(nranks, subject->nblocks, between, hosts);
    const struct cost_call call = {.algorithm = subject->algorithm
                                                    ? subject->algorithm
                                                    : tt_choose(&shape, &setting, subject->nbytes),
                                   .link = hosts ? cost_link_find(INSIDE_HOSTS) : subject->link,
                                   .between = between,
                                   .hosts = hosts,
                                   .nranks = nranks,
                                   .nblocks = subject->nblocks,
                                   .nthreads = (int)tt_config_int(TT_CONFIG_DEVICE_THREADS),
                                   .nbytes = subject->nbytes};
    struct cost_walk walk;
    if (hosts && tt_meets(call.algorithm))
        return tt_fail(TT_ERR_USAGE,
                       "%s:%s has ranks that meet, which kernels do not between hosts: give "
                       "another algorithm, or --staged",
                       tt_collective_name(subject->collective), call.algorithm->name);
    TT_TRY(cost_walk(&call, &walk));
    print_walk(out, subject, &call, &walk);
    cost_walk_free(&walk);
    return TT_OK;
}

/* ---- Hosts ---------------------------------------------------------------------------------- */

static void print_phase(FILE *out, double us, double nbytes, const char *what)
{
    fprintf(out, "%9.1f %12.0f  %s\n", us, nbytes, what);
}

static void print_staged(FILE *out, const struct subject *subject, const struct tt_hosts *hosts,
                         const struct cost_staged *staged)
{
    fprintf(out, "%s:%s of %zu bytes on %d GPUs of %d hosts over %s: a model, not a measurement\n",
            tt_collective_name(subject->collective), staged->algorithm->name, subject->nbytes,
            subject->request->nranks, hosts->nhosts, subject->link->name);
    fprintf(out,
            "staged, as with TUTTI_DEVICE_BRIDGES=0: copied to pinned memory, carried out by a "
            "thread of the CPU for each GPU, copied back; %s moves memory of the host\n",
            subject->link->each ? "RDMA" : "TCP");
    fprintf(out, "%9s %12s  %s\n", "us", "bytes", "what");
    print_phase(out, staged->in_us, staged->in_bytes, "copy to memory of the host");
    print_phase(out, staged->words_us, 0, "stream and thread tell one another");
    print_phase(out, staged->host_us, (double)subject->nbytes,
                "threads of the CPU: copies and folds (tutti-info --costs)");
    print_phase(out, staged->net_us, (double)subject->nbytes, "more for messages between hosts");
    print_phase(out, staged->out_us, staged->out_bytes, "copy to the GPU");
    print_bandwidth(out, subject, staged->us);
    print_heading(out, "");
    print_range(out, COST_COPY, COST_PINNED);
    print_link(out, subject->link);
}

static tt_status stage(const struct subject *subject, FILE *out, const struct tt_hosts *hosts)
{
    const struct cost_staged_call call = {.collective = subject->collective,
                                          .algorithm = subject->algorithm,
                                          .link = subject->link,
                                          .hosts = hosts,
                                          .nranks = subject->request->nranks,
                                          .nbytes = subject->nbytes};
    struct cost_staged staged;
    TT_TRY(cost_staged(&call, &staged));
    print_staged(out, subject, hosts, &staged);
    return TT_OK;
}

static tt_status print_on(const struct subject *subject, FILE *out, const uint64_t *ids)
{
    struct tt_hosts *hosts;
    TT_TRY(tt_hosts_create(ids, subject->request->nranks, &hosts));
    const tt_status status = (subject->request->staged ? stage : walk_kernels)(subject, out, hosts);
    tt_hosts_destroy(hosts);
    return status;
}

static tt_status print_hosts(const struct subject *subject, FILE *out)
{
    const int nranks = subject->request->nranks;
    uint64_t *ids = calloc((size_t)nranks, sizeof *ids);
    for (int r = 0; r < nranks && ids; r++) ids[r] = (uint64_t)subject->request->host_of[r];
    const tt_status status = ids ? print_on(subject, out, ids)
                                 : tt_fail(TT_ERR_SYSTEM, "out of memory for %d GPUs", nranks);
    free(ids);
    return status;
}

bool cost_print(const struct cost_request *request, FILE *out, char problem[COST_PROBLEM])
{
    struct subject subject = {.request = request};
    if (!find_name(&subject, problem) || !find_link(&subject, problem) ||
        !check_numbers(&subject, problem))
        return false;
    const tt_status status =
        request->host_of ? print_hosts(&subject, out) : walk_kernels(&subject, out, NULL);
    if (status) snprintf(problem, COST_PROBLEM, "%s", tt_last_error());
    return !status;
}
