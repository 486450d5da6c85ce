/* GPUs and their streams. */
#include <pthread.h>

#include "nccl/face.h"

_Atomic bool tt_face_has_gpus;
static pthread_once_t looked = PTHREAD_ONCE_INIT;

static void look(void)
{
    int count = 0;
    (void)tuttiGetDeviceCount(&count);
    atomic_store_explicit(&tt_face_has_gpus, count > 0, memory_order_relaxed);
}

bool tt_face_look_for_gpus(void)
{
    (void)pthread_once(&looked, look);
    return atomic_load_explicit(&tt_face_has_gpus, memory_order_relaxed);
}

ncclResult_t tt_face_find_stream(const char *function, ncclComm_t comm, cudaStream_t stream,
                                 tuttiStream_t *found)
{
    int device;
    *found = NULL;
    const bool has_gpus = atomic_load_explicit(&tt_face_has_gpus, memory_order_relaxed);
    if (!stream && !has_gpus) return ncclSuccess;
    const tuttiResult_t result = tuttiCommDevice(tt_face_comm(comm), &device);
    if (result) return tt_face_end_as(function, result);
    if (stream && (!has_gpus || device < 0))
        return tt_face_refuse(ncclInvalidArgument,
                              "%s: stream %p: the rank has no GPU, so it takes no CUDA stream: "
                              "pass NULL",
                              function, (void *)stream);
    return tt_face_end_as(function, tuttiStreamOfDevice(found, device, stream));
}
