/* Keeps signals in mind that ask a run to end. */
#include "stop.h"

#include <errno.h>
#include <signal.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "pipe.h"

enum { AGAIN_NS = 2000000000, DIED = 128 }; /* launchers may deliver one signal twice */

static const int numbers[TR_STOP_SIGNALS] = {SIGINT, SIGTERM, SIGUSR1, SIGHUP};
static struct sigaction before[TR_STOP_SIGNALS];
static bool listens, is_loud;

/* written by the handler */
static volatile sig_atomic_t heard = -1;
static volatile sig_atomic_t interrupted; /* a SIGINT was heard */
static struct timespec since;             /* of the first one */

static void say(const char *text)
{
    const int terminal = tr_terminal_open(STDERR_FILENO),
              fd = terminal < 0 ? STDERR_FILENO : terminal;
    ssize_t written = 0; /* whether all of the text was, is nobody's concern */
    if (terminal >= 0 || tr_pipe_has_room(fd, 0)) written = write(fd, text, strlen(text));
    (void)written;
    if (terminal >= 0) close(terminal);
}

/* Process 1, as in a container, has no signal that ends it by default: it exits with the code that
 * a shell sees of such an end. */
static void exit_by(int number)
{
    _exit(DIED + number);
}

static void end_by(int number)
{
    sigset_t set;
    signal(number, SIG_DFL);
    sigemptyset(&set);
    sigaddset(&set, number);
    raise(number);
    pthread_sigmask(SIG_UNBLOCK, &set, NULL);
    exit_by(number);
}

static long long since_first(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (long long)(now.tv_sec - since.tv_sec) * 1000000000 + now.tv_nsec - since.tv_nsec;
}

static void hear(int number)
{
    static const char *const texts[TR_STOP_SIGNALS] = {
        "\ntutti-train: SIGINT: the run ends after this step; Ctrl-C again, after 2 s, at once\n",
        "\ntutti-train: SIGTERM: the run ends after this step\n",
        "\ntutti-train: SIGUSR1: the run ends after this step\n",
        "\ntutti-train: SIGHUP: the run ends after this step\n"};
    const int error = errno; /* of who was interrupted */
    const bool is_again = number == SIGINT && interrupted;
    int which = 0;
    while (numbers[which] != number) ++which;
    if (is_again && since_first() >= AGAIN_NS) end_by(SIGINT);
    if (is_loud && !is_again && (heard < 0 || number == SIGINT)) say(texts[which]);
    if (number == SIGINT && !interrupted) {
        clock_gettime(CLOCK_MONOTONIC, &since);
        interrupted = true;
    }
    if (heard < 0) {
        heard = which;
        signal(SIGPIPE, SIG_IGN); /* Ctrl-C has ended who reads the output, too */
    }
    errno = error;
}

void tr_stop_prepare(void)
{
    struct sigaction action;
    for (int i = 0; i < TR_STOP_SIGNALS && getpid() == 1; ++i)
        if (sigaction(numbers[i], NULL, &action) == 0 && action.sa_handler == SIG_DFL)
            signal(numbers[i], exit_by);
}

void tr_stop_listen(bool speaks)
{
    /* While oneDNN's products run a handler needs a stack of its own: on the thread's it damaged
     * the heap in one of ten runs that were signalled. Only the main thread gets these signals. */
    static char bytes[1 << 16];
    const stack_t stack = {.ss_sp = bytes, .ss_size = sizeof bytes};
    struct sigaction action = {.sa_handler = hear, .sa_flags = SA_RESTART | SA_ONSTACK};
    sigemptyset(&action.sa_mask);
    for (int i = 0; i < TR_STOP_SIGNALS; ++i) sigaddset(&action.sa_mask, numbers[i]);
    if (listens) return;
    sigaltstack(&stack, NULL);
    listens = true;
    is_loud = speaks;
    heard = -1;
    interrupted = false;
    for (int i = 0; i < TR_STOP_SIGNALS; ++i) {
        sigaction(numbers[i], NULL, &before[i]);
        if (before[i].sa_handler != SIG_IGN) sigaction(numbers[i], &action, NULL);
    }
    /* Who has started the process may have had them blocked: tutti-run gives ranks that mask. */
    pthread_sigmask(SIG_UNBLOCK, &action.sa_mask, NULL);
}

int tr_stop_heard(void)
{
    return heard;
}

int tr_stop_number(int which)
{
    return numbers[which];
}

void tr_stop_restore(void)
{
    if (!listens) return;
    listens = false;
    for (int i = 0; i < TR_STOP_SIGNALS; ++i) sigaction(numbers[i], &before[i], NULL);
}

void tr_stop_raise(int which)
{
    end_by(numbers[which]);
}
