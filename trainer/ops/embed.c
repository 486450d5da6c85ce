/* Token and position embeddings, forward and backward. */
#include "simd.h"
#include "table.h"

void TR_OP(embed_forward)(float *x, const unsigned char *tokens, const float *token_table,
                          const float *place_table, long batch, long context, long n)
{
    for (long b = 0; b < batch; ++b) {
        for (long t = 0; t < context; ++t) {
            const float *token = token_table + tokens[b * context + t] * n,
                        *place = place_table + t * n;
            float *to = x + (b * context + t) * n;
            for (long i = 0; i < n; ++i) to[i] = token[i] + place[i];
        }
    }
}

void TR_OP(embed_backward)(float *dtoken_table, float *dplace_table, const float *dx,
                           const unsigned char *tokens, long batch, long context, long n)
{
    for (long b = 0; b < batch; ++b) {
        for (long t = 0; t < context; ++t) {
            float *token = dtoken_table + tokens[b * context + t] * n,
                  *place = dplace_table + t * n;
            const float *from = dx + (b * context + t) * n;
            for (long i = 0; i < n; ++i) token[i] += from[i];
            for (long i = 0; i < n; ++i) place[i] += from[i];
        }
    }
}
