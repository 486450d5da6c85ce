/* Runs a function on ranks as threads, and as processes. */
#include "ranks.h"

#include <dirent.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "shim.h"

enum { MAX_THREADS = 64 };

struct member {
    pthread_t thread;
    int rank, nranks;
    tuttiUniqueId id;
    const tuttiConfig_t *config;
    void (*body)(int, tuttiComm_t, void *);
    void *arg;
};

static void *run_member(void *argument)
{
    struct member *member = argument;
    tuttiComm_t comm = NULL;
    const tuttiResult_t result =
        tuttiCommInitRankConfig(&comm, member->nranks, member->id, member->rank, member->config);
    CHECK_MESSAGE(result == tuttiSuccess, "init of rank %d: %s", member->rank,
                  tuttiGetLastError(NULL));
    if (result != tuttiSuccess) return NULL;
    member->body(member->rank, comm, member->arg);
    CHECK_EQ(tuttiCommDestroy(comm), tuttiSuccess);
    return NULL;
}

void as_threads(int nranks, const tuttiConfig_t *config,
                void (*body)(int rank, tuttiComm_t comm, void *arg), void *arg)
{
    struct member members[MAX_THREADS];
    tuttiUniqueId id;
    REQUIRE(nranks <= MAX_THREADS);
    REQUIRE(tuttiGetUniqueId(&id) == tuttiSuccess);
    for (int r = 0; r < nranks; r++) {
        members[r] = (struct member){
            .rank = r, .nranks = nranks, .id = id, .config = config, .body = body, .arg = arg};
        REQUIRE(pthread_create(&members[r].thread, NULL, run_member, &members[r]) == 0);
    }
    for (int r = 0; r < nranks; r++) pthread_join(members[r].thread, NULL);
}

int64_t now_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

int count_fds(void)
{
    int n = 0;
    DIR *dir = opendir("/proc/self/fd");
    if (!dir) return -1;
    while (readdir(dir)) n++;
    closedir(dir);
    return n - 3; /* ".", ".." and the directory itself */
}
