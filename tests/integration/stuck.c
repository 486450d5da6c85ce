/* A rank that dies or stops while it reads its input in the middle of a call. */
#include "stuck.h"

#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* HOLE lies in the block that rank 1 reduces. */
enum { NRANKS = 3, BLOCK = 131072, SIZE = NRANKS * BLOCK, PAGE = 4096, OLD = 0x11 };
enum { HOLE = BLOCK + 98304, SUM = 1 + 2 + 3 };

static char *input; /* rank 1's: [HOLE, HOLE + PAGE) may not be read */
static int signal_to_send;

static void on_hole(int number, siginfo_t *info, void *context)
{
    (void)number, (void)context;
    if ((char *)info->si_addr < input + HOLE || (char *)info->si_addr >= input + HOLE + PAGE)
        _exit(2);
    kill(getpid(), signal_to_send);
    mprotect(input, SIZE, PROT_READ | PROT_WRITE);
}

static bool make_hole(const char *how)
{
    struct sigaction action = {.sa_sigaction = on_hole, .sa_flags = SA_SIGINFO};
    signal_to_send = strcmp(how, "die") ? SIGSTOP : SIGKILL;
    return sigaction(SIGSEGV, &action, NULL) == 0 && mprotect(input + HOLE, PAGE, PROT_NONE) == 0;
}

const char *stuck(tuttiComm_t comm, const char *how, tuttiResult_t *result)
{
    int rank;
    void *output;
    if (tuttiCommUserRank(comm, &rank) || tuttiMemAlloc(&output, SIZE) ||
        tuttiCommSetAlgorithm(comm, tuttiCollAllReduce, "two_shot"))
        return "the call could not be set up";
    input = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (input == MAP_FAILED) return "no memory";
    memset(input, rank + 1, SIZE);
    memset(output, OLD, SIZE);
    if (rank == 1 && !make_hole(how)) return "no page could be made unreadable";
    puts("ready");
    fflush(stdout);
    *result = tuttiAllReduce(input, output, SIZE, tuttiInt8, tuttiSum, comm, NULL);
    const char *block = (const char *)output + BLOCK;
    const char last = strcmp(how, "wait") ? OLD : SUM;
    if (rank == 1) return NULL;
    if (block[0] != SUM) return "rank 1 did not write to this rank's buffer";
    if (block[BLOCK - 1] != last)
        return last == OLD ? "rank 1 has written all of it" : "the call did not wait for rank 1";
    return NULL;
}
