/* Ranks as processes: tutti-run -n 4 hello_processes
 *
 * Rank 0 tells everyone a word, everyone answers with its rank, and a ring passes a token around.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tutti.h>

static void try(tuttiResult_t result, const char *what)
{
    if (result == tuttiSuccess) return;
    fprintf(stderr, "%s: %s: %s\n", what, tuttiGetErrorString(result), tuttiGetLastError(NULL));
    exit(1);
}

int main(void)
{
    tuttiComm_t comm;
    int rank, nranks;
    try(tuttiCommInitEnv(&comm, NULL, NULL), "init");
    try(tuttiCommUserRank(comm, &rank), "rank");
    try(tuttiCommCount(comm, &nranks), "count");

    char word[16] = "";
    if (rank == 0) strcpy(word, "tutti");
    try(tuttiBroadcast(word, word, sizeof word, tuttiChar, 0, comm, NULL), "broadcast");

    int *ranks = calloc((size_t)nranks, sizeof *ranks);
    if (!ranks) abort();
    try(tuttiAllGather(&rank, ranks, 1, tuttiInt32, comm, NULL), "all-gather");

    /* Every rank sends to the next and receives from the one before: together, in a group. */
    int token = -1;
    try(tuttiGroupStart(), "group");
    try(tuttiSend(&rank, 1, tuttiInt32, (rank + 1) % nranks, comm, NULL), "send");
    try(tuttiRecv(&token, 1, tuttiInt32, (rank + nranks - 1) % nranks, comm, NULL), "receive");
    try(tuttiGroupEnd(), "group");

    printf("rank %d of %d heard \"%s\", knows ranks 0 to %d, got %d from its neighbour\n", rank,
           nranks, word, ranks[nranks - 1], token);
    free(ranks);
    try(tuttiCommDestroy(comm), "destroy");
    return fflush(stdout) == 0 ? 0 : 1; /* a full disk */
}
