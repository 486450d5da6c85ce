/* Loaded before the C library (LD_PRELOAD), it makes calls of rank 0 ($RANK) on a checkpoint's file
 * fail, or tells of them. FAULTS names calls and which of them fail, as fsync:1-1,fallocate:2-4
 * (folder: fsync of a folder; slow: an fsync that takes 6 s, and does not fail); FAULTS_LOG is a
 * file for a line a call: "fsync 0", "pwrite OFFSET", "fallocate 1" by the main thread and
 * "fallocate 0" by another one. On rank 1 a removal of a temporary file waits until another process
 * has made a file of that name again, 2 s at most. */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

static void sleep_ms(long ms)
{
    nanosleep(&(struct timespec){.tv_nsec = ms * 1000000}, NULL);
}

static bool is_rank(const char *rank)
{
    const char *own = getenv("RANK");
    return own && !strcmp(own, rank);
}

/* Whether call number `n` of that name fails. A failure takes 100 ms. */
static bool fails(const char *name, int n)
{
    const char *faults = getenv("FAULTS");
    const char *at = faults ? strstr(faults, name) : NULL;
    int first, last;
    if (!at || !is_rank("0") || sscanf(at + strlen(name), ":%d-%d", &first, &last) != 2)
        return false;
    if (n < first || n > last) return false;
    sleep_ms(100);
    errno = ENOSPC;
    return true;
}

static void tell(const char *name, long long offset)
{
    const char *path = getenv("FAULTS_LOG");
    FILE *log = path && is_rank("0") ? fopen(path, "a") : NULL;
    if (!log) return;
    fprintf(log, "%s %lld\n", name, offset);
    fclose(log);
}

int fsync(int fd)
{
    static atomic_int n;
    int (*const next)(int) = (int (*)(int))dlsym(RTLD_NEXT, "fsync");
    static atomic_int nfolders, nslow;
    struct stat st;
    if (fstat(fd, &st) == 0 && S_ISDIR(st.st_mode))
        return fails("folder", ++nfolders) ? -1 : next(fd);
    if (fails("slow", ++nslow)) nanosleep(&(struct timespec){.tv_sec = 6}, NULL);
    tell("fsync", 0);
    return fails("fsync", ++n) ? -1 : next(fd);
}

int fallocate(int fd, int mode, off_t offset, off_t nbytes)
{
    static atomic_int n;
    int (*const next)(int, int, off_t, off_t) =
        (int (*)(int, int, off_t, off_t))dlsym(RTLD_NEXT, "fallocate");
    if (!mode) tell("fallocate", gettid() == getpid());
    return fails("fallocate", ++n) ? -1 : next(fd, mode, offset, nbytes);
}

ssize_t pwrite(int fd, const void *bytes, size_t nbytes, off_t offset)
{
    ssize_t (*const next)(int, const void *, size_t, off_t) =
        (ssize_t(*)(int, const void *, size_t, off_t))dlsym(RTLD_NEXT, "pwrite");
    tell("pwrite", offset);
    return next(fd, bytes, nbytes, offset);
}

/* Whether the name has a file that it had not before. */
static bool is_new(const char *path, bool was_there, const struct stat *before)
{
    struct stat now;
    if (stat(path, &now) != 0) return false;
    return !was_there || now.st_ino != before->st_ino ||
           now.st_ctim.tv_sec != before->st_ctim.tv_sec ||
           now.st_ctim.tv_nsec != before->st_ctim.tv_nsec;
}

int unlink(const char *path)
{
    int (*const next)(const char *) = (int (*)(const char *))dlsym(RTLD_NEXT, "unlink");
    const size_t length = strlen(path);
    struct stat before;
    if (is_rank("1") && length > 4 && !strcmp(path + length - 4, ".tmp")) {
        const bool was_there = stat(path, &before) == 0;
        for (int i = 0; i < 200 && !is_new(path, was_there, &before); ++i) sleep_ms(10);
    }
    return next(path);
}
