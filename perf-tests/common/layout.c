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
