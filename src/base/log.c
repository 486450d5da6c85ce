/* Writes log lines, each with one system call, so that lines of several threads do not mix. */
#include "base/log.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/config.h"
#include "base/escape.h"

static pthread_once_t once = PTHREAD_ONCE_INIT;
static enum tt_log_level level_in_force;
static int log_fd = STDERR_FILENO;
static char host_name[64] = "?";

/* Expands %h (host) and %p (pid), as NCCL_DEBUG_FILE does. */
static void expand_path(char *path, size_t size, const char *pattern)
{
    size_t used = 0;
    path[0] = '\0';
    for (const char *c = pattern; *c && used + 1 < size; c++) {
        int wrote = 1;
        if (c[0] == '%' && c[1] == 'h')
            wrote = snprintf(path + used, size - used, "%s", host_name), c++;
        else if (c[0] == '%' && c[1] == 'p')
            wrote = snprintf(path + used, size - used, "%d", (int)getpid()), c++;
        else
            path[used] = *c, path[used + 1] = '\0';
        used += (size_t)wrote;
    }
}

static void open_log(void)
{
    if (gethostname(host_name, sizeof host_name - 1) != 0) strcpy(host_name, "?");
    level_in_force = (enum tt_log_level)tt_config_int(TT_CONFIG_LOG);
    const char *pattern = tt_config_string(TT_CONFIG_LOG_FILE);
    if (!pattern[0]) return;
    char path[512];
    expand_path(path, sizeof path, pattern);
    const int fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
    if (fd >= 0)
        log_fd = fd;
    else
        dprintf(STDERR_FILENO, "tutti: TUTTI_LOG_FILE=%s cannot be opened (%m); using stderr\n",
                path);
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
    if (write(log_fd, text, (size_t)used) < 0) { /* nowhere left to say it */
    }
    errno = saved_errno;
}
