/* Looks at plain stores decide how a rank stores what others read. Times are given: a look that
 * began so long ago took that long. */
#include "executor/shared_store.h"

#include <string.h>

#include "base/clock.h"
#include "shim.h"

enum { NBYTES = 16384, SLOW_NS = 1000000 };

/* Messages until the next look; it is made, and took `ns` at least. */
static uint32_t look(struct tt_shared_store *store, int64_t ns)
{
    uint32_t n = 0;
    while (!tt_store_is_due(store, NBYTES)) n++;
    tt_look_end(store, NBYTES, tt_now_ns() - ns);
    return n;
}

/* A look that took no time: the clock reads of this test may be a millisecond apart on a busy
 * machine, so the look begins in the future. */
static uint32_t look_quickly(struct tt_shared_store *store)
{
    return look(store, -INT64_C(1000000000));
}

TEST(shared_store, looks_no_more_where_no_store_goes_past_the_caches)
{
    struct tt_shared_store store = {0};
    if (tt_copies_past_caches()) SKIP("the CPU has stores past the caches (TUTTI_CPU=scalar)");
    look(&store, SLOW_NS);
    for (int i = 0; i < 5000; i++) CHECK(!tt_store_is_due(&store, NBYTES));
    CHECK(!store.past_caches);
}

#define NEED_PAST_CACHES()                                                                         \
    if (!tt_copies_past_caches()) SKIP("the instruction set in use has no stores past the caches")

TEST(shared_store, stays_plain_while_plain_stores_are_quick)
{
    NEED_PAST_CACHES();
    struct tt_shared_store store = {0};
    CHECK_EQ(look_quickly(&store), 0);
    for (int i = 0; i < 20; i++) {
        const uint32_t n = look_quickly(&store);
        CHECK(n >= 8 && n <= 64);
        CHECK(!tt_store_is_past_caches(&store, NBYTES));
    }
}

TEST(shared_store, goes_past_the_caches_after_three_slow_looks_in_a_row)
{
    NEED_PAST_CACHES();
    struct tt_shared_store store = {0};
    for (int i = 0; i < 5; i++) { /* a page fault now and then says nothing */
        look(&store, SLOW_NS);
        look(&store, SLOW_NS);
        look_quickly(&store);
        CHECK(!store.past_caches);
    }
    look(&store, SLOW_NS);
    CHECK_EQ(look(&store, SLOW_NS), 0);
    CHECK(!store.past_caches);
    CHECK_EQ(look(&store, SLOW_NS), 0);
    CHECK(tt_store_is_past_caches(&store, NBYTES));
    CHECK(tt_store_is_past_caches(&store, TT_PAST_CACHES_MIN_BYTES));
    CHECK(!tt_store_is_past_caches(&store, TT_PAST_CACHES_MIN_BYTES - 1));
}

TEST(shared_store, looks_become_rare_and_bring_plain_stores_back)
{
    NEED_PAST_CACHES();
    struct tt_shared_store store = {0};
    for (int i = 0; i < 3; i++) look(&store, SLOW_NS);
    REQUIRE(store.past_caches);
    uint32_t before = 0, n = 0;
    for (int i = 0; i < 12; i++, before = n) {
        n = look(&store, SLOW_NS);
        CHECK(n >= before && n <= 1024);
        CHECK(store.past_caches);
    }
    CHECK(n >= 256);
    look_quickly(&store);
    look_quickly(&store);
    CHECK(store.past_caches);
    look_quickly(&store);
    CHECK(!store.past_caches);
    for (int i = 0; i < 3; i++) look(&store, SLOW_NS);
    CHECK(store.past_caches);
    CHECK(look(&store, SLOW_NS) <= 64); /* often again */
}

TEST(shared_store, copies_whatever_the_way_and_the_memory)
{
    static char from[3 * NBYTES], to[3 * NBYTES];
    struct tt_shared_store stores[] = {{.left = 1000}, {.past_caches = true, .left = 1000}, {0}};
    for (size_t i = 0; i < sizeof from; i++) from[i] = (char)(i * 7 + i / 251);
    static const size_t lengths[] = {0, 1, 511, 2047, 2048, 2049, 4095, 16384, 40001};
    for (size_t k = 0; k < sizeof lengths / sizeof *lengths; k++)
        for (int s = 0; s < 4; s++)
            for (size_t at = 0; at < 130; at += 43) {
                memset(to, -1, sizeof to);
                tt_store_shared(s < 3 ? &stores[s] : NULL, to + at, from + 1, lengths[k]);
                CHECK(memcmp(to + at, from + 1, lengths[k]) == 0);
                CHECK(at == 0 || to[at - 1] == -1);
                CHECK_EQ(to[at + lengths[k]], -1);
            }
    struct tt_shared_store none = {0};
    CHECK(!tt_store_is_due(NULL, NBYTES));
    CHECK(!tt_store_is_past_caches(NULL, NBYTES));
    CHECK(!tt_store_is_due(&none, TT_PAST_CACHES_MIN_BYTES - 1));
}
