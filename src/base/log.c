/* Writes log lines, each with one system call, so that lines of several threads do not mix. */
#include "base/log.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/config.h"
#include "base/escape.h"
#include "base/open.h"
#include "base/stderr.h"
#include "base/write.h"

static pthread_once_t once = PTHREAD_ONCE_INIT;
static enum tt_log_level level_in_force;
static int log_fd = -1;      /* of TUTTI_LOG_FILE; -1: standard error */
static struct stat log_file; /* what log_fd is: the program may close it and use its number */
static char host_name[64] = "?";

/* Expands %h (host) and %p (pid), as NCCL_DEBUG_FILE does. False: the path is too long. */
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
            wrote = snprintf(path + used, size - used, "%c", *c);
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

/* Never waits: without a reader a pipe cannot be opened, and with a slow one it loses lines. */
static void open_file(const char *pattern)
{
    char path[PATH_MAX];
    const char *why = strerror(ENAMETOOLONG);
    int fd = -1;
    if (expand_path(path, sizeof path, pattern)) {
        fd = tt_open(path, O_WRONLY | O_CREAT | O_APPEND, 0644);
        why = fd < 0 ? strerror(errno) : complain(fd, &log_file);
    }
    if (!why) {
        log_fd = fd;
        return;
    }
    if (fd >= 0) close(fd);
    tt_stderr_say("TUTTI_LOG_FILE=%.1024s cannot be opened (%s); using stderr", pattern, why);
}

static void open_log(void)
{
    tt_stderr_remember();
    if (gethostname(host_name, sizeof host_name - 1) != 0) strcpy(host_name, "?");
    level_in_force = (enum tt_log_level)tt_config_int(TT_CONFIG_LOG);
    const char *pattern = tt_config_string(TT_CONFIG_LOG_FILE);
    if (pattern[0]) open_file(pattern);
}

/* A line that cannot be written is lost: there is nowhere left to say it. */
static void write_line(const char *text, size_t nbytes)
{
    struct stat now;
    const bool has_file = log_fd >= 0 && fstat(log_fd, &now) == 0 &&
                          now.st_dev == log_file.st_dev && now.st_ino == log_file.st_ino;
    if (has_file)
        (void)tt_write(log_fd, text, nbytes);
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

void tt_log(enum tt_log_level level, const char *file, int line, const char *format, ...)
{
    static const char *const names[] = {"", "WARN", "INFO"};
    const int saved_errno = errno;
    const char *base = strrchr(file, '/');
    char text[1536], event[1536];
    int used = snprintf(text, sizeof text, "%s:%d:%d tutti %s ", host_name, (int)getpid(),
                        (int)gettid(), names[level]);
    if (level == TT_LOG_WARN)
        used += snprintf(text + used, sizeof text - (size_t)used, "%s:%d ", base ? base + 1 : file,
                         line);
    va_list args;
    va_start(args, format);
    vsnprintf(event, sizeof event, format, args);
    va_end(args);
    used += (int)tt_escape(text + used, sizeof text - (size_t)used, event);
    if (used > (int)sizeof text - 2) used = (int)sizeof text - 2;
    text[used++] = '\n';
    write_line(text, (size_t)used);
    errno = saved_errno;
}
