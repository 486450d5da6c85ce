/* Stores to memory that another rank of the host reads: slots of links, places in meetings.
 *
 * A slot is used again and again, so its cache lines are in the cache of the rank that has read
 * them. Where the two ranks' cores have caches of their own, each plain store to such a line waits
 * until the other core has given it up: on an AMD EPYC some 30 ns a line, 64 us for 128 KiB, which
 * stores past the caches write in 5 us. Where the cores share a cache (hyperthreads), plain stores
 * are as fast or faster, and the reader finds the data in the cache. Virtual machines do not say
 * which it is, and the answer changes when their host moves them. So the sender measures: of every
 * few messages one is stored plainly and timed (a look). docs/performance.md has the figures. */
#ifndef TT_EXECUTOR_SHARED_STORE_H
#define TT_EXECUTOR_SHARED_STORE_H

#include "datatype/datatype.h"
#include "transport/link.h"

/* Shorter messages are stored plainly: past the caches they would take longer. */
enum { TT_PAST_CACHES_MIN_BYTES = 2048 };

/* Whether a message that is not looked at is stored past the caches. store may be NULL. */
static inline bool tt_store_is_past_caches(const struct tt_shared_store *store, size_t nbytes)
{
    return store && store->past_caches && nbytes >= TT_PAST_CACHES_MIN_BYTES;
}

/* Whether this message is to be looked at: stored plainly and timed, for tt_look_end. */
static inline bool tt_store_is_due(struct tt_shared_store *store, size_t nbytes)
{
    if (!store || nbytes < TT_PAST_CACHES_MIN_BYTES) return false;
    if (!store->left) return true;
    store->left--;
    return false;
}

/* After a message that was due: it has been stored since begin_ns (tt_now_ns). */
void tt_look_end(struct tt_shared_store *store, size_t nbytes, int64_t begin_ns);

/* Copies a message and looks at it. */
void tt_store_and_look(struct tt_shared_store *store, void *to, const void *from, size_t nbytes);

/* Copies a message to such memory. store may be NULL: the memory is not shared. */
static inline void tt_store_shared(struct tt_shared_store *store, void *to, const void *from,
                                   size_t nbytes)
{
    if (!store || nbytes < TT_PAST_CACHES_MIN_BYTES)
        tt_copy_short_shared(to, from, nbytes);
    else if (tt_store_is_due(store, nbytes))
        tt_store_and_look(store, to, from, nbytes);
    else if (store->past_caches)
        tt_copy(to, from, nbytes, true);
    else
        tt_copy_shared(to, from, nbytes);
}

#endif
