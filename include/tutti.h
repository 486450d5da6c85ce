/* tutti: collective communication on host memory.
 *
 * The calls, their order of arguments and their semantics are NCCL's wherever NCCL has the call,
 * under `tutti` names. What NCCL lacks is marked (tutti).
 *
 * Words: `rank` 0..nranks-1 is one participant; `count` is in elements of the type, never in bytes;
 * `stream` NULL means "in the calling thread, done when the call returns" (outside a group).
 *
 * Threads: different communicators may be used by different threads at once. One communicator may
 * be used by one thread at a time. Several ranks in one thread: wrap the calls of all ranks in
 * tuttiGroupStart/End, or give each rank a stream.
 *
 * Errors: every function returns tuttiSuccess or an error; tuttiGetLastError has the whole story:
 * the value, what was expected, and how to mend it. A failed argument check changes nothing. */
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
typedef struct tuttiStream *tuttiStream_t; /* a FIFO of work served by a worker thread */
typedef struct tuttiEvent *tuttiEvent_t;   /* a mark in a stream */
typedef struct tuttiPlan *tuttiPlan_t;     /* an algorithm for a number of ranks, to look at */

#define TUTTI_UNIQUE_ID_BYTES 128
typedef struct {
    char internal[TUTTI_UNIQUE_ID_BYTES];
} tuttiUniqueId; /* secret: whoever has it can join */

/* Values 0 to 8 are NCCL's. */
typedef enum {
    tuttiSuccess = 0,
    tuttiUnhandledDeviceError = 1,
    tuttiSystemError = 2,     /* the operating system refused something */
    tuttiInternalError = 3,   /* a bug in tutti */
    tuttiInvalidArgument = 4, /* a value that can never be right */
    tuttiInvalidUsage = 5,    /* right values in the wrong place or order; ranks that disagree */
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
 * result is 0 or 1. Average divides the sum by the number of ranks: integers truncate towards zero,
 * floats round once. Pre-multiplied sums are made by tuttiRedOpCreatePreMulSum. */
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

/* Per-communicator settings; start from TUTTI_CONFIG_INITIALIZER. Fields left undefined come from
 * the config table. Grows only at its end; `size` and `version` tell an older caller from a newer
 * one. */
typedef struct {
    size_t size;
    uint64_t magic;
    uint32_t version;
    int timeoutMs;         /* deadline of each collective; 0: none */
    int initTimeoutMs;     /* deadline of init; 0: none */
    const char *commName;  /* shown in errors and logs; copied */
    const char *algorithm; /* as TUTTI_ALGORITHM; copied */
} tuttiConfig_t;

#define TUTTI_CONFIG_INITIALIZER                                                                   \
    {                                                                                              \
        sizeof(tuttiConfig_t), TUTTI_CONFIG_MAGIC, TUTTI_VERSION_CODE, TUTTI_CONFIG_UNDEF_INT,     \
            TUTTI_CONFIG_UNDEF_INT, NULL, NULL                                                     \
    }

/* ---- Version and errors --------------------------------------------------------------------- */

/* The library's version as TUTTI_VERSION_CODE. InvalidArgument when version is NULL. */
TUTTI_API tuttiResult_t tuttiGetVersion(int *version);

/* The meaning of a result in words. Static storage; never NULL. */
TUTTI_API const char *tuttiGetErrorString(tuttiResult_t result);

/* The last error in full: of `comm` when it has failed, else of the calling thread; "" when there
 * was none. `comm` may be NULL. Valid until the next call from this thread. */
TUTTI_API const char *tuttiGetLastError(tuttiComm_t comm);

/* ---- Communicators -------------------------------------------------------------------------- */

/* Makes a unique id and starts listening for the ranks that will present it. Call on one rank,
 * carry the bytes to the others by any means. SystemError when no socket can be had. */
TUTTI_API tuttiResult_t tuttiGetUniqueId(tuttiUniqueId *id);

/* Joins `nranks` ranks into a communicator; collective, returns when all have come. Timeout names
 * the ranks that did not. Inside a group the calls of several ranks of one thread run together. */
TUTTI_API tuttiResult_t tuttiCommInitRank(tuttiComm_t *comm, int nranks, tuttiUniqueId id,
                                          int rank);
TUTTI_API tuttiResult_t tuttiCommInitRankConfig(tuttiComm_t *comm, int nranks, tuttiUniqueId id,
                                                int rank, const tuttiConfig_t *config);

/* Makes `nranks` communicators, comms[0..nranks-1], all ranks in this process. `devices` may be
 * NULL; its entries are only reported back by tuttiCommDevice. */
TUTTI_API tuttiResult_t tuttiCommInitAll(tuttiComm_t *comms, int nranks, const int *devices);

/* (tutti) Joins using what the launcher left in the environment: variables of tutti-run, torchrun,
 * Slurm, Open MPI, MPICH or Intel MPI (docs/launchers.md). How the ranks meet: "env://" as
 * MASTER_ADDR and MASTER_PORT say or by the launcher's own means, "tcp://host:port" (rank 0 listens
 * there) or "file:///path" (rank 0 writes its unique id there). NULL means TUTTI_INIT_METHOD. With
 * no launcher at all it makes a communicator of one rank. config may be NULL. */
TUTTI_API tuttiResult_t tuttiCommInitEnv(tuttiComm_t *comm, const char *method,
                                         const tuttiConfig_t *config);

/* (tutti) The same for `nlocal` ranks of this process: WORLD_SIZE processes x nlocal ranks; this
 * process has ranks RANK*nlocal .. RANK*nlocal+nlocal-1 in comms[0..nlocal-1]. */
TUTTI_API tuttiResult_t tuttiCommInitEnvMulti(tuttiComm_t *comms, int nlocal, const char *method,
                                              const tuttiConfig_t *config);

/* (tutti) The launcher's rank and world size (processes) and local rank; 0, 1, 0 without one. */
TUTTI_API tuttiResult_t tuttiGetLauncher(int *rank, int *nranks, int *localRank);

/* Splits `comm` by color (not inside a group); ranks are ordered by key, then by old rank.
 * Collective over `comm`. Color TUTTI_SPLIT_NOCOLOR yields *newcomm = NULL. config NULL: as the
 * parent's. */
TUTTI_API tuttiResult_t tuttiCommSplit(tuttiComm_t comm, int color, int key, tuttiComm_t *newcomm,
                                       const tuttiConfig_t *config);

/* Completes everything issued on `comm`; collective. Only destroy may follow. Inside a group
 * (several ranks in one thread) it is issued with the group. */
TUTTI_API tuttiResult_t tuttiCommFinalize(tuttiComm_t comm);

/* Frees `comm`, after completing what was issued. Not collective, not inside a group. NULL is
 * allowed.
 *
 * A child made by fork may use none of its parent's communicators. Destroy and abort there free
 * memory of the child only; the parent's communicator goes on. */
TUTTI_API tuttiResult_t tuttiCommDestroy(tuttiComm_t comm);

/* Fails everything in flight on `comm`, here and on the other ranks, and frees it. May be called
 * from any thread, but not from a function that a stream runs: it waits until the calls in flight
 * have returned and the streams have come to what was issued on `comm`. No other call on `comm` may
 * begin any more. The other ranks get RemoteError that names this rank. */
TUTTI_API tuttiResult_t tuttiCommAbort(tuttiComm_t comm);

/* *result: tuttiSuccess, or the error that `comm` is in. */
TUTTI_API tuttiResult_t tuttiCommGetAsyncError(tuttiComm_t comm, tuttiResult_t *result);

/* The number of ranks; this rank; the device that this rank was given. InvalidArgument when either
 * pointer is NULL. */
TUTTI_API tuttiResult_t tuttiCommCount(tuttiComm_t comm, int *nranks);
TUTTI_API tuttiResult_t tuttiCommUserRank(tuttiComm_t comm, int *rank);
TUTTI_API tuttiResult_t tuttiCommDevice(tuttiComm_t comm, int *device);

/* ---- Memory --------------------------------------------------------------------------------- */

/* Page-aligned memory that other ranks of this host can address: collectives use it in place,
 * without copies. SystemError when there is none. */
TUTTI_API tuttiResult_t tuttiMemAlloc(void **memory, size_t nbytes);
TUTTI_API tuttiResult_t tuttiMemFree(void *memory);

/* Makes memory of any origin usable in place by the other ranks of this host, like tuttiMemAlloc's:
 * the pages that lie wholly inside it move to shared memory behind the same addresses. Nobody may
 * touch the memory during the call; a fork shares it from then on. Memory that cannot move (stacks,
 * files) is left as it is and works as before. Deregister before freeing it, when no call uses it
 * any more; the communicator's end deregisters what is left. Not collective. */
TUTTI_API tuttiResult_t tuttiCommRegister(tuttiComm_t comm, void *memory, size_t nbytes,
                                          void **handle);
TUTTI_API tuttiResult_t tuttiCommDeregister(tuttiComm_t comm, void *handle);

/* ---- Streams and events (tutti; CUDA's semantics on the host) ---------------------------------
 */

/* Makes an idle stream with a worker thread of its own. SystemError when there is no thread to be
 * had. */
TUTTI_API tuttiResult_t tuttiStreamCreate(tuttiStream_t *stream);
/* Completes what was issued, then frees. Not from a function that the stream runs. NULL is allowed.
 */
TUTTI_API tuttiResult_t tuttiStreamDestroy(tuttiStream_t stream);
/* Waits; returns the first error of what was issued since the last synchronize. Not from a function
 * that the stream runs. */
TUTTI_API tuttiResult_t tuttiStreamSynchronize(tuttiStream_t stream);
/* tuttiSuccess when idle, tuttiInProgress, or the first error. */
TUTTI_API tuttiResult_t tuttiStreamQuery(tuttiStream_t stream);
/* Runs function(argument) in order with the stream's other work, on its worker thread. */
TUTTI_API tuttiResult_t tuttiStreamLaunch(tuttiStream_t stream, void (*function)(void *),
                                          void *argument);

/* Makes an event that counts as having happened until it is recorded. It may be destroyed before it
 * has happened; NULL is allowed. */
TUTTI_API tuttiResult_t tuttiEventCreate(tuttiEvent_t *event);
TUTTI_API tuttiResult_t tuttiEventDestroy(tuttiEvent_t event);
/* Marks the stream's present end, in place of the event's last record; those who wait for that one
 * go on waiting for it. stream NULL: happens at once. */
TUTTI_API tuttiResult_t tuttiEventRecord(tuttiEvent_t event, tuttiStream_t stream);
TUTTI_API tuttiResult_t tuttiEventSynchronize(tuttiEvent_t event);
TUTTI_API tuttiResult_t tuttiEventQuery(tuttiEvent_t event);
/* Work issued on `stream` later waits for the record that is the event's last now. */
TUTTI_API tuttiResult_t tuttiStreamWaitEvent(tuttiStream_t stream, tuttiEvent_t event);
/* Milliseconds between two events that have happened. */
TUTTI_API tuttiResult_t tuttiEventElapsedTime(float *ms, tuttiEvent_t start, tuttiEvent_t end);

/* ---- Groups --------------------------------------------------------------------------------- */

/* Calls between start and end are issued together and progress together: point-to-point calls
 * cannot deadlock by their order, and one thread can drive several ranks. Groups nest; the
 * outermost end issues. With NULL streams the end returns when everything is done. */
TUTTI_API tuttiResult_t tuttiGroupStart(void);
TUTTI_API tuttiResult_t tuttiGroupEnd(void);

/* ---- Operations ----------------------------------------------------------------------------- */

/* A sum in which this rank's input is multiplied by *scalar (of type `type`) first. */
TUTTI_API tuttiResult_t tuttiRedOpCreatePreMulSum(tuttiRedOp_t *op, void *scalar,
                                                  tuttiDataType_t type,
                                                  tuttiScalarResidence_t residence,
                                                  tuttiComm_t comm);
TUTTI_API tuttiResult_t tuttiRedOpDestroy(tuttiRedOp_t op, tuttiComm_t comm);

/* ---- Collectives ---------------------------------------------------------------------------- */
/* All ranks call the same collective with the same count, type, operation and root; a rank that
 * does not gets InvalidUsage with both sides shown. (Ranks that only send, say because each
 * believes itself the root, return first: the difference is found when a rank next takes what one
 * of them sent.) Buffers may be equal only as said under "in
 * place"; any other overlap is InvalidArgument. Buffers need no alignment. A call with count 0
 * moves nothing and its buffers may be NULL; all ranks make it, and it is compared like any other.
 * After a failure keep buffers until every rank of this host has returned: one may be read in
 * place. */

/* recvbuff[i] = op over ranks of sendbuff[i], i < count, on every rank. In place: sendbuff ==
 * recvbuff. */
TUTTI_API tuttiResult_t tuttiAllReduce(const void *sendbuff, void *recvbuff, size_t count,
                                       tuttiDataType_t type, tuttiRedOp_t op, tuttiComm_t comm,
                                       tuttiStream_t stream);
/* The same result on `root` only; recvbuff may be NULL elsewhere. */
TUTTI_API tuttiResult_t tuttiReduce(const void *sendbuff, void *recvbuff, size_t count,
                                    tuttiDataType_t type, tuttiRedOp_t op, int root,
                                    tuttiComm_t comm, tuttiStream_t stream);
/* recvbuff = root's sendbuff; sendbuff may be NULL elsewhere. In place: equal. */
TUTTI_API tuttiResult_t tuttiBroadcast(const void *sendbuff, void *recvbuff, size_t count,
                                       tuttiDataType_t type, int root, tuttiComm_t comm,
                                       tuttiStream_t stream);
/* recvbuff[0..recvcount) = elements [rank*recvcount, ...) of the reduction of nranks*recvcount
 * elements. In place: recvbuff == sendbuff + rank*recvcount. */
TUTTI_API tuttiResult_t tuttiReduceScatter(const void *sendbuff, void *recvbuff, size_t recvcount,
                                           tuttiDataType_t type, tuttiRedOp_t op, tuttiComm_t comm,
                                           tuttiStream_t stream);
/* recvbuff = the ranks' sendbuffs (sendcount each) in rank order. In place: sendbuff == recvbuff +
 * rank*sendcount. */
TUTTI_API tuttiResult_t tuttiAllGather(const void *sendbuff, void *recvbuff, size_t sendcount,
                                       tuttiDataType_t type, tuttiComm_t comm,
                                       tuttiStream_t stream);
/* Block r of sendbuff (count elements) goes to rank r; block s of recvbuff came from rank s.
 * Never in place. */
TUTTI_API tuttiResult_t tuttiAlltoAll(const void *sendbuff, void *recvbuff, size_t count,
                                      tuttiDataType_t type, tuttiComm_t comm, tuttiStream_t stream);
/* root's recvbuff = the ranks' sendbuffs in rank order. In place on root: sendbuff == recvbuff +
 * root*count. */
TUTTI_API tuttiResult_t tuttiGather(const void *sendbuff, void *recvbuff, size_t count,
                                    tuttiDataType_t type, int root, tuttiComm_t comm,
                                    tuttiStream_t stream);
/* Rank r gets block r of root's sendbuff. In place on root: recvbuff == sendbuff + root*count. */
TUTTI_API tuttiResult_t tuttiScatter(const void *sendbuff, void *recvbuff, size_t count,
                                     tuttiDataType_t type, int root, tuttiComm_t comm,
                                     tuttiStream_t stream);
/* ---- Collectives with a count for each rank (tutti) -------------------------------------------
 */
/* Block r, of counts[r] elements, belongs to rank r; counts may be 0. All ranks pass the same
 * counts [nranks]; ranks whose counts differ get InvalidUsage. displs[r], in elements, is where
 * block r begins in this rank's buffer that holds all blocks; it is this rank's own affair, and
 * looked at only where there is such a buffer. NULL: the blocks are packed in rank order. Blocks
 * that are received must not overlap (InvalidArgument). All arrays are copied before the call
 * returns, also in a group or a stream. What is said of buffers and of counts above holds here too;
 * the buffer that holds all blocks reaches from the first element of any block to the last of any.
 */

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
/* sendcounts[r] elements, from sdispls[r] on, go to rank r; recvcounts[s] elements, to rdispls[s],
 * come from rank s. Each rank has counts of its own; recvcounts[s] must be what rank s sends here
 * (InvalidUsage). A group of sends and receives: it is ordered with those of tuttiSend. Never in
 * place. */
TUTTI_API tuttiResult_t tuttiAlltoAllV(const void *sendbuff, const size_t sendcounts[],
                                       const size_t sdispls[], void *recvbuff,
                                       const size_t recvcounts[], const size_t rdispls[],
                                       tuttiDataType_t type, tuttiComm_t comm,
                                       tuttiStream_t stream);

/* ---- Barrier, point to point ------------------------------------------------------------------
 */

/* (tutti) Returns (or lets the stream go on) when every rank has called it. */
TUTTI_API tuttiResult_t tuttiBarrier(tuttiComm_t comm, tuttiStream_t stream);

/* Point to point: messages between two ranks arrive in the order sent. The receiver's byte count
 * must be the sender's, also when it is 0. A send may block until the receiver comes; wrap
 * exchanges in a group. Peer may be oneself inside a group. */
TUTTI_API tuttiResult_t tuttiSend(const void *sendbuff, size_t count, tuttiDataType_t type,
                                  int peer, tuttiComm_t comm, tuttiStream_t stream);
TUTTI_API tuttiResult_t tuttiRecv(void *recvbuff, size_t count, tuttiDataType_t type, int peer,
                                  tuttiComm_t comm, tuttiStream_t stream);

/* ---- Algorithms and schedules (tutti) ---------------------------------------------------------
 */

/* Forces `algorithm` (its name, or NULL for the library's choice) for `collective` on `comm` from
 * the next call on; call it alike on every rank. InvalidArgument lists the names there are,
 * InvalidUsage says why an algorithm cannot be on the communicator's hosts. */
TUTTI_API tuttiResult_t tuttiCommSetAlgorithm(tuttiComm_t comm, tuttiCollective_t collective,
                                              const char *algorithm);
/* The name that `collective` would use for `nbytes` of data. Static storage. */
TUTTI_API tuttiResult_t tuttiCommGetAlgorithm(tuttiComm_t comm, tuttiCollective_t collective,
                                              size_t nbytes, const char **algorithm);

/* "all_reduce", ...; NULL past the end. */
TUTTI_API const char *tuttiCollectiveName(tuttiCollective_t collective);
/* 1 when calls of the collective name a root, 0 when they do not or past the end. */
TUTTI_API int tuttiCollectiveHasRoot(tuttiCollective_t collective);
/* The index-th algorithm's name, NULL past the end. Those named "X/Y", X inside each host and Y
 * between hosts, come last. */
TUTTI_API const char *tuttiAlgorithmName(tuttiCollective_t collective, int index);

/* 1 when the algorithm exists and can be on these hosts (hostOf as for tuttiPlanCreateOnHosts;
 * NULL: one host), else 0; why not, the error of making its plan says. */
TUTTI_API int tuttiAlgorithmFits(tuttiCollective_t collective, const char *algorithm, int nranks,
                                 const int *hostOf);

/* An algorithm's schedule for nranks ranks and a root (ignored where there is none). Takes memory
 * that does not grow with nranks. */
TUTTI_API tuttiResult_t tuttiPlanCreate(tuttiPlan_t *plan, tuttiCollective_t collective,
                                        const char *algorithm, int nranks, int root);
/* The same for ranks on several hosts: hostOf[r], any number, is equal for the ranks of a host.
 * Only so can there be a plan of an algorithm "X/Y": X inside each host, Y between hosts.
 * InvalidUsage says why an algorithm cannot be on these hosts. */
TUTTI_API tuttiResult_t tuttiPlanCreateOnHosts(tuttiPlan_t *plan, tuttiCollective_t collective,
                                               const char *algorithm, int nranks, int root,
                                               const int *hostOf);
TUTTI_API tuttiResult_t tuttiPlanDestroy(tuttiPlan_t plan);

typedef struct {
    uint64_t steps;        /* most steps of any rank */
    uint64_t depth;        /* messages on the longest chain of dependences */
    uint64_t bytesSent;    /* most bytes any rank sends, for `count` elements of `elementBytes` */
    uint64_t bytesReduced; /* most bytes any rank reads to reduce */
    uint64_t scratchBytes; /* most scratch memory of any rank */
    uint64_t planBytes;    /* memory that the plan itself takes in the library */
} tuttiPlanCost_t;

/* Counted from the steps of every rank (exact = 1) or taken from the algorithm's formulas (exact =
 * 0, any number of ranks at once). */
TUTTI_API tuttiResult_t tuttiPlanCost(tuttiPlan_t plan, size_t count, size_t elementBytes,
                                      int exact, tuttiPlanCost_t *cost);

/* Most bytes that leave any host, counted from the steps of every rank; 0 where there is one host.
 */
TUTTI_API tuttiResult_t tuttiPlanOffHost(tuttiPlan_t plan, size_t count, size_t elementBytes,
                                         uint64_t *bytes);

/* The index-th placement of ranks on hosts on which `tutti-plan verify --all` proves the algorithms
 * X/Y, as a letter a rank, equal letters being one host: "abba". NULL past the end. */
TUTTI_API const char *tuttiPlanPlacement(int index);

/* Proves, up to 64 ranks the lowered programs, above the schedule, for `count` elements: result,
 * single counting, matching, ranges, deadlock, races, in place; where calls with a count for each
 * rank use it, also for any such counts. InvalidUsage, with the first violation as last error, when
 * it is wrong. */
TUTTI_API tuttiResult_t tuttiPlanVerify(tuttiPlan_t plan, size_t count);

/* Writes rank's steps as text, line by line without newline, through `emit`. */
TUTTI_API tuttiResult_t tuttiPlanPrint(tuttiPlan_t plan, int rank,
                                       void (*emit)(void *arg, const char *line), void *arg);

/* ---- What is here (tutti) ---------------------------------------------------------------------
 */

typedef enum {
    tuttiDescribeTopology = 0,      /* cores, caches, NUMA nodes */
    tuttiDescribeConfig = 1,        /* the config table with values and where they came from */
    tuttiDescribeCpu = 2,           /* CPU features found and in use */
    tuttiDescribeLinks = 3,         /* links chosen; needs a communicator */
    tuttiDescribeCosts = 4,         /* the cost model's constants and the choices made from it */
    tuttiDescribeTopologyXml = 5,   /* the topology as XML, loadable through TUTTI_TOPOLOGY_FILE */
    tuttiDescribeConfigMarkdown = 6 /* the config table as a Markdown table, for the docs */
} tuttiDescribe_t;

/* Describes in text, line by line through `emit`; comm may be NULL where it is not needed. */
TUTTI_API tuttiResult_t tuttiDescribe(tuttiDescribe_t what, tuttiComm_t comm,
                                      void (*emit)(void *arg, const char *line), void *arg);

/* What this rank of `comm` has done since init. */
typedef struct {
    uint64_t collectives; /* completed */
    uint64_t messages;    /* sent over links */
    uint64_t bytesCopied; /* sent through slots */
    uint64_t bytesDirect; /* sent without: read by the receiver where they lay, or written by this
                           * rank to the receiver's buffer */
    uint64_t memoryBytes; /* held by this rank's end of the communicator (virtual) */
    /* of init, while the ranks found each other; 0 in communicators made by split */
    uint64_t initConnections; /* opened and accepted, and closed again */
    uint64_t initMessages;    /* sent and received on them */
    uint64_t initBytes;
    uint64_t initJoinNs; /* until all ranks had come and knew their neighbours */
    uint64_t initNs;     /* the whole of it */
} tuttiCounters_t;
TUTTI_API tuttiResult_t tuttiCommCounters(tuttiComm_t comm, tuttiCounters_t *counters);

#ifdef __cplusplus
}
#endif
#endif
