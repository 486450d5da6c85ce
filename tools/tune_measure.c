/* A rank of tutti-plan tune: times the algorithms of every collective. Rank 0 decides what comes
 * next, and all ranks learn it in shared memory between two barriers.
 *
 * The time of a call is that of the slowest rank. Every repetition of an algorithm comes after one
 * of each other algorithm of the collective, so that a busy machine slows all alike; the least
 * repetition counts. Each call takes the next place in a large buffer, so that nothing is warm. */
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

#include "tune.h"

enum {
    REGION_BYTES = 16 << 20,
    PAGE = 4096,
    REPETITION_US = 700,
    ROUGH_PASSES = 2, /* after these the slow algorithms are left out */
    LEAST_CALLS = 2,
    MOST_CALLS = 1000,
    TIMEOUT_MS = 20000,
};

struct rank {
    struct tune_job *job;
    int rank;
    tuttiComm_t comm;
    float *input, *output; /* REGION_BYTES each */
    size_t next;           /* floats: place of the next call */
    const char *forced;    /* NULL: nothing is */
};

static int64_t clock_ns(clockid_t clock)
{
    struct timespec now;
    clock_gettime(clock, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

int64_t tune_now_ns(void)
{
    return clock_ns(CLOCK_MONOTONIC);
}

static bool worked(const struct rank *rank, const char *what, tuttiResult_t result)
{
    if (result == tuttiSuccess) return true;
    fprintf(stderr, "tutti-plan: rank %d of %d: %s: %s\n", rank->rank, rank->job->nranks, what,
            tuttiGetLastError(rank->comm));
    return false;
}

/* ---- Joining -------------------------------------------------------------------------------- */

/* The writes and reads are shorter than a pipe's atomic ones. */
static bool share_id(const struct rank *rank, tuttiUniqueId *id)
{
    const int *ends = rank->job->id_pipe;
    bool fine = true;
    if (rank->rank > 0) {
        fine = read(ends[0], id, sizeof *id) == (ssize_t)sizeof *id;
    } else {
        if (!worked(rank, "unique id", tuttiGetUniqueId(id))) return false;
        for (int r = 1; r < rank->job->nranks && fine; r++)
            fine = write(ends[1], id, sizeof *id) == (ssize_t)sizeof *id;
    }
    if (!fine) fprintf(stderr, "tutti-plan: rank %d got no unique id\n", rank->rank);
    return fine;
}

static bool join(struct rank *rank)
{
    struct tune_job *job = rank->job;
    tuttiConfig_t config = TUTTI_CONFIG_INITIALIZER;
    tuttiUniqueId id;
    config.timeoutMs = config.initTimeoutMs = TIMEOUT_MS;
    config.commName = "tune";
    config.algorithm = "";
    config.deterministic = 0;
    config.device = -1;
    if (job->is_bound) (void)sched_setaffinity(0, sizeof job->cores[0], &job->cores[rank->rank]);
    CPU_ZERO(&job->allowed[rank->rank]);
    (void)sched_getaffinity(0, sizeof job->allowed[0], &job->allowed[rank->rank]);
    return share_id(rank, &id) &&
           worked(rank, "init",
                  tuttiCommInitRankConfig(&rank->comm, job->nranks, id, rank->rank, &config));
}

/* ---- Calls ---------------------------------------------------------------------------------- */

static tuttiResult_t call(struct rank *rank, const struct tune_point *point)
{
    const size_t stride = (point->nbytes / sizeof(float) + 31) / 16 * 16;
    if ((rank->next + stride) * sizeof(float) > REGION_BYTES) rank->next = 0;
    const float *in = rank->input + rank->next;
    float *out = rank->output + rank->next;
    rank->next += stride;
    const size_t count = point->count;
    const tuttiDataType_t type = tuttiFloat32;
    const tuttiComm_t comm = rank->comm;
    switch (point->collective) {
    case tuttiCollAllReduce:
        return tuttiAllReduce(in, out, count, type, tuttiSum, comm, NULL);
    case tuttiCollBroadcast:
        return tuttiBroadcast(in, out, count, type, 0, comm, NULL);
    case tuttiCollReduce:
        return tuttiReduce(in, out, count, type, tuttiSum, 0, comm, NULL);
    case tuttiCollAllGather:
        return tuttiAllGather(in, out, count, type, comm, NULL);
    case tuttiCollReduceScatter:
        return tuttiReduceScatter(in, out, count, type, tuttiSum, comm, NULL);
    case tuttiCollAllToAll:
        return tuttiAlltoAll(in, out, count, type, comm, NULL);
    case tuttiCollScatter:
        return tuttiScatter(in, out, count, type, 0, comm, NULL);
    case tuttiCollGather:
        return tuttiGather(in, out, count, type, 0, comm, NULL);
    default:
        return tuttiBarrier(comm, NULL);
    }
}

static tuttiResult_t force(struct rank *rank, const struct tune_point *point)
{
    if (rank->forced == point->algorithm) return tuttiSuccess;
    rank->forced = point->algorithm;
    return tuttiCommSetAlgorithm(rank->comm, point->collective, point->algorithm);
}

/* One repetition; this rank's microseconds of a call go to the job. */
static tuttiResult_t repeat(struct rank *rank, const struct tune_task *task)
{
    const struct tune_point *point = &rank->job->points[task->point];
    tuttiResult_t result = force(rank, point);
    if (result == tuttiSuccess) result = tuttiBarrier(rank->comm, NULL);
    const int64_t start = tune_now_ns();
    for (int i = 0; i < task->ncalls && result == tuttiSuccess; i++) result = call(rank, point);
    rank->job->us[rank->rank] = (double)(tune_now_ns() - start) / 1e3 / task->ncalls;
    if (result == tuttiSuccess) result = tuttiBarrier(rank->comm, NULL);
    return result;
}

/* ---- Rank 0: what comes next ---------------------------------------------------------------- */

/* The points of one collective are measured again and again until its share of the time is over. */
struct schedule {
    int first, end; /* points of the collective */
    int next, pass; /* pass 0 is not counted: memory is mapped, and calls are first counted */
    int64_t end_ns;
};

static int collective_end(const struct tune_job *job, int first)
{
    int end = first;
    while (end < job->npoints && job->points[end].collective == job->points[first].collective)
        end++;
    return end;
}

/* The time that is left is shared by the points that are left. */
static void begin_collective(struct schedule *at, const struct tune_job *job, int first)
{
    const int64_t now = tune_now_ns();
    const int64_t left = job->end_ns > now ? job->end_ns - now : 0;
    *at = (struct schedule){.first = first, .end = collective_end(job, first), .next = first};
    if (first == job->npoints) return;
    at->end_ns = now + left * (at->end - first) / (job->npoints - first);
}

/* Whether the collective's time is over. The passes that count for all algorithms end with a whole
 * group. */
static bool is_over(const struct schedule *at, const struct tune_job *job)
{
    const int64_t now = tune_now_ns();
    if (at->pass == 0) return now >= job->end_ns;
    if (at->pass > ROUGH_PASSES) return now >= at->end_ns;
    return now >= at->end_ns &&
           (at->next == at->first || !tune_in_group(job, at->next - 1, at->next));
}

/* Whether the algorithm has turned out to be much slower than another one of its group. */
static bool is_slow(const struct tune_job *job, int index)
{
    int first = index;
    double fastest = job->points[index].us;
    while (first > 0 && tune_in_group(job, first - 1, index)) first--;
    for (int i = first; i < job->npoints && tune_in_group(job, first, i); i++)
        if (job->points[i].us < fastest) fastest = job->points[i].us;
    return job->points[index].us > TUNE_SLOW * fastest;
}

static int calls_of(const struct tune_point *point)
{
    const double us = point->us > 0 ? point->us : point->first_us;
    if (!(us > 0)) return LEAST_CALLS;
    const double ncalls = REPETITION_US / us;
    return ncalls < LEAST_CALLS ? LEAST_CALLS : ncalls > MOST_CALLS ? MOST_CALLS : (int)ncalls;
}

static struct tune_task next_task(struct schedule *at, const struct tune_job *job)
{
    while (at->first < job->npoints) {
        if (at->next == at->end) at->pass++, at->next = at->first;
        if (is_over(at, job)) {
            begin_collective(at, job, at->end);
            continue;
        }
        const int point = at->next++;
        if (at->pass > ROUGH_PASSES && is_slow(job, point)) continue;
        return (struct tune_task){.point = point, .ncalls = calls_of(&job->points[point])};
    }
    return (struct tune_task){.point = -1};
}

static void note(struct tune_job *job, const struct schedule *at)
{
    struct tune_point *point = &job->points[job->task.point];
    double slowest = 0;
    for (int r = 0; r < job->nranks; r++)
        if (job->us[r] > slowest) slowest = job->us[r];
    if (at->pass == 0) {
        point->first_us = slowest;
    } else if (point->us == 0 || slowest < point->us) {
        point->next_us = point->us;
        point->us = slowest;
    } else if (point->next_us == 0 || slowest < point->next_us)
        point->next_us = slowest;
}

/* ---- All ranks ------------------------------------------------------------------------------ */

/* Gives the algorithm of the collective back to the choice when another collective comes. */
static tuttiResult_t change(struct rank *rank, const struct tune_task *last,
                            const struct tune_task *task)
{
    if (last->point < 0) return tuttiSuccess;
    const tuttiCollective_t before = rank->job->points[last->point].collective;
    if (task->point >= 0 && rank->job->points[task->point].collective == before)
        return tuttiSuccess;
    rank->forced = NULL;
    return tuttiCommSetAlgorithm(rank->comm, before, NULL);
}

static tuttiResult_t measure(struct rank *rank)
{
    struct tune_job *job = rank->job;
    struct schedule at;
    struct tune_task last = {.point = -1};
    tuttiResult_t result = tuttiSuccess;
    const int64_t start = tune_now_ns(), ran = clock_ns(CLOCK_PROCESS_CPUTIME_ID);
    if (rank->rank == 0) begin_collective(&at, job, 0);
    while (result == tuttiSuccess) {
        if (rank->rank == 0) job->task = next_task(&at, job);
        result = tuttiBarrier(rank->comm, NULL);
        const struct tune_task task = job->task;
        if (result == tuttiSuccess) result = change(rank, &last, &task);
        if (result != tuttiSuccess || task.point < 0) break;
        result = repeat(rank, &task);
        if (result == tuttiSuccess && rank->rank == 0) note(job, &at);
        last = task;
    }
    job->ran_ns[rank->rank] = clock_ns(CLOCK_PROCESS_CPUTIME_ID) - ran;
    if (rank->rank == 0) job->took_ns = tune_now_ns() - start;
    return result;
}

int tune_rank(struct tune_job *job, int number)
{
    struct rank rank = {.job = job, .rank = number};
    rank.input = aligned_alloc(PAGE, REGION_BYTES);
    rank.output = aligned_alloc(PAGE, REGION_BYTES);
    if (!rank.input || !rank.output) {
        fprintf(stderr, "tutti-plan: out of memory for rank %d\n", number);
        return PLAN_WRONG;
    }
    memset(rank.output, 0, REGION_BYTES);
    for (size_t i = 0; i < REGION_BYTES / sizeof(float); i++) rank.input[i] = (float)(i % 7);
    if (!join(&rank) || !worked(&rank, "a call", measure(&rank))) return PLAN_WRONG;
    if (!worked(&rank, "the end", tuttiCommDestroy(rank.comm))) return PLAN_WRONG;
    free(rank.input);
    free(rank.output);
    return PLAN_DONE;
}
