/* Draws a plan as SVG: a title, and panels one below the other with a row for each stage. */
#include "plan_draw.h"

#include <string.h>

#include "watch/svg.h"

/* In pixels. GAP lies above each panel and has its name and its legend; a row has a bar of BAR. */
enum { WIDTH = 960, LEFT = 84, RIGHT = 24, TITLE = 34, GAP = 44, ROW = 24, BAR = 20, BOTTOM = 16 };
/* How much is drawn: rows of a panel, ranks of a row, micro-batches. */
enum { MOST_ROWS = 16, MOST_BOXES = 64, MOST_DRAWN = 32 };

struct drawing {
    const struct tr_plan_picture *p;
    struct tr_timeline timeline; /* of a pipeline */
    FILE *out;
    int top; /* of the panel at hand */
};

static const char *const memory_names[] = {"weights",  "gradients",   "optimizer",
                                           "gathered", "activations", "snapshot"};
enum { MEMORY_KINDS = sizeof memory_names / sizeof memory_names[0], COLORS = 8 };

static int smaller(int a, int b)
{
    return a < b ? a : b;
}

/* ---- Frame -------------------------------------------------------------------------------------
 */

static void draw_colors(const char *const colors[COLORS], FILE *out)
{
    for (int i = 0; i < COLORS; ++i) fprintf(out, ".color%d { fill: %s; }\n", i, colors[i]);
}

static void draw_style(FILE *out)
{
    static const char *const light[COLORS] = {"#8ec1ef", "#f7b27a", "#8fd6a5", "#cfa8f2",
                                              "#f2a1a1", "#86d5e4", "#e6c66a", "#efa3c8"};
    static const char *const dark[COLORS] = {"#1f5f9c", "#a3470f", "#1c6e3b", "#6b2fa8",
                                             "#9a2525", "#0f6376", "#7a5a0c", "#96265f"};
    fputs("<style>\n"
          "svg { color-scheme: light dark; font: 12px system-ui, sans-serif; }\n"
          "text { fill: #1f2328; } .row, .legend { fill: #59636e; } .box { font-size: 10px; }\n"
          ".title { font-size: 15px; font-weight: 600; } .name { font-weight: 600; }\n"
          ".paper { fill: #ffffff; } .idle { fill: #eef0f3; }\n",
          out);
    draw_colors(light, out);
    fputs("@media (prefers-color-scheme: dark) {\n"
          "text { fill: #e6edf3; } .row, .legend { fill: #9aa4af; }\n"
          ".paper { fill: #14181d; } .idle { fill: #222931; }\n",
          out);
    draw_colors(dark, out);
    fputs("}\n</style>\n", out);
}

/* "gpt2, 28.6 M parameters; 4 ranks = fsdp 2 x tp 2; DDP; adamw". */
static void draw_title(const struct drawing *d)
{
    const struct tr_plan_picture *p = d->p;
    struct tr_mesh mesh = {0};
    char model[TR_TEXT_BYTES], optimizer[TR_TEXT_BYTES], axes[TR_AXES_TEXT];
    memcpy(mesh.size, p->setup->size, sizeof mesh.size);
    tr_mesh_write_axes(&mesh, axes);
    tr_config_value(p->config, TR_OPTION_model, model);
    tr_config_value(p->config, TR_OPTION_optimizer, optimizer);
    const double count = (double)p->stages[0].parameters;
    const int unit = count < 1e6 ? 0 : count < 1e9 ? 1 : 2;
    fprintf(d->out, "%.32s, %.3g %c parameters; %d rank%s%s; %s; %.32s", model,
            count / (unit == 0   ? 1e3
                     : unit == 1 ? 1e6
                                 : 1e9),
            "kMG"[unit], p -> nranks, p -> nranks == 1 ? "" : "s", axes,
            tr_setup_sharding_name(p->setup->engine.sharding), optimizer);
}

static void draw_head(const struct drawing *d, int height)
{
    fprintf(d->out,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\" viewBox=\"0 0 %d "
            "%d\">\n<title>",
            WIDTH, height, WIDTH, height);
    draw_title(d);
    fputs("</title>\n", d->out);
    draw_style(d->out);
    fprintf(d->out, "<rect class=\"paper\" width=\"%d\" height=\"%d\"/>\n", WIDTH, height);
    fprintf(d->out, "<text class=\"title\" x=\"%d\" y=\"26\">", LEFT);
    draw_title(d);
    fputs("</text>\n", d->out);
}

/* A sample of color `color` with its name; gives where the next one lies. */
static int draw_legend(const struct drawing *d, int x, int color, const char *name)
{
    enum { SAMPLE = 12, LETTER = 7, SPACE = 24 };
    fprintf(d->out, "<rect class=\"color%d\" x=\"%d\" y=\"%d\" width=\"%d\" height=\"%d\"/>\n",
            color, x, d->top - 18, SAMPLE, SAMPLE);
    fprintf(d->out, "<text class=\"legend\" x=\"%d\" y=\"%d\">%s</text>\n", x + SAMPLE + 5,
            d->top - 8, name);
    return x + SAMPLE + LETTER * (int)strlen(name) + SPACE;
}

static void draw_row_name(const struct drawing *d, int row, int stage)
{
    fprintf(d->out, "<text class=\"row\" text-anchor=\"end\" x=\"%d\" y=\"%d\">stage %d</text>\n",
            LEFT - 8, d->top + ROW * row + 14, stage);
}

/* The stages of the rows: all, or the first and the last ones. */
static int count_rows(const struct drawing *d)
{
    return smaller(d->p->setup->size[TR_PP], MOST_ROWS);
}

static int stage_of(const struct drawing *d, int row)
{
    const int stages = d->p->setup->size[TR_PP];
    return row < MOST_ROWS / 2 || stages <= MOST_ROWS ? row : stages - MOST_ROWS + row;
}

/* ---- Mesh --------------------------------------------------------------------------------------
 */

/* Which of the shards of its units a rank holds. */
static int shard_of(const struct tr_setup *setup, int rank)
{
    const tr_axes axes = tr_engine_shard_axes(setup->engine.sharding);
    int coord[TR_NUM_AXES], shard = 0;
    tr_mesh_coords(setup->size, rank, coord);
    for (int axis = 0; axis < TR_NUM_AXES; ++axis)
        if (axes >> axis & 1) shard = shard * setup->size[axis] + coord[axis];
    return shard;
}

/* The i-th rank of a row, from pixel `x` on. */
static void draw_rank(const struct drawing *d, int row, int rank, double x, double width)
{
    enum { DIGIT = 7 };
    const int *size = d->p->setup->size;
    const int digits = snprintf(NULL, 0, "%d", d->p->nranks - 1), y = d->top + ROW * row;
    int coord[TR_NUM_AXES];
    tr_mesh_coords(size, rank, coord);
    fprintf(d->out,
            "<rect class=\"rank color%d\" x=\"%.2f\" y=\"%d\" width=\"%.2f\" height=\"%d\">"
            "<title>rank %d",
            shard_of(d->p->setup, rank) % COLORS, x, y, width, BAR, rank);
    for (int axis = 0; axis < TR_NUM_AXES; ++axis)
        if (size[axis] > 1) fprintf(d->out, ", %s %d", tr_axis_names[axis], coord[axis]);
    fputs("</title></rect>\n", d->out);
    if (width > digits * DIGIT)
        fprintf(d->out,
                "<text class=\"box\" text-anchor=\"middle\" x=\"%.2f\" y=\"%d\">%d</text>\n",
                x + width / 2, y + 14, rank);
}

/* A row for each stage, a box for each rank; the ranks of tp lie closer together. */
static int draw_mesh(const struct drawing *d)
{
    enum { CLOSE = 1, APART = 5, MOST_WIDTH = 48 };
    const struct tr_plan_picture *p = d->p;
    const int rows = count_rows(d), stages = p->setup->size[TR_PP], tp = p->setup->size[TR_TP],
              each = p->nranks / stages, boxes = smaller(each, MOST_BOXES);
    const double gaps = CLOSE * (boxes - 1) + (APART - CLOSE) * ((boxes - 1) / tp);
    double width = (WIDTH - LEFT - RIGHT - gaps) / boxes;
    if (width > MOST_WIDTH) width = MOST_WIDTH;
    fprintf(d->out, "<g>\n<text class=\"name\" x=\"%d\" y=\"%d\">mesh: a box a rank", LEFT,
            d->top - 8);
    if (tp > 1) fputs(", tp side by side", d->out);
    const int shards =
        tr_mesh_extent(p->setup->size, tr_engine_shard_axes(p->setup->engine.sharding));
    if (shards > COLORS)
        fprintf(d->out, "; a color a shard, %d in turn", COLORS);
    else if (shards > 1)
        fputs("; one color, one shard of each unit", d->out);
    if (boxes < each) fprintf(d->out, "; a stage's first %d of %d ranks", boxes, each);
    if (rows < stages) fprintf(d->out, "; %d of %d stages", rows, stages);
    fputs("</text>\n", d->out);
    for (int row = 0; row < rows; ++row) {
        const int stage = stage_of(d, row);
        draw_row_name(d, row, stage);
        for (int i = 0; i < boxes; ++i)
            draw_rank(d, row, stage * each + i,
                      LEFT + i * (width + CLOSE) + (APART - CLOSE) * (double)(i / tp), width);
    }
    fputs("</g>\n", d->out);
    return ROW * rows;
}

/* ---- Pipeline ----------------------------------------------------------------------------------
 */

static void draw_stage(const struct drawing *d, int stage, double unit)
{
    enum { DIGIT = 7 };
    const struct tr_schedule *schedule = &d->timeline.schedules[stage];
    const int y = d->top + ROW * stage, digits = snprintf(NULL, 0, "%d", schedule->nbatches - 1);
    fprintf(d->out, "<rect class=\"idle\" x=\"%d\" y=\"%d\" width=\"%d\" height=\"%d\"/>\n", LEFT,
            y, WIDTH - LEFT - RIGHT, BAR);
    for (int i = 0; i < schedule->nsteps; ++i) {
        const struct tr_schedule_step *step = &schedule->steps[i];
        if (step->action == TR_EXCHANGE) continue;
        const bool backward = step->action == TR_BACKWARD;
        const double x = LEFT + unit * (double)d->timeline.starts[stage][i],
                     width = unit * (backward ? 2 : 1);
        fprintf(d->out,
                "<rect class=\"%s color%d\" x=\"%.2f\" y=\"%d\" width=\"%.2f\" height=\"%d\"/>\n",
                backward ? "backward" : "forward", backward, x, y, width > 1 ? width - 0.5 : width,
                BAR);
        if (unit > digits * DIGIT)
            fprintf(d->out,
                    "<text class=\"box\" text-anchor=\"middle\" x=\"%.2f\" y=\"%d\">%d</text>\n",
                    x + width / 2, y + 14, step->batch);
    }
}

static int draw_pipeline(const struct drawing *d)
{
    const struct tr_setup *setup = d->p->setup;
    const int stages = setup->size[TR_PP];
    if (stages == 1) return 0;
    const struct tr_schedule *first = d->timeline.schedules;
    const long batches = tr_engine_micro_batches(&setup->engine, setup->size),
               units = tr_schedule_units(first->nstages, first->nbatches);
    fprintf(d->out,
            "<g>\n<text class=\"name\" x=\"%d\" y=\"%d\">pipeline: %s, %ld micro-batch%s, %.0f %% "
            "idle",
            LEFT, d->top - 8, tr_schedule_name(first->kind), batches, batches == 1 ? "" : "es",
            100 * tr_schedule_idle(stages, batches));
    if (first->nstages < stages || first->nbatches < batches)
        fprintf(d->out, "; drawn with %d stages and %d micro-batches", first->nstages,
                first->nbatches);
    fputs("</text>\n", d->out);
    draw_legend(d, draw_legend(d, WIDTH - RIGHT - 160, 0, "forward"), 1, "backward");
    for (int s = 0; s < first->nstages; ++s) {
        draw_row_name(d, s, s);
        draw_stage(d, s, (WIDTH - LEFT - RIGHT) / (double)units);
    }
    fputs("</g>\n", d->out);
    return ROW * first->nstages;
}

/* ---- Memory ------------------------------------------------------------------------------------
 */

static void draw_bar(const struct drawing *d, int row, const struct tr_memory *m, double each)
{
    const uint64_t parts[MEMORY_KINDS] = {m->weights,  m->gradients,   m->optimizer,
                                          m->gathered, m->activations, m->snapshot};
    const int y = d->top + ROW * row;
    double x = LEFT;
    for (int kind = 0; kind < MEMORY_KINDS; ++kind) {
        const double width = (double)parts[kind] * each;
        if (!parts[kind]) continue;
        fprintf(d->out,
                "<rect class=\"%s color%d\" x=\"%.2f\" y=\"%d\" width=\"%.2f\" height=\"%d\">"
                "<title>%s %.1f MiB</title></rect>\n",
                memory_names[kind], kind, x, y, width, BAR, memory_names[kind],
                (double)parts[kind] / 1048576);
        x += width;
    }
    fprintf(d->out, "<text class=\"sum\" x=\"%.2f\" y=\"%d\">%.1f MiB</text>\n", x + 8, y + 14,
            (double)tr_memory_sum(m) / 1048576);
}

static int draw_memory(const struct drawing *d)
{
    enum { SUM = 120 }; /* room for the text behind the longest bar */
    const int rows = count_rows(d), stages = d->p->setup->size[TR_PP];
    uint64_t most = 1;
    for (int row = 0; row < rows; ++row) {
        const uint64_t sum = tr_memory_sum(&d->p->stages[stage_of(d, row)].memory);
        if (sum > most) most = sum;
    }
    fprintf(d->out, "<g>\n<text class=\"name\" x=\"%d\" y=\"%d\">memory of a rank", LEFT,
            d->top - 8);
    if (rows < stages) fprintf(d->out, "; %d of %d stages", rows, stages);
    fputs("</text>\n", d->out);
    int x = LEFT + 270;
    for (int kind = 0; kind < MEMORY_KINDS; ++kind) x = draw_legend(d, x, kind, memory_names[kind]);
    for (int row = 0; row < rows; ++row) {
        draw_row_name(d, row, stage_of(d, row));
        draw_bar(d, row, &d->p->stages[stage_of(d, row)].memory,
                 (WIDTH - LEFT - RIGHT - SUM) / (double)most);
    }
    fputs("</g>\n", d->out);
    return ROW * rows;
}

/* ---- All ---------------------------------------------------------------------------------------
 */

static void draw(const void *arg, FILE *out)
{
    struct drawing d = *(const struct drawing *)arg;
    const bool piped = d.p->setup->size[TR_PP] > 1;
    d.out = out;
    d.top = TITLE + GAP;
    draw_head(&d, d.top + ROW * 2 * count_rows(&d) + GAP + BOTTOM +
                      (piped ? ROW * d.timeline.schedules->nstages + GAP : 0));
    d.top += draw_mesh(&d) + GAP;
    if (piped) d.top += draw_pipeline(&d) + GAP;
    draw_memory(&d);
    fputs("</svg>\n", out);
}

tr_status tr_plan_draw(const struct tr_plan_picture *picture)
{
    const struct tr_setup *setup = picture->setup;
    const int stages = setup->size[TR_PP];
    const long batches = tr_engine_micro_batches(&setup->engine, setup->size);
    struct drawing d = {.p = picture};
    if (stages > 1)
        TR_TRY(tr_timeline_create(&d.timeline, setup->engine.schedule, smaller(stages, MOST_ROWS),
                                  batches < MOST_DRAWN ? (int)batches : MOST_DRAWN));
    const tr_status status = tr_svg_write("svg", picture->config->svg, draw, &d);
    tr_timeline_destroy(&d.timeline);
    return status;
}
