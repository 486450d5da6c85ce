/* A program and the links that it uses. */
#ifndef TT_EXECUTOR_LOADED_H
#define TT_EXECUTOR_LOADED_H

#include "program/program.h"
#include "transport/fabric.h"

/* Owned by its creator; freed by tt_loaded_destroy, when nothing that runs it is outstanding. */
struct tt_loaded {
    struct tt_program *program;
    struct tt_link **links; /* [program->nlinks]: the fabric's, by the program's table of links */
    size_t nbytes;          /* of the above */
};

/* Takes the program over, also when it fails. Resolves its links, which opens none of them.
 * TT_ERR_SYSTEM without memory. */
TT_NODISCARD tt_status tt_loaded_create(struct tt_program *program, struct tt_fabric *fabric,
                                        struct tt_loaded **loaded);
/* NULL is allowed. */
void tt_loaded_destroy(struct tt_loaded *loaded);

#endif
