/* A rank of a program for which NCCL's variables count:
 *   nccl_rank env               joins as the launcher says; rank 0 prints algorithms and links
 *   nccl_rank id RANK NRANKS    joins twice by a unique id of its own (NCCL_COMM_ID)
 *   nccl_rank fork              makes an id, and two ranks that are its children
 *   nccl_rank late              asks for NCCL's variables when the settings have been read
 *   nccl_rank wait              is two ranks, of which one comes half a second later than the other
 *   nccl_rank value NAME        prints the value of one of NCCL's variables */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "tutti.h"

static int fail(const char *what)
{
    fprintf(stderr, "nccl_rank: %s: %s\n", what, tuttiGetLastError(NULL));
    return 1;
}

static int sum_is_right(tuttiComm_t comm, int rank, int nranks)
{
    float data[3] = {(float)rank, 1, 2};
    if (tuttiAllReduce(data, data, 3, tuttiFloat32, tuttiSum, comm, NULL) != tuttiSuccess) return 0;
    return data[0] == (float)(nranks * (nranks - 1) / 2) && data[1] == (float)nranks;
}

static void print_line(void *arg, const char *line)
{
    printf("%s%s\n", (const char *)arg, line);
}

static int join_by_launcher(void)
{
    static char link[] = "link ";
    tuttiComm_t comm;
    int rank, nranks;
    if (tuttiCommInitEnv(&comm, NULL, NULL) != tuttiSuccess) return fail("init");
    if (tuttiCommUserRank(comm, &rank) != tuttiSuccess) return fail("rank");
    if (tuttiCommCount(comm, &nranks) != tuttiSuccess) return fail("count");
    if (!sum_is_right(comm, rank, nranks)) return fail("all-reduce");
    for (int i = 0; rank == 0 && i < tuttiNumCollectives; i++) {
        const char *name = "?";
        if (tuttiCommGetAlgorithm(comm, (tuttiCollective_t)i, 1 << 20, &name) != tuttiSuccess)
            return fail("algorithm");
        printf("%d %s\n", i, name);
    }
    if (rank == 0) (void)tuttiDescribe(tuttiDescribeLinks, comm, print_line, link);
    fflush(stdout);
    return tuttiCommDestroy(comm) != tuttiSuccess;
}

static int join_by_id(int rank, int nranks)
{
    for (int i = 0; i < 2; i++) {
        tuttiUniqueId id;
        tuttiComm_t comm;
        if (tuttiGetUniqueId(&id) != tuttiSuccess) return fail("id");
        if (tuttiCommInitRank(&comm, nranks, id, rank) != tuttiSuccess) return fail("init");
        if (!sum_is_right(comm, rank, nranks)) return fail("all-reduce");
        if (tuttiCommDestroy(comm) != tuttiSuccess) return fail("destroy");
    }
    printf("rank %d is right\n", rank);
    return 0;
}

/* `both`: the end of a pipe that ends when both children exist. */
static int join_as_child(const tuttiUniqueId *id, int rank, int both)
{
    static char link[] = "link ";
    tuttiComm_t comm;
    char none;
    if (read(both, &none, 1) != 0) return fail("pipe");
    if (tuttiCommInitRank(&comm, 2, *id, rank) != tuttiSuccess) return fail("init");
    if (!sum_is_right(comm, rank, 2)) return fail("all-reduce");
    if (rank == 0) (void)tuttiDescribe(tuttiDescribeLinks, comm, print_line, link);
    fflush(stdout);
    return tuttiCommDestroy(comm) != tuttiSuccess;
}

static int fork_ranks(void)
{
    tuttiUniqueId id;
    pid_t pids[2];
    int failed = 0, both[2];
    if (pipe(both) || tuttiGetUniqueId(&id) != tuttiSuccess) return fail("id");
#ifdef __SANITIZE_ADDRESS__
    usleep(200000); /* a child has locks of GCC's sanitizer as the id's thread, which begins, had
                       them */
#endif
    for (int rank = 0; rank < 2; rank++) {
        pids[rank] = fork();
        if (pids[rank]) continue;
        close(both[1]);
        _exit(join_as_child(&id, rank, both[0]));
    }
    close(both[1]);
    for (int rank = 0; rank < 2; rank++) {
        int status = 1;
        if (pids[rank] < 0 || waitpid(pids[rank], &status, 0) < 0 || status) failed = 1;
    }
    return failed;
}

static int ask_late(void)
{
    static char nothing[] = "";
    (void)tuttiDescribe(tuttiDescribeConfig, NULL, print_line, nothing);
    if (tuttiUseNcclSettings() != tuttiInvalidUsage) return fail("late, and yet taken");
    printf("%s\n", tuttiGetLastError(NULL));
    return 0;
}

static void *meet(void *comm)
{
    return (void *)(size_t)tuttiBarrier(comm, NULL);
}

static int wait_for_rank(void)
{
    tuttiComm_t comms[2];
    pthread_t thread;
    struct timespec until;
    void *result;
    if (tuttiCommInitAll(comms, 2, NULL) != tuttiSuccess) return fail("init");
    if (pthread_create(&thread, NULL, meet, comms[0])) return 1;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_nsec += 500000000;
    until.tv_sec += until.tv_nsec / 1000000000;
    until.tv_nsec %= 1000000000;
    if (!pthread_timedjoin_np(thread, &result, &until)) return fail("nobody was waited for");
    if (tuttiBarrier(comms[1], NULL) != tuttiSuccess) return fail("barrier");
    pthread_join(thread, &result);
    return result || tuttiCommDestroy(comms[0]) || tuttiCommDestroy(comms[1]);
}

static int print_value(const char *name)
{
    char value[256];
    if (tuttiGetNcclSetting(name, value, sizeof value) != tuttiSuccess) return fail("value");
    printf("%s\n", value);
    if (!value[0]) return 0;
    return tuttiGetNcclSetting(name, value, strlen(value)) != tuttiInvalidArgument; /* no room */
}

int main(int argc, char **argv)
{
    const char *what = argc > 1 ? argv[1] : "";
    if (!strcmp(what, "late")) return ask_late();
    if (tuttiUseNcclSettings() != tuttiSuccess) return fail("settings");
    if (!strcmp(what, "env")) return join_by_launcher();
    if (!strcmp(what, "fork")) return fork_ranks();
    if (!strcmp(what, "wait")) return wait_for_rank();
    if (!strcmp(what, "id") && argc == 4) return join_by_id(atoi(argv[2]), atoi(argv[3]));
    if (!strcmp(what, "value") && argc == 3) return print_value(argv[2]);
    fprintf(stderr, "nccl_rank: see the top of nccl_rank.c\n");
    return 2;
}
