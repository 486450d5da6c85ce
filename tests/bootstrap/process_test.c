/* Ranks as processes, where it matters: death, limits. */
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "ranks.h"
#include "shim.h"

/* Forks a process that runs `run` and ends with 0 when it ended with `status` and `text`. */
static pid_t fork_rank(struct rank_run run, tt_status status, const char *text)
{
    const pid_t pid = fork();
    if (pid) return pid;
    run_rank(&run);
    const bool right = run.status == status && !run.wrong && (!text || strstr(run.text, text));
    if (!right) fprintf(stderr, "rank %d: status %d '%s'\n", run.rank, run.status, run.text);
    _exit(right ? 0 : 1);
}

static void expect_exit(pid_t pid)
{
    int status;
    REQUIRE(waitpid(pid, &status, 0) == pid);
    CHECK_MESSAGE(status == 0, "a rank's process ended with status %#x", (unsigned)status);
}

TEST(process, four_processes_join)
{
    struct tt_unique_id id;
    pid_t pids[4];
    REQUIRE(tt_unique_id_create(&id) == TT_OK);
    for (int rank = 0; rank < 4; rank++)
        pids[rank] = fork_rank(rank_run_of(&id, rank, 4), TT_OK, NULL);
    for (int rank = 0; rank < 4; rank++) expect_exit(pids[rank]);
}

TEST(process, too_few_descriptors_are_named_with_the_remedy)
{
    const pid_t pid = fork();
    if (pid == 0) {
        struct tt_unique_id id;
        const struct rlimit limit = {.rlim_cur = 3, .rlim_max = 3};
        setrlimit(RLIMIT_NOFILE, &limit);
        const bool right = tt_unique_id_create(&id) == TT_ERR_SYSTEM &&
                           strstr(tt_last_error(), "no file descriptor is left of 3");
        if (!right) fprintf(stderr, "'%s'\n", tt_last_error());
        _exit(right ? 0 : 1);
    }
    expect_exit(pid);
}

TEST(process, a_root_out_of_descriptors_tells_those_who_came)
{
#ifdef __SANITIZE_THREAD__
    SKIP("ThreadSanitizer allows no threads after a fork");
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
    SKIP("ThreadSanitizer allows no threads after a fork");
#endif
#endif
    const pid_t pid = fork();
    if (pid == 0) {
        struct tt_unique_id id;
        struct rank_run runs[40];
        const struct rlimit limit = {.rlim_cur = 40, .rlim_max = 40};
        setrlimit(RLIMIT_NOFILE, &limit);
        if (tt_unique_id_create(&id) != TT_OK) _exit(2);
        for (int rank = 0; rank < 40; rank++) {
            runs[rank] = rank_run_of(&id, rank, 40);
            runs[rank].timeout_ms = 3000;
        }
        run_ranks(runs, 40);
        int nright = 0;
        for (int rank = 0; rank < 40; rank++)
            nright += strstr(runs[rank].text, "ulimit -n") != NULL;
        if (nright < 1) fprintf(stderr, "'%s'\n", runs[0].text);
        _exit(nright >= 1 ? 0 : 1);
    }
    expect_exit(pid);
}
