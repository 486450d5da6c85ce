/* Signals in the library's threads: those of a fault reach the application's handler, all others
 * are left to the application's own threads. */
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "ranks.h"
#include "shim.h"

enum { HANDLED = 42, PASSED = 43 };

static void end_process(int number)
{
    (void)number;
    _exit(HANDLED);
}

/* How a child ends that handles the signal and runs `act` on a stream's worker: HANDLED, PASSED, or
 * minus the signal that killed it. */
static int child_status(int number, void (*act)(tuttiStream_t stream, int number))
{
    const pid_t child = fork();
    if (child == 0) {
        tuttiStream_t stream;
        if (signal(number, end_process) == SIG_ERR || tuttiStreamCreate(&stream)) _exit(1);
        act(stream, number);
        tuttiStreamSynchronize(stream);
        _exit(PASSED);
    }
    int status = 0;
    if (child < 0 || waitpid(child, &status, 0) != child) return -1000;
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

static void raise_here(void *argument)
{
    raise(*(int *)argument);
}

static void raise_in_worker(tuttiStream_t stream, int number)
{
    static int raised;
    raised = number;
    tuttiStreamLaunch(stream, raise_here, &raised);
}

/* A collective reads a buffer that may not be read. */
static void read_forbidden_buffer(tuttiStream_t stream, int number)
{
    (void)number;
    enum { NBYTES = 4096 };
    static char out[NBYTES];
    tuttiComm_t comm;
    void *in = mmap(NULL, NBYTES, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (in == MAP_FAILED || tuttiCommInitAll(&comm, 1, NULL)) _exit(1);
    tuttiAllReduce(in, out, NBYTES, tuttiUint8, tuttiSum, comm, stream);
}

TEST(signals, a_buffer_that_faults_in_a_stream_runs_the_applications_handler)
{
    CHECK_EQ(child_status(SIGSEGV, read_forbidden_buffer), HANDLED);
}

TEST(signals, a_streams_worker_leaves_the_signals_of_faults_to_the_application)
{
    static const int numbers[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT, SIGTRAP, SIGSYS};
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        const int status = child_status(numbers[i], raise_in_worker);
        CHECK_MESSAGE(status == HANDLED, "%s: the child ended with %d, expected %d",
                      strsignal(numbers[i]), status, HANDLED);
    }
}

static void read_mask(void *argument)
{
    pthread_sigmask(SIG_BLOCK, NULL, argument);
}

TEST(signals, a_streams_worker_takes_none_that_a_process_is_sent)
{
    static const int numbers[] = {SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGALRM, SIGCHLD};
    tuttiStream_t stream;
    sigset_t mask;
    sigemptyset(&mask);
    REQUIRE(tuttiStreamCreate(&stream) == tuttiSuccess);
    CHECK_EQ(tuttiStreamLaunch(stream, read_mask, &mask), tuttiSuccess);
    CHECK_EQ(tuttiStreamDestroy(stream), tuttiSuccess);
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        CHECK_MESSAGE(sigismember(&mask, numbers[i]), "%s is not blocked", strsignal(numbers[i]));
}
