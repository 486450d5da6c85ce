/* Where the blocks of each kind of collective lie in the buffers, and the factors of the bus
 * bandwidth. */
#include "common/perf.h"

double perf_volume_one(int nranks)
{
    (void)nranks;
    return 1;
}

double perf_volume_all(int nranks)
{
    return nranks;
}

double perf_volume_others(int nranks)
{
    return nranks - 1;
}

double perf_factor_one(int nranks)
{
    (void)nranks;
    return 1;
}

double perf_factor_others(int nranks)
{
    return (double)(nranks - 1) / nranks;
}

double perf_factor_twice_others(int nranks)
{
    return 2.0 * (nranks - 1) / nranks;
}

struct perf_layout perf_layout_of(const struct perf_collective *collective, size_t size,
                                  size_t type_bytes, size_t align, int nranks)
{
    struct perf_layout layout = {0};
    if (collective->moves_nothing) return layout;

    layout.count = size / type_bytes;
    bool split = collective->sends_blocks || collective->gets_blocks;
    if (split) {
        size_t unit = align > type_bytes ? align / type_bytes : 1;
        layout.count = layout.count / (size_t)nranks / unit * unit;
    }
    size_t all = layout.count * (size_t)nranks;
    layout.send = collective->sends_blocks ? all : layout.count;
    layout.recv = collective->gets_blocks ? all : layout.count;
    if (collective->gets_blocks && !collective->sends_blocks) layout.send_step = layout.count;
    if (collective->sends_blocks && !collective->gets_blocks) layout.recv_step = layout.count;
    return layout;
}

struct perf_blocks perf_blocks_of(const struct perf_collective *collective,
                                  const struct perf_layout *layout, enum perf_spread spread,
                                  int nranks)
{
    return (struct perf_blocks){
        .spread = collective->uneven ? spread : PERF_EVEN,
        .pairwise = collective->uneven && collective->sends_blocks && collective->gets_blocks,
        .count = layout->count,
        .nranks = nranks,
    };
}

struct perf_share perf_share_of(const struct perf_collective *collective,
                                const struct perf_layout *layout, const struct perf_blocks *blocks,
                                int rank)
{
    if (!collective->uneven) {
        return (struct perf_share){.send = layout->send,
                                   .recv = layout->recv,
                                   .send_at = (size_t)rank * layout->send_step,
                                   .recv_at = (size_t)rank * layout->recv_step};
    }
    size_t all = perf_block_begin(blocks, rank, blocks->nranks);
    size_t own = perf_block_count(blocks, rank, rank);
    size_t begin = perf_block_begin(blocks, rank, rank);
    return (struct perf_share){.send = collective->sends_blocks ? all : own,
                               .recv = collective->gets_blocks ? all : own,
                               .send_at = collective->sends_blocks ? 0 : begin,
                               .recv_at = collective->gets_blocks ? 0 : begin};
}
