/* The functions of NCCL that come later: they say so, and do nothing. */
#include "nccl/face.h"

#pragma GCC diagnostic ignored "-Wunused-parameter" /* none of them looks at its arguments */

static ncclResult_t later(const char *function, const char *what)
{
    return tt_face_refuse(ncclInvalidUsage,
                          "%s: %s is not there yet in tutti's libnccl.so.2 (docs/nccl.md)",
                          function, what);
}

#define TT_LATER(name, what, parameters)                                                           \
    ncclResult_t pnccl##name parameters                                                            \
    {                                                                                              \
        return later("nccl" #name, what);                                                          \
    }                                                                                              \
    TT_FACE_TWIN(name)
#define TT_LATER_CALL(name, what, parameters)                                                      \
    ncclResult_t pnccl##name parameters                                                            \
    {                                                                                              \
        return tt_face_fail_group(later("nccl" #name, what));                                      \
    }                                                                                              \
    TT_FACE_TWIN(name)
#define TT_LATER_MAKER(name, what, parameters)                                                     \
    ncclResult_t pnccl##name parameters                                                            \
    {                                                                                              \
        if (made) *made = NULL;                                                                    \
        return tt_face_fail_group(later("nccl" #name, what));                                      \
    }                                                                                              \
    TT_FACE_TWIN(name)
#include "nccl/names_table.h"
