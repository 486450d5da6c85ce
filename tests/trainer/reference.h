/* The trainer's mathematics once more, in double and as plainly as it can be said: what the fast
 * code is compared with, and what is differentiated by finite differences. */
#ifndef TT_TESTS_TRAINER_REFERENCE_H
#define TT_TESTS_TRAINER_REFERENCE_H

#include <stdint.h>

#include "../../trainer/model/gpt.h"

void ref_linear(double *y, const double *x, const double *w, const double *b,
                const double *residual, long rows, long in, long out);
void ref_norm(double *y, const double *x, const double *gamma, const double *beta, long rows,
              long n);
void ref_gelu(double *y, const double *x, long n);
void ref_embed(double *x, const unsigned char *tokens, const double *token_table,
               const double *place_table, long batch, long context, long n);
void ref_attention(double *y, const double *qkv, long batch, long context, long n, long heads);
double ref_loss(const double *logits, const unsigned char *targets, long rows, long n);

/* The summed loss of the whole model; weights laid out as gpt's registry says. */
double ref_gpt_loss(const struct tr_gpt *gpt, const double *weights, const unsigned char *tokens,
                    const unsigned char *targets, long batch, long context);

/* Numbers in [-scale, scale], the same for the same seed. */
void fill(float *x, long n, float scale, uint64_t seed);
double *widen(const float *x, long n); /* free() it */

/* The largest |a - b| over the largest |b| (or over 1e-30). */
double difference(const float *a, const double *b, long n);

#endif
