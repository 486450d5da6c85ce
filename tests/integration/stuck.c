/* A rank that dies or stops while it reads its input in the middle of a call. */
#include "stuck.h"

#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* Three ranks make a long call, whose messages go through slots or are posted. Two make a short
 * one, which is an express call: it refers to the input, too. */
enum { LONG_BLOCK = 131072, SHORT_BLOCK = 32768, PAGE = 4096, OLD = 0x11 };

static char *input;         /* rank 1's: the page at hole may not be read */
static size_t block_bytes;  /* each rank reduces one block, */
static size_t nbytes, hole; /* of so many; hole lies in that of rank 1 */
static int signal_to_send;

static void on_hole(int number, siginfo_t *info, void *context)
{
    (void)number, (void)context;
    if ((char *)info->si_addr < input + hole || (char *)info->si_addr >= input + hole + PAGE)
        _exit(2);
    kill(getpid(), signal_to_send);
    mprotect(input, nbytes, PROT_READ | PROT_WRITE);
}

static bool make_hole(const char *how)
{
    struct sigaction action = {.sa_sigaction = on_hole, .sa_flags = SA_SIGINFO};
    signal_to_send = strcmp(how, "die") ? SIGSTOP : SIGKILL;
    return sigaction(SIGSEGV, &action, NULL) == 0 && mprotect(input + hole, PAGE, PROT_NONE) == 0;
}

static bool get_memory(tuttiComm_t comm, int nranks, char **output)
{
    void *memory;
    block_bytes = nranks == 2 ? SHORT_BLOCK : LONG_BLOCK;
    nbytes = (size_t)nranks * block_bytes;
    hole = block_bytes + block_bytes / 4 * 3;
    if (tuttiMemAlloc(&memory, nbytes)) return false;
    *output = memory;
    if (nranks > 2) {
        input = mmap(NULL, nbytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        return input != MAP_FAILED;
    }
    if (tuttiMemAlloc(&memory, nbytes)) return false;
    input = memory;
    /* The ranks come to know the memory here, so that nothing is late in the call that follows. */
    return tuttiAllReduce(input, *output, nbytes, tuttiInt8, tuttiSum, comm, NULL) == tuttiSuccess;
}

const char *stuck(tuttiComm_t comm, const char *how, tuttiResult_t *result)
{
    int rank, nranks;
    char *output;
    if (tuttiCommUserRank(comm, &rank) || tuttiCommCount(comm, &nranks) ||
        tuttiCommSetAlgorithm(comm, tuttiCollAllReduce, "two_shot") ||
        !get_memory(comm, nranks, &output))
        return "the call could not be set up";
    memset(input, rank + 1, nbytes);
    memset(output, OLD, nbytes);
    if (rank == 1 && !make_hole(how)) return "no page could be made unreadable";
    puts("ready");
    fflush(stdout);
    if (tuttiBarrier(comm, NULL)) return "the ranks did not meet";
    *result = tuttiAllReduce(input, output, nbytes, tuttiInt8, tuttiSum, comm, NULL);
    const char *block = output + block_bytes;
    const char sum = (char)(nranks * (nranks + 1) / 2), last = strcmp(how, "wait") ? OLD : sum;
    if (rank == 1) return NULL;
    if (block[0] != sum) return "rank 1 did not write to this rank's buffer";
    if (block[block_bytes - 1] != last)
        return last == OLD ? "rank 1 has written all of it" : "the call did not wait for rank 1";
    return NULL;
}
