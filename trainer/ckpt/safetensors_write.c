/* Writes safetensors files: to a temporary file, synced, then renamed. */
#include "safetensors.h"

#include <errno.h>
#include <fcntl.h>
#include <json-c/json.h>
#include <libgen.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../param.h"

static tr_status write_all(int fd, const void *bytes, size_t nbytes, const char *path)
{
    const char *at = bytes;
    while (nbytes) {
        const ssize_t n = write(fd, at, nbytes);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0)
            return tr_fail("%s: %s (%zu bytes left to write)", path, strerror(errno), nbytes);
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

/* The header's text, space-padded to a multiple of 8 so that the tensors are aligned. */
static tr_status make_header(const struct tr_tensor *tensors, int n,
                             const struct tr_metadata *metadata, int nmetadata, char **header,
                             size_t *length)
{
    struct json_object *root = json_object_new_object(), *notes = json_object_new_object();
    if (!root || !notes) return tr_fail("out of memory for the checkpoint's header");
    json_object_object_add(root, "__metadata__", notes);
    for (int i = 0; i < nmetadata; ++i)
        json_object_object_add(notes, metadata[i].key, json_object_new_string(metadata[i].value));
    size_t begin = 0;
    for (int i = 0; i < n; ++i) {
        char key[128], sum[32];
        snprintf(key, sizeof key, "checksum.%s", tensors[i].name);
        snprintf(sum, sizeof sum, "%016llx",
                 (unsigned long long)tr_checksum(tensors[i].data, tensors[i].count * 4));
        json_object_object_add(notes, key, json_object_new_string(sum));
        json_object_object_add(root, tensors[i].name, describe(&tensors[i], begin));
        begin += tensors[i].count * 4;
    }
    const char *text = json_object_to_json_string_ext(root, JSON_C_TO_STRING_PLAIN);
    const size_t plain = strlen(text);
    *length = (plain + 7) / 8 * 8;
    *header = malloc(*length + 1);
    if (*header) {
        memset(*header, ' ', *length);
        memcpy(*header, text, plain);
    }
    json_object_put(root);
    return *header ? TR_OK : tr_fail("out of memory for the checkpoint's header");
}

static tr_status write_contents(int fd, const char *path, const struct tr_tensor *tensors, int n,
                                const struct tr_metadata *metadata, int nmetadata)
{
    char *header = NULL;
    size_t length = 0;
    TR_TRY(make_header(tensors, n, metadata, nmetadata, &header, &length));
    unsigned char prefix[8];
    for (int i = 0; i < 8; ++i) prefix[i] = (unsigned char)((uint64_t)length >> (8 * i));
    tr_status status = write_all(fd, prefix, sizeof prefix, path);
    if (status == TR_OK) status = write_all(fd, header, length, path);
    free(header);
    for (int i = 0; status == TR_OK && i < n; ++i)
        status = write_all(fd, tensors[i].data, tensors[i].count * 4, path);
    if (status == TR_OK && fsync(fd) < 0) status = tr_fail("%s: %s", path, strerror(errno));
    return status;
}

/* The new name itself must reach the disk, too. */
static void sync_folder_of(const char *path)
{
    char copy[PATH_MAX];
    snprintf(copy, sizeof copy, "%s", path);
    const int fd = open(dirname(copy), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) return;
    fsync(fd);
    close(fd);
}

tr_status tr_safetensors_write(const char *path, const struct tr_tensor *tensors, int n,
                               const struct tr_metadata *metadata, int nmetadata)
{
    char temporary[PATH_MAX];
    if (snprintf(temporary, sizeof temporary, "%s.%ld.tmp", path, (long)getpid()) >=
        (int)sizeof temporary)
        return tr_fail("%s: the name is too long", path);
    /* A file of this name is a dead process's; a link put there must not lead the write away. */
    unlink(temporary);
    const int fd = open(temporary, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666);
    if (fd < 0) return tr_fail("%s: %s", temporary, strerror(errno));
    tr_status status = write_contents(fd, temporary, tensors, n, metadata, nmetadata);
    if (close(fd) < 0 && status == TR_OK) status = tr_fail("%s: %s", temporary, strerror(errno));
    if (status == TR_OK && rename(temporary, path) < 0)
        status = tr_fail("%s: %s", path, strerror(errno));
    if (status < 0)
        unlink(temporary);
    else
        sync_folder_of(path);
    return status;
}
