/* Fills the buffers of a call that is checked, and counts its wrong elements and damaged guards.
 * Checks that a barrier waits for every rank. */
#include "common/check.h"

#include <time.h>

#include "common/buffers.h"

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

/* Puts elements [0, count) of what the rank sends to `to`, a chunk at a time. */
static tuttiResult_t put_input(struct perf_worker *worker, const struct perf_rank *rank,
                               const struct perf_data *data, size_t count, unsigned char *to)
{
    size_t most = PERF_CHUNK_BYTES / data->type->bytes;
    for (size_t first = 0; first < count; first += most) {
        size_t part = count - first < most ? count - first : most;
        unsigned char *at = to + first * data->type->bytes;
        perf_fill_input(data, data->rank, first, part, perf_buffers_staging(worker, at));
        PERF_TRY(perf_buffers_write(worker, rank, at, part * data->type->bytes));
    }
    return tuttiSuccess;
}

tuttiResult_t perf_check_prepare(struct perf_worker *worker, const struct perf_row *row,
                                 bool in_place, size_t offset)
{
    size_t type_bytes = row->type->bytes;
    for (int i = 0; i < worker->nranks; i++) {
        struct perf_rank *rank = &worker->ranks[i];
        struct perf_share share = share_of(worker, row, rank->rank);
        size_t region = region_elements(&share, in_place) * type_bytes;
        struct perf_data data = data_of(worker, row, rank->rank, in_place);
        unsigned char *recv = rank->recv + offset;
        size_t own = share.send_at * type_bytes;
        PERF_TRY(perf_buffers_fill(worker, rank, recv - PERF_GUARD, PERF_UNTOUCHED,
                                   region + 2 * PERF_GUARD));
        unsigned char *input = in_place ? recv + own : rank->send + offset;
        PERF_TRY(put_input(worker, rank, &data, share.send, input));
    }
    return tuttiSuccess;
}

/* Adds 1 to *wrong when a byte of the guard has changed. */
static tuttiResult_t count_guard(struct perf_worker *worker, const struct perf_rank *rank,
                                 const unsigned char *guard, int64_t *wrong)
{
    const void *copy;
    PERF_TRY(perf_buffers_read(worker, rank, guard, PERF_GUARD, &copy));
    const unsigned char *bytes = copy;
    for (size_t i = 0; i < PERF_GUARD; i++) {
        if (bytes[i] == PERF_UNTOUCHED) continue;
        *wrong += 1;
        break;
    }
    return tuttiSuccess;
}

static void fill_own_input(const struct perf_data *data, size_t first, size_t count, void *want)
{
    perf_fill_input(data, data->rank, first, count, want);
}

/* A buffer that is checked: its elements [0, count) must be what `fill` says. */
struct checked {
    const struct perf_rank *rank;
    const struct perf_data *data;
    size_t count;
    const unsigned char *at;
    void (*fill)(const struct perf_data *, size_t, size_t, void *);
};

/* Adds the elements that are wrong to *wrong; looks at a chunk at a time. */
static tuttiResult_t compare(struct perf_worker *worker, const struct checked *buffer,
                             int64_t *wrong)
{
    size_t type_bytes = buffer->data->type->bytes;
    size_t most = PERF_CHUNK_BYTES / type_bytes;
    for (size_t first = 0; first < buffer->count; first += most) {
        size_t part = buffer->count - first < most ? buffer->count - first : most;
        const void *got;
        PERF_TRY(perf_buffers_read(worker, buffer->rank, buffer->at + first * type_bytes,
                                   part * type_bytes, &got));
        buffer->fill(buffer->data, first, part, worker->chunk);
        *wrong += perf_count_wrong(buffer->data, got, worker->chunk, part);
    }
    return tuttiSuccess;
}

static tuttiResult_t count_rank(struct perf_worker *worker, const struct perf_row *row,
                                const struct perf_rank *rank, bool in_place, size_t offset,
                                int64_t *wrong)
{
    size_t type_bytes = row->type->bytes;
    struct perf_share share = share_of(worker, row, rank->rank);
    size_t region = region_elements(&share, in_place) * type_bytes;
    struct perf_data data = data_of(worker, row, rank->rank, in_place);
    const unsigned char *recv = rank->recv + offset;
    struct checked result = {.rank = rank,
                             .data = &data,
                             .count = share.recv,
                             .at = recv + (in_place ? share.recv_at * type_bytes : 0),
                             .fill = worker->run->collective->expected};
    struct checked sent = {.rank = rank,
                           .data = &data,
                           .count = share.send,
                           .at = rank->send + offset,
                           .fill = fill_own_input};
    PERF_TRY(compare(worker, &result, wrong));
    PERF_TRY(count_guard(worker, rank, recv - PERF_GUARD, wrong));
    PERF_TRY(count_guard(worker, rank, recv + region, wrong));
    return in_place ? tuttiSuccess : compare(worker, &sent, wrong);
}

tuttiResult_t perf_check_count(struct perf_worker *worker, const struct perf_row *row,
                               bool in_place, size_t offset, int64_t *wrong)
{
    *wrong = 0;
    for (int i = 0; i < worker->nranks; i++) {
        PERF_TRY(count_rank(worker, row, &worker->ranks[i], in_place, offset, wrong));
    }
    return tuttiSuccess;
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
