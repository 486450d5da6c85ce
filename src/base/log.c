/* Writes log lines, each with one system call, so that lines of several threads do not mix. */
#include "base/log.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "base/config.h"
#include "base/escape.h"
#include "base/log_subsystems.h"
#include "base/names.h"
#include "base/nccl_settings.h"
#include "base/open.h"
#include "base/private_fd.h"
#include "base/stderr.h"
#include "base/write.h"

static pthread_once_t once = PTHREAD_ONCE_INIT;
static enum tt_log_level level_in_force;
static bool has_nccls_form;  /* "NCCL" in place of "tutti" */
static bool asked_by_nccl;   /* NCCL_DEBUG is understood and not NONE */
static unsigned subsystems;  /* whose lines are written at INFO */
static int log_fd = -1;      /* of TUTTI_LOG_FILE; -1: a standard stream */
static struct stat log_file; /* what log_fd is: the program may close it and use its number */
static char host_name[64] = "?";
static _Thread_local int device_of_thread;

/* Expands %h (host), %p (pid) and %% (%), as NCCL_DEBUG_FILE does. False: the path is too long. */
static bool expand_path(char *path, size_t size, const char *pattern)
{
    size_t used = 0;
    for (const char *c = pattern; *c && used < size; c++) {
        int wrote;
        if (c[0] == '%' && c[1] == 'h')
            wrote = snprintf(path + used, size - used, "%s", host_name), c++;
        else if (c[0] == '%' && c[1] == 'p')
            wrote = snprintf(path + used, size - used, "%d", (int)getpid()), c++;
        else
            wrote = snprintf(path + used, size - used, "%c", *c), c += c[0] == '%' && c[1] == '%';
        used += (size_t)wrote;
    }
    return used < size;
}

/* Why the file that is open is no place for a log; NULL: it is one. A pipe or a terminal of this
 * user is one (/dev/stderr). */
static const char *complain(int fd, struct stat *file)
{
    if (fstat(fd, file) != 0) return strerror(errno);
    if (!S_ISREG(file->st_mode) && !S_ISFIFO(file->st_mode) && !S_ISCHR(file->st_mode))
        return tt_kind_of_file(file->st_mode);
    return tt_is_own_file(file) ? NULL : "it belongs to another user";
}

/* The descriptor of the program that the path names; -1: the path names none. */
static int descriptor_at(const char *path)
{
    static const char *const folders[] = {"/dev/fd/", "/proc/self/fd/"};
    if (!strcmp(path, "/dev/stdout")) return STDOUT_FILENO;
    if (!strcmp(path, "/dev/stderr")) return STDERR_FILENO;
    for (size_t i = 0; i < sizeof folders / sizeof *folders; i++) {
        const size_t length = strlen(folders[i]);
        char *end;
        if (strncmp(path, folders[i], length) != 0 || path[length] < '0' || path[length] > '9')
            continue;
        const long number = strtol(path + length, &end, 10);
        if (!*end && number <= INT_MAX) return (int)number;
    }
    return -1;
}

/* A file that the program writes to is not opened anew: with a position of its own in the file the
 * log's lines and the program's would overwrite each other. What is opened never waits: without a
 * reader a pipe cannot be opened, and with a slow one it loses lines. */
static int open_path(const char *path)
{
    const int own = descriptor_at(path), flags = own < 0 ? -1 : fcntl(own, F_GETFL);
    if (flags < 0 || (flags & O_ACCMODE) == O_RDONLY)
        return tt_open(path, O_WRONLY | O_CREAT | O_APPEND, 0644);
    tt_low_fd_hold();
    return tt_low_fd_release(fcntl(own, F_DUPFD_CLOEXEC, 0));
}

static void open_file(const char *pattern)
{
    char path[PATH_MAX];
    const char *why = strerror(ENAMETOOLONG);
    int fd = -1;
    if (expand_path(path, sizeof path, pattern)) {
        fd = open_path(path);
        why = fd < 0 ? strerror(errno) : complain(fd, &log_file);
    }
    if (!why) {
        log_fd = fd;
        return;
    }
    if (fd >= 0) close(fd);
    tt_stderr_say("%s=%.1024s cannot be opened (%s); using %s", tt_config_name(TT_CONFIG_LOG_FILE),
                  pattern, why, asked_by_nccl ? "stdout" : "stderr");
}

static void choose_subsystems(void)
{
    char unknown[64];
    const char *list = tt_config_string(TT_CONFIG_LOG_SUBSYSTEMS);
    if (!tt_subsystems_parse(list, &subsystems, unknown, sizeof unknown))
        tt_stderr_say("%s=%.200s: '%s' is no subsystem, such as INIT, NET or ALL; it has no effect",
                      tt_config_name(TT_CONFIG_LOG_SUBSYSTEMS), list, unknown);
}

static void say_note(enum tt_log_level level, const char *text)
{
    if (level_in_force >= level) tt_log(level, __FILE__, __LINE__, "%s", text);
}

static void open_log(void)
{
    tt_stderr_remember();
    if (gethostname(host_name, sizeof host_name - 1) != 0) strcpy(host_name, "?");
    level_in_force = (enum tt_log_level)tt_config_int(TT_CONFIG_LOG);
    has_nccls_form = tt_config_with_nccl();
    const char *debug = has_nccls_form ? tt_nccl_value(TT_NCCL_DEBUG) : NULL;
    asked_by_nccl = debug && tt_config_is_nccl(TT_CONFIG_LOG) && strcasecmp(debug, "NONE") != 0;
    const char *pattern = tt_config_string(TT_CONFIG_LOG_FILE);
    if (pattern[0]) open_file(pattern);
    choose_subsystems();
    if (has_nccls_form) tt_nccl_take_notes(say_note);
}

/* A line that cannot be written is lost: there is nowhere left to say it. */
static void write_line(const char *text, size_t nbytes)
{
    struct stat now;
    const bool has_file = log_fd >= 0 && fstat(log_fd, &now) == 0 &&
                          now.st_dev == log_file.st_dev && now.st_ino == log_file.st_ino;
    if (has_file)
        (void)tt_write(log_fd, text, nbytes);
    else if (asked_by_nccl && log_fd < 0)
        tt_stdout_write(text, nbytes);
    else
        tt_stderr_write(text, nbytes);
}

enum tt_log_level tt_log_level(void)
{
    const int saved_errno = errno; /* callers go on to print it */
    pthread_once(&once, open_log);
    errno = saved_errno;
    return level_in_force;
}

void tt_log_set_device(int device)
{
    device_of_thread = device;
}

void tt_log_version(const char *version)
{
    static atomic_flag said = ATOMIC_FLAG_INIT;
    char line[128];
    const enum tt_log_level level = tt_log_level();
    if (!asked_by_nccl || atomic_flag_test_and_set(&said)) return;
    snprintf(line, sizeof line, "NCCL version %s\n", version);
    if (level >= TT_LOG_INFO)
        tt_log(TT_LOG_INFO, __FILE__, __LINE__, "NCCL version %s", version);
    else
        write_line(line, strlen(line));
}

/* A warning also names the place in the source: in NCCL's form at the end, where programs that
 * look for the text after "NCCL WARN " do not see it. */
static int begin_line(char *text, size_t size, enum tt_log_level level, const char *place)
{
    static const char *const names[] = {"", "WARN", "INFO"};
    const int pid = (int)getpid(), tid = (int)gettid();
    if (has_nccls_form)
        return snprintf(text, size, "%s:%d:%d [%d] NCCL %s ", host_name, pid, tid, device_of_thread,
                        names[level]);
    return snprintf(text, size, "%s:%d:%d tutti %s %s%s", host_name, pid, tid, names[level], place,
                    place[0] ? " " : "");
}

void tt_log(enum tt_log_level level, const char *file, int line, const char *format, ...)
{
    if (level == TT_LOG_INFO && !(tt_subsystem_of(file) & subsystems)) return;
    const int saved_errno = errno;
    const char *base = strrchr(file, '/');
    char text[1536], event[1536], named[1536], place[128] = "";
    if (level == TT_LOG_WARN) snprintf(place, sizeof place, "%s:%d", base ? base + 1 : file, line);
    size_t used = (size_t)begin_line(text, sizeof text, level, place);
    va_list args;
    va_start(args, format);
    errno = saved_errno; /* for %m */
    vsnprintf(event, sizeof event, format, args);
    va_end(args);
    tt_rename_for_user(named, sizeof named, event);
    used += tt_escape(text + used, sizeof text - used, named);
    if (has_nccls_form && place[0] && used + strlen(place) + 4 < sizeof text)
        used += (size_t)snprintf(text + used, sizeof text - used, " (%s)", place);
    if (used > sizeof text - 2) used = sizeof text - 2;
    text[used++] = '\n';
    write_line(text, used);
    errno = saved_errno;
}
