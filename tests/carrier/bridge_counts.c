/* Counts of messages over bridges, which have 32 bits and begin at 0 again, and kernels that run in
 * threads beside the one that moves. The tests set the counts of bridges, behind their interface.
 */
#include "carrier/kernel/bridge_internal.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>

#include "base/clock.h"
#include "carrier/two_ranks.h"

enum { CHANNEL = 1, BEFORE = 11 }; /* so many messages before the counts begin at 0 */

/* As if so many messages had gone from rank 0 to rank 1 and were released. */
static void set_counts(struct pair *pair, struct tt_device_end *out, struct tt_device_end *in,
                       uint32_t n)
{
    struct tt_bridge_end *sends = tt_bridge_end_of(pair->bridges[0]->peers[1], CHANNEL, true);
    struct tt_bridge_end *receives = tt_bridge_end_of(pair->bridges[1]->peers[0], CHANNEL, false);
    sends->moved = sends->told = receives->moved = receives->told = n;
    out->count = out->known_tail = in->count = in->known_tail = n;
    *out->head = *in->head = *out->tail = *in->tail = n;
}

static bool has_sent(struct tt_bridges *bridges)
{
    return tt_bridges_have_sent(bridges, TT_BRIDGE_COLLECTIVES);
}

TEST(bridge_counts, begin_at_0_again)
{
    enum { MESSAGES = 3 * BEFORE };
    static struct pair pair;
    pair_open(&pair, 64);
    struct tt_device_end *out = pair_bind(&pair, 0, CHANNEL, true);
    struct tt_device_end *in = pair_bind(&pair, 1, CHANNEL, false);
    pair_move(&pair);
    set_counts(&pair, out, in, 0u - BEFORE);
    for (int i = 0; i < MESSAGES; i++) {
        const int n = 1 + i % SLOTS;
        for (int k = 0; k < n; k++) CHECK(kernel_send(out, CHANNEL));
        tt_bridges_mark(pair.bridges[0], TT_BRIDGE_COLLECTIVES);
        CHECK(!has_sent(pair.bridges[0]));
        pair_move(&pair);
        CHECK(has_sent(pair.bridges[0]));
        for (int k = 0; k < n; k++) CHECK(kernel_take(in, CHANNEL, true));
        tt_bridges_mark(pair.bridges[1], TT_BRIDGE_COLLECTIVES);
        CHECK(!has_sent(pair.bridges[1]));
        pair_move(&pair);
        CHECK(has_sent(pair.bridges[1]));
    }
    tt_bridges_end(pair.bridges[0]);
    pair_move(&pair);
    CHECK(tt_bridges_has_ended(pair.bridges[0], 1));
    pair_close(&pair);
}

/* ---- Kernels beside ------------------------------------------------------------------------- */

enum { MESSAGES = 20000 };

struct kernel {
    struct tt_device_end *end;
    _Atomic bool stop, has_ended;
};

static void *run_kernel(void *argument)
{
    struct kernel *kernel = argument;
    for (int n = 0; n < MESSAGES && !atomic_load(&kernel->stop);) {
        if (kernel->end->outgoing ? kernel_send(kernel->end, CHANNEL)
                                  : kernel_take(kernel->end, CHANNEL, true))
            n++;
        else
            sched_yield();
    }
    atomic_store(&kernel->has_ended, true);
    return NULL;
}

TEST(bridge_counts, messages_are_whole_while_kernels_run_beside)
{
    static struct pair pair;
    pthread_t threads[2];
    pair_open(&pair, 100);
    struct kernel kernels[2] = {{.end = pair_bind(&pair, 0, CHANNEL, true)},
                                {.end = pair_bind(&pair, 1, CHANNEL, false)}};
    pair_move(&pair);
    set_counts(&pair, kernels[0].end, kernels[1].end, 0u - MESSAGES / 2);
    for (int i = 0; i < 2; i++)
        REQUIRE(!pthread_create(&threads[i], NULL, run_kernel, &kernels[i]));
    const int64_t deadline_ns = tt_deadline_ns(60000);
    while (!atomic_load(&kernels[1].has_ended) && !tt_expired(deadline_ns) && !tt_test_failed())
        for (int r = 0; r < 2; r++)
            if (tt_bridges_move(pair.bridges[r]) != TT_OK) sched_yield();
    CHECK(atomic_load(&kernels[1].has_ended));
    for (int i = 0; i < 2; i++) {
        atomic_store(&kernels[i].stop, true);
        pthread_join(threads[i], NULL);
    }
    CHECK_EQ(kernels[1].end->count, MESSAGES / 2);
    pair_close(&pair);
}
