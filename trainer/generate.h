/* A model writes: tokens that follow a text, drawn one after the other. */
#ifndef TR_GENERATE_H
#define TR_GENERATE_H

#include <stdio.h>

#include "config.h"
#include "engine.h"

enum { TR_BYTES = 256 }; /* tokens that are text */

/* Which token is drawn. */
struct tr_choice {
    double temperature; /* 0: the likeliest */
    long top_k;         /* of the so many likeliest; 0: of all */
    double top_p;       /* of the likeliest that together have this probability; 1: of all */
    uint64_t seed;
};

struct tr_choice tr_choice_of(const struct tr_config *config);

/* The text so far as the model sees it. When it has filled the model's context, its last half goes
 * on alone: the model passes that once more, and then again a token at a time. Owned by whoever
 * called tr_generator_init; tr_generator_fini frees. Every rank draws alike. */
struct tr_generator {
    struct tr_engine *engine;
    struct tr_choice choice;
    bool is_cached; /* a token is passed once; else the window is, for each token */
    struct tr_cache cache;
    int32_t *window; /* [context] */
    long count;      /* tokens in it */
    uint64_t drawn;  /* tokens so far */
    float *logits;   /* [vocabulary] */
};

/* cached false, or a mesh that cuts sequences: the model passes the whole window for each token.
 * Collective. fini is right after init, failed or not. */
TR_NODISCARD tr_status tr_generator_init(struct tr_generator *generator, struct tr_engine *engine,
                                         const struct tr_choice *choice, bool cached);
void tr_generator_fini(struct tr_generator *generator);

/* Appends bytes that were given to the text. No communication. */
void tr_generator_give(struct tr_generator *generator, const unsigned char *bytes, size_t count);

/* Draws what follows, a byte, and appends it. A text of no bytes begins with a line feed.
 * Collective. */
TR_NODISCARD tr_status tr_generator_draw(struct tr_generator *generator, unsigned char *byte);

/* Draws a token from softmax(logits[n] / temperature) with a uniform number in [0, 1), and gives
 * its place. n is 1 to TR_BYTES. Of equal logits the first is the likelier. */
long tr_choice_draw(const struct tr_choice *choice, const float *logits, long n, double uniform);

struct tr_trainer;

/* Of `tutti-train generate`: where the options leave it open, the mesh has all ranks along tp, and
 * one sequence; --from is what is resumed. Before tr_trainer_init. */
TR_NODISCARD tr_status tr_generate_options(struct tr_config *config, int nranks);

/* Writes what follows --prompt to `out`, on rank 0, and how fast to standard error. Collective. */
TR_NODISCARD tr_status tr_generate(struct tr_trainer *trainer, FILE *out);

#endif
