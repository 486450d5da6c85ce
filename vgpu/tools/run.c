/* vgpu-run: starts a program on virtual GPUs and shows the reports of all its processes. */
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <inttypes.h>
#include <libgen.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <vgpu/counts.h>
#include <vgpu/driver/settings.h>

#include "reports.h"

enum { USAGE = 2, REPORTED = 86, CANNOT_START = 126, NOT_FOUND = 127 };

static const char help[] =
    "usage: vgpu-run [--gpus N] [--seed S] [--strict] PROGRAM [ARGUMENTS...]\n"
    "\n"
    "Runs the program, and those that it starts, on virtual GPUs: libcuda.so.1 beside vgpu-run is\n"
    "found before any other. Races, faults and waits without end are reported when they happen "
    "and\n"
    "listed at the end, both on standard error. The exit status is the program's, or 128 + the\n"
    "signal that ended it.\n"
    "\n"
    "  --gpus N     virtual GPUs (VGPU_DEVICES; default 1)\n"
    "  --seed S     decides the order of all that CUDA and the memory model leave open "
    "(VGPU_SEED;\n"
    "               default 1)\n"
    "  --strict     where the program ends with status 0, ends with 86 if there was a report or "
    "no\n"
    "               kernel ran; blocks start in any order, and vector accesses are several steps\n"
    "               (VGPU_BLOCK_ORDER=shuffled, VGPU_VECTOR=strict, unless they are set)\n"
    "  --help       this text\n"
    "\n"
    "vgpu-info --help lists all variables VGPU_*.\n";

struct run {
    bool strict;
    char **command;
    struct vgpu_counts *counts;
    int reports; /* the file */
    off_t from;  /* where the reports of this run begin there */
};

__attribute__((noreturn, format(printf, 2, 3))) static void fail(int status, const char *format,
                                                                 ...)
{
    va_list args;
    fputs("vgpu-run: ", stderr);
    va_start(args, format);
    vfprintf(stderr, format, args);
    va_end(args);
    fputs("\n", stderr);
    exit(status);
}

static void set(const char *name, const char *value, bool replace)
{
    if (setenv(name, value, replace) != 0) fail(1, "%s cannot be set: %s", name, strerror(errno));
}

/* ---- The options ---- */

static void take_number(const char *option, const char *variable, const char *text)
{
    char range[128];
    if (!vd_settings_allow(variable, text, range))
        fail(USAGE, "%s is '%s'; expected %s", option, text, range);
    set(variable, text, true);
}

static void read_options(struct run *run, int argc, char **argv)
{
    static const struct option options[] = {{"gpus", required_argument, NULL, 'g'},
                                            {"seed", required_argument, NULL, 's'},
                                            {"strict", no_argument, NULL, 'x'},
                                            {"help", no_argument, NULL, 'h'},
                                            {NULL, 0, NULL, 0}};
    opterr = 0;
    for (int letter; (letter = getopt_long(argc, argv, "+:h", options, NULL)) != -1;)
        switch (letter) {
        case 'g':
            take_number("--gpus", "VGPU_DEVICES", optarg);
            break;
        case 's':
            take_number("--seed", "VGPU_SEED", optarg);
            break;
        case 'x':
            run->strict = true;
            break;
        case 'h':
            fputs(help, stdout);
            if (fflush(stdout) != 0)
                fail(1, "standard output cannot be written (%s)", strerror(errno));
            exit(0);
        case ':':
            fail(USAGE, "%s lacks its number; vgpu-run --help tells more", argv[optind - 1]);
        default:
            fail(USAGE, "'%s' is no option; vgpu-run --help lists them", argv[optind - 1]);
        }
    run->command = argv + optind;
    if (*run->command == NULL) fail(USAGE, "no program is given; vgpu-run --help tells more");
}

/* ---- What the processes of the run find ---- */

/* An empty file of this process without a name: nothing is left of it, whoever is killed. Not one
 * of the standard descriptors, which may be closed. */
static int make_file(const char *name)
{
    const int made = memfd_create(name, MFD_CLOEXEC);
    const int fd = made >= 0 ? fcntl(made, F_DUPFD_CLOEXEC, 3) : -1;
    if (fd < 0) fail(1, "no memory for the reports: %s", strerror(errno));
    close(made);
    return fd;
}

static void set_path(const char *variable, int fd)
{
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/fd/%d", (int)getpid(), fd);
    set(variable, path, true);
}

static void prepare_counts(struct run *run)
{
    const int fd = make_file("vgpu-counts");
    void *at = MAP_FAILED;
    if (ftruncate(fd, sizeof *run->counts) == 0)
        at = mmap(NULL, sizeof *run->counts, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (at == MAP_FAILED) fail(1, "no memory for the counts: %s", strerror(errno));
    run->counts = at;
    set_path("VGPU_COUNTS", fd);
}

/* A file that the user names gets the reports; those of this run are read from it too. */
static void prepare_reports(struct run *run)
{
    const char *path = getenv("VGPU_REPORT");
    struct stat is;
    if (path == NULL || *path == '\0') {
        run->reports = make_file("vgpu-reports");
        set_path("VGPU_REPORT", run->reports);
        return;
    }
    run->reports = open(path, O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC | O_NONBLOCK, 0666);
    if (run->reports < 0 || fstat(run->reports, &is) != 0)
        fail(1, "VGPU_REPORT is '%s'; expected a file to append to: %s", path, strerror(errno));
    if (!S_ISREG(is.st_mode))
        fail(1, "VGPU_REPORT is '%s'; expected a file to append to, and this is none", path);
    run->from = is.st_size;
}

/* libcuda.so.1 lies beside this program. */
static void prepare_library(void)
{
    char self[4096], library[4096 + 32], path[16384];
    const ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
    if (n < 0) fail(1, "/proc/self/exe cannot be read: %s", strerror(errno));
    self[n] = '\0';
    const char *folder = dirname(self), *before = getenv("LD_LIBRARY_PATH");
    snprintf(library, sizeof library, "%s/libcuda.so.1", folder);
    if (access(library, R_OK) != 0)
        fail(1, "%s, which belongs beside vgpu-run, cannot be read: %s", library, strerror(errno));
    const bool more = before != NULL && *before != '\0';
    const int length =
        snprintf(path, sizeof path, "%s%s%s", folder, more ? ":" : "", more ? before : "");
    if (length >= (int)sizeof path)
        fail(1, "LD_LIBRARY_PATH has %zu bytes; at most %zu are possible", strlen(before),
             sizeof path - 1);
    set("LD_LIBRARY_PATH", path, true);
}

static void prepare(struct run *run)
{
    struct vd_settings settings;
    char error[512];
    set("VGPU_EXIT", "0", false); /* a process ends as it wants; the run is judged here */
    if (run->strict) {
        set("VGPU_BLOCK_ORDER", "shuffled", false);
        set("VGPU_VECTOR", "strict", false);
    }
    prepare_library();
    prepare_counts(run);
    prepare_reports(run);
    if (vd_settings_read(&settings, error)) fail(1, "%s", error);
}

/* ---- The program ---- */

/* Ctrl-C reaches the program from the terminal; what somebody sends to vgpu-run alone it passes on.
 */
static const int passed_on[] = {SIGTERM, SIGINT, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2};
enum { NPASSED_ON = sizeof passed_on / sizeof *passed_on };

/* In the child: becomes the program, or writes to `failed` why not. */
__attribute__((noreturn)) static void become(char **command, pid_t parent, int failed)
{
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    if (getppid() == parent) execvp(command[0], command);
    const int why = errno;
    const ssize_t n = write(failed, &why, sizeof why);
    _exit(n == sizeof why ? 0 : CANNOT_START);
}

static pid_t start(char **command, const sigset_t *mask)
{
    const pid_t parent = getpid();
    int failed[2], why;
    if (pipe2(failed, O_CLOEXEC) != 0) fail(1, "no pipe: %s", strerror(errno));
    const pid_t child = fork();
    if (child < 0) fail(1, "%s cannot be started: %s", command[0], strerror(errno));
    if (child == 0) {
        sigprocmask(SIG_SETMASK, mask, NULL);
        become(command, parent, failed[1]);
    }
    close(failed[1]);
    const ssize_t n = read(failed[0], &why, sizeof why); /* nothing: the program has begun */
    close(failed[0]);
    if (n == sizeof why)
        fail(why == ENOENT ? NOT_FOUND : CANNOT_START, "%s cannot be started: %s", command[0],
             strerror(why));
    return child;
}

/* Runs the program; the status that waitpid gives. */
static int run_program(char **command)
{
    sigset_t waited, before;
    sigemptyset(&waited);
    sigaddset(&waited, SIGCHLD);
    for (size_t i = 0; i < NPASSED_ON; i++) sigaddset(&waited, passed_on[i]);
    signal(SIGCHLD, SIG_DFL);
    sigprocmask(SIG_BLOCK, &waited, &before);
    const pid_t child = start(command, &before);
    for (;;) {
        int status;
        siginfo_t info;
        if (waitpid(child, &status, WNOHANG) == child) return status;
        if (sigwaitinfo(&waited, &info) < 0 || info.si_signo == SIGCHLD) continue;
        if (info.si_code <= 0) kill(child, info.si_signo);
    }
}

/* ---- The end ---- */

static void print_counts(const struct vgpu_counts *counts, const char *program)
{
    const uint64_t processes = atomic_load(&counts->processes);
    const uint64_t kernels = atomic_load(&counts->kernels);
    if (processes == 0) {
        fprintf(stderr,
                "vgpu-run: the virtual GPU was not used: no process of %s called cuInit of its "
                "libcuda.so.1\n",
                program);
        return;
    }
    fprintf(stderr,
            "vgpu-run: %" PRIu64 " process%s used virtual GPUs and began %" PRIu64 " kernel%s\n",
            processes, processes == 1 ? "" : "es", kernels, kernels == 1 ? "" : "s");
}

/* The exit status. */
static int judge(const struct run *run, int status)
{
    print_counts(run->counts, run->command[0]);
    const int nreports = vgpu_reports_print(run->reports, run->from, stderr);
    if (nreports < 0) fail(1, "the reports cannot be read: %s", strerror(errno));
    if (WIFSIGNALED(status)) return 128 + WTERMSIG(status);
    if (WEXITSTATUS(status) != 0 || !run->strict) return WEXITSTATUS(status);
    if (nreports != 0) {
        fputs("vgpu-run: --strict: status 86 because of reports\n", stderr);
        return REPORTED;
    }
    if (atomic_load(&run->counts->kernels) == 0) {
        fputs("vgpu-run: --strict: status 86 because no kernel ran\n", stderr);
        return REPORTED;
    }
    return 0;
}

int main(int argc, char **argv)
{
    struct run run = {0};
    read_options(&run, argc, argv);
    prepare(&run);
    return judge(&run, run_program(run.command));
}
