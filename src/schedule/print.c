/* Prints the steps of a rank. */
#include "schedule/network.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* A text that grows up to `size` bytes and is cut off there. */
struct writer {
    char *text;
    size_t size, used;
};

static void put(struct writer *writer, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

static void put(struct writer *writer, const char *format, ...)
{
    if (writer->used >= writer->size) return;
    va_list args;
    va_start(args, format);
    const int n = vsnprintf(writer->text + writer->used, writer->size - writer->used, format, args);
    va_end(args);
    if (n > 0) writer->used += (size_t)n;
}

/* Puts a comma, except before the first item. */
static void separate(struct writer *writer, bool *any)
{
    if (*any) put(writer, ",");
    *any = true;
}

/* "3", "0..6", "1,3,5,7", "0,3,..,15": all of a few peers, the pattern of many. */
static void put_peers(struct writer *writer, const struct tt_peers *peers, int nranks)
{
    const int last = tt_peer_at(peers, peers->number - 1, nranks);
    const int first = tt_peer_at(peers, 0, nranks);
    if (peers->number > 2 && peers->stride == 1 && !peers->group.ranks && first < last) {
        put(writer, "%d..%d", first, last);
        return;
    }
    bool any = false;
    for (int i = 0; i < peers->number; i++) {
        if (peers->number > 8 && i == 3) {
            put(writer, ",..");
            i = peers->number - 1;
        }
        separate(writer, &any);
        put(writer, "%d", tt_peer_at(peers, i, nranks));
    }
}

/* Names that follow one another: "2", "2..5", or, round the end, "6..1". */
static void put_run(struct writer *writer, const struct tt_span *span, int from, int number,
                    int nblocks)
{
    const int first = tt_span_name(span, from, nblocks);
    if (number == 1)
        put(writer, "%d", first);
    else
        put(writer, "%d..%d", first, tt_span_name(span, from + number - 1, nblocks));
}

static void put_span(struct writer *writer, const struct tt_span *span, int nblocks)
{
    static const char *const names[] = {
        [TT_INPUT] = "INPUT", [TT_OUTPUT] = "OUTPUT", [TT_SCRATCH] = "SCRATCH"};
    put(writer, "%s[", names[span->buffer]);
    const int run = span->order ? 1 : span->run < span->number ? span->run : span->number;
    const int nruns = (span->number + run - 1) / run;
    bool any = false;
    for (int i = 0; i < nruns; i++) {
        if (nruns > 8 && i == 3) {
            put(writer, ",..");
            i = nruns - 1;
        }
        separate(writer, &any);
        const int left = span->number - i * run;
        put_run(writer, span, i * run, left < run ? left : run, nblocks);
    }
    put(writer, "]");
    if (span->slot_rule == TT_SLOT_IN_ORDER)
        put(writer, "@%d", span->slot);
    else if (span->slot > 0)
        put(writer, "+%d", span->slot);
}

static void put_sources(struct writer *writer, const struct tt_step *step,
                        const struct tt_shape *shape, int nblocks)
{
    bool any = false;
    if (step->recv.number > 0) {
        put(writer, step->kind == TT_STEP_MEET ? "meet " : "recv ");
        put_peers(writer, &step->recv, shape->nranks);
        any = true;
    }
    if (step->op != TT_COPY) {
        put(writer, "%s%s", any ? " " : "", step->op == TT_FOLD ? "reduce" : "transpose");
        any = true;
    }
    if (step->local.number > 0) {
        put(writer, "%s", any ? " " : "");
        put_span(writer, &step->local, nblocks);
    }
}

/* Pads the text before "->" to `width` characters. */
static void put_step(struct writer *writer, const struct tt_step *step,
                     const struct tt_shape *shape, int nblocks, size_t width)
{
    put_sources(writer, step, shape, nblocks);
    const bool more = step->finish || step->dst.number > 0 || step->send.number > 0;
    if (more && writer->used < width) put(writer, "%*s", (int)(width - writer->used), "");
    const char *space = writer->used > 0 ? " " : "";
    if (step->finish) {
        put(writer, "%sfinish", space);
        space = " ";
    }
    if (step->dst.number > 0) {
        put(writer, "%s-> ", space);
        put_span(writer, &step->dst, nblocks);
        space = " ";
    }
    if (step->send.number > 0) {
        put(writer, "%ssend ", space);
        put_peers(writer, &step->send, shape->nranks);
    }
}

void tt_step_print(const struct tt_step *step, const struct tt_shape *shape, int nblocks,
                   char *text, size_t size)
{
    struct writer writer = {.text = text, .size = size};
    if (size > 0) text[0] = '\0';
    put_step(&writer, step, shape, nblocks > 0 ? nblocks : 1, 0);
}

static int digits(int number)
{
    return snprintf(NULL, 0, "%d", number);
}

/* The width of the longest text before "->", so that all arrows stand in one column. */
static size_t sources_width(const struct tt_steps *steps, int rank, int channel, int nsteps,
                            int nblocks)
{
    enum { WIDEST = 40 };
    size_t width = 0;
    for (int i = 0; i < nsteps; i++) {
        struct tt_step step;
        char text[256] = "";
        struct writer writer = {.text = text, .size = sizeof text};
        tt_steps_get(steps, rank, channel, i, &step);
        put_sources(&writer, &step, &steps->shape, nblocks);
        if (writer.used > width && writer.used <= WIDEST) width = writer.used;
    }
    return width;
}

void tt_print(const struct tt_steps *steps, int rank, void (*emit)(void *arg, const char *line),
              void *arg)
{
    const int nchannels = tt_nchannels(steps->algorithm, &steps->shape);
    const int named = tt_nblocks(steps->algorithm, &steps->shape);
    const int nblocks = named > 0 ? named : 1;
    for (int channel = 0; channel < nchannels; channel++) {
        const int nsteps = tt_steps_number(steps, rank, channel);
        const size_t width = sources_width(steps, rank, channel, nsteps, nblocks);
        for (int i = 0; i < nsteps; i++) {
            struct tt_step step;
            char line[512] = "", text[400] = "";
            struct writer writer = {.text = text, .size = sizeof text};
            tt_steps_get(steps, rank, channel, i, &step);
            put_step(&writer, &step, &steps->shape, nblocks, width);
            if (nchannels > 1)
                snprintf(line, sizeof line, "channel %d %*d: %s", channel, digits(nsteps), i, text);
            else
                snprintf(line, sizeof line, "%*d: %s", digits(nsteps), i, text);
            emit(arg, line);
        }
    }
}
