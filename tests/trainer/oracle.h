/* GPT-2 and Llama and the optimizers once more, in double and as plainly as possible: what the
 * trainer's gradients and weights are compared with on every layout. Shares no code with trainer/.
 * oracle_gradient_test.c checks the gradients by finite differences. */
#ifndef TT_TESTS_TRAINER_ORACLE_H
#define TT_TESTS_TRAINER_ORACLE_H

#include <stdbool.h>
#include <stdint.h>

enum oracle_kind { ORACLE_GPT2, ORACLE_LLAMA };
enum oracle_activation { ORACLE_GELU, ORACLE_RELU, ORACLE_RELU2 };

struct oracle_shape {
    enum oracle_kind kind;
    long layers, heads, kv_heads, width, hidden, vocabulary, context;
    bool tied;                         /* the head is token.weight */
    double theta;                      /* base of the rotary angles; Llama only */
    enum oracle_activation activation; /* of the MLP; GPT-2 only */
};

struct oracle_param {
    char name[64];
    long rows, cols; /* cols 0: a vector */
    long count;      /* elements */
    long offset;     /* of the first element, in arrays of weights, gradients and optimizer state */
    bool decay;      /* weight decay applies: matrices, but not token.weight and place.weight */
};

/* Owns `params`. Immutable after init. */
struct oracle {
    struct oracle_shape shape;
    struct oracle_param *params; /* in the order of the forward pass, without gaps */
    int nparams;
    long total; /* elements of all parameters */
};

/* False, and a line on stderr, for sizes that are no model. */
bool oracle_init(struct oracle *model, struct oracle_shape shape);
void oracle_fini(struct oracle *model);

/* NULL when the model has no parameter of this name. */
const struct oracle_param *oracle_find(const struct oracle *model, const char *name);

/* Random weights for tests, a function of the seed and the tensor's name. Biases are in +-0.5, norm
 * weights in 1 +- 0.5, so that none can be left out unnoticed; matrices are in +-1.5 / sqrt(cols).
 * Every value is exact as a float. */
void oracle_fill(const struct oracle *model, double *weights, uint64_t seed);

/* batch sequences of length tokens; every array is [batch, length]. A token counts token_weights
 * times (0: masked); its target is read only when that is not 0. What follows the last token
 * that counts in a sequence is not read. */
struct oracle_batch {
    const int32_t *ids, *targets;
    const double *token_weights;
    long batch, length;
};

/* The sum over tokens of weight * -log softmax(logits)[target], divided by nothing. gradients +=
 * its derivative, unless NULL. The gradient of a tied token.weight holds both parts. Ends the
 * process when an id is outside the vocabulary, or a sequence longer than the context of GPT-2. */
double oracle_loss(const struct oracle *model, const double *weights, double *gradients,
                   const struct oracle_batch *batch);

/* The norm of scale * gradients over all parameters, and the factor that brings a gradient of this
 * norm down to `most`: most / (norm + 1e-6) when norm > most > 0, else 1. */
double oracle_norm(const struct oracle *model, const double *gradients, double scale);
double oracle_clip(double norm, double most);

/* scale multiplies the gradients: 1 / valid tokens, times the factor of the clipping. */
struct oracle_adamw {
    double lr, beta1, beta2, eps, decay, scale;
};
struct oracle_sgd {
    double lr, momentum, decay, scale;
};

/* With g = scale * gradient, at step t (from 1); decay is 0 where a parameter's `decay` is false:
 *     m = beta1 m + (1 - beta1) g,  v = beta2 v + (1 - beta2) g^2
 *     w = w - lr decay w - lr (m / (1 - beta1^t)) / (sqrt(v / (1 - beta2^t)) + eps) */
void oracle_adamw_step(const struct oracle *model, double *weights, const double *gradients,
                       double *m, double *v, long t, const struct oracle_adamw *adamw);

/* With AdamW's m and v, and u = decay w + (m / (1 - beta1^t)) / (sqrt(v / (1 - beta2^t)) + eps):
 * each parameter has trust = |w| / |u| within [least, most], 1 where one of the norms is 0: w = w -
 * lr trust u */
void oracle_lamb_step(const struct oracle *model, double *weights, const double *gradients,
                      double *m, double *v, long t, const struct oracle_adamw *lamb, double least,
                      double most);

/* torch.optim.Muon with nesterov, adjust_lr_fn "match_rms_adamw" and the default coefficients, for
 * the matrices of blocks; AdamW for all others. */
void oracle_muon_step(const struct oracle *model, double *weights, const double *gradients,
                      double *m, double *v, long t, const struct oracle_adamw *adamw,
                      double momentum);

/* m = momentum m + g,  w = w - lr decay w - lr m */
void oracle_sgd_step(const struct oracle *model, double *weights, const double *gradients,
                     double *m, const struct oracle_sgd *sgd);

#endif
