/* Builds schedules from tables of steps. */
#include "hand.h"

#include <string.h>

#include "shim.h"

static const struct hand *current;
static struct tt_algorithm algorithm = {.name = "by hand"};

static int nchannels(const struct tt_algorithm *self, const struct tt_shape *shape)
{
    (void)self, (void)shape;
    return current->nchannels > 0 ? current->nchannels : 1;
}

static int nblocks(const struct tt_algorithm *self, const struct tt_shape *shape)
{
    (void)self, (void)shape;
    return current->nblocks > 0 ? current->nblocks : 1;
}

static int nscratch(const struct tt_algorithm *self, const struct tt_shape *shape, int rank)
{
    (void)self, (void)shape, (void)rank;
    return current->nscratch;
}

/* The index-th line of a rank's channel; NULL past the end. */
static const struct line *line_at(int rank, int channel, int index)
{
    for (int i = 0; i < current->nlines; i++) {
        const struct line *line = &current->lines[i];
        if (line->rank == rank && line->channel == channel && index-- == 0) return line;
    }
    return NULL;
}

static int nsteps(const struct tt_algorithm *self, const struct tt_shape *shape, int rank,
                  int channel)
{
    (void)self, (void)shape;
    int n = 0;
    while (line_at(rank, channel, n)) n++;
    return n;
}

static void step(const struct tt_algorithm *self, const struct tt_shape *shape, int rank,
                 int channel, int index, struct tt_step *result)
{
    (void)self, (void)shape;
    *result = line_at(rank, channel, index)->step;
}

static struct tt_formula formula(const struct tt_algorithm *self, const struct tt_shape *shape)
{
    (void)self, (void)shape;
    return (struct tt_formula){.message = 1};
}

struct tt_steps hand_steps(const struct hand *hand)
{
    current = hand;
    algorithm.collective = hand->shape.collective;
    algorithm.nchannels = nchannels;
    algorithm.nblocks = nblocks;
    algorithm.nscratch = nscratch;
    algorithm.nsteps = nsteps;
    algorithm.step = step;
    algorithm.formula = formula;
    return (struct tt_steps){.algorithm = &algorithm, .shape = hand->shape};
}

void expect_proved(const struct hand *hand, size_t count, const char *file, int line)
{
    const struct tt_steps steps = hand_steps(hand);
    struct tt_verify_report report;
    const tt_status status = tt_verify(&steps, count, &report);
    if (status != TT_OK) tt_test_fail(file, line, "refuted (%d): %s", status, report.text);
}

void expect_refuted(const struct hand *hand, size_t count, const char *text, const char *file,
                    int line)
{
    const struct tt_steps steps = hand_steps(hand);
    struct tt_verify_report report;
    const tt_status status = tt_verify(&steps, count, &report);
    if (status != TT_ERR_USAGE)
        tt_test_fail(file, line, "status %d, expected a refutation: %s", status, text);
    else if (!strstr(report.text, text))
        tt_test_fail(file, line, "refuted with \"%s\", expected \"%s\"", report.text, text);
}
