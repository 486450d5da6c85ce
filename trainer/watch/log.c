/* Writes the progress of a run: lines for people, and a line of JSON a step. */
#include "log.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "../utf8.h"
#include "clock.h"
#include "pipe.h"

/* Whether text[n] begins as the pattern, or is a part of that; # stands for a number, and blanks do
 * not count. */
static bool begins(const char *text, size_t n, const char *pattern)
{
    size_t at = 0;
    for (; *pattern; ++pattern) {
        while (at < n && text[at] == ' ') ++at;
        const size_t before = at;
        while (*pattern == '#' && at < n && strchr("-0123456789", text[at])) ++at;
        if (at == n) return true;
        if (*pattern == '#' ? at == before : text[at++] != *pattern) return false;
    }
    return true;
}

/* Whether text[n], the beginning of a file, is one of a log, or a part of that. Other data may have
 * lines of JSON, too, with a kind or a step. Before there were headers, all lines began with the
 * step. */
static bool is_log(const char *text, size_t n)
{
    static const char *const lines[] = {
        "{\"kind\":\"run\",\"version\":", "{\"kind\":\"step\",\"step\":#,\"loss\":",
        "{\"kind\":\"held_out\",\"step\":#,\"held_out_loss\":", "{\"step\":#,\"loss\":",
        "{\"step\":#,\"held_out_loss\":"};
    for (size_t i = 0; i < sizeof lines / sizeof *lines; ++i)
        if (begins(text, n, lines[i])) return true;
    return false;
}

/* What is left of a file without a last line that was cut (the disk was full, say). */
static off_t whole_lines(int fd, off_t nbytes)
{
    char text[4096];
    while (nbytes > 0) {
        const size_t most = nbytes < (off_t)sizeof text ? (size_t)nbytes : sizeof text;
        const ssize_t n = pread(fd, text, most, nbytes - (off_t)most);
        if (n != (ssize_t)most) return -1;
        const char *end = memrchr(text, '\n', most);
        if (end) return nbytes - (off_t)most + (end - text) + 1;
        nbytes -= (off_t)most;
    }
    return 0;
}

/* Fails where the file has something else than a log's lines. Cuts a line that has no end: the next
 * one would be glued to it. */
static tr_status look_at(int fd, off_t nbytes, const char *path)
{
    char text[256];
    const ssize_t n = pread(fd, text, sizeof text, 0);
    if (n < 0) return tr_fail("--log=%s: %s", path, strerror(errno));
    if (!is_log(text, (size_t)n))
        return tr_fail(
            "--log=%s: the file has something else than the lines of a log, the first of "
            "which begins with {\"kind\": \"run\", \"version\"; it stays as it is: give "
            "another file, or remove it",
            path);
    const off_t whole = whole_lines(fd, nbytes);
    if (whole < 0 || (whole < nbytes && ftruncate(fd, whole) < 0))
        return tr_fail("--log=%s: the last line has no end and cannot be removed: %s", path,
                       strerror(errno));
    return TR_OK;
}

/* Opens the file itself: its name may be another file's by now, or none's. -1: errno says why. */
static int open_again(int fd)
{
    char itself[64];
    snprintf(itself, sizeof itself, "/proc/self/fd/%d", fd);
    return open(itself, O_RDWR | O_CLOEXEC);
}

/* Looks at what is in the regular file. */
static tr_status look_at_file(int fd, const char *path)
{
    struct stat st;
    if (fstat(fd, &st) == 0 && st.st_size == 0) return TR_OK;
    const int same = open_again(fd);
    if (same < 0) return tr_fail("--log=%s: cannot be read: %s", path, strerror(errno));
    const tr_status status = look_at(same, st.st_size, path);
    close(same);
    return status;
}

/* Lines of both would be written over one another. */
static bool is_output(const struct stat *st)
{
    struct stat output;
    return fstat(STDOUT_FILENO, &output) == 0 && output.st_dev == st->st_dev &&
           output.st_ino == st->st_ino;
}

/* Locks the file, so that no other run writes to it, and makes it ready for the first line. The
 * lock goes with the descriptor. File systems without locks have none. */
static tr_status take_file(int fd, const char *path, bool append)
{
    struct stat st;
    if (fstat(fd, &st) < 0) return tr_fail("--log=%s: %s", path, strerror(errno));
    if (!S_ISREG(st.st_mode)) return TR_OK;
    if (is_output(&st))
        return tr_fail("--log=%s: standard output is written to that file, too; give another one",
                       path);
    if (flock(fd, LOCK_EX | LOCK_NB) < 0 && errno == EWOULDBLOCK)
        return tr_fail("--log=%s: another run writes its log there; wait for its end, or give "
                       "another file",
                       path);
    TR_TRY(look_at_file(fd, path));
    if (!append && ftruncate(fd, 0) < 0)
        return tr_fail("--log=%s: cannot be emptied: %s", path, strerror(errno));
    return TR_OK;
}

tr_status tr_log_open(struct tr_log *log, bool speaks, int64_t every, const char *path, bool append)
{
    *log = (struct tr_log){.speaks = speaks,
                           .printed.file = stdout,
                           .every = every,
                           .path = path,
                           .last_time = tr_clock_seconds()};
    log->printed.is_pipe = tr_pipe_is(fileno(stdout));
    if (!speaks || !path[0]) return TR_OK;
    /* O_NONBLOCK: open would wait for a reader of a pipe and tell nobody. */
    const int fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_NONBLOCK | O_CLOEXEC, 0666);
    if (fd < 0)
        return tr_fail("--log=%s: %s%s", path, strerror(errno),
                       errno == EISDIR  ? "; expected the name of a file to write to"
                       : errno == ENXIO ? "; nobody reads this pipe: start its reader first"
                                        : "");
    tr_status status = take_file(fd, path, append);
    fcntl(fd, F_SETFL, O_APPEND);
    if (status == TR_OK && !(log->json.file = fdopen(fd, "a")))
        status = tr_fail("--log=%s: %s", path, strerror(errno));
    if (log->json.file) log->json.is_pipe = tr_pipe_is(fileno(log->json.file));
    if (status < 0) close(fd);
    return status;
}

void tr_log_close(struct tr_log *log)
{
    if (log->json.file) fclose(log->json.file);
    log->json.file = NULL;
}

/* The standard error may be the same terminal, which has no room for this either. */
static bool tell_lost(const struct tr_log *log, const struct tr_outlet *outlet, bool is_over)
{
    const bool is_file = outlet == &log->json;
    return tr_say(stderr,
                  is_over ? "tutti-train: %s%s: lines from step %lld on are lost: nobody read what "
                            "was there\n"
                          : "tutti-train: %s%s: nobody reads what is there; lines from step %lld "
                            "on are lost until somebody does\n",
                  is_file ? "--log=" : "standard output", is_file ? log->path : "",
                  (long long)outlet->first_lost);
}

/* Whether a line can be written. A pipe whose reader stands still has no room for it: then the line
 * is lost, as the training must not stand still, too. */
static bool has_room(struct tr_log *log, struct tr_outlet *outlet, int64_t step)
{
    enum { WAIT_MS = 1000 }; /* before the first line that is lost */
    if (!outlet->file || !outlet->is_pipe) return outlet->file != NULL;
    const bool is_room = tr_pipe_has_room(fileno(outlet->file), outlet->has_lost ? 0 : WAIT_MS);
    if (!is_room && !outlet->has_lost) outlet->first_lost = step;
    outlet->has_lost |= !is_room;
    if (outlet->has_lost && !outlet->is_told) outlet->is_told = tell_lost(log, outlet, is_room);
    return is_room;
}

bool tr_log_may_print(struct tr_log *log, int64_t step)
{
    return has_room(log, &log->printed, step);
}

void tr_log_end_printing(struct tr_log *log)
{
    if (!log->speaks || tr_log_may_print(log, log->last_step)) return;
    const int fd = open("/dev/null", O_WRONLY | O_CLOEXEC);
    if (fd >= 0) dup2(fd, STDOUT_FILENO);
    if (fd >= 0) close(fd);
}

/* A line that cannot be written ends the file, said once, and not the training. */
static void end_line(struct tr_log *log, int64_t step)
{
    if (fflush(log->json.file) == 0) return;
    tr_say(stderr, "tutti-train: --log=%s: %s; no lines are written from step %lld on\n", log->path,
           strerror(errno), (long long)step);
    tr_log_close(log);
}

/* `"key": number, `, or null, since JSON has no number that is not finite. */
static void write_number(FILE *file, const char *key, int digits, double number)
{
    if (isfinite(number))
        fprintf(file, "\"%s\": %.*g, ", key, digits, number);
    else
        fprintf(file, "\"%s\": null, ", key);
}

/* What the loss was compared with, and what became of the update. */
static void write_spike(FILE *file, const struct tr_log_row *row)
{
    fprintf(file, "\"spike\": {");
    write_number(file, "mean", 9, row->spike.mean);
    write_number(file, "deviation", 9, row->spike.deviation);
    fprintf(file, "\"skipped\": %s}, ", row->skipped ? "true" : "false");
}

static void write_json(struct tr_log *log, const struct tr_log_row *row)
{
    FILE *file = log->json.file;
    fprintf(file, "{\"kind\": \"step\", \"step\": %lld, ", (long long)row->step);
    write_number(file, "loss", 17, row->loss);
    fprintf(file, "\"lr\": %.9g, ", row->lr);
    write_number(file, "norm", 9, row->norm);
    if (row->spike.is_spike) write_spike(file, row);
    fprintf(file, "\"tokens_per_second\": %.6g, ", row->tokens_per_second);
    if (isfinite(row->share_of_peak))
        fprintf(file, "\"share_of_peak\": %.6g, ", row->share_of_peak);
    fprintf(file, "\"seconds\": %.3f}\n", row->elapsed);
    end_line(log, row->step);
}

void tr_log_run(struct tr_log *log, int64_t step, const char *json)
{
    if (!has_room(log, &log->json, step + 1)) return;
    fprintf(log->json.file, "%s\n", json);
    end_line(log, step + 1);
}

void tr_log_held_out(struct tr_log *log, int64_t step, double loss, double elapsed)
{
    if (!log->speaks) return;
    if (tr_log_may_print(log, step)) {
        printf("step %6lld  held-out loss %.4f  perplexity %.3f\n", (long long)step, loss,
               exp(loss));
        fflush(stdout);
    }
    if (!has_room(log, &log->json, step)) return;
    fprintf(log->json.file, "{\"kind\": \"held_out\", \"step\": %lld, ", (long long)step);
    write_number(log->json.file, "held_out_loss", 17, loss);
    write_number(log->json.file, "perplexity", 9, exp(loss));
    fprintf(log->json.file, "\"seconds\": %.3f}\n", elapsed);
    end_line(log, step);
}

/* Seconds to go: by steps or by the budget, whichever ends first; a number that fits an integer. */
static double left(const struct tr_log_row *row, double seconds_per_step)
{
    double rest = row->total ? (double)(row->total - row->step) * seconds_per_step : 1e300;
    if (row->seconds > 0 && row->seconds - row->elapsed < rest) rest = row->seconds - row->elapsed;
    return rest > 1e15 ? 1e15 : rest > 0 ? rest : 0;
}

void tr_log_step(struct tr_log *log, const struct tr_log_row *row)
{
    if (!log->nsteps++) {
        log->first_loss = row->loss;
        log->last_step = row->step - 1;
    }
    log->last_loss = row->loss;
    if (!log->speaks) return;
    if (row->spike.is_spike && tr_log_may_print(log, row->step))
        tr_spikes_print(&row->spike, row->step, row->loss, row->norm, row->skipped);
    if (has_room(log, &log->json, row->step)) write_json(log, row);
    const bool last = row->total && row->step == row->total;
    if (log->nsteps > 1 && row->step % log->every && !last) return;
    const double now = tr_clock_seconds();
    const double each = (now - log->last_time) / (double)(row->step - log->last_step);
    const long long rest = (long long)left(row, each);
    if (tr_log_may_print(log, row->step)) {
        printf("step %6lld  loss %.4f  lr %.2e  norm %6.3f  %7.0f tokens/s  %7.1f ms/step  "
               "%lld:%02lld left\n",
               (long long)row->step, row->loss, row->lr, row->norm, row->tokens_per_step / each,
               each * 1e3, rest / 60, rest % 60);
        fflush(stdout);
    }
    log->last_time = now;
    log->last_step = row->step;
}

/* The bytes of the UTF-8 character that text[n] begins with; 0 when it begins with none, or with
 * one that commands a terminal. */
static int character(const unsigned char *text, long n)
{
    const unsigned char first = text[0];
    if (first < 128) return (first >= 32 && first < 127) || first == '\n' || first == '\t';
    if (first == 0xC2 && n > 1 && text[1] < 0xA0) return 0; /* U+0080 to U+009F */
    return tr_utf8_length(text, (size_t)n);
}

void tr_log_text(FILE *out, const unsigned char *text, long n)
{
    for (long i = 0; i < n;) {
        const int nbytes = character(text + i, n - i);
        if (nbytes)
            fwrite(text + i, 1, (size_t)nbytes, out);
        else
            fputc('.', out);
        i += nbytes ? nbytes : 1;
    }
}
