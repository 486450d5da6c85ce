/* Muon (Jordan et al., 2024) as torch.optim.Muon of PyTorch 2.15 computes it, for the matrices of
 * the blocks; embeddings, head, norms and biases are AdamW's (adamw.c). For a matrix of rows x
 * cols:
 *     g' = scale g
 *     m  = momentum m + (1 - momentum) g'
 *     u  = momentum m + (1 - momentum) g', or m without nesterov
 *     x  = u / max(|u|, 1e-7), then five times (Newton-Schulz)
 *     x  = 3.4445 x + (-4.7750 s + 2.0315 s s) x,  s = x x^T
 *     w -= lr (rate x + decay w)
 * where rate is sqrt(max(1, rows / cols)) (original), 0.2 sqrt(max(rows, cols)) (match-rms-adamw)
 * or sqrt(rows / cols) (spectral-unclamped). For rows > cols, the same of the transposed matrix.
 * PyTorch computes the five products in bfloat16, this file in float. States: m of these matrices
 * (none when momentum is 0), m and v of the other tensors. */
#include "product.h"
#include "share.h"
#include "simd.h"
#include "table.h"

#include <math.h>

enum { STEPS = 5 };
static const double smallest_norm = 1e-7;

static int states(const struct tr_optimizer *how, const struct tr_subject *subject,
                  enum tr_state_shape shapes[TR_MOST_STATES])
{
    if (!subject->hidden) return TR_RULE(adamw).states(how, subject, shapes);
    shapes[0] = TR_STATE_TENSOR;
    return how->momentum != 0;
}

static bool whole(const struct tr_optimizer *how, const struct tr_subject *subject)
{
    (void)how;
    return subject->hidden;
}

static void prepare_part(const struct tr_optimizer *how, const struct tr_tensor_piece *piece,
                         const double *sums)
{
    (void)sums;
    const float scale = (float)piece->scale;
    const float keep = (float)how->momentum, take = (float)(1 - how->momentum);
    float *g = (float *)piece->g, *m = piece->states[0];
    for (size_t i = 0; i < piece->count; ++i) {
        const float gradient = g[i] * scale;
        if (!m) {
            g[i] = gradient;
            continue;
        }
        m[i] = keep * m[i] + take * gradient;
        g[i] = how->nesterov ? keep * m[i] + take * gradient : m[i];
    }
}

static void prepare(const struct tr_optimizer *how, const struct tr_tensor_piece *piece)
{
    tr_share(prepare_part, how, piece, NULL);
}

/* Two matrices of the smaller size, and one of the size of x. */
static size_t scratch(long rows, long cols)
{
    const long least = rows < cols ? rows : cols;
    return (size_t)(2 * least * least + rows * cols);
}

static void normalize(float *x, size_t n)
{
    enum { SUMS = 8 };
    double sums[SUMS] = {0}, squares = 0;
    for (size_t i = 0; i < n; ++i) sums[i % SUMS] += (double)x[i] * (double)x[i];
    for (int i = 0; i < SUMS; ++i) squares += sums[i];
    const double norm = sqrt(squares);
    const float by = (float)(1 / (norm > smallest_norm ? norm : smallest_norm));
    for (size_t i = 0; i < n; ++i) x[i] *= by;
}

/* to[rows,cols] = x with its singular values moved towards 1, once. */
static void iterate(float *to, const float *x, float *gram, float *square, long rows, long cols)
{
    static const float a = 3.4445f, b = -4.7750f, c = 2.0315f;
    const bool tall = rows > cols;
    const long least = tall ? cols : rows;
    const struct tr_product gram_of_x = {.ta = tall ? 'T' : 'N',
                                         .tb = tall ? 'N' : 'T',
                                         .m = least,
                                         .n = least,
                                         .k = tall ? rows : cols,
                                         .alpha = 1,
                                         .a = x,
                                         .lda = cols,
                                         .b = x,
                                         .ldb = cols,
                                         .c = gram,
                                         .ldc = least};
    const struct tr_product polynomial = {.ta = 'N',
                                          .tb = 'N',
                                          .m = least,
                                          .n = least,
                                          .k = least,
                                          .alpha = c,
                                          .a = gram,
                                          .lda = least,
                                          .b = gram,
                                          .ldb = least,
                                          .beta = b,
                                          .c = square,
                                          .ldc = least};
    const struct tr_product moved = {.ta = 'N',
                                     .tb = 'N',
                                     .m = rows,
                                     .n = cols,
                                     .k = least,
                                     .alpha = 1,
                                     .a = tall ? x : square,
                                     .lda = least,
                                     .b = tall ? square : x,
                                     .ldb = cols,
                                     .beta = a,
                                     .c = to,
                                     .ldc = cols};
    tr_product_run(&gram_of_x);
    memcpy(square, gram, (size_t)(least * least) * sizeof *square);
    tr_product_run(&polynomial);
    memcpy(to, x, (size_t)(rows * cols) * sizeof *to);
    tr_product_run(&moved);
}

static void transform(struct tr_data *data, float *scratch_floats, long rows, long cols)
{
    float *const x = (float *)data;
    const long least = rows < cols ? rows : cols;
    const size_t n = (size_t)(rows * cols);
    float *gram = scratch_floats, *square = gram + least * least, *other = square + least * least;
    float *from = x, *to = other;
    normalize(x, n);
    for (int step = 0; step < STEPS; ++step) {
        iterate(to, from, gram, square, rows, cols);
        float *last = from;
        from = to;
        to = last;
    }
    if (from != x) memcpy(x, from, n * sizeof *x);
}

static double rate_of(const struct tr_optimizer *how, const long shape[2])
{
    const double rows = (double)shape[0], cols = (double)shape[1];
    switch (how->adjust) {
    case TR_ADJUST_ORIGINAL:
        return sqrt(rows > cols ? rows / cols : 1);
    case TR_ADJUST_MATCH_RMS:
        return 0.2 * sqrt(rows > cols ? rows : cols);
    case TR_ADJUST_SPECTRAL:
        return sqrt(rows / cols);
    }
    return 1;
}

static void update_part(const struct tr_optimizer *how, const struct tr_tensor_piece *piece,
                        const double *sums)
{
    (void)sums;
    const float shrink = (float)(1 - how->lr * piece->decay);
    const float rate = (float)(how->lr * rate_of(how, piece->subject.shape));
    const float *x = (const float *)piece->g;
    float *w = piece->w;
    for (size_t i = 0; i < piece->count; ++i) w[i] = shrink * w[i] - rate * x[i];
}

static void update(const struct tr_optimizer *how, const struct tr_tensor_piece *piece,
                   const double *sums)
{
    if (piece->subject.hidden)
        tr_share(update_part, how, piece, sums);
    else
        TR_RULE(adamw).update(how, piece, sums);
}

const struct tr_rule TR_RULE(muon) = {.name = "muon",
                                      .states = states,
                                      .whole = whole,
                                      .prepare = prepare,
                                      .scratch = scratch,
                                      .transform = transform,
                                      .update = update};
