/* A library of NCCL's, which is loaded at run time, behind the table of library.h. Its handles go
 * by tutti's types; types, operations and results have the same numbers. */
#include "nccl.h"

#include <dlfcn.h>
#include <link.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "common/library.h"

_Static_assert(sizeof(ncclUniqueId) == sizeof(tuttiUniqueId), "an id goes by tutti's type");
_Static_assert((int)ncclFloat8e5m2 == (int)tuttiFloat8e5m2 && (int)ncclAvg == (int)tuttiAvg &&
                   (int)ncclTimeout == (int)tuttiTimeout,
               "types, operations and results have the same numbers");

/* The first four bytes of an id of tutti's, as a number. */
#define TUTTI_ID_MAGIC 0x54754964u

/* What every library of NCCL's has from 2.19 on. */
#define ALWAYS(X)                                                                                  \
    X(GetVersion)                                                                                  \
    X(GetUniqueId)                                                                                 \
    X(GetErrorString)                                                                              \
    X(GetLastError)                                                                                \
    X(CommInitRank)                                                                                \
    X(CommDestroy)                                                                                 \
    X(CommAbort)                                                                                   \
    X(CommGetAsyncError)                                                                           \
    X(CommRegister)                                                                                \
    X(CommDeregister)                                                                              \
    X(RedOpCreatePreMulSum)                                                                        \
    X(RedOpDestroy)                                                                                \
    X(GroupStart)                                                                                  \
    X(GroupEnd)                                                                                    \
    X(AllReduce)                                                                                   \
    X(Broadcast)                                                                                   \
    X(Reduce)                                                                                      \
    X(AllGather)                                                                                   \
    X(ReduceScatter)                                                                               \
    X(Send)                                                                                        \
    X(Recv)
/* What it has from 2.28 on. */
#define LATER(X)                                                                                   \
    X(AlltoAll)                                                                                    \
    X(Gather)                                                                                      \
    X(Scatter)

#define MEMBER(name) __typeof__(nccl##name) *name;
static struct {
    ALWAYS(MEMBER)
    LATER(MEMBER)
} nccl; /* filled by perf_nccl_load */
#undef MEMBER

static char file[512];
static int version;
static _Atomic bool is_tuttis;          /* known with the first id */
static _Thread_local char refusal[256]; /* why this file has refused a call of this thread */

/* ---- Loading --------------------------------------------------------------------------------- */

static bool fail(char *error, size_t nbytes, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
static bool fail(char *error, size_t nbytes, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(error, nbytes, format, arguments);
    va_end(arguments);
    return false;
}

/* The file that was found for `path`, which may be a name to look for. */
static void note_file(void *library, const char *path)
{
    const struct link_map *map = NULL;
    const bool known = dlinfo(library, RTLD_DI_LINKMAP, &map) == 0 && map->l_name[0] != '\0';
    snprintf(file, sizeof(file), "%s", known ? map->l_name : path);
}

bool perf_nccl_load(const char *path, const char *function, char *error, size_t error_bytes)
{
    const char *missing = NULL;
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (library == NULL)
        return fail(error, error_bytes, "--library: cannot load '%s': %s", path, dlerror());
    note_file(library, path);
#define FIND(name) *(void **)&nccl.name = dlsym(library, "nccl" #name);
    ALWAYS(FIND)
    LATER(FIND)
#undef FIND
    if (nccl.GetVersion == NULL)
        return fail(error, error_bytes,
                    "--library: '%s' is no library of NCCL's: it has no ncclGetVersion", file);
    if (nccl.GetVersion(&version) != ncclSuccess)
        return fail(error, error_bytes, "--library: ncclGetVersion of '%s' fails", file);
#define LOOK(name)                                                                                 \
    if (nccl.name == NULL) missing = "nccl" #name;
    ALWAYS(LOOK)
#undef LOOK
    if (dlsym(library, function) == NULL) missing = function;
    if (missing == NULL) return true;
    return fail(error, error_bytes,
                "--library: '%s', version %d.%d.%d, has no %s: take one of 2.28 or later", file,
                version / 10000, version / 100 % 100, version % 100, missing);
}

static int nccl_version(void)
{
    return version;
}

static const char *path_of_file(void)
{
    return file;
}

static const char *title(void)
{
    static char text[sizeof(file) + 64];
    snprintf(text, sizeof(text), "NCCL %d.%d.%d%s, %s", version / 10000, version / 100 % 100,
             version % 100,
             atomic_load_explicit(&is_tuttis, memory_order_relaxed) ? " of tutti" : "", file);
    return text;
}

/* ---- Results --------------------------------------------------------------------------------- */

static tuttiResult_t refuse(tuttiResult_t result, const char *sentence)
{
    snprintf(refusal, sizeof(refusal), "%s", sentence);
    return result;
}

static tuttiResult_t end(ncclResult_t result)
{
    if (result != ncclInProgress) return (tuttiResult_t)result;
    return refuse(tuttiInvalidUsage, "a call of the library returns before it is done: leave out "
                                     "NCCL_COMM_BLOCKING=0");
}

static const char *last_error(tuttiComm_t comm)
{
    return refusal[0] != '\0' ? refusal : nccl.GetLastError((ncclComm_t)comm);
}

/* ---- Communicators --------------------------------------------------------------------------- */

static tuttiResult_t get_id(tuttiUniqueId *id)
{
    ncclUniqueId made;
    const tuttiResult_t result = end(nccl.GetUniqueId(&made));
    if (result == tuttiSuccess) memcpy(id, &made, sizeof(*id));
    return result;
}

/* NCCL takes the GPU whose context is current. Without a GPU buffers are memory of the host, which
 * only tutti's library takes: NVIDIA's would read it on a GPU. */
static tuttiResult_t init_rank(tuttiComm_t *comm, int nranks, tuttiUniqueId id, int rank,
                               const tuttiConfig_t *config)
{
    ncclUniqueId given;
    unsigned magic;
    memcpy(&magic, &id, sizeof(magic));
    memcpy(&given, &id, sizeof(given));
    const bool tuttis = magic == TUTTI_ID_MAGIC, on_gpu = config->device >= 0;
    atomic_store_explicit(&is_tuttis, tuttis, memory_order_relaxed);
    if (!on_gpu && !tuttis)
        return refuse(tuttiInvalidUsage, "--library: only tutti's libnccl.so.2 takes memory of "
                                         "the host: use --device cuda");
    if (on_gpu && perf_gpu_enter(config->device) != tuttiSuccess) return tuttiUnhandledDeviceError;
    return end(nccl.CommInitRank((ncclComm_t *)(void *)comm, nranks, given, rank));
}

static tuttiResult_t destroy(tuttiComm_t comm)
{
    return end(nccl.CommDestroy((ncclComm_t)comm));
}

static tuttiResult_t abort_comm(tuttiComm_t comm)
{
    return end(nccl.CommAbort((ncclComm_t)comm));
}

static tuttiResult_t register_memory(tuttiComm_t comm, void *memory, size_t nbytes, void **handle)
{
    return end(nccl.CommRegister((ncclComm_t)comm, memory, nbytes, handle));
}

static tuttiResult_t deregister_memory(tuttiComm_t comm, void *handle)
{
    return end(nccl.CommDeregister((ncclComm_t)comm, handle));
}

static tuttiResult_t make_op(tuttiRedOp_t *op, void *scalar, tuttiDataType_t type,
                             tuttiScalarResidence_t residence, tuttiComm_t comm)
{
    ncclRedOp_t made;
    const tuttiResult_t result = end(nccl.RedOpCreatePreMulSum(
        &made, scalar, (ncclDataType_t)type, (ncclScalarResidence_t)residence, (ncclComm_t)comm));
    if (result == tuttiSuccess) *op = (tuttiRedOp_t)made;
    return result;
}

static tuttiResult_t destroy_op(tuttiRedOp_t op, tuttiComm_t comm)
{
    return end(nccl.RedOpDestroy((ncclRedOp_t)op, (ncclComm_t)comm));
}

/* ---- Streams --------------------------------------------------------------------------------- */

/* NCCL takes CUDA's handles as they are. */
static tuttiResult_t stream_of_gpu(tuttiStream_t *stream, int device, void *handle)
{
    (void)device;
    *stream = handle;
    return tuttiSuccess;
}

static tuttiResult_t destroy_stream(tuttiStream_t stream)
{
    (void)stream; /* perf_gpu_close destroys it */
    return tuttiSuccess;
}

/* Calls on memory of the host are complete on return. */
static tuttiResult_t wait_for(tuttiComm_t comm, const struct perf_gpu *gpu, tuttiStream_t stream)
{
    ncclResult_t found = ncclSuccess;
    if (stream == NULL) return tuttiSuccess;
    const tuttiResult_t waited = perf_gpu_wait(gpu);
    const tuttiResult_t asked = end(nccl.CommGetAsyncError((ncclComm_t)comm, &found));
    if (asked != tuttiSuccess) return asked;
    return found == ncclSuccess ? waited : end(found);
}

/* ---- Calls ----------------------------------------------------------------------------------- */

static tuttiResult_t group_start(void)
{
    return end(nccl.GroupStart());
}

static tuttiResult_t group_end(void)
{
    return end(nccl.GroupEnd());
}

static tuttiResult_t all_reduce(const void *send, void *recv, size_t count, tuttiDataType_t type,
                                tuttiRedOp_t op, tuttiComm_t comm, tuttiStream_t stream)
{
    return end(nccl.AllReduce(send, recv, count, (ncclDataType_t)type, (ncclRedOp_t)op,
                              (ncclComm_t)comm, (cudaStream_t)stream));
}

static tuttiResult_t broadcast(const void *send, void *recv, size_t count, tuttiDataType_t type,
                               int root, tuttiComm_t comm, tuttiStream_t stream)
{
    return end(nccl.Broadcast(send, recv, count, (ncclDataType_t)type, root, (ncclComm_t)comm,
                              (cudaStream_t)stream));
}

static tuttiResult_t reduce(const void *send, void *recv, size_t count, tuttiDataType_t type,
                            tuttiRedOp_t op, int root, tuttiComm_t comm, tuttiStream_t stream)
{
    return end(nccl.Reduce(send, recv, count, (ncclDataType_t)type, (ncclRedOp_t)op, root,
                           (ncclComm_t)comm, (cudaStream_t)stream));
}

static tuttiResult_t all_gather(const void *send, void *recv, size_t count, tuttiDataType_t type,
                                tuttiComm_t comm, tuttiStream_t stream)
{
    return end(nccl.AllGather(send, recv, count, (ncclDataType_t)type, (ncclComm_t)comm,
                              (cudaStream_t)stream));
}

static tuttiResult_t reduce_scatter(const void *send, void *recv, size_t count,
                                    tuttiDataType_t type, tuttiRedOp_t op, tuttiComm_t comm,
                                    tuttiStream_t stream)
{
    return end(nccl.ReduceScatter(send, recv, count, (ncclDataType_t)type, (ncclRedOp_t)op,
                                  (ncclComm_t)comm, (cudaStream_t)stream));
}

static tuttiResult_t all_to_all(const void *send, void *recv, size_t count, tuttiDataType_t type,
                                tuttiComm_t comm, tuttiStream_t stream)
{
    return end(nccl.AlltoAll(send, recv, count, (ncclDataType_t)type, (ncclComm_t)comm,
                             (cudaStream_t)stream));
}

static tuttiResult_t gather(const void *send, void *recv, size_t count, tuttiDataType_t type,
                            int root, tuttiComm_t comm, tuttiStream_t stream)
{
    return end(nccl.Gather(send, recv, count, (ncclDataType_t)type, root, (ncclComm_t)comm,
                           (cudaStream_t)stream));
}

static tuttiResult_t scatter(const void *send, void *recv, size_t count, tuttiDataType_t type,
                             int root, tuttiComm_t comm, tuttiStream_t stream)
{
    return end(nccl.Scatter(send, recv, count, (ncclDataType_t)type, root, (ncclComm_t)comm,
                            (cudaStream_t)stream));
}

static tuttiResult_t send_to(const void *send, size_t count, tuttiDataType_t type, int peer,
                             tuttiComm_t comm, tuttiStream_t stream)
{
    return end(
        nccl.Send(send, count, (ncclDataType_t)type, peer, (ncclComm_t)comm, (cudaStream_t)stream));
}

static tuttiResult_t receive(void *recv, size_t count, tuttiDataType_t type, int peer,
                             tuttiComm_t comm, tuttiStream_t stream)
{
    return end(
        nccl.Recv(recv, count, (ncclDataType_t)type, peer, (ncclComm_t)comm, (cudaStream_t)stream));
}

const struct perf_library perf_nccl = {
    .ntypes = ncclNumTypes,
    .nops = ncclNumOps,
    .nccl_version = nccl_version,
    .title = title,
    .path = path_of_file,
    .get_id = get_id,
    .init_rank = init_rank,
    .destroy = destroy,
    .abort = abort_comm,
    .last_error = last_error,
    .register_memory = register_memory,
    .deregister_memory = deregister_memory,
    .make_op = make_op,
    .destroy_op = destroy_op,
    .stream_of_gpu = stream_of_gpu,
    .destroy_stream = destroy_stream,
    .wait = wait_for,
    .group_start = group_start,
    .group_end = group_end,
    .all_reduce = all_reduce,
    .broadcast = broadcast,
    .reduce = reduce,
    .all_gather = all_gather,
    .reduce_scatter = reduce_scatter,
    .all_to_all = all_to_all,
    .gather = gather,
    .scatter = scatter,
    .send = send_to,
    .recv = receive,
};
