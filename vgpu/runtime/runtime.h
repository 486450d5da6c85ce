/* What the files of the virtual libcudart.so.13 share.
 *
 * The runtime is a layer over the driver API of libcuda.so.1. Its handles of streams, events,
 * graphs, kernels, libraries and pools are the driver's, and its errors have the driver's numbers.
 * It has of its own: the primary contexts that it retained (current.c), the last error of each
 * thread (error.c), and the kernels and variables of the program, as nvcc's code has registered
 * them (register.c). */
#ifndef VGPU_RUNTIME_H
#define VGPU_RUNTIME_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#pragma GCC visibility push(default)
#include <cuda.h>
#include <cuda_runtime_api.h>

/* As cuda_profiler_api.h declares them, which NVIDIA's wheel of the compiler lacks. */
cudaError_t cudaProfilerStart(void);
cudaError_t cudaProfilerStop(void);

/* What nvcc's code calls, which has no header for C; as crt/host_runtime.h and
 * crt/device_functions.h of CUDA 13.0 declare it. */
void **__cudaRegisterFatBinary(void *wrapper);
void __cudaRegisterFatBinaryEnd(void **handle);
void __cudaUnregisterFatBinary(void **handle);
void __cudaRegisterFunction(void **handle, const char *host, char *device, const char *name,
                            int thread_limit, uint3 *thread, uint3 *block, dim3 *block_dim,
                            dim3 *grid_dim, int *warp_size);
void __cudaRegisterVar(void **handle, char *host, char *device, const char *name, int external,
                       size_t nbytes, int constant, int global);
void __cudaRegisterManagedVar(void **handle, void **host, char *device, const char *name,
                              int external, size_t nbytes, int constant, int global);
char __cudaInitModule(void **handle);
unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, size_t shared, void *stream);
cudaError_t __cudaPopCallConfiguration(dim3 *grid, dim3 *block, size_t *shared, void *stream);
cudaError_t __cudaGetKernel(cudaKernel_t *kernel, const void *host);
cudaError_t __cudaLaunchKernel(cudaKernel_t kernel, dim3 grid, dim3 block, void **args,
                               size_t shared, cudaStream_t stream);
cudaError_t __cudaLaunchKernel_ptsz(cudaKernel_t kernel, dim3 grid, dim3 block, void **args,
                                    size_t shared, cudaStream_t stream);
#pragma GCC visibility pop

/* ---- errors (error.c) ---- */

/* Makes the error the thread's last one, unless it is cudaSuccess. Returns it. */
cudaError_t vr_done(cudaError_t error);
/* vr_done for what the driver returned. */
cudaError_t vr_driver_done(CUresult result);

/* ---- the current context (current.c) ---- */

/* Initializes the driver. */
cudaError_t vr_start(void);
/* The thread has a context: its current one, or else the primary one of its device, which is
 * retained at its first use. */
cudaError_t vr_enter(void);
/* The primary context of a device, retained if it was not. */
cudaError_t vr_primary(int device, CUcontext *context);

/* The beginning of a call that needs a context. */
#define VR_ENTER()                                                                                 \
    do {                                                                                           \
        const cudaError_t entered_ = vr_enter();                                                   \
        if (entered_ != cudaSuccess) return vr_done(entered_);                                     \
    } while (0)
/* The beginning of a call that needs only the driver. */
#define VR_START()                                                                                 \
    do {                                                                                           \
        const cudaError_t started_ = vr_start();                                                   \
        if (started_ != cudaSuccess) return vr_done(started_);                                     \
    } while (0)

/* A call that is one of the driver's with the same arguments. */
#define VR_SAME(name, parameters, driver_call)                                                     \
    cudaError_t name parameters                                                                    \
    {                                                                                              \
        VR_ENTER();                                                                                \
        return vr_driver_done(driver_call);                                                        \
    }

/* ---- kernels and variables of the program (register.c) ---- */

/* What the driver takes as the function of a host function, whose kernel is loaded if it was not;
 * or the handle itself where `function` is one of a kernel or function, as CUDA takes these too. */
cudaError_t vr_function(const void *function, CUfunction *handle);
/* The variable of the current device whose host variable this is. Either output may be NULL. */
cudaError_t vr_variable(const void *host, CUdeviceptr *address, size_t *nbytes);

/* ---- copies (copy.c) ---- */

/* The copy in the driver's form, after checks of both sides and the kind. */
cudaError_t vr_copy_3d(const struct cudaMemcpy3DParms *copy, CUDA_MEMCPY3D *made);
/* Bytes of the kind's direction as such a copy. */
CUDA_MEMCPY3D vr_copy_line(void *to, const void *from, size_t nbytes);
cudaError_t vr_copy_kind(enum cudaMemcpyKind kind);

static inline CUdeviceptr vr_address(const void *pointer)
{
    return (CUdeviceptr)(uintptr_t)pointer;
}

static inline void *vr_pointer(CUdeviceptr address)
{
    return (void *)(uintptr_t)address;
}

#endif
