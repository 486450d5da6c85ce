/* All that a training run owns, and the steps it takes. */
#ifndef TR_TRAINER_H
#define TR_TRAINER_H

#include "ckpt/ckpt.h"
#include "config.h"
#include "data/data.h"
#include "engine.h"
#include "setup.h"
#include "watch/epochs.h"
#include "watch/log.h"
#include "watch/plot.h"

/* Owned by main; made by tr_trainer_init, freed by tr_trainer_fini. */
struct tr_trainer {
    /* immutable after init */
    struct tr_config config;
    struct tr_mesh *mesh;
    const struct tr_backend *backend;
    int nthreads; /* of this rank */
    struct tr_text text;
    uint64_t data_checksum;
    int64_t total_steps; /* 0: until the time is over */

    /* owner: the training thread */
    struct tr_engine engine;
    struct tr_hold hold; /* rank 0: of the folder of checkpoints */
    struct tr_log log;
    struct tr_epochs epochs;
    struct tr_plot plot; /* rank 0 */
    int64_t step;        /* done */
    struct tr_spikes spikes;
    uint64_t samples;               /* taken by all ranks together */
    uint64_t run;                   /* as tr_state has it; rank 0 */
    struct tr_state loaded;         /* of the checkpoint that the run goes on from */
    struct tr_safetensors *resumed; /* that file, on rank 0; NULL: none */
    bool has_loaded; /* the folder of checkpoints has that file as the one of its step */
    uint64_t start;  /* rank 0; this and the next as tr_state has them */
    int64_t after;
    double held_out;          /* loss after the last step; NaN: not known */
    struct tr_arena snapshot; /* of what is saved while training goes on */
    struct tr_save *saving;   /* what is written meanwhile; NULL: nothing */
    struct tr_state saved;    /* of that, or of the last one */
    bool writing;             /* a rank's thread was writing before the last step, as all ranks
                               * know it */
    double saving_since;      /* clock */
    double saving_seconds;    /* during which checkpoints were written in mid-run */
    double save_waited;       /* of them, in which no step went on */
    double started;           /* clock */
    double stepping;          /* seconds within steps: without checkpoints */
    double peak;    /* operations a second of products alone, all ranks; 0: not measured */
    double elapsed; /* rank 0's clock since the start, as all ranks know it */
    bool stop;      /* the run is to end, as all ranks know it: its time is over, or: */
    int asked;      /* the signal (stop.h) that asked a rank to end; -1: none */
};

/* Shapes the mesh, reads the data, makes the engine and, with --resume, loads the checkpoint. A
 * failure on any rank is a failure on all. Takes over the notes of config. Collective. fini is
 * right after init, failed or not. */
TR_NODISCARD tr_status tr_trainer_init(struct tr_trainer *trainer, struct tr_config *config,
                                       struct tr_mesh *mesh);
void tr_trainer_fini(struct tr_trainer *trainer);

/* Rank 0 says what will be run and with how much memory. Collective. */
TR_NODISCARD tr_status tr_trainer_describe(const struct tr_trainer *trainer);

/* What one step came to, the same on all ranks. */
struct tr_step {
    double loss; /* mean over the tokens of the step, in nats, before the update */
    double norm; /* of the gradient, before clipping */
    double lr;
    struct tr_spike spike;
    bool skipped;   /* no update: weights and optimizer stay as they were before the step */
    double seconds; /* that the step took this rank; of tr_trainer_run's steps only */
};

/* One optimizer step. Collective. */
TR_NODISCARD tr_status tr_trainer_step(struct tr_trainer *trainer, struct tr_step *step);

/* Rank 0 writes to the log what is run: version, ranks, mesh, parameters and options. */
TR_NODISCARD tr_status tr_trainer_report_run(struct tr_trainer *trainer);

/* Prints and logs a step: its progress, the end of an epoch, and with --eval-every the held-out
 * loss, which changes no weight. Collective. */
TR_NODISCARD tr_status tr_trainer_report(struct tr_trainer *trainer, const struct tr_step *step);

/* Steps until the end, with progress and checkpoints. A signal that asks any rank to end (stop.h)
 * ends the run after the step, with a checkpoint; then the signals are still kept in mind.
 * Collective.
 */
TR_NODISCARD tr_status tr_trainer_run(struct tr_trainer *trainer);

/* Whether no step follows the one that was last: its number, the time or a signal says so. */
bool tr_trainer_is_over(const struct tr_trainer *trainer);

/* The mean loss over the held-out part; NaN when that is shorter than a window. Fails when the loss
 * itself is not a number. Collective. */
TR_NODISCARD tr_status tr_trainer_validate(struct tr_trainer *trainer, double *loss);

/* out[count] = what the model writes after `prompt`. Every rank draws alike. Collective. */
TR_NODISCARD tr_status tr_trainer_sample(struct tr_trainer *trainer, const char *prompt,
                                         unsigned char *out, long count);

/* saves.c: begins to write a checkpoint in the middle of a run, from a copy, when the one before is
 * written, and tr_trainer_saved, called after each step, ends it when all ranks have written:
 * removes what --keep does not keep. A file that cannot be written is told, and no failure.
 * Collective. */
TR_NODISCARD tr_status tr_trainer_save(struct tr_trainer *trainer);
TR_NODISCARD tr_status tr_trainer_saved(struct tr_trainer *trainer);
/* Before an update: waits until this rank has copied what is being saved. */
void tr_trainer_wait_for_copy(struct tr_trainer *trainer);
/* Ends what is being written when the run ends with a failure; returns that. Collective where all
 * ranks know of the failure, else does nothing. */
TR_NODISCARD tr_status tr_trainer_save_rest(struct tr_trainer *trainer, tr_status status);
/* Writes the last one, unless nothing was trained and the folder has the file that was loaded: a
 * file that cannot be written is a failure of every rank. Collective. */
TR_NODISCARD tr_status tr_trainer_save_last(struct tr_trainer *trainer);

#endif
