/* tutti: collective communication on memory of the host and of GPUs.
 *
 * The calls, their order of arguments and their semantics are NCCL's (2.30.7) wherever NCCL has the
 * call, under `tutti` names. Calls and values that NCCL lacks are marked (tutti).
 *
 * Words: a `rank` 0..nranks-1 is one participant; `count` is in elements of the type, never in
 * bytes; `nbytes` is in bytes; `stream` NULL means that the call runs in the calling thread and is
 * complete when it returns (in a group: when tuttiGroupEnd returns).
 *
 * Threads: several threads may use different communicators at once. Only one thread at a time may
 * use a communicator. Where one thread has several ranks, wrap the calls of all ranks in
 * tuttiGroupStart and tuttiGroupEnd, or give each rank a stream.
 *
 * Errors: every function returns tuttiSuccess or an error, of which tuttiGetLastError gives the
 * text: the value, what was expected, and how to mend it. A function whose argument check fails
 * changes nothing. Below, "InvalidArgument" stands for tuttiInvalidArgument, and so on; any call
 * may also return InvalidArgument for a pointer that must not be NULL, or a handle that is none. */
#ifndef TUTTI_H
#define TUTTI_H

#include <limits.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define TUTTI_MAJOR 0
#define TUTTI_MINOR 1
#define TUTTI_PATCH 0
#define TUTTI_VERSION_CODE (TUTTI_MAJOR * 10000 + TUTTI_MINOR * 100 + TUTTI_PATCH)

#if defined(_WIN32)
#define TUTTI_API
#else
#define TUTTI_API __attribute__((visibility("default")))
#endif

/* ---- Types -------------------------------------------------------------------------------- */

typedef struct tuttiComm *tuttiComm_t;     /* one rank's end of a communicator */
typedef struct tuttiStream *tuttiStream_t; /* a FIFO of work, the host's or a GPU's */
typedef struct tuttiEvent *tuttiEvent_t;   /* a position in a stream, recorded */
typedef struct tuttiPlan *tuttiPlan_t;     /* a schedule to print, count and verify */

#define TUTTI_UNIQUE_ID_BYTES 128
typedef struct {
    char internal[TUTTI_UNIQUE_ID_BYTES];
} tuttiUniqueId; /* secret: every process that has it can join */

/* Values 0 to 8 are NCCL's. */
typedef enum {
    tuttiSuccess = 0,
    tuttiUnhandledDeviceError = 1,
    tuttiSystemError = 2,     /* the operating system refused something */
    tuttiInternalError = 3,   /* a bug in tutti */
    tuttiInvalidArgument = 4, /* a value that can never be right */
    tuttiInvalidUsage = 5,    /* valid values in the wrong place or order; ranks that disagree */
    tuttiRemoteError = 6,     /* another rank died, left or aborted */
    tuttiInProgress = 7,
    tuttiTimeout = 8, /* a deadline passed */
    tuttiNumResults = 9
} tuttiResult_t;

/* Values 0 to 11 are NCCL's. fp8 follows OCP OFP8 (e4m3: no infinity, 448 is the largest). */
typedef enum {
    tuttiInt8 = 0,
    tuttiChar = 0,
    tuttiUint8 = 1,
    tuttiInt32 = 2,
    tuttiInt = 2,
    tuttiUint32 = 3,
    tuttiInt64 = 4,
    tuttiUint64 = 5,
    tuttiFloat16 = 6,
    tuttiHalf = 6,
    tuttiFloat32 = 7,
    tuttiFloat = 7,
    tuttiFloat64 = 8,
    tuttiDouble = 8,
    tuttiBfloat16 = 9,
    tuttiFloat8e4m3 = 10,
    tuttiFloat8e5m2 = 11,
    tuttiInt16 = 12,  /* (tutti) */
    tuttiUint16 = 13, /* (tutti) */
    tuttiNumTypes = 14
} tuttiDataType_t;

/* Values 0 to 4 are NCCL's. Bitwise and logical operations take integer types only; a logical
 * result is 0 or 1. Sums and products of integers wrap around; their average is the sum, wrapped,
 * divided by the number of ranks, truncated towards zero. The average of floats is the sum of the
 * ranks' values, each divided by the number of ranks first (16- and 8-bit floats: times its
 * reciprocal, in fp32) and rounded to the type; it is finite where the exact average is. */
typedef enum {
    tuttiSum = 0,
    tuttiProd = 1,
    tuttiMax = 2,
    tuttiMin = 3,
    tuttiAvg = 4,
    tuttiBitAnd = 16, /* (tutti) */
    tuttiBitOr = 17,
    tuttiBitXor = 18,
    tuttiLogicalAnd = 19,
    tuttiLogicalOr = 20,
    tuttiLogicalXor = 21,
    tuttiFirstDynamicRedOp = 256, /* handles of tuttiRedOpCreatePreMulSum start here */
    tuttiMaxRedOp = 0x7fffffff
} tuttiRedOp_t;

typedef enum {
    tuttiScalarDevice = 0,       /* the scalar is read when the operation runs */
    tuttiScalarHostImmediate = 1 /* the scalar is read by tuttiRedOpCreatePreMulSum */
} tuttiScalarResidence_t;

/* (tutti) The collectives, for algorithm choice and schedule inspection. */
typedef enum {
    tuttiCollAllReduce = 0,
    tuttiCollBroadcast = 1,
    tuttiCollReduce = 2,
    tuttiCollAllGather = 3,
    tuttiCollReduceScatter = 4,
    tuttiCollAllToAll = 5,
    tuttiCollScatter = 6,
    tuttiCollGather = 7,
    tuttiCollBarrier = 8,
    tuttiNumCollectives = 9
} tuttiCollective_t;

#define TUTTI_CONFIG_MAGIC 0x7475747469000001ull
#define TUTTI_CONFIG_UNDEF_INT INT_MIN
#define TUTTI_SPLIT_NOCOLOR (-1)
#define TUTTI_DEVICE_CURRENT (-2)

/* Per-communicator settings; start from TUTTI_CONFIG_INITIALIZER. Fields left undefined come from
 * the config table. Grows only at its end; `size` and `version` tell older callers from newer. */
typedef struct {
    size_t size;
    uint64_t magic;
    uint32_t version;
    int timeoutMs;         /* deadline of each collective; 0: none */
    int initTimeoutMs;     /* deadline of init; 0: none */
    const char *commName;  /* shown in errors and logs; copied */
    const char *algorithm; /* as TUTTI_ALGORITHM; copied */
    int deterministic;     /* as TUTTI_DETERMINISTIC, the same on all ranks: 1 or 0 */
    int device; /* the rank's GPU, as CUDA numbers them; -1: none. TUTTI_DEVICE_CURRENT: as CUDA's
                 * runtime chooses, which loads the driver: that of the thread's current context,
                 * else 0; -1 where the process can use no GPU. Undefined: the parent's in a split,
                 * else that of the thread's current context, where the process uses CUDA */
    int lateMs; /* a wait of so long is logged as a warning, which names the call and the ranks that
                 * have not come, and again each time it has lasted twice as long; 0: never */
    /* 1: buffers of a collective may overlap in any way, and then the data that result are
     * undefined; 0: as said under "Collectives". Undefined: the parent's in a split, else 0 */
    int overlaps;
    int hostPagesStay;  /* 1: tuttiCommRegister moves no host memory. Undefined: as overlaps */
    int computeThreads; /* with how many threads this rank computes (tuttiStreamCreate) */
} tuttiConfig_t;

#define TUTTI_CONFIG_INITIALIZER                                                                   \
    {                                                                                              \
        sizeof(tuttiConfig_t), TUTTI_CONFIG_MAGIC, TUTTI_VERSION_CODE, TUTTI_CONFIG_UNDEF_INT,     \
            TUTTI_CONFIG_UNDEF_INT, NULL, NULL, TUTTI_CONFIG_UNDEF_INT, TUTTI_CONFIG_UNDEF_INT,    \
            TUTTI_CONFIG_UNDEF_INT, TUTTI_CONFIG_UNDEF_INT, TUTTI_CONFIG_UNDEF_INT,                \
            TUTTI_CONFIG_UNDEF_INT                                                                 \
    }

/* A deterministic communicator (deterministic = 1, or TUTTI_DETERMINISTIC=on) makes every element
 * of a reduction from the ranks' values in rank order, from left to right: ((x0 op x1) op x2) op
 * ..., whatever the count, the placement of ranks and of buffers, and the way the data travel. So
 * all-reduce, reduce and reduce-scatter of the same values give the same bits as one another and as
 * a loop over the ranks. Of 16- and 8-bit floats x0 op x1 op ... is computed in fp32 and rounded
 * once, to nearest even, at the end; the quotients of an average and the products of a
 * pre-multiplied sum are rounded before they are added. The mode allows only algorithms that fold
 * so, which verify proves; forcing another one is InvalidUsage. Rank 0 logs the algorithms and
 * their cost at INFO. Splits inherit the mode unless their config says otherwise. */

/* ---- Version and errors --------------------------------------------------------------------- */

/* The library's version as TUTTI_VERSION_CODE. InvalidArgument when version is NULL. */
TUTTI_API tuttiResult_t tuttiGetVersion(int *version);

/* A short text for a result. Static storage; never NULL. */
TUTTI_API const char *tuttiGetErrorString(tuttiResult_t result);

/* The text of the last error: of `comm` when it has failed, else of the calling thread; "" when
 * there was none. `comm` may be NULL. Valid until this thread's next call. */
TUTTI_API const char *tuttiGetLastError(tuttiComm_t comm);
/* For libraries over this one: `text` becomes this thread's last error, and a warning in the log.
 * Returns `result`, which must be an error. */
TUTTI_API tuttiResult_t tuttiRefuse(tuttiResult_t result, const char *text);

/* ---- Communicators -------------------------------------------------------------------------- */

/* Makes a unique id and listens for the ranks that will join with it. Call it on one rank and give
 * the bytes to the others by any means. SystemError when no socket can be opened. */
TUTTI_API tuttiResult_t tuttiGetUniqueId(tuttiUniqueId *id);
/* (tutti) Stops listening for an id of this process that no rank outside an open group will use. */
TUTTI_API tuttiResult_t tuttiDropUniqueId(const tuttiUniqueId *id);

/* Joins `nranks` ranks into a communicator. Collective: ends when all have joined, or with the
 * error of one that cannot; Timeout names ranks that did not come. In a group the inits of a thread
 * run together. InvalidArgument: nranks is not 1 to 1,048,576, or rank not 0 to nranks - 1. */
TUTTI_API tuttiResult_t tuttiCommInitRank(tuttiComm_t *comm, int nranks, tuttiUniqueId id,
                                          int rank);
TUTTI_API tuttiResult_t tuttiCommInitRankConfig(tuttiComm_t *comm, int nranks, tuttiUniqueId id,
                                                int rank, const tuttiConfig_t *config);

/* Makes a communicator whose ranks are all in this process; comms[nranks] gets their handles.
 * devices[nranks]: each rank's GPU, or TUTTI_DEVICE_CURRENT; several ranks may share one. One that
 * cannot be used is an error; where there is no such GPU, the numbers are only what tuttiCommDevice
 * tells. NULL: rank i has GPU i, where the process uses CUDA and there are as many GPUs. */
TUTTI_API tuttiResult_t tuttiCommInitAll(tuttiComm_t *comms, int nranks, const int *devices);

/* (tutti) Joins as the launcher's environment says: variables of tutti-run, torchrun, Slurm, Open
 * MPI, MPICH or Intel MPI (docs/launchers.md). `method` says how the ranks find each other:
 * "env://" through MASTER_ADDR and MASTER_PORT or the launcher's own means, "tcp://host:port" (rank
 * 0 listens there) or "file:///path" (rank 0 writes its unique id there); NULL: as
 * TUTTI_INIT_METHOD. Without a launcher the communicator has one rank. config may be NULL.
 * InvalidArgument names a variable that is missing or wrong. */
TUTTI_API tuttiResult_t tuttiCommInitEnv(tuttiComm_t *comm, const char *method,
                                         const tuttiConfig_t *config);

/* (tutti) The same for `nlocal` ranks of each process: comms[nlocal] gets the handles of ranks
 * RANK*nlocal to RANK*nlocal + nlocal-1 of WORLD_SIZE*nlocal. */
TUTTI_API tuttiResult_t tuttiCommInitEnvMulti(tuttiComm_t *comms, int nlocal, const char *method,
                                              const tuttiConfig_t *config);

/* (tutti) The rank, the number of ranks and the rank on this host that the launcher gave this
 * process; 0, 1 and 0 without a launcher. */
TUTTI_API tuttiResult_t tuttiGetLauncher(int *rank, int *nranks, int *localRank);

/* Splits `comm`, collectively: the ranks with one color form a new communicator, ordered by key,
 * then by rank; NULL for TUTTI_SPLIT_NOCOLOR. config NULL: that of `comm`. A group splits at its
 * end, before its calls; one that fails before its last split of `comm` fails `comm`, unless it has
 * all ranks. InvalidArgument, outside groups on all ranks: another color < 0, newcomm NULL. */
TUTTI_API tuttiResult_t tuttiCommSplit(tuttiComm_t comm, int color, int key, tuttiComm_t *newcomm,
                                       const tuttiConfig_t *config);
/* For libraries over this one: as a tuttiCommSplit that fails with `result` and this `text`. */
TUTTI_API tuttiResult_t tuttiCommSplitRefuse(tuttiComm_t comm, tuttiResult_t result,
                                             const char *text);

/* Completes all calls issued on `comm`. Collective. Only destroy may follow. Inside a group
 * (several ranks in one thread) it runs with the group. */
TUTTI_API tuttiResult_t tuttiCommFinalize(tuttiComm_t comm);

/* As tuttiCommFinalize, but it waits for no other rank: so one thread may finalize its ranks one
 * after another. Not collective. Inside a group it runs at the group's end. */
TUTTI_API tuttiResult_t tuttiCommFinalizeLocal(tuttiComm_t comm);

/* Completes all calls issued on `comm` and frees it. Not collective. NULL is allowed. Inside a
 * group destroy and abort run at its end, after its calls, also where the group fails.
 *
 * Calls of a child made by fork on its parent's communicators are InvalidUsage. Destroy and abort
 * in the child free memory of the child only; the parent's communicator goes on. */
TUTTI_API tuttiResult_t tuttiCommDestroy(tuttiComm_t comm);

/* Fails this rank's calls in flight on `comm`, and frees it. The other ranks still get what this
 * rank has done its part of; a call of theirs that needs more of it gets RemoteError at once, which
 * names this rank. Any thread may call it, also while another destroys `comm`, but no function that
 * a stream runs: it waits until the calls in flight have returned and streams have reached those
 * issued, and until other hosts have what calls have sent that are done. A call that begins
 * meanwhile is RemoteError, later InvalidArgument; so is the end of a group that holds one. */
TUTTI_API tuttiResult_t tuttiCommAbort(tuttiComm_t comm);

/* *result: tuttiSuccess, or the error with which `comm` has failed, which is logged. Any thread may
 * ask, also during a call. That a rank is gone is no error before a call needs that rank. */
TUTTI_API tuttiResult_t tuttiCommGetAsyncError(tuttiComm_t comm, tuttiResult_t *result);

/* The deadline of the calls on `comm` that are issued from now on, and of later replays of CUDA
 * graphs, in place of timeoutMs; 0: none. Any thread. InvalidArgument: timeoutMs is negative. */
TUTTI_API tuttiResult_t tuttiCommSetTimeout(tuttiComm_t comm, int timeoutMs);
/* Success where a call on `comm` may begin now, else what the call would return. */
TUTTI_API tuttiResult_t tuttiCommCheck(tuttiComm_t comm);
/* (tutti) RemoteError where `rank` is known to have died, left or aborted. Any thread may ask. */
TUTTI_API tuttiResult_t tuttiCommCheckRank(tuttiComm_t comm, int rank);

/* The number of ranks; this rank; this rank's entry of `devices` (tuttiCommInitAll), or its GPU: 0
 * where it has none, -1 where TUTTI_DEVICE_CURRENT has found none. */
TUTTI_API tuttiResult_t tuttiCommCount(tuttiComm_t comm, int *nranks);
TUTTI_API tuttiResult_t tuttiCommUserRank(tuttiComm_t comm, int *rank);
TUTTI_API tuttiResult_t tuttiCommDevice(tuttiComm_t comm, int *device);

/* ---- Memory --------------------------------------------------------------------------------- */

/* Allocates nbytes of page-aligned memory that other ranks of this host can address: long
 * messages are read and written there in place, without copies. 2 MiB and more are taken from the
 * system at once, in huge pages where it has them. SystemError when there is no memory. */
TUTTI_API tuttiResult_t tuttiMemAlloc(void **memory, size_t nbytes);
/* Allocates memory of GPU `device` that kernels of the other ranks of this host can address, in
 * units of 2 MiB, not filled. TUTTI_DEVICE_CURRENT as in tuttiConfig_t; where that is none, and for
 * device -1, the memory is tuttiMemAlloc's. InvalidArgument: there is no such GPU, or nbytes is 0
 * for a GPU. SystemError: it has no memory left; the text says how much is free. */
TUTTI_API tuttiResult_t tuttiDeviceMemAlloc(void **memory, size_t nbytes, int device);
/* Of either; NULL is allowed. Memory of a GPU goes back to CUDA by cuMemFree: at once, which waits
 * for all kernels of the process on that GPU, or later, when no other process has it open. */
TUTTI_API tuttiResult_t tuttiMemFree(void *memory);

/* Makes memory of the host usable in place by the other ranks of this host, as tuttiMemAlloc's is:
 * the pages wholly inside it move to shared memory at the same addresses; no thread may touch it
 * meanwhile, and a child forked later shares it with its parent. The rank's GPU's, by kernels of
 * the other ranks of this host. Memory that cannot be works as before.
 * Before you free the memory, deregister it (Timeout: it still is), or destroy `comm`, which
 * deregisters the rest; no call of any communicator may use it then. Not collective. */
TUTTI_API tuttiResult_t tuttiCommRegister(tuttiComm_t comm, void *memory, size_t nbytes,
                                          void **handle);
TUTTI_API tuttiResult_t tuttiCommDeregister(tuttiComm_t comm, void *handle);

/* ---- Streams and events (tutti; CUDA's semantics on the host) ------------------------------- */

/* Makes an idle stream. Its work is run by a thread that waits for it (tuttiStreamSynchronize,
 * tuttiEventSynchronize), or by a thread of its own: at once where the host has a core for that,
 * else after 0.2 to 1.6 ms (computeThreads). SystemError: no thread can be started. */
TUTTI_API tuttiResult_t tuttiStreamCreate(tuttiStream_t *stream);
/* Makes a stream of a CUDA stream (a CUstream, cudaStream_t; NULL: the legacy default stream of GPU
 * `device`), which stays the caller's and must live as long. Calls on device memory that are issued
 * on it run in order with the CUDA stream's other work, and return at once; while it is captured,
 * calls by kernels become nodes of its graph. InvalidArgument: no such GPU. Events: use CUDA's. */
TUTTI_API tuttiResult_t tuttiStreamFromDevice(tuttiStream_t *stream, int device,
                                              void *deviceStream);
/* The stream of a CUDA stream without making one: always the same, kept by the library, never
 * destroyed by you, and anew when a CUDA stream was destroyed (not while a group holds a call on
 * it) and another one has its handle. For use before each call: one cuStreamGetId. deviceStream
 * NULL: the legacy default stream, and then a call whose buffers are all pageable memory of the
 * host is complete when it returns, as with stream NULL. device -1 and NULL: *stream is NULL. */
TUTTI_API tuttiResult_t tuttiStreamOfDevice(tuttiStream_t *stream, int device, void *deviceStream);
/* Completes all work of the stream, then frees it; of a stream of tuttiStreamFromDevice, the calls
 * issued on it. NULL is allowed. InvalidUsage: a function that the stream runs calls it. */
TUTTI_API tuttiResult_t tuttiStreamDestroy(tuttiStream_t stream);
/* Waits until the stream, and the CUDA stream of which it was made, are idle. Returns the first
 * error of the work issued since the last synchronize. InvalidUsage: as for destroy. */
TUTTI_API tuttiResult_t tuttiStreamSynchronize(tuttiStream_t stream);
/* Success when the stream is idle, InProgress when it is not, or the first error. */
TUTTI_API tuttiResult_t tuttiStreamQuery(tuttiStream_t stream);
/* Runs function(argument), in whatever thread, in order with the stream's other work. It must not
 * wait for what is queued behind it: a call without a stream that would is InvalidUsage. */
TUTTI_API tuttiResult_t tuttiStreamLaunch(tuttiStream_t stream, void (*function)(void *),
                                          void *argument);

/* Makes an event. An event that was never recorded counts as having happened. An event may be
 * destroyed before it has happened; NULL is allowed. */
TUTTI_API tuttiResult_t tuttiEventCreate(tuttiEvent_t *event);
TUTTI_API tuttiResult_t tuttiEventDestroy(tuttiEvent_t event);
/* Records the present end of the stream: the event happens when all work issued so far is complete.
 * Replaces the event's last record; calls that wait for that one still wait for it. stream NULL:
 * the event happens at once. */
TUTTI_API tuttiResult_t tuttiEventRecord(tuttiEvent_t event, tuttiStream_t stream);
TUTTI_API tuttiResult_t tuttiEventSynchronize(tuttiEvent_t event);
/* Waits for at most timeoutMs; InProgress: the event has not happened, and the work goes on. */
TUTTI_API tuttiResult_t tuttiEventSynchronizeFor(tuttiEvent_t event, int timeoutMs);
TUTTI_API tuttiResult_t tuttiEventQuery(tuttiEvent_t event);
/* Work that is issued on `stream` later waits for the event's present record. */
TUTTI_API tuttiResult_t tuttiStreamWaitEvent(tuttiStream_t stream, tuttiEvent_t event);
/* Milliseconds between two events; InProgress when one of them has not happened, InvalidUsage when
 * one was never recorded. */
TUTTI_API tuttiResult_t tuttiEventElapsedTime(float *ms, tuttiEvent_t start, tuttiEvent_t end);

/* ---- Groups --------------------------------------------------------------------------------- */

/* The calls between start and end are issued together and progress together: point-to-point calls
 * cannot deadlock by their order, and one thread can drive several ranks. So none may use what a
 * call of another communicator in the group writes. Groups nest; the outermost end issues the
 * calls, and returns their first error; with NULL streams when all are complete. InvalidUsage: end
 * without start; and to destroy, free or deregister what calls of this thread's open group use, but
 * for events and operations. A SystemError or a failed init fails the group's communicators. */
TUTTI_API tuttiResult_t tuttiGroupStart(void);
TUTTI_API tuttiResult_t tuttiGroupEnd(void);
/* For libraries over this one, whose calls may fail before they come here: where `result` is an
 * error and this thread has an open group, that issues nothing, and its end returns `result` with
 * `text` as the last error (NULL: the present one), or an earlier failure. Returns `result`. */
TUTTI_API tuttiResult_t tuttiGroupFail(tuttiResult_t result, const char *text);

/* ---- Operations ----------------------------------------------------------------------------- */

/* Makes an operation that multiplies this rank's input by *scalar, one element of `type`, and sums.
 * Calls with it must have this type and communicator. InvalidUsage: `comm` has 256 operations. */
TUTTI_API tuttiResult_t tuttiRedOpCreatePreMulSum(tuttiRedOp_t *op, void *scalar,
                                                  tuttiDataType_t type,
                                                  tuttiScalarResidence_t residence,
                                                  tuttiComm_t comm);
TUTTI_API tuttiResult_t tuttiRedOpDestroy(tuttiRedOp_t op, tuttiComm_t comm);

/* ---- Collectives ---------------------------------------------------------------------------- */
/* All ranks call the same collective with the same count, type, operation and root; otherwise they
 * get InvalidUsage, whose text shows both calls. (A rank that only sends, such as a second root,
 * returns before the difference is found: the next rank that takes one of its messages finds it.)
 *
 * Buffers may be memory of the rank's GPU (tuttiConfig_t). Then the stream is one of
 * tuttiStreamFromDevice or tuttiStreamOfDevice; or NULL: the call follows the work of the legacy
 * default stream, and returns when it is complete. Where all ranks have a GPU of the same host,
 * kernels carry such calls and all ranks pass such memory; elsewhere each rank passes either kind.
 *
 * Buffers may be equal only as said under "in place"; any other overlap is InvalidArgument (but see
 * tuttiConfig_t's overlaps). Buffers need no alignment. A call with count 0 moves nothing and its
 * buffers may be NULL; all ranks make it, and their calls are compared. A call that fails returns
 * when no other rank reads or writes its buffers any more, or at its deadline (10 s after the
 * failure where there is no deadline): then the error says which rank may still use them; keep the
 * buffers until that rank has returned or its process has ended.
 *
 * Errors of all collectives: InvalidArgument for a type, operation, root or buffer that cannot be
 * right; it leaves the communicator as it was. InvalidUsage as above; RemoteError: a rank has died,
 * left or aborted; SystemError, UnhandledDeviceError: a rank's system or driver refuses something;
 * Timeout at the deadline (TUTTI_TIMEOUT_MS, tuttiCommSetTimeout), naming who is missing. After
 * these the communicator has failed on all ranks; every later call on it returns the same error. */

/* recvbuff[i] = op over ranks of sendbuff[i], i < count, on every rank. In place: equal. */
TUTTI_API tuttiResult_t tuttiAllReduce(const void *sendbuff, void *recvbuff, size_t count,
                                       tuttiDataType_t type, tuttiRedOp_t op, tuttiComm_t comm,
                                       tuttiStream_t stream);
/* tuttiAllReduce's result on `root`; recvbuff may be NULL elsewhere. In place on root: equal. */
TUTTI_API tuttiResult_t tuttiReduce(const void *sendbuff, void *recvbuff, size_t count,
                                    tuttiDataType_t type, tuttiRedOp_t op, int root,
                                    tuttiComm_t comm, tuttiStream_t stream);
/* recvbuff = root's sendbuff (count elements), which may be NULL elsewhere. In place: equal. */
TUTTI_API tuttiResult_t tuttiBroadcast(const void *sendbuff, void *recvbuff, size_t count,
                                       tuttiDataType_t type, int root, tuttiComm_t comm,
                                       tuttiStream_t stream);
/* recvbuff[0..recvcount) = elements [rank*recvcount, ...) of the reduction of nranks*recvcount
 * elements. In place: recvbuff == sendbuff + rank*recvcount. */
TUTTI_API tuttiResult_t tuttiReduceScatter(const void *sendbuff, void *recvbuff, size_t recvcount,
                                           tuttiDataType_t type, tuttiRedOp_t op, tuttiComm_t comm,
                                           tuttiStream_t stream);
/* recvbuff[nranks*sendcount] = the ranks' sendbuffs (sendcount elements each) in rank order. In
 * place: sendbuff == recvbuff + rank*sendcount. */
TUTTI_API tuttiResult_t tuttiAllGather(const void *sendbuff, void *recvbuff, size_t sendcount,
                                       tuttiDataType_t type, tuttiComm_t comm,
                                       tuttiStream_t stream);
/* Block r of sendbuff (count elements each) goes to rank r; block s of recvbuff is the block that
 * rank s sent here. Never in place. */
TUTTI_API tuttiResult_t tuttiAlltoAll(const void *sendbuff, void *recvbuff, size_t count,
                                      tuttiDataType_t type, tuttiComm_t comm, tuttiStream_t stream);
/* root's recvbuff[nranks*count] = the ranks' sendbuffs (count elements each) in rank order;
 * recvbuff may be NULL on other ranks. In place on root: sendbuff == recvbuff + root*count. */
TUTTI_API tuttiResult_t tuttiGather(const void *sendbuff, void *recvbuff, size_t count,
                                    tuttiDataType_t type, int root, tuttiComm_t comm,
                                    tuttiStream_t stream);
/* Rank r gets block r (count elements) of root's sendbuff[nranks*count]; sendbuff may be NULL on
 * other ranks. In place on root: recvbuff == sendbuff + root*count. */
TUTTI_API tuttiResult_t tuttiScatter(const void *sendbuff, void *recvbuff, size_t count,
                                     tuttiDataType_t type, int root, tuttiComm_t comm,
                                     tuttiStream_t stream);

/* ---- Collectives with a count for each rank (tutti) ----------------------------------------- */
/* Block r, of counts[r] elements, belongs to rank r; counts may be 0. All ranks pass the same
 * counts[nranks]; ranks whose counts differ get InvalidUsage. displs[nranks], in elements, says
 * where block r begins in this rank's buffer that holds all blocks. Ranks may have different
 * displs, and a rank without such a buffer ignores it. NULL: the blocks are packed in rank order.
 * Blocks that are received must not overlap (InvalidArgument). The arrays are copied before the
 * call returns, also in a group or a stream. Buffers, counts and errors are otherwise as above; the
 * buffer that holds all blocks extends from any block's first element to any block's last one. */

/* Block r of recvbuff = rank r's sendbuff (recvcounts[r] elements), on every rank. In place:
 * sendbuff == recvbuff + where the own block begins. */
TUTTI_API tuttiResult_t tuttiAllGatherV(const void *sendbuff, void *recvbuff,
                                        const size_t recvcounts[], const size_t displs[],
                                        tuttiDataType_t type, tuttiComm_t comm,
                                        tuttiStream_t stream);
/* sendbuff holds all blocks, packed; recvbuff[0..recvcounts[rank]) = block `rank` of their
 * reduction over all ranks. In place: recvbuff == sendbuff + where the own block begins. */
TUTTI_API tuttiResult_t tuttiReduceScatterV(const void *sendbuff, void *recvbuff,
                                            const size_t recvcounts[], tuttiDataType_t type,
                                            tuttiRedOp_t op, tuttiComm_t comm,
                                            tuttiStream_t stream);
/* Block r of root's recvbuff = rank r's sendbuff (recvcounts[r] elements). In place on root:
 * sendbuff == recvbuff + where root's block begins. */
TUTTI_API tuttiResult_t tuttiGatherV(const void *sendbuff, void *recvbuff,
                                     const size_t recvcounts[], const size_t displs[],
                                     tuttiDataType_t type, int root, tuttiComm_t comm,
                                     tuttiStream_t stream);
/* Rank r gets block r of root's sendbuff (sendcounts[r] elements). In place on root: recvbuff ==
 * sendbuff + where root's block begins. */
TUTTI_API tuttiResult_t tuttiScatterV(const void *sendbuff, void *recvbuff,
                                      const size_t sendcounts[], const size_t displs[],
                                      tuttiDataType_t type, int root, tuttiComm_t comm,
                                      tuttiStream_t stream);
/* sendcounts[r] elements of sendbuff, from sdispls[r] on, go to rank r; recvcounts[s] elements from
 * rank s go to recvbuff from rdispls[s] on. Each rank has counts of its own; recvcounts[s] must be
 * the number that rank s sends here (InvalidUsage). The call is a group of sends and receives, in
 * order with those of tuttiSend and tuttiRecv. Never in place. */
TUTTI_API tuttiResult_t tuttiAlltoAllV(const void *sendbuff, const size_t sendcounts[],
                                       const size_t sdispls[], void *recvbuff,
                                       const size_t recvcounts[], const size_t rdispls[],
                                       tuttiDataType_t type, tuttiComm_t comm,
                                       tuttiStream_t stream);

/* ---- Barrier, point to point ---------------------------------------------------------------- */

/* (tutti) Returns (or the stream goes on) when every rank has called it. Errors as collectives. */
TUTTI_API tuttiResult_t tuttiBarrier(tuttiComm_t comm, tuttiStream_t stream);

/* Point to point: messages between two ranks arrive in the order sent. Both ranks give the same
 * number of bytes, also when it is 0 (else InvalidUsage). A send may block until its receive is
 * called, so wrap exchanges in a group. A rank may send to itself if the group has the receive too
 * (else InvalidUsage). Other errors as collectives. */
TUTTI_API tuttiResult_t tuttiSend(const void *sendbuff, size_t count, tuttiDataType_t type,
                                  int peer, tuttiComm_t comm, tuttiStream_t stream);
TUTTI_API tuttiResult_t tuttiRecv(void *recvbuff, size_t count, tuttiDataType_t type, int peer,
                                  tuttiComm_t comm, tuttiStream_t stream);

/* ---- Algorithms and schedules (tutti) ------------------------------------------------------- */

#include "tutti_plan.h"

/* ---- Description and counters (tutti) ------------------------------------------------------- */

typedef enum {
    tuttiDescribeTopology = 0,       /* cores, caches, NUMA nodes */
    tuttiDescribeConfig = 1,         /* the config table with values and their sources */
    tuttiDescribeCpu = 2,            /* CPU features found and in use */
    tuttiDescribeLinks = 3,          /* the links in use; needs a communicator */
    tuttiDescribeCosts = 4,          /* the cost model's constants and the choices made from it */
    tuttiDescribeTopologyXml = 5,    /* the topology as XML, loadable through TUTTI_TOPOLOGY_FILE */
    tuttiDescribeConfigMarkdown = 6, /* the config table as a Markdown table, for the docs */
    tuttiDescribeGpus = 7,           /* the GPUs that CUDA's driver finds, or why there is none */
    tuttiDescribeNcclSettings = 8    /* NCCL's variables: what each does here, its value */
} tuttiDescribe_t;

/* Calls emit(arg, line) for each line of the text, without newline. comm: NULL, but for links. */
TUTTI_API tuttiResult_t tuttiDescribe(tuttiDescribe_t what, tuttiComm_t comm,
                                      void (*emit)(void *arg, const char *line), void *arg);

/* *isGiven: 1 when the setting (TUTTI_...) has a value of the user's, else 0: its default holds.
 * InvalidArgument: there is no such setting. */
TUTTI_API tuttiResult_t tuttiIsSettingGiven(const char *name, int *isGiven);
/* *count: of the GPUs that CUDA's driver finds; where that is 0, tuttiDescribeGpus says why. */
TUTTI_API tuttiResult_t tuttiGetDeviceCount(int *count);

/* Lets NCCL's variables (NCCL_... in the environment, in $NCCL_CONF_FILE or ~/.nccl.conf, and in
 * /etc/nccl.conf) set what they mean here (docs/nccl-settings.md): a TUTTI_ setting wins. Lines of
 * the log then have NCCL's form, and they and errors NCCL's names of functions. Call it before any
 * other function; InvalidUsage: the settings have been read without them, which changes nothing. */
TUTTI_API tuttiResult_t tuttiUseNcclSettings(void);

/* Copies the value that the variable was given, as text; "" when it is unset, or without
 * tuttiUseNcclSettings. InvalidArgument: NCCL documents no such variable, `nbytes` are too few. */
TUTTI_API tuttiResult_t tuttiGetNcclSetting(const char *name, char *value, size_t nbytes);
/* The index-th of NCCL's variables; NULL past the end. */
TUTTI_API const char *tuttiNcclSettingName(int index);

/* Counters of this rank of `comm` since init. */
typedef struct {
    uint64_t collectives; /* completed */
    uint64_t messages;    /* sent over links, or put into meetings */
    uint64_t bytesCopied; /* sent through slots, flags or meetings: the sender copied them there */
    uint64_t bytesDirect; /* sent without that copy: the receiver or the network read them in the
                           * sender's memory, or the sender wrote them to the receiver's buffer */
    uint64_t memoryBytes; /* virtual memory that this rank holds for the communicator */
    /* Of init, while the ranks found each other; 0 in communicators made by split. */
    uint64_t initConnections; /* opened and accepted, and closed again */
    uint64_t initMessages;    /* sent and received on them */
    uint64_t initBytes;       /* sent and received on them */
    uint64_t initJoinNs;      /* until all ranks had joined and knew their neighbours */
    uint64_t initNs;          /* of the whole init */
} tuttiCounters_t;
TUTTI_API tuttiResult_t tuttiCommCounters(tuttiComm_t comm, tuttiCounters_t *counters);

typedef struct {
    uint64_t calls;
    uint64_t bytes; /* payload, see below */
} tuttiCallCount_t;

#define TUTTI_CALL_COUNTERS_MAGIC 0x7475747469000002ull
#define TUTTI_CALL_COUNTERS_COLLECTIVES 16

/* The calls that this rank has made on a communicator since init; start from
 * TUTTI_CALL_COUNTERS_INITIALIZER. A call counts once its arguments have been accepted, also in an
 * open group or a stream, and also if it fails later. What the library itself calls (in split and
 * finalize) does not count. The payload of a call is the data of its larger buffer, the same on all
 * ranks (nccl-tests' "size"), with `element` bytes an element:
 *   all-reduce, reduce, broadcast               count * element
 *   all-gather, reduce-scatter, all-to-all,     nranks * count * element; for scatter and gather
 *   scatter, gather                             root's buffer, on every rank
 *   all-gather-v, reduce-scatter-v, scatter-v,  the sum of all ranks' counts * element; counted
 *   gather-v                                    with the collective that has one count
 *   all-to-all-v                                the larger of what this rank sends and receives,
 *                                               counted with all-to-all and not as sends
 *   barrier                                     0
 *   send, receive                               count * element
 * Grows only at its end, as tuttiConfig_t does. */
typedef struct {
    size_t size;
    uint64_t magic;
    uint32_t version;
    tuttiCallCount_t collectives[TUTTI_CALL_COUNTERS_COLLECTIVES]; /* by tuttiCollective_t */
    tuttiCallCount_t send, recv;
    uint64_t groups; /* outermost groups that have issued calls on the communicator */
} tuttiCallCounters_t;

#define TUTTI_CALL_COUNTERS_INITIALIZER                                                            \
    {                                                                                              \
        sizeof(tuttiCallCounters_t), TUTTI_CALL_COUNTERS_MAGIC, TUTTI_VERSION_CODE, {{0, 0}},      \
            {0, 0}, {0, 0}, 0                                                                      \
    }

/* Fills *counters behind `version`, as far as its size goes. */
TUTTI_API tuttiResult_t tuttiCommCallCounters(tuttiComm_t comm, tuttiCallCounters_t *counters);

#ifdef __cplusplus
}
#endif
#endif
