/* Writes safetensors files: to a file without a name, which the kernel frees when the process dies,
 * synced, then linked as PATH.<pid>.tmp and renamed; where the file system has no files without
 * names, to PATH.<pid>.tmp from the beginning. The checksums of the tensors
 * lie in the header, before the tensors: the header is written first with zeros in their place, and
 * again at the end. */
#include <errno.h>
#include <fcntl.h>
#include <json-c/json.h>
#include <libgen.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../param.h"
#include "safetensors.h"

/* What the header's checksum is computed with in its own place. */
static const char unsealed[] = "0000000000000000";

struct tr_safetensors_writer {
    char path[PATH_MAX], temporary[PATH_MAX];
    int fd;
    bool nameless;
    const struct tr_tensor *tensors;
    const struct tr_metadata *metadata;
    int n, nmetadata;
    int appended;
    uint64_t *sums; /* [n]: checksums; 0 for those to come */
    size_t length;  /* of the header */
};

static tr_status write_all(const struct tr_safetensors_writer *w, const void *bytes, size_t nbytes)
{
    const char *at = bytes;
    while (nbytes) {
        const ssize_t n = write(w->fd, at, nbytes);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0)
            return tr_fail("%s: %s (%zu bytes of a tensor left to write)", w->temporary,
                           strerror(errno), nbytes);
        at += n;
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
    if (!root || !notes) return tr_fail("out of memory for the checkpoint's header");
    json_object_object_add(root, "__metadata__", notes);
    json_object_object_add(notes, "header", json_object_new_string(unsealed));
    for (int i = 0; i < w->nmetadata; ++i)
        json_object_object_add(notes, w->metadata[i].key,
                               json_object_new_string(w->metadata[i].value));
    size_t begin = 0;
    for (int i = 0; i < w->n; ++i) {
        char key[128], sum[32];
        snprintf(key, sizeof key, "checksum.%s", w->tensors[i].name);
        snprintf(sum, sizeof sum, "%016llx", (unsigned long long)w->sums[i]);
        json_object_object_add(notes, key, json_object_new_string(sum));
        json_object_object_add(root, w->tensors[i].name, describe(&w->tensors[i], begin));
        begin += w->tensors[i].count * 4;
    }
    const char *text = json_object_to_json_string_ext(root, JSON_C_TO_STRING_PLAIN);
    const size_t plain = strlen(text);
    *length = (plain + 7) / 8 * 8;
    *header = malloc(*length + 1);
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

/* Writes length and header at the beginning of the file. */
static tr_status write_header(struct tr_safetensors_writer *w)
{
    char *header = NULL;
    TR_TRY(make_header(w, &header, &w->length));
    unsigned char prefix[8];
    for (int i = 0; i < 8; ++i) prefix[i] = (unsigned char)((uint64_t)w->length >> (8 * i));
    tr_status status = lseek(w->fd, 0, SEEK_SET) < 0
                           ? tr_fail("%s: %s", w->temporary, strerror(errno))
                           : write_all(w, prefix, sizeof prefix);
    if (status == TR_OK) status = write_all(w, header, w->length);
    free(header);
    return status;
}

static void folder_of(const char *path, char folder[PATH_MAX])
{
    char copy[PATH_MAX];
    snprintf(copy, sizeof copy, "%s", path);
    snprintf(folder, PATH_MAX, "%s", dirname(copy));
}

/* Opens a file without a name, if it can be given one later. */
static void open_nameless(struct tr_safetensors_writer *w)
{
    char folder[PATH_MAX], self[64];
    folder_of(w->path, folder);
    w->fd = open(folder, O_TMPFILE | O_WRONLY | O_CLOEXEC, 0666);
    if (w->fd < 0) return;
    snprintf(self, sizeof self, "/proc/self/fd/%d", w->fd);
    w->nameless = access(self, F_OK) == 0;
    if (w->nameless) return;
    close(w->fd);
    w->fd = -1;
}

/* Gives the file its temporary name. */
static tr_status give_name(const struct tr_safetensors_writer *w)
{
    char self[64];
    snprintf(self, sizeof self, "/proc/self/fd/%d", w->fd);
    if (linkat(AT_FDCWD, self, AT_FDCWD, w->temporary, AT_SYMLINK_FOLLOW) < 0)
        return tr_fail("%s: %s", w->temporary, strerror(errno));
    return TR_OK;
}

static tr_status begin(struct tr_safetensors_writer *w)
{
    if (snprintf(w->temporary, sizeof w->temporary, "%s.%ld.tmp", w->path, (long)getpid()) >=
        (int)sizeof w->temporary) {
        w->temporary[0] = 0;
        return tr_fail("%s: the name is too long", w->path);
    }
    w->sums = calloc((size_t)w->n + 1, sizeof *w->sums);
    if (!w->sums) return tr_fail("%s: out of memory", w->path);
    /* A file of this name is a dead process's; a link put there must not lead the write away. */
    unlink(w->temporary);
    open_nameless(w);
    if (w->fd < 0)
        w->fd = open(w->temporary, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666);
    if (w->fd < 0) return tr_fail("%s: %s", w->temporary, strerror(errno));
    return write_header(w);
}

tr_status tr_safetensors_create(struct tr_safetensors_writer **writer, const char *path,
                                const struct tr_tensor *tensors, int n,
                                const struct tr_metadata *metadata, int nmetadata)
{
    struct tr_safetensors_writer *w = malloc(sizeof *w);
    if (!w) return tr_fail("%s: out of memory", path);
    *w = (struct tr_safetensors_writer){
        .fd = -1, .tensors = tensors, .n = n, .metadata = metadata, .nmetadata = nmetadata};
    const int length = snprintf(w->path, sizeof w->path, "%s", path);
    const tr_status status =
        length < (int)sizeof w->path ? begin(w) : tr_fail("%s: the name is too long", path);
    if (status < 0) {
        tr_safetensors_discard(w);
        return status;
    }
    *writer = w;
    return TR_OK;
}

tr_status tr_safetensors_append(struct tr_safetensors_writer *w, const float *data)
{
    if (w->appended == w->n) return tr_fail("%s: all %d tensors are written", w->path, w->n);
    const size_t nbytes = w->tensors[w->appended].count * 4;
    w->sums[w->appended++] = tr_checksum(data, nbytes);
    return write_all(w, data, nbytes);
}

/* The new name itself must reach the disk, too. */
static void sync_folder_of(const char *path)
{
    char folder[PATH_MAX];
    folder_of(path, folder);
    const int fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) return;
    fsync(fd);
    close(fd);
}

static tr_status finish(struct tr_safetensors_writer *w)
{
    if (w->appended < w->n)
        return tr_fail("%s: %d of %d tensors are written", w->path, w->appended, w->n);
    TR_TRY(write_header(w));
    if (fsync(w->fd) < 0) return tr_fail("%s: %s", w->temporary, strerror(errno));
    if (w->nameless) TR_TRY(give_name(w));
    const int fd = w->fd;
    w->fd = -1;
    if (close(fd) < 0) return tr_fail("%s: %s", w->temporary, strerror(errno));
    if (rename(w->temporary, w->path) < 0) return tr_fail("%s: %s", w->path, strerror(errno));
    sync_folder_of(w->path);
    w->temporary[0] = 0;
    return TR_OK;
}

tr_status tr_safetensors_commit(struct tr_safetensors_writer *w)
{
    const tr_status status = finish(w);
    tr_safetensors_discard(w);
    return status;
}

void tr_safetensors_discard(struct tr_safetensors_writer *w)
{
    if (!w) return;
    if (w->fd >= 0) close(w->fd);
    if (w->temporary[0]) unlink(w->temporary);
    free(w->sums);
    free(w);
}
