/* The processors that this process may use. */
#ifndef TR_CORES_H
#define TR_CORES_H

#include <stdint.h>

struct tr_cores {
    int count;      /* cores on which it may run; processors of one core count once */
    uint64_t set;   /* tells sets of processors apart */
    uint64_t group; /* the control group with the least quota of processor time; 0: none has one */
    double quota;   /* of this group, in processors */
};

/* Reads them; the files below `root`, "" but in tests. */
void tr_cores_read(const char *root, struct tr_cores *cores);

#endif
