// Results of tutti's functions as PyTorch's exceptions.
#include "errors.hpp"

#include <c10/util/Exception.h>

namespace tutti_torch
{

std::string last_error(tuttiResult_t result, tuttiComm_t comm)
{
    const char *text = tuttiGetLastError(comm);
    return *text ? text : tuttiGetErrorString(result);
}

void check(tuttiResult_t result, tuttiComm_t comm)
{
    if (result == tuttiSuccess) return;
    TORCH_CHECK_WITH(DistBackendError, false, last_error(result, comm));
}

} // namespace tutti_torch
