/* The legacy default stream while another thread captures a blocking stream. */
#include "base/clock.h"
#include "base/pause.h"
#include "driver/cuda.h"

enum { MOST_MS = 10000 }; /* that a call waits for the end of captures */

bool tt_cuda_is_to_repeat(const struct tt_cuda *cu, CUresult result, int64_t *deadline_ns)
{
    CUstreamCaptureStatus status;
    struct tt_pause pause = {0};
    if (result != CUDA_ERROR_STREAM_CAPTURE_IMPLICIT) return false;
    if (!*deadline_ns) *deadline_ns = tt_deadline_ns(MOST_MS);
    do /* the question spoils no capture */
        tt_pause(&pause);
    while (!tt_expired(*deadline_ns) &&
           cu->StreamIsCapturing(CU_STREAM_LEGACY, &status) == CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
    return !tt_expired(*deadline_ns);
}
