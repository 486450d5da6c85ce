/* Rooms of ranks on virtual GPUs: threads and processes, one GPU and two, failures, ends. */
#include "transport/device/device_room.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "driver/driver.h"
#include "shim.h"
#include "transport/device/scene.h"

/* Everything that is written at one end is seen at the other one. */
static void use_links(struct scene *scene, int rank)
{
    struct tt_device_room *room;
    struct seen seen;
    if (scene_open(scene, rank, &room)) {
        seen_open(&seen, scene->at[rank].gpu, room);
        scene_meet(scene);
        seen_write(&seen, room, rank);
        scene_meet(scene);
        seen_check(&seen, room, rank);
        seen_close(&seen);
    } else {
        tt_test_fail(__FILE__, __LINE__, "rank %d: %s", rank, scene->texts[rank]);
    }
    scene_meet(scene);
    tt_device_room_destroy(room);
}

static void run(const char *placed, void (*body)(struct scene *scene, int rank))
{
    struct scene *scene = scene_create(placed);
    REQUIRE(scene != NULL);
    scene->body = body;
    scene_run(scene, -1);
}

TEST(room, threads_on_one_gpu_see_what_their_peers_write)
{
    static const char all[] = "00000000";
    for (int nranks = 1; nranks <= 8; nranks++) run(all + 8 - nranks, use_links);
}

TEST(room, threads_on_two_gpus_see_what_their_peers_write)
{
    run("01", use_links);
    run("0101", use_links);
    run("00011101", use_links);
}

TEST(room, processes_on_one_gpu_see_what_their_peers_write)
{
    run("0 0", use_links);
    run("0 0 0", use_links);
    run("0 0 0 0 0 0 0 0", use_links);
}

TEST(room, processes_and_threads_on_two_gpus_see_what_their_peers_write)
{
    run("0 1", use_links);
    run("01 10", use_links);
    run("000 1 0 110", use_links);
}

/* A program that keeps the context, by a stream perhaps, and makes communicators with processes
 * that come and go. */
static void leave_memory(struct scene *scene, int rank)
{
    struct tt_device_room *room;
    struct tt_context *context;
    struct tt_pointer found;
    struct seen seen;
    CHECK_EQ(tt_context_open(scene->at[rank].gpu, &context), TT_OK);
    CHECK(scene_open(scene, rank, &room));
    seen_open(&seen, scene->at[rank].gpu, room);
    const uint32_t nchannels = tt_device_room_links(room)->nchannels;
    const char *peers = seen.ends[tt_device_end_at(nchannels, (uint32_t)!rank, 0, 1)].slots;
    seen_close(&seen);
    tt_device_room_destroy(room);
    CHECK_EQ(tt_driver_pointer(peers, &found), TT_OK);
    CHECK_EQ(found.kind, TT_POINTER_DEVICE); /* it is kept: to close it would wait for kernels */
    tt_context_let_go(context);
    CHECK_EQ(tt_driver_pointer(peers, &found), TT_OK);
    CHECK_EQ(found.kind, TT_POINTER_HOST);
    scene_meet(scene);
    tt_context_close(context);
}

TEST(room, memory_of_a_process_that_was_a_peer_is_let_go_while_the_context_stays)
{
    run("0 0", leave_memory);
    run("0 1", leave_memory);
}

/* ---- What the ends say ---------------------------------------------------------------------- */

static void check_end(const struct scene *scene, int rank, int peer,
                      const struct tt_device_end *end)
{
    const struct placed *mine = &scene->at[rank], *theirs = &scene->at[peer];
    if (rank == peer) {
        const struct tt_device_end own = {.places = end->outgoing ? end->places : NULL,
                                          .outgoing = end->outgoing};
        CHECK(!memcmp(end, &own, sizeof own));
        CHECK(!end->outgoing || end->places);
        return;
    }
    const bool here = mine->process == theirs->process && mine->gpu == theirs->gpu;
    CHECK_EQ(end->reaches, here ? TT_REACHES_ALL : TT_REACHES_OPENED);
    CHECK_EQ(end->system, mine->process != theirs->process || mine->gpu != theirs->gpu);
    CHECK(end->count == 0 && end->known_tail == 0);
}

static void look_at_links(struct scene *scene, int rank)
{
    static const char *const words[] = {"device memory", "peer access to GPU "};
    struct tt_device_room *room;
    struct seen seen;
    int nsharers = 0;
    CHECK(scene_open(scene, rank, &room));
    seen_open(&seen, scene->at[rank].gpu, room);
    const struct tt_device_links *links = tt_device_room_links(room);
    CHECK(links->nranks == (unsigned)scene->nranks && links->nchannels == 3 && links->nslots == 4 &&
          links->slot_bytes == 4096 && links->line_bytes == 1024);
    CHECK(tt_device_room_bytes(room) > 0 && tt_device_room_bytes(room) % (2 << 20) == 0);
    for (int peer = 0; peer < scene->nranks; peer++) {
        const struct placed *mine = &scene->at[rank], *theirs = &scene->at[peer];
        const bool same = mine->gpu == theirs->gpu;
        char text[64], expected[64];
        nsharers += same;
        for (uint32_t i = 0; i < 2 * links->nchannels; i++)
            check_end(scene, rank, peer,
                      &seen.ends[tt_device_end_at(3, (uint32_t)peer, i / 2, i % 2)]);
        tt_device_room_describe(room, peer, text, sizeof text);
        snprintf(expected, sizeof expected, "%s%s%s", words[!same],
                 same               ? ""
                 : theirs->gpu == 0 ? "0"
                                    : "1",
                 mine->process == theirs->process ? "" : " by IPC");
        CHECK_STR(text, expected);
    }
    CHECK_EQ(tt_device_room_sharers(room), nsharers);
    seen_close(&seen);
    scene_meet(scene);
    tt_device_room_destroy(room);
}

TEST(room, ends_say_who_can_read_whose_memory_and_which_scope_is_needed)
{
    run("001 10", look_at_links);
}

/* ---- Failures ------------------------------------------------------------------------------- */

static void differ(struct scene *scene, int rank)
{
    struct tt_device_room *room;
    if (rank == 2) scene->config[rank].slot_bytes = 8192;
    CHECK(!scene_open(scene, rank, &room));
    CHECK_EQ(scene->statuses[rank], TT_ERR_USAGE);
    CHECK_STR(
        scene->texts[rank],
        "rank 0 has 3 channels of 4 slots of 4096 bytes and 1024 bytes of lines between GPUs, "
        "rank 2 has 3 of 4 of 8192 and 1024: give all ranks the same TUTTI_DEVICE_CHANNELS, "
        "TUTTI_DEVICE_SLOTS, TUTTI_DEVICE_SLOT_BYTES and TUTTI_DEVICE_LINE_BYTES");
    tt_device_room_destroy(room);
}

TEST(room, ranks_whose_settings_differ_are_named)
{
    run("00 1", differ);
}

static void expect_refusal(struct tt_device_room_config config, const char *text)
{
    struct tt_device_room *room = NULL;
    struct tt_device_offer offer;
    CHECK_EQ(tt_device_room_offer(&room, &config, &offer), TT_ERR_USAGE);
    CHECK_MESSAGE(strstr(tt_last_error(), text), "no \"%s\" in: %s", text, tt_last_error());
    CHECK(room == NULL);
}

static void offer_nonsense(struct scene *scene, int rank)
{
    struct tt_device_room_config good = scene->config[rank], config;
    good.nranks = 2;
    config = good;
    config.nslots = 3;
    expect_refusal(config, "TUTTI_DEVICE_SLOTS is 3: give a power of two from 2 to 64");
    config.nslots = 1;
    expect_refusal(config, "TUTTI_DEVICE_SLOTS is 1");
    config = good;
    config.slot_bytes = 1000;
    expect_refusal(config, "TUTTI_DEVICE_SLOT_BYTES is 1000: give a multiple of 16");
    config = good;
    config.line_bytes = 0;
    expect_refusal(config, "TUTTI_DEVICE_LINE_BYTES is 0");
    config = good;
    config.gpu = 7;
    struct tt_device_room *room = NULL;
    struct tt_device_offer offer;
    CHECK_EQ(tt_device_room_offer(&room, &config, &offer), TT_ERR_ARGUMENT);
    CHECK(strstr(tt_last_error(), "GPU 7 does not exist") != NULL);
}

TEST(room, impossible_settings_are_named)
{
    run("0", offer_nonsense);
}

static void connect_without_gpu(struct scene *scene, int rank)
{
    struct tt_device_room *room = NULL;
    scene->config[rank].nranks = scene->nranks;
    scene->config[rank].rank = rank;
    CHECK_EQ(tt_device_room_offer(&room, &scene->config[rank], &scene->offers[rank]), TT_OK);
    scene_meet(scene);
    if (rank == 1) scene->offers[1].gpu = -1;
    scene_meet(scene);
    CHECK_EQ(tt_device_room_connect(room, scene->offers), TT_ERR_USAGE);
    CHECK_STR(tt_last_error(), "rank 1 has no GPU");
    tt_device_room_destroy(room);
}

TEST(room, a_rank_without_a_gpu_is_named)
{
    run("00", connect_without_gpu);
}

/* GPU 1 has no room for rank 1's links. */
static void run_out_of_memory(struct scene *scene, int rank)
{
    struct tt_context *context = NULL;
    struct tt_device_room *room;
    void *most = NULL;
    const size_t before = scene_available(scene->at[rank].gpu);
    scene->config[rank].slot_bytes = 1 << 20;
    CHECK_EQ(tt_context_open(scene->at[rank].gpu, &context), TT_OK);
    if (rank == 1) CHECK_EQ(tt_context_allocate(context, before - (4 << 20), &most), TT_OK);
    CHECK(!scene_open(scene, rank, &room));
    CHECK(room == NULL || rank == 0);
    CHECK_EQ(scene->statuses[0], TT_OK);
    CHECK_EQ(scene->statuses[1], TT_ERR_SYSTEM);
    CHECK(strstr(scene->texts[1],
                 "rank 1 has no memory for its links with 1 ranks on 3 channels of "
                 "4 slots of 1048576 bytes and 1024 bytes of lines") != NULL);
    CHECK(strstr(scene->texts[1], "GPU 1 is out of memory: ") != NULL);
    CHECK(strstr(scene->texts[1], " bytes were asked for, 4194304 of ") != NULL);
    tt_device_room_destroy(room);
    tt_context_free(context, most);
    tt_context_close(context);
    CHECK_EQ(scene_available(scene->at[rank].gpu), before);
}

static void run_with(const char *placed, const char *const settings[],
                     void (*body)(struct scene *scene, int rank))
{
    struct scene *scene = scene_create(placed);
    REQUIRE(scene != NULL);
    scene->body = body;
    scene->settings = settings;
    scene_run(scene, -1);
}

TEST(room, out_of_memory_in_one_rank_fails_with_what_it_was_for)
{
    static const char *const settings[] = {"VGPU_MEMORY=64M", NULL};
    run_with("01", settings, run_out_of_memory);
    run_with("0 1", settings, run_out_of_memory);
}

/* What was freed is too small, and kept as long as there is other memory. */
static void allocate_more(struct scene *scene, int rank)
{
    struct tt_context *context = NULL;
    void *memory = NULL;
    CHECK_EQ(tt_context_open(scene->at[rank].gpu, &context), TT_OK);
    for (size_t mib = 20; mib <= 60; mib += 20) {
        CHECK_EQ(tt_context_allocate(context, mib << 20, &memory), TT_OK);
        tt_context_free(context, memory);
    }
    CHECK_EQ(tt_context_allocate(context, 65 << 20, &memory), TT_ERR_SYSTEM);
    CHECK(strstr(tt_last_error(), "68157440 bytes were asked for, 67108864 of 67108864 are free") !=
          NULL);
    tt_context_close(context);
}

TEST(room, memory_that_was_freed_goes_back_to_the_driver_when_there_is_no_other)
{
    static const char *const settings[] = {"VGPU_MEMORY=64M", NULL};
    run_with("0", settings, allocate_more);
}

static void have_no_access(struct scene *scene, int rank)
{
    char expected[128];
    struct tt_device_room *room;
    const bool same = scene->nprocesses == 1;
    CHECK(!scene_open(scene, rank, &room));
    CHECK_EQ(scene->statuses[rank], TT_ERR_USAGE);
    snprintf(expected, sizeof expected,
             "of device memory of rank %d on GPU %d%s: GPU %d cannot "
             "access the memory of GPU %d",
             1 - rank, 1 - rank, same ? "" : " of another process", rank, 1 - rank);
    CHECK_MESSAGE(strstr(scene->texts[rank], expected), "no \"%s\" in: %s", expected,
                  scene->texts[rank]);
    tt_device_room_destroy(room);
}

TEST(room, gpus_without_peer_access_are_both_named)
{
    static const char *const settings[] = {"VGPU_PEERS=0", NULL};
    run_with("01", settings, have_no_access);
    run_with("0 1", settings, have_no_access);
}

/* ---- Death ---------------------------------------------------------------------------------- */

static void await_death(struct scene *scene)
{
    char byte;
    CHECK_EQ(read(scene->reaped[0], &byte, 1), 1);
}

/* Rank 1's process is killed when its memory is in use; rank 0 goes on. */
static void lose_peer(struct scene *scene, int rank)
{
    struct tt_device_room *room;
    struct seen seen;
    const int descriptors = rank == 0 ? (scene_available(0), scene_descriptors()) : 0;
    const size_t before = scene_available(0);
    CHECK(scene_open(scene, rank, &room));
    seen_open(&seen, scene->at[rank].gpu, room);
    seen_write(&seen, room, rank);
    scene_meet(scene);
    if (rank == 1) raise(SIGKILL);
    await_death(scene);
    seen_write(&seen, room, rank); /* into the memory of the dead */
    seen_check(&seen, room, rank); /* what rank 1 has written */
    seen_close(&seen);
    tt_device_room_destroy(room);
    CHECK_EQ(scene_available(0), before);
    CHECK_EQ(scene_descriptors(), descriptors);
}

TEST(room, a_killed_peer_leaves_its_memory_and_the_others_clean_up)
{
    struct scene *scene = scene_create("0 0");
    REQUIRE(scene != NULL);
    scene->body = lose_peer;
    scene_run(scene, 1);
}

/* Rank 1's process is killed between its offer and rank 0's connection. */
static void miss_peer(struct scene *scene, int rank)
{
    struct tt_device_room *room = NULL;
    struct tt_device_room_config *config = &scene->config[rank];
    *config = (struct tt_device_room_config){.rank = rank,
                                             .nranks = 2,
                                             .nchannels = 1,
                                             .nslots = 2,
                                             .slot_bytes = 1024,
                                             .line_bytes = 1024,
                                             .process_id = (uint64_t)rank};
    CHECK_EQ(tt_device_room_offer(&room, config, &scene->offers[rank]), TT_OK);
    scene_meet(scene);
    if (rank == 1) raise(SIGKILL);
    await_death(scene);
    CHECK_EQ(tt_device_room_connect(room, scene->offers), TT_ERR_DEVICE);
    CHECK(strstr(tt_last_error(),
                 "rank 0 on GPU 0 cannot use the 2097152 bytes of device memory of "
                 "rank 1 on GPU 0 of another process: cuIpcOpenMemHandle failed: "
                 "CUDA_ERROR_INVALID_HANDLE") != NULL);
    tt_device_room_destroy(room);
}

TEST(room, a_peer_that_died_before_the_connection_is_named)
{
    struct scene *scene = scene_create("0 0");
    REQUIRE(scene != NULL);
    scene->body = miss_peer;
    scene_run(scene, 1);
}

/* ---- The end -------------------------------------------------------------------------------- */

/* Opens, uses and destroys rooms: one after the other, in another order each time. */
static void take_turns(struct scene *scene, int rank)
{
    for (int turn = 0; turn < 2 * scene->nranks; turn++) {
        struct tt_device_room *room;
        struct seen seen;
        CHECK(scene_open(scene, rank, &room));
        seen_open(&seen, scene->at[rank].gpu, room);
        seen_write(&seen, room, rank);
        scene_meet(scene);
        seen_check(&seen, room, rank);
        seen_close(&seen);
        for (int r = 0; r < scene->nranks; r++) {
            const int place = turn < scene->nranks ? r : scene->nranks - 1 - r;
            scene_meet(scene);
            if ((place + turn) % scene->nranks == rank) tt_device_room_destroy(room);
        }
    }
}

static void leave_in_turn(struct scene *scene, int rank)
{
    const int gpu = scene->at[rank].gpu;
    const bool counts = rank == 0 || scene->at[rank - 1].process != scene->at[rank].process;
    struct tt_context *context = NULL;
    (void)scene_available(1 - gpu);
    const size_t before = scene_available(gpu);
    scene_meet(scene);
    const int descriptors = counts ? scene_descriptors() : 0; /* counting takes one */
    scene_meet(scene);
    take_turns(scene, rank);
    CHECK_EQ(tt_context_open(gpu, &context), TT_OK);
    scene_meet(scene);
    take_turns(scene, rank);
    tt_context_close(context);
    scene_meet(scene);
    CHECK_EQ(scene_available(gpu), before);
    scene_meet(scene);
    if (counts) CHECK_EQ(scene_descriptors(), descriptors);
    scene_meet(scene);
}

TEST(room, destroyed_in_any_order_nothing_is_left)
{
    run("011", leave_in_turn);
    run("00 1 0", leave_in_turn);
}

TEST(room, no_room_can_be_destroyed)
{
    tt_device_room_destroy(NULL);
}
