/* The method file:///path: rank 0 writes its unique id there, the others wait for it. */
#ifndef TT_BOOTSTRAP_FILE_H
#define TT_BOOTSTRAP_FILE_H

#include <stdint.h>

#include "bootstrap/bootstrap.h"

/* Rank 0: makes an id with its root and writes it, mode 0600, aside and renamed, so that whoever
 * sees the file sees all of it. */
TT_NODISCARD tt_status tt_file_make(struct tt_unique_id *id, const char *path, int64_t deadline_ns);

/* The others: the id in the file, once its root answers, also where the root only says why the init
 * has failed: that `rank` of this process is to hear, once. What earlier jobs left is waited past.
 */
TT_NODISCARD tt_status tt_file_await(struct tt_unique_id *id, const char *path, int rank,
                                     int64_t deadline_ns);

#endif
