/* Bootstrap by a shared file: rank 0 writes its unique id, the other ranks poll for it. */
#include "bootstrap/file.h"

#include <errno.h>
#include <fcntl.h>
#include <sodium.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/open.h"
#include "base/private_fd.h"
#include "base/write.h"
#include "bootstrap/root.h"
#include "net/handshake.h"

enum { MAX_PAUSE_MS = 20, PROBE_MS = 5000 };

/* Written aside and renamed: whoever sees the file sees all of it. */
static tt_status publish(const char *path, const struct tt_unique_id *id)
{
    char aside[4096];
    const int n = snprintf(aside, sizeof aside, "%s.%d.new", path, (int)getpid());
    if (n < 0 || n >= (int)sizeof aside)
        return tt_fail(TT_ERR_ARGUMENT, "the path '%.64s...' is too long", path);
    unlink(aside);
    const int fd = tt_open(aside, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW, 0600);
    if (fd < 0) return tt_fail_errno(errno, "cannot write '%s' (file://)", aside);
    const ssize_t wrote = tt_write(fd, id, sizeof *id);
    int error = wrote == (ssize_t)sizeof *id ? 0 : wrote < 0 ? errno : ENOSPC;
    if (close(fd) != 0 && !error) error = errno;
    if (!error && rename(aside, path) != 0) error = errno;
    if (!error) return TT_OK;
    unlink(aside);
    return tt_fail_errno(error, "cannot write the unique id to '%s' (file://)%s", path,
                         tt_write_limit(error));
}

tt_status tt_file_make(struct tt_unique_id *id, const char *path, int64_t deadline_ns)
{
    int listener;
    struct tt_unique_id made;
    TT_TRY(tt_id_make(&made, &listener));
    tt_status status = publish(path, &made);
    if (status != TT_OK) {
        tt_private_fd_close(listener);
    } else {
        status = tt_root_start(listener, &made, path, deadline_ns);
        if (status != TT_OK) unlink(path);
    }
    if (status == TT_OK) memcpy(id, &made, sizeof *id);
    sodium_memzero(&made, sizeof made);
    return status;
}

/* What keeps the file that `fd` reads from being useful; NULL: *found is a unique id. */
static const char *read_id(struct tt_unique_id *found, int fd)
{
    struct stat stat;
    if (fstat(fd, &stat) != 0 || !S_ISREG(stat.st_mode)) return "it is no regular file";
    if ((stat.st_uid != geteuid() && stat.st_uid != 0) || stat.st_mode & (S_IWGRP | S_IWOTH))
        return "another user owns it or may write it";
    if (read(fd, found, sizeof *found) != (ssize_t)sizeof *found || found->magic != TT_ID_MAGIC)
        return "it holds no unique id";
    struct tt_address address = {.nbytes = found->address_bytes};
    memcpy(address.bytes, found->address, sizeof address.bytes);
    if (found->version != TT_ID_VERSION || !tt_address_valid(&address))
        return "its unique id is of another version of tutti";
    return NULL;
}

/* How far the file is from being useful, in words; NULL: *id is a live root's. */
static const char *look(struct tt_unique_id *id, const char *path, int64_t deadline_ns)
{
    const int fd = tt_open(path, O_RDONLY | O_NOFOLLOW, 0);
    if (fd < 0) return errno == ENOENT ? "it does not exist" : "it cannot be opened";
    struct tt_unique_id found;
    const char *complaint = read_id(&found, fd);
    close(fd);
    const int64_t patience_ns = tt_deadline_ns(PROBE_MS);
    if (!complaint && !tt_root_alive(&found, patience_ns < deadline_ns ? patience_ns : deadline_ns))
        complaint = "it is left over from a job that has gone";
    if (!complaint) memcpy(id, &found, sizeof *id);
    sodium_memzero(&found, sizeof found);
    return complaint;
}

tt_status tt_file_await(struct tt_unique_id *id, const char *path, int64_t deadline_ns)
{
    struct timespec pause = {.tv_nsec = 1000000};
    for (;;) {
        const char *complaint = look(id, path, deadline_ns);
        if (!complaint) return TT_OK;
        if (tt_expired(deadline_ns))
            return tt_fail(TT_ERR_TIMEOUT,
                           "rank 0's unique id did not appear in '%s' before the init deadline "
                           "(TUTTI_INIT_TIMEOUT_MS): %s",
                           path, complaint);
        nanosleep(&pause, NULL);
        if (pause.tv_nsec < MAX_PAUSE_MS * 1000000) pause.tv_nsec *= 2;
    }
}
