/* Plans: schedules to print, count and verify, without any communicator. */
#include <stdlib.h>

#include "algorithms/algorithms.h"
#include "communicator/communicator.h"
#include "communicator/handles.h"
#include "net/handshake.h"
#include "program/covered.h"
#include "program/proof.h"

#define X(NAME, PUBLIC, ...)                                                                       \
    _Static_assert((int)TT_##NAME == (int)tuttiColl##PUBLIC, "tutti.h has another value");
#include "schedule/collective_table.h"
#undef X
_Static_assert((int)TT_NCOLLECTIVES == (int)tuttiNumCollectives, "tutti.h has another number");

/* Owned by the user's handle. Steps are made when asked for, so its size is the same for any number
 * of ranks. */
struct tuttiPlan {
    struct tt_hosts *hosts; /* of steps.shape; NULL: one host */
    struct tt_steps steps;
    struct tt_proof *proof; /* the programs of all ranks; NULL: not made yet, or too many ranks */
    bool proved;            /* for every count */
};

static bool is_collective(tuttiCollective_t collective)
{
    return (unsigned)collective < TT_NCOLLECTIVES;
}

const char *tuttiCollectiveName(tuttiCollective_t collective)
{
    return is_collective(collective) ? tt_collective_name((enum tt_collective)collective) : NULL;
}

int tuttiCollectiveHasRoot(tuttiCollective_t collective)
{
    return is_collective(collective) && tt_collective_has_root((enum tt_collective)collective);
}

const char *tuttiAlgorithmName(tuttiCollective_t collective, int index)
{
    if (!is_collective(collective)) return NULL;
    const struct tt_algorithm *algorithm = tt_algorithm_at((enum tt_collective)collective, index);
    return algorithm ? algorithm->name : NULL;
}

int tuttiAlgorithmIsDeterministic(tuttiCollective_t collective, const char *name)
{
    const struct tt_algorithm *algorithm =
        is_collective(collective) && name ? tt_algorithm_find((enum tt_collective)collective, name)
                                          : NULL;
    return algorithm && tt_order_fits(algorithm, true);
}

const char *tuttiPlanPlacement(int index)
{
    return tt_covered_placement(index);
}

/* ---- Create, destroy ------------------------------------------------------------------------ */

static tt_status find_algorithm(tuttiCollective_t collective, const char *name,
                                const struct tt_algorithm **algorithm)
{
    if (!is_collective(collective))
        return tt_fail(TT_ERR_ARGUMENT, "collective %d does not exist (0 to %d)", (int)collective,
                       TT_NCOLLECTIVES - 1);
    if (!name) return tt_fail(TT_ERR_ARGUMENT, "algorithm is NULL");
    *algorithm = tt_algorithm_find((enum tt_collective)collective, name);
    if (*algorithm) return TT_OK;
    char names[512];
    tt_algorithm_names((enum tt_collective)collective, names, sizeof names);
    return tt_fail(TT_ERR_ARGUMENT, "%s has no algorithm \"%s\"; there are: %s",
                   tuttiCollectiveName(collective), name, names);
}

/* Everything about the shape but the hosts. */
static tt_status check_shape(const struct tt_algorithm *algorithm, int nranks, int root,
                             struct tt_shape *shape)
{
    const bool has_root = tt_collective_has_root(algorithm->collective);
    if (nranks < 1 || nranks > TT_MAX_RANKS)
        return tt_fail(TT_ERR_ARGUMENT, "%d ranks; 1 to %d are possible", nranks, TT_MAX_RANKS);
    if (has_root && (root < 0 || root >= nranks))
        return tt_fail(TT_ERR_ARGUMENT, "root %d is not one of %d ranks (0 to %d)", root, nranks,
                       nranks - 1);
    *shape = (struct tt_shape){
        .collective = algorithm->collective, .nranks = nranks, .root = has_root ? root : 0};
    return TT_OK;
}

static tt_status create_hosts(const int *host_of, int nranks, struct tt_hosts **hosts)
{
    if (!host_of) return TT_OK;
    const size_t nbytes = (size_t)nranks * sizeof(uint64_t);
    uint64_t *ids = malloc(nbytes);
    if (!ids)
        return tt_fail(TT_ERR_SYSTEM, "out of memory for the hosts of %d ranks (%zu bytes)", nranks,
                       nbytes);
    for (int r = 0; r < nranks; r++) ids[r] = (uint64_t)host_of[r];
    const tt_status status = tt_hosts_create(ids, nranks, hosts);
    free(ids);
    return status;
}

static tt_status create_plan(tuttiPlan_t *plan, tuttiCollective_t collective, const char *name,
                             int nranks, int root, const int *host_of)
{
    const struct tt_algorithm *algorithm = NULL;
    struct tt_shape shape;
    struct tt_hosts *hosts = NULL;
    if (!plan) return tt_fail(TT_ERR_ARGUMENT, "plan is NULL");
    TT_TRY(find_algorithm(collective, name, &algorithm));
    TT_TRY(check_shape(algorithm, nranks, root, &shape));
    TT_TRY(create_hosts(host_of, nranks, &hosts));
    shape.hosts = hosts;
    const char *refusal = tt_refusal(algorithm, &shape);
    struct tuttiPlan *made = refusal ? NULL : calloc(1, sizeof *made);
    const tt_status status =
        refusal ? tt_fail(TT_ERR_USAGE, "%s:%s %s", tuttiCollectiveName(collective), name, refusal)
        : !made ? tt_fail(TT_ERR_SYSTEM, "out of memory for a plan (%zu bytes)", sizeof *made)
                : tt_handle_add(made, TT_HANDLE_PLAN);
    if (status) {
        tt_hosts_destroy(hosts);
        free(made);
        return status;
    }
    *made = (struct tuttiPlan){.hosts = hosts, .steps = {.algorithm = algorithm, .shape = shape}};
    *plan = made;
    return TT_OK;
}

tuttiResult_t tuttiPlanCreate(tuttiPlan_t *plan, tuttiCollective_t collective,
                              const char *algorithm, int nranks, int root)
{
    return tt_result(__func__, create_plan(plan, collective, algorithm, nranks, root, NULL));
}

tuttiResult_t tuttiPlanCreateOnHosts(tuttiPlan_t *plan, tuttiCollective_t collective,
                                     const char *algorithm, int nranks, int root, const int *hostOf)
{
    if (!hostOf)
        return tt_result(__func__,
                         tt_fail(TT_ERR_ARGUMENT, "tuttiPlanCreateOnHosts: hostOf is NULL"));
    return tt_result(__func__, create_plan(plan, collective, algorithm, nranks, root, hostOf));
}

int tuttiAlgorithmFits(tuttiCollective_t collective, const char *algorithm, int nranks,
                       const int *hostOf)
{
    const struct tt_algorithm *found =
        is_collective(collective) && algorithm
            ? tt_algorithm_find((enum tt_collective)collective, algorithm)
            : NULL;
    struct tt_shape shape;
    struct tt_hosts *hosts = NULL;
    if (!found || check_shape(found, nranks, 0, &shape) || create_hosts(hostOf, nranks, &hosts))
        return 0;
    shape.hosts = hosts;
    const int fits = tt_refusal(found, &shape) == NULL;
    tt_hosts_destroy(hosts);
    return fits;
}

tuttiResult_t tuttiPlanDestroy(tuttiPlan_t plan)
{
    if (!plan) return tuttiSuccess;
    const tt_status status = tt_handle_check(plan, TT_HANDLE_PLAN);
    if (status) return tt_result(__func__, status);
    tt_handle_remove(plan, TT_HANDLE_PLAN);
    tt_proof_destroy(plan->proof);
    tt_hosts_destroy(plan->hosts);
    free(plan);
    return tuttiSuccess;
}

/* ---- Cost ----------------------------------------------------------------------------------- */

/* a * b, or UINT64_MAX when that is too much. */
static uint64_t times(uint64_t a, uint64_t b)
{
    uint64_t product;
    return __builtin_mul_overflow(a, b, &product) ? UINT64_MAX : product;
}

/* Bytes of the largest part that a channel has of a block. */
static uint64_t part_bytes(const struct tt_steps *steps, size_t count, size_t element_bytes)
{
    const struct tt_geometry geometry = {.count = count,
                                         .nblocks = tt_nblocks(steps->algorithm, &steps->shape),
                                         .nchannels = tt_nchannels(steps->algorithm, &steps->shape),
                                         .align = 1,
                                         .split = tt_collective_splits(steps->shape.collective)};
    if (geometry.nblocks == 0) return 0;
    return times(tt_geometry_largest_part(&geometry), element_bytes);
}

static uint64_t plan_bytes(const struct tuttiPlan *plan)
{
    return sizeof *plan + (plan->hosts ? tt_hosts_bytes(plan->hosts) : 0);
}

static tt_status cost_plan(tuttiPlan_t plan, size_t count, size_t element_bytes, int exact,
                           tuttiPlanCost_t *cost)
{
    TT_TRY(tt_handle_check(plan, TT_HANDLE_PLAN));
    if (!cost) return tt_fail(TT_ERR_ARGUMENT, "tuttiPlanCost: cost is NULL");
    if (exact != 0 && exact != 1)
        return tt_fail(TT_ERR_ARGUMENT, "tuttiPlanCost: exact is %d, expected 0 or 1", exact);
    const struct tt_steps *steps = &plan->steps;
    struct tt_formula formula;
    if (exact)
        TT_TRY(tt_count(steps, &formula));
    else
        formula = tt_formula_of(steps->algorithm, &steps->shape);
    const uint64_t part = part_bytes(steps, count, element_bytes);
    const uint64_t nchannels = (uint64_t)tt_nchannels(steps->algorithm, &steps->shape);
    const tuttiPlanCost_t result = {.steps = formula.steps,
                                    .depth = formula.depth,
                                    .bytesSent = times(formula.sent, part),
                                    .bytesReduced = times(formula.reduced, part),
                                    .scratchBytes = times(times(formula.scratch, nchannels), part),
                                    .planBytes = plan_bytes(plan)};
    if (part == UINT64_MAX || result.bytesSent == UINT64_MAX || result.bytesReduced == UINT64_MAX ||
        result.scratchBytes == UINT64_MAX)
        return tt_fail(TT_ERR_ARGUMENT,
                       "tuttiPlanCost: %zu elements of %zu bytes are more than can be counted",
                       count, element_bytes);
    *cost = result;
    return TT_OK;
}

tuttiResult_t tuttiPlanCost(tuttiPlan_t plan, size_t count, size_t elementBytes, int exact,
                            tuttiPlanCost_t *cost)
{
    return tt_result(__func__, cost_plan(plan, count, elementBytes, exact, cost));
}

static tt_status count_off_host(tuttiPlan_t plan, size_t count, size_t element_bytes,
                                uint64_t *bytes)
{
    TT_TRY(tt_handle_check(plan, TT_HANDLE_PLAN));
    if (!bytes) return tt_fail(TT_ERR_ARGUMENT, "tuttiPlanOffHost: bytes is NULL");
    struct tt_traffic traffic = {.sent = 0};
    if (plan->hosts) TT_TRY(tt_count_traffic(&plan->steps, &traffic));
    const uint64_t result = times(traffic.sent, part_bytes(&plan->steps, count, element_bytes));
    if (result == UINT64_MAX)
        return tt_fail(TT_ERR_ARGUMENT,
                       "tuttiPlanOffHost: %zu elements of %zu bytes are more than can be counted",
                       count, element_bytes);
    *bytes = result;
    return TT_OK;
}

tuttiResult_t tuttiPlanOffHost(tuttiPlan_t plan, size_t count, size_t elementBytes, uint64_t *bytes)
{
    return tt_result(__func__, count_off_host(plan, count, elementBytes, bytes));
}

/* ---- Verify, print -------------------------------------------------------------------------- */

/* What runs is proved: the lowered programs. With too many ranks for that, the algorithm's steps.
 * Where calls with a count for each rank use the algorithm, also for any such counts. */
static tt_status prove(tuttiPlan_t plan, size_t count, struct tt_verify_report *report)
{
    const struct tt_steps *steps = &plan->steps;
    const bool lowered = steps->shape.nranks <= TT_PROOF_MOST_RANKS;
    if (lowered && !plan->proof)
        TT_TRY(tt_proof_create(steps->algorithm, &steps->shape, &plan->proof));
    TT_TRY(lowered ? tt_proof_run(plan->proof, count, report)
                   : tt_proof_of_steps(steps, &count, report));
    if (!steps->algorithm->uneven) return TT_OK;
    struct tt_verify_report uneven;
    const tt_status status = lowered ? tt_proof_run_uneven(plan->proof, NULL, &uneven)
                                     : tt_proof_of_steps(steps, NULL, &uneven);
    if (status) *report = uneven;
    return status;
}

static tt_status verify_plan(tuttiPlan_t plan, size_t count)
{
    TT_TRY(tt_handle_check(plan, TT_HANDLE_PLAN));
    if (plan->proved) return TT_OK;
    struct tt_verify_report report = {.text = ""};
    const tt_status status = prove(plan, count, &report);
    const struct tt_shape *shape = &plan->steps.shape;
    if (status == TT_ERR_USAGE)
        return tt_fail(TT_ERR_USAGE, "%s:%s is wrong for %d ranks, root %d, count %zu: %s",
                       tt_collective_name(shape->collective), plan->steps.algorithm->name,
                       shape->nranks, shape->root, count, report.text);
    plan->proved = !status && report.any_count;
    return status;
}

tuttiResult_t tuttiPlanVerify(tuttiPlan_t plan, size_t count)
{
    return tt_result(__func__, verify_plan(plan, count));
}

tuttiResult_t tuttiPlanPrint(tuttiPlan_t plan, int rank, void (*emit)(void *arg, const char *line),
                             void *arg)
{
    const tt_status status = tt_handle_check(plan, TT_HANDLE_PLAN);
    if (status) return tt_result(__func__, status);
    if (!emit) return tt_result(__func__, tt_fail(TT_ERR_ARGUMENT, "tuttiPlanPrint: emit is NULL"));
    const int nranks = plan->steps.shape.nranks;
    if (rank < 0 || rank >= nranks)
        return tt_result(__func__,
                         tt_fail(TT_ERR_ARGUMENT,
                                 "tuttiPlanPrint: rank %d is not one of %d ranks (0 to %d)", rank,
                                 nranks, nranks - 1));
    tt_print(&plan->steps, rank, emit, arg);
    return tuttiSuccess;
}
