/* The ring of tables that kernels of a rank read. */
#include "carrier/kernel/ring.h"

#include "shim.h"

/* A ring in memory of this test: it must not grow, for which it would need a GPU. */
static char *take(struct tt_device_ring *ring, const struct tt_device_report *report, size_t nbytes,
                  uint64_t number)
{
    void *table = NULL;
    CHECK_EQ(tt_device_ring_take(ring, NULL, report, nbytes, number, &table), TT_OK);
    return table;
}

/* The host looks at what a kernel has written after the kernel's end. */
TEST(ring, a_table_that_the_host_still_reads_is_not_taken_again)
{
    static _Alignas(32) char memory[2048];
    struct tt_device_ring ring = {.memory = memory, .nbytes = sizeof memory};
    struct tt_device_report report = {.ended = 0};
    char *first = take(&ring, &report, 900, 1);
    _Atomic uint64_t *held = tt_device_ring_hold(first);
    report.ended = 1;
    (void)take(&ring, &report, 500, 2);
    report.ended = 2;
    CHECK_EQ(ring.begin, 0);
    atomic_store_explicit(held, 0, memory_order_release);
    CHECK(take(&ring, &report, 900, 3) == first);
}

/* Tables of captured calls, which are given back when their graphs are gone. */
TEST(ring, a_kept_table_that_was_given_back_is_taken_again)
{
    static _Alignas(32) char memory[2048];
    struct tt_device_ring ring = {.kept = {.memory = memory, .left = sizeof memory}};
    struct tt_device_report report = {.ended = 100};
    char *first = take(&ring, &report, 200, 0), *second = take(&ring, &report, 220, 0);
    CHECK(first != second);
    for (int i = 0; i < 100; i++) {
        tt_device_ring_put(&ring, first);
        CHECK(take(&ring, &report, 210, 0) == first);
    }
    CHECK(take(&ring, &report, 20, 0) != first); /* of another size */
    tt_device_ring_put(&ring, NULL);
}
