/* What tutti-plan is asked to do. */
#ifndef TUTTI_TOOLS_PLAN_OPTIONS_H
#define TUTTI_TOOLS_PLAN_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>

#include "plan_hosts.h"

enum {
    PLAN_DONE = 0,
    PLAN_WRONG = 1,
    PLAN_BAD_USAGE = 2,
    PLAN_MOST_ITEMS = 64,
    PLAN_ALL_ROOTS = -1
};

struct plan_range {
    int from, to;
};

/* A number of elements, or one that goes with the number of ranks, N. */
struct plan_count {
    bool has_n;
    long long offset;
};

/* Owned by its creator; names are borrowed from the arguments. */
struct plan_options {
    const char *command;
    char *const *names;
    int nnames;
    struct plan_range ranks[PLAN_MOST_ITEMS];
    int nranges;
    struct plan_place places[PLAN_MOST_ITEMS]; /* of --hosts */
    int nplaces;
    struct plan_count counts[PLAN_MOST_ITEMS];
    int ncounts;
    struct plan_place gpus; /* of --gpus; nranks 0: not given */
    const char *link;       /* borrowed; NULL: not given */
    int nblocks;            /* of --blocks; 0: not given */
    int root, rank;
    size_t nbytes;
    const char *output; /* borrowed; NULL: stdout */
    double seconds;     /* of tune */
    bool staged;        /* of cost */
    bool all, exact, deterministic, has_bytes, has_rank, has_root;
    bool pairs;                               /* algorithms X/Y too */
    struct plan_place usual[PLAN_MOST_ITEMS]; /* hosts for them when none are given */
    int nusual;
};

/* Reads the arguments; ends the program after --help and --version. PLAN_DONE, or PLAN_BAD_USAGE
 * after it has said what is wrong. */
int plan_options_parse(struct plan_options *options, int argc, char *argv[]);
/* Says what is wrong with the arguments; value may be NULL. Returns PLAN_BAD_USAGE. */
int plan_complain(const char *problem, const char *value);

#endif
