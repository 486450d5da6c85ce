/* The part of tutti.h about algorithms and schedules (tutti): which there are, which one a
 * communicator uses, and plans, which print, count and verify the schedules. tutti.h includes it; a
 * program includes tutti.h. */
#ifndef TUTTI_PLAN_H
#define TUTTI_PLAN_H

#include "tutti.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Algorithms and schedules (tutti) ------------------------------------------------------- */

/* Forces `algorithm` (a name; NULL: the library chooses) for `collective` on `comm` from the next
 * call on; all ranks must force the same. InvalidArgument lists the names that exist; InvalidUsage
 * says why the algorithm cannot run on the communicator's hosts. */
TUTTI_API tuttiResult_t tuttiCommSetAlgorithm(tuttiComm_t comm, tuttiCollective_t collective,
                                              const char *algorithm);
/* The name of the algorithm that `collective` would use for `nbytes` of data: of GPU memory, where
 * kernels carry out such calls on `comm`, else of the host's. Static storage. */
TUTTI_API tuttiResult_t tuttiCommGetAlgorithm(tuttiComm_t comm, tuttiCollective_t collective,
                                              size_t nbytes, const char **algorithm);

/* "all_reduce", ...; NULL past the end. */
TUTTI_API const char *tuttiCollectiveName(tuttiCollective_t collective);
/* 1 when calls of the collective have a root, else 0. */
TUTTI_API int tuttiCollectiveHasRoot(tuttiCollective_t collective);
/* The index-th algorithm's name; NULL past the end. Composed ones, "X/Y" (X inside each host, Y
 * between hosts), come last. */
TUTTI_API const char *tuttiAlgorithmName(tuttiCollective_t collective, int index);

/* 1 when a deterministic communicator may use the algorithm: it folds in rank order, or its
 * collective reduces nothing. Else 0, also for a name that does not exist. */
TUTTI_API int tuttiAlgorithmIsDeterministic(tuttiCollective_t collective, const char *algorithm);

/* 1 when the algorithm exists and can run on these hosts (hostOf as for tuttiPlanCreateOnHosts;
 * NULL: one host), else 0; the error of creating its plan says why not. */
TUTTI_API int tuttiAlgorithmFits(tuttiCollective_t collective, const char *algorithm, int nranks,
                                 const int *hostOf);

/* Makes a plan: an algorithm's schedule for nranks ranks of one host and a root (ignored where
 * there is none). Its memory does not grow with nranks. InvalidArgument lists the names that exist.
 */
TUTTI_API tuttiResult_t tuttiPlanCreate(tuttiPlan_t *plan, tuttiCollective_t collective,
                                        const char *algorithm, int nranks, int root);
/* tuttiPlanCreate for ranks on several hosts, which an algorithm "X/Y" needs: hostOf[nranks] has
 * equal numbers for the ranks of a host. InvalidUsage says why the algorithm cannot run there. */
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

/* Computes the cost: counted from the steps of every rank (exact = 1), or from the algorithm's
 * formulas (exact = 0), which takes the same time for any number of ranks. */
TUTTI_API tuttiResult_t tuttiPlanCost(tuttiPlan_t plan, size_t count, size_t elementBytes,
                                      int exact, tuttiPlanCost_t *cost);

/* The most bytes that leave any host, counted from the steps of every rank; 0 on one host. */
TUTTI_API tuttiResult_t tuttiPlanOffHost(tuttiPlan_t plan, size_t count, size_t elementBytes,
                                         uint64_t *bytes);

/* The index-th placement of ranks on hosts on which `tutti-plan verify --all` proves the algorithms
 * X/Y, as a letter a rank, equal letters being one host: "abba". NULL past the end. */
TUTTI_API const char *tuttiPlanPlacement(int index);

/* Proves for `count` elements that the result is right, that each contribution counts once, that
 * sends match receives, that all ranges are valid, and that there is no deadlock and no race, also
 * in place. Up to 64 ranks the lowered programs are proved, above that the schedule. An algorithm
 * that calls with a count for each rank use is also proved for all such counts. InvalidUsage when
 * the proof fails; the last error is the first violation. */
TUTTI_API tuttiResult_t tuttiPlanVerify(tuttiPlan_t plan, size_t count);

/* Calls emit(arg, line) for each step of `rank`; lines have no newline. */
TUTTI_API tuttiResult_t tuttiPlanPrint(tuttiPlan_t plan, int rank,
                                       void (*emit)(void *arg, const char *line), void *arg);

#ifdef __cplusplus
}
#endif
#endif
