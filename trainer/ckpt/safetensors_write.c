/* Writes safetensors files: to a file without a name, which the kernel frees when the process dies,
 * synced, then linked as PATH.<pid>.tmp and renamed; where several processes write, or the system
 * has no files without names or never gives them one, to PATH.<pid>.tmp from the beginning. The
 * checksums of the tensors lie in the header, before the tensors: the header is written first with
 * zeros in their place, and again at the end. */
#include <errno.h>
#include <fcntl.h>
#include <json-c/json.h>
#include <libgen.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "../param.h"
#include "safetensors.h"

/* What the header's checksum is computed with in its own place. */
static const char unsealed[] = "0000000000000000";

struct tr_safetensors_writer {
    char path[PATH_MAX], temporary[PATH_MAX];
    int fd;
    bool nameless, is_finished;
    const struct tr_tensor *tensors;
    const struct tr_metadata *metadata;
    int n, nmetadata;
    size_t *begin;   /* [n + 1]: bytes of the tensors before, from the end of the header */
    uint64_t *sums;  /* [2 n]: checksums of what was put, and how many numbers these were */
    size_t length;   /* of the header */
    uint64_t header; /* its checksum, before commit */
};

static tr_status write_all(const struct tr_safetensors_writer *w, const void *bytes, size_t nbytes,
                           size_t place)
{
    const char *at = bytes;
    while (nbytes) {
        const ssize_t n = pwrite(w->fd, at, nbytes, (off_t)place);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return tr_fail("%s: %s", w->temporary, strerror(errno));
        at += n;
        place += (size_t)n;
        nbytes -= (size_t)n;
    }
    return TR_OK;
}

static struct json_object *describe(const struct tr_tensor *tensor, size_t begin)
{
    struct json_object *row = json_object_new_object(), *shape = json_object_new_array(),
                       *offsets = json_object_new_array();
    for (int d = 0; d < tensor->ndim; ++d)
        json_object_array_add(shape, json_object_new_int64(tensor->shape[d]));
    json_object_array_add(offsets, json_object_new_int64((int64_t)begin));
    json_object_array_add(offsets, json_object_new_int64((int64_t)(begin + tensor->count * 4)));
    json_object_object_add(row, "dtype", json_object_new_string("F32"));
    json_object_object_add(row, "shape", shape);
    json_object_object_add(row, "data_offsets", offsets);
    return row;
}

/* Puts the header's own checksum in place of its zeros. */
static tr_status seal(char *header, size_t length)
{
    char *digits = tr_safetensors_find_seal(header), sum[sizeof unsealed];
    if (!digits) return tr_fail("out of memory for the checksum of the checkpoint's header");
    snprintf(sum, sizeof sum, "%016llx", (unsigned long long)tr_checksum(header, length));
    memcpy(digits, sum, sizeof sum - 1);
    return TR_OK;
}

/* The header's text, space-padded to a multiple of 8 so that the tensors are aligned. Its length
 * does not depend on the checksums. */
static tr_status make_header(const struct tr_safetensors_writer *w, char **header, size_t *length)
{
    struct json_object *root = json_object_new_object(), *notes = json_object_new_object();
    if (!root || !notes) {
        json_object_put(root);
        json_object_put(notes);
        return tr_fail("out of memory for the checkpoint's header");
    }
    json_object_object_add(root, "__metadata__", notes);
    json_object_object_add(notes, "header", json_object_new_string(unsealed));
    for (int i = 0; i < w->nmetadata; ++i)
        json_object_object_add(notes, w->metadata[i].key,
                               json_object_new_string(w->metadata[i].value));
    for (int i = 0; i < w->n; ++i) {
        char key[128], sum[32];
        snprintf(key, sizeof key, "checksum.%s", w->tensors[i].name);
        snprintf(sum, sizeof sum, "%016llx", (unsigned long long)w->sums[2 * i]);
        json_object_object_add(notes, key, json_object_new_string(sum));
        json_object_object_add(root, w->tensors[i].name, describe(&w->tensors[i], w->begin[i]));
    }
    const char *text = json_object_to_json_string_ext(root, JSON_C_TO_STRING_PLAIN);
    const size_t plain = text ? strlen(text) : 0;
    *length = (plain + 7) / 8 * 8;
    *header = text ? malloc(*length + 1) : NULL;
    tr_status status = TR_OK;
    if (*header) {
        memset(*header, ' ', *length);
        memcpy(*header, text, plain);
        (*header)[*length] = 0;
        status = seal(*header, *length);
    } else {
        status = tr_fail("out of memory for the checkpoint's header");
    }
    json_object_put(root);
    if (status < 0) free(*header);
    return status;
}

enum { PREFIX = 8 };

/* Writes length and header at the beginning of the file. */
static tr_status write_header(struct tr_safetensors_writer *w)
{
    char *header = NULL;
    size_t length = 0;
    TR_TRY(make_header(w, &header, &length));
    if (w->length && length != w->length) { /* the tensors lie behind it already */
        free(header);
        return tr_fail("%s: out of memory for the header", w->path);
    }
    w->length = length;
    unsigned char prefix[PREFIX];
    for (int i = 0; i < PREFIX; ++i) prefix[i] = (unsigned char)((uint64_t)w->length >> (8 * i));
    tr_status status = write_all(w, prefix, sizeof prefix, 0);
    if (status == TR_OK) status = write_all(w, header, w->length, PREFIX);
    w->header = tr_checksum(header, w->length);
    free(header);
    return status;
}

static void folder_of(const char *path, char folder[PATH_MAX])
{
    char copy[PATH_MAX];
    snprintf(copy, sizeof copy, "%s", path);
    snprintf(folder, PATH_MAX, "%s", dirname(copy));
}

static int open_nameless(const char *folder)
{
    return open(folder, O_TMPFILE | O_WRONLY | O_CLOEXEC, 0666);
}

/* Gives a file without a name its temporary one. Returns 0, or -1 and errno. */
static int link_file(int fd, const char *temporary)
{
    char self[64];
    snprintf(self, sizeof self, "/proc/self/fd/%d", fd);
    return linkat(AT_FDCWD, self, AT_FDCWD, temporary, AT_SYMLINK_FOLLOW);
}

/* Whether a file without a name can be given one there. An empty one tries: where /proc is away, or
 * the system refuses such links, the writer's file would never get its name. */
static bool can_link(const char *folder, const char *temporary)
{
    const int fd = open_nameless(folder);
    if (fd < 0) return false;
    const bool can = link_file(fd, temporary) == 0 && unlink(temporary) == 0;
    close(fd);
    return can;
}

tr_status tr_safetensors_take_room(const struct tr_safetensors_writer *w)
{
    const off_t nbytes = (off_t)(PREFIX + w->length + w->begin[w->n]);
    if (fallocate(w->fd, 0, 0, nbytes) == 0) return TR_OK;
    const int error = errno;
    if (error != ENOSPC && error != EDQUOT && error != EFBIG) return TR_OK; /* writing will tell */
    const int given_back = ftruncate(w->fd, 0); /* the room that there was */
    (void)given_back;
    return tr_fail("%s: %s (the checkpoint takes %.1f MiB)", w->path, strerror(error),
                   (double)nbytes / 1048576);
}

static tr_status open_file(struct tr_safetensors_writer *w, bool shared)
{
    char folder[PATH_MAX];
    if (snprintf(w->temporary, sizeof w->temporary, "%s.%ld.tmp", w->path, (long)getpid()) >=
        (int)sizeof w->temporary) {
        w->temporary[0] = 0;
        return tr_fail("%s: the name is too long", w->path);
    }
    /* A file of this name is a dead process's; a link put there must not lead the write away. */
    unlink(w->temporary);
    folder_of(w->path, folder);
    if (!shared && can_link(folder, w->temporary)) w->fd = open_nameless(folder);
    w->nameless = w->fd >= 0;
    if (!w->nameless)
        w->fd = open(w->temporary, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666);
    if (w->fd < 0) return tr_fail("%s: %s", w->temporary, strerror(errno));
    return write_header(w);
}

/* A writer that has no file yet. */
static tr_status make(struct tr_safetensors_writer **writer, const struct tr_tensor *tensors, int n)
{
    struct tr_safetensors_writer *w = malloc(sizeof *w);
    if (!w) return tr_fail("out of memory for a file of %d tensors", n);
    *w = (struct tr_safetensors_writer){.fd = -1,
                                        .tensors = tensors,
                                        .n = n,
                                        .begin = calloc((size_t)n + 1, sizeof *w->begin),
                                        .sums = calloc(2 * (size_t)n + 1, sizeof *w->sums)};
    if (!w->begin || !w->sums) {
        tr_safetensors_leave(w);
        return tr_fail("out of memory for a file of %d tensors", n);
    }
    for (int i = 0; i < n; ++i) w->begin[i + 1] = w->begin[i] + tensors[i].count * 4;
    *writer = w;
    return TR_OK;
}

tr_status tr_safetensors_create(struct tr_safetensors_writer **writer, const char *path,
                                const struct tr_tensor *tensors, int n,
                                const struct tr_metadata *metadata, int nmetadata, bool shared)
{
    struct tr_safetensors_writer *w;
    TR_TRY(make(&w, tensors, n));
    w->metadata = metadata;
    w->nmetadata = nmetadata;
    const int length = snprintf(w->path, sizeof w->path, "%s", path);
    const tr_status status = length < (int)sizeof w->path
                                 ? open_file(w, shared)
                                 : tr_fail("%s: the name is too long", path);
    if (status < 0) {
        tr_safetensors_discard(w);
        return status;
    }
    *writer = w;
    return TR_OK;
}

/* Of the boot, which all containers of a host share, as they do its page cache. */
static uint64_t this_kernel(void)
{
    char id[64];
    const int fd = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
    const ssize_t n = fd < 0 ? -1 : read(fd, id, sizeof id);
    if (fd >= 0) close(fd);
    return n > 0 ? tr_checksum(id, (size_t)n) : 0;
}

/* Whether hosts may write to neighbouring bytes of a file without losing any: file systems whose
 * hosts lock pages. NFS, and others that nobody has looked at, may write a whole page back. */
static bool is_coherent(int fd)
{
    static const long long types[] = {0x0BD00BD0 /* Lustre */, 0x47504653 /* GPFS */,
                                      0x00C36400 /* Ceph */, 0x01161970 /* GFS2 */,
                                      0x7461636F /* OCFS2 */};
    struct statfs fs;
    if (fstatfs(fd, &fs) != 0) return false;
    for (size_t i = 0; i < sizeof types / sizeof types[0]; ++i)
        if ((long long)fs.f_type == types[i]) return true;
    return false;
}

void tr_safetensors_locate(const struct tr_safetensors_writer *w,
                           struct tr_safetensors_place *place)
{
    *place = (struct tr_safetensors_place){
        .length = w->length, .checksum = w->header, .kernel = this_kernel()};
    snprintf(place->temporary, sizeof place->temporary, "%s", w->temporary);
}

/* Whether the file begins with that header: on another host, one of the same name may be another
 * run's. */
static bool has_header(int fd, const struct tr_safetensors_place *place)
{
    char *header = malloc(place->length);
    const bool same = header &&
                      pread(fd, header, place->length, PREFIX) == (ssize_t)place->length &&
                      tr_checksum(header, place->length) == place->checksum;
    free(header);
    return same;
}

tr_status tr_safetensors_join(struct tr_safetensors_writer **writer,
                              const struct tr_safetensors_place *place,
                              const struct tr_tensor *tensors, int n)
{
    struct tr_safetensors_writer *w;
    TR_TRY(make(&w, tensors, n));
    snprintf(w->temporary, sizeof w->temporary, "%s", place->temporary);
    w->length = place->length;
    w->fd = open(place->temporary, O_RDWR | O_NOFOLLOW | O_CLOEXEC);
    tr_status status = TR_OK;
    if (w->fd < 0)
        status = tr_fail("%s: %s", place->temporary, strerror(errno));
    else if (!has_header(w->fd, place))
        status = tr_fail("%s: not the file that rank 0 has begun", place->temporary);
    else if ((!place->kernel || place->kernel != this_kernel()) && !is_coherent(w->fd))
        status = tr_fail("%s: on a file system that several hosts may not write one file of",
                         place->temporary);
    if (status < 0) {
        tr_safetensors_leave(w);
        return status;
    }
    *writer = w;
    return TR_OK;
}

tr_status tr_safetensors_put(struct tr_safetensors_writer *w, int tensor, size_t first,
                             const float *data, size_t count)
{
    const struct tr_tensor *row = &w->tensors[tensor];
    if (first > row->count || count > row->count - first)
        return tr_fail("%s: numbers %zu to %zu of %s, which has %zu", w->temporary, first,
                       first + count, row->name, row->count);
    w->sums[2 * tensor] += tr_safetensors_sum(first, data, count);
    w->sums[2 * tensor + 1] += count;
    return write_all(w, data, count * sizeof *data,
                     PREFIX + w->length + w->begin[tensor] + first * sizeof *data);
}

uint64_t *tr_safetensors_sums(struct tr_safetensors_writer *w)
{
    return w->sums;
}

tr_status tr_safetensors_sync(struct tr_safetensors_writer *w)
{
    return fsync(w->fd) == 0 ? TR_OK : tr_fail("%s: %s", w->temporary, strerror(errno));
}

/* The new name itself must reach the disk, too. Some file systems cannot write a folder alone
 * (EINVAL), and a folder that this user cannot read cannot be opened. */
static tr_status sync_folder_of(const char *path)
{
    char folder[PATH_MAX];
    folder_of(path, folder);
    const int fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0 && errno == EACCES) return TR_OK;
    const int error = fd < 0 || fsync(fd) < 0 ? errno : 0;
    if (fd >= 0) close(fd);
    if (!error || error == EINVAL || error == ENOTSUP) return TR_OK;
    return tr_fail("%s is written, but %s cannot be synced (%s): a crash of the host may lose the "
                   "name",
                   path, folder, strerror(error));
}

/* Fails unless each number of each tensor was put once. */
static tr_status check_complete(const struct tr_safetensors_writer *w)
{
    for (int i = 0; i < w->n; ++i)
        if (w->sums[2 * i + 1] != w->tensors[i].count)
            return tr_fail("%s: %llu of %zu numbers of %s are written", w->path,
                           (unsigned long long)w->sums[2 * i + 1], w->tensors[i].count,
                           w->tensors[i].name);
    return TR_OK;
}

tr_status tr_safetensors_finish(struct tr_safetensors_writer *w)
{
    if (w->is_finished) return TR_OK;
    TR_TRY(check_complete(w));
    TR_TRY(write_header(w));
    TR_TRY(tr_safetensors_sync(w));
    w->is_finished = true;
    return TR_OK;
}

/* Fails where the temporary name is not this file's any more: a process of the same number, in
 * another container, may have taken it for the name of a dead one's. */
static tr_status check_name(struct tr_safetensors_writer *w)
{
    struct stat own, named;
    const bool is_seen = fstat(w->fd, &own) == 0 && lstat(w->temporary, &named) == 0;
    if (is_seen && own.st_dev == named.st_dev && own.st_ino == named.st_ino) return TR_OK;
    const tr_status status =
        is_seen || errno == ENOENT
            ? tr_fail("%s was removed or replaced while it was written; give each run a folder of "
                      "its own",
                      w->temporary)
            : tr_fail("%s: cannot be looked at: %s", w->temporary, strerror(errno));
    w->temporary[0] = 0; /* the other's stays */
    return status;
}

static tr_status name_file(struct tr_safetensors_writer *w, bool *is_named)
{
    *is_named = false;
    TR_TRY(tr_safetensors_finish(w));
    if (w->nameless && link_file(w->fd, w->temporary) < 0)
        return tr_fail("%s: %s", w->temporary, strerror(errno));
    TR_TRY(check_name(w));
    const int fd = w->fd;
    w->fd = -1;
    if (close(fd) < 0) return tr_fail("%s: %s", w->temporary, strerror(errno));
    if (rename(w->temporary, w->path) < 0)
        return tr_fail("%s: %s%s", w->path, strerror(errno),
                       errno == EISDIR ? ", where the checkpoint is to be: rename or remove it"
                                       : "");
    w->temporary[0] = 0;
    *is_named = true;
    return sync_folder_of(w->path);
}

tr_status tr_safetensors_commit(struct tr_safetensors_writer *w, bool *is_named)
{
    const tr_status status = name_file(w, is_named);
    tr_safetensors_discard(w);
    return status;
}

void tr_safetensors_leave(struct tr_safetensors_writer *w)
{
    if (!w) return;
    if (w->fd >= 0) close(w->fd);
    free(w->begin);
    free(w->sums);
    free(w);
}

void tr_safetensors_discard(struct tr_safetensors_writer *w)
{
    if (w && w->temporary[0]) unlink(w->temporary);
    tr_safetensors_leave(w);
}

uint64_t tr_safetensors_sum(size_t first, const float *data, size_t count)
{
    uint64_t sum = 0;
    for (size_t i = 0; i < count; ++i) {
        uint32_t bits;
        memcpy(&bits, &data[i], sizeof bits);
        uint64_t mixed = (first + i + 1) * 0x9E3779B97F4A7C15u ^ bits * 0xD6E8FEB86659FD93u;
        mixed = (mixed ^ mixed >> 32) * 0xD6E8FEB86659FD93u;
        sum += mixed ^ mixed >> 29;
    }
    return sum;
}
