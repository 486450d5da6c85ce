/* Starts the ranks of tutti-plan tune, waits for them, and reads their times. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cores.h"
#include "tune.h"

/* Ranks that take so much longer than they were given are ended: some calls of a busy machine take
 * long, but not all. */
static const int64_t PATIENCE_NS = 20000000000;

/* Least but one repetition / least, at most, where a time is believed. */
static const double STEADY = 1.15;

/* All that perf-tests/choice.sh compares. */
static const tuttiCollective_t collectives[] = {
    tuttiCollAllReduce, tuttiCollBroadcast,     tuttiCollReduce,
    tuttiCollAllGather, tuttiCollReduceScatter, tuttiCollAllToAll,
    tuttiCollScatter,   tuttiCollGather,        tuttiCollBarrier};
/* Where there is little time the first ones are measured. */
static const size_t sizes[] = {8, 65536, 2048, 524288, 16384, 256, 131072};
enum {
    NCOLLECTIVES = sizeof collectives / sizeof *collectives,
    NSIZES = sizeof sizes / sizeof *sizes
};

/* ---- What is measured ----------------------------------------------------------------------- */

/* Blocks in the larger buffer of a call with one block a rank; 1: the call takes the whole vector.
 */
static size_t blocks_of(tuttiCollective_t collective, int nranks)
{
    switch (collective) {
    case tuttiCollAllGather:
    case tuttiCollReduceScatter:
    case tuttiCollAllToAll:
    case tuttiCollScatter:
    case tuttiCollGather:
        return (size_t)nranks;
    default:
        return 1;
    }
}

static void add_size(struct tune_job *job, tuttiCollective_t collective, size_t nbytes)
{
    const size_t nblocks = blocks_of(collective, job->nranks);
    const size_t block = nbytes / sizeof(float) / nblocks, count = block > 0 ? block : 1;
    const char *name;
    for (int i = 0; (name = tuttiAlgorithmName(collective, i)) != NULL; i++) {
        if (!tuttiAlgorithmFits(collective, name, job->nranks, NULL)) continue;
        if (job->npoints == TUNE_MOST_POINTS) return;
        const bool is_empty = collective == tuttiCollBarrier;
        job->points[job->npoints++] =
            (struct tune_point){.collective = collective,
                                .algorithm = name,
                                .count = count,
                                .nbytes = is_empty ? 0 : count * nblocks * sizeof(float)};
    }
}

static void add_points(struct tune_job *job)
{
    for (int c = 0; c < NCOLLECTIVES; c++)
        for (int s = 0; s < (collectives[c] == tuttiCollBarrier ? 1 : NSIZES); s++)
            add_size(job, collectives[c], sizes[s]);
}

/* ---- Processes ------------------------------------------------------------------------------ */

/* A file of constants chooses nothing here, and a damaged one is to be replaced. A file without
 * lines stands in for those that the environment or a settings file names; it stays open until the
 * rank ends. */
static void choose_shipped_constants(void)
{
    char path[64];
    const int fd = memfd_create("costs", MFD_CLOEXEC);
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    if (fd >= 0 && fchmod(fd, 0600) == 0 && access(path, R_OK) == 0)
        (void)setenv("TUTTI_COST_FILE", path, 1);
    else
        (void)unsetenv("TUTTI_COST_FILE");
}

static _Noreturn void become_rank(struct tune_job *job, int rank, pid_t parent)
{
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) _exit(PLAN_WRONG); /* it had ended before prctl */
    sigprocmask(SIG_SETMASK, &job->mask, NULL);
    choose_shipped_constants();
    if (rank > 0) close(job->id_pipe[1]); /* so that reads end when rank 0 has died */
    _exit(tune_rank(job, rank));
}

static bool start(struct tune_job *job, pid_t *pids)
{
    const pid_t parent = getpid();
    for (int r = 0; r < job->nranks; r++) {
        pids[r] = fork();
        if (pids[r] == 0) become_rank(job, r, parent);
        if (pids[r] > 0) continue;
        fprintf(stderr, "tutti-plan: rank %d of %d cannot be started: %s\n", r, job->nranks,
                strerror(errno));
        return false;
    }
    return true;
}

/* Takes the exit codes of those that have ended. *nalive: how many have not. False: one failed. */
static bool reap(const struct tune_job *job, pid_t *pids, int *nalive)
{
    bool fine = true;
    *nalive = 0;
    for (int r = 0; r < job->nranks; r++) {
        int status;
        if (pids[r] <= 0) continue;
        const pid_t ended = waitpid(pids[r], &status, WNOHANG);
        if (ended == 0) {
            ++*nalive;
            continue;
        }
        pids[r] = 0; /* the number may be another process's from now on */
        if (ended < 0) {
            fprintf(stderr, "tutti-plan: how rank %d of %d ended is not known: %s\n", r,
                    job->nranks, strerror(errno));
            fine = false;
            continue;
        }
        if (WIFSIGNALED(status))
            fprintf(stderr, "tutti-plan: rank %d of %d was killed by signal %d (%s)\n", r,
                    job->nranks, WTERMSIG(status), strsignal(WTERMSIG(status)));
        fine = fine && WIFEXITED(status) && WEXITSTATUS(status) == 0;
    }
    return fine;
}

static void kill_all(const struct tune_job *job, pid_t *pids)
{
    for (int r = 0; r < job->nranks; r++)
        if (pids[r] > 0) kill(pids[r], SIGKILL);
    for (int r = 0; r < job->nranks; r++) {
        while (pids[r] > 0 && waitpid(pids[r], NULL, 0) < 0 && errno == EINTR) continue;
        pids[r] = 0;
    }
}

/* Waits until all ranks have ended well, one has failed, the time is over or a signal comes; the
 * signals are blocked. */
static bool wait_for(const struct tune_job *job, pid_t *pids, const sigset_t *signals, int *signal)
{
    int nalive = job->nranks;
    while (reap(job, pids, &nalive)) {
        const int64_t left = job->end_ns + PATIENCE_NS - tune_now_ns();
        if (nalive == 0) return true;
        if (left <= 0) {
            fprintf(stderr, "tutti-plan: %d of %d ranks did not end in time\n", nalive,
                    job->nranks);
            return false;
        }
        const struct timespec most = {.tv_sec = left / 1000000000, .tv_nsec = left % 1000000000};
        const int heard = sigtimedwait(signals, NULL, &most);
        if (heard > 0 && heard != SIGCHLD) {
            *signal = heard;
            return false;
        }
    }
    return false;
}

static bool run_all(struct tune_job *job, int *signal)
{
    pid_t pids[TUNE_MOST_RANKS] = {0};
    sigset_t signals;
    sigemptyset(&signals);
    sigaddset(&signals, SIGCHLD);
    sigaddset(&signals, SIGINT);
    sigaddset(&signals, SIGTERM);
    sigaddset(&signals, SIGHUP);
    fflush(NULL);
    if (pipe(job->id_pipe)) {
        fprintf(stderr, "tutti-plan: no pipe: %s\n", strerror(errno));
        return false;
    }
    sigprocmask(SIG_BLOCK, &signals, &job->mask);
    bool fine = start(job, pids);
    close(job->id_pipe[0]);
    close(job->id_pipe[1]);
    fine = fine && wait_for(job, pids, &signals, signal);
    kill_all(job, pids);
    sigprocmask(SIG_SETMASK, &job->mask, NULL);
    return fine;
}

/* ---- Times ---------------------------------------------------------------------------------- */

static int count_cpus(const struct tune_job *job)
{
    cpu_set_t all;
    CPU_ZERO(&all);
    for (int r = 0; r < job->nranks; r++) CPU_OR(&all, &all, &job->allowed[r]);
    const int ncpus = CPU_COUNT(&all);
    return ncpus > 0 ? ncpus : job->nranks;
}

/* How much of their cores the ranks have had. */
static void take_shares(const struct tune_job *job, struct tune_times *all)
{
    const int ncpus = count_cpus(job);
    all->had_s += (double)job->took_ns / 1e9 * (ncpus < job->nranks ? ncpus : job->nranks);
    for (int r = 0; r < job->nranks; r++) all->ran_s += (double)job->ran_ns[r] / 1e9;
}

bool tune_in_group(const struct tune_job *job, int first, int index)
{
    const struct tune_point *a = &job->points[first], *b = &job->points[index];
    return a->collective == b->collective && a->nbytes == b->nbytes;
}

/* The time of the group's fastest algorithm; 0: one was not measured twice. */
static double fastest_of(const struct tune_job *job, int first, int end)
{
    double fastest = job->points[first].us;
    for (int i = first; i < end; i++) {
        if (!(job->points[i].next_us > 0)) return 0;
        if (job->points[i].us < fastest) fastest = job->points[i].us;
    }
    return fastest;
}

/* Whether the least two repetitions of each algorithm that is not slow are near one another. */
static bool is_steady(const struct tune_job *job, int first, int end, double fastest)
{
    for (int i = first; i < end; i++)
        if (job->points[i].us <= TUNE_SLOW * fastest &&
            job->points[i].next_us > STEADY * job->points[i].us)
            return false;
    return true;
}

static void take_times(const struct tune_job *job, struct tune_times *all)
{
    const double per_core = (double)job->nranks / count_cpus(job);
    for (int first = 0, end; first < job->npoints; first = end) {
        for (end = first; end < job->npoints && tune_in_group(job, first, end); end++) continue;
        const double fastest = fastest_of(job, first, end);
        const bool is_missing = !(fastest > 0);
        const bool is_taken = !is_missing && is_steady(job, first, end, fastest);
        all->ngroups++;
        all->nmissing += is_missing;
        all->nunsteady += !is_missing && !is_taken;
        for (int i = first; i < end && is_taken; i++)
            all->times[all->ntimes++] = (struct fit_time){.collective = job->points[i].collective,
                                                          .algorithm = job->points[i].algorithm,
                                                          .nranks = job->nranks,
                                                          .ranks_per_core = per_core,
                                                          .nbytes = job->points[i].nbytes,
                                                          .us = job->points[i].us};
    }
}

int tune_ranks(int nranks, int64_t ns, struct tune_times *all)
{
    struct tune_job *job =
        mmap(NULL, sizeof *job, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (job == MAP_FAILED) {
        fprintf(stderr, "tutti-plan: no memory to share with ranks: %s\n", strerror(errno));
        return PLAN_WRONG;
    }
    job->nranks = nranks;
    job->is_bound = nranks <= cores_find_allowed(job->cores, TUNE_MOST_RANKS);
    /* Where it is ignored, as the parent may have left it, no exit code is kept for waitpid. */
    signal(SIGCHLD, SIG_DFL);
    add_points(job);
    job->end_ns = tune_now_ns() + ns;
    const bool fine = run_all(job, &all->signal);
    if (fine) take_times(job, all);
    if (fine) take_shares(job, all);
    munmap(job, sizeof *job);
    return fine ? PLAN_DONE : PLAN_WRONG;
}
