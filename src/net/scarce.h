/* A want of descriptors or of memory, which may pass: whether it has been said, and whether it has
 * lasted too long. */
#ifndef TT_NET_SCARCE_H
#define TT_NET_SCARCE_H

#include <errno.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/clock.h"

/* Zeroed: there is no want. The caller's; one thread at a time. */
struct tt_scarce {
    int64_t since_ns;
    int64_t last_ns; /* when the want was last found; 0: it has passed */
    bool was_said;
};

/* Whether the error says that descriptors or memory are scarce. */
static inline bool tt_is_scarcity(int error)
{
    return error == EMFILE || error == ENFILE || error == ENOBUFS || error == ENOMEM;
}

/* True once: the log is to say that there is a want. */
static inline bool tt_scarce_is_news(struct tt_scarce *scarce)
{
    const bool is_news = !scarce->was_said;
    scarce->was_said = true;
    return is_news;
}

/* An attempt has found the want. Whether all attempts have for 10 s. Attempts that are further
 * apart than a second, as of a process that was stopped meanwhile, are not of the same want. */
static inline bool tt_scarce_for_long(struct tt_scarce *scarce)
{
    enum { LONG_MS = 10000, ATTEMPT_MS = 1000 };
    const int64_t now_ns = tt_now_ns();
    if (!scarce->last_ns || now_ns - scarce->last_ns > ATTEMPT_MS * INT64_C(1000000))
        scarce->since_ns = now_ns;
    scarce->last_ns = now_ns;
    return now_ns - scarce->since_ns > LONG_MS * INT64_C(1000000);
}

static inline void tt_scarce_has_passed(struct tt_scarce *scarce)
{
    scarce->last_ns = 0;
}

#endif
