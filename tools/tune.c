/* tutti-plan tune: measures the constants of the cost model on this machine and writes the file
 * that TUTTI_COST_FILE names. */
#include "tune.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { MOST_NUMBERS = 16 };

/* Numbers of ranks that are measured, and the time that each gets. */
struct numbers {
    int nranks[MOST_NUMBERS], number;
};

/* ---- The output ----------------------------------------------------------------------------- */

static bool is_stdout(const char *path)
{
    return !path || strcmp(path, "-") == 0;
}

static int fail_output(const char *path, const char *why)
{
    fprintf(stderr, "tutti-plan: '%s' cannot be written: %s\n", path, why);
    return PLAN_WRONG;
}

/* A new file beside `path`, under a name that nobody has; NULL with errno. */
static FILE *open_beside(const char *path, char name[PATH_MAX])
{
    if (snprintf(name, PATH_MAX, "%s.XXXXXX", path) >= PATH_MAX) {
        errno = ENAMETOOLONG;
        return NULL;
    }
    const int fd = mkostemp(name, O_CLOEXEC);
    FILE *file = fd >= 0 ? fdopen(fd, "w") : NULL;
    if (fd >= 0 && !file) close(fd);
    return file;
}

/* Writes through symbolic links: the file that `path` names in the end, if there is one. */
static const char *follow(const char *path, char target[PATH_MAX])
{
    return realpath(path, target) ? target : path;
}

/* Before anything is measured: whether a file can be made there. */
static int check_output(const char *path)
{
    char name[PATH_MAX], target[PATH_MAX];
    struct stat there;
    if (is_stdout(path)) return PLAN_DONE;
    if (stat(path, &there) == 0 && !S_ISREG(there.st_mode))
        return fail_output(path, "it is there, and is no regular file; '-' is the standard output");
    FILE *file = open_beside(follow(path, target), name);
    if (!file) return fail_output(path, strerror(errno));
    fclose(file);
    unlink(name);
    return PLAN_DONE;
}

/* Puts the text where readers see either the old file or the whole new one. Others may read it:
 * ranks of another user believe root's file. */
static int write_output(const char *path, const char *text)
{
    char name[PATH_MAX], target[PATH_MAX];
    if (is_stdout(path)) {
        fputs(text, stdout);
        return PLAN_DONE;
    }
    const char *end = follow(path, target);
    FILE *file = open_beside(end, name);
    if (!file) return fail_output(path, strerror(errno));
    bool fine = fputs(text, file) >= 0 && fflush(file) == 0 && fchmod(fileno(file), 0644) == 0 &&
                fsync(fileno(file)) == 0;
    if (fclose(file)) fine = false;
    if (fine && rename(name, end) == 0) return PLAN_DONE;
    const int error = errno;
    unlink(name);
    return fail_output(path, strerror(error));
}

static void write_head(FILE *file, const struct numbers *numbers)
{
    char host[256] = "?", date[64] = "?";
    const time_t now = time(NULL);
    struct tm local;
    (void)gethostname(host, sizeof host - 1);
    if (localtime_r(&now, &local)) (void)strftime(date, sizeof date, "%Y-%m-%d %H:%M %z", &local);
    fprintf(file, "# Constants of the cost model for TUTTI_COST_FILE: microseconds, or microseconds"
                  " a byte.\n");
    fprintf(file, "# Measured by tutti-plan tune, tutti %d.%d.%d, on %s, host %s, %ld cores;",
            TUTTI_MAJOR, TUTTI_MINOR, TUTTI_PATCH, date, host, sysconf(_SC_NPROCESSORS_ONLN));
    for (int i = 0; i < numbers->number; i++)
        fprintf(file, "%s%d", i ? ", " : " ", numbers->nranks[i]);
    fprintf(file, " ranks.\n# `tutti-info --costs` says what each is.\n");
}

/* ---- The command ---------------------------------------------------------------------------- */

static int take_numbers(const struct plan_options *options, struct numbers *numbers)
{
    static const struct plan_range usual[] = {{2, 2}, {4, 4}, {8, 8}};
    const struct plan_range *ranges = options->nranges ? options->ranks : usual;
    const int nranges = options->nranges ? options->nranges : 3;
    for (int i = 0; i < nranges; i++)
        for (int n = ranges[i].from; n <= ranges[i].to; n++) {
            bool is_there = false;
            for (int k = 0; k < numbers->number; k++) is_there |= numbers->nranks[k] == n;
            if (is_there) continue;
            if (n < 2 || n > TUNE_MOST_RANKS || numbers->number == MOST_NUMBERS)
                return plan_complain("tune takes at most 16 numbers of ranks from 2 to 64", NULL);
            numbers->nranks[numbers->number++] = n;
        }
    return PLAN_DONE;
}

/* More ranks take longer for a call. */
static double weight_of(int nranks)
{
    return 2 + nranks;
}

/* Measures one number of ranks after the other. */
static int measure(const struct numbers *numbers, int64_t end_ns, struct tune_times *all)
{
    double weights = 0;
    for (int i = 0; i < numbers->number; i++) weights += weight_of(numbers->nranks[i]);
    for (int i = 0; i < numbers->number; i++) {
        const int64_t now = tune_now_ns(), left = end_ns > now ? end_ns - now : 0;
        const double share = weight_of(numbers->nranks[i]) / weights;
        const int result = tune_ranks(numbers->nranks[i], (int64_t)(share * (double)left), all);
        if (result != PLAN_DONE) return result;
        weights -= weight_of(numbers->nranks[i]);
    }
    return PLAN_DONE;
}

/* The text of the file in *text, which the caller frees. */
static int fit(const struct numbers *numbers, const struct tune_times *all, FILE *table,
               char **text)
{
    size_t size;
    FILE *file = open_memstream(text, &size);
    if (!file) {
        fprintf(stderr, "tutti-plan: out of memory for the file\n");
        return PLAN_WRONG;
    }
    write_head(file, numbers);
    /* A few times would be followed wherever they lead. */
    const int nbelieved = all->ngroups - all->nmissing - all->nunsteady;
    bool fine = true;
    if (3 * nbelieved < all->ngroups - all->nmissing)
        fit_nothing(table, file);
    else
        fine = fit_constants(all->times, all->ntimes, table, file);
    if (fclose(file) == 0 && fine) return PLAN_DONE;
    free(*text);
    return PLAN_WRONG;
}

/* Where ranks got less of their cores than that, the machine is not measured but its load. */
static const double BUSY = 0.85;

static void say_what_was_measured(FILE *table, const struct tune_times *all)
{
    const double share = all->had_s > 0 ? all->ran_s / all->had_s : 1;
    fprintf(table, "%d times of algorithms, of %d of %d collectives and sizes\n", all->ntimes,
            all->ngroups - all->nmissing - all->nunsteady, all->ngroups);
    if (all->nunsteady > 0)
        fprintf(table, "left out: %d whose repetitions differ by more than 15 %%\n",
                all->nunsteady);
    if (all->nmissing > 0)
        fprintf(table, "left out: %d for lack of time (--seconds)\n", all->nmissing);
    if (share < BUSY)
        fprintf(table,
                "The ranks ran only %.0f %% of the time of their cores: repeat it while nothing "
                "else runs.\n",
                100 * share);
}

static int measure_and_write(const struct plan_options *options, const struct numbers *numbers,
                             struct tune_times *all)
{
    const double seconds = options->seconds;
    /* What is left is for ends of ranks and the fit. */
    const int64_t ns = (int64_t)((seconds - 0.3 - 0.03 * seconds) * 1e9);
    FILE *table = is_stdout(options->output) ? stderr : stdout;
    char *text;
    int result = measure(numbers, tune_now_ns() + ns, all);
    if (result != PLAN_DONE) return result;
    if (all->nmissing == all->ngroups) {
        fprintf(stderr, "tutti-plan: nothing was measured in %g seconds: give more (--seconds)\n",
                seconds);
        return PLAN_WRONG;
    }
    say_what_was_measured(table, all);
    result = fit(numbers, all, table, &text);
    if (result != PLAN_DONE) return result;
    result = write_output(options->output, text);
    free(text);
    if (result == PLAN_DONE && !is_stdout(options->output))
        fprintf(table, "Written to %s: set TUTTI_COST_FILE to its path for all ranks of a job.\n",
                options->output);
    return result;
}

int tune_run(const struct plan_options *options)
{
    struct numbers numbers = {.number = 0};
    struct tune_times all = {.ntimes = 0};
    int result = take_numbers(options, &numbers);
    if (result == PLAN_DONE) result = check_output(options->output);
    if (result != PLAN_DONE) return result;
    all.times = calloc((size_t)numbers.number * TUNE_MOST_POINTS, sizeof *all.times);
    if (!all.times) {
        fprintf(stderr, "tutti-plan: out of memory for the times\n");
        return PLAN_WRONG;
    }
    result = measure_and_write(options, &numbers, &all);
    free(all.times);
    if (all.signal) {
        signal(all.signal, SIG_DFL);
        raise(all.signal);
    }
    return result;
}
