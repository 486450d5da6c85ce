/* The operations of the oracle's models, each forward beside its backward. */
#include "oracle_ops.h"

#include <math.h>

static const double epsilon = 1e-5; /* of both norms */

void oracle_linear(double *y, const double *x, const double *w, const double *b, long rows, long in,
                   long out)
{
    for (long r = 0; r < rows; ++r) {
        for (long o = 0; o < out; ++o) {
            double sum = b ? b[o] : 0;
            for (long i = 0; i < in; ++i) sum += x[r * in + i] * w[o * in + i];
            y[r * out + o] = sum;
        }
    }
}

void oracle_linear_backward(double *dx, double *dw, double *db, const double *dy, const double *x,
                            const double *w, long rows, long in, long out)
{
    for (long r = 0; r < rows; ++r) {
        for (long o = 0; o < out; ++o) {
            const double d = dy[r * out + o];
            if (db) db[o] += d;
            for (long i = 0; i < in; ++i) {
                dx[r * in + i] += d * w[o * in + i];
                dw[o * in + i] += d * x[r * in + i];
            }
        }
    }
}

static double mean_of(const double *x, long n)
{
    double sum = 0;
    for (long i = 0; i < n; ++i) sum += x[i];
    return sum / (double)n;
}

/* The mean of (x - center)^2. */
static double mean_square_of(const double *x, long n, double center)
{
    double sum = 0;
    for (long i = 0; i < n; ++i) sum += (x[i] - center) * (x[i] - center);
    return sum / (double)n;
}

void oracle_layer_norm(double *y, const double *x, const double *gamma, const double *beta,
                       long rows, long n)
{
    for (long r = 0; r < rows; ++r, x += n, y += n) {
        const double mean = mean_of(x, n);
        const double deviation = sqrt(mean_square_of(x, n, mean) + epsilon);
        for (long i = 0; i < n; ++i) y[i] = gamma[i] * (x[i] - mean) / deviation + beta[i];
    }
}

/* With u = (x - mean) / deviation and du = gamma dy: dx = (du - mean(du) - u mean(u du)) /
 * deviation. */
void oracle_layer_norm_backward(double *dx, double *dgamma, double *dbeta, const double *dy,
                                const double *x, const double *gamma, long rows, long n)
{
    for (long r = 0; r < rows; ++r, x += n, dx += n, dy += n) {
        const double mean = mean_of(x, n);
        const double deviation = sqrt(mean_square_of(x, n, mean) + epsilon);
        double sum_du = 0, sum_udu = 0;
        for (long i = 0; i < n; ++i) {
            const double u = (x[i] - mean) / deviation;
            dgamma[i] += dy[i] * u;
            dbeta[i] += dy[i];
            sum_du += gamma[i] * dy[i];
            sum_udu += u * gamma[i] * dy[i];
        }
        for (long i = 0; i < n; ++i) {
            const double u = (x[i] - mean) / deviation;
            dx[i] += (gamma[i] * dy[i] - sum_du / (double)n - u * sum_udu / (double)n) / deviation;
        }
    }
}

void oracle_rms_norm(double *y, const double *x, const double *gamma, long rows, long n)
{
    for (long r = 0; r < rows; ++r, x += n, y += n) {
        const double root = sqrt(mean_square_of(x, n, 0) + epsilon);
        for (long i = 0; i < n; ++i) y[i] = gamma[i] * x[i] / root;
    }
}

/* With u = x / root and du = gamma dy: dx = (du - u mean(u du)) / root. */
void oracle_rms_norm_backward(double *dx, double *dgamma, const double *dy, const double *x,
                              const double *gamma, long rows, long n)
{
    for (long r = 0; r < rows; ++r, x += n, dx += n, dy += n) {
        const double root = sqrt(mean_square_of(x, n, 0) + epsilon);
        double sum_udu = 0;
        for (long i = 0; i < n; ++i) {
            dgamma[i] += dy[i] * x[i] / root;
            sum_udu += x[i] / root * gamma[i] * dy[i];
        }
        for (long i = 0; i < n; ++i)
            dx[i] += (gamma[i] * dy[i] - x[i] / root * sum_udu / (double)n) / root;
    }
}

static double gelu_argument(double x)
{
    return sqrt(2 / 3.14159265358979323846) * (x + 0.044715 * x * x * x);
}

double oracle_gelu(double x)
{
    return 0.5 * x * (1 + tanh(gelu_argument(x)));
}

double oracle_gelu_slope(double x)
{
    const double t = tanh(gelu_argument(x));
    const double slope = sqrt(2 / 3.14159265358979323846) * (1 + 3 * 0.044715 * x * x);
    return 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * slope;
}

double oracle_silu(double x)
{
    return x / (1 + exp(-x));
}

double oracle_silu_slope(double x)
{
    const double s = 1 / (1 + exp(-x));
    return s + x * s * (1 - s);
}

void oracle_rope(double *x, long rows, long heads, long size, double theta, int direction)
{
    for (long r = 0; r < rows; ++r) {
        for (long i = 0; i < size / 2; ++i) {
            const double angle = (double)r * pow(theta, -2.0 * (double)i / (double)size);
            const double c = cos(angle), s = direction * sin(angle);
            for (long h = 0; h < heads; ++h) {
                double *pair = x + (r * heads + h) * size + i;
                const double a = pair[0], b = pair[size / 2];
                pair[0] = a * c - b * s;
                pair[size / 2] = a * s + b * c;
            }
        }
    }
}

/* The first of the `size` elements of a row and head in x[rows, heads, size]. */
static long at(long row, long head, long heads, long size)
{
    return (row * heads + head) * size;
}

void oracle_attend(double *out, double *p, const double *q, const double *k, const double *v,
                   const struct oracle_attention *a)
{
    const long n = a->size;
    for (long h = 0; h < a->heads; ++h) {
        const long g = h / (a->heads / a->kv_heads);
        for (long r = 0; r < a->rows; ++r) {
            double *row = p + (h * a->rows + r) * a->rows, most = -INFINITY, sum = 0;
            const double *query = q + at(r, h, a->heads, n);
            for (long s = 0; s <= r; ++s) {
                const double *key = k + at(s, g, a->kv_heads, n);
                row[s] = 0;
                for (long i = 0; i < n; ++i) row[s] += query[i] * key[i] / sqrt((double)n);
                most = fmax(most, row[s]);
            }
            for (long s = 0; s <= r; ++s) sum += exp(row[s] - most);
            for (long s = 0; s < a->rows; ++s) row[s] = s <= r ? exp(row[s] - most) / sum : 0;
            double *to = out + at(r, h, a->heads, n);
            for (long i = 0; i < n; ++i) to[i] = 0;
            for (long s = 0; s <= r; ++s)
                for (long i = 0; i < n; ++i) to[i] += row[s] * v[at(s, g, a->kv_heads, n) + i];
        }
    }
}

/* For each query: dp[s] = dout . v[s], and dscore[s] = p[s] (dp[s] - sum of p dp). */
void oracle_attend_backward(double *dq, double *dk, double *dv, const double *dout, const double *p,
                            const double *q, const double *k, const double *v,
                            const struct oracle_attention *a)
{
    const long n = a->size;
    for (long h = 0; h < a->heads; ++h) {
        const long g = h / (a->heads / a->kv_heads);
        for (long r = 0; r < a->rows; ++r) {
            const double *row = p + (h * a->rows + r) * a->rows;
            const long query = at(r, h, a->heads, n);
            double mean = 0;
            for (long s = 0; s <= r; ++s)
                for (long i = 0; i < n; ++i)
                    mean += row[s] * dout[query + i] * v[at(s, g, a->kv_heads, n) + i];
            for (long s = 0; s <= r; ++s) {
                const long key = at(s, g, a->kv_heads, n);
                double dp = 0;
                for (long i = 0; i < n; ++i) dp += dout[query + i] * v[key + i];
                const double dscore = row[s] * (dp - mean) / sqrt((double)n);
                for (long i = 0; i < n; ++i) {
                    dv[key + i] += row[s] * dout[query + i];
                    dq[query + i] += dscore * k[key + i];
                    dk[key + i] += dscore * q[query + i];
                }
            }
        }
    }
}

double oracle_cross_entropy(double *logits, long n, int32_t target, double weight)
{
    double most = -INFINITY, sum = 0;
    for (long i = 0; i < n; ++i) most = fmax(most, logits[i]);
    const double right = logits[target] - most;
    for (long i = 0; i < n; ++i) sum += logits[i] = exp(logits[i] - most);
    for (long i = 0; i < n; ++i) logits[i] *= weight / sum;
    logits[target] -= weight;
    return weight * (log(sum) - right);
}
