/* Opens and closes the ranks of this process, and the exchanges between all ranks: barriers, sums,
 * gathered texts. */
#include "common/ranks.h"

#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "common/buffers.h"

void perf_make_room(int nlocal)
{
    enum { OF_A_RANK = 8, OF_THE_REST = 512 };
    struct rlimit limit;
    rlim_t wanted = (rlim_t)nlocal * OF_A_RANK + OF_THE_REST;
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= wanted) return;
    limit.rlim_cur = wanted < limit.rlim_max ? wanted : limit.rlim_max;
    (void)setrlimit(RLIMIT_NOFILE, &limit); /* without it an init fails, and says why */
}

/* ---- Control between the ranks -----------------------------------------------------------------
 */

tuttiResult_t perf_worker_barrier(struct perf_worker *worker)
{
    tuttiResult_t result = tuttiSuccess;
    PERF_TRY(tuttiGroupStart());
    for (int i = 0; i < worker->nranks && result == tuttiSuccess; i++) {
        result = tuttiBarrier(worker->ranks[i].control, NULL);
    }
    return perf_group_end(&perf_tutti, result);
}

tuttiResult_t perf_worker_wait(struct perf_worker *worker)
{
    for (int i = 0; i < worker->nranks; i++) {
        const struct perf_rank *rank = &worker->ranks[i];
        PERF_TRY(worker->run->options->library->wait(rank->comm, &rank->gpu, rank->stream));
    }
    return tuttiSuccess;
}

static void stamp(void *at)
{
    *(double *)at = perf_now();
}

tuttiResult_t perf_worker_stamp(struct perf_worker *worker, int iteration, int end)
{
    if (worker->stamps == NULL) return tuttiSuccess;
    int iterations = worker->run->options->iterations;
    for (int i = 0; i < worker->nranks; i++) {
        const struct perf_rank *rank = &worker->ranks[i];
        double *at = &worker->stamps[2 * (i * iterations + iteration) + end];
        if (rank->stream == NULL) {
            stamp(at);
        } else if (rank->events != NULL) {
            PERF_TRY(perf_gpu_event_record(&rank->gpu, rank->events[2 * iteration + end]));
        } else {
            PERF_TRY(tuttiStreamLaunch(rank->stream, stamp, at));
        }
    }
    return tuttiSuccess;
}

tuttiResult_t perf_worker_durations(struct perf_worker *worker)
{
    int iterations = worker->run->options->iterations;
    for (int i = 0; i < worker->nranks * iterations; i++) {
        const struct perf_rank *rank = &worker->ranks[i / iterations];
        double *duration = &worker->stamps[i];
        if (rank->events == NULL) {
            *duration = worker->stamps[2 * i + 1] - worker->stamps[2 * i];
        } else {
            void **events = &rank->events[2 * (i % iterations)];
            PERF_TRY(perf_gpu_event_seconds(&rank->gpu, events[0], events[1], duration));
        }
    }
    return tuttiSuccess;
}

/* Reduces `bits`, a value of 8 bytes. */
static tuttiResult_t reduce(struct perf_worker *worker, uint64_t *bits, tuttiDataType_t type,
                            tuttiRedOp_t op)
{
    /* in a sum a worker counts once; all bits 0 is 0 in both types */
    for (int i = 0; i < worker->nranks; i++)
        worker->control[i] = op == tuttiSum && i > 0 ? 0 : *bits;
    tuttiResult_t result = tuttiSuccess;
    PERF_TRY(tuttiGroupStart());
    for (int i = 0; i < worker->nranks && result == tuttiSuccess; i++) {
        uint64_t *value = &worker->control[i];
        result = tuttiAllReduce(value, value, 1, type, op, worker->ranks[i].control, NULL);
    }
    PERF_TRY(perf_group_end(&perf_tutti, result));
    *bits = worker->control[0];
    return tuttiSuccess;
}

tuttiResult_t perf_worker_reduce_number(struct perf_worker *worker, double *value, tuttiRedOp_t op)
{
    uint64_t bits;
    memcpy(&bits, value, sizeof(bits));
    PERF_TRY(reduce(worker, &bits, tuttiFloat64, op));
    memcpy(value, &bits, sizeof(bits));
    return tuttiSuccess;
}

tuttiResult_t perf_worker_reduce_integer(struct perf_worker *worker, int64_t *value,
                                         tuttiRedOp_t op)
{
    uint64_t bits = (uint64_t)*value;
    PERF_TRY(reduce(worker, &bits, tuttiInt64, op));
    *value = (int64_t)bits;
    return tuttiSuccess;
}

tuttiResult_t perf_worker_gather(struct perf_worker *worker, const void *own, void *all,
                                 size_t nbytes)
{
    size_t total = nbytes * (size_t)worker->run->nranks;
    unsigned char *others = NULL; /* the same again for the other ranks of this thread */
    if (worker->nranks > 1) {
        others = malloc(total * (size_t)(worker->nranks - 1));
        if (others == NULL) return tuttiSystemError;
    }
    tuttiResult_t result = tuttiGroupStart();
    for (int i = 0; i < worker->nranks && result == tuttiSuccess; i++) {
        const unsigned char *from = (const unsigned char *)own + (size_t)i * nbytes;
        void *to = i == 0 ? all : others + total * (size_t)(i - 1);
        result = tuttiAllGather(from, to, nbytes, tuttiUint8, worker->ranks[i].control, NULL);
    }
    result = perf_group_end(&perf_tutti, result);
    free(others);
    return result;
}

/* ---- The machine -------------------------------------------------------------------------------
 */

size_t perf_resident_bytes(void)
{
    FILE *file = fopen("/proc/self/statm", "r");
    if (file == NULL) return 0;
    size_t total = 0;
    size_t resident = 0;
    if (fscanf(file, "%zu %zu", &total, &resident) != 2) resident = 0;
    fclose(file);
    return resident * (size_t)sysconf(_SC_PAGESIZE);
}

/* "0-3,8", cut off where it does not fit. */
static void describe_affinity(char *to, size_t nbytes)
{
    cpu_set_t set;
    to[0] = '\0';
    if (sched_getaffinity(0, sizeof(set), &set) != 0) return;
    size_t used = 0;
    for (size_t cpu = 0; cpu < CPU_SETSIZE; cpu++) {
        if (!CPU_ISSET(cpu, &set)) continue;
        size_t last = cpu;
        while (last + 1 < CPU_SETSIZE && CPU_ISSET(last + 1, &set)) last++;
        const char *comma = used > 0 ? "," : "";
        int length = cpu == last
                         ? snprintf(to + used, nbytes - used, "%s%zu", comma, cpu)
                         : snprintf(to + used, nbytes - used, "%s%zu-%zu", comma, cpu, last);
        if (length < 0 || (size_t)length >= nbytes - used) return;
        used += (size_t)length;
        cpu = last;
    }
}

static void describe_model(char *to, size_t nbytes)
{
    static const char field[] = "model name";
    snprintf(to, nbytes, "host");
    FILE *file = fopen("/proc/cpuinfo", "r");
    if (file == NULL) return;
    char line[256];
    while (fgets(line, sizeof(line), file) != NULL) {
        char *colon = strchr(line, ':');
        if (colon == NULL || strncmp(line, field, sizeof(field) - 1) != 0) continue;
        colon[strcspn(colon, "\n")] = '\0';
        snprintf(to, nbytes, "%s", colon + 1 + strspn(colon + 1, " "));
        break;
    }
    fclose(file);
}

static void describe(const struct perf_worker *worker, const struct perf_rank *rank,
                     struct perf_device *device)
{
    *device = (struct perf_device){
        .rank = rank->rank, .group = worker->run->process, .pid = (int)getpid()};
    if (tuttiCommDevice(rank->control, &device->device) != tuttiSuccess) device->device = -1;
    if (gethostname(device->host, sizeof(device->host)) != 0) strcpy(device->host, "?");
    device->host[sizeof(device->host) - 1] = '\0';
    if (worker->run->options->on_gpus) {
        device->device = rank->gpu.number;
        perf_gpu_describe(rank->gpu.number, device->model, sizeof(device->model), device->place,
                          sizeof(device->place));
    } else {
        describe_affinity(device->place, sizeof(device->place));
        describe_model(device->model, sizeof(device->model));
    }
}

/* Tells every worker what all ranks are. */
static tuttiResult_t meet(struct perf_worker *worker)
{
    struct perf_device *own = calloc((size_t)worker->nranks, sizeof(*own));
    if (own == NULL) return tuttiSystemError;
    for (int i = 0; i < worker->nranks; i++) describe(worker, &worker->ranks[i], &own[i]);
    tuttiResult_t result = perf_worker_gather(worker, own, worker->devices, sizeof(*own));
    free(own);
    PERF_TRY(result);

    worker->one_host = true;
    for (int i = 1; i < worker->run->nranks; i++) {
        if (strcmp(worker->devices[i].host, worker->devices[0].host) != 0) worker->one_host = false;
    }
    return tuttiSuccess;
}

/* ---- Workers -----------------------------------------------------------------------------------
 */

/* The GPU of the local-th rank of this process. */
static int gpu_of(const struct perf_run *run, int local)
{
    return (run->local_process * run->nlocal + local) % run->ngpus;
}

tuttiResult_t perf_run_join(struct perf_run *run, int first, int number)
{
    const struct perf_library *library = run->options->library;
    tuttiResult_t result = tuttiSuccess;
    PERF_TRY(library->group_start());
    for (int i = first; i < first + number && result == tuttiSuccess; i++) {
        tuttiConfig_t config = run->config;
        if (run->options->on_gpus) config.device = gpu_of(run, i);
        int rank = run->process * run->nlocal + i;
        result = library->init_rank(&run->comms[i], run->nranks, run->id, rank, &config);
    }
    return perf_group_end(library, result);
}

static bool allocate(struct perf_worker *worker)
{
    const struct perf_run *run = worker->run;
    size_t nranks = (size_t)worker->nranks;
    size_t stamps = 2 * nranks * (size_t)run->options->iterations;
    worker->ranks = calloc(nranks, sizeof(*worker->ranks));
    worker->calls = calloc(nranks, sizeof(*worker->calls));
    worker->counts = calloc(2 * nranks * (size_t)worker->run->nranks, sizeof(*worker->counts));
    worker->control = calloc(nranks, sizeof(*worker->control));
    worker->devices = calloc((size_t)run->nranks, sizeof(*worker->devices));
    worker->chunk = malloc(PERF_CHUNK_BYTES);
    worker->staging = malloc(PERF_CHUNK_BYTES);
    if (run->options->per_iteration) worker->stamps = calloc(stamps, sizeof(*worker->stamps));
    return worker->ranks != NULL && worker->calls != NULL && worker->counts != NULL &&
           worker->control != NULL && worker->devices != NULL && worker->chunk != NULL &&
           worker->staging != NULL && (worker->stamps != NULL || !run->options->per_iteration);
}

/* With -I: the stream's start and end of every iteration. */
static tuttiResult_t open_events(const struct perf_worker *worker, struct perf_rank *rank)
{
    int nevents = 2 * worker->run->options->iterations;
    rank->events = calloc((size_t)nevents, sizeof(*rank->events));
    if (rank->events == NULL) return tuttiSystemError;
    for (int i = 0; i < nevents; i++) {
        PERF_TRY(perf_gpu_event_create(&rank->gpu, &rank->events[i]));
    }
    return tuttiSuccess;
}

static tuttiResult_t open_stream(const struct perf_worker *worker, struct perf_rank *rank,
                                 int local)
{
    const struct perf_run *run = worker->run;
    const struct perf_options *options = run->options;
    if (options->on_gpus) PERF_TRY(perf_gpu_open(&rank->gpu, gpu_of(run, local)));
    if (!options->own_streams) return tuttiSuccess;
    if (!options->on_gpus) return tuttiStreamCreate(&rank->stream);
    PERF_TRY(options->library->stream_of_gpu(&rank->stream, rank->gpu.number, rank->gpu.stream));
    return options->per_iteration ? open_events(worker, rank) : tuttiSuccess;
}

static void close_stream(const struct perf_worker *worker, struct perf_rank *rank)
{
    for (int i = 0; rank->events != NULL && i < 2 * worker->run->options->iterations; i++) {
        perf_gpu_event_destroy(&rank->gpu, rank->events[i]);
    }
    free(rank->events);
    perf_gpu_graph_destroy(&rank->gpu, rank->graph);
    perf_gpu_close(&rank->gpu);
}

tuttiResult_t perf_worker_open(struct perf_worker *worker)
{
    struct perf_run *run = worker->run;
    const struct perf_options *options = run->options;
    worker->nranks = options->ranks_per_thread;
    worker->seed = options->seed;
    worker->bandwidth_enough = true;
    if (!allocate(worker)) {
        snprintf(worker->error, sizeof(worker->error), "no memory for %d ranks", worker->nranks);
        return tuttiSystemError;
    }
    int first = worker->thread * worker->nranks;
    tuttiResult_t result = tuttiSuccess;
    if (options->parallel_init) {
        double start = perf_now();
        result = perf_run_join(run, first, worker->nranks);
        if (worker->thread == 0) run->init_seconds = perf_now() - start;
    }
    for (int i = 0; i < worker->nranks; i++) {
        worker->ranks[i].rank = run->process * run->nlocal + first + i;
        worker->ranks[i].comm = run->comms[first + i];
        worker->ranks[i].control = (run->controls != NULL ? run->controls : run->comms)[first + i];
    }
    PERF_TRY(result);
    for (int i = 0; i < worker->nranks; i++) {
        PERF_TRY(open_stream(worker, &worker->ranks[i], first + i));
        PERF_TRY(perf_buffers_open(worker, &worker->ranks[i]));
    }
    worker->resident_before_rows = perf_resident_bytes();
    return meet(worker);
}

static void close_rank(struct perf_worker *worker, struct perf_rank *rank)
{
    const struct perf_library *library = worker->run->options->library;
    bool failed = worker->status != tuttiSuccess;
    if (failed && rank->comm != NULL) (void)library->abort(rank->comm);
    (void)library->destroy_stream(rank->stream);
    for (int i = 0; i < 2 && !failed; i++) {
        if (rank->handle[i] != NULL) (void)library->deregister_memory(rank->comm, rank->handle[i]);
    }
    if (!failed) (void)library->destroy(rank->comm);
    if (rank->control == rank->comm) return;
    (void)(failed ? tuttiCommAbort : tuttiCommDestroy)(rank->control);
}

void perf_worker_close(struct perf_worker *worker)
{
    for (int i = 0; worker->ranks != NULL && i < worker->nranks; i++) {
        close_rank(worker, &worker->ranks[i]);
    }
    for (int i = 0; worker->ranks != NULL && i < worker->nranks; i++) {
        perf_buffers_close(worker, &worker->ranks[i]);
        close_stream(worker, &worker->ranks[i]);
    }
    free(worker->ranks);
    free(worker->calls);
    free(worker->counts);
    free(worker->control);
    free(worker->devices);
    free(worker->stamps);
    free(worker->chunk);
    free(worker->staging);
}
