/* The headers that an executor of programs needs, and a use of every walk function. Compiled as
 * C17, C++17 and CUDA by program.sh and device.sh; never linked. */
#include "program/program.h"

#ifdef __CUDACC__
#define KERNEL extern "C" __global__
#elif defined(__cplusplus)
#define KERNEL extern "C"
#else
#define KERNEL
#endif

KERNEL void next_piece(struct tt_walk *walk, struct tt_piece *piece, bool *more);
KERNEL void next_piece(struct tt_walk *walk, struct tt_piece *piece, bool *more)
{
    *more = tt_walk_next(walk, piece);
}

KERNEL void begin_walk(const struct tt_program *program, const struct tt_binding *binding,
                       uint32_t step, int channel, size_t round, struct tt_walk *walk);
KERNEL void begin_walk(const struct tt_program *program, const struct tt_binding *binding,
                       uint32_t step, int channel, size_t round, struct tt_walk *walk)
{
    const struct tt_program_span *span = &tt_program_step(program, channel, step)->local;
    *walk = tt_walk_begin(program, binding, span, channel, round, tt_span_is_whole(binding, span));
}

KERNEL void part(const struct tt_binding *binding, int32_t block, int channel, size_t *begin,
                 size_t *length);
KERNEL void part(const struct tt_binding *binding, int32_t block, int channel, size_t *begin,
                 size_t *length)
{
    *length = tt_binding_part(binding, block, channel, begin);
}

KERNEL void count(const struct tt_program *program, const struct tt_binding *binding, uint32_t step,
                  int channel, size_t round, size_t *total);
KERNEL void count(const struct tt_program *program, const struct tt_binding *binding, uint32_t step,
                  int channel, size_t round, size_t *total)
{
    const struct tt_program_span *span = &tt_program_step(program, channel, step)->dst;
    *total = tt_span_count(program, binding, span, channel, round) +
             (size_t)tt_program_links(program)->peer;
}

#ifdef WITH_DIVISION
/* Shows what a division looks like in the compiler's output. */
KERNEL void divide(size_t *value, const size_t *by);
KERNEL void divide(size_t *value, const size_t *by)
{
    *value /= *by;
}
#endif
