/* How much memory there is for a run, to compare with what its formulas say before any is taken. */
#ifndef TR_MACHINE_H
#define TR_MACHINE_H

#include <stdint.h>

/* Bytes; UINT64_MAX where the system does not say. */
struct tr_machine {
    uint64_t host;  /* memory and swap of the host */
    uint64_t group; /* what the control group of this process, or one above it, may use */
};

/* Reads them below `root`: "" but in tests. */
void tr_machine_read(const char *root, struct tr_machine *limits);

#endif
