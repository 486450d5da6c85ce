/* Ranks on virtual GPUs, as threads and processes, with links between them.
 *
 * Processes are forked, so the test's own process must not use CUDA: it only starts them and
 * waits. */
#ifndef TT_TESTS_TRANSPORT_DEVICE_SCENE_H
#define TT_TESTS_TRANSPORT_DEVICE_SCENE_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "driver/context.h"
#include "transport/device/device_room.h"

enum { MOST_RANKS = 8, MOST_CHANNELS = 4 };

struct placed {
    int process, gpu;
};

/* What the processes share. */
struct scene {
    int nranks, nprocesses;
    struct placed at[MOST_RANKS];
    struct tt_device_room_config config[MOST_RANKS]; /* rank, gpu and process are filled in */
    const char *const *settings;                     /* NAME=value, NULL-terminated; or NULL */
    void (*body)(struct scene *scene, int rank);     /* a thread of each rank runs it */
    pthread_barrier_t all;                           /* of the ranks */
    struct tt_device_offer offers[MOST_RANKS];
    tt_status statuses[MOST_RANKS];
    char texts[MOST_RANKS][TT_ERROR_TEXT];
    pid_t pids[MOST_RANKS]; /* of the processes */
    int reaped[2];          /* a pipe: a byte for each process that has ended */
};

/* A scene in shared memory, of ranks placed as the text says: a word a process, a digit (a GPU)
 * a rank: "00 1" is two ranks of a process on GPU 0 and one of another process on GPU 1. */
struct scene *scene_create(const char *placed);
/* Runs the processes and checks that each ends with status 0, or by SIGKILL if it is `killed` (-1:
 * none). Frees the scene. */
void scene_run(struct scene *scene, int killed);

/* ---- For the ranks -------------------------------------------------------------------------- */

/* Waits for all ranks. */
void scene_meet(struct scene *scene);
/* Offers, exchanges statuses; then connects where all have offered. Whether all ranks have their
 * room; the others' statuses and texts are in the scene. The room may exist after a failure. */
bool scene_open(struct scene *scene, int rank, struct tt_device_room **room);

/* A rank's own look at its links. */
struct seen {
    struct tt_context *context;
    void *module, *store, *load; /* CUmodule, CUfunction */
    void *stream;
    struct tt_device_end ends[MOST_RANKS * MOST_CHANNELS * 2];
};
void seen_open(struct seen *seen, int gpu, const struct tt_device_room *room);
void seen_close(struct seen *seen);
/* Writes all that this rank writes of its links: a different value into the first and the last word
 * of each part. By a kernel of its GPU. */
void seen_write(struct seen *seen, const struct tt_device_room *room, int rank);
/* Reads all that others write and checks that the values are those of the right ranks and
 * channels. */
void seen_check(struct seen *seen, const struct tt_device_room *room, int rank);

size_t scene_available(int gpu); /* bytes of device memory */
int scene_descriptors(void);     /* of this process */

#endif
