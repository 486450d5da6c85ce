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
#include "base/process_lock.h"
#include "base/write.h"
#include "bootstrap/root.h"
#include "net/handshake.h"

enum { MAX_PAUSE_MS = 20, PROBE_MS = 5000, MAX_TAKEN = 64 };

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

/* The ids that ranks of this process have taken from files, as hashes: the last few. */
static struct tt_process_lock taken_lock = TT_PROCESS_LOCK;
static struct taken {
    uint8_t hash[crypto_generichash_BYTES_MIN];
    int rank;
} taken[MAX_TAKEN];
static unsigned ntaken; /* guarded by taken_lock, as taken */

static struct taken taking_of(const struct tt_unique_id *id, int rank)
{
    struct taken made = {.rank = rank};
    crypto_generichash(made.hash, sizeof made.hash, id->key, sizeof id->key, NULL, 0);
    return made;
}

static void note_taken(const struct tt_unique_id *id, int rank)
{
    tt_process_lock(&taken_lock);
    taken[ntaken++ % MAX_TAKEN] = taking_of(id, rank);
    tt_process_unlock(&taken_lock);
}

static bool was_taken(const struct tt_unique_id *id, int rank)
{
    const struct taken wanted = taking_of(id, rank);
    bool found = false;
    tt_process_lock(&taken_lock);
    for (unsigned i = 0; i < MAX_TAKEN && i < ntaken; i++)
        found |= taken[i].rank == rank && !memcmp(taken[i].hash, wanted.hash, sizeof wanted.hash);
    tt_process_unlock(&taken_lock);
    return found;
}

/* What is wrong with the root of an id; NULL: it serves, or has something to say to this rank. */
static const char *ask_root(const struct tt_unique_id *id, int rank, int64_t deadline_ns)
{
    const int64_t patience_ns = tt_deadline_ns(PROBE_MS);
    switch (tt_root_probe(id, patience_ns < deadline_ns ? patience_ns : deadline_ns)) {
    case TT_ROOT_SERVES:
        return NULL;
    case TT_ROOT_FAILED:
        return was_taken(id, rank) ? "it is that of an init which has failed" : NULL;
    default:
        return "it is left over from a job that has gone";
    }
}

/* How far the file is from being useful, in words; NULL: *id is a live root's. */
static const char *look(struct tt_unique_id *id, const char *path, int rank, int64_t deadline_ns)
{
    const int fd = tt_open(path, O_RDONLY | O_NOFOLLOW, 0);
    if (fd < 0) return errno == ENOENT ? "it does not exist" : "it cannot be opened";
    struct tt_unique_id found;
    const char *complaint = read_id(&found, fd);
    close(fd);
    if (!complaint) complaint = ask_root(&found, rank, deadline_ns);
    if (!complaint) memcpy(id, &found, sizeof *id);
    sodium_memzero(&found, sizeof found);
    return complaint;
}

tt_status tt_file_await(struct tt_unique_id *id, const char *path, int rank, int64_t deadline_ns)
{
    struct timespec pause = {.tv_nsec = 1000000};
    const char *complaint;
    while ((complaint = look(id, path, rank, deadline_ns))) {
        if (tt_expired(deadline_ns))
            return tt_fail(TT_ERR_TIMEOUT,
                           "rank 0's unique id did not appear in '%s' before the init deadline "
                           "(TUTTI_INIT_TIMEOUT_MS): %s",
                           path, complaint);
        nanosleep(&pause, NULL);
        if (pause.tv_nsec < MAX_PAUSE_MS * 1000000) pause.tv_nsec *= 2;
    }
    note_taken(id, rank);
    return TT_OK;
}
