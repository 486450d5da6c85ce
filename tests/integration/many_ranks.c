/* More ranks on a host than usual, as threads of one process: what does not fit is not chosen, what
 * is forced and does not fit is an error. */
#include <string.h>
#include <sys/wait.h>

#include "ranks.h"
#include "shim.h"

enum { RIGHT = 0, FAILED = 3, WAIT_MS = 60000 };

/* Runs one collective of one double on so many ranks; the process must exit with `code`. Its stderr
 * is in the job. */
static void run_crowd(struct job *job, const char *nranks, const char *collective, int code,
                      const char *const *settings)
{
    const char *const args[] = {"crowd", nranks, collective, NULL};
    REQUIRE(job_start(job, 1, args, settings, NULL));
    CHECK_MESSAGE(job_wait(job, WAIT_MS), "%s on %s ranks hung", collective, nranks);
    const int status = job->ranks[0].status;
    CHECK_MESSAGE(WIFEXITED(status) && WEXITSTATUS(status) == code,
                  "%s on %s ranks: status %#x, expected exit %d:\n%s", collective, nranks,
                  (unsigned)status, code, job->ranks[0].text);
}

TEST(many_ranks, choose_what_fits_small_meetings_and_slots)
{
    static const char *const meetings[] = {"TUTTI_MEET_BYTES=1024", NULL};
    static const char *const slots[] = {"TUTTI_MEET_BYTES=1024", "TUTTI_SLOT_BYTES=1024", NULL};
    static struct job job;
    run_crowd(&job, "130", "all_gather", RIGHT, meetings);
    run_crowd(&job, "130", "all_to_all", RIGHT, meetings);
    run_crowd(&job, "130", "all_to_all", RIGHT, slots);
}

TEST(many_ranks, get_an_error_from_a_forced_meeting_that_is_too_small)
{
    static const char *const forced[] = {"TUTTI_MEET_BYTES=1024", "TUTTI_ALGORITHM=meet", NULL};
    static struct job job;
    run_crowd(&job, "130", "all_gather", RIGHT, forced); /* each puts in one block */
    run_crowd(&job, "130", "all_to_all", FAILED, forced);
    const char *text = job.ranks[0].text;
    CHECK_MESSAGE(strstr(text, "TUTTI_MEET_BYTES=1024") && strstr(text, "at least 1088") &&
                      strstr(text, "all_to_all"),
                  "the error names not the setting, its value and the least that works:\n%s", text);
}

TEST(many_ranks, are_told_that_slots_were_shrunk)
{
    static const char *const settings[] = {"TUTTI_LOG=INFO", "TUTTI_ALGORITHM=all_reduce:ring",
                                           "TUTTI_SLOT_BYTES=4M", NULL};
    static struct job job;
    run_crowd(&job, "43", "all_reduce", RIGHT, settings);
    CHECK_MESSAGE(strstr(job.ranks[0].text, "6 slots of 1048576 bytes instead of TUTTI_SLOTS=16 of "
                                            "TUTTI_SLOT_BYTES=4194304"),
                  "it is not said:\n%s", job.ranks[0].text);
}

TEST(many_ranks, all_reduce_over_rings_and_halves)
{
    static const char *const ring[] = {"TUTTI_ALGORITHM=all_reduce:ring", NULL};
    static const char *const halves[] = {"TUTTI_ALGORITHM=all_reduce:recursive_halving", NULL};
    const char *nranks = SANITIZED ? "61" : "242";
    static struct job job;
    run_crowd(&job, nranks, "all_reduce", RIGHT, ring);
    run_crowd(&job, nranks, "all_reduce", RIGHT, halves);
}
