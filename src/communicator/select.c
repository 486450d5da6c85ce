/* Which algorithm a call runs, and its program, kept for the next time. */
#include <stdlib.h>

#include "communicator/communicator.h"
#include "program/lower.h"

static int bucket_of(size_t nbytes)
{
    return nbytes <= 1                                      ? 0
           : 64 - __builtin_clzll(nbytes - 1) < TT_NBUCKETS ? 64 - __builtin_clzll(nbytes - 1)
                                                            : TT_NBUCKETS - 1;
}

static struct tt_shape shape_of(const struct tuttiComm *comm, enum tt_collective collective,
                                int root)
{
    return (struct tt_shape){.collective = collective,
                             .nranks = comm->nranks,
                             .root = root,
                             .hosts = comm->fabric->hosts};
}

static const struct tt_algorithm *choose(const struct tuttiComm *comm, const struct tt_shape *shape,
                                         int bucket)
{
    const struct tt_algorithm *forced = comm->forced[shape->collective];
    return forced ? forced : tt_choose(shape, &comm->setting, (size_t)1 << bucket);
}

static tt_status load(tuttiComm_t comm, const struct tt_algorithm *algorithm,
                      const struct tt_shape *shape, struct tt_loaded **loaded)
{
    struct tt_schedule *schedule;
    struct tt_program *program;
    TT_TRY(tt_schedule_create(algorithm, shape, comm->rank, &schedule));
    const tt_status status = tt_program_lower(schedule, &program);
    tt_schedule_destroy(schedule);
    if (status) return status;
    return tt_loaded_create(program, comm->fabric, loaded);
}

/* The cached program of the algorithm for the shape, made if need be. */
static tt_status find_or_make(tuttiComm_t comm, const struct tt_algorithm *algorithm,
                              const struct tt_shape *shape, struct tt_cached **found)
{
    for (struct tt_cached *c = comm->cache; c; c = c->next)
        if (c->algorithm == algorithm && c->loaded->program->root == shape->root) {
            *found = c;
            return TT_OK;
        }
    struct tt_cached *cached = calloc(1, sizeof *cached);
    if (!cached) return tt_fail(TT_ERR_SYSTEM, "out of memory for a program");
    const tt_status status = load(comm, algorithm, shape, &cached->loaded);
    if (status) {
        free(cached);
        return status;
    }
    cached->algorithm = algorithm;
    cached->next = comm->cache;
    comm->cache = cached;
    *found = cached;
    return TT_OK;
}

tt_status tt_comm_bind(tuttiComm_t comm, struct tt_cached *cached, size_t count, size_t element,
                       struct tt_binding *out)
{
    const struct tt_segment_header *header = comm->fabric->segment->header;
    const struct tt_room room = {.slot_bytes = header->slot_bytes,
                                 .meet_bytes = header->meet_bytes,
                                 .slot_setting = comm->fabric->peers[comm->rank].slot_bytes};
    int i = 0;
    while (i < TT_BINDINGS_KEPT &&
           (cached->bindings[i].count != count || cached->bindings[i].element != element))
        i++;
    if (i == TT_BINDINGS_KEPT) {
        i = cached->oldest;
        TT_TRY(
            tt_program_bind(cached->loaded->program, count, element, &room, &cached->bindings[i]));
        cached->oldest = (i + 1) % TT_BINDINGS_KEPT;
    }
    *out = cached->bindings[i];
    return TT_OK;
}

tt_status tt_comm_select(tuttiComm_t comm, enum tt_collective collective, int root, size_t nbytes,
                         struct tt_cached **out)
{
    const int bucket = bucket_of(nbytes);
    struct tt_cached **place = &comm->chosen[collective][bucket];
    if (!*place || (*place)->loaded->program->root != root) {
        const struct tt_shape shape = shape_of(comm, collective, root);
        TT_TRY(find_or_make(comm, choose(comm, &shape, bucket), &shape, place));
    }
    *out = *place;
    return TT_OK;
}

static tt_status check_collective(tuttiCollective_t collective)
{
    if ((int)collective >= 0 && collective < tuttiNumCollectives) return TT_OK;
    return tt_fail(TT_ERR_ARGUMENT, "collective %d is none of 0 to %d", (int)collective,
                   tuttiNumCollectives - 1);
}

tuttiResult_t tuttiCommSetAlgorithm(tuttiComm_t comm, tuttiCollective_t collective,
                                    const char *name)
{
    tt_status status = tt_comm_check_handle(comm);
    if (!status) status = check_collective(collective);
    if (status) return tt_result(__func__, status);
    const enum tt_collective kind = (enum tt_collective)collective;
    const struct tt_algorithm *algorithm = name ? tt_algorithm_find(kind, name) : NULL;
    if (name && !algorithm) {
        char names[512];
        tt_algorithm_names(kind, names, sizeof names);
        return tt_result(__func__,
                         tt_fail(TT_ERR_ARGUMENT, "%s has no algorithm '%s': there are %s",
                                 tt_collective_name(kind), name, names));
    }
    const struct tt_shape shape = shape_of(comm, kind, 0);
    const char *refusal = algorithm ? tt_refusal(algorithm, &shape) : NULL;
    if (refusal)
        return tt_result(
            __func__, tt_fail(TT_ERR_USAGE, "%s:%s %s", tt_collective_name(kind), name, refusal));
    comm->forced[kind] = algorithm;
    for (int b = 0; b < TT_NBUCKETS; b++) comm->chosen[kind][b] = NULL;
    comm->memos[kind].cached = NULL;
    return tuttiSuccess;
}

tuttiResult_t tuttiCommGetAlgorithm(tuttiComm_t comm, tuttiCollective_t collective, size_t nbytes,
                                    const char **algorithm)
{
    tt_status status = tt_comm_check_handle(comm);
    if (!status) status = check_collective(collective);
    if (!status && !algorithm)
        status = tt_fail(TT_ERR_ARGUMENT, "tuttiCommGetAlgorithm: algorithm is NULL");
    if (status) return tt_result(__func__, status);
    const struct tt_shape shape = shape_of(comm, (enum tt_collective)collective, 0);
    *algorithm = choose(comm, &shape, bucket_of(nbytes))->name;
    return tuttiSuccess;
}
