/* Opens files above number 2. */
#include "base/open.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "base/private_fd.h"
#include "base/thread.h"

int tt_open(const char *path, int flags, mode_t mode)
{
    TT_CANCELS_WAIT;
    tt_low_fd_hold();
    return tt_low_fd_release(open(path, flags | O_CLOEXEC | O_NONBLOCK | O_NOCTTY, mode));
}

FILE *tt_open_stream(const char *path)
{
    TT_CANCELS_WAIT;
    const int fd = tt_open(path, O_RDONLY, 0);
    FILE *stream = fd < 0 ? NULL : fdopen(fd, "r");
    if (fd >= 0 && !stream) close(fd);
    return stream;
}

ssize_t tt_read_text(const char *path, char *text, size_t size)
{
    TT_CANCELS_WAIT;
    text[0] = '\0';
    const int fd = tt_open(path, O_RDONLY, 0);
    if (fd < 0) return -1;
    const ssize_t n = read(fd, text, size - 1);
    const int error = errno;
    close(fd);
    text[n > 0 ? n : 0] = '\0';
    errno = error;
    return n;
}

const char *tt_kind_of_file(mode_t mode)
{
    switch (mode & S_IFMT) {
    case S_IFREG:
        return NULL;
    case S_IFDIR:
        return "it is a folder";
    case S_IFIFO:
        return "it is a pipe";
    case S_IFSOCK:
        return "it is a socket";
    case S_IFCHR:
    case S_IFBLK:
        return "it is a device";
    default:
        return "it is no regular file";
    }
}

bool tt_is_own_file(const struct stat *file)
{
    return file->st_uid == 0 || file->st_uid == geteuid();
}

bool tt_is_safe_file(const struct stat *file, const char *kind, const char *path, char *why,
                     size_t size)
{
    if (!tt_is_own_file(file))
        snprintf(why, size,
                 "the %s %.400s belongs to uid %u, not to this user (uid %u) or root, and is not "
                 "read: chown %u %.400s, or remove it",
                 kind, path, file->st_uid, geteuid(), geteuid(), path);
    else if (file->st_mode & (S_IWGRP | S_IWOTH))
        snprintf(why, size,
                 "the %s %.400s may be written by others (mode %04o) and is not read: chmod go-w "
                 "%.400s",
                 kind, path, (unsigned)file->st_mode & 07777, path);
    else
        return true;
    return false;
}

/* Looked at before it is opened as well: opening some devices does something. */
int tt_open_regular(const char *path, struct stat *file, const char **why)
{
    TT_CANCELS_WAIT;
    *why = stat(path, file) == 0 ? tt_kind_of_file(file->st_mode) : strerror(errno);
    if (*why) return -1;
    const int fd = tt_open(path, O_RDONLY, 0);
    *why = fd >= 0 && fstat(fd, file) == 0 ? tt_kind_of_file(file->st_mode) : strerror(errno);
    if (!*why) return fd;
    if (fd >= 0) close(fd);
    return -1;
}

void *tt_open_library(const char *name, int flags)
{
    tt_low_fd_hold();
    void *library = dlopen(name, flags);
    (void)tt_low_fd_release(-1);
    return library;
}
