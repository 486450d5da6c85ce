/* Opens the communicator of the mesh, and checks that all ranks agree. */
#include "mesh.h"

#include <stdio.h>

tr_status tr_mesh_check(const struct tr_mesh *mesh, tuttiResult_t result, const char *what)
{
    if (result == tuttiSuccess) return TR_OK;
    const char *story = tuttiGetLastError(mesh->world);
    return tr_fail("%s: %s%s%s", what, tuttiGetErrorString(result), story[0] ? ": " : "", story);
}

tr_status tr_mesh_init(struct tr_mesh *mesh)
{
    *mesh = (struct tr_mesh){.nranks = 1};
    TR_TRY(
        tr_mesh_check(mesh, tuttiCommInitEnv(&mesh->world, NULL, NULL), "joining the other ranks"));
    TR_TRY(tr_mesh_check(mesh, tuttiCommCount(mesh->world, &mesh->nranks), "asking for the ranks"));
    TR_TRY(tr_mesh_check(mesh, tuttiCommUserRank(mesh->world, &mesh->rank), "asking for the rank"));
    for (int axis = 0; axis < TR_NUM_AXES; ++axis) mesh->size[axis] = 1;
    mesh->size[TR_DP] = mesh->nranks;
    int rest = mesh->rank;
    for (int axis = TR_NUM_AXES - 1; axis >= 0; --axis) {
        mesh->coord[axis] = rest % mesh->size[axis];
        rest /= mesh->size[axis];
    }
    return TR_OK;
}

void tr_mesh_fini(struct tr_mesh *mesh)
{
    if (mesh->world) {
        tuttiCommFinalize(mesh->world);
        tuttiCommDestroy(mesh->world);
    }
    *mesh = (struct tr_mesh){0};
}

tr_status tr_mesh_agree(const struct tr_mesh *mesh, tr_status mine)
{
    int32_t first = mine < 0 ? mesh->rank : mesh->nranks;
    const tuttiResult_t result =
        tuttiAllReduce(&first, &first, 1, tuttiInt32, tuttiMin, mesh->world, NULL);
    if (result != tuttiSuccess && mine < 0)
        return mine; /* the cause, rather than what came of it */
    TR_TRY(tr_mesh_check(mesh, result, "agreeing with the other ranks"));
    if (first < mesh->nranks && first != mesh->rank) return TR_ELSEWHERE;
    return mine;
}

tr_status tr_mesh_alike(const struct tr_mesh *mesh, tr_status mine)
{
    return mine < 0 && mesh->rank != 0 ? TR_ELSEWHERE : mine;
}

tr_status tr_mesh_same(const struct tr_mesh *mesh, uint64_t value, const char *what)
{
    uint64_t low = value, high = value;
    TR_TRY(tr_mesh_check(
        mesh, tuttiAllReduce(&low, &low, 1, tuttiUint64, tuttiMin, mesh->world, NULL), what));
    TR_TRY(tr_mesh_check(
        mesh, tuttiAllReduce(&high, &high, 1, tuttiUint64, tuttiMax, mesh->world, NULL), what));
    if (low != high)
        return tr_mesh_alike(mesh, tr_fail("the ranks differ in %s (checksums from %016llx to "
                                           "%016llx, %016llx on rank 0); they must all be the same",
                                           what, (unsigned long long)low, (unsigned long long)high,
                                           (unsigned long long)value));
    return TR_OK;
}
