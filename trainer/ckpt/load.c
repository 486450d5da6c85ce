/* Loads a checkpoint: rank 0 reads the tensors piece by piece, and each rank takes its part,
 * whatever the layout. */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ckpt.h"
#include "parts.h"

/* Room for a piece of the largest tensor. */
static tr_status take_room(const struct tr_params *params, float **piece)
{
    size_t most = 0;
    for (int p = 0; p < params->n; ++p)
        if (params->items[p].count > most) most = params->items[p].count;
    if (most > TR_PIECE) most = TR_PIECE;
    *piece = malloc(most * sizeof **piece);
    return *piece ? TR_OK : tr_fail("out of memory to read %zu numbers of a checkpoint", most);
}

/* Every rank takes its part of numbers [first, first + count) of a tensor, which rank 0 has. */
static tr_status hand_out(const struct tr_engine *e, struct tr_part_id id, size_t first,
                          size_t count, float *values)
{
    const struct tr_store *store = &e->store;
    const struct tr_part_range range = tr_part_range(store, id);
    const struct tr_excerpt piece = {values, first, count};
    TR_TRY(tr_mesh_check(
        e->mesh, tuttiBroadcast(values, values, count, tuttiFloat32, 0, e->mesh->world, NULL),
        "sharing a tensor of the checkpoint"));
    if (range.floats && tr_part_is_cut(store, id))
        tr_param_put(store->params, &store->params->items[id.param], &piece, range.floats,
                     range.first, range.count);
    else if (range.floats)
        e->backend->write(range.floats + first, values, count * sizeof *values);
    return TR_OK;
}

tr_status tr_ckpt_open(const char *path, struct tr_safetensors **file)
{
    TR_TRY(tr_safetensors_open(file, path));
    const char *version = tr_safetensors_metadata(*file, TR_CKPT_KEY);
    const bool known = version && !strcmp(version, TR_CKPT_VERSION);
    if (known && tr_safetensors_is_sealed(*file)) return TR_OK;
    const tr_status status =
        known     ? tr_fail("%s: the header has no checksum: the file is corrupted", path)
        : version ? tr_fail("%s: tutti-train's version \"%s\" of checkpoints, expected \"%s\"",
                            path, version, TR_CKPT_VERSION)
                  : tr_fail("%s: no checkpoint of tutti-train: its metadata have no \"%s\"", path,
                            TR_CKPT_KEY);
    tr_safetensors_close(*file);
    *file = NULL; /* the caller may close it, too */
    return status;
}

tr_status tr_ckpt_read_options(const struct tr_safetensors *file, char **options)
{
    const char *text = tr_safetensors_metadata(file, "options");
    *options = text ? strdup(text) : NULL;
    return *options ? TR_OK
                    : tr_fail("%s: does not say the options it was written with",
                              tr_safetensors_path(file));
}

static tr_status read_number(const struct tr_safetensors *file, const char *path, const char *key,
                             int base, uint64_t *value)
{
    static const char digits[] = "0123456789abcdef";
    const char *text = tr_safetensors_metadata(file, key);
    const size_t length = text ? strlen(text) : 0;
    errno = 0;
    if (text) *value = strtoull(text, NULL, base);
    if (!length || errno || strspn(text, base == 10 ? "0123456789" : digits) != length)
        return tr_fail("%s: \"%s\" is \"%s\", expected a number", path, key,
                       text ? text : "missing");
    return TR_OK;
}

/* Nothing in a file of an earlier version: the run begins without losses to compare with. `step`:
 * how many steps were done. */
static tr_status read_spikes(const struct tr_safetensors *file, const char *path, uint64_t step,
                             struct tr_spikes *spikes)
{
    const char *text = tr_safetensors_metadata(file, "losses");
    uint64_t skipped;
    *spikes = (struct tr_spikes){0};
    if (!text) return TR_OK;
    TR_TRY(read_number(file, path, "skipped", 10, &skipped));
    if (skipped > step)
        return tr_fail("%s: \"skipped\" is %llu, expected at most \"step\", which is %llu", path,
                       (unsigned long long)skipped, (unsigned long long)step);
    spikes->skipped = (int64_t)skipped;
    for (const char *at = text; *at;) {
        char *end;
        const double loss = strtod(at, &end);
        if (end == at || *end != ' ' || spikes->count == TR_SPIKE_LOSSES)
            return tr_fail("%s: \"losses\" at \"%.20s\": expected at most %d numbers with a space "
                           "behind each",
                           path, at, TR_SPIKE_LOSSES);
        spikes->losses[spikes->count++] = loss;
        at = end + 1;
    }
    return TR_OK;
}

/* 0 where the file, of an earlier version, does not have it. */
static tr_status read_later(const struct tr_safetensors *file, const char *path, const char *key,
                            int base, uint64_t *value)
{
    *value = 0;
    if (!tr_safetensors_metadata(file, key)) return TR_OK;
    return read_number(file, path, key, base, value);
}

static tr_status read_state(const struct tr_safetensors *file, const char *path,
                            struct tr_state *state)
{
    const char *held_out = tr_safetensors_metadata(file, TR_CKPT_HELD_OUT);
    uint64_t step, samples, data, run, start, held_out_from;
    TR_TRY(read_number(file, path, "step", 10, &step));
    if (step > INT64_MAX)
        return tr_fail("%s: \"step\" is %llu, expected at most %lld", path,
                       (unsigned long long)step, (long long)INT64_MAX);
    TR_TRY(read_number(file, path, "samples", 10, &samples));
    TR_TRY(read_number(file, path, "data", 16, &data));
    TR_TRY(read_later(file, path, TR_CKPT_RUN, 16, &run));
    TR_TRY(read_later(file, path, TR_CKPT_START, 10, &start));
    TR_TRY(read_later(file, path, TR_CKPT_HELD_OUT_FROM, 10, &held_out_from));
    *state = (struct tr_state){.step = (int64_t)step,
                               .samples = samples,
                               .data_checksum = data,
                               .run = run,
                               .start = start,
                               .held_out_from = held_out_from,
                               .held_out = held_out ? strtod(held_out, NULL) : NAN};
    return read_spikes(file, path, step, &state->spikes);
}

tr_status tr_ckpt_read_state(const char *path, struct tr_state *state)
{
    struct tr_safetensors *file;
    TR_TRY(tr_ckpt_open(path, &file));
    const tr_status status = read_state(file, path, state);
    tr_safetensors_close(file);
    return status;
}

tr_status tr_ckpt_read_whole(const char *path, const uint64_t *run)
{
    struct tr_safetensors *file;
    struct tr_state state;
    TR_TRY(tr_ckpt_open(path, &file));
    tr_status status = read_state(file, path, &state);
    if (status == TR_OK && run && state.run != *run)
        status = tr_fail("%s: run %016llx, expected %016llx", path, (unsigned long long)state.run,
                         (unsigned long long)*run);
    if (status == TR_OK) {
        printf("note: reading all of %s to see whether it is whole\n", path);
        fflush(stdout);
        status = tr_safetensors_check(file);
    }
    tr_safetensors_close(file);
    return status;
}

/* Rank 0 reads piece after piece, and no rank waits for one that it could not read. */
static tr_status read_tensor(struct tr_engine *e, const char *option, const char *path,
                             const struct tr_safetensors *file, const struct tr_tensor *tensor,
                             struct tr_part_id id, float *values)
{
    struct tr_safetensors_reading reading;
    tr_status status = file ? tr_safetensors_begin(file, tensor, &reading) : TR_OK;
    size_t first = 0;
    do {
        const size_t left = tensor->count - first, count = left < TR_PIECE ? left : TR_PIECE;
        if (file && status == TR_OK) status = tr_safetensors_next(&reading, values, count);
        if (status < 0) status = tr_ckpt_propose_older(option, path, status);
        TR_TRY(tr_mesh_agree(e->mesh, status));
        TR_TRY(hand_out(e, id, first, count, values));
        first += count;
    } while (first < tensor->count);
    return TR_OK;
}

static tr_status share_state(const struct tr_mesh *mesh, struct tr_state *state)
{
    return tr_mesh_check(
        mesh, tuttiBroadcast(state, state, sizeof *state, tuttiUint8, 0, mesh->world, NULL),
        "sharing what the checkpoint holds beside tensors");
}

tr_status tr_ckpt_load(struct tr_engine *e, const char *option, const struct tr_safetensors *file,
                       struct tr_state *state)
{
    const char *path = file ? tr_safetensors_path(file) : "";
    float *values = NULL;
    struct tr_parts parts = {0};
    tr_status status = take_room(e->store.params, &values);
    if (status == TR_OK) status = tr_parts_list(&e->store, &parts);
    if (status == TR_OK && file) {
        status = read_state(file, path, state);
        if (status < 0) status = tr_ckpt_propose_older(option, path, status);
    }
    status = tr_mesh_agree(e->mesh, status);
    if (status == TR_OK) status = tr_store_settle(&e->store);
    for (int i = 0; i < parts.n && status == TR_OK; ++i)
        status = read_tensor(e, option, path, file, &parts.tensors[i], parts.ids[i], values);
    if (status == TR_OK) status = share_state(e->mesh, state);
    if (status == TR_OK) status = tr_store_publish(&e->store);
    tr_parts_free(&parts);
    free(values);
    return status;
}
