/* In place, a copy onto itself writes nothing: a peer may still read the same memory by reference.
 */
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "algorithms/algorithms.h"
#include "executor/calls.h"
#include "program/lower.h"
#include "shim.h"

enum { NRANKS = 2, COUNT = 1 << 19 }; /* so many that results are stored past the caches */

struct part {
    struct tt_loaded *loaded;
    struct tt_binding binding;
    struct tt_work work;
};

/* A broadcast from rank 0 in place, whose messages are copied into slots. Messages are `larger`
 * times as large as they should be. */
static bool begin(struct ranks *ranks, int rank, const char *algorithm, size_t larger,
                  int32_t *data, struct part *part)
{
    struct tt_fabric *fabric = ranks->all.fabrics[rank];
    const struct tt_segment_header *header = fabric->segment->header;
    const struct tt_limits limits = {.slot_bytes = header->slot_bytes,
                                     .meet_bytes = header->meet_bytes};
    const struct tt_shape shape = {
        .collective = TT_BROADCAST, .nranks = NRANKS, .hosts = fabric->hosts};
    struct tt_program *program;
    if (tt_program_create(tt_algorithm_find(TT_BROADCAST, algorithm), &shape, rank, &program))
        return false;
    program->direct_safe = false;
    if (tt_loaded_create(program, fabric, &part->loaded) ||
        tt_program_bind(program, COUNT, sizeof *data, &limits, &part->binding))
        return false;
    part->binding.piece *= larger;
    struct tt_call call = {.loaded = part->loaded,
                           .binding = &part->binding,
                           .input = data,
                           .output = data,
                           .reduction = {.type = TT_INT32, .op = TT_SUM, .nranks = NRANKS}};
    call.signature = tt_call_signature(program, COUNT, &call.reduction);
    call.entry = tt_call_entry_make(program, COUNT, &call.reduction);
    tt_work_collective(&part->work, &ranks->engines[rank], &call);
    return true;
}

/* In place, a copy onto itself writes nothing: a peer may still read that memory by reference. */
TEST(one_call, a_large_copy_onto_itself_writes_nothing)
{
    struct tt_fabric_config config = together_config();
    struct ranks ranks;
    struct part parts[NRANKS];
    const size_t nbytes = COUNT * sizeof(int32_t);
    int32_t *data = mmap(NULL, nbytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    int32_t *received = calloc(COUNT, sizeof *received);
    config.slot_bytes = 1 << 20;
    REQUIRE(data != MAP_FAILED && received != NULL);
    for (int i = 0; i < COUNT; i++) data[i] = i;
    REQUIRE(mprotect(data, nbytes, PROT_READ) == 0); /* a write to it ends the test program */
    REQUIRE(ranks_open(&ranks, NRANKS, &config));
    REQUIRE(begin(&ranks, 0, "direct", 1, data, &parts[0]) &&
            begin(&ranks, 1, "direct", 1, received, &parts[1]));
    CHECK(parts[0].binding.nontemporal);
    while (!tt_work_is_done(&parts[0].work) || !tt_work_is_done(&parts[1].work))
        for (int r = 0; r < NRANKS; r++) REQUIRE(tt_work_advance(&parts[r].work) >= 0);
    CHECK(memcmp(data, received, nbytes) == 0);
    for (int r = 0; r < NRANKS; r++) tt_loaded_destroy(parts[r].loaded);
    ranks_close(&ranks);
    munmap(data, nbytes);
    free(received);
}

static void check_too_large(const char *algorithm, const char *contains)
{
    struct tt_fabric_config config = together_config();
    struct ranks ranks;
    struct part parts[NRANKS];
    int32_t *data[NRANKS];
    config.meet_bytes = config.slot_bytes = 4096;
    REQUIRE(ranks_open(&ranks, NRANKS, &config));
    for (int r = 0; r < NRANKS; r++) {
        data[r] = calloc(COUNT, sizeof *data[r]);
        REQUIRE(data[r] && begin(&ranks, r, algorithm, 2, data[r], &parts[r]));
    }
    tt_status status = TT_IN_PROGRESS;
    for (int turn = 0; turn < 1000 && status >= 0; turn++)
        status = tt_work_advance(&parts[turn % NRANKS].work);
    CHECK_EQ(status, TT_ERR_INTERNAL);
    CHECK_MESSAGE(strstr(tt_last_error(), contains), "%s", tt_last_error());
    for (int r = 0; r < NRANKS; r++) CHECK(tt_run(&parts[r].work, false) < 0);
    for (int r = 0; r < NRANKS; r++) {
        tt_loaded_destroy(parts[r].loaded);
        free(data[r]);
    }
    ranks_close(&ranks);
}

TEST(one_call, a_message_larger_than_a_slot_is_an_error_and_is_not_written)
{
    check_too_large("direct", "8192 bytes does not fit a slot of 4096 bytes");
}

TEST(one_call, a_part_larger_than_its_place_in_a_meeting_is_an_error_and_is_not_written)
{
    check_too_large("meet", "8192 bytes does not fit a place of 4096 bytes");
}

TEST(one_call, of_more_copies_than_its_program_is_loaded_for_is_an_error)
{
    struct tt_fabric_config config = together_config();
    struct ranks ranks;
    struct part part;
    static int32_t data[COUNT];
    config.nchannels = TT_MAX_CHANNELS;
    config.copies = 3;
    REQUIRE(ranks_open(&ranks, NRANKS, &config));
    REQUIRE(begin(&ranks, 0, "direct", 1, data, &part));
    CHECK_EQ(part.loaded->copies, 3);
    part.work.collective.kept.binding.copies = 4;
    CHECK_EQ(tt_work_advance(&part.work), TT_ERR_INTERNAL);
    CHECK_MESSAGE(strstr(tt_last_error(), "runs 4 copies") && strstr(tt_last_error(), "1 to 3"),
                  "%s", tt_last_error());
    tt_loaded_destroy(part.loaded);
    ranks_close(&ranks);
}
