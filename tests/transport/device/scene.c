/* See scene.h. */
#include "transport/device/scene.h"

#include <dirent.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "driver/calls.h"

enum { SECONDS = 100 };

/* list[n] of an address and a value: one block of one thread for each. */
static const char ptx[] =
    ".version 8.0\n.target sm_75\n.address_size 64\n"
    ".visible .entry store(.param .u64 list)\n"
    "{ .reg .u32 %r<2>; .reg .u64 %rd<5>;\n"
    "  ld.param.u64 %rd1, [list]; mov.u32 %r1, %ctaid.x; mul.wide.u32 %rd2, %r1, 16;\n"
    "  add.u64 %rd1, %rd1, %rd2; ld.global.u64 %rd3, [%rd1]; ld.global.u64 %rd4, [%rd1+8];\n"
    "  st.global.u64 [%rd3], %rd4; ret; }\n"
    ".visible .entry load(.param .u64 list)\n"
    "{ .reg .u32 %r<2>; .reg .u64 %rd<5>;\n"
    "  ld.param.u64 %rd1, [list]; mov.u32 %r1, %ctaid.x; mul.wide.u32 %rd2, %r1, 16;\n"
    "  add.u64 %rd1, %rd1, %rd2; ld.global.u64 %rd3, [%rd1]; ld.global.u64 %rd4, [%rd3];\n"
    "  st.global.u64 [%rd1+8], %rd4; ret; }\n";

/* ---- Processes ------------------------------------------------------------------------------ */

struct scene *scene_create(const char *placed)
{
    struct scene *scene =
        mmap(NULL, sizeof *scene, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    pthread_barrierattr_t shared;
    if (scene == MAP_FAILED) return NULL;
    for (const char *at = placed; *at; at++) {
        if (*at == ' ')
            scene->nprocesses++;
        else
            scene->at[scene->nranks++] = (struct placed){scene->nprocesses, *at - '0'};
    }
    scene->nprocesses++;
    for (int r = 0; r < scene->nranks; r++)
        scene->config[r] = (struct tt_device_room_config){
            .nchannels = 3, .nslots = 4, .slot_bytes = 4096, .line_bytes = 1024};
    pthread_barrierattr_init(&shared);
    pthread_barrierattr_setpshared(&shared, PTHREAD_PROCESS_SHARED);
    pthread_barrier_init(&scene->all, &shared, (unsigned)scene->nranks);
    pthread_barrierattr_destroy(&shared);
    return scene;
}

struct player {
    struct scene *scene;
    int rank;
    pthread_t thread;
};

static void *play(void *argument)
{
    const struct player *player = argument;
    player->scene->body(player->scene, player->rank);
    return NULL;
}

static void run_process(struct scene *scene, int process)
{
    struct player players[MOST_RANKS];
    for (int i = 0; scene->settings && scene->settings[i]; i++)
        putenv((char *)(uintptr_t)scene->settings[i]);
    alarm(SECONDS);
    for (int r = 0; r < scene->nranks; r++) {
        players[r] = (struct player){.scene = scene, .rank = r};
        if (scene->at[r].process == process)
            pthread_create(&players[r].thread, NULL, play, &players[r]);
    }
    for (int r = 0; r < scene->nranks; r++)
        if (scene->at[r].process == process) pthread_join(players[r].thread, NULL);
    fflush(stdout);
    if (tt_test_failed()) _exit(1);
    exit(0); /* reports of the virtual GPU change the status */
}

void scene_run(struct scene *scene, int killed)
{
    fflush(stdout);
    CHECK_EQ(pipe(scene->reaped), 0);
    for (int p = 0; p < scene->nprocesses; p++) {
        const pid_t pid = fork();
        if (pid == 0) run_process(scene, p);
        CHECK(pid > 0);
        scene->pids[p] = pid;
    }
    for (int i = 0; i < scene->nprocesses; i++) {
        int status = 0;
        const pid_t ended = waitpid(-1, &status, 0);
        const bool expected = killed >= 0 && ended == scene->pids[killed];
        CHECK_MESSAGE(expected ? WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL : status == 0,
                      "a process ended with status 0x%x", (unsigned)status);
        CHECK_EQ(write(scene->reaped[1], "e", 1), 1);
    }
    close(scene->reaped[0]);
    close(scene->reaped[1]);
    munmap(scene, sizeof *scene);
}

/* ---- Ranks ---------------------------------------------------------------------------------- */

void scene_meet(struct scene *scene)
{
    pthread_barrier_wait(&scene->all);
}

/* Whether all ranks were successful. */
static bool agree(struct scene *scene, int rank, tt_status status)
{
    bool all = true;
    scene->statuses[rank] = status;
    snprintf(scene->texts[rank], TT_ERROR_TEXT, "%s", status ? tt_last_error() : "");
    scene_meet(scene);
    for (int r = 0; r < scene->nranks; r++) all &= scene->statuses[r] == TT_OK;
    scene_meet(scene);
    return all;
}

bool scene_open(struct scene *scene, int rank, struct tt_device_room **room)
{
    struct tt_device_room_config *config = &scene->config[rank];
    config->rank = rank;
    config->nranks = scene->nranks;
    config->gpu = scene->at[rank].gpu;
    config->process_id = 1000 + (uint64_t)scene->at[rank].process;
    config->one_process = scene->nprocesses == 1;
    *room = NULL;
    if (!agree(scene, rank, tt_device_room_offer(room, config, &scene->offers[rank]))) return false;
    return agree(scene, rank, tt_device_room_connect(*room, scene->offers));
}

size_t scene_available(int gpu)
{
    struct tt_context *context = NULL;
    size_t nbytes = 0, total;
    CHECK_EQ(tt_context_open(gpu, &context), TT_OK);
    CHECK_EQ(tt_context_enter(context), TT_OK);
    CALL(cuMemGetInfo_v2, &nbytes, &total);
    tt_context_leave(context);
    tt_context_close(context);
    return nbytes;
}

int scene_descriptors(void)
{
    int n = 0;
    DIR *directory = opendir("/proc/self/fd");
    while (directory && readdir(directory)) n++;
    if (directory) closedir(directory);
    return n;
}

/* ---- Words of links ------------------------------------------------------------------------- */

struct word {
    uint64_t address, value;
};

enum { MOST_WORDS = MOST_RANKS * MOST_CHANNELS * 2 * 8 };
struct words {
    struct word at[MOST_WORDS];
    unsigned n;
};

void seen_open(struct seen *seen, int gpu, const struct tt_device_room *room)
{
    const struct tt_device_links *links = tt_device_room_links(room);
    const size_t nends = (size_t)links->nranks * links->nchannels * 2;
    *seen = (struct seen){.context = NULL};
    CHECK_EQ(tt_context_open(gpu, &seen->context), TT_OK);
    CHECK_EQ(tt_context_stream_create(seen->context, &seen->stream), TT_OK);
    CHECK_EQ(tt_context_enter(seen->context), TT_OK);
    CALL(cuModuleLoadData, (CUmodule *)&seen->module, ptx);
    CALL(cuModuleGetFunction, (CUfunction *)&seen->store, seen->module, "store");
    CALL(cuModuleGetFunction, (CUfunction *)&seen->load, seen->module, "load");
    CALL(cuMemcpyDtoH_v2, seen->ends, (CUdeviceptr)(uintptr_t)links->ends,
         nends * sizeof *seen->ends);
    tt_context_leave(seen->context);
}

void seen_close(struct seen *seen)
{
    CHECK_EQ(tt_context_enter(seen->context), TT_OK);
    CALL(cuModuleUnload, seen->module);
    tt_context_leave(seen->context);
    tt_context_stream_destroy(seen->context, seen->stream);
    tt_context_close(seen->context);
}

static void run_kernel(struct seen *seen, void *kernel, struct words *words)
{
    void *list = NULL;
    if (words->n == 0) return;
    CHECK_EQ(tt_context_allocate(seen->context, sizeof words->at, &list), TT_OK);
    CHECK_EQ(tt_context_upload(seen->context, list, words->at, sizeof words->at), TT_OK);
    CHECK_EQ(tt_context_enter(seen->context), TT_OK);
    CALL(cuLaunchKernel, kernel, words->n, 1, 1, 1, 1, 1, 0, seen->stream, (void *[]){&list}, NULL);
    CALL(cuStreamSynchronize, seen->stream);
    CALL(cuMemcpyDtoH_v2, words->at, (CUdeviceptr)(uintptr_t)list, sizeof words->at);
    tt_context_leave(seen->context);
    tt_context_free(seen->context, list);
}

static void add(struct words *words, const void *address, uint64_t link, unsigned part)
{
    words->at[words->n++] = (struct word){(uint64_t)(uintptr_t)address, link << 8 | part};
}

/* The words of a link that its sender writes, or its receiver. */
static void add_link(struct words *words, const struct tt_device_links *links,
                     const struct tt_device_end *end, uint64_t link, bool of_sender)
{
    const size_t last = links->nslots - 1;
    if (!of_sender) {
        add(words, end->tail, link, 0);
        return;
    }
    add(words, end->slots, link, 1);
    add(words, end->slots + links->nslots * (size_t)links->slot_bytes - 8, link, 2);
    add(words, end->lines, link, 3);
    add(words, end->lines + links->nslots * (size_t)links->line_bytes - 8, link, 4);
    add(words, &end->notes[0].reference, link, 5);
    add(words, &end->notes[last].head, link, 6);
    add(words, end->head, link, 7);
}

/* The words of all links of `rank` that it writes itself (of_mine), or that its peers write. */
static void list_words(struct words *words, const struct seen *seen,
                       const struct tt_device_links *links, uint32_t rank, bool of_mine)
{
    words->n = 0;
    for (uint32_t peer = 0; peer < links->nranks; peer++)
        for (uint32_t channel = 0; peer != rank && channel < links->nchannels; channel++)
            for (uint32_t outgoing = 0; outgoing < 2; outgoing++) {
                const uint32_t sender = outgoing ? rank : peer, receiver = outgoing ? peer : rank;
                const uint64_t link =
                    (sender * MOST_RANKS + receiver) * MOST_CHANNELS + channel + 1;
                add_link(words, links,
                         &seen->ends[tt_device_end_at(links->nchannels, peer, channel, outgoing)],
                         link, of_mine ? outgoing : !outgoing);
            }
}

void seen_write(struct seen *seen, const struct tt_device_room *room, int rank)
{
    struct words words = {.n = 0};
    list_words(&words, seen, tt_device_room_links(room), (uint32_t)rank, true);
    run_kernel(seen, seen->store, &words);
}

void seen_check(struct seen *seen, const struct tt_device_room *room, int rank)
{
    struct words words = {.n = 0};
    list_words(&words, seen, tt_device_room_links(room), (uint32_t)rank, false);
    const struct words expected = words;
    CHECK(words.n ==
          8 * (tt_device_room_links(room)->nranks - 1) * tt_device_room_links(room)->nchannels);
    run_kernel(seen, seen->load, &words);
    for (unsigned i = 0; i < words.n; i++)
        CHECK_MESSAGE(words.at[i].value == expected.at[i].value,
                      "rank %d, word %u: 0x%llx, expected 0x%llx", rank, i,
                      (unsigned long long)words.at[i].value,
                      (unsigned long long)expected.at[i].value);
}
