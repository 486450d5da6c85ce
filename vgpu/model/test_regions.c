/* Tests the sorted lists of regions. */
#include <stdlib.h>

#include <shim.h>
#include <vgpu/memory.h>

static struct vg_region region_of(uint64_t address, uint64_t nbytes)
{
    return (struct vg_region){.address = address, .nbytes = nbytes};
}

TEST(regions, an_address_is_found_from_the_first_byte_to_the_last)
{
    struct vg_regions regions = {0};
    struct vg_region a = region_of(0x1000, 0x100), b = region_of(0x3000, 0x40);
    struct vg_region c = region_of(0x2000, 0x1000);
    CHECK_EQ(vg_regions_add(&regions, &a), 0);
    CHECK_EQ(vg_regions_add(&regions, &b), 0);
    CHECK_EQ(vg_regions_add(&regions, &c), 0);
    CHECK(vg_regions_find(&regions, 0xfff) == NULL);
    CHECK(vg_regions_find(&regions, 0x1000) == &a);
    CHECK(vg_regions_find(&regions, 0x10ff) == &a);
    CHECK(vg_regions_find(&regions, 0x1100) == NULL);
    CHECK(vg_regions_find(&regions, 0x2fff) == &c);
    CHECK(vg_regions_find(&regions, 0x3000) == &b);
    CHECK(vg_regions_find(&regions, 0x3040) == NULL);
    vg_regions_remove(&regions, &c);
    CHECK(vg_regions_find(&regions, 0x2fff) == NULL);
    vg_regions_remove(&regions, &a);
    vg_regions_remove(&regions, &b);
    CHECK_EQ(regions.n, 0);
}

TEST(regions, a_region_that_overlaps_another_is_refused)
{
    struct vg_regions regions = {0};
    struct vg_region a = region_of(0x1000, 0x100);
    CHECK_EQ(vg_regions_add(&regions, &a), 0);
    const struct {
        uint64_t address, nbytes;
        int expected;
    } cases[] = {{0x1000, 0x100, -1}, {0xff0, 0x11, -1}, {0x10ff, 1, -1}, {0x800, 0x2000, -1},
                 {0xff0, 0x10, 0},    {0x1100, 0x10, 0}, {0x1000, 1, -1}, {UINT64_MAX, 2, -1}};
    struct vg_region other[sizeof cases / sizeof *cases];
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        other[i] = region_of(cases[i].address, cases[i].nbytes);
        CHECK_MESSAGE(vg_regions_add(&regions, &other[i]) == cases[i].expected, "case %zu", i);
    }
    CHECK_EQ(regions.n, 3);
    while (regions.n > 0) vg_regions_remove(&regions, regions.at[0]);
}

TEST(regions, the_nearest_region_is_the_one_with_fewer_bytes_between)
{
    struct vg_regions regions = {0};
    CHECK(vg_regions_nearest(&regions, 5) == NULL);
    struct vg_region a = region_of(0x1000, 0x100), b = region_of(0x2000, 0x40);
    CHECK_EQ(vg_regions_add(&regions, &b), 0);
    CHECK_EQ(vg_regions_add(&regions, &a), 0);
    CHECK(vg_regions_nearest(&regions, 0) == &a);
    CHECK(vg_regions_nearest(&regions, 0x1101) == &a);
    CHECK(vg_regions_nearest(&regions, 0x1fff) == &b);
    CHECK(vg_regions_nearest(&regions, 0x9000) == &b);
    while (regions.n > 0) vg_regions_remove(&regions, regions.at[0]);
}
