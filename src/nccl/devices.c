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

ncclResult_t tt_face_find_stream(ncclComm_t comm, cudaStream_t stream, tuttiStream_t *found)
{
    int device;
    *found = NULL;
    if (!stream && !atomic_load_explicit(&tt_face_has_gpus, memory_order_relaxed))
        return ncclSuccess;
    tuttiResult_t result = tuttiCommDevice(tt_face_comm(comm), &device);
    if (!result) result = tuttiStreamOfDevice(found, device, stream);
    return tt_face_end(result);
}
