/* The last error of each thread, and names and texts of errors. */
#include "runtime.h"

#include <stdio.h>

#include "refused.h"

static _Thread_local cudaError_t last;

static const struct {
    cudaError_t error;
    const char *name, *text; /* text NULL: the driver's text of the same number */
} errors[] = {
#define ERROR(name, text)                                                                          \
    {                                                                                              \
        name, #name, text                                                                          \
    }
#include "errors_table.h"
#undef ERROR
};

enum { NERRORS = sizeof errors / sizeof *errors };

/* The context is lost: every later call that needs it returns the error too. */
static bool is_sticky(cudaError_t error)
{
    switch (error) {
    case cudaErrorECCUncorrectable:
    case cudaErrorNvlinkUncorrectable:
    case cudaErrorContained:
    case cudaErrorIllegalAddress:
    case cudaErrorLaunchTimeout:
    case cudaErrorAssert:
    case cudaErrorHardwareStackError:
    case cudaErrorIllegalInstruction:
    case cudaErrorMisalignedAddress:
    case cudaErrorInvalidAddressSpace:
    case cudaErrorInvalidPc:
    case cudaErrorLaunchFailure:
    case cudaErrorTensorMemoryLeak:
        return true;
    default:
        return false;
    }
}

cudaError_t vr_done(cudaError_t error)
{
    if (error != cudaSuccess) last = error;
    return error;
}

cudaError_t vr_driver_done(CUresult result)
{
    return vr_done((cudaError_t)result);
}

int vr_refuse(const char *name, int *said)
{
    if (!*said) fprintf(stderr, "vgpu: WARN: %s is not supported by the virtual GPU\n", name);
    *said = 1;
    return (int)vr_done(cudaErrorNotSupported);
}

cudaError_t cudaPeekAtLastError(void)
{
    return last;
}

cudaError_t cudaGetLastError(void)
{
    const cudaError_t error = last;
    if (!is_sticky(error)) last = cudaSuccess;
    return error;
}

static int find(cudaError_t error)
{
    int i = 0;
    while (i < NERRORS && errors[i].error != error) i++;
    return i;
}

const char *cudaGetErrorName(cudaError_t error)
{
    const int i = find(error);
    return i < NERRORS ? errors[i].name : "unrecognized error code";
}

const char *cudaGetErrorString(cudaError_t error)
{
    const int i = find(error);
    const char *text;
    if (i == NERRORS) return "unrecognized error code";
    if (errors[i].text != NULL) return errors[i].text;
    return cuGetErrorString((CUresult)error, &text) == CUDA_SUCCESS ? text : errors[i].name;
}
