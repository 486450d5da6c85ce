/* A program and the links that it uses, or that copies of it use. */
#ifndef TT_EXECUTOR_LOADED_H
#define TT_EXECUTOR_LOADED_H

#include "program/program.h"
#include "transport/fabric.h"

/* Owned by its creator; freed by tt_loaded_destroy, when nothing that runs it is outstanding. */
struct tt_loaded {
    struct tt_program *program;
    int copies;             /* of the program that may run side by side */
    struct tt_link **links; /* the fabric's, those of all copies one after the other
                             * (tt_loaded_links); copy k is k * nchannels channels further on. NULL:
                             * kernels run it */
    size_t nbytes;          /* of the above */
};

/* Takes the program over, also when it fails. Resolves its links, which opens none of them: for as
 * many copies as the ranks have agreed on (TUTTI_COPIES), and as there are channels for.
 * TT_ERR_USAGE when the program needs more channels than the communicator has.
 * TT_ERR_SYSTEM without memory. */
TT_NODISCARD tt_status tt_loaded_create(struct tt_program *program, struct tt_fabric *fabric,
                                        struct tt_loaded **loaded);
/* Takes a program over that kernels run, which uses none of the fabric's links; also when it fails.
 * TT_ERR_SYSTEM without memory. */
TT_NODISCARD tt_status tt_loaded_create_for_device(struct tt_program *program, int copies,
                                                   struct tt_loaded **loaded);
/* The links of a copy, 0 <= copy < copies, by the program's table. */
static inline struct tt_link **tt_loaded_links(const struct tt_loaded *loaded, int copy)
{
    return loaded->links + (size_t)copy * loaded->program->nlinks;
}

/* NULL is allowed. */
void tt_loaded_destroy(struct tt_loaded *loaded);

#endif
