/* Reads safetensors files: checks the header before it is believed, and each tensor against its
 * checksum. */
#include "safetensors.h"

#include <errno.h>
#include <fcntl.h>
#include <json-c/json.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "../param.h"

enum { SEAL_DIGITS = 16 };

struct tr_safetensors {
    char path[PATH_MAX];
    int fd;
    uint64_t data_at, data_bytes; /* where the tensors lie in the file */
    struct json_object *header;
    bool is_sealed; /* by a checksum of the header */
};

/* A row of the header, understood. */
struct entry {
    const char *name;
    int ndim;
    long shape[2];
    uint64_t begin, end;
};

static tr_status read_at(const struct tr_safetensors *file, uint64_t at, void *bytes, size_t nbytes)
{
    char *to = bytes;
    while (nbytes) {
        const ssize_t n = pread(file->fd, to, nbytes, (off_t)at);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return tr_fail("%s: %s", file->path, strerror(errno));
        if (n == 0)
            return tr_fail("%s: ends at byte %llu, %zu bytes early", file->path,
                           (unsigned long long)at, nbytes);
        to += n;
        at += (uint64_t)n;
        nbytes -= (size_t)n;
    }
    return TR_OK;
}

static tr_status parse_shape(const char *path, struct json_object *shape, struct entry *entry,
                             uint64_t *nbytes)
{
    const size_t ndim =
        json_object_is_type(shape, json_type_array) ? json_object_array_length(shape) : 99;
    if (ndim > 2)
        return tr_fail("%s: tensor %s: expected a shape of at most 2 numbers", path, entry->name);
    entry->ndim = (int)ndim;
    *nbytes = 4;
    for (size_t d = 0; d < ndim; ++d) {
        const int64_t size = json_object_get_int64(json_object_array_get_idx(shape, d));
        if (size < 1 || size > (int64_t)1 << 40 || *nbytes > UINT64_MAX / (uint64_t)size)
            return tr_fail("%s: tensor %s: impossible size %lld in its shape", path, entry->name,
                           (long long)size);
        entry->shape[d] = size;
        *nbytes *= (uint64_t)size;
    }
    return TR_OK;
}

static tr_status parse_entry(const struct tr_safetensors *file, const char *name,
                             struct json_object *row, struct entry *entry)
{
    *entry = (struct entry){.name = name};
    struct json_object *dtype = NULL, *shape = NULL, *offsets = NULL;
    if (!json_object_is_type(row, json_type_object) ||
        !json_object_object_get_ex(row, "dtype", &dtype) ||
        !json_object_object_get_ex(row, "shape", &shape) ||
        !json_object_object_get_ex(row, "data_offsets", &offsets) ||
        !json_object_is_type(offsets, json_type_array) || json_object_array_length(offsets) != 2)
        return tr_fail("%s: tensor %s: expected dtype, shape and two data_offsets", file->path,
                       name);
    /* As JSON: `null` has no string to compare. */
    if (!json_object_is_type(dtype, json_type_string) ||
        strcmp(json_object_get_string(dtype), "F32") != 0)
        return tr_fail("%s: tensor %s is of type %s, expected \"F32\"", file->path, name,
                       json_object_to_json_string(dtype));
    uint64_t nbytes = 0;
    TR_TRY(parse_shape(file->path, shape, entry, &nbytes));
    const int64_t begin = json_object_get_int64(json_object_array_get_idx(offsets, 0));
    const int64_t end = json_object_get_int64(json_object_array_get_idx(offsets, 1));
    if (begin < 0 || end < begin || (uint64_t)(end - begin) != nbytes)
        return tr_fail("%s: tensor %s: its shape takes %llu bytes, but it lies at %lld to %lld",
                       file->path, name, (unsigned long long)nbytes, (long long)begin,
                       (long long)end);
    if ((uint64_t)end > file->data_bytes)
        return tr_fail(
            "%s: tensor %s ends at byte %lld of the data, but the file has only %llu: it is "
            "truncated",
            file->path, name, (long long)end, (unsigned long long)file->data_bytes);
    entry->begin = (uint64_t)begin;
    entry->end = (uint64_t)end;
    return TR_OK;
}

static int by_place(const void *a, const void *b)
{
    const struct entry *x = a, *y = b;
    return x->begin < y->begin ? -1 : x->begin > y->begin;
}

/* The tensors must cover the data exactly. */
static tr_status check_cover(const struct tr_safetensors *file, struct entry *entries, size_t n)
{
    qsort(entries, n, sizeof *entries, by_place);
    uint64_t at = 0;
    for (size_t i = 0; i < n; ++i) {
        if (entries[i].begin != at)
            return tr_fail(
                "%s: tensor %s begins at byte %llu of the data, expected %llu: tensors overlap or "
                "leave a hole",
                file->path, entries[i].name, (unsigned long long)entries[i].begin,
                (unsigned long long)at);
        at = entries[i].end;
    }
    if (at != file->data_bytes)
        return tr_fail("%s: %llu bytes of data, but its tensors take %llu", file->path,
                       (unsigned long long)file->data_bytes, (unsigned long long)at);
    return TR_OK;
}

static tr_status check_entries(const struct tr_safetensors *file)
{
    struct entry *entries =
        calloc((size_t)json_object_object_length(file->header) + 1, sizeof *entries);
    if (!entries) return tr_fail("%s: out of memory", file->path);
    size_t n = 0;
    tr_status status = TR_OK;
    struct json_object_iterator it = json_object_iter_begin(file->header),
                                last = json_object_iter_end(file->header);
    for (; status == TR_OK && !json_object_iter_equal(&it, &last); json_object_iter_next(&it)) {
        const char *name = json_object_iter_peek_name(&it);
        if (strcmp(name, "__metadata__") != 0)
            status = parse_entry(file, name, json_object_iter_peek_value(&it), &entries[n++]);
    }
    if (status == TR_OK) status = check_cover(file, entries, n);
    free(entries);
    return status;
}

char *tr_safetensors_find_seal(char *header)
{
    static const char key[] = "\"header\":\"";
    char *at = strstr(header, key);
    return at && strlen(at) >= sizeof key - 1 + SEAL_DIGITS ? at + sizeof key - 1 : NULL;
}

/* Whether the header is the one that was sealed; its digits become zeros. */
static tr_status check_seal(struct tr_safetensors *file, char *text, size_t length)
{
    char *seal = tr_safetensors_find_seal(text), said[SEAL_DIGITS + 1], sum[SEAL_DIGITS + 1];
    if (!seal) return TR_OK;
    snprintf(said, sizeof said, "%s", seal);
    memset(seal, '0', SEAL_DIGITS);
    snprintf(sum, sizeof sum, "%016llx", (unsigned long long)tr_checksum(text, length));
    file->is_sealed = !strcmp(said, sum);
    if (file->is_sealed) return TR_OK;
    return tr_fail("%s: the header has checksum %s, expected %s: the file is corrupted", file->path,
                   sum, said);
}

static tr_status read_header(struct tr_safetensors *file)
{
    struct stat st;
    if (fstat(file->fd, &st) < 0) return tr_fail("%s: %s", file->path, strerror(errno));
    if (!S_ISREG(st.st_mode)) return tr_fail("%s: not a regular file", file->path);
    const uint64_t size = (uint64_t)st.st_size, most = 100 * 1000 * 1000;
    unsigned char prefix[8];
    TR_TRY(read_at(file, 0, prefix, sizeof prefix));
    uint64_t length = 0;
    for (int i = 0; i < 8; ++i) length |= (uint64_t)prefix[i] << (8 * i);
    if (length > most || length + 8 > size)
        return tr_fail("%s: header of %llu bytes in a file of %llu: not a checkpoint, or truncated",
                       file->path, (unsigned long long)length, (unsigned long long)size);
    char *text = malloc(length + 1);
    if (!text) return tr_fail("%s: out of memory", file->path);
    tr_status status = read_at(file, 8, text, length);
    text[length] = 0;
    if (status == TR_OK) status = check_seal(file, text, length);
    if (status == TR_OK) file->header = json_tokener_parse(text);
    free(text);
    TR_TRY(status);
    if (!json_object_is_type(file->header, json_type_object))
        return tr_fail("%s: the header is not a JSON object: the file is corrupted", file->path);
    file->data_at = 8 + length;
    file->data_bytes = size - file->data_at;
    return check_entries(file);
}

tr_status tr_safetensors_open(struct tr_safetensors **result, const char *path)
{
    struct tr_safetensors *file = calloc(1, sizeof *file);
    if (!file) return tr_fail("%s: out of memory", path);
    snprintf(file->path, sizeof file->path, "%s", path);
    file->fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC); /* a FIFO must not block */
    const tr_status status =
        file->fd < 0 ? tr_fail("%s: %s", path, strerror(errno)) : read_header(file);
    if (status < 0) {
        tr_safetensors_close(file);
        return status;
    }
    *result = file;
    return TR_OK;
}

void tr_safetensors_close(struct tr_safetensors *file)
{
    if (!file) return;
    if (file->fd >= 0) close(file->fd);
    json_object_put(file->header);
    free(file);
}

const char *tr_safetensors_path(const struct tr_safetensors *file)
{
    return file->path;
}

bool tr_safetensors_is_at(const struct tr_safetensors *file, const char *path)
{
    struct stat own, found;
    return fstat(file->fd, &own) == 0 && stat(path, &found) == 0 && own.st_dev == found.st_dev &&
           own.st_ino == found.st_ino;
}

bool tr_safetensors_is_sealed(const struct tr_safetensors *file)
{
    return file->is_sealed;
}

const char *tr_safetensors_metadata(const struct tr_safetensors *file, const char *key)
{
    struct json_object *notes, *value;
    if (!json_object_object_get_ex(file->header, "__metadata__", &notes)) return NULL;
    if (!json_object_is_type(notes, json_type_object)) return NULL;
    if (!json_object_object_get_ex(notes, key, &value)) return NULL;
    return json_object_get_string(value);
}

static void describe_shape(char *out, size_t nbytes, int ndim, const long *shape)
{
    if (ndim == 2)
        snprintf(out, nbytes, "[%ld, %ld]", shape[0], shape[1]);
    else
        snprintf(out, nbytes, "[%ld]", ndim ? shape[0] : 1);
}

tr_status tr_safetensors_read(const struct tr_safetensors *file, const struct tr_tensor *tensor,
                              float *data)
{
    struct json_object *row;
    if (!json_object_object_get_ex(file->header, tensor->name, &row))
        return tr_fail("%s: has no tensor %s", file->path, tensor->name);
    struct entry entry;
    TR_TRY(parse_entry(file, tensor->name, row, &entry));
    bool same = entry.ndim == tensor->ndim;
    for (int d = 0; same && d < entry.ndim; ++d) same = entry.shape[d] == tensor->shape[d];
    if (!same) {
        char found[64], expected[64];
        describe_shape(found, sizeof found, entry.ndim, entry.shape);
        describe_shape(expected, sizeof expected, tensor->ndim, tensor->shape);
        return tr_fail("%s: tensor %s has shape %s, expected %s", file->path, tensor->name, found,
                       expected);
    }
    TR_TRY(read_at(file, file->data_at + entry.begin, data, tensor->count * 4));
    char key[128], sum[32];
    snprintf(key, sizeof key, "checksum.%s", tensor->name);
    snprintf(sum, sizeof sum, "%016llx",
             (unsigned long long)tr_safetensors_sum(0, data, tensor->count));
    const char *expected = tr_safetensors_metadata(file, key);
    if (!expected)
        return tr_fail("%s: has no checksum of tensor %s: the file is corrupted", file->path,
                       tensor->name);
    if (strcmp(expected, sum) != 0)
        return tr_fail("%s: tensor %s has checksum %s, expected %s: the file is corrupted",
                       file->path, tensor->name, sum, expected);
    return TR_OK;
}

static tr_status check_tensor(const struct tr_safetensors *file, const char *name,
                              struct json_object *row)
{
    struct entry entry;
    TR_TRY(parse_entry(file, name, row, &entry));
    const struct tr_tensor tensor = {.name = name,
                                     .ndim = entry.ndim,
                                     .shape = {entry.shape[0], entry.shape[1]},
                                     .count = (entry.end - entry.begin) / 4};
    float *data = malloc(tensor.count * sizeof *data);
    const tr_status status = data ? tr_safetensors_read(file, &tensor, data)
                                  : tr_fail("%s: out of memory for %s", file->path, name);
    free(data);
    return status;
}

tr_status tr_safetensors_check(const struct tr_safetensors *file)
{
    json_object_object_foreach(file->header, name, row)
    {
        if (strcmp(name, "__metadata__") != 0) TR_TRY(check_tensor(file, name, row));
    }
    return TR_OK;
}
