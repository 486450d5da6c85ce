/* Saves, finds and loads the checkpoints of a run: one tensor at a time, whatever the layout. */
#include "ckpt.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "safetensors.h"

static const char format_name[] = "tutti-train 2";

/* What a parameter has in a file: its weights, then the optimizer's states. */
enum { WEIGHT, MOST_PARTS = 1 + TR_MOST_STATES };

static bool has_part(const struct tr_store *store, int param, int part)
{
    return part <= store->held[param].nstates;
}

/* Whether a part has the shape of the tensor, and is cut as its weights are. */
static bool is_cut(const struct tr_store *store, int param, int part)
{
    return part == WEIGHT || store->held[param].shapes[part - 1] == TR_STATE_TENSOR;
}

static struct tr_tensor tensor_of(const struct tr_store *store, int param, int part,
                                  char name[TR_NAME_BYTES + 4])
{
    static const char *const suffixes[MOST_PARTS] = {"", ".m", ".v", ".s"};
    const struct tr_param *row = &store->params->items[param];
    snprintf(name, TR_NAME_BYTES + 4, "%s%s", row->name, suffixes[part]);
    if (!is_cut(store, param, part)) {
        const size_t count = tr_held_count(store->params, &store->held[param], param, part - 1);
        return (struct tr_tensor){
            .name = name, .ndim = 1, .shape = {(long)count, 1}, .count = count};
    }
    return (struct tr_tensor){.name = name,
                              .ndim = row->ndim,
                              .shape = {row->shape[0], row->shape[1]},
                              .count = row->count};
}

/* What this rank has of a part: floats of the unit from `first` on; of a part that is not cut, all
 * of it. */
struct range {
    float *floats;
    size_t first, count;
};

static struct range range_of(const struct tr_store *store, int param, int part)
{
    const struct tr_param *row = &store->params->items[param];
    const struct tr_held *held = &store->held[param];
    const struct tr_unit_state *state = tr_store_unit(store, row->unit);
    if (!state) return (struct range){0};
    if (!is_cut(store, param, part))
        return (struct range){held->states[part - 1], 0,
                              tr_held_count(store->params, held, param, part - 1)};
    const size_t first = row->offset + held->first;
    if (!held->count) return (struct range){0};
    return (struct range){part == WEIGHT ? state->weight_shard + (first - state->first)
                                         : held->states[part - 1],
                          first, held->count};
}

/* Room for the largest tensor. */
static tr_status take_room(const struct tr_params *params, float **whole)
{
    size_t most = 0;
    for (int p = 0; p < params->n; ++p)
        if (params->items[p].count > most) most = params->items[p].count;
    *whole = malloc(most * sizeof **whole);
    return *whole ? TR_OK : tr_fail("out of memory for a tensor of %zu numbers", most);
}

/* ---- Collecting tensors on rank 0, and handing them out -------------------------------------- */

/* Whether this rank answers for what it has of a tensor: of the ranks that hold equal slices, the
 * first; for a part that is not cut, the rank that holds the tensor's first float. */
static bool answers(const struct tr_engine *e, int p, int part)
{
    const struct tr_store *store = &e->store;
    const struct tr_param *param = &store->params->items[p];
    const struct tr_held *held = &store->held[p];
    if (store->params->units[param->unit].stage != e->mesh->coord[TR_PP]) return false;
    if (tr_store_unit(store, param->unit)->replica->rank != 0) return false;
    if (!is_cut(store, p, part))
        return store->params->tp_rank == 0 && held->first == 0 && held->count > 0;
    const struct tr_replicas holders =
        tr_layout_replicas(&param->layout, param->shape, store->params->tp, store->params->tp_rank);
    return holders.first == store->params->tp_rank;
}

/* whole[count] on rank 0 = the tensor, of which each element comes from one rank: the others have
 * zeros, and the sum of integers keeps every bit. */
static tr_status collect(const struct tr_engine *e, int param, int part, float *whole)
{
    char name[TR_NAME_BYTES + 4];
    const struct tr_store *store = &e->store;
    const struct tr_tensor tensor = tensor_of(store, param, part, name);
    memset(whole, 0, tensor.count * sizeof *whole);
    if (answers(e, param, part)) {
        const struct range range = range_of(store, param, part);
        if (is_cut(store, param, part))
            tr_param_get(store->params, &store->params->items[param], whole, range.floats,
                         range.first, range.count);
        else
            e->backend->read(whole, range.floats, range.count * sizeof *whole);
    }
    return tr_mesh_check(
        e->mesh,
        tuttiReduce(whole, whole, tensor.count, tuttiUint32, tuttiSum, 0, e->mesh->world, NULL),
        "collecting a tensor of the checkpoint");
}

/* Every rank takes its part of whole[count], which rank 0 has. */
static tr_status hand_out(const struct tr_engine *e, int param, int part, float *whole)
{
    char name[TR_NAME_BYTES + 4];
    const struct tr_store *store = &e->store;
    const struct tr_tensor tensor = tensor_of(store, param, part, name);
    const struct range range = range_of(store, param, part);
    TR_TRY(tr_mesh_check(
        e->mesh, tuttiBroadcast(whole, whole, tensor.count, tuttiFloat32, 0, e->mesh->world, NULL),
        "sharing a tensor of the checkpoint"));
    if (range.floats && is_cut(store, param, part))
        tr_param_put(store->params, &store->params->items[param], whole, range.floats, range.first,
                     range.count);
    else if (range.floats)
        e->backend->write(range.floats, whole, range.count * sizeof *whole);
    return TR_OK;
}

/* ---- Comparing replicas -----------------------------------------------------------------------
 */

/* Whether `sum` is the same on all ranks of the group. */
static tr_status same_on(const struct tr_group *group, uint64_t sum, bool *same)
{
    static const char what[] = "comparing weights";
    uint64_t ends[2] = {sum, ~sum}; /* the smallest, and the largest turned over */
    if (group->n == 1) return TR_OK;
    TR_TRY(tr_group_check(
        group, tuttiAllReduce(ends, ends, 2, tuttiUint64, tuttiMin, group->comm, NULL), what));
    if (ends[0] != ~ends[1]) *same = false;
    return TR_OK;
}

static uint64_t mix(const struct tr_store *store, uint64_t sum, const float *range, size_t count)
{
    return (sum << 1 | sum >> 63) ^ tr_store_backend(store)->checksum(range, count * sizeof *range);
}

/* A checksum of what lies in one section of this rank's shards. */
static uint64_t sum_section(const struct tr_store *store, enum tr_section section)
{
    uint64_t sum = 0;
    for (int u = 0; u < store->nunits; ++u) {
        const struct tr_unit_state *s = &store->units[u];
        const struct tr_unit *unit = &store->params->units[s->unit];
        size_t first = unit->section[section], end = unit->section[section + 1];
        if (first < s->first) first = s->first;
        if (end > s->first + s->count) end = s->first + s->count;
        if (first < end) sum = mix(store, sum, s->weight_shard + (first - s->first), end - first);
    }
    return sum;
}

/* Compares what ranks hold in common, by checksums: shards over the replicas, whole weights over
 * the shards' group, what tp does not cut over tp, tied units over both stages. */
static tr_status compare(struct tr_engine *e, bool *same)
{
    struct tr_store *store = &e->store;
    uint64_t shards = 0, wholes = 0, ties = 0;
    for (int u = 0; u < store->nunits; ++u) {
        const struct tr_unit_state *s = &store->units[u];
        const struct tr_unit *unit = &store->params->units[s->unit];
        shards = mix(store, shards, s->weight_shard, s->count);
        if (unit->tied_stage >= 0) ties = mix(store, ties, s->weight_shard, s->count);
        if (!store->whole_weights) continue;
        TR_TRY(tr_store_acquire(store, s->unit, -1));
        wholes = mix(store, wholes, s->weights, unit->total);
        tr_store_release(store, s->unit);
    }
    *same = true;
    TR_TRY(same_on(store->replica, shards, same));
    TR_TRY(same_on(store->shard, wholes, same));
    TR_TRY(same_on(tr_mesh_group(e->mesh, 1u << TR_TP), sum_section(store, TR_REPLICATED), same));
    TR_TRY(same_on(&e->mesh->share, sum_section(store, TR_SHARED), same));
    return same_on(&e->mesh->tie, ties, same);
}

tr_status tr_ckpt_compare(struct tr_engine *e)
{
    bool same;
    TR_TRY(compare(e, &same));
    tr_status status = TR_OK;
    if (!same)
        status = tr_fail("rank %d has other weights than the ranks that hold the same part of the "
                         "model: memory was corrupted, or processors compute differently",
                         e->mesh->rank);
    return tr_mesh_agree(e->mesh, status);
}

/* ---- Numbers that are not finite ---------------------------------------------------------------
 */

static tr_status check_range(const struct tr_engine *e, int param, int part, int64_t step)
{
    const struct range range = range_of(&e->store, param, part);
    const size_t i = e->backend->find_not_finite(range.floats, range.count);
    if (i == range.count) return TR_OK;
    float number;
    e->backend->read(&number, range.floats + i, sizeof number);
    char name[TR_NAME_BYTES + 4];
    tensor_of(&e->store, param, part, name);
    return tr_fail("after step %lld %s has the number %g: no checkpoint is written, earlier ones "
                   "are kept; resume from one of them with a smaller --lr",
                   (long long)step, name, (double)number);
}

/* Each rank looks at its own shards, and all ranks hear of it. */
static tr_status check_finite(const struct tr_engine *e, int64_t step)
{
    const struct tr_store *store = &e->store;
    tr_status status = TR_OK;
    for (int part = 0; part < MOST_PARTS; ++part)
        for (int p = 0; p < store->params->n && status == TR_OK; ++p)
            if (has_part(store, p, part)) status = check_range(e, p, part, step);
    return tr_mesh_agree(e->mesh, status);
}

/* ---- Files ------------------------------------------------------------------------------------
 */

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

/* NFS locks files for all hosts, and only files that are open for writing; folders it locks for
 * one host. */
tr_status tr_ckpt_lock(const char *folder, int *lock)
{
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%s/.lock", folder);
    *lock = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    if (*lock >= 0 && flock(*lock, LOCK_EX | LOCK_NB) == 0) return TR_OK;
    const int error = errno;
    if (*lock >= 0) close(*lock);
    if (*lock >= 0 && error == EWOULDBLOCK) {
        *lock = -1;
        return tr_fail("--checkpoint=%s: another run writes its checkpoints there; wait for its "
                       "end, or give another folder",
                       folder);
    }
    *lock = -1;
    printf("note: --checkpoint=%s: cannot lock %s (%s), so nothing keeps another run from writing "
           "its checkpoints there: give each run a folder of its own\n",
           folder, path, strerror(error));
    return TR_OK;
}

/* Tensors of a checkpoint in the order of the file: all weights, then all first states, ... */
struct entry {
    int param, part;
};

static tr_status list_entries(const struct tr_store *store, struct entry **entries, int *n)
{
    *n = 0;
    *entries = calloc((size_t)store->params->n * MOST_PARTS + 1, sizeof **entries);
    if (!*entries) return tr_fail("out of memory for the list of a checkpoint's tensors");
    for (int part = 0; part < MOST_PARTS; ++part)
        for (int p = 0; p < store->params->n; ++p)
            if (has_part(store, p, part)) (*entries)[(*n)++] = (struct entry){p, part};
    return TR_OK;
}

tr_status tr_ckpt_check_space(const char *folder, const struct tr_store *store)
{
    struct statvfs fs;
    double needed = 0;
    for (int p = 0; p < store->params->n; ++p)
        for (int part = 0; part < MOST_PARTS; ++part) {
            char name[TR_NAME_BYTES + 4];
            if (has_part(store, p, part))
                needed += (double)tensor_of(store, p, part, name).count * sizeof(float);
        }
    if (statvfs(folder, &fs) < 0) return TR_OK; /* writing will tell */
    const double left = (double)fs.f_bavail * (double)fs.f_frsize;
    if (left >= needed) return TR_OK;
    return tr_fail("--checkpoint=%s: a checkpoint takes %.1f MiB, but %.1f MiB are free there",
                   folder, needed / 1048576, left / 1048576);
}

/* What rank 0 writes with, while all ranks collect. */
struct file {
    struct tr_safetensors_writer *writer;
    struct entry *entries;
    struct tr_tensor *tensors;
    char (*names)[TR_NAME_BYTES + 4];
    char *options, step[32], samples[32], data[32];
    struct tr_metadata metadata[5];
    int n;
};

static tr_status create_file(struct file *f, const char *path, const struct tr_engine *e,
                             const struct tr_state *state, const struct tr_config *config)
{
    TR_TRY(list_entries(&e->store, &f->entries, &f->n));
    f->names = calloc((size_t)f->n, sizeof *f->names);
    f->tensors = calloc((size_t)f->n, sizeof *f->tensors);
    f->options = tr_config_to_json(config);
    if (!f->names || !f->tensors || !f->options) return tr_fail("%s: out of memory", path);
    for (int i = 0; i < f->n; ++i)
        f->tensors[i] = tensor_of(&e->store, f->entries[i].param, f->entries[i].part, f->names[i]);
    snprintf(f->step, sizeof f->step, "%lld", (long long)state->step);
    snprintf(f->samples, sizeof f->samples, "%llu", (unsigned long long)state->samples);
    snprintf(f->data, sizeof f->data, "%016llx", (unsigned long long)state->data_checksum);
    f->metadata[0] = (struct tr_metadata){"format", format_name};
    f->metadata[1] = (struct tr_metadata){"step", f->step};
    f->metadata[2] = (struct tr_metadata){"samples", f->samples};
    f->metadata[3] = (struct tr_metadata){"data", f->data};
    f->metadata[4] = (struct tr_metadata){"options", f->options};
    return tr_safetensors_create(&f->writer, path, f->tensors, f->n, f->metadata, 5);
}

static void close_file(struct file *f)
{
    tr_safetensors_discard(f->writer);
    free(f->entries);
    free(f->names);
    free(f->tensors);
    free(f->options);
}

/* Every rank collects to the end; rank 0 writes until something fails. */
static tr_status write_tensors(const struct tr_engine *e, struct file *f,
                               const struct entry *entries, int n, float *whole, tr_status *written)
{
    for (int i = 0; i < n; ++i) {
        TR_TRY(collect(e, entries[i].param, entries[i].part, whole));
        if (f->writer && *written == TR_OK) *written = tr_safetensors_append(f->writer, whole);
    }
    if (f->writer && *written == TR_OK) {
        *written = tr_safetensors_commit(f->writer);
        f->writer = NULL;
    }
    return TR_OK;
}

tr_status tr_ckpt_save(struct tr_engine *e, const char *folder, const struct tr_state *state,
                       const struct tr_config *config, char *path, size_t path_bytes)
{
    struct file file = {0};
    float *whole = NULL;
    struct entry *entries = NULL;
    int n = 0;
    TR_TRY(check_finite(e, state->step));
    tr_status status = take_room(e->store.params, &whole);
    if (status == TR_OK) status = list_entries(&e->store, &entries, &n);
    if (status == TR_OK && e->mesh->rank == 0) {
        if ((size_t)snprintf(path, path_bytes, "%s/step-%08lld.safetensors", folder,
                             (long long)state->step) >= path_bytes)
            status = tr_fail("--checkpoint=%s: the name is too long", folder);
        else
            status = create_file(&file, path, e, state, config);
    }
    status = tr_mesh_agree(e->mesh, status);
    if (status == TR_OK) {
        tr_status written = TR_OK;
        status = write_tensors(e, &file, entries, n, whole, &written);
        if (status == TR_OK) status = tr_mesh_agree(e->mesh, written);
    }
    close_file(&file);
    free(entries);
    free(whole);
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
    char name[NAME_MAX + 1] = "";
    for (const struct dirent *entry; (entry = readdir(folder));) {
        long long step;
        int end = 0;
        if (sscanf(entry->d_name, "step-%lld.safetensors%n", &step, &end) == 1 && end &&
            !entry->d_name[end] && step > newest) {
            newest = step;
            snprintf(name, sizeof name, "%s", entry->d_name); /* however many zeros it has */
        }
    }
    closedir(folder);
    if (newest < 0) return tr_fail("--resume=%s: no step-*.safetensors in that folder", where);
    if (snprintf(path, path_bytes, "%s/%s", where, name) >= (int)path_bytes)
        return tr_fail("--resume=%s: the name is too long", where);
    return TR_OK;
}

static tr_status open_checked(const char *path, struct tr_safetensors **file)
{
    TR_TRY(tr_safetensors_open(file, path));
    const char *format = tr_safetensors_metadata(*file, "format");
    if (format && !strcmp(format, format_name)) return TR_OK;
    const tr_status status =
        tr_fail("%s: its format is \"%s\", expected \"%s\": another program or version wrote it",
                path, format ? format : "not said", format_name);
    tr_safetensors_close(*file);
    *file = NULL; /* the caller may close it, too */
    return status;
}

tr_status tr_ckpt_read_options(const char *path, char **options)
{
    struct tr_safetensors *file;
    TR_TRY(open_checked(path, &file));
    const char *text = tr_safetensors_metadata(file, "options");
    *options = text ? strdup(text) : NULL;
    const tr_status status =
        *options ? TR_OK : tr_fail("%s: does not say the options it was written with", path);
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

static tr_status read_state(const struct tr_safetensors *file, const char *path,
                            struct tr_state *state)
{
    uint64_t step, samples, data;
    TR_TRY(read_number(file, path, "step", 10, &step));
    TR_TRY(read_number(file, path, "samples", 10, &samples));
    TR_TRY(read_number(file, path, "data", 16, &data));
    *state = (struct tr_state){(int64_t)step, samples, data};
    return TR_OK;
}

/* Rank 0 reads tensor after tensor, and no rank waits for one that it could not read. */
static tr_status read_tensors(struct tr_engine *e, const struct tr_safetensors *file,
                              const struct entry *entries, int n, float *whole)
{
    for (int i = 0; i < n; ++i) {
        char name[TR_NAME_BYTES + 4];
        const struct tr_tensor tensor =
            tensor_of(&e->store, entries[i].param, entries[i].part, name);
        tr_status status = TR_OK;
        if (file) status = tr_safetensors_read(file, &tensor, whole);
        TR_TRY(tr_mesh_agree(e->mesh, status));
        TR_TRY(hand_out(e, entries[i].param, entries[i].part, whole));
    }
    return TR_OK;
}

static tr_status share_state(const struct tr_mesh *mesh, struct tr_state *state)
{
    uint64_t numbers[3] = {(uint64_t)state->step, state->samples, state->data_checksum};
    TR_TRY(tr_mesh_check(mesh,
                         tuttiBroadcast(numbers, numbers, 3, tuttiUint64, 0, mesh->world, NULL),
                         "sharing the checkpoint's place in the data"));
    *state = (struct tr_state){(int64_t)numbers[0], numbers[1], numbers[2]};
    return TR_OK;
}

tr_status tr_ckpt_load(struct tr_engine *e, const char *path, struct tr_state *state)
{
    struct tr_safetensors *file = NULL;
    float *whole = NULL;
    struct entry *entries = NULL;
    int n = 0;
    tr_status status = take_room(e->store.params, &whole);
    if (status == TR_OK) status = list_entries(&e->store, &entries, &n);
    if (status == TR_OK && e->mesh->rank == 0) {
        status = open_checked(path, &file);
        if (status == TR_OK) status = read_state(file, path, state);
    }
    status = tr_mesh_agree(e->mesh, status);
    if (status == TR_OK) status = tr_store_settle(&e->store);
    if (status == TR_OK) status = read_tensors(e, file, entries, n, whole);
    if (status == TR_OK) status = share_state(e->mesh, state);
    if (status == TR_OK) status = tr_store_publish(&e->store);
    tr_safetensors_close(file);
    free(entries);
    free(whole);
    return status;
}
