/* What the files of libnccl.so.2 share: how a function gets its two names, and how it refuses a
 * call. The face calls tutti.h and nothing else of the library. */
#ifndef TT_NCCL_FACE_H
#define TT_NCCL_FACE_H

#include <stdatomic.h>
#include <stdbool.h>

#include "tutti.h"

#pragma GCC visibility push(default) /* the only names that the library exports */
#include "nccl.h"
#include "nccl/device.h"
#pragma GCC visibility pop

/* nccl<name>, weak, for the function pnccl<name> of the same file. */
#define TT_FACE_TWIN(name)                                                                         \
    extern __typeof__(pnccl##name) nccl##name __attribute__((weak, alias("pnccl" #name)));

/* The handles are tutti's own. */
static inline tuttiComm_t tt_face_comm(ncclComm_t comm)
{
    return (tuttiComm_t)comm;
}

/* Ends a function that tutti has refused for: what ncclGetLastError says is tutti's sentence. */
ncclResult_t tt_face_failed(tuttiResult_t result);
/* Ends a function that has called tutti. The results have the same values. */
static inline ncclResult_t tt_face_end(tuttiResult_t result)
{
    return __builtin_expect(result == tuttiSuccess, 1) ? ncclSuccess : tt_face_failed(result);
}

/* Ends a function whose sentence must not have tutti's name for it. */
ncclResult_t tt_face_end_as(const char *function, tuttiResult_t result);

/* Ends a function that the face refuses: `format` is what ncclGetLastError and the log say. */
ncclResult_t tt_face_refuse(ncclResult_t result, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* Ends a call that a group would hold, also where the face has refused it: an open group of this
 * thread fails with the same sentence. */
static inline ncclResult_t tt_face_fail_group(ncclResult_t result)
{
    if (result) (void)tuttiGroupFail((tuttiResult_t)result, pncclGetLastError(NULL));
    return result;
}

/* NCCL's own types only: tutti has more. */
ncclResult_t tt_face_check_type(const char *function, ncclDataType_t type);

/* Reads a config of any of NCCL's versions (NULL: none) over `settings`, which point into it then.
 */
ncclResult_t tt_face_read_config(const char *function, const ncclConfig_t *config,
                                 tuttiConfig_t *settings);
/* The settings of a communicator that is not split from another one. */
ncclResult_t tt_face_new_settings(const char *function, const ncclConfig_t *config,
                                  tuttiConfig_t *settings);
ncclResult_t tt_face_check_call_config(const char *function, const ncclCollConfig_t *config);

/* Whether CUDA's driver is here and has a GPU, so that communicators may have one. False until the
 * first call of tt_face_look_for_gpus, which returns it. */
extern _Atomic bool tt_face_has_gpus;
bool tt_face_look_for_gpus(void);
/* The stream of tutti for a CUDA stream of the communicator's GPU. For NULL the default stream, on
 * which calls on memory of the host are complete on return; NULL where there is no GPU. */
ncclResult_t tt_face_find_stream(const char *function, ncclComm_t comm, cudaStream_t stream,
                                 tuttiStream_t *found);

#endif
