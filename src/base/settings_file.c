/* Opens a file of settings without waiting for anybody, checks who may write it, and reads it. */
#include "base/settings_file.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "base/open.h"
#include "base/stderr.h"

#define MORE_MEMORY "give this process more memory (ulimit -v, ulimit -d, its control group)"

static bool is_null(const struct stat *file)
{
    return S_ISCHR(file->st_mode) && file->st_rdev == makedev(1, 3); /* /dev/null */
}

static enum tt_settings_file open_file(FILE **stream, const char *path, char *why, size_t size)
{
    struct stat file = {0};
    const char *reason;
    const int fd = tt_open_regular(path, &file, &reason);
    if (fd < 0) {
        if (is_null(&file)) return TT_FILE_EMPTY;
        const bool there = file.st_mode && !S_ISREG(file.st_mode);
        snprintf(why, size,
                 there ? "the settings file %.400s is not read: %s; it must be a regular file"
                       : "%.0s%s",
                 path, reason);
        return there ? TT_FILE_REFUSED : TT_FILE_ABSENT;
    }
    if (!tt_is_safe_file(&file, "settings file", path, why, size)) {
        close(fd);
        return TT_FILE_REFUSED;
    }
    *stream = fdopen(fd, "r");
    if (*stream) return TT_FILE_READ;
    snprintf(why, size,
             "the settings file %.400s is not read: no memory for its stream of less than 1 KiB "
             "(%m); " MORE_MEMORY,
             path);
    close(fd);
    return TT_FILE_REFUSED;
}

/* nlines: that were read before; room: bytes that there were for the next one. */
static void say_why(const char *path, unsigned nlines, size_t room, char *why, size_t size)
{
    if (errno == ENOMEM)
        snprintf(why, size,
                 "the settings file %.400s is not read from line %u on: no memory for a line of "
                 "%zu bytes and more; shorten it, or " MORE_MEMORY,
                 path, nlines + 1, room);
    else
        snprintf(why, size,
                 "the settings file %.400s is not read from line %u on: %m; it must be a file that "
                 "can be read to its end",
                 path, nlines + 1);
}

enum tt_settings_file tt_settings_file_read(const char *path,
                                            void (*take)(char *line, const char *path), char *why,
                                            size_t size)
{
    char *line = NULL;
    size_t room = 0;
    unsigned nlines = 0;
    FILE *stream;
    const enum tt_settings_file found = open_file(&stream, path, why, size);
    if (found != TT_FILE_READ) return found;
    for (ssize_t n; (n = getline(&line, &room, stream)) > 0; nlines++) {
        if (memchr(line, '\0', (size_t)n)) {
            tt_stderr_say("%s: a line with a zero byte is not read: '%.200s'", path, line);
            continue;
        }
        line[strcspn(line, "\r\n")] = '\0';
        take(line, path);
    }
    const bool is_whole = feof(stream);
    if (!is_whole) say_why(path, nlines, room, why, size);
    free(line);
    fclose(stream);
    return is_whole ? TT_FILE_READ : TT_FILE_REFUSED;
}
