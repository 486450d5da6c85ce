/* Saves, finds and loads the checkpoints of a run. */
#include "ckpt.h"

#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "safetensors.h"

static const char format_name[] = "tutti-train 1";

/* The name of part 0 (weights), 1 (.m) or 2 (.v) of a parameter. */
static struct tr_tensor tensor_of(const struct tr_state *state, int param, int part,
                                  char name[TR_NAME_BYTES + 4])
{
    static const char *const suffixes[] = {"", ".m", ".v"};
    float *const arenas[] = {state->weights, state->m, state->v};
    const struct tr_param *row = &state->params->items[param];
    snprintf(name, TR_NAME_BYTES + 4, "%s%s", row->name, suffixes[part]);
    return (struct tr_tensor){.name = name,
                              .ndim = row->ndim,
                              .shape = {row->shape[0], row->shape[1]},
                              .data = arenas[part] + row->offset,
                              .count = row->count};
}

static tr_status write_file(const char *path, const struct tr_state *state, const char *options)
{
    const int n = 3 * state->params->n;
    char(*names)[TR_NAME_BYTES + 4] = calloc((size_t)n, sizeof *names);
    struct tr_tensor *tensors = calloc((size_t)n, sizeof *tensors);
    tr_status status = TR_OK;
    if (!names || !tensors) {
        status = tr_fail("%s: out of memory", path);
    } else {
        for (int i = 0; i < n; ++i)
            tensors[i] = tensor_of(state, i % state->params->n, i / state->params->n, names[i]);
        char step[32], samples[32], data[32];
        snprintf(step, sizeof step, "%lld", (long long)state->step);
        snprintf(samples, sizeof samples, "%llu", (unsigned long long)state->samples);
        snprintf(data, sizeof data, "%016llx", (unsigned long long)state->data_checksum);
        const struct tr_metadata metadata[] = {{"format", format_name},
                                               {"step", step},
                                               {"samples", samples},
                                               {"data", data},
                                               {"options", options}};
        status = tr_safetensors_write(path, tensors, n, metadata, 5);
    }
    free(names);
    free(tensors);
    return status;
}

tr_status tr_ckpt_prepare(const char *folder)
{
    char path[TR_TEXT_BYTES];
    snprintf(path, sizeof path, "%s", folder);
    for (char *slash = path + 1;; ++slash) {
        slash += strcspn(slash, "/");
        const char kept = *slash;
        *slash = 0;
        if (mkdir(path, 0777) < 0 && errno != EEXIST)
            return tr_fail("--checkpoint=%s: cannot make the folder %s: %s", folder, path,
                           strerror(errno));
        *slash = kept;
        if (!kept) break;
    }
    struct stat st;
    if (stat(folder, &st) == 0 && !S_ISDIR(st.st_mode))
        return tr_fail("--checkpoint=%s: that is not a folder", folder);
    if (access(folder, W_OK | X_OK) < 0)
        return tr_fail("--checkpoint=%s: cannot write there: %s", folder, strerror(errno));
    return TR_OK;
}

tr_status tr_ckpt_save(const char *folder, const struct tr_state *state,
                       const struct tr_config *config, char *path, size_t path_bytes)
{
    const int length =
        snprintf(path, path_bytes, "%s/step-%08lld.safetensors", folder, (long long)state->step);
    if ((size_t)length >= path_bytes)
        return tr_fail("--checkpoint=%s: the name is too long", folder);
    char *options = tr_config_to_json(config);
    if (!options) return tr_fail("%s: out of memory", path);
    const tr_status status = write_file(path, state, options);
    free(options);
    return status;
}

tr_status tr_ckpt_find(const char *where, char *path, size_t path_bytes)
{
    struct stat st;
    if (stat(where, &st) < 0) return tr_fail("--resume=%s: %s", where, strerror(errno));
    if (!S_ISDIR(st.st_mode)) {
        if (snprintf(path, path_bytes, "%s", where) >= (int)path_bytes)
            return tr_fail("--resume=%s: the name is too long", where);
        return TR_OK;
    }
    DIR *folder = opendir(where);
    if (!folder) return tr_fail("--resume=%s: %s", where, strerror(errno));
    long long newest = -1;
    for (const struct dirent *entry; (entry = readdir(folder));) {
        long long step;
        int end = 0;
        if (sscanf(entry->d_name, "step-%lld.safetensors%n", &step, &end) == 1 && end &&
            !entry->d_name[end] && step > newest)
            newest = step;
    }
    closedir(folder);
    if (newest < 0) return tr_fail("--resume=%s: no step-*.safetensors in that folder", where);
    if (snprintf(path, path_bytes, "%s/step-%08lld.safetensors", where, newest) >= (int)path_bytes)
        return tr_fail("--resume=%s: the name is too long", where);
    return TR_OK;
}

static tr_status open_checked(const char *path, struct tr_safetensors **file)
{
    TR_TRY(tr_safetensors_open(file, path));
    const char *format = tr_safetensors_metadata(*file, "format");
    if (format && !strcmp(format, format_name)) return TR_OK;
    const tr_status status = tr_fail("%s: its format is \"%s\", expected \"%s\"", path,
                                     format ? format : "not said", format_name);
    tr_safetensors_close(*file);
    return status;
}

tr_status tr_ckpt_read_config(const char *path, struct tr_config *config)
{
    struct tr_safetensors *file;
    TR_TRY(open_checked(path, &file));
    const char *options = tr_safetensors_metadata(file, "options");
    const tr_status status = options ? tr_config_restore(config, options, path)
                                     : tr_fail("%s: does not say its options", path);
    tr_safetensors_close(file);
    return status;
}

static tr_status read_number(const struct tr_safetensors *file, const char *path, const char *key,
                             int base, uint64_t *value)
{
    const char *text = tr_safetensors_metadata(file, key);
    char *end = NULL;
    if (text) *value = strtoull(text, &end, base);
    if (!text || end == text || *end)
        return tr_fail("%s: \"%s\" is \"%s\", expected a number", path, key,
                       text ? text : "missing");
    return TR_OK;
}

static tr_status read_file(const struct tr_safetensors *file, const char *path,
                           struct tr_state *state)
{
    uint64_t step, samples, data;
    TR_TRY(read_number(file, path, "step", 10, &step));
    TR_TRY(read_number(file, path, "samples", 10, &samples));
    TR_TRY(read_number(file, path, "data", 16, &data));
    for (int param = 0; param < state->params->n; ++param) {
        for (int part = 0; part < 3; ++part) {
            char name[TR_NAME_BYTES + 4];
            const struct tr_tensor tensor = tensor_of(state, param, part, name);
            TR_TRY(tr_safetensors_read(file, &tensor));
        }
    }
    state->step = (int64_t)step;
    state->samples = samples;
    state->data_checksum = data;
    return TR_OK;
}

tr_status tr_ckpt_load(const char *path, struct tr_state *state)
{
    struct tr_safetensors *file;
    TR_TRY(open_checked(path, &file));
    const tr_status status = read_file(file, path, state);
    tr_safetensors_close(file);
    return status;
}
