/* Selects the algorithm of a call, and keeps its program and bindings in a cache. */
#include <stdlib.h>

#include "base/thread.h"
#include "carrier/carried.h"
#include "communicator/calling.h"
#include "program/first_use.h"
#include "program/lower.h"

static struct tt_carrier_limits limits_of(const struct tuttiComm *comm,
                                          const struct tt_carrier *carrier)
{
    struct tt_carrier_limits limits;
    carrier->limits(&comm->core, &limits);
    return limits;
}

static struct tt_shape shape_of(const struct tuttiComm *comm, const struct tt_carrier *carrier,
                                enum tt_collective collective, int root)
{
    const struct tt_carrier_limits limits = limits_of(comm, carrier);
    return (struct tt_shape){.collective = collective,
                             .nranks = comm->core.nranks,
                             .root = root,
                             .hosts = limits.groups ? limits.groups : comm->core.fabric->hosts};
}

/* What the choice depends on. The constants of the host are those of its links. */
static struct tt_setting setting_of(const struct tuttiComm *comm, const struct tt_carrier *carrier)
{
    struct tt_setting setting = comm->setting;
    const struct tt_carrier_limits limits = limits_of(comm, carrier);
    if (!limits.of_gpus) return setting;
    setting.on_device = true;
    setting.no_meetings = limits.no_meetings;
    setting.oversubscribed = false;
    setting.ranks_per_core = 0;
    setting.slot_bytes = limits.slot_bytes;
    setting.meet_bytes = limits.meet_bytes;
    setting.line_bytes = limits.line_bytes;
    setting.nparts = limits.nparts;
    setting.bridges = limits.bridges;
    return setting;
}

/* The algorithm of a call: one for all roots, so that calls with changing roots do not change it. A
 * forced algorithm that is not for a count for each rank leaves such calls to the choice. */
static const struct tt_algorithm *choose(tuttiComm_t comm, const struct tt_selection *of)
{
    const struct tt_algorithm *forced = comm->forced[of->collective];
    if (forced && (!of->uneven || forced->uneven)) return forced;
    struct tt_choices *choices = &comm->choices[of->carrier->programs][of->collective][of->uneven];
    if (choices->number == 0) {
        const struct tt_shape shape = shape_of(comm, of->carrier, of->collective, 0);
        struct tt_setting setting = setting_of(comm, of->carrier);
        setting.uneven = of->uneven;
        tt_choices_make(choices, &shape, &setting);
    }
    return tt_choices_at(choices, of->nbytes);
}

static tt_status check_meetings(const struct tuttiComm *comm, const struct tt_carrier *carrier,
                                const struct tt_algorithm *algorithm)
{
    if (!tt_meets(algorithm) || !limits_of(comm, carrier).no_meetings) return TT_OK;
    return tt_fail(
        TT_ERR_USAGE,
        "%s:%s needs meetings, which ranks with a GPU do not have with ranks without one: choose "
        "another algorithm, or set TUTTI_DEVICE_BRIDGES=0 on all ranks",
        tt_collective_name(algorithm->collective), algorithm->name);
}

/* How many copies run over bridges; elsewhere nothing is kept. */
static tt_status choose_copies(const struct tuttiComm *comm, const struct tt_algorithm *algorithm,
                               const struct tt_shape *shape, struct tt_cached *cached)
{
    const struct tt_setting setting = setting_of(comm, cached->carrier);
    if (!setting.bridges) return TT_OK;
    cached->copies = malloc(sizeof *cached->copies);
    if (!cached->copies) return tt_fail(TT_ERR_SYSTEM, "out of memory for a program");
    tt_copies_make(cached->copies, algorithm, shape, &setting);
    return TT_OK;
}

static tt_status load(tuttiComm_t comm, const struct tt_algorithm *algorithm,
                      const struct tt_shape *shape, struct tt_cached *cached)
{
    struct tt_program *program;
    TT_TRY(check_meetings(comm, cached->carrier, algorithm));
    TT_TRY(tt_prove_first_use(algorithm, shape, 0, &cached->any_count));
    TT_TRY(choose_copies(comm, algorithm, shape, cached));
    TT_TRY(tt_program_create(algorithm, shape, comm->core.rank, &program));
    return cached->carrier->load(&comm->core, program, &cached->loaded);
}

/* ---- The cache ------------------------------------------------------------------------------ */

/* In an open group, or not done. */
static bool has_calls(const struct tuttiComm *comm, const struct tt_cached *cached)
{
    /* release: release_programs of group.c */
    return atomic_load_explicit(&cached->nheld, memory_order_acquire) > 0 ||
           atomic_load_explicit(&comm->core.engine.collectives_done, memory_order_acquire) <
               cached->last_turn; /* release: complete of work.c, begin_express of collective.c */
}

/* By a call, or by the last of its collective, which the next one is probably like. */
static bool is_used(const struct tuttiComm *comm, const struct tt_cached *cached)
{
    for (int kind = 0; kind < TT_NPROGRAM_KINDS; kind++)
        for (int i = 0; i < TT_NCOLLECTIVES; i++)
            if (comm->memos[kind][i].cached == cached) return true;
    return has_calls(comm, cached);
}

static void forget(tuttiComm_t comm, struct tt_cached *cached)
{
    comm->ncached--;
    if (cached->carrier->unload) cached->carrier->unload(&comm->core, cached);
    tt_loaded_destroy(cached->loaded);
    free(cached->copies);
    for (int i = 0; i < TT_BINDINGS_KEPT; i++) free(cached->bound[i].resolved);
    free(cached);
}

/* Makes room for one more by forgetting those that were not used for longest, as far as no call
 * uses them. */
static void evict(tuttiComm_t comm)
{
    while (comm->ncached >= TT_MOST_CACHED) {
        struct tt_cached **oldest = NULL;
        for (struct tt_cached **c = &comm->cache; *c; c = &(*c)->next)
            if (!is_used(comm, *c)) oldest = c;
        if (!oldest) return;
        struct tt_cached *cached = *oldest;
        *oldest = cached->next;
        forget(comm, cached);
    }
}

/* Takes it out of the list; NULL: it is not there. */
static struct tt_cached *take_out(tuttiComm_t comm, const struct tt_algorithm *algorithm, int root,
                                  enum tt_program_kind kind)
{
    for (struct tt_cached **c = &comm->cache; *c; c = &(*c)->next) {
        struct tt_cached *cached = *c;
        if (cached->algorithm != algorithm || cached->loaded->program->root != root ||
            cached->carrier->programs != kind)
            continue;
        *c = cached->next;
        return cached;
    }
    return NULL;
}

static tt_status make(tuttiComm_t comm, const struct tt_algorithm *algorithm, int root,
                      const struct tt_carrier *carrier, struct tt_cached **made)
{
    const struct tt_shape shape = shape_of(comm, carrier, algorithm->collective, root);
    struct tt_cached *cached = calloc(1, sizeof *cached);
    if (!cached) return tt_fail(TT_ERR_SYSTEM, "out of memory for a program");
    cached->carrier = carrier;
    const tt_status status = load(comm, algorithm, &shape, cached);
    if (status) {
        free(cached->copies);
        free(cached);
        return status;
    }
    cached->algorithm = algorithm;
    evict(comm);
    comm->ncached++;
    *made = cached;
    return TT_OK;
}

/* What a proof said of count 0 need not hold for this one. */
static tt_status prove_count(const struct tuttiComm *comm, const struct tt_cached *cached,
                             size_t count)
{
    bool any_count;
    if (cached->any_count) return TT_OK;
    const struct tt_shape shape = shape_of(comm, cached->carrier, cached->algorithm->collective,
                                           cached->loaded->program->root);
    return tt_prove_first_use(cached->algorithm, &shape, count, &any_count);
}

/* A program that was proved for single counts only is not run on parts of other lengths. A small
 * call of `nbytes` is done express, as one copy (executor/express.h). all_bytes: of all blocks
 * together. */
static struct tt_limits binding_limits(const struct tuttiComm *comm, const struct tt_cached *cached,
                                       size_t nbytes, size_t all_bytes)
{
    const struct tt_carrier *carrier = cached->carrier;
    const struct tt_carrier_limits limits = limits_of(comm, carrier);
    const bool copies = cached->any_count && (limits.of_gpus || nbytes >= TT_EXPRESS_BYTES);
    int most = copies ? cached->loaded->copies : 1;
    if (cached->copies && tt_copies_at(cached->copies, all_bytes) < most)
        most = tt_copies_at(cached->copies, all_bytes);
    return (struct tt_limits){.slot_bytes = limits.slot_bytes,
                              .meet_bytes = limits.meet_bytes,
                              .copies = most,
                              .slot_setting = limits.slot_setting,
                              .of_gpus = limits.of_gpus};
}

tt_status tt_comm_bind_counts(tuttiComm_t comm, const struct tt_cached *cached,
                              const struct tt_counts *counts, size_t element,
                              struct tt_binding **out)
{
    size_t total = 0;
    for (int b = 0; b < cached->loaded->program->nblocks; b++) total += counts->counts[b];
    const struct tt_limits limits = binding_limits(comm, cached, SIZE_MAX, total * element);
    return tt_program_bind_counts(cached->loaded->program, counts, element, &limits, out);
}

/* Makes the table of resolved steps in place of an earlier one, unless a call may read that. Calls
 * do without a table: also where there is no memory for it. Kernels have none. */
static void resolve(const struct tuttiComm *comm, const struct tt_cached *cached,
                    struct tt_bound *bound)
{
    const struct tt_program *program = cached->loaded->program;
    const size_t nbytes = tt_step_table_bytes(program, &bound->binding);
    if (bound->is_resolved || !cached->loaded->links) return;
    if (nbytes == SIZE_MAX || (bound->resolved && has_calls(comm, cached))) return;
    if (bound->resolved_bytes != nbytes) {
        free(bound->resolved);
        bound->resolved = aligned_alloc(TT_CACHE_LINE, nbytes);
        bound->resolved_bytes = bound->resolved ? nbytes : 0;
    }
    if (bound->resolved) tt_step_table_fill(program, &bound->binding, bound->resolved);
    bound->is_resolved = bound->resolved;
}

tt_status tt_comm_bind(tuttiComm_t comm, struct tt_cached *cached, size_t count, size_t element,
                       struct tt_binding *out, const struct tt_step_table **resolved)
{
    const struct tt_program *program = cached->loaded->program;
    const size_t nbytes = count * element;
    const struct tt_limits limits = binding_limits(
        comm, cached, nbytes, program->splits ? nbytes : nbytes * (size_t)program->nblocks);
    int i = 0;
    while (i < TT_BINDINGS_KEPT &&
           (cached->bound[i].binding.count != count || cached->bound[i].binding.element != element))
        i++;
    if (i == TT_BINDINGS_KEPT) {
        TT_TRY(prove_count(comm, cached, count));
        i = cached->oldest;
        TT_TRY(tt_program_bind(program, count, element, &limits, &cached->bound[i].binding));
        cached->bound[i].is_resolved = false;
        cached->oldest = (i + 1) % TT_BINDINGS_KEPT;
    }
    struct tt_bound *bound = &cached->bound[i];
    resolve(comm, cached, bound);
    *out = bound->binding;
    *resolved = bound->is_resolved ? bound->resolved : NULL;
    return TT_OK;
}

tt_status tt_comm_select(tuttiComm_t comm, const struct tt_selection *of, struct tt_cached **out)
{
    const struct tt_algorithm *algorithm = choose(comm, of);
    struct tt_cached *cached = take_out(comm, algorithm, of->root, of->carrier->programs);
    if (!cached) TT_TRY(make(comm, algorithm, of->root, of->carrier, &cached));
    cached->next = comm->cache;
    comm->cache = cached;
    *out = cached;
    return TT_OK;
}

void tt_comm_forget_programs(tuttiComm_t comm)
{
    while (comm->cache) {
        struct tt_cached *next = comm->cache->next;
        forget(comm, comm->cache);
        comm->cache = next;
    }
}

/* ---- The user's say ------------------------------------------------------------------------- */

static tt_status check_collective(tuttiCollective_t collective)
{
    if ((int)collective >= 0 && collective < tuttiNumCollectives) return TT_OK;
    return tt_fail(TT_ERR_ARGUMENT, "collective %d is none of 0 to %d", (int)collective,
                   tuttiNumCollectives - 1);
}

static tt_status set_algorithm(tuttiComm_t comm, tuttiCollective_t collective, const char *name)
{
    TT_TRY(check_collective(collective));
    const enum tt_collective kind = (enum tt_collective)collective;
    const struct tt_algorithm *algorithm = name ? tt_algorithm_find(kind, name) : NULL;
    if (name && !algorithm) {
        char names[512];
        tt_algorithm_names(kind, names, sizeof names);
        return tt_fail(TT_ERR_ARGUMENT, "%s has no algorithm '%s': there are %s",
                       tt_collective_name(kind), name, names);
    }
    const struct tt_shape shape = shape_of(comm, &tt_carrier_host, kind, 0);
    const char *refusal = algorithm ? tt_refusal(algorithm, &shape) : NULL;
    if (refusal) return tt_fail(TT_ERR_USAGE, "%s:%s %s", tt_collective_name(kind), name, refusal);
    if (algorithm) TT_TRY(check_meetings(comm, &tt_carrier_host, algorithm));
    TT_TRY(tt_comm_check_order(algorithm, comm->setting.in_rank_order));
    comm->forced[kind] = algorithm;
    for (int i = 0; i < TT_NPROGRAM_KINDS; i++) comm->memos[i][kind].cached = NULL;
    return TT_OK;
}

tuttiResult_t tuttiCommSetAlgorithm(tuttiComm_t comm, tuttiCollective_t collective,
                                    const char *name)
{
    TT_CANCELS_WAIT;
    tt_status status = tt_comm_enter_to_ask(comm);
    if (status) return tt_result(__func__, status);
    status = set_algorithm(comm, collective, name);
    tt_core_leave_call(&comm->core);
    return tt_result(__func__, status);
}

tuttiResult_t tuttiCommGetAlgorithm(tuttiComm_t comm, tuttiCollective_t collective, size_t nbytes,
                                    const char **algorithm)
{
    TT_CANCELS_WAIT;
    tt_status status = check_collective(collective);
    if (!status && !algorithm)
        status = tt_fail(TT_ERR_ARGUMENT, "tuttiCommGetAlgorithm: algorithm is NULL");
    if (!status) status = tt_comm_enter_to_ask(comm);
    if (status) return tt_result(__func__, status);
    const struct tt_selection of = {.collective = (enum tt_collective)collective,
                                    .nbytes = nbytes,
                                    .carrier = tt_carrier_of_gpu(&comm->core)};
    *algorithm = choose(comm, &of)->name;
    tt_core_leave_call(&comm->core);
    return tuttiSuccess;
}
