/* What programs do to descriptors 0 to 2, and to those of the library, behind its back. */
#include <stdio.h>

#include "ranks.h"
#include "shim.h"

enum { WAIT_MS = 60000 };

static void run(const char *hosts, const char *what, const char *setting)
{
    static struct job job;
    const char *const extra[] = {"TUTTI_LOG=INFO", "TUTTI_TIMEOUT_MS=20000",
                                 "TUTTI_INIT_TIMEOUT_MS=20000", setting, NULL};
    printf("%s on %s%s%s\n", what, hosts, setting ? ", " : "", setting ? setting : "");
    REQUIRE(job_start_on(&job, hosts, (const char *const[]){what, NULL}, extra));
    CHECK_MESSAGE(job_wait(&job, WAIT_MS), "some rank hung");
    job_check_exit(&job, 0);
}

TEST(descriptors, ranks_without_standard_streams_work_and_write_into_nothing)
{
    static const char *const settings[] = {NULL, "TUTTI_TRANSPORT=cma", "TUTTI_ENCRYPT=1",
                                           "TUTTI_SOCKETS=3"};
    static const char *const hosts[] = {"aaa", "aab", "ab"};
    for (size_t h = 0; h < sizeof hosts / sizeof *hosts; h++)
        for (size_t s = 0; s < sizeof settings / sizeof *settings && !tt_test_failed(); s++)
            run(hosts[h], "closed", settings[s]);
}

/* As daemons do; then files of the program have the numbers of the library's connections. */
TEST(descriptors, a_program_that_closes_all_is_told_so_and_keeps_its_own_files)
{
    static const char *const hosts[] = {"aa", "ab", "aab"};
    for (size_t h = 0; h < sizeof hosts / sizeof *hosts; h++) run(hosts[h], "closefrom", NULL);
    run("ab", "closefrom", "TUTTI_ENCRYPT=1");
}
