/* clang-format off */
/* Pipeline schedules as data: which micro-batch a stage computes when, and which messages go
 * between neighbouring stages. Pure functions; the executor walks the list of its stage.
 *
 * p stages, m micro-batches, stage s. All schedules are one order with a warm-up of w forwards:
 *     F(0) .. F(w-1),  then F(w+j) B(j) for j = 0 .. m-w-1,  then B(m-w) .. B(m-1)
 * GPipe has w = m on every stage; 1F1B has w = min(p-1-s, m). p = 3, m = 4, backward takes 2 units:
 *
 *     gpipe    F0 F1 F2 F3 .  .  .  .  .  .  B0 B0 B1 B1 B2 B2 B3 B3
 *              .  F0 F1 F2 F3 .  .  .  B0 B0 B1 B1 B2 B2 B3 B3 .  .
 *              .  .  F0 F1 F2 F3 B0 B0 B1 B1 B2 B2 B3 B3 .  .  .  .
 *     1f1b     F0 F1 F2 .  .  .  .  B0 B0 F3 B1 B1 .  B2 B2 .  B3 B3
 *              .  F0 F1 .  .  B0 B0 F2 B1 B1 F3 B2 B2 .  B3 B3 .  .
 *              .  .  F0 B0 B0 F1 B1 B1 F2 B2 B2 F3 B3 B3 .  .  .  .
 *
 * Collectives  none; sends and receives between neighbours. The messages between two compute steps
 *              form one EXCHANGE, which the executor issues as one group: what the first step
 *              computed goes out, what the second one needs comes in. In 1F1B's steady state that
 *              is "output of F(w+j) to the next stage and gradient of B(j) from there". Where the
 *              next stage needs the output to compute that gradient (from the last forward to the
 *              first backward when w = m) there are two EXCHANGEs, first the send.
 * Deadlock     none, even if no message of a group moves before all messages of the group have met
 *              their partners; tr_schedule_verify proves that.
 * Order        of backward: ascending micro-batches on every stage in every schedule, also in GPipe
 *              (which could go backward in descending order at the same cost). So weight gradients
 *              add up in the same order as without a pipeline, and are equal bit for bit; and B(m-1)
 *              is the last backward of every stage, in which gradients become complete.
 * Volume       4 x floats of the boundary a message; a stage with both neighbours sends 2 m of them
 *              a step, m outputs and m input gradients; the first and the last stage send m.
 * Time         (m + p - 1) (F + B) when all stages take F and B; idle (p - 1) / (m + p - 1) of it.
 * Memory       activation sets: GPipe m, 1F1B min(p - s, m). A set is in use from the EXCHANGE that
 *              receives its input (first stage: from the forward) to the end of the backward. Beside
 *              the sets one buffer each, where the neighbour exists: output (to the next stage),
 *              output gradient (from the next), input gradient (to the previous).
 * Limits       any m >= 1, also m < p. One chunk of layers a stage, backward undivided: interleaving
 *              will use `chunk`, zero-bubble schedules will add BACKWARD_INPUT and BACKWARD_WEIGHT.
 * Test         tests/trainer/schedule_test.c: formulas and verification for p <= 8, m <= 32; the
 *              verifier refuses planted mistakes; the drawing. */
/* clang-format on */
#ifndef TR_SCHEDULE_H
#define TR_SCHEDULE_H

#include <stdbool.h>
#include <stdio.h>

#include "../status.h"

enum tr_schedule_kind { TR_GPIPE, TR_1F1B, TR_NUM_SCHEDULES };

enum tr_schedule_action {
    TR_FORWARD,
    TR_BACKWARD, /* input half and weight half */
    TR_EXCHANGE  /* one group of sends and receives, complete before the next step begins */
};

/* Micro-batches are 0 to m-1, -1 is none. */
struct tr_schedule_step {
    enum tr_schedule_action action;
    /* FORWARD, BACKWARD: the activation set of the micro-batch. EXCHANGE: the set whose input
     * from_previous is received into, -1 without from_previous. */
    int set;
    /* FORWARD, BACKWARD */
    int batch, chunk; /* chunk is 0 */
    bool receives;    /* forward: input from the previous stage; backward: output gradient from the
                         next stage. An EXCHANGE before has received it */
    bool sends;       /* forward: output to the next stage; backward: input gradient to the previous
                         stage. The EXCHANGE after sends it */
    /* EXCHANGE: micro-batches whose messages belong to the group, at least one */
    int to_next;       /* output buffer */
    int from_next;     /* into the output gradient buffer */
    int to_previous;   /* input gradient buffer */
    int from_previous; /* into the input of `set` */
};

/* The steps of one stage. Owner: the caller of tr_schedule_init, who calls tr_schedule_fini. */
struct tr_schedule {
    enum tr_schedule_kind kind;
    int nstages, nbatches, stage;
    int nsets; /* activation sets that the stage needs */
    int nsteps;
    struct tr_schedule_step *steps;
};

/* "gpipe", "1f1b". */
const char *tr_schedule_name(enum tr_schedule_kind kind);

/* The formulas of p = nstages and m = nbatches: most micro-batches in flight on a stage, and units
 * of time of a whole optimizer step when a forward takes 1 and a backward 2. */
int tr_schedule_in_flight(enum tr_schedule_kind kind, int nstages, int nbatches, int stage);
long tr_schedule_units(int nstages, int nbatches);

/* The share of a step in which a stage waits for others, and the fewest micro-batches with which
 * that is at most TR_MOST_IDLE percent. */
enum { TR_MOST_IDLE = 30 };
double tr_schedule_idle(int nstages, long nbatches);
long tr_schedule_enough(int nstages);

/* Makes the steps of one stage. Errors: sizes below 1 or too large, a stage that does not exist,
 * memory. */
TR_NODISCARD tr_status tr_schedule_init(struct tr_schedule *schedule, enum tr_schedule_kind kind,
                                        int nstages, int nbatches, int stage);
void tr_schedule_fini(struct tr_schedule *schedule);

/* The schedules of all stages, an array of nstages; tr_schedules_destroy frees it and accepts NULL.
 */
TR_NODISCARD tr_status tr_schedules_create(struct tr_schedule **schedules,
                                           enum tr_schedule_kind kind, int nstages, int nbatches);
void tr_schedules_destroy(struct tr_schedule *schedules);

/* Proves for the schedules of all stages (an array of schedules[0].nstages):
 *   every stage computes forward and backward of each micro-batch once, in ascending order;
 *   sets and buffers hold what a step reads, and are free when a step writes into them;
 *   the most micro-batches in flight are those of the formula;
 *   messages between two stages meet in order, without a deadlock, when a message moves as soon as
 *   both ends are there, and also when a group moves only as a whole;
 *   the whole takes tr_schedule_units (in the first of these two cases).
 * starts: NULL, or nstages arrays that get the unit in which each step begins. The error names
 * stage, step and reason. */
TR_NODISCARD tr_status tr_schedule_verify(const struct tr_schedule *schedules, long *const *starts);

/* The schedules of all stages, verified, and the unit of time in which each step begins. All zeros
 * is one that is empty; tr_timeline_destroy frees it. */
struct tr_timeline {
    struct tr_schedule *schedules; /* [nstages] */
    long **starts;                 /* [nstages][nsteps] */
};
TR_NODISCARD tr_status tr_timeline_create(struct tr_timeline *timeline, enum tr_schedule_kind kind,
                                          int nstages, int nbatches);
void tr_timeline_destroy(struct tr_timeline *timeline);

/* Draws the schedule, verified: a line a stage, a column a unit of time, '.' for idle. What is
 * wider than 120 characters is continued below. */
TR_NODISCARD tr_status tr_schedule_draw(FILE *out, enum tr_schedule_kind kind, int nstages,
                                        int nbatches);

#endif
