/* The legacy default stream while another thread captures a blocking stream. */
#include "base/clock.h"
#include "base/pause.h"
#include "driver/cuda.h"

enum { MOST_MS = 10000 }; /* that a call waits for the end of captures */

/* This thread's last call has waited so long in vain: the next ones do not. */
static _Thread_local bool has_given_up;

bool tt_cuda_is_to_repeat(const struct tt_cuda *cu, CUresult result, int64_t *deadline_ns)
{
    CUstreamCaptureStatus status;
    struct tt_pause pause = {0};
    if (result != CUDA_ERROR_STREAM_CAPTURE_IMPLICIT) {
        has_given_up = false;
        return false;
    }
    if (has_given_up) return false;
    if (!*deadline_ns) *deadline_ns = tt_deadline_ns(MOST_MS);
    do /* the question spoils no capture */
        tt_pause(&pause);
    while (!tt_expired(*deadline_ns) &&
           cu->StreamIsCapturing(CU_STREAM_LEGACY, &status) == CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
    has_given_up = tt_expired(*deadline_ns);
    return !has_given_up;
}
