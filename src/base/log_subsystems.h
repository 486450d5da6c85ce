/* The subsystems of TUTTI_LOG_SUBSYSTEMS and NCCL_DEBUG_SUBSYS: whose lines are logged at INFO. */
#ifndef TT_BASE_LOG_SUBSYSTEMS_H
#define TT_BASE_LOG_SUBSYSTEMS_H

#include <stdbool.h>
#include <stddef.h>

/* A bit for each subsystem that the list lets through: "INIT,NET"; "^NET,SHM": all others; "": all.
 * False: `unknown` gets the first word that is no subsystem; such words have no effect. */
bool tt_subsystems_parse(const char *list, unsigned *mask, char *unknown, size_t size);

/* The bit of the subsystem to whose folder the source file belongs. */
unsigned tt_subsystem_of(const char *file);

#endif
