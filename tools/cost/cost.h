/* tutti-plan cost: prints the modelled time of a call on GPUs, step by step, and the constants with
 * their sources. This folder sees the inside of the library: its programs and its cost model. */
#ifndef TUTTI_TOOLS_COST_COST_H
#define TUTTI_TOOLS_COST_COST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

struct cost_request {
    const char *name;   /* COLLECTIVE or COLLECTIVE:ALGORITHM */
    int nranks;         /* GPUs in all */
    const int *host_of; /* [nranks]; NULL: all on one host. Borrowed */
    const char *link;
    bool staged; /* through memory of the host, as with TUTTI_DEVICE_BRIDGES=0 */
    int nblocks; /* of threads that a GPU may have in a call; 0: TUTTI_DEVICE_CHANNELS */
    size_t nbytes;
};

enum { COST_PROBLEM = 1024 };

/* "gpu, nvlink3, ..." for messages. */
void cost_links(char *text, size_t size);
/* Prints to `out`. False: nothing was printed, and `problem` says what is wrong with the request.
 */
bool cost_print(const struct cost_request *request, FILE *out, char problem[COST_PROBLEM]);

#endif
