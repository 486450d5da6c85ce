/* The run of a perf test: reads the options, starts the workers, and goes through types,
 * operations, roots and sizes. */
#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "common/bench.h"
#include "common/hogs.h"
#include "common/ranks.h"
#include "programs/streams.h"

enum exit_code { EXIT_RIGHT = 0, EXIT_WRONG = 1, EXIT_USAGE = 2 };

/* ---- What is run -------------------------------------------------------------------------------
 */

static struct perf_layout layout_of(const struct perf_run *run, const struct perf_type *type,
                                    size_t size)
{
    size_t type_bytes = type == NULL ? 1 : type->bytes;
    return perf_layout_of(run->collective, size, type_bytes, (size_t)run->options->align_bytes,
                          run->nranks);
}

static tuttiResult_t warm_up(struct perf_worker *worker, struct perf_row *row)
{
    const struct perf_options *options = worker->run->options;
    size_t size = options->min_bytes > 0 ? options->min_bytes : 1;
    for (; size <= options->max_bytes; size *= 2) {
        row->layout = layout_of(worker->run, row->type, size);
        PERF_TRY(perf_row_warm_up(worker, row, options->warmup));
        if (worker->run->collective->moves_nothing || size > options->max_bytes / 2) break;
    }
    return tuttiSuccess;
}

static tuttiResult_t run_sizes(struct perf_worker *worker, struct perf_row *row)
{
    const struct perf_options *options = worker->run->options;
    size_t size = options->min_bytes;
    do {
        row->layout = layout_of(worker->run, row->type, size);
        PERF_TRY(perf_row_run(worker, row));
    } while (!worker->run->collective->moves_nothing && perf_options_next_size(options, &size));
    return tuttiSuccess;
}

/* The operation's handle on every rank here. */
static tuttiResult_t make_op(struct perf_worker *worker, const struct perf_row *row)
{
    for (int i = 0; i < worker->nranks; i++) {
        struct perf_rank *rank = &worker->ranks[i];
        rank->op = row->op == NULL ? tuttiSum : row->op->op;
        if (row->op == NULL || row->op->kind != PERF_MULSUM) continue;
        uint64_t scalar;
        perf_mulsum_scalar(row->type, rank->rank, &scalar);
        PERF_TRY(worker->run->options->library->make_op(&rank->op, &scalar, row->type->type,
                                                        tuttiScalarHostImmediate, rank->comm));
    }
    return tuttiSuccess;
}

static tuttiResult_t destroy_op(struct perf_worker *worker, const struct perf_row *row)
{
    if (row->op == NULL || row->op->kind != PERF_MULSUM) return tuttiSuccess;
    for (int i = 0; i < worker->nranks; i++) {
        const struct perf_rank *rank = &worker->ranks[i];
        PERF_TRY(worker->run->options->library->destroy_op(rank->op, rank->comm));
    }
    return tuttiSuccess;
}

/* All sizes of a type, operation and root, as often as -N says. */
static tuttiResult_t run_rows(struct perf_worker *worker, struct perf_row *row)
{
    PERF_TRY(perf_worker_barrier(worker));
    PERF_TRY(make_op(worker, row));
    PERF_TRY(warm_up(worker, row));
    int cycles = worker->run->options->cycles;
    for (int cycle = 0; cycles == 0 || cycle < cycles; cycle++) PERF_TRY(run_sizes(worker, row));
    return destroy_op(worker, row);
}

static tuttiResult_t run_roots(struct perf_worker *worker, struct perf_row *row)
{
    const struct perf_run *run = worker->run;
    if (!run->collective->rooted) {
        row->root = -1;
        return run_rows(worker, row);
    }
    bool all = run->options->root == PERF_ALL;
    int first = all ? 0 : run->options->root;
    int last = all ? run->nranks - 1 : run->options->root;
    for (row->root = first; row->root <= last; row->root++) PERF_TRY(run_rows(worker, row));
    return tuttiSuccess;
}

static tuttiResult_t run_ops(struct perf_worker *worker, struct perf_row *row)
{
    const struct perf_run *run = worker->run;
    if (!run->collective->reduces) return run_roots(worker, row);

    for (int op = 0; op < PERF_NOPS; op++) {
        if (run->options->op != PERF_ALL && run->options->op != op) continue;
        if (!perf_op_supports(&perf_ops[op], row->type)) continue;
        if ((int)perf_ops[op].op >= run->options->library->nops) continue;
        row->op = &perf_ops[op];
        PERF_TRY(run_roots(worker, row));
    }
    return tuttiSuccess;
}

static tuttiResult_t run_types(struct perf_worker *worker)
{
    const struct perf_run *run = worker->run;
    struct perf_row row = {0};
    if (run->collective->moves_nothing) return run_roots(worker, &row);

    for (int type = 0; type < PERF_NTYPES; type++) {
        if (run->options->type != PERF_ALL && run->options->type != type) continue;
        if ((int)perf_types[type].type >= run->options->library->ntypes) continue;
        row.type = &perf_types[type];
        PERF_TRY(run_ops(worker, &row));
    }
    return tuttiSuccess;
}

/* ---- A worker ----------------------------------------------------------------------------------
 */

static tuttiResult_t measure_memory(struct perf_worker *worker, struct perf_memory *memory)
{
    const struct perf_run *run = worker->run;
    size_t buffers = 2 * run->buffer_bytes * (size_t)run->nlocal;
    size_t before = worker->resident_before_rows;
    size_t now = perf_resident_bytes();
    size_t at_start = run->resident_at_start + (run->options->on_gpus ? 0 : buffers);
    memory->initialization = before > at_start ? (double)(before - at_start) : 0;
    memory->buffers = (double)buffers;
    memory->collectives = now > before ? (double)(now - before) : 0;
    memory->communicators = 0;
    const struct perf_library *library = run->options->library;
    for (int i = 0; i < worker->nranks && library->counters != NULL; i++) {
        tuttiCounters_t counters;
        PERF_TRY(library->counters(worker->ranks[i].comm, &counters));
        memory->communicators += (double)counters.memoryBytes * run->options->threads;
    }
    PERF_TRY(perf_worker_reduce_number(worker, &memory->initialization, tuttiMax));
    PERF_TRY(perf_worker_reduce_number(worker, &memory->collectives, tuttiMax));
    return perf_worker_reduce_number(worker, &memory->communicators, tuttiMax);
}

/* Where the choice changes between the smallest size and the largest. */
static tuttiResult_t report_choices(const struct perf_worker *worker, struct perf_report *report)
{
    const struct perf_run *run = worker->run;
    const char *last = "";
    size_t size = run->options->min_bytes;
    const struct perf_library *library = run->options->library;
    if (run->collective->collective == PERF_NO_COLLECTIVE || library->get_algorithm == NULL)
        return tuttiSuccess;
    do {
        const char *name;
        PERF_TRY(library->get_algorithm(
            worker->ranks[0].comm, (tuttiCollective_t)run->collective->collective, size, &name));
        if (strcmp(name, last) != 0) perf_report_choice(report, size, name);
        last = name;
    } while (perf_options_next_size(run->options, &size));
    return tuttiSuccess;
}

static tuttiResult_t work(struct perf_worker *worker)
{
    struct perf_run *run = worker->run;
    struct perf_report *report = worker->thread == 0 ? run->report : NULL;
    PERF_TRY(perf_worker_open(worker));
    if (report != NULL) perf_report_head(report, worker->devices, run->nranks, run->init_seconds);
    PERF_TRY(run_types(worker));

    struct perf_memory memory;
    if (run->options->memory_report) PERF_TRY(measure_memory(worker, &memory));
    if (report != NULL) {
        PERF_TRY(report_choices(worker, report));
        double bandwidth = worker->sides > 0 ? worker->bandwidth_sum / (double)worker->sides : 0;
        worker->bandwidth_enough = perf_report_foot(report, worker->failed_checks, bandwidth,
                                                    run->options->memory_report ? &memory : NULL);
    }
    return perf_worker_barrier(worker);
}

/* What the library that is measured says last, or tutti, over which the ranks meet. */
static const char *last_error(const struct perf_run *run, const struct perf_rank *rank)
{
    const char *text = run->options->library->last_error(rank == NULL ? NULL : rank->comm);
    return text[0] != '\0' ? text : tuttiGetLastError(rank == NULL ? NULL : rank->control);
}

/* Gives a worker without an error text one: of the GPU, the measured library, tutti, or the name of
 * the result. */
static void explain(struct perf_worker *worker)
{
    const char *text = perf_gpu_error();
    for (int i = 0; worker->ranks != NULL && i < worker->nranks && text[0] == '\0'; i++) {
        if (worker->ranks[i].comm != NULL) text = last_error(worker->run, &worker->ranks[i]);
    }
    if (text[0] == '\0') text = last_error(worker->run, NULL);
    if (text[0] == '\0') text = tuttiGetErrorString(worker->status);
    if (worker->error[0] == '\0') snprintf(worker->error, sizeof(worker->error), "%s", text);
}

static void *run_worker(void *argument)
{
    struct perf_worker *worker = argument;
    worker->status = work(worker);
    if (worker->status != tuttiSuccess) {
        explain(worker);
        int rank = worker->run->process * worker->run->nlocal + worker->thread * worker->nranks;
        fprintf(stderr, "%s_perf: rank %d: %s\n", worker->run->collective->name, rank,
                worker->error);
    }
    perf_worker_close(worker);
    return NULL;
}

/* ---- The program -------------------------------------------------------------------------------
 */

/* Carries a unique id from rank 0 to all, over communicators of this process's ranks. */
static tuttiResult_t share_id(struct perf_run *run, const tuttiComm_t *comms, int ncomms)
{
    tuttiUniqueId *ids = calloc((size_t)ncomms, sizeof(*ids));
    if (ids == NULL) return tuttiSystemError;
    tuttiResult_t result = tuttiSuccess;
    if (run->process == 0) result = run->options->library->get_id(&ids[0]);
    if (result == tuttiSuccess) result = tuttiGroupStart();
    if (result == tuttiSuccess) {
        for (int i = 0; i < ncomms && result == tuttiSuccess; i++) {
            result = tuttiBroadcast(&ids[i], &ids[i], sizeof(*ids), tuttiUint8, 0, comms[i], NULL);
        }
        result = perf_group_end(&perf_tutti, result);
    }
    run->id = ids[0];
    free(ids);
    return result;
}

/* Carries the id through memory of the host, between processes that have no communicator yet. */
static tuttiResult_t share_id_first(struct perf_run *run)
{
    tuttiComm_t processes;
    tuttiConfig_t config = run->config;
    config.device = -1;
    PERF_TRY(tuttiCommInitEnv(&processes, NULL, &config));
    tuttiResult_t result = share_id(run, &processes, 1);
    tuttiResult_t destroyed = tuttiCommDestroy(processes);
    return result != tuttiSuccess ? result : destroyed;
}

/* With --library: communicators of tutti's, for all that is not measured. */
static tuttiResult_t join_controls(struct perf_run *run)
{
    tuttiConfig_t config = run->config;
    config.device = -1;
    run->controls = calloc((size_t)run->nlocal, sizeof(*run->controls));
    if (run->controls == NULL) return tuttiSystemError;
    PERF_TRY(tuttiCommInitEnvMulti(run->controls, run->nlocal, NULL, &config));
    return share_id(run, run->controls, run->nlocal);
}

static tuttiResult_t join(struct perf_run *run)
{
    const struct perf_options *options = run->options;
    if (options->timeout_s > 0) run->config.timeoutMs = 1000 * options->timeout_s;
    if (options->algorithm != NULL) {
        const char *name = tuttiCollectiveName((tuttiCollective_t)run->collective->collective);
        snprintf(run->algorithm, sizeof(run->algorithm), "%s:%s", name, options->algorithm);
        run->config.algorithm = run->algorithm;
    }
    run->comms = calloc((size_t)run->nlocal, sizeof(*run->comms));
    if (run->comms == NULL) return tuttiSystemError;
    if (options->library != &perf_tutti) {
        PERF_TRY(join_controls(run));
    } else if (options->parallel_init || options->on_gpus) {
        PERF_TRY(share_id_first(run));
    }
    if (options->parallel_init) return tuttiSuccess;

    double start = perf_now();
    if (options->on_gpus || run->controls != NULL) { /* each rank names its GPU, or has an id */
        PERF_TRY(perf_run_join(run, 0, run->nlocal));
    } else {
        PERF_TRY(tuttiCommInitEnvMulti(run->comms, run->nlocal, NULL, &run->config));
    }
    run->init_seconds = perf_now() - start;
    return tuttiSuccess;
}

/* Enough for the largest size, which may only be warmed up, and for small ones to move on through.
 */
static size_t buffer_bytes(const struct perf_run *run)
{
    const struct perf_options *options = run->options;
    size_t calls = (size_t)options->iterations * (size_t)options->aggregate;
    if (calls < (size_t)options->warmup) calls = (size_t)options->warmup;
    if (calls < (size_t)options->check) calls = (size_t)options->check;
    size_t most = (options->max_bytes + 63) / 64 * 64 + 64;
    size_t size = options->min_bytes;
    do {
        size_t stride = (size + 63) / 64 * 64;
        size_t wanted =
            stride < options->rotate_bytes / calls ? stride * calls : options->rotate_bytes;
        if (wanted < stride) wanted = stride;
        if (wanted > most) most = wanted;
    } while (perf_options_next_size(options, &size));
    return most;
}

static void run_workers(struct perf_run *run, struct perf_worker *workers)
{
    int nthreads = run->options->threads;
    for (int i = 0; i < nthreads; i++) {
        workers[i].run = run;
        workers[i].thread = i;
    }
    for (int i = 1; i < nthreads; i++) {
        int error = pthread_create(&workers[i].id, NULL, run_worker, &workers[i]);
        if (error == 0) continue;
        fprintf(stderr, "%s_perf: cannot start thread %d of %d: %s\n", run->collective->name, i,
                nthreads, strerror(error));
        exit(EXIT_WRONG); /* without all its ranks a run would only wait for a deadline */
    }
    run_worker(&workers[0]);
    for (int i = 1; i < nthreads; i++) pthread_join(workers[i].id, NULL);
}

/* Runs everything; returns the exit code. */
static int run_all(struct perf_run *run)
{
    run->resident_at_start = perf_resident_bytes();
    if (join(run) != tuttiSuccess) {
        const char *error = perf_gpu_error()[0] != '\0' ? perf_gpu_error() : last_error(run, NULL);
        fprintf(stderr, "%s_perf: %s\n", run->collective->name, error);
        if (run->report != NULL) (void)perf_report_close(run->report, error);
        free(run->controls);
        free(run->comms);
        return EXIT_WRONG;
    }
    int nthreads = run->options->threads;
    struct perf_worker *workers = calloc((size_t)nthreads, sizeof(*workers));
    if (workers == NULL) return EXIT_WRONG;
    run->buffer_bytes = buffer_bytes(run);
    run_workers(run, workers);

    int code = EXIT_RIGHT;
    const char *error = NULL;
    for (int i = nthreads - 1; i >= 0; i--) {
        const struct perf_worker *worker = &workers[i];
        if (worker->status != tuttiSuccess) error = worker->error;
        if (worker->status != tuttiSuccess || worker->failed_checks > 0 || worker->own_wrong > 0 ||
            !worker->bandwidth_enough) {
            code = EXIT_WRONG;
        }
    }
    if (run->report != NULL && !perf_report_close(run->report, error)) {
        fprintf(stderr, "%s_perf: -J: the JSON could not be written: %s\n", run->collective->name,
                strerror(errno));
        code = EXIT_WRONG;
    }
    free(workers);
    free(run->controls);
    free(run->comms);
    return code;
}

static int complain(const struct perf_run *run, const char *error)
{
    if (run->process != 0) return EXIT_USAGE; /* rank 0 says it for all */
    fprintf(stderr, "%s_perf: %s\n", run->collective->name, error);
    return EXIT_USAGE;
}

/* Runs everything, beside busy loops that the first process of each host starts. */
static int run_beside_hogs(struct perf_run *run)
{
    static struct perf_hogs hogs;
    int wanted = run->local_process == 0 ? run->options->hogs : 0;
    if (!perf_hogs_start(&hogs, wanted)) {
        fprintf(stderr, "%s_perf: --hogs: cannot start %d processes: %s\n", run->collective->name,
                wanted, strerror(errno));
        return EXIT_WRONG;
    }
    int code = run_all(run);
    perf_hogs_end(&hogs);
    return code;
}

/* The parts that need to know the ranks; the report is opened here so that a bad path costs no run.
 */
static int start(struct perf_run *run, int argc, char **argv)
{
    char error[1024];
    struct perf_report report;
    const struct perf_options *options = run->options;
    int64_t nranks = (int64_t)run->nprocesses * options->threads * options->ranks_per_thread;
    if (nranks > 1 << 20) return complain(run, "-t, -g: more than 1048576 ranks");
    run->nlocal = options->threads * options->ranks_per_thread;
    run->nranks = (int)nranks;
    if (run->collective->rooted && options->root >= run->nranks) {
        snprintf(error, sizeof(error), "-r: there is no rank %d among %d", options->root,
                 run->nranks);
        return complain(run, error);
    }
    if (run->process == 0) {
        run->report = &report;
        if (!perf_report_open(&report, stdout, options, run->collective, argc, argv)) {
            snprintf(error, sizeof(error), "-J: cannot write '%s': %s", options->json_path,
                     strerror(errno));
            return complain(run, error);
        }
    }
    perf_make_room(run->nlocal);
    return run_beside_hogs(run);
}

static bool has_rdma_device(void)
{
    bool found = false;
    DIR *devices = opendir("/sys/class/infiniband");
    if (devices == NULL) return false;
    for (const struct dirent *entry; (entry = readdir(devices)) != NULL;) {
        if (entry->d_name[0] != '.') found = true;
    }
    closedir(devices);
    return found;
}

/* Before the first call that reads the configuration. tcp and rdma join hosts: every process
 * becomes a host of its own. */
static bool force_transport(const struct perf_options *options, char *error, size_t error_bytes)
{
    const char *name = options->transport;
    if (name == NULL) return true;
    setenv("TUTTI_TRANSPORT", name, 1);
    if (strcmp(name, "tcp") != 0 && strcmp(name, "rdma") != 0) return true;

    if (options->threads * options->ranks_per_thread > 1) {
        snprintf(
            error, error_bytes,
            "--transport %s: ranks of one process share memory and do not use it: leave out -t "
            "and -g, and start a process a rank (tutti-run -n N)",
            name);
        return false;
    }
    if (strcmp(name, "rdma") == 0 && !has_rdma_device()) {
        snprintf(error, error_bytes,
                 "--transport rdma: this host has no RDMA device (/sys/class/infiniband is empty): "
                 "load its driver, or use --transport tcp");
        return false;
    }
    uint64_t random[2];
    char host[64];
    if (getrandom(random, sizeof(random), 0) != (ssize_t)sizeof(random)) {
        snprintf(error, error_bytes, "--transport %s: no random number to be had: %s", name,
                 strerror(errno));
        return false;
    }
    snprintf(host, sizeof(host), "perf-%016" PRIx64 "%016" PRIx64, random[0], random[1]);
    setenv("TUTTI_HOST_ID", host, 1);
    return true;
}

int perf_main(const struct perf_collective *collective, int argc, char **argv)
{
    struct perf_options options;
    struct perf_run run = {
        .options = &options, .collective = collective, .config = TUTTI_CONFIG_INITIALIZER};
    static char name[64];
    char error[1024];
    char *text = NULL;
    size_t text_bytes = 0;
    snprintf(name, sizeof(name), "%s_perf", collective->name);
    streams_begin(name);
    FILE *out = open_memstream(&text, &text_bytes);
    if (out == NULL) return EXIT_WRONG;
    enum perf_parse parsed =
        perf_options_parse(&options, collective, argc, argv, out, error, sizeof(error));
    fclose(out);

    if (parsed == PERF_PARSE_RUN && !force_transport(&options, error, sizeof(error))) {
        parsed = PERF_PARSE_USAGE;
    }
    tuttiResult_t launched = tuttiGetLauncher(&run.process, &run.nprocesses, &run.local_process);
    int code = EXIT_RIGHT;
    if (parsed == PERF_PARSE_USAGE) {
        code = complain(&run, error);
    } else if (parsed == PERF_PARSE_DONE) {
        if (run.process == 0) fputs(text, stdout);
    } else if (launched != tuttiSuccess) {
        fprintf(stderr, "%s_perf: %s\n", collective->name, tuttiGetLastError(NULL));
        code = EXIT_WRONG;
    } else if (options.on_gpus && perf_gpu_load(&run.ngpus) != tuttiSuccess) {
        fprintf(stderr, "%s_perf: --device cuda: %s\n", collective->name, perf_gpu_error());
        code = EXIT_WRONG;
    } else if (options.library_path != NULL &&
               !perf_nccl_load(options.library_path, collective->nccl, error, sizeof(error))) {
        fprintf(stderr, "%s_perf: %s\n", collective->name, error);
        code = EXIT_WRONG;
    } else {
        code = start(&run, argc, argv);
    }
    free(text);
    return code;
}
