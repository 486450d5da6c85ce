// Results of tutti's functions as PyTorch's exceptions.
#ifndef TUTTI_TORCH_ERRORS_H
#define TUTTI_TORCH_ERRORS_H

#include <string>

#include <tutti.h>

namespace tutti_torch
{

/* The text of the last error: of `comm` when it has failed, else of the calling thread. */
std::string last_error(tuttiResult_t result, tuttiComm_t comm);

/* Throws c10::DistBackendError with tutti's text where result is an error. comm may be NULL. */
void check(tuttiResult_t result, tuttiComm_t comm);

} // namespace tutti_torch

#endif
