/* In a build without CUDA's header there are no GPUs. */
#include "driver/driver.h"

static const char reason[] = "tutti was built without CUDA's header (cuda.h)";

int tt_driver_ngpus(const char **why)
{
    if (why) *why = reason;
    return 0;
}

tt_status tt_driver_gpu(int number, struct tt_gpu *gpu)
{
    (void)gpu;
    return tt_fail(TT_ERR_ARGUMENT, "GPU %d does not exist: %s", number, reason);
}

bool tt_driver_peers(int number, int peer)
{
    (void)number;
    (void)peer;
    return false;
}

tt_status tt_driver_pointer(const void *pointer, struct tt_pointer *result)
{
    (void)pointer;
    *result = (struct tt_pointer){.kind = TT_POINTER_HOST, .gpu = -1};
    return TT_OK;
}
