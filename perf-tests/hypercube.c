/* An all-gather made of sends and receives along the edges of a hypercube.
 *
 * Four ranks (what each has after a phase; a phase is one exchange with rank ^ mask):
 *     rank         0     1     2     3
 *     mask 1      01    01    23    23
 *     mask 2    0123  0123  0123  0123
 *
 * Of nranks ranks the first p, the largest power of two among nranks, are corners. Rank p + r first
 * gives its block to corner r, which passes it on with its own, and gets everything from it in the
 * end. So any number of ranks works: log2 p phases, and two more when nranks is no power of two. */
#include "common/perf.h"

static int corners_of(int nranks)
{
    int corners = 1;
    while (2 * corners <= nranks) corners *= 2;
    return corners;
}

static int phases(int nranks)
{
    int corners = corners_of(nranks);
    int count = 1; /* phase 0 puts the blocks in their places */
    for (int mask = 1; mask < corners; mask *= 2) count++;
    return corners < nranks ? count + 1 : count;
}

/* Block `block` and the `nblocks - 1` after it, where the ranks end at nranks. */
static tuttiResult_t send_blocks(const struct perf_call *call, int block, int nblocks, int peer)
{
    if (block + nblocks > call->nranks) nblocks = call->nranks - block;
    if (nblocks <= 0) return tuttiSuccess;
    const char *from = (const char *)call->recv + (size_t)block * call->count * call->type_bytes;
    return call->library->send(from, (size_t)nblocks * call->count, call->type, peer, call->comm,
                               call->stream);
}

static tuttiResult_t receive_blocks(const struct perf_call *call, int block, int nblocks, int peer)
{
    if (block + nblocks > call->nranks) nblocks = call->nranks - block;
    if (nblocks <= 0) return tuttiSuccess;
    char *to = (char *)call->recv + (size_t)block * call->count * call->type_bytes;
    return call->library->recv(to, (size_t)nblocks * call->count, call->type, peer, call->comm,
                               call->stream);
}

/* Own block to its place (unless it lies there), and ranks that are no corners to theirs. */
static tuttiResult_t place(const struct perf_call *call, int corners)
{
    char *own = (char *)call->recv + (size_t)call->rank * call->count * call->type_bytes;
    tuttiResult_t result = tuttiSuccess;
    if (call->send != own) {
        result = call->library->send(call->send, call->count, call->type, call->rank, call->comm,
                                     call->stream);
        if (result != tuttiSuccess) return result;
        result =
            call->library->recv(own, call->count, call->type, call->rank, call->comm, call->stream);
        if (result != tuttiSuccess) return result;
    }
    if (call->rank >= corners) {
        return call->library->send(call->send, call->count, call->type, call->rank - corners,
                                   call->comm, call->stream);
    }
    if (call->rank + corners < call->nranks) {
        return receive_blocks(call, call->rank + corners, 1, call->rank + corners);
    }
    return result;
}

/* What this corner has against what the one across has. */
static tuttiResult_t exchange(const struct perf_call *call, int corners, int mask)
{
    int peer = call->rank ^ mask;
    int mine = call->rank & ~(mask - 1);
    int theirs = mine ^ mask;
    tuttiResult_t result = send_blocks(call, mine, mask, peer);
    if (result == tuttiSuccess) result = send_blocks(call, corners + mine, mask, peer);
    if (result == tuttiSuccess) result = receive_blocks(call, theirs, mask, peer);
    if (result == tuttiSuccess) result = receive_blocks(call, corners + theirs, mask, peer);
    return result;
}

/* Everything but the block that the receiver has sent itself. */
static tuttiResult_t hand_down(const struct perf_call *call, int corners)
{
    int above = call->rank + corners;
    int below = call->rank - corners;
    tuttiResult_t result = tuttiSuccess;
    if (call->rank < corners && above < call->nranks) {
        result = send_blocks(call, 0, above, above);
        if (result == tuttiSuccess) result = send_blocks(call, above + 1, call->nranks, above);
    } else if (call->rank >= corners) {
        result = receive_blocks(call, 0, call->rank, below);
        if (result == tuttiSuccess)
            result = receive_blocks(call, call->rank + 1, call->nranks, below);
    }
    return result;
}

static tuttiResult_t launch(const struct perf_call *call)
{
    int corners = corners_of(call->nranks);
    int mask = call->phase > 0 ? 1 << (call->phase - 1) : 0;
    tuttiResult_t result = call->library->group_start();
    if (result != tuttiSuccess) return result;
    if (call->phase == 0) {
        result = place(call, corners);
    } else if (mask >= corners) {
        result = hand_down(call, corners);
    } else if (call->rank < corners) {
        result = exchange(call, corners, mask);
    }
    return perf_group_end(call->library, result);
}

static const struct perf_collective hypercube = {
    .name = "hypercube",
    .collective = PERF_NO_COLLECTIVE,
    .nccl = "ncclSend",
    .gets_blocks = true,
    .volume = perf_volume_others,
    .factor = perf_factor_one,
    .phases = phases,
    .launch = launch,
    .expected = perf_expect_gathered,
};

int main(int argc, char **argv)
{
    return perf_main(&hypercube, argc, argv);
}
