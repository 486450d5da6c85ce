/* Tests of base/thread.h: the signals of the library's threads. */
#include "base/thread.h"

#include <signal.h>
#include <string.h>

#include "shim.h"

static void *read_mask(void *argument)
{
    pthread_sigmask(SIG_BLOCK, NULL, argument);
    return NULL;
}

static bool start_and_read(sigset_t *mask)
{
    pthread_t thread;
    sigemptyset(mask);
    if (tt_thread_start(&thread, read_mask, mask)) return false;
    return pthread_join(thread, NULL) == 0;
}

TEST(thread, takes_the_signals_of_its_own_faults_only)
{
    static const int of_faults[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT, SIGTRAP, SIGSYS};
    static const int sent[] = {SIGINT, SIGTERM, SIGHUP, SIGPIPE, SIGCHLD, SIGUSR1, SIGUSR2};
    sigset_t mask;
    REQUIRE(start_and_read(&mask));
    for (size_t i = 0; i < sizeof of_faults / sizeof *of_faults; i++)
        CHECK_MESSAGE(!sigismember(&mask, of_faults[i]), "%s is blocked", strsignal(of_faults[i]));
    for (size_t i = 0; i < sizeof sent / sizeof *sent; i++)
        CHECK_MESSAGE(sigismember(&mask, sent[i]), "%s is not blocked", strsignal(sent[i]));
}

TEST(thread, leaves_the_mask_of_its_starter_alone)
{
    sigset_t blocked, before, after, mask;
    sigemptyset(&blocked);
    sigaddset(&blocked, SIGFPE);
    pthread_sigmask(SIG_BLOCK, &blocked, &before);
    REQUIRE(start_and_read(&mask));
    pthread_sigmask(SIG_SETMASK, &before, &after);
    CHECK(sigismember(&mask, SIGFPE)); /* the starter's wish */
    CHECK(sigismember(&after, SIGFPE));
    CHECK_EQ(sigismember(&after, SIGINT), sigismember(&before, SIGINT));
}
