/* The driver's functions as a table, for src/driver and what runs on GPUs. Compiled only
 * where the build found CUDA's header. */
#ifndef TT_DRIVER_CUDA_H
#define TT_DRIVER_CUDA_H

#include <cuda.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"

/* Named as in the library, without the prefix `cu` and the version. Immutable once loaded. */
struct tt_cuda {
#define X(member, symbol) __typeof__(symbol) *member;
#define OPTIONAL(member, symbol) __typeof__(symbol) *member; /* may be NULL */
#include "driver/cuda_table.h"
#undef OPTIONAL
#undef X
};

/* The table, loaded and initialized at the first call; NULL: there is no usable driver, and
 * tt_driver_ngpus says why. Any thread. */
const struct tt_cuda *tt_cuda_load(void);

/* The driver's handle of the GPU. ARGUMENT: this process can use no such GPU. */
TT_NODISCARD tt_status tt_cuda_device(int number, CUdevice *device);

/* Records that `call` failed with the driver's name and text of the error. Returns TT_ERR_DEVICE;
 * TT_ERR_USAGE in a child made by fork, which cannot use CUDA after its parent, and where a capture
 * forbids the legacy default stream. */
#define tt_cuda_fail(result, call) tt_cuda_fail_at(__FILE__, __LINE__, (result), (call))
tt_status tt_cuda_fail_at(const char *file, int line, CUresult result, const char *call);

/* Whether a call of the driver on a stream of the user, with this result, is to be made again.
 * Where another thread captures a blocking stream, CUDA forbids the legacy default stream until
 * that capture ends, and spoils the capture. Calls of a communicator that have their turns wait for
 * that end, at most 10 s, because the other ranks wait for them. *deadline_ns: 0 at first; then of
 * that wait. In the stream's context. */
bool tt_cuda_is_to_repeat(const struct tt_cuda *cu, CUresult result, int64_t *deadline_ns);

/* Calls cu<Name> of the driver and passes a failure on. Only where no resources are held. */
#define TT_CUDA_TRY(cu, Name, ...)                                                                 \
    do {                                                                                           \
        const CUresult tt_cuda_result = (cu)->Name(__VA_ARGS__);                                   \
        if (tt_cuda_result != CUDA_SUCCESS) return tt_cuda_fail(tt_cuda_result, "cu" #Name);       \
    } while (0)

#endif
