/* Libraries: PTX and fat binaries that the program itself loads. */
#include "runtime.h"

VR_SAME(cudaLibraryLoadData,
        (cudaLibrary_t * library, const void *code, enum cudaJitOption *options, void **values,
         unsigned int noptions, enum cudaLibraryOption *library_options, void **library_values,
         unsigned int nlibrary_options),
        cuLibraryLoadData(library, code, (CUjit_option *)options, values, noptions,
                          (CUlibraryOption *)library_options, library_values, nlibrary_options))
VR_SAME(cudaLibraryLoadFromFile,
        (cudaLibrary_t * library, const char *path, enum cudaJitOption *options, void **values,
         unsigned int noptions, enum cudaLibraryOption *library_options, void **library_values,
         unsigned int nlibrary_options),
        cuLibraryLoadFromFile(library, path, (CUjit_option *)options, values, noptions,
                              (CUlibraryOption *)library_options, library_values, nlibrary_options))
VR_SAME(cudaLibraryUnload, (cudaLibrary_t library), cuLibraryUnload(library))
VR_SAME(cudaLibraryGetKernel, (cudaKernel_t * kernel, cudaLibrary_t library, const char *name),
        cuLibraryGetKernel(kernel, library, name))
VR_SAME(cudaLibraryGetKernelCount, (unsigned int *count, cudaLibrary_t library),
        cuLibraryGetKernelCount(count, library))
VR_SAME(cudaLibraryEnumerateKernels,
        (cudaKernel_t * kernels, unsigned int room, cudaLibrary_t library),
        cuLibraryEnumerateKernels(kernels, room, library))
VR_SAME(cudaLibraryGetUnifiedFunction, (void **function, cudaLibrary_t library, const char *name),
        cuLibraryGetUnifiedFunction(function, library, name))

cudaError_t cudaLibraryGetGlobal(void **address, size_t *nbytes, cudaLibrary_t library,
                                 const char *name)
{
    CUdeviceptr found = 0;
    VR_ENTER();
    const CUresult result = cuLibraryGetGlobal(&found, nbytes, library, name);
    if (result == CUDA_SUCCESS && address != NULL) *address = vr_pointer(found);
    return vr_driver_done(result);
}

cudaError_t cudaLibraryGetManaged(void **address, size_t *nbytes, cudaLibrary_t library,
                                  const char *name)
{
    CUdeviceptr found = 0;
    VR_ENTER();
    const CUresult result = cuLibraryGetManaged(&found, nbytes, library, name);
    if (result == CUDA_SUCCESS && address != NULL) *address = vr_pointer(found);
    return vr_driver_done(result);
}
