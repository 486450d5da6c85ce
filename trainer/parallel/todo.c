#include "parallel.h"
const struct tr_attention_kind tr_ring_attention, tr_ulysses_attention;
tr_status tr_vocab_loss(void *parallel, float *logits, const int32_t *targets, const float *weights, long first, long rows, long n, double *loss) { (void)parallel;(void)logits;(void)targets;(void)weights;(void)first;(void)rows;(void)n;*loss=0; return tr_fail("todo"); }
size_t tr_vocab_scratch(const struct tr_parallel *parallel, long rows) {(void)parallel;(void)rows; return 0;}
