/* faults [--seeds N] [--first SEED] [--limit SECONDS]: jobs of ranks on virtual GPUs in which
 * something goes wrong.
 *
 * Each seed is a job: ranks as processes or as threads, and a fault of one rank. A job must end in
 * time; no result may be wrong; and each rank that gets an error must find there what went wrong,
 * and with which rank. Prints a table, and each job that did otherwise. faults --job SEED is one
 * process of a job. TT_FAULT_HOSTS: on so many hosts (fault_hosts);
 * TT_FAULT_MIXED: fault_mixes; TT_FAULT_NETWORK: fault_has_network; TT_FAULT_ONLY: the name of a
 * fault, which all jobs have. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "faults.h"

enum { MOST_PROCESSES = 8, TEXT = 16384 };

/* In seconds, of a job; so long because the machine may be busy. More than LONG_MS. */
static double limit = 300;

struct outcome {
    int njobs, nhangs, nwrong, nsilent;
};

static char folder[] = "/tmp/tutti-faults-XXXXXX";

static void set_number(const char *name, int value)
{
    char text[16];
    snprintf(text, sizeof text, "%d", value);
    setenv(name, text, 1);
}

/* Into the network of a host of with-hosts, and its name. */
static void enter_host(int host)
{
    static const char *const kinds[] = {"net", "uts"};
    char path[64], pid[16] = "";
    snprintf(path, sizeof path, "/run/hosts/h%d", host);
    FILE *file = fopen(path, "r");
    if (!file || fscanf(file, "%15[0-9]", pid) != 1) {
        fprintf(stderr, "%s: %s: TT_FAULT_NETWORK needs tests/hosts/with-hosts\n", path,
                strerror(errno));
        _exit(1);
    }
    fclose(file);
    for (int i = 0; i < 2; i++) {
        snprintf(path, sizeof path, "/proc/%s/ns/%s", pid, kinds[i]);
        const int fd = open(path, O_RDONLY | O_CLOEXEC);
        if (fd < 0 || setns(fd, 0)) {
            fprintf(stderr, "%s: %s\n", path, strerror(errno));
            _exit(1);
        }
        close(fd);
    }
}

static _Noreturn void become(const char *self, const struct plan *plan, int rank)
{
    char seed[24], method[64], path[64];
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    snprintf(seed, sizeof seed, "%llu", (unsigned long long)plan->seed);
    snprintf(method, sizeof method, "file://%s/id.%s", folder, seed);
    snprintf(path, sizeof path, "%s/%d", folder, rank);
    set_number("RANK", rank);
    set_number("LOCAL_RANK", rank);
    set_number("WORLD_SIZE", plan->nranks);
    set_number("LOCAL_WORLD_SIZE", plan->nranks);
    set_number("VGPU_DEVICES", plan->ngpus);
    if (fault_hosts() > 1) set_number("TUTTI_HOST_ID", fault_host_of(rank));
    if (fault_has_network()) enter_host(fault_host_of(rank));
    setenv("TUTTI_INIT_METHOD", method, 1);
    setenv("VGPU_SEED", seed, 1);
    if (fault_spoils_gpu(plan->fault)) setenv("VGPU_EXIT", "0", 1); /* the report is planned */
    if (plan->fault == OUT_OF_MEMORY) setenv("VGPU_MEMORY", "512M", 1);
    if (plan->fault == SILENT) setenv("TUTTI_NET_TIMEOUT_MS", "2000", 1);
    const int log = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    if (log < 0 || dup2(log, 2) < 0) _exit(1);
    execl(self, self, "--job", seed, (char *)NULL);
    _exit(127);
}

/* What the process of this number said, on stdout; only for one that failed. */
static void show(int process)
{
    char path[64], text[TEXT];
    snprintf(path, sizeof path, "%s/%d", folder, process);
    const int fd = open(path, O_RDONLY);
    const ssize_t n = fd < 0 ? 0 : read(fd, text, sizeof text - 1);
    if (n > 0) printf("%.*s", (int)n, text);
    close(fd);
}

static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec * 1e-9;
}

/* Waits for the process; kills it at the time `until`. Its status; -1: it hung. */
static int wait_for(pid_t pid, double until)
{
    int status;
    for (;;) {
        const pid_t got = waitpid(pid, &status, WNOHANG);
        if (got == pid) return status;
        if (got < 0 && errno != EINTR) return -1;
        if (now() > until) break;
        poll(NULL, 0, 5);
    }
    kill(pid, SIGKILL);
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {
    }
    return -1;
}

static void run_job(const char *self, uint64_t seed, struct outcome *outcome)
{
    const struct plan plan = plan_of(seed);
    const int nprocesses = plan.threads ? 1 : plan.nranks;
    pid_t pids[MOST_PROCESSES];
    bool hangs = false, wrong = false, silent = false;
    fflush(stdout);
    for (int i = 0; i < nprocesses; i++)
        if ((pids[i] = fork()) == 0) become(self, &plan, i);
    const double until = now() + limit;
    for (int i = 0; i < nprocesses; i++) {
        const int status = wait_for(pids[i], until);
        const bool killed = plan.fault == KILLED && i == plan.faulty && status != -1 &&
                            WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL;
        const int code = status != -1 && WIFEXITED(status) ? WEXITSTATUS(status) : -1;
        if (getenv("TT_FAULT_VERBOSE")) show(i);
        if (killed || code == 0) continue;
        hangs = hangs || status == -1;
        wrong = wrong || code == WRONG_RESULT;
        silent = silent || (status != -1 && code != WRONG_RESULT);
        printf("seed %llu: %s: rank %d of %d, %s on %d GPUs: process %d: %s (status 0x%x)\n",
               (unsigned long long)seed, fault_name(plan.fault), plan.faulty, plan.nranks,
               plan.threads ? "threads" : "processes", plan.ngpus, i,
               status == -1 ? "did not end" : "failed", (unsigned)status);
        show(i);
    }
    if (plan.fault == SILENT) {
        char command[48];
        snprintf(command, sizeof command, "link loss h%d eth0 0", fault_host_of(plan.faulty));
        if (system(command)) abort();
    }
    outcome->njobs++;
    outcome->nhangs += hangs;
    outcome->nwrong += wrong;
    outcome->nsilent += silent;
}

static void remove_files(uint64_t first, uint64_t nseeds)
{
    char path[64];
    for (int i = 0; i < MOST_PROCESSES; i++) {
        snprintf(path, sizeof path, "%s/%d", folder, i);
        unlink(path);
    }
    for (uint64_t seed = first; seed < first + nseeds; seed++) {
        snprintf(path, sizeof path, "%s/id.%llu", folder, (unsigned long long)seed);
        unlink(path);
    }
    if (rmdir(folder)) printf("%s is left: %s\n", folder, strerror(errno));
}

static int run_all(const char *self, uint64_t first, uint64_t nseeds)
{
    struct outcome outcomes[NFAULTS + 1] = {{0}}, *all = &outcomes[NFAULTS];
    const double start = now();
    if (!mkdtemp(folder)) return 1;
    for (uint64_t seed = first; seed < first + nseeds; seed++)
        run_job(self, seed, &outcomes[plan_of(seed).fault]);
    remove_files(first, nseeds);
    printf("| fault | jobs | hangs | wrong results | errors that do not say it |\n"
           "|---|---|---|---|---|\n");
    for (int i = 0; i <= NFAULTS; i++) {
        const struct outcome *one = &outcomes[i];
        printf("| %s | %d | %d | %d | %d |\n", i == NFAULTS ? "all" : fault_name((enum fault)i),
               one->njobs, one->nhangs, one->nwrong, one->nsilent);
        if (i == NFAULTS) break;
        all->njobs += one->njobs;
        all->nhangs += one->nhangs;
        all->nwrong += one->nwrong;
        all->nsilent += one->nsilent;
    }
    printf("%.0f s\n", now() - start);
    return all->nhangs || all->nwrong || all->nsilent;
}

int main(int argc, char **argv)
{
    uint64_t first = 1, nseeds = 20;
    for (int i = 1; i + 1 < argc; i += 2) {
        const uint64_t value = strtoull(argv[i + 1], NULL, 10);
        if (!strcmp(argv[i], "--job")) {
            const struct plan plan = plan_of(value);
            return run_plan(&plan);
        }
        if (!strcmp(argv[i], "--limit")) limit = (double)value;
        if (!strcmp(argv[i], "--seeds")) nseeds = value;
        if (!strcmp(argv[i], "--first")) first = value;
    }
    return run_all(argv[0], first, nseeds);
}
