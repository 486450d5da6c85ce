/* Runs one row of the table: times the iterations, gathers the times of all ranks, and has the
 * results checked. */
#include "common/bench.h"

#include <stdlib.h>
#include <string.h>

#include "common/check.h"
#include "common/graphs.h"

#define CACHE_LINE 64 /* calls start on cache lines of their own */

/* ---- Calls -------------------------------------------------------------------------------------
 */

/* Where successive calls of a row find their data: `slots` places of `stride` bytes, used in turn,
 * so that nothing is measured warm. */
struct rotation {
    size_t stride;
    size_t slots;
    size_t offset; /* of every place, for misalignment */
};

static struct rotation rotation_of(const struct perf_worker *worker, const struct perf_row *row)
{
    if (row->type == NULL) return (struct rotation){.stride = CACHE_LINE, .slots = 1};
    const struct perf_layout *layout = &row->layout;
    size_t elements = layout->send > layout->recv ? layout->send : layout->recv;
    size_t stride = (elements * row->type->bytes + CACHE_LINE - 1) / CACHE_LINE * CACHE_LINE;
    if (stride == 0) stride = CACHE_LINE;
    size_t slots = worker->run->buffer_bytes / stride;
    return (struct rotation){
        .stride = stride,
        .slots = slots > 0 ? slots : 1,
        .offset = (size_t)worker->run->options->unalign * row->type->bytes,
    };
}

static size_t place(const struct rotation *rotation, size_t call)
{
    return rotation->offset + call % rotation->slots * rotation->stride;
}

struct perf_blocks perf_row_blocks(const struct perf_worker *worker, const struct perf_row *row)
{
    return perf_blocks_of(worker->run->collective, &row->layout, worker->run->options->spread,
                          worker->run->nranks);
}

/* What the calls of the i-th rank here point to. */
static void fill_counts(struct perf_worker *worker, const struct perf_row *row, int i)
{
    struct perf_blocks blocks = perf_row_blocks(worker, row);
    int nranks = worker->run->nranks, rank = worker->ranks[i].rank;
    size_t *send = worker->counts + (size_t)(2 * i) * (size_t)nranks;
    size_t *recv = send + nranks;
    for (int r = 0; r < nranks; r++) {
        send[r] = perf_block_count(&blocks, rank, r);
        recv[r] = blocks.pairwise ? perf_block_count(&blocks, r, rank) : send[r];
    }
}

/* Sets all of the calls but their buffers. */
static void prepare_calls(struct perf_worker *worker, const struct perf_row *row)
{
    for (int i = 0; i < worker->nranks; i++) {
        const struct perf_rank *rank = &worker->ranks[i];
        worker->calls[i] = (struct perf_call){
            .count = row->layout.count,
            .type_bytes = row->type == NULL ? 0 : row->type->bytes,
            .type = row->type == NULL ? tuttiUint8 : row->type->type,
            .op = rank->op,
            .root = row->root,
            .rank = rank->rank,
            .nranks = worker->run->nranks,
            .library = worker->run->options->library,
            .comm = rank->comm,
            .stream = rank->stream,
            .send_counts = worker->counts + (size_t)(2 * i) * (size_t)worker->run->nranks,
            .recv_counts = worker->counts + (size_t)(2 * i + 1) * (size_t)worker->run->nranks,
        };
        fill_counts(worker, row, i);
    }
}

static void point_calls(struct perf_worker *worker, const struct perf_row *row, bool in_place,
                        size_t offset)
{
    for (int i = 0; i < worker->nranks; i++) {
        const struct perf_rank *rank = &worker->ranks[i];
        struct perf_call *call = &worker->calls[i];
        unsigned char *recv = rank->recv + offset;
        if (in_place) {
            struct perf_blocks blocks = perf_row_blocks(worker, row);
            struct perf_share share =
                perf_share_of(worker->run->collective, &row->layout, &blocks, rank->rank);
            call->send = recv + share.send_at * call->type_bytes;
            call->recv = recv + share.recv_at * call->type_bytes;
        } else {
            call->send = rank->send + offset;
            call->recv = recv;
        }
    }
}

static tuttiResult_t launch_phase(struct perf_worker *worker)
{
    const struct perf_collective *collective = worker->run->collective;
    if (worker->nranks == 1) return collective->launch(&worker->calls[0]);

    const struct perf_library *library = worker->run->options->library;
    tuttiResult_t result = tuttiSuccess;
    PERF_TRY(library->group_start());
    for (int i = 0; i < worker->nranks && result == tuttiSuccess; i++) {
        result = collective->launch(&worker->calls[i]);
    }
    return perf_group_end(library, result);
}

/* One call of the collective on every rank here. */
static tuttiResult_t launch(struct perf_worker *worker, const struct perf_row *row, bool in_place,
                            size_t offset)
{
    const struct perf_collective *collective = worker->run->collective;
    point_calls(worker, row, in_place, offset);
    if (collective->phases == NULL) return launch_phase(worker);

    int nphases = collective->phases(worker->run->nranks);
    for (int phase = 0; phase < nphases; phase++) {
        for (int i = 0; i < worker->nranks; i++) worker->calls[i].phase = phase;
        PERF_TRY(launch_phase(worker));
    }
    return tuttiSuccess;
}

static tuttiResult_t launch_first(struct perf_worker *worker, const struct perf_row *row)
{
    return launch(worker, row, false, 0);
}

tuttiResult_t perf_row_warm_up(struct perf_worker *worker, const struct perf_row *row,
                               int iterations)
{
    struct rotation rotation = rotation_of(worker, row);
    prepare_calls(worker, row);
    for (int i = 0; i < iterations; i++) {
        PERF_TRY(launch(worker, row, false, place(&rotation, (size_t)i)));
    }
    return perf_worker_wait(worker);
}

/* ---- Time --------------------------------------------------------------------------------------
 */

/* One iteration: -m calls, in a group where nothing has to happen between them. */
static tuttiResult_t iterate(struct perf_worker *worker, const struct perf_row *row, bool in_place,
                             const struct rotation *rotation, int iteration)
{
    const struct perf_options *options = worker->run->options;
    bool wait =
        options->blocking == PERF_BLOCKING_BARRIER || options->blocking == PERF_BLOCKING_WAIT;
    bool group = options->aggregate > 1 && !wait && worker->run->collective->phases == NULL;
    size_t first = (size_t)iteration * (size_t)options->aggregate;
    tuttiResult_t result = tuttiSuccess;
    if (group) PERF_TRY(options->library->group_start());
    for (int i = 0; i < options->aggregate && result == tuttiSuccess; i++) {
        result = launch(worker, row, in_place, place(rotation, first + (size_t)i));
        if (!wait || result != tuttiSuccess) continue;
        PERF_TRY(perf_worker_wait(worker));
        if (options->blocking == PERF_BLOCKING_BARRIER) PERF_TRY(perf_worker_barrier(worker));
    }
    return group ? perf_group_end(options->library, result) : result;
}

/* Between two iterations with --work: waits for the calls, then computes. Adds the seconds of the
 * latter. */
static tuttiResult_t compute(struct perf_worker *worker, double *seconds)
{
    PERF_TRY(perf_worker_wait(worker));
    double before = perf_now();
    perf_work(worker->run->options->work_us);
    *seconds += perf_now() - before;
    return tuttiSuccess;
}

/* All iterations; *launched is when the calls had been made, *done when they were complete, in
 * seconds from the start, without the barriers of -z 3 and without --work. */
static tuttiResult_t time_iterations(struct perf_worker *worker, const struct perf_row *row,
                                     bool in_place, double *launched, double *done)
{
    const struct perf_options *options = worker->run->options;
    struct rotation rotation = rotation_of(worker, row);
    double untimed = 0;
    double start = perf_now();
    for (int i = 0; i < options->iterations; i++) {
        if (options->work_us > 0 && i > 0) PERF_TRY(compute(worker, &untimed));
        PERF_TRY(perf_worker_stamp(worker, i, 0));
        PERF_TRY(iterate(worker, row, in_place, &rotation, i));
        PERF_TRY(perf_worker_stamp(worker, i, 1));
        if (options->blocking != PERF_BLOCKING_OUTER) continue;
        PERF_TRY(perf_worker_wait(worker));
        double before = perf_now();
        PERF_TRY(perf_worker_barrier(worker));
        untimed += perf_now() - before;
    }
    *launched = perf_now() - start - untimed;
    PERF_TRY(perf_worker_wait(worker));
    *done = perf_now() - start - untimed;
    return tuttiSuccess;
}

/* The iterations with -G: they are captured, then the graph is launched and timed. */
static tuttiResult_t time_graphs(struct perf_worker *worker, const struct perf_row *row,
                                 bool in_place, double *launched, double *done)
{
    const struct perf_options *options = worker->run->options;
    struct rotation rotation = rotation_of(worker, row);
    tuttiResult_t result = tuttiSuccess;
    PERF_TRY(perf_graphs_begin(worker));
    for (int i = 0; i < options->iterations && result == tuttiSuccess; i++) {
        result = iterate(worker, row, in_place, &rotation, i);
    }
    PERF_TRY(perf_graphs_end(worker, result));
    PERF_TRY(perf_worker_barrier(worker));
    double start = perf_now();
    for (int i = 0; i < options->graphs; i++) PERF_TRY(perf_graphs_launch(worker));
    *launched = perf_now() - start;
    PERF_TRY(perf_worker_wait(worker));
    *done = perf_now() - start;
    perf_graphs_free(worker);
    return tuttiSuccess;
}

/* What -a says of all ranks' times. */
static tuttiResult_t average(struct perf_worker *worker, double *seconds)
{
    static const tuttiRedOp_t ops[] = {[PERF_AVERAGE_MEAN] = tuttiSum,
                                       [PERF_AVERAGE_MIN] = tuttiMin,
                                       [PERF_AVERAGE_MAX] = tuttiMax};
    const struct perf_run *run = worker->run;
    if (run->options->average == PERF_AVERAGE_RANK0)
        return tuttiSuccess; /* rank 0 reports its own */
    PERF_TRY(perf_worker_reduce_number(worker, seconds, ops[run->options->average]));
    int nworkers = run->nprocesses * run->options->threads;
    if (run->options->average == PERF_AVERAGE_MEAN) *seconds /= nworkers;
    return tuttiSuccess;
}

/* Single iterations' times: of the slowest rank of all (times), and of each process (by_process).
 */
struct iteration_times {
    double *by_rank;
    double *by_process;
    double *times;
    double *sorted;
    struct perf_statistics statistics;
};

static void free_times(struct iteration_times *times)
{
    free(times->by_rank);
    free(times->by_process);
    free(times->times);
    free(times->sorted);
}

static void summarise(const struct perf_run *run, struct iteration_times *times)
{
    int iterations = run->options->iterations;
    int skip = run->options->skip;
    for (int rank = 0; rank < run->nranks; rank++) {
        double *process = times->by_process + (rank / run->nlocal) * iterations;
        for (int i = 0; i < iterations; i++) {
            double seconds = times->by_rank[rank * iterations + i];
            if (seconds > process[i]) process[i] = seconds;
            if (seconds > times->times[i]) times->times[i] = seconds;
        }
    }
    memcpy(times->sorted, times->times, (size_t)iterations * sizeof(double));
    times->statistics = perf_statistics_of(times->sorted + skip, iterations - skip);
}

static tuttiResult_t gather_times(struct perf_worker *worker, struct iteration_times *times)
{
    const struct perf_run *run = worker->run;
    int iterations = run->options->iterations;
    size_t nbytes = (size_t)iterations * sizeof(double);
    PERF_TRY(perf_worker_durations(worker));
    for (int i = 0; i < worker->nranks * iterations; i++) {
        worker->stamps[i] /= run->options->aggregate;
    }
    times->by_rank = calloc((size_t)run->nranks, nbytes);
    times->by_process = calloc((size_t)run->nprocesses, nbytes);
    times->times = calloc(1, nbytes);
    times->sorted = calloc(1, nbytes);
    if (times->by_rank == NULL || times->by_process == NULL || times->times == NULL ||
        times->sorted == NULL) {
        return tuttiSystemError;
    }
    PERF_TRY(perf_worker_gather(worker, worker->stamps, times->by_rank, nbytes));
    summarise(run, times);
    return tuttiSuccess;
}

/* ---- Rows --------------------------------------------------------------------------------------
 */

/* The call that is checked; with -G by a graph. */
static tuttiResult_t launch_checked(struct perf_worker *worker, const struct perf_row *row,
                                    bool in_place, size_t offset)
{
    if (worker->run->options->graphs == 0) return launch(worker, row, in_place, offset);
    PERF_TRY(perf_graphs_begin(worker));
    PERF_TRY(perf_graphs_end(worker, launch(worker, row, in_place, offset)));
    PERF_TRY(perf_graphs_launch(worker));
    PERF_TRY(perf_worker_wait(worker));
    perf_graphs_free(worker);
    return tuttiSuccess;
}

/* Runs the row's checks until one fails; *wrong is over all ranks. */
static tuttiResult_t check(struct perf_worker *worker, const struct perf_row *row, bool in_place,
                           int64_t *wrong)
{
    struct rotation rotation = rotation_of(worker, row);
    *wrong = 0;
    for (int i = 0; i < worker->run->options->check && *wrong == 0; i++) {
        int64_t own = 0;
        worker->seed++;
        if (row->type == NULL) {
            PERF_TRY(perf_check_barrier(worker, row, launch_first, &own));
        } else {
            size_t offset = place(&rotation, (size_t)i);
            PERF_TRY(perf_check_prepare(worker, row, in_place, offset));
            PERF_TRY(launch_checked(worker, row, in_place, offset));
            PERF_TRY(perf_worker_wait(worker));
            PERF_TRY(perf_check_count(worker, row, in_place, offset, &own));
        }
        worker->own_wrong += own;
        *wrong = own;
        PERF_TRY(perf_worker_reduce_integer(worker, wrong, tuttiSum));
    }
    return tuttiSuccess;
}

static tuttiResult_t run_side(struct perf_worker *worker, const struct perf_row *row, bool in_place,
                              struct perf_side *side, struct iteration_times *times)
{
    const struct perf_run *run = worker->run;
    const struct perf_options *options = run->options;
    const struct perf_collective *collective = run->collective;
    double launched;
    double done;
    PERF_TRY(launch(worker, row, in_place, 0));
    PERF_TRY(perf_worker_wait(worker));
    PERF_TRY(perf_worker_barrier(worker));
    double ncalls = (double)options->iterations * options->aggregate;
    if (options->graphs > 0) {
        PERF_TRY(time_graphs(worker, row, in_place, &launched, &done));
        ncalls *= options->graphs;
    } else {
        PERF_TRY(time_iterations(worker, row, in_place, &launched, &done));
    }

    double seconds = done / ncalls;
    PERF_TRY(average(worker, &seconds));
    size_t type_bytes = row->type == NULL ? 0 : row->type->bytes;
    double nbytes = collective->volume(run->nranks) * (double)(row->layout.count * type_bytes);
    *side = (struct perf_side){
        .available = true,
        .seconds = options->cpu_time ? launched / ncalls : seconds,
        .algbw = seconds > 0 ? nbytes / seconds * 1e-9 : 0,
        .checked = options->check > 0 && (row->type != NULL || worker->one_host),
    };
    side->busbw = side->algbw * collective->factor(run->nranks);
    if (worker->stamps != NULL) {
        PERF_TRY(gather_times(worker, times));
        side->statistics = &times->statistics;
        side->times = times->times;
        side->by_process = times->by_process;
        side->nprocesses = run->nprocesses;
    }
    PERF_TRY(perf_worker_barrier(worker));
    if (side->checked) PERF_TRY(check(worker, row, in_place, &side->wrong));

    worker->failed_checks += side->wrong > 0;
    worker->bandwidth_sum += side->busbw;
    worker->sides++;
    return tuttiSuccess;
}

tuttiResult_t perf_row_run(struct perf_worker *worker, const struct perf_row *row)
{
    struct perf_run *run = worker->run;
    struct perf_report *report = worker->thread == 0 ? run->report : NULL;
    prepare_calls(worker, row);
    if (report != NULL) perf_report_row_begin(report, &row->layout, row->type, row->op, row->root);
    for (int in_place = 0; in_place < 2; in_place++) {
        struct perf_side side = {0};
        struct iteration_times times = {0};
        tuttiResult_t result = tuttiSuccess;
        if (!in_place || !run->collective->never_in_place) {
            result = run_side(worker, row, in_place, &side, &times);
        }
        if (result == tuttiSuccess && report != NULL) perf_report_side(report, in_place, &side);
        free_times(&times);
        PERF_TRY(result);
    }
    if (report != NULL) perf_report_row_end(report);
    return tuttiSuccess;
}
