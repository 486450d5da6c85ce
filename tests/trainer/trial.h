/* A store of units of all sections, with odd sizes, without a model: every rank knows what each
 * rank adds to each gradient. */
#ifndef TT_TESTS_TRAINER_TRIAL_H
#define TT_TESTS_TRAINER_TRIAL_H

#include "../../trainer/parallel/store.h"
#include "ranks.h"

enum { BLOCKS = 3, MOST_UNITS = BLOCKS + 4, NMODES = 11, SEED = 5 };

struct grid {
    int size[TR_NUM_AXES]; /* pp dp fsdp ring ulysses tp */
    int share;             /* ranks of tp that share a tensor */
    bool tied;             /* the head uses the embedding's unit */
    unsigned modes;        /* a bit a mode to be tried */
};

struct mode {
    const char *name;
    enum tr_sharding sharding;
    bool reduce_last, keep_gathered, prefetch;
    size_t bucket_bytes;
};
extern const struct mode trial_modes[NMODES];

struct trial {
    const struct grid *grid;
    const struct mode *mode;
    struct tr_mesh *mesh;
    struct tr_params params;
    struct tr_store store;
    float *expected[MOST_UNITS]; /* [nunits]: whole weights as one rank would have them */
    int micros, step;
    int at[MOST_RANKS][TR_NUM_AXES]; /* each rank's coordinates */
    bool fractions; /* gradients that are no small integers: sums depend on their order */
};

tr_axes trial_shard_axes(enum tr_sharding sharding);
/* Whether a mode can be on a mesh: ZeRO-1 and 2 shard over dp, FSDP over fsdp. */
bool trial_fits(const struct mode *mode, const struct grid *grid);
tr_status trial_connect(struct tr_mesh *mesh, struct rank *self, const struct grid *grid);

/* grid, mode, mesh, micros and fractions are set. Close follows open, failed or not. */
tr_status trial_open(struct trial *t);
void trial_close(struct trial *t);

/* The passes of one micro-batch over this stage's units; every acquired weight is checked. */
tr_status trial_forward(struct trial *t);
tr_status trial_backward(struct trial *t, int micro);
/* Checks every shard's gradient, takes it off the weights and off what is expected of them. */
void trial_update(struct trial *t);

/* The unit at a place of store.units, -1 outside. */
int trial_unit_at(const struct trial *t, int place);
/* Whether one stage embeds and has the head, with one unit. */
bool trial_tied_here(const struct trial *t);
enum tr_section trial_section_at(const struct tr_unit *unit, size_t i);

#endif
