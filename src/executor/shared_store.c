/* Looks at plain stores: whether stores past the caches would be faster. */
#include "executor/shared_store.h"

#include <stdatomic.h>

#include "base/clock.h"

enum {
    /* A plain store is slow that takes longer than these nanoseconds, and so many a KiB: 4 GB/s. */
    SLOW_NS = 60,
    SLOW_NS_PER_KIB = 256,
    /* So many looks in a row change the way: the first touch of a page and the loss of the core are
     * slow, too. */
    SURPRISES = 3,
    /* Messages from look to look. Past the caches a look costs up to five times the message's time,
     * so they become rare while they find nothing new. */
    LOOK_EVERY = 16,
    MOST_INTERVAL = 512,
};

void tt_look_end(struct tt_shared_store *store, size_t nbytes, int64_t begin_ns)
{
    if (!tt_copies_past_caches()) { /* both ways are one: this look is the last */
        store->left = UINT32_MAX;
        return;
    }
    /* Waits until the stores are done. */
    atomic_thread_fence(memory_order_seq_cst);
    const int64_t ns = tt_now_ns() - begin_ns;
    const bool slow = ns > SLOW_NS + (int64_t)(nbytes * SLOW_NS_PER_KIB / 1024);
    if (slow == store->past_caches) {
        store->nsurprise = 0;
        if (slow && store->interval < MOST_INTERVAL) store->interval *= 2;
        store->left = slow ? store->interval : LOOK_EVERY;
        return;
    }
    if (++store->nsurprise < SURPRISES) {
        store->left = 0;
        return;
    }
    store->nsurprise = 0;
    store->past_caches = slow;
    store->interval = store->left = LOOK_EVERY;
}

void tt_store_and_look(struct tt_shared_store *store, void *to, const void *from, size_t nbytes)
{
    const int64_t begin_ns = tt_now_ns();
    tt_copy_shared(to, from, nbytes);
    tt_look_end(store, nbytes, begin_ns);
}
