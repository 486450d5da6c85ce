/* Placements of ranks on hosts, as tutti-plan's --hosts has them. */
#ifndef TUTTI_TOOLS_PLAN_HOSTS_H
#define TUTTI_TOOLS_PLAN_HOSTS_H

#include <stdbool.h>

enum { PLAN_MOST_PLACED = 4096 };

/* Owned by its creator; host_of freed by it. */
struct plan_place {
    int nranks;
    int *host_of; /* [nranks]; NULL: all on one host */
};

/* "2x4", "3,1,4": hosts and their ranks, one host after the other, or with ":cyclic" in turns;
 * "abba": a letter a rank, equal ones on one host. False: not understood, or too many. */
bool plan_place_parse(struct plan_place *place, const char *text);

#endif
