/* What receive buffers must hold after a check, for each kind of collective. With blocks of equal
 * or of different lengths. */
#include "common/verify.h"

static void fill_sent(const struct perf_data *data, int block, size_t first, size_t count, void *to)
{
    perf_fill_input(data, block, first, count, to);
}

static void fill_sent_to_root(const struct perf_data *data, int block, size_t first, size_t count,
                              void *to)
{
    bool sent_from_here = data->in_place && block == data->rank;
    if (data->rank == data->root || sent_from_here) {
        perf_fill_input(data, block, first, count, to);
    } else {
        perf_fill_untouched(data, count, to);
    }
}

static void fill_sent_here(const struct perf_data *data, int block, size_t first, size_t count,
                           void *to)
{
    size_t begin = perf_block_begin(&data->blocks, block, data->rank);
    perf_fill_input(data, block, begin + first, count, to);
}

void perf_expect_gathered(const struct perf_data *data, size_t first, size_t count, void *want)
{
    perf_fill_blocks(data, first, count, want, fill_sent);
}

void perf_expect_gathered_at_root(const struct perf_data *data, size_t first, size_t count,
                                  void *want)
{
    perf_fill_blocks(data, first, count, want, fill_sent_to_root);
}

void perf_expect_scattered(const struct perf_data *data, size_t first, size_t count, void *want)
{
    size_t begin = perf_block_begin(&data->blocks, 0, data->rank);
    perf_fill_input(data, data->root, begin + first, count, want);
}

void perf_expect_reduced_block(const struct perf_data *data, size_t first, size_t count, void *want)
{
    perf_fill_reduced(data, perf_block_begin(&data->blocks, 0, data->rank) + first, count, want);
}

void perf_expect_exchanged(const struct perf_data *data, size_t first, size_t count, void *want)
{
    perf_fill_blocks(data, first, count, want, fill_sent_here);
}
