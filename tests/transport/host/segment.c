/* Tests of the segment: its layout, its size, who may map it. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "shim.h"
#include "transport/host/segment.h"
#include "transport/window.h"

static const struct tt_segment_layout layout = {
    .nlocal = 3, .nchannels = 4, .nslots = 4, .slot_bytes = 1024, .meet_bytes = 512};

TEST(segment, areas_do_not_overlap_and_stay_inside)
{
    struct tt_segment *segment;
    REQUIRE(tt_segment_create(11, &layout, &segment) == TT_OK);
    const char *base = (const char *)segment->header, *end = base + segment->nbytes;
    const char *last = (const char *)tt_segment_may_read(segment, 2, 2);
    for (int local = 0; local < 3; local++)
        for (uint64_t seq = 0; seq < tt_entries_kept(4); seq++) {
            const char *entry = (const char *)tt_segment_entry(segment, local, seq);
            CHECK(entry > last);
            CHECK(entry ==
                  (const char *)tt_segment_entry(segment, local, seq + tt_entries_kept(4)));
            last = entry + sizeof(struct tt_entry) - 1;
        }
    for (int channel = 0; channel < layout.nchannels - 1; channel++) {
        CHECK((const char *)tt_segment_meeting(segment, channel) >= last);
        last = (const char *)(tt_segment_meeting(segment, channel) + 1);
        for (int local = 0; local <= 3; local++)
            for (int parity = 0; parity < 2; parity++) {
                const char *flag =
                    (const char *)tt_segment_meet_flag(segment, channel, local, parity);
                CHECK(flag >= last);
                last = flag + sizeof(struct tt_flag) + 512;
            }
    }
    for (int from = 0; from < 3; from++)
        for (int to = 0; to < 3; to++)
            for (int channel = 0; channel < layout.nchannels; channel++) {
                struct tt_link_area *area = tt_segment_link(segment, from, to, channel);
                CHECK((const char *)area >= last);
                const uint32_t nflags = tt_link_flags(4);
                const struct tt_flag *flags = tt_link_area_flags(area);
                CHECK((const char *)flags >= (const char *)(area + 1));
                CHECK(tt_link_area_slots(area, nflags) >= (const char *)(flags + nflags));
                last = tt_link_area_slots(area, nflags) + (size_t)4 * 1024;
            }
    CHECK(last <= end);
    tt_segment_put(segment);
}

TEST(segment, is_mapped_once_in_a_process_and_attached_by_descriptor)
{
    struct tt_segment *segment, *again, *other;
    REQUIRE(tt_segment_create(12, &layout, &segment) == TT_OK);
    again = tt_segment_find(12);
    CHECK(again == segment);
    tt_segment_put(again);
    CHECK(tt_segment_find(13) == NULL);
    REQUIRE(tt_segment_attach(12, segment->fd, &again) == TT_OK);
    CHECK(again == segment);
    tt_segment_put(again);
    REQUIRE(tt_segment_attach(13, segment->fd, &other) == TT_OK);
    CHECK(other->header != segment->header);
    CHECK_EQ(other->nbytes, segment->nbytes);
    segment->header->records[1].pid = 5;
    CHECK_EQ(other->header->records[1].pid, 5);
    tt_segment_put(other);
    tt_segment_put(segment);
    CHECK(tt_segment_find(12) == NULL);
}

TEST(segment, refuses_another_version_or_length)
{
    struct tt_segment *segment, *other;
    REQUIRE(tt_segment_create(14, &layout, &segment) == TT_OK);
    segment->header->version++;
    CHECK_EQ(tt_segment_attach(15, segment->fd, &other), TT_ERR_USAGE);
    segment->header->version--;
    REQUIRE(ftruncate(segment->fd, (off_t)segment->nbytes + 4096) == 0);
    CHECK_EQ(tt_segment_attach(15, segment->fd, &other), TT_ERR_USAGE);
    tt_segment_put(segment);
}

TEST(segment, needs_two_slots_in_a_link)
{
    const struct tt_segment_layout one = {
        .nlocal = 3, .nchannels = 4, .nslots = 1, .slot_bytes = 1024, .meet_bytes = 512};
    struct tt_segment *segment = NULL, *other = NULL;
    CHECK_EQ(tt_segment_create(16, &one, &segment), TT_ERR_USAGE);
    CHECK(segment == NULL);
    CHECK_MESSAGE(strstr(tt_last_error(), "1 slot") && strstr(tt_last_error(), "at least 2") &&
                      strstr(tt_last_error(), "TUTTI_SLOTS") && strstr(tt_last_error(), "3 ranks"),
                  "the error names not the values: %s", tt_last_error());
    REQUIRE(tt_segment_create(17, &layout, &segment) == TT_OK);
    segment->header->nslots = 1;
    CHECK_EQ(tt_segment_attach(18, segment->fd, &other), TT_ERR_USAGE);
    CHECK(other == NULL);
    CHECK_MESSAGE(strstr(tt_last_error(), "1 slot") && strstr(tt_last_error(), "at least 2"),
                  "the error names not the values: %s", tt_last_error());
    tt_segment_put(segment);
}

TEST(segment, needs_as_many_channels_as_a_setting_allows)
{
    static const int wrong[] = {-1, 0, TT_MIN_CHANNELS - 1, TT_MAX_CHANNELS + 1};
    struct tt_segment *segment = NULL, *other = NULL;
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        struct tt_segment_layout bad = layout;
        bad.nchannels = wrong[i];
        CHECK_EQ(tt_segment_create(16, &bad, &segment), TT_ERR_USAGE);
        CHECK(segment == NULL);
        char value[64];
        snprintf(value, sizeof value, "has %d channels of two ranks, expected 3 to 18", wrong[i]);
        CHECK_MESSAGE(strstr(tt_last_error(), value) &&
                          strstr(tt_last_error(), "set TUTTI_CHANNELS to 2 to 16"),
                      "'%s' is not in: %s", value, tt_last_error());
        REQUIRE(tt_segment_create(17, &layout, &segment) == TT_OK);
        segment->header->nchannels = wrong[i];
        CHECK_EQ(tt_segment_attach(18, segment->fd, &other), TT_ERR_USAGE);
        CHECK(other == NULL);
        tt_segment_put(segment);
        segment = NULL;
    }
}

TEST(segment, is_fitted_into_a_budget_by_six_slots_then_smaller_ones_and_never_fewer_than_two)
{
    static const struct {
        int nlocal;
        size_t nslots, slot_bytes, then_nslots, then_slot_bytes;
    } cases[] = {
        {2, 6, 128 << 10, 6, 128 << 10}, /* as it was */
        {242, 6, 128 << 10, 6, 32 << 10},
        {43, 6, 4 << 20, 6, 1 << 20},
        {242, 2, 4 << 20, 2, 128 << 10},
        {43, 64, 4 << 20, 6, 1 << 20},
        {128, 16, 128 << 10, 10, 128 << 10},
        {242, 16, 128 << 10, 6, 32 << 10},
        {1000, 6, 1088, 6, 1088},
        {2000, 6, 1088, 2, 960},
        {2300, 64, 4 << 20, 2, 960},
        {5000, 6, 128 << 10, 2, 960}, /* beyond what is possible */
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct tt_segment_layout fitted = {.nlocal = 1,
                                           .nchannels = 3,
                                           .nslots = cases[i].nslots,
                                           .slot_bytes = cases[i].slot_bytes,
                                           .meet_bytes = 512};
        tt_segment_fit(&fitted, cases[i].nlocal, (size_t)64 << 30);
        CHECK_MESSAGE(fitted.nslots == cases[i].then_nslots &&
                          fitted.slot_bytes == cases[i].then_slot_bytes,
                      "%d ranks, %zu slots of %zu bytes became %zu of %zu", cases[i].nlocal,
                      cases[i].nslots, cases[i].slot_bytes, fitted.nslots, fitted.slot_bytes);
    }
}

TEST(segment, spares_slots_but_not_below_those_between_hosts)
{
    static const struct {
        int nlocal;
        size_t nslots, then_nslots;
    } cases[] = {{2, 16, 16}, {13, 16, 16}, {16, 16, 10}, {21, 16, 6}, {242, 16, 6}, {242, 4, 4}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct tt_segment_layout spared = {.nlocal = 1,
                                           .nchannels = 3,
                                           .nslots = cases[i].nslots,
                                           .slot_bytes = 128 << 10,
                                           .meet_bytes = 512};
        tt_segment_spare(&spared, cases[i].nlocal, (size_t)1 << 30);
        CHECK_MESSAGE(spared.nslots == cases[i].then_nslots && spared.slot_bytes == 128 << 10,
                      "%d ranks, %zu slots became %zu of %zu bytes", cases[i].nlocal,
                      cases[i].nslots, spared.nslots, spared.slot_bytes);
    }
}

/* Whether a core dump leaves out the mapping that begins at `memory`. */
static bool is_left_out_of_core(const void *memory)
{
    char line[512], begin[32];
    bool here = false, left_out = false;
    FILE *maps = fopen("/proc/self/smaps", "re");
    snprintf(begin, sizeof begin, "%lx-", (unsigned long)memory);
    while (maps && fgets(line, sizeof line, maps)) {
        if (!strncmp(line, begin, strlen(begin))) here = true;
        if (!here || strncmp(line, "VmFlags:", 8)) continue;
        left_out = strstr(line, " dd") != NULL;
        break;
    }
    if (maps) fclose(maps);
    return left_out;
}

TEST(segment, is_left_out_of_core_dumps)
{
    struct tt_segment *segment;
    REQUIRE(tt_segment_create(14, &layout, &segment) == TT_OK);
    CHECK(is_left_out_of_core(segment->header));
    tt_segment_put(segment);
}

TEST(segment, a_core_dump_has_the_windows_of_this_process_but_not_those_of_peers)
{
    void *memory;
    size_t nbytes;
    struct tt_window window;
    struct tt_window_map map = {0};
    REQUIRE(tt_window_create(&memory, 1 << 20) == TT_OK);
    REQUIRE(tt_window_find(memory, 1 << 20, &window));
    REQUIRE(tt_window_map_add(&map, 0, window.fd, window.nbytes) == TT_OK);
    CHECK(is_left_out_of_core(tt_window_map_find(&map, 0, &nbytes)));
    CHECK(!is_left_out_of_core(memory));
    tt_window_map_fini(&map);
    CHECK_EQ(tt_window_free(memory), TT_OK);
}

struct churn {
    _Atomic bool stop;
    uint64_t id;
};

static void *find_and_put(void *argument)
{
    struct churn *churn = argument;
    while (!atomic_load_explicit(&churn->stop, memory_order_relaxed)) {
        struct tt_segment *segment = tt_segment_find(churn->id);
        if (!segment) return argument;
        tt_segment_put(segment);
    }
    return NULL;
}

TEST(segment, is_put_by_a_child_that_was_forked_while_others_looked_for_it)
{
#if defined __SANITIZE_THREAD__
    SKIP("ThreadSanitizer allows no threads after a fork");
#endif
    struct churn churn = {.id = 76};
    struct tt_segment *segment;
    pthread_t thread;
    void *failed = NULL;
    REQUIRE(tt_segment_create(76, &layout, &segment) == TT_OK);
    REQUIRE(pthread_create(&thread, NULL, find_and_put, &churn) == 0);
    const int nforks = tt_test_sanitized() ? 40 : 200;
    for (int i = 0; i < nforks && !tt_test_failed(); i++) {
        int how = -1;
        const pid_t child = fork();
        REQUIRE(child >= 0);
        if (child == 0) {
            alarm(5);
            tt_segment_put(segment);
            _exit(0);
        }
        REQUIRE(waitpid(child, &how, 0) == child);
        CHECK_MESSAGE(WIFEXITED(how) && WEXITSTATUS(how) == 0, "child %d ended with %#x", i, how);
    }
    atomic_store(&churn.stop, true);
    pthread_join(thread, &failed);
    CHECK(!failed);
    tt_segment_put(segment);
}
