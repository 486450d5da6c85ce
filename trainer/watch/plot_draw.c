/* Draws the curves of runs as SVG: a title, a legend where there are several runs, and panels one
 * below the other over one axis of steps. A panel without values is left out. */
#include "plot_draw.h"

#include <float.h>
#include <math.h>
#include <string.h>

#include "svg.h"

/* In pixels. GAP lies above each panel and has its name. */
enum { WIDTH = 960, LEFT = 72, RIGHT = 24, GAP = 34, BOTTOM = 52, TITLE = 34, LEGEND = 20 };

struct panel {
    const char *name;
    enum tr_plot_curve curve;
    int height, nticks; /* about how many */
};

static const struct panel panels[] = {{"loss (nats a token)", TR_PLOT_LOSS, 260, 6},
                                      {"learning rate", TR_PLOT_LR, 110, 3},
                                      {"gradient norm", TR_PLOT_NORM, 110, 3},
                                      {"tokens/s", TR_PLOT_SPEED, 110, 3},
                                      {"share of the products' peak", TR_PLOT_SHARE, 110, 3}};
enum { NPANELS = sizeof panels / sizeof panels[0] };

/* From lowest at pixel `from` to highest at pixel `to`, with a tick at first and every `step`. */
struct axis {
    double lowest, highest, first, step, from, to;
    int nticks;
};

static double place(const struct axis *axis, double value)
{
    return axis->from +
           (value - axis->lowest) / (axis->highest - axis->lowest) * (axis->to - axis->from);
}

/* The smallest of 1, 2 and 5 times a power of ten that is not below `least`. */
static double round_step(double least)
{
    const double power = pow(10, floor(log10(least)));
    for (int i = 0; i < 3; ++i) {
        static const double steps[] = {1, 2, 5};
        if (steps[i] * power >= least * (1 - 1e-9)) return steps[i] * power;
    }
    return 10 * power;
}

/* Makes room around a single value. Values whose ticks would need long numbers count as one. */
static void widen(double *lowest, double *highest)
{
    const double most = fmax(fabs(*lowest), fabs(*highest));
    if (*highest - *lowest > 1e-4 * most && *highest - *lowest > 1e-290) return;
    if (most < 1e-280) {
        *lowest = 0, *highest = 1;
        return;
    }
    *lowest -= 0.1 * most;
    *highest += 0.1 * most;
}

/* The axis of values ends with ticks. */
static struct axis value_axis(double lowest, double highest, const struct panel *panel, double top)
{
    widen(&lowest, &highest);
    struct axis a = {.step = round_step((highest - lowest) / panel->nticks)};
    a.lowest = a.first = floor(lowest / a.step + 1e-9) * a.step;
    a.highest = ceil(highest / a.step - 1e-9) * a.step;
    a.nticks = (int)lround((a.highest - a.lowest) / a.step) + 1;
    a.from = top + panel->height;
    a.to = top;
    return a;
}

/* The axis of steps ends with the first and the last step. */
static struct axis step_axis(double lowest, double highest)
{
    enum { TICKS = 10 };
    /* A share of the step, too: beside 2^53 a double has no place for 1. */
    const double room = fmax(1, 1e-9 * fabs(lowest));
    if (lowest >= highest) lowest -= room, highest += room;
    struct axis a = {.lowest = lowest, .highest = highest, .from = LEFT, .to = WIDTH - RIGHT};
    a.step = fmax(1, round_step((highest - lowest) / TICKS));
    a.first = ceil(lowest / a.step) * a.step;
    a.nticks = (int)floor((highest - a.first) / a.step + 1e-9) + 1;
    return a;
}

/* Extends lowest and highest by the values, or the steps, of a curve in all runs. */
static void extend(const struct tr_plot *plot, enum tr_plot_curve which, bool steps, double *lowest,
                   double *highest)
{
    for (int r = 0; r < plot->nruns; ++r) {
        const struct tr_curve *curve = &plot->runs[r]->curves[which];
        for (int i = 0; i < tr_curve_count(curve); ++i) {
            const struct tr_point point = tr_curve_at(curve, i);
            const double value = steps ? point.step : point.value;
            *lowest = fmin(*lowest, value);
            *highest = fmax(*highest, value);
        }
    }
}

/* A number of `digits` digits, in thousands, millions or billions where `most` is large: all
 * numbers of an axis have one unit. */
static void put_number(double value, double most, int digits, FILE *out)
{
    static const double sizes[] = {1, 1e3, 1e6, 1e9};
    static const char *const signs[] = {"", "k", "M", "G"};
    const int unit = most < 1e4 || most >= 1e13 ? 0 : most < 1e7 ? 1 : most < 1e10 ? 2 : 3;
    fprintf(out, "%.*g%s", digits, value / sizes[unit], value != 0 ? signs[unit] : "");
}

static void put_tick(const struct axis *axis, int i, FILE *out)
{
    const double value = axis->first + i * axis->step;
    put_number(fabs(value) < axis->step * 1e-6 ? 0 : value,
               fmax(fabs(axis->lowest), fabs(axis->highest)), 12, out);
    fputs("</text>\n", out);
}

static void draw_style(FILE *out)
{
    static const char *const light[TR_PLOT_RUNS] = {"#1666b0", "#c2410c", "#15803d", "#9333ea",
                                                    "#b91c1c", "#0e7490", "#a16207", "#be185d"};
    static const char *const dark[TR_PLOT_RUNS] = {"#6db3f2", "#fb923c", "#4ade80", "#c084fc",
                                                   "#f87171", "#22d3ee", "#facc15", "#f472b6"};
    fputs("<style>\n"
          "svg { color-scheme: light dark; font: 12px system-ui, sans-serif; }\n"
          "text { fill: #1f2328; } .tick, .last { fill: #59636e; }\n"
          ".title { font-size: 15px; font-weight: 600; } .name { font-weight: 600; }\n"
          ".paper { fill: #ffffff; } .grid { stroke: #e3e6ea; } .frame { stroke: #a8b0b9; }\n"
          ".grid, .frame, .curve { fill: none; } .curve { stroke-width: 1.5; stroke-linejoin: "
          "round; }\n"
          ".held-out { stroke-width: 2.5; stroke-dasharray: 7 4; } .pale { opacity: 0.5; }\n",
          out);
    for (int i = 0; i < TR_PLOT_RUNS; ++i)
        fprintf(out, ".run%d { stroke: %s; } .dot%d { fill: %s; }\n", i, light[i], i, light[i]);
    fputs("@media (prefers-color-scheme: dark) {\n"
          "text { fill: #e6edf3; } .tick, .last { fill: #9aa4af; }\n"
          ".paper { fill: #14181d; } .grid { stroke: #2b3138; } .frame { stroke: #565f69; }\n",
          out);
    for (int i = 0; i < TR_PLOT_RUNS; ++i)
        fprintf(out, ".run%d { stroke: %s; } .dot%d { fill: %s; }\n", i, dark[i], i, dark[i]);
    fputs("}\n</style>\n", out);
}

static void draw_grid(const struct axis *x, const struct axis *y, FILE *out)
{
    for (int i = 0; i < y->nticks; ++i) {
        const double at = place(y, y->first + i * y->step);
        fprintf(out, "<path class=\"grid\" d=\"M%d %.2fH%d\"/>\n", LEFT, at, WIDTH - RIGHT);
        fprintf(out, "<text class=\"tick\" text-anchor=\"end\" x=\"%d\" y=\"%.2f\">", LEFT - 8,
                at + 4);
        put_tick(y, i, out);
    }
    for (int i = 0; i < x->nticks; ++i)
        fprintf(out, "<path class=\"grid\" d=\"M%.2f %.0fV%.0f\"/>\n",
                place(x, x->first + i * x->step), y->from, y->to);
    fprintf(out, "<path class=\"frame\" d=\"M%d %.0fV%.0fH%d\"/>\n", LEFT, y->to, y->from,
            WIDTH - RIGHT);
}

static void draw_curve(const struct tr_plot *plot, int run, enum tr_plot_curve which,
                       const char *style, const struct axis *x, const struct axis *y, FILE *out)
{
    enum { DOTS = 60 }; /* most of a held-out curve that has some */
    const struct tr_curve *curve = &plot->runs[run]->curves[which];
    const int n = tr_curve_count(curve);
    if (!n) return;
    fprintf(out, "<path class=\"curve run%d%s\" d=\"", run, style);
    for (int i = 0; i < n; ++i) {
        const struct tr_point point = tr_curve_at(curve, i);
        fprintf(out, "%c%.2f %.2f", i ? 'L' : 'M', place(x, point.step), place(y, point.value));
    }
    fputs("\"/>\n", out);
    for (int i = 0; i < n && (n == 1 || (which == TR_PLOT_HELD_OUT && n <= DOTS)); ++i) {
        const struct tr_point point = tr_curve_at(curve, i);
        fprintf(out, "<circle class=\"dot%d\" r=\"3\" cx=\"%.2f\" cy=\"%.2f\"/>\n", run,
                place(x, point.step), place(y, point.value));
    }
}

static void put_last(const char *what, const struct tr_curve *curve, FILE *out)
{
    const int n = tr_curve_count(curve);
    if (!n) return;
    const double value = tr_curve_at(curve, n - 1).value;
    fputs(what, out);
    put_number(value, fabs(value), 4, out);
}

/* The last value, at the right of the panel's name, in a picture of one run. */
static void draw_last(const struct tr_plot *plot, const struct panel *panel, bool held_out,
                      double top, FILE *out)
{
    fprintf(out, "<text class=\"last\" text-anchor=\"end\" x=\"%d\" y=\"%.0f\">", WIDTH - RIGHT,
            top - 8);
    const struct tr_curve *curves = plot->runs[0]->curves;
    put_last("last ", &curves[panel->curve], out);
    const bool both = tr_curve_count(&curves[panel->curve]) > 0;
    if (held_out) put_last(both ? ", held out " : "held out ", &curves[TR_PLOT_HELD_OUT], out);
    fputs("</text>\n", out);
}

/* Gives whether there is anything of it. */
static bool find_range(const struct tr_plot *plot, const struct panel *panel, double *lowest,
                       double *highest)
{
    *lowest = DBL_MAX;
    *highest = -DBL_MAX;
    extend(plot, panel->curve, false, lowest, highest);
    if (panel->curve == TR_PLOT_LOSS) extend(plot, TR_PLOT_HELD_OUT, false, lowest, highest);
    return *lowest <= *highest;
}

static bool has_held_out(const struct tr_plot_run *run)
{
    return tr_curve_count(&run->curves[TR_PLOT_HELD_OUT]) > 0;
}

static void draw_panel(const struct tr_plot *plot, const struct panel *panel, const struct axis *x,
                       double top, FILE *out)
{
    double lowest, highest;
    find_range(plot, panel, &lowest, &highest);
    const struct axis y = value_axis(lowest, highest, panel, top);
    bool held_out = false;
    for (int r = 0; r < plot->nruns && panel->curve == TR_PLOT_LOSS; ++r)
        held_out |= has_held_out(plot->runs[r]);
    fprintf(out, "<g>\n<text class=\"name\" x=\"%d\" y=\"%.0f\">%s%s</text>\n", LEFT, top - 8,
            panel->name, held_out ? "; held out: dashed" : "");
    draw_grid(x, &y, out);
    for (int r = 0; r < plot->nruns; ++r)
        draw_curve(plot, r, panel->curve, held_out && has_held_out(plot->runs[r]) ? " pale" : "", x,
                   &y, out);
    for (int r = 0; held_out && r < plot->nruns; ++r)
        draw_curve(plot, r, TR_PLOT_HELD_OUT, " held-out", x, &y, out);
    if (plot->nruns == 1) draw_last(plot, panel, held_out, top, out);
    fputs("</g>\n", out);
}

static void draw_steps(const struct axis *x, double bottom, FILE *out)
{
    for (int i = 0; i < x->nticks; ++i) {
        fprintf(out, "<text class=\"tick\" text-anchor=\"middle\" x=\"%.2f\" y=\"%.0f\">",
                place(x, x->first + i * x->step), bottom + 18);
        put_tick(x, i, out);
    }
    fprintf(out, "<text class=\"name\" text-anchor=\"middle\" x=\"%d\" y=\"%.0f\">step</text>\n",
            (LEFT + WIDTH - RIGHT) / 2, bottom + 38);
}

static void draw_head(const struct tr_plot *plot, int legend, double height, FILE *out)
{
    fprintf(out,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%.0f\" viewBox=\"0 0 "
            "%d %.0f\">\n<title>",
            WIDTH, height, WIDTH, height);
    tr_svg_text(plot->title, out);
    fputs("</title>\n", out);
    draw_style(out);
    fprintf(out, "<rect class=\"paper\" width=\"%d\" height=\"%.0f\"/>\n", WIDTH, height);
    fprintf(out, "<text class=\"title\" x=\"%d\" y=\"26\">", LEFT);
    tr_svg_text(plot->title, out);
    fputs("</text>\n", out);
    for (int r = 0; r < legend; ++r) {
        const int y = TITLE + LEGEND * r + 14;
        fprintf(out, "<path class=\"curve run%d\" d=\"M%d %dH%d\"/>\n", r, LEFT, y - 4, LEFT + 24);
        fprintf(out, "<text x=\"%d\" y=\"%d\">", LEFT + 32, y);
        tr_svg_text(plot->runs[r]->name, out);
        fputs("</text>\n", out);
    }
}

void tr_plot_draw(const struct tr_plot *plot, FILE *out)
{
    const int legend = plot->nruns > 1 ? plot->nruns : 0;
    double lowest = DBL_MAX, highest = -DBL_MAX, from, to, top = TITLE + LEGEND * legend;
    double height = top + BOTTOM;
    for (int i = 0; i < NPANELS; ++i)
        if (find_range(plot, &panels[i], &from, &to)) height += GAP + panels[i].height;
    draw_head(plot, legend, height, out);
    for (int i = 0; i < TR_PLOT_CURVES; ++i)
        extend(plot, (enum tr_plot_curve)i, true, &lowest, &highest);
    if (lowest <= highest) {
        const struct axis x = step_axis(lowest, highest);
        for (int i = 0; i < NPANELS; ++i) {
            if (!find_range(plot, &panels[i], &from, &to)) continue;
            top += GAP;
            draw_panel(plot, &panels[i], &x, top, out);
            top += panels[i].height;
        }
        draw_steps(&x, top, out);
    } else {
        fprintf(out, "<text x=\"%d\" y=\"%.0f\">no steps yet</text>\n", LEFT, top + 24);
    }
    fputs("</svg>\n", out);
}
