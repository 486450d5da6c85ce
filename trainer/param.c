/* Registers parameters by unit, gives them their places, fills them with their first values, and
 * takes checksums. */
#include "param.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void tr_params_init(struct tr_params *params, const struct tr_backend *backend, int tp, int tp_rank,
                    int shards)
{
    *params =
        (struct tr_params){.backend = backend, .tp = tp, .tp_rank = tp_rank, .shards = shards};
}

/* Room for one more element behind n: it doubles where it is full, at the powers of two. */
static void *grow(void *items, int n, size_t size)
{
    return n & (n - 1) ? items : realloc(items, 2 * (size_t)(n ? n : 1) * size);
}

int tr_params_begin_unit(struct tr_params *params, const char *name)
{
    struct tr_unit *units = grow(params->units, params->nunits, sizeof *units);
    if (!units) return -1;
    params->units = units;
    struct tr_unit *unit = &units[params->nunits];
    *unit = (struct tr_unit){.first_param = params->n, .tied_stage = -1};
    snprintf(unit->name, sizeof unit->name, "%s", name);
    return params->nunits++;
}

static enum tr_section section_of(const struct tr_params *params, const struct tr_param *param)
{
    const int holders = tr_layout_replicas(&param->layout, param->shape, params->tp, 0).count;
    return params->tp == 1 || holders == 1 ? TR_CUT
           : holders == params->tp         ? TR_REPLICATED
                                           : TR_SHARED;
}

int tr_param_add(struct tr_params *params, const char *name, long rows, long cols,
                 struct tr_layout layout, double mean, double deviation)
{
    struct tr_param *items = grow(params->items, params->n, sizeof *items);
    if (!items) return -1;
    params->items = items;
    struct tr_param *param = &items[params->n];
    *param = (struct tr_param){
        .ndim = cols ? 2 : 1,
        .shape = {rows, cols ? cols : 1},
        .layout = layout,
        .unit = params->nunits - 1,
        .decay = cols != 0,
        .mean = mean,
        .deviation = deviation,
    };
    snprintf(param->name, sizeof param->name, "%s", name);
    param->count = (size_t)(param->shape[0] * param->shape[1]);
    param->local[0] = param->shape[0];
    param->local[1] = param->shape[1];
    if (layout.dim >= 0)
        param->local[layout.dim] =
            tr_layout_part(&layout, param->shape[layout.dim], params->tp, 0).stored;
    param->section = section_of(params, param);
    params->units[params->nunits - 1].nparams++;
    params->count += param->count;
    return params->n++;
}

struct tr_subject tr_param_subject(const struct tr_param *param)
{
    return (struct tr_subject){.ndim = param->ndim,
                               .shape = {param->shape[0], param->shape[1]},
                               .hidden = param->hidden,
                               .decay = param->decay};
}

struct tr_extract tr_param_within(const struct tr_param *param, size_t begin, size_t n)
{
    const size_t stop = param->offset + (size_t)(param->local[0] * param->local[1]);
    const size_t last = begin + n;
    const size_t first = param->offset > begin ? param->offset : begin;
    const size_t end = stop < last ? stop : last;
    if (first >= end) return (struct tr_extract){0, 0};
    return (struct tr_extract){first - param->offset, end - first};
}

static size_t rounded(size_t n, size_t to)
{
    return (n + to - 1) / to * to;
}

void tr_params_place(struct tr_params *params)
{
    for (int u = 0; u < params->nunits; ++u) {
        struct tr_unit *unit = &params->units[u];
        size_t at = 0, end = 0; /* end: of the tensor before */
        for (int section = 0; section < TR_NUM_SECTIONS; ++section) {
            at = unit->section[section] = rounded(at, TR_BLOCK);
            for (int p = unit->first_param; p < unit->first_param + unit->nparams; ++p) {
                struct tr_param *param = &params->items[p];
                if (param->section != (enum tr_section)section) continue;
                param->offset = param->joined ? end : rounded(at, 16);
                at = end = param->offset + (size_t)(param->local[0] * param->local[1]);
            }
        }
        unit->section[TR_NUM_SECTIONS] = at;
        unit->total = rounded(at, (size_t)params->shards * TR_BLOCK);
    }
}

void tr_params_fini(struct tr_params *params)
{
    free(params->items);
    free(params->units);
    *params = (struct tr_params){0};
}

/* tr_param_each_run, but for rows of the global tensor that have nothing of [from, to). */
static void each_run(const struct tr_params *params, const struct tr_param *param, size_t first,
                     size_t count, size_t from, size_t to,
                     void (*visit)(void *arg, struct tr_run run), void *arg)
{
    const size_t begin = param->offset > first ? param->offset : first;
    const size_t stop = param->offset + (size_t)(param->local[0] * param->local[1]);
    const size_t end = stop < first + count ? stop : first + count;
    if (begin >= end || from >= to) return;
    struct tr_slice slices[TR_MOST_SLICES];
    const int n = tr_layout_slices(&param->layout, param->shape, params->tp, params->tp_rank,
                                   begin - param->offset, end - begin, slices);
    const long from_row = (long)from / param->shape[1], to_row = (long)(to - 1) / param->shape[1];
    size_t at = begin - first;
    for (int s = 0; s < n; ++s) {
        const struct tr_slice *slice = &slices[s];
        const long low = from_row > slice->row ? from_row - slice->row : 0;
        const long high =
            to_row - slice->row + 1 < slice->rows ? to_row - slice->row + 1 : slice->rows;
        for (long row = low; row < high; ++row) {
            const long element = (slice->row + row) * param->shape[1] + slice->col;
            visit(arg, (struct tr_run){(size_t)element, at + (size_t)(row * slice->cols),
                                       (size_t)slice->cols});
        }
        at += (size_t)(slice->rows * slice->cols);
    }
}

void tr_param_each_run(const struct tr_params *params, const struct tr_param *param, size_t first,
                       size_t count, void (*visit)(void *arg, struct tr_run run), void *arg)
{
    each_run(params, param, first, count, 0, (size_t)(param->shape[0] * param->shape[1]), visit,
             arg);
}

struct values {
    const struct tr_backend *backend;
    float *range;
    const struct tr_excerpt *piece;
    struct tr_first_values first;
};

static void initialize(void *arg, struct tr_run run)
{
    const struct values *v = arg;
    v->backend->initialize(v->range + run.range, run.count, &v->first, run.global);
}

void tr_params_initialize(const struct tr_params *params, int unit, float *range, size_t first,
                          size_t count, uint64_t seed)
{
    params->backend->clear(range, count * sizeof *range);
    if (!params->backend->initialize) return;
    const struct tr_unit *u = &params->units[unit];
    for (int p = u->first_param; p < u->first_param + u->nparams; ++p) {
        const struct tr_param *param = &params->items[p];
        struct values values = {
            .backend = params->backend,
            .range = range,
            .first = {.mean = param->mean,
                      .deviation = param->deviation,
                      .seed = seed,
                      .stream = (uint32_t)tr_checksum(param->name, strlen(param->name))}};
        tr_param_each_run(params, param, first, count, initialize, &values);
    }
}

static void put(void *arg, struct tr_run run)
{
    const struct values *v = arg;
    const struct tr_excerpt *piece = v->piece;
    const size_t end = run.global + run.count, piece_end = piece->first + piece->count;
    const size_t from = run.global > piece->first ? run.global : piece->first;
    const size_t to = end < piece_end ? end : piece_end;
    if (from < to)
        v->backend->write(v->range + run.range + (from - run.global),
                          piece->values + (from - piece->first), (to - from) * sizeof(float));
}

void tr_param_put(const struct tr_params *params, const struct tr_param *param,
                  const struct tr_excerpt *piece, float *range, size_t first, size_t count)
{
    struct values values = {.backend = params->backend, .range = range, .piece = piece};
    each_run(params, param, first, count, piece->first, piece->first + piece->count, put, &values);
}

uint64_t tr_checksum(const void *bytes, size_t nbytes)
{
    const unsigned char *at = bytes;
    uint64_t hash = 0x9E3779B97F4A7C15u ^ nbytes;
    while (nbytes) {
        uint64_t word = 0;
        const size_t n = nbytes < 8 ? nbytes : 8;
        memcpy(&word, at, n);
        hash = (hash ^ word) * 0xD6E8FEB86659FD93u;
        hash ^= hash >> 32;
        at += n;
        nbytes -= n;
    }
    return hash;
}
