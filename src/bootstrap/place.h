/* Where rank 0 of a job is found, when the ranks know that without its unique id. */
#ifndef TT_BOOTSTRAP_PLACE_H
#define TT_BOOTSTRAP_PLACE_H

#include <stdbool.h>
#include <stdint.h>

#include "bootstrap/bootstrap.h"

enum { TT_PLACE_HOST = 256, TT_PLACE_JOB = 128, TT_PLACE_SECRET = 32, TT_PLACE_PORTS = 4 };

struct tt_place {
    char host[TT_PLACE_HOST]; /* name or address */
    int port;
    int nports;             /* rank 0 listens at the first of so many, from `port` on, that is free:
                               TT_PLACE_PORTS when nobody chose `port`, else 1 */
    char job[TT_PLACE_JOB]; /* the job's name, which makes the key together with the address ... */
    bool has_secret;        /* ... unless there is a secret: TUTTI_JOB_KEY, or this one */
    uint8_t secret[TT_PLACE_SECRET];
};

/* The place that the launcher's own means say, for a job without MASTER_ADDR: what rank 0 passes on
 * through PMI or PMIx, once a process, or what follows from Slurm's variables. TT_ERR_ARGUMENT when
 * the launcher has no such means here: says why and the remedies. */
TT_NODISCARD tt_status tt_place_of_launcher(struct tt_place *place,
                                            const struct tt_launcher *launcher,
                                            int64_t deadline_ns);

#endif
