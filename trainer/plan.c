/* Prints what a run would do: who is where, who holds what, when the stages work, what a rank
 * remembers and sends. */
#include "plan.h"

#include <stdlib.h>

#include "parallel/schedule.h"
#include "plan_draw.h"
#include "resident.h"
#include "setup.h"

/* How much of each list is printed; MOST_DRAWN is for stages and for micro-batches. */
enum { MOST_RANKS = 64, MOST_HOLDERS = 8, MOST_STAGES = 32, MOST_DRAWN = 32 };

struct plan {
    const struct tr_config *config;
    struct tr_setup setup;
    struct tr_model model; /* one block of it, for all are alike, as rank 0 of tp registers it */
    int *first_layer;      /* [pp + 1] */
    struct tr_rehearsal *stages; /* [pp]: of the first rank of each */
    int nranks, shards, replicas;
    FILE *out;
};

/* ---- The mesh ----------------------------------------------------------------------------------
 */

static void print_coords(const struct plan *p, int rank)
{
    int coord[TR_NUM_AXES];
    tr_mesh_coords(p->setup.size, rank, coord);
    fprintf(p->out, "  rank %4d ", rank);
    for (int axis = 0; axis < TR_NUM_AXES; ++axis)
        if (p->setup.size[axis] > 1) fprintf(p->out, "  %s %d", tr_axis_names[axis], coord[axis]);
    fprintf(p->out, "\n");
}

static void print_mesh(const struct plan *p)
{
    fprintf(p->out, "Mesh: %d ranks", p->nranks);
    const char *before = " =";
    for (int axis = 0; axis < TR_NUM_AXES; ++axis)
        if (p->setup.size[axis] > 1) {
            fprintf(p->out, "%s %s %d", before, tr_axis_names[axis], p->setup.size[axis]);
            before = " x";
        }
    fprintf(p->out, "; %s, %d shards a unit, %d replicas\n",
            tr_setup_sharding_name(p->setup.engine.sharding), p->shards, p->replicas);
    for (int rank = 0; p->nranks > 1 && rank < p->nranks && rank < MOST_RANKS; ++rank)
        print_coords(p, rank);
    if (p->nranks > MOST_RANKS)
        fprintf(p->out, "  ... and %d ranks more in the same order\n", p->nranks - MOST_RANKS);
}

/* ---- Layouts ------------------------------------------------------------------------------------
 */

static void print_slice(const struct plan *p, const struct tr_param *param,
                        const struct tr_slice *slice)
{
    fprintf(p->out, " %ld-%ld", slice->row, slice->row + slice->rows - 1);
    if (param->ndim == 2 && slice->cols < param->shape[1])
        fprintf(p->out, " x %ld-%ld", slice->col, slice->col + slice->cols - 1);
}

/* What one shard on one rank of tp holds of a tensor. */
static void print_holder(const struct plan *p, int index, int tp, int shard)
{
    const struct tr_params *params = &p->model.params;
    const struct tr_param *param = &params->items[index];
    const size_t each = params->units[param->unit].total / (size_t)p->shards;
    const size_t count = (size_t)(param->local[0] * param->local[1]);
    const size_t begin = each * (size_t)shard, end = begin + each;
    const size_t first = begin > param->offset ? begin - param->offset : 0,
                 stop = end > param->offset ? end - param->offset : 0;
    struct tr_slice slices[TR_MOST_SLICES];
    const size_t last = stop < count ? stop : count;
    const int n = first < last ? tr_layout_slices(&param->layout, param->shape, params->tp, tp,
                                                  first, last - first, slices)
                               : 0;
    if (!n) return;
    fprintf(p->out, "      ");
    if (params->tp > 1) fprintf(p->out, "tp %d ", tp);
    if (p->shards > 1) fprintf(p->out, "shard %d ", shard);
    fprintf(p->out, "%s:", params->tp > 1 || p->shards > 1 ? "has rows" : "rows");
    for (int i = 0; i < n; ++i) {
        if (i) fprintf(p->out, ",");
        print_slice(p, param, &slices[i]);
    }
    fprintf(p->out, "\n");
}

static void print_reduction(const struct plan *p, int index)
{
    const struct tr_params *params = &p->model.params;
    const struct tr_param *param = &params->items[index];
    const int *size = p->setup.size, data = tr_mesh_extent(size, TR_AXES_DATA);
    const int holders = tr_layout_replicas(&param->layout, param->shape, params->tp, 0).count;
    const char *before = "; its gradient is summed over ";
    if (data > 1) {
        fprintf(p->out, "%s%d ranks with tokens of their own", before, data);
        before = ", then ";
    }
    if (params->tp > 1 && holders > 1) {
        fprintf(p->out, "%s%d ranks of tp", before, holders);
        before = ", then ";
    }
    if (size[TR_PP] > 1 && params->units[param->unit].tied_stage >= 0)
        fprintf(p->out, "%sthe first and the last stage", before);
}

static void print_param(const struct plan *p, int index)
{
    const struct tr_param *param = &p->model.params.items[index];
    fprintf(p->out, "    %s [%ld", param->name, param->shape[0]);
    if (param->ndim == 2) fprintf(p->out, ", %ld", param->shape[1]);
    fprintf(p->out, "]");
    print_reduction(p, index);
    fprintf(p->out, "\n");
    const int holders = p->setup.size[TR_TP] * p->shards;
    for (int h = 0; h < holders && h < MOST_HOLDERS; ++h)
        print_holder(p, index, h / p->shards, h % p->shards);
    if (holders > MOST_HOLDERS)
        fprintf(p->out, "      ... and %d holders more\n", holders - MOST_HOLDERS);
}

static void print_layouts(const struct plan *p)
{
    const struct tr_params *params = &p->model.params;
    const long layers = p->setup.engine.model.layers;
    fprintf(p->out, "\nLayouts: %llu parameters\n", (unsigned long long)p->stages[0].parameters);
    for (int u = 0; u < params->nunits; ++u) {
        const struct tr_unit *unit = &params->units[u];
        const bool block = u == p->model.blocks[0].unit;
        fprintf(p->out, "  unit %s", unit->name);
        if (block && layers > 1) fprintf(p->out, " (and the %ld blocks after it)", layers - 1);
        fprintf(p->out, ": %zu floats", unit->total);
        if (p->setup.size[TR_PP] > 1 && !block) {
            fprintf(p->out, ", stage %d", unit->stage);
            if (unit->tied_stage >= 0) fprintf(p->out, " and stage %d", unit->tied_stage);
        }
        fprintf(p->out, "\n");
        for (int i = unit->first_param; i < unit->first_param + unit->nparams; ++i)
            print_param(p, i);
    }
}

/* ---- Pipeline, memory, communication ------------------------------------------------------------
 */

/* Of many stages the first half of MOST_STAGES and the last are listed. */
static bool is_listed(const struct plan *p, int stage)
{
    const int stages = p->setup.size[TR_PP], half = MOST_STAGES / 2;
    return stages <= MOST_STAGES || stage < half || stage >= stages - half;
}

/* In place of the stages that are not listed, after the last one before them: how many they are. */
static void print_gap(const struct plan *p, int stage)
{
    const int stages = p->setup.size[TR_PP], half = MOST_STAGES / 2;
    if (stages > MOST_STAGES && stage == half - 1)
        fprintf(p->out, "  ... and %d stages more, up to stage %d\n", stages - MOST_STAGES,
                stages - half - 1);
}

static int smaller(int a, int b)
{
    return a < b ? a : b;
}

static tr_status print_pipeline(const struct plan *p)
{
    const int stages = p->setup.size[TR_PP],
              m = (int)tr_engine_micro_batches(&p->setup.engine, p->setup.size);
    char note[TR_NOTE_BYTES];
    fprintf(p->out, "\nPipeline: %d stages, %d micro-batches of a step\n", stages, m);
    tr_setup_idle_note(p->config, &p->setup.engine, p->setup.size, note);
    if (note[0]) fprintf(p->out, "  %s\n", note);
    for (int s = 0; s < stages; ++s) {
        if (!is_listed(p, s)) continue;
        fprintf(p->out, "  stage %d: layers %d to %d\n", s, p->first_layer[s],
                p->first_layer[s + 1] - 1);
        print_gap(p, s);
    }
    const int drawn_stages = smaller(stages, MOST_DRAWN), drawn = smaller(m, MOST_DRAWN);
    if (drawn_stages < stages || drawn < m)
        fprintf(p->out, "  too many to draw; drawn with %d stages and %d micro-batches:\n",
                drawn_stages, drawn);
    return tr_schedule_draw(p->out, p->setup.engine.schedule, drawn_stages, drawn);
}

static void print_memory(const struct plan *p)
{
    const int stages = p->setup.size[TR_PP];
    const double mib = 1048576;
    uint64_t most = 0;
    int largest = 0;
    fprintf(p->out, "\nMemory of a rank in MiB\n  %-8s %10s %10s %10s %10s %12s %10s %10s\n",
            "stage", "weights", "gradients", "optimizer", "gathered", "activations", "snapshot",
            "all");
    for (int stage = 0; stage < stages; ++stage) {
        const struct tr_memory *m = &p->stages[stage].memory;
        if (tr_memory_sum(m) > most) {
            most = tr_memory_sum(m);
            largest = stage;
        }
        if (!is_listed(p, stage)) continue;
        fprintf(p->out, "  %-8d %10.1f %10.1f %10.1f %10.1f %12.1f %10.1f %10.1f\n", stage,
                (double)m->weights / mib, (double)m->gradients / mib, (double)m->optimizer / mib,
                (double)m->gathered / mib, (double)m->activations / mib, (double)m->snapshot / mib,
                (double)tr_memory_sum(m) / mib);
        print_gap(p, stage);
    }
    if (stages > MOST_STAGES)
        fprintf(p->out, "  the largest of all: stage %d, %.1f\n", largest, (double)most / mib);
}

/* What `ps` will show, unlike the table above with other ranks' arenas that the process maps. */
static void print_resident(const struct plan *p)
{
    const int stages = p->setup.size[TR_PP];
    const double mib = 1048576;
    fprintf(p->out,
            "\nResident memory of the process of a rank in MiB, at most (VmHWM, with all ranks on "
            "one host)\n  %-8s %10s %10s %10s %10s\n",
            "stage", "own", "peers", "process", "all");
    for (int stage = 0; stage < stages; ++stage) {
        if (!is_listed(p, stage)) continue;
        const int tied = tr_setup_tied(&p->setup, stage);
        struct tr_resident r;
        tr_setup_resident_of(&p->setup, &p->stages[stage].memory,
                             tied >= 0 ? &p->stages[tied].memory : NULL, &r);
        fprintf(p->out, "  %-8d %10.1f %10.1f %10.1f %10.1f\n", stage, r.own / mib, r.peers / mib,
                r.process / mib, tr_resident_sum(&r) / mib);
        print_gap(p, stage);
    }
}

static void print_traffic(const struct plan *p)
{
    const int per_stage = p->nranks / p->setup.size[TR_PP];
    fprintf(p->out, "\nCommunication of a step, payload of the calls of one rank\n");
    for (int stage = 0; stage < p->setup.size[TR_PP]; ++stage) {
        if (!is_listed(p, stage)) continue;
        fprintf(p->out, "  rank %d%s\n", stage * per_stage,
                p->setup.size[TR_PP] > 1 ? ", the first of its stage" : "");
        for (int with = 0; with < TR_NUM_PARTNERS; ++with)
            for (int kind = 0; kind < TR_NUM_TRAFFIC; ++kind) {
                const struct tr_traffic *t = &p->stages[stage].step[with].traffic[kind];
                if (t->calls)
                    fprintf(p->out, "    %-16s %-16s %8llu calls %14llu bytes\n",
                            tr_partner_names[with], tr_traffic_names[kind],
                            (unsigned long long)t->calls, (unsigned long long)t->bytes);
            }
        print_gap(p, stage);
    }
}

/* ---- All
 * ----------------------------------------------------------------------------------------- */

static tr_status prepare(struct plan *p)
{
    const struct tr_model_size *size = &p->setup.engine.model;
    const int stages = p->setup.size[TR_PP];
    const tr_axes axes = tr_engine_shard_axes(p->setup.engine.sharding);
    p->shards = tr_mesh_extent(p->setup.size, axes);
    p->replicas = tr_mesh_extent(p->setup.size, TR_AXES_DATA) / p->shards;
    struct tr_model_size one_block = *size;
    one_block.layers = 1;
    TR_TRY(tr_model_init(&p->model, &one_block, NULL, p->setup.size[TR_TP], 0, p->shards));
    TR_TRY(tr_engine_stages(size, stages, &p->first_layer));
    const struct tr_model *model = &p->model;
    model->params.units[model->final_unit].stage = stages - 1;
    if (size->tied && stages > 1) model->params.units[model->token_unit].tied_stage = stages - 1;
    p->stages = calloc((size_t)stages, sizeof *p->stages);
    if (!p->stages) return tr_fail("out of memory for %d stages", stages);
    int nkinds;
    TR_TRY(tr_rehearse_stages(p->setup.size, &p->setup.engine, p->first_layer, p->stages, &nkinds));
    for (int stage = 0; stage < stages; ++stage) tr_setup_trim(&p->setup, &p->stages[stage]);
    return TR_OK;
}

static tr_status print_all(struct plan *p)
{
    TR_TRY(prepare(p));
    print_mesh(p);
    print_layouts(p);
    if (p->setup.size[TR_PP] > 1) TR_TRY(print_pipeline(p));
    print_memory(p);
    print_resident(p);
    print_traffic(p);
    if (!p->config->svg[0]) return TR_OK;
    const struct tr_plan_picture picture = {p->config, &p->setup, p->stages, p->nranks};
    TR_TRY(tr_plan_draw(&picture));
    fprintf(p->out, "\nwrote %s\n", p->config->svg);
    return TR_OK;
}

tr_status tr_plan_print(const struct tr_config *config, int nranks, FILE *out)
{
    struct plan p = {.config = config, .nranks = nranks, .out = out};
    TR_TRY(tr_setup_of(config, nranks, &p.setup));
    const tr_status status = print_all(&p);
    tr_model_fini(&p.model);
    free(p.first_layer);
    free(p.stages);
    return status;
}
