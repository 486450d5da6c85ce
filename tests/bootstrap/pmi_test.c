/* Tests of the PMI client against scripted dialogues of a launcher. */
#include "bootstrap/pmi.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "shim.h"

enum { RANKS = 3, LINES = 6, TEXT = 300 };

/* What the launcher hears from a rank and says in turn; NULL: it says nothing more. */
struct dialogue {
    const char *heard, *said;
};

/* Rank 0 puts, the others get; words of Hydra and of Intel MPI, which leaves some rc=0 out. */
static const struct dialogue root[LINES] = {
    {"cmd=init pmi_version=1 pmi_subversion=1",
     "cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=0\n"},
    {"cmd=get_my_kvsname", "cmd=my_kvsname kvsname=kvs_17_0\n"},
    {"cmd=put kvsname=kvs_17_0 key=tutti-rank-0 value=10.0.0.1,29500,00ff",
     "cmd=put_result rc=0 msg=success\n"},
    {"cmd=barrier_in", "cmd=barrier_out\n"},
    {"cmd=finalize", "cmd=finalize_ack\n"},
};
static const struct dialogue other[LINES] = {
    {"cmd=init pmi_version=1 pmi_subversion=1",
     "cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=0\n"},
    {"cmd=get_my_kvsname", "cmd=my_kvsname rc=0 kvsname=kvs_17_0\n"},
    {"cmd=barrier_in", "cmd=barrier_out rc=0\n"},
    {"cmd=get kvsname=kvs_17_0 key=tutti-rank-0",
     "cmd=get_result rc=0 msg=success value=10.0.0.1,29500,00ff\n"},
    {"cmd=finalize", "cmd=finalize_ack\n"},
};

struct launcher {
    const struct dialogue *dialogue;
    int fd;
    int nheard, nwrong;
};

/* Follows the dialogue, in pieces of three bytes, until it has nothing more to say. */
static void *serve(void *argument)
{
    struct launcher *launcher = argument;
    char line[TEXT];
    for (const struct dialogue *turn = launcher->dialogue; turn->heard; turn++) {
        size_t nbytes = 0;
        while (nbytes < sizeof line && read(launcher->fd, line + nbytes, 1) == 1 &&
               line[nbytes] != '\n')
            nbytes++;
        if (nbytes == sizeof line || line[nbytes] != '\n') break;
        line[nbytes] = '\0';
        launcher->nheard++;
        launcher->nwrong += strcmp(line, turn->heard) != 0;
        if (!turn->said) break;
        for (const char *at = turn->said; *at; at += strnlen(at, 3))
            if (send(launcher->fd, at, strnlen(at, 3), MSG_NOSIGNAL) < 0) break;
    }
    return NULL;
}

/* One rank against a launcher that says this; with `hang_up` it then closes its end. */
static tt_status share(const struct dialogue *dialogue, int rank, char text[TEXT], bool hang_up,
                       int64_t timeout_ms)
{
    int ends[2];
    pthread_t thread;
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) return TT_ERR_SYSTEM;
    struct launcher launcher = {.dialogue = dialogue, .fd = ends[1]};
    if (hang_up) {
        shutdown(ends[1], SHUT_RDWR);
    } else {
        pthread_create(&thread, NULL, serve, &launcher);
    }
    const tt_status status = tt_pmi_share(ends[0], rank, text, TEXT, tt_deadline_ns(timeout_ms));
    shutdown(ends[0], SHUT_RDWR); /* it was left open for the process's other users */
    if (!hang_up) pthread_join(thread, NULL);
    CHECK_EQ(launcher.nwrong, 0);
    CHECK(close(ends[0]) == 0 && close(ends[1]) == 0);
    return status;
}

TEST(pmi, rank_0s_text_is_passed_on)
{
    for (int rank = 0; rank < RANKS; rank++) {
        char text[TEXT] = "";
        if (rank == 0) strcpy(text, "10.0.0.1,29500,00ff");
        CHECK_EQ(share(rank ? other : root, rank, text, false, 10000), TT_OK);
        CHECK_STR(text, "10.0.0.1,29500,00ff");
    }
}

TEST(pmi, what_the_launcher_refuses_is_shown)
{
    static const struct dialogue refused[LINES] = {
        {"cmd=init pmi_version=1 pmi_subversion=1", "cmd=response_to_init rc=-1 msg=no\n"}};
    static const struct dialogue strange[LINES] = {
        {"cmd=init pmi_version=1 pmi_subversion=1", "SSH-2.0-OpenSSH_9.2\n"}};
    static const struct dialogue unnamed[LINES] = {
        {"cmd=init pmi_version=1 pmi_subversion=1", "cmd=response_to_init rc=0\n"},
        {"cmd=get_my_kvsname", "cmd=my_kvsname rc=0\n"}};
    char text[TEXT] = "x";
    CHECK_EQ(share(refused, 1, text, false, 10000), TT_ERR_SYSTEM);
    CHECK(strstr(tt_last_error(), "answered 'cmd=response_to_init rc=-1 msg=no'"));
    CHECK_EQ(share(strange, 1, text, false, 10000), TT_ERR_SYSTEM);
    CHECK(strstr(tt_last_error(), "answered 'SSH-2.0-OpenSSH_9.2'"));
    CHECK_EQ(share(unnamed, 1, text, false, 10000), TT_ERR_SYSTEM);
    CHECK(strstr(tt_last_error(), "names no key-value space"));
    CHECK_STR(text, "x");
}

TEST(pmi, a_value_or_line_that_does_not_fit_is_refused)
{
    static char endless[4096], wide[LINES * TEXT];
    memset(endless, 'x', sizeof endless - 1);
    const struct dialogue long_line[LINES] = {{"cmd=init pmi_version=1 pmi_subversion=1", endless}};
    struct dialogue long_value[LINES];
    char text[TEXT] = "x";
    CHECK_EQ(share(long_line, 1, text, false, 10000), TT_ERR_SYSTEM);
    CHECK(strstr(tt_last_error(), "a line of more than"));
    memcpy(long_value, other, sizeof other);
    snprintf(wide, sizeof wide, "cmd=get_result rc=0 value=%0*d\n", TEXT, 0);
    long_value[3].said = wide;
    CHECK_EQ(share(long_value, 1, text, false, 10000), TT_ERR_SYSTEM);
    CHECK_STR(text, "x");
}

TEST(pmi, a_launcher_that_has_gone_or_keeps_silent_is_no_hang)
{
    static const struct dialogue silent[LINES] = {
        {"cmd=init pmi_version=1 pmi_subversion=1", "cmd=response_to_init rc=0\n"},
        {"cmd=get_my_kvsname", "cmd=my_kvsname rc=0 kvsname=k\n"},
        {"cmd=barrier_in", NULL}};
    char text[TEXT] = "";
    CHECK_EQ(share(silent, 1, text, true, 10000), TT_ERR_SYSTEM);
    CHECK(strstr(tt_last_error(), "the launcher has closed PMI_FD"));
    CHECK_EQ(share(silent, 1, text, false, 50), TT_ERR_TIMEOUT);
    CHECK(strstr(tt_last_error(), "not all ranks have come"));
}
