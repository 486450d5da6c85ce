/* The driver's functions for the tests themselves, found at run time as the library finds them. */
#ifndef TT_TESTS_DRIVER_CALLS_H
#define TT_TESTS_DRIVER_CALLS_H

#include <cuda.h>
#include <dlfcn.h>
#include <stddef.h>
#include <string.h>

#include "shim.h"

static inline void *tt_test_symbol(const char *name)
{
    void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    return library ? dlsym(library, name) : NULL;
}

/* Calls the function by its symbol (cuMemAlloc_v2, not cuMemAlloc). Its result. */
#define RESULT(name, ...)                                                                          \
    __extension__({                                                                                \
        __typeof__(name) *call_;                                                                   \
        void *symbol_ = tt_test_symbol(#name);                                                     \
        memcpy(&call_, &symbol_, sizeof call_);                                                    \
        symbol_ ? call_(__VA_ARGS__) : CUDA_ERROR_NOT_FOUND;                                       \
    })
#define CALL(name, ...) CHECK_EQ(RESULT(name, __VA_ARGS__), CUDA_SUCCESS)

#endif
