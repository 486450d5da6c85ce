/* Reports: races, faults, deadlocks, stalls, leaks; as text on standard error, and as JSON, an
 * object a line, in the file of VGPU_REPORT. At its end a process that made one gets the exit
 * status 86, unless VGPU_EXIT=0. */
#include "report.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "run.h"
#include "suppress.h"

enum { EXIT_STATUS = 86, JSON = 16384 };

static unsigned nreports;
static pid_t process; /* that made them: a child of fork begins without */

/* The file of VGPU_REPORT, to append to; without waiting for anybody. -1: *why says what it is. */
static int open_report(const char **why)
{
    struct stat is;
    const int fd =
        open(vd.settings.report, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NONBLOCK, 0666);
    if (fd < 0) {
        *why = errno == ENXIO ? "it is a pipe that nobody reads, or a socket" : strerror(errno);
        return -1;
    }
    if (fstat(fd, &is) == 0 && !S_ISFIFO(is.st_mode)) return fd;
    *why = "it is a pipe";
    close(fd);
    return -1;
}

int vd_report_start(char error[512])
{
    if (vd.settings.suppress != NULL && vd_suppress_read(vd.settings.suppress, error)) return -1;
    if (vd.settings.report != NULL) {
        const char *why;
        const int fd = open_report(&why);
        if (fd < 0) {
            snprintf(error, 512, "VGPU_REPORT is \"%.200s\"; expected a file to append to: %s",
                     vd.settings.report, why);
            return -1;
        }
        close(fd);
    }
    process = getpid();
    return 0;
}

void vd_report_stop(void)
{
    process = 0;
}

struct json {
    char text[JSON];
    size_t n;
};

/* One byte; what does not fit is left out, with room kept for the end of the object. */
static void add_byte(struct json *json, char byte)
{
    if (json->n < JSON - 64) json->text[json->n++] = byte;
}

__attribute__((format(printf, 2, 3))) static void add(struct json *json, const char *format, ...)
{
    char text[256];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    for (const char *at = text; *at != '\0'; at++) add_byte(json, *at);
}

static void add_string(struct json *json, const char *text)
{
    add_byte(json, '"');
    for (; *text != '\0' && json->n < JSON - 128; text++) {
        const unsigned char byte = (unsigned char)*text;
        if (byte == '\n')
            add(json, "\\n");
        else if (byte < 0x20)
            add(json, "\\u%04x", byte);
        else {
            if (byte == '"' || byte == '\\') add_byte(json, '\\');
            add_byte(json, (char)byte);
        }
    }
    add_byte(json, '"');
}

/* One write, so that lines of several processes do not mix. */
static void write_json(const char *kind, const char *text, const struct vd_named *named)
{
    static struct json json;
    json.n = 0;
    add(&json, "{\"kind\": \"%s\", \"seed\": %" PRIu64 ", \"replays\": %s, \"process\": %d", kind,
        vd.settings.seed, vd_executor_replays() ? "true" : "false", (int)getpid());
    add(&json, ", \"at\": [");
    for (unsigned i = 0; i < named->n && json.n < JSON / 2; i++) {
        add(&json, "%s{\"kernel\": ", i == 0 ? "" : ", ");
        add_string(&json, named->at[i].kernel);
        add(&json, ", \"place\": ");
        add_string(&json, named->at[i].place);
        add(&json, "}");
    }
    add(&json, "], \"text\": ");
    add_string(&json, text);
    json.n += (size_t)snprintf(json.text + json.n, JSON - json.n, "}\n");
    const char *why = "";
    const int fd = open_report(&why);
    if (fd >= 0 && write(fd, json.text, json.n) != (ssize_t)json.n) why = strerror(errno);
    if (*why != '\0')
        fprintf(stderr, "vgpu: WARN: %s was not written: %s\n", vd.settings.report, why);
    if (fd >= 0) close(fd);
}

void vd_report(const char *kind, const char *text)
{
    static struct vd_named named;
    vd_named_find(text, &named);
    if (vd_suppressed(kind, &named)) return;
    nreports++;
    const size_t length = strlen(text);
    fprintf(stderr, "vgpu: %s: %s%s  VGPU_SEED=%" PRIu64 "%s\n", kind, text,
            length != 0 && text[length - 1] == '\n' ? "" : "\n", vd.settings.seed,
            vd_executor_replays() ? " gives the same order again"
                                  : "; the order also came from the times of calls, so the seed "
                                    "alone does not give it again");
    if (vd.settings.report != NULL) write_json(kind, text, &named);
}

/* Memory that was not freed. Not asked for by default: the end of a process frees all. */
static void report_leaks(void)
{
    char text[4096];
    uint64_t nbytes = 0;
    unsigned n = 0;
    size_t length = 0;
    for (const struct vd_memory *m = vd.memories; m != NULL; m = m->next) {
        if (m->region.freed) continue;
        n++;
        nbytes += m->region.nbytes;
        if (length < sizeof text - 128)
            length += (size_t)snprintf(text + length, sizeof text - length,
                                       "  %s, allocation %" PRIu64 ": %" PRIu64 " bytes\n",
                                       m->region.what, m->region.number, m->region.nbytes);
    }
    if (n == 0) return;
    char all[4096 + 128];
    snprintf(all, sizeof all, "%u allocation%s of %" PRIu64 " bytes %s not freed\n%s", n,
             n == 1 ? "" : "s", nbytes, n == 1 ? "was" : "were", text);
    vd_report("leak", all);
}

/* A destructor runs after the program's own handlers. A thread that holds the lock for long keeps
 * it. */
__attribute__((destructor)) static void end_process(void)
{
    enum { LOCK_MS = 100 };
    if (process != getpid()) return;
    const uint32_t ms = vd.settings.exit_ms;
    if (vd_lock_for(ms > LOCK_MS ? ms : LOCK_MS)) {
        if (!vd_executor_finish(ms))
            fprintf(stderr,
                    "vgpu: WARN: the process ended before its work had, which waited for the host "
                    "or longer than VGPU_EXIT_MS=%" PRIu32 "\n",
                    ms);
        if (vd.settings.leaks) report_leaks();
        pthread_mutex_unlock(&vd.lock);
    }
    vd_suppress_print(stderr);
    if (nreports == 0) return;
    fprintf(stderr, "vgpu: %u report%s\n", nreports, nreports == 1 ? "" : "s");
    if (!vd.settings.reports_fail) return;
    fflush(NULL);
    _exit(EXIT_STATUS);
}
