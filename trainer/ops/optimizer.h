/* What an optimizer is: a rule, which says what it keeps of each tensor, what it must know of a
 * whole tensor, and how it changes the weights. Each rule is a file of this folder, with its
 * formula at the top, and a line of optimizer_table.h. Rules compute on the parts of tensors that
 * lie in a rank's shard, and know nothing of other ranks: optim/update.c calls them in order, and
 * exchanges between the ranks what a rule needs of whole tensors. So a rule works on every layout.
 */
#ifndef TR_OPTIMIZER_H
#define TR_OPTIMIZER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "../layout.h"
#include "tensor_type.h"

enum tr_optimizer_kind {
#define OPTIMIZER(NAME, name) TR_##NAME,
#include "optimizer_table.h"
    TR_NUM_OPTIMIZERS
};

/* How Muon's rate depends on a matrix's shape (muon.c), in the order of the choices of --adjust-lr.
 */
enum tr_adjust { TR_ADJUST_MATCH_RMS, TR_ADJUST_ORIGINAL, TR_ADJUST_SPECTRAL };

struct tr_rule;

/* A rule with the values of the options, for one step. */
struct tr_optimizer {
    enum tr_optimizer_kind kind;
    const struct tr_rule *rule; /* that of no kind, as a test may have; NULL: that of `kind` */
    double lr, beta1, beta2, eps, decay, momentum;
    double trust_min, trust_max; /* LAMB */
    bool nesterov;               /* Muon */
    enum tr_adjust adjust;       /* Muon */
    int64_t t;                   /* the step's number, from 1 */
};

/* What a rule may ask about a tensor: the whole one, whatever a rank holds of it. */
struct tr_subject {
    int ndim;
    long shape[2]; /* a vector has one column */
    bool hidden;   /* a matrix of a block: no embedding, and not the head */
    bool decay;    /* weight decay applies */
};

/* The shape of a state: the tensor's, of which a rank holds what it holds of the weights, or that
 * of its rows, of its columns, or one number, which every rank holds that holds any of the tensor.
 */
enum tr_state_shape { TR_STATE_TENSOR, TR_STATE_ROWS, TR_STATE_COLUMNS, TR_STATE_SCALAR };
enum { TR_MOST_STATES = 3 };

/* The part of a tensor that lies in this rank's shard. */
struct tr_tensor_piece {
    struct tr_subject subject;
    size_t count;                  /* elements; at the end there may be padding, of zeros */
    float *w;                      /* [count]: the masters */
    struct tr_data *g;             /* [count]: the summed gradient, which a rule may change */
    enum tr_type type;             /* of g */
    float *states[TR_MOST_STATES]; /* [count], or the whole of another shape */
    enum tr_state_shape shapes[TR_MOST_STATES]; /* of the states */
    double scale;                               /* what the gradient is multiplied by first */
    double decay;                               /* 0 for tensors that do not decay */
    struct tr_slice slices[TR_MOST_SLICES]; /* which elements of the tensor these are, in order */
    int nslices;
};

/* Whatever is NULL is not needed. `how` is the same on all ranks. */
struct tr_rule {
    const char *name;
    /* The states that it keeps of a tensor, in order; gives how many. */
    int (*states)(const struct tr_optimizer *how, const struct tr_subject *subject,
                  enum tr_state_shape shapes[TR_MOST_STATES]);
    /* An update that depends on sums over whole tensors, such as norms: how many doubles there are
     * of a tensor, and a pass over the pieces before the update, which may change states and sets
     * *sums to what this piece adds to each. The update then gets those of the whole tensor, with
     * the same bits on all ranks that hold equal pieces. */
    int (*nsums)(const struct tr_optimizer *how, const struct tr_subject *subject);
    void (*measure)(const struct tr_optimizer *how, const struct tr_tensor_piece *piece,
                    double *sums);
    /* An update that depends on all of a matrix: whether that of this tensor does. Then, before the
     * updates, `prepare` puts into g what is to be transformed; one rank, which may be any,
     * collects the whole matrix x, of g's type, and transforms it, with scratch(rows, cols)
     * floats; and the update finds its part of the result in g. */
    bool (*whole)(const struct tr_optimizer *how, const struct tr_subject *subject);
    void (*prepare)(const struct tr_optimizer *how, const struct tr_tensor_piece *piece);
    size_t (*scratch)(long rows, long cols);
    void (*transform)(struct tr_data *x, float *scratch, long rows, long cols);
    /* The new weights, in place. */
    void (*update)(const struct tr_optimizer *how, const struct tr_tensor_piece *piece,
                   const double *sums);
};

/* The rule of an optimizer, in no special build: to ask what it keeps and needs. */
const struct tr_rule *tr_optimizer_rule(const struct tr_optimizer *how);

#endif
