/* Kernels and variables of the program. nvcc's code registers them before main begins, by the
 * address of a host function or variable. A fat binary is loaded when one of its kernels or
 * variables is first asked for.
 *
 * One table has both, by host address: open addressing, at most half full. Its symbols are never
 * freed before their fat binary is unregistered. */
#include "runtime.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

struct fat {
    const void *wrapper;
    CUlibrary library; /* NULL: not loaded */
    CUresult failed;   /* what loading returned; it is not tried again */
};

struct symbol {
    const void *host;
    struct fat *fat;
    const char *name;
    bool is_kernel, is_managed;
    CUkernel kernel; /* NULL: not asked for */
};

/* Guarded by lock. */
static struct symbol *table;
static size_t room, nsymbols;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static size_t place_of(const struct symbol *in, size_t size, const void *host)
{
    size_t i = (size_t)(((uint64_t)(uintptr_t)host * UINT64_C(0x9e3779b97f4a7c15)) >> 20) % size;
    while (in[i].host != NULL && in[i].host != host) i = (i + 1) % size;
    return i;
}

static struct symbol *find_locked(const void *host)
{
    if (room == 0 || host == NULL) return NULL;
    struct symbol *symbol = &table[place_of(table, room, host)];
    return symbol->host != NULL ? symbol : NULL;
}

/* A table of this size with all symbols but those of `without`. false: no memory. */
static bool rebuild_locked(size_t size, const struct fat *without)
{
    struct symbol *made = calloc(size, sizeof *made);
    if (made == NULL) return false;
    nsymbols = 0;
    for (size_t i = 0; i < room; i++) {
        if (table[i].host == NULL || table[i].fat == without) continue;
        made[place_of(made, size, table[i].host)] = table[i];
        nsymbols++;
    }
    free(table);
    table = made;
    room = size;
    return true;
}

static void add(const struct symbol *symbol)
{
    pthread_mutex_lock(&lock);
    const bool fits = 2 * (nsymbols + 1) <= room || rebuild_locked(room == 0 ? 64 : 2 * room, NULL);
    if (fits) {
        struct symbol *at = &table[place_of(table, room, symbol->host)];
        if (at->host == NULL) nsymbols++;
        *at = *symbol;
    }
    pthread_mutex_unlock(&lock);
    if (!fits) fprintf(stderr, "vgpu: ERROR: no memory to register %s\n", symbol->name);
}

void **__cudaRegisterFatBinary(void *wrapper)
{
    struct fat *fat = calloc(1, sizeof *fat);
    if (fat == NULL) {
        fprintf(stderr, "vgpu: ERROR: no memory to register a fat binary\n");
        return NULL;
    }
    fat->wrapper = wrapper;
    return (void **)fat;
}

void __cudaRegisterFatBinaryEnd(void **handle)
{
    (void)handle; /* loading is lazy */
}

/* The driver keeps the library: its kernels may still run when the process ends. */
void __cudaUnregisterFatBinary(void **handle)
{
    struct fat *fat = (struct fat *)(void *)handle;
    if (fat == NULL) return;
    pthread_mutex_lock(&lock);
    if (room != 0 && rebuild_locked(room, fat)) free(fat);
    pthread_mutex_unlock(&lock);
}

void __cudaRegisterFunction(void **handle, const char *host, char *device, const char *name,
                            int thread_limit, uint3 *thread, uint3 *block, dim3 *block_dim,
                            dim3 *grid_dim, int *warp_size)
{
    (void)device;
    (void)thread_limit;
    (void)thread;
    (void)block;
    (void)block_dim;
    (void)grid_dim;
    (void)warp_size;
    if (handle == NULL) return;
    add(&(struct symbol){.host = host, .fat = (void *)handle, .name = name, .is_kernel = true});
}

void __cudaRegisterVar(void **handle, char *host, char *device, const char *name, int external,
                       size_t nbytes, int constant, int global)
{
    (void)device;
    (void)external;
    (void)nbytes;
    (void)constant;
    (void)global;
    if (handle == NULL) return;
    add(&(struct symbol){.host = host, .fat = (void *)handle, .name = name});
}

void __cudaRegisterManagedVar(void **handle, void **host, char *device, const char *name,
                              int external, size_t nbytes, int constant, int global)
{
    (void)device;
    (void)external;
    (void)nbytes;
    (void)constant;
    (void)global;
    if (handle == NULL) return;
    add(&(struct symbol){.host = host, .fat = (void *)handle, .name = name, .is_managed = true});
}

static CUresult load_locked(struct fat *fat)
{
    if (fat->library != NULL || fat->failed != CUDA_SUCCESS) return fat->failed;
    const CUresult result =
        cuLibraryLoadData(&fat->library, fat->wrapper, NULL, NULL, 0, NULL, NULL, 0);
    fat->failed = result;
    if (result == CUDA_ERROR_NO_BINARY_FOR_GPU)
        fprintf(stderr,
                "vgpu: ERROR: a part of the program has no PTX for this GPU: compile it with "
                "nvcc -gencode arch=compute_75,code=compute_75\n");
    return result;
}

/* nvcc's code calls this before the first use of a managed variable, whose host pointer stays NULL:
 * the driver has no memory for such variables. */
char __cudaInitModule(void **handle)
{
    static bool said;
    const struct fat *fat = (const struct fat *)(const void *)handle;
    pthread_mutex_lock(&lock);
    for (size_t i = 0; i < room && !said; i++) {
        if (table[i].host == NULL || table[i].fat != fat || !table[i].is_managed) continue;
        fprintf(stderr,
                "vgpu: WARN: __managed__ variables (%s) are not supported by the virtual GPU: use "
                "memory of cudaMallocManaged\n",
                table[i].name);
        said = true;
    }
    pthread_mutex_unlock(&lock);
    return 1;
}

static cudaError_t kernel_locked(struct symbol *symbol, CUkernel *kernel)
{
    CUresult result = CUDA_SUCCESS;
    if (!symbol->is_kernel) return cudaErrorInvalidDeviceFunction;
    if (symbol->kernel == NULL) {
        result = load_locked(symbol->fat);
        if (result == CUDA_SUCCESS)
            result = cuLibraryGetKernel(&symbol->kernel, symbol->fat->library, symbol->name);
        if (result == CUDA_ERROR_NOT_FOUND) return cudaErrorInvalidDeviceFunction;
    }
    *kernel = symbol->kernel;
    return (cudaError_t)result;
}

/* *found: the program has registered the host function, whether or not its kernel can be loaded. */
static cudaError_t registered(const void *function, CUkernel *kernel, bool *found)
{
    pthread_mutex_lock(&lock);
    struct symbol *symbol = find_locked(function);
    const cudaError_t error =
        symbol != NULL ? kernel_locked(symbol, kernel) : cudaErrorInvalidDeviceFunction;
    pthread_mutex_unlock(&lock);
    *found = symbol != NULL;
    return error;
}

cudaError_t vr_function(const void *function, CUfunction *handle)
{
    CUkernel kernel = NULL;
    const char *name;
    bool found;
    const cudaError_t error = registered(function, &kernel, &found);
    *handle = found ? (CUfunction)kernel : (CUfunction)(uintptr_t)function;
    if (found) return error;
    const CUresult result = cuFuncGetName(&name, *handle);
    return result == CUDA_ERROR_INVALID_HANDLE ? cudaErrorInvalidDeviceFunction
                                               : (cudaError_t)result;
}

cudaError_t vr_variable(const void *host, CUdeviceptr *address, size_t *nbytes)
{
    CUresult result = CUDA_ERROR_NOT_FOUND;
    pthread_mutex_lock(&lock);
    struct symbol *symbol = find_locked(host);
    if (symbol != NULL && !symbol->is_kernel) {
        result = load_locked(symbol->fat);
        if (result == CUDA_SUCCESS)
            result = cuLibraryGetGlobal(address, nbytes, symbol->fat->library, symbol->name);
    }
    pthread_mutex_unlock(&lock);
    return result == CUDA_ERROR_NOT_FOUND ? cudaErrorInvalidSymbol : (cudaError_t)result;
}

/* ---- what asks for them ---- */

/* The handle is the host address itself, which __cudaLaunchKernel looks up: nvcc's code keeps the
 * first answer for ever, also where the kernel could not be loaded. */
cudaError_t __cudaGetKernel(cudaKernel_t *kernel, const void *host)
{
    if (kernel == NULL) return vr_done(cudaErrorInvalidValue);
    *kernel = (cudaKernel_t)(uintptr_t)host;
    return cudaSuccess;
}

cudaError_t cudaGetKernel(cudaKernel_t *kernel, const void *host)
{
    bool found;
    VR_ENTER();
    return vr_done(kernel == NULL ? cudaErrorInvalidValue : registered(host, kernel, &found));
}

cudaError_t cudaGetFuncBySymbol(cudaFunction_t *function, const void *host)
{
    CUkernel kernel;
    bool found;
    VR_ENTER();
    const cudaError_t error = registered(host, &kernel, &found);
    if (error != cudaSuccess) return vr_done(error);
    return vr_driver_done(cuKernelGetFunction(function, kernel));
}

cudaError_t cudaGetSymbolAddress(void **address, const void *host)
{
    CUdeviceptr found;
    VR_ENTER();
    if (address == NULL) return vr_done(cudaErrorInvalidValue);
    const cudaError_t error = vr_variable(host, &found, NULL);
    if (error == cudaSuccess) *address = vr_pointer(found);
    return vr_done(error);
}

cudaError_t cudaGetSymbolSize(size_t *nbytes, const void *host)
{
    VR_ENTER();
    return vr_done(nbytes == NULL ? cudaErrorInvalidValue : vr_variable(host, NULL, nbytes));
}
