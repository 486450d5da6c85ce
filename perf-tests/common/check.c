/* Fills the buffers of a call that is checked, and counts its wrong elements and damaged guards.
 * Checks that a barrier waits for every rank. */
#include "common/check.h"

#include <string.h>
#include <time.h>

#define LATE_NS 200000

static struct perf_data data_of(const struct perf_worker *worker, const struct perf_row *row,
                                int rank, bool in_place)
{
    return (struct perf_data){
        .type = row->type,
        .op = row->op,
        .seed = worker->seed,
        .rank = rank,
        .nranks = worker->run->nranks,
        .root = row->root,
        .count = row->layout.count,
        .blocks = perf_row_blocks(worker, row),
        .in_place = in_place,
    };
}

static struct perf_share share_of(const struct perf_worker *worker, const struct perf_row *row,
                                  int rank)
{
    struct perf_blocks blocks = perf_row_blocks(worker, row);
    return perf_share_of(worker->run->collective, &row->layout, &blocks, rank);
}

/* Elements that a call may touch from the receive buffer's start on. */
static size_t region_elements(const struct perf_share *share, bool in_place)
{
    return in_place && share->send > share->recv ? share->send : share->recv;
}

void perf_check_prepare(struct perf_worker *worker, const struct perf_row *row, bool in_place,
                        size_t offset)
{
    size_t type_bytes = row->type->bytes;
    for (int i = 0; i < worker->nranks; i++) {
        struct perf_rank *rank = &worker->ranks[i];
        struct perf_share share = share_of(worker, row, rank->rank);
        size_t region = region_elements(&share, in_place) * type_bytes;
        struct perf_data data = data_of(worker, row, rank->rank, in_place);
        unsigned char *recv = rank->recv + offset;
        size_t own = share.send_at * type_bytes;
        memset(recv - PERF_GUARD, PERF_UNTOUCHED, region + 2 * PERF_GUARD);
        unsigned char *input = in_place ? recv + own : rank->send + offset;
        perf_fill_input(&data, rank->rank, 0, share.send, input);
    }
}

static int64_t count_guard(const unsigned char *guard)
{
    for (size_t i = 0; i < PERF_GUARD; i++) {
        if (guard[i] != PERF_UNTOUCHED) return 1;
    }
    return 0;
}

static void fill_own_input(const struct perf_data *data, size_t first, size_t count, void *want)
{
    perf_fill_input(data, data->rank, first, count, want);
}

/* Compares elements [0, count) of `got` with what `fill` says, a chunk at a time. */
static int64_t compare(struct perf_worker *worker, const struct perf_data *data, size_t count,
                       const unsigned char *got,
                       void (*fill)(const struct perf_data *, size_t, size_t, void *))
{
    size_t most = PERF_CHUNK_BYTES / data->type->bytes;
    int64_t wrong = 0;
    for (size_t first = 0; first < count; first += most) {
        size_t part = count - first < most ? count - first : most;
        fill(data, first, part, worker->chunk);
        wrong += perf_count_wrong(data, got + first * data->type->bytes, worker->chunk, part);
    }
    return wrong;
}

int64_t perf_check_count(struct perf_worker *worker, const struct perf_row *row, bool in_place,
                         size_t offset)
{
    size_t type_bytes = row->type->bytes;
    int64_t wrong = 0;
    for (int i = 0; i < worker->nranks; i++) {
        struct perf_rank *rank = &worker->ranks[i];
        struct perf_share share = share_of(worker, row, rank->rank);
        size_t region = region_elements(&share, in_place) * type_bytes;
        struct perf_data data = data_of(worker, row, rank->rank, in_place);
        const unsigned char *recv = rank->recv + offset;
        size_t own = in_place ? share.recv_at * type_bytes : 0;
        wrong += compare(worker, &data, share.recv, recv + own, worker->run->collective->expected);
        wrong += count_guard(recv - PERF_GUARD);
        wrong += count_guard(recv + region);
        if (in_place) continue;
        wrong += compare(worker, &data, share.send, rank->send + offset, fill_own_input);
    }
    return wrong;
}

tuttiResult_t perf_check_barrier(struct perf_worker *worker, const struct perf_row *row,
                                 tuttiResult_t (*launch)(struct perf_worker *,
                                                         const struct perf_row *),
                                 int64_t *wrong)
{
    int late = (int)(worker->seed % (uint64_t)worker->run->nranks);
    bool is_late = late >= worker->ranks[0].rank && late < worker->ranks[0].rank + worker->nranks;
    PERF_TRY(perf_worker_barrier(worker));
    if (is_late) nanosleep(&(struct timespec){.tv_nsec = LATE_NS}, NULL);
    double came = perf_now();
    PERF_TRY(launch(worker, row));
    PERF_TRY(perf_worker_wait(worker));
    double left = perf_now();
    PERF_TRY(perf_worker_reduce_number(worker, &came, tuttiMax));
    *wrong = left < came ? worker->nranks : 0;
    return tuttiSuccess;
}
