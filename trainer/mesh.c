/* Opens the communicators of the mesh, and checks that all ranks agree. */
#include "mesh.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *const tr_axis_names[TR_NUM_AXES] = {"pp", "dp", "fsdp", "ring", "ulysses", "tp"};

static tr_status fail(tuttiResult_t result, const char *what, const char *story)
{
    return tr_fail("%s: %s%s%s", what, tuttiGetErrorString(result), story[0] ? ": " : "", story);
}

/* Where "rank N" begins in a text that names a rank of the group, with N; NULL: nowhere. */
static const char *find_rank(const char *text, const struct tr_group *group, int *rank)
{
    static const char name[] = "rank ";
    for (const char *at = text; (at = strstr(at, name)); at += strlen(name)) {
        const char *const number = at + strlen(name);
        if ((at > text && isalnum((unsigned char)at[-1])) || !isdigit((unsigned char)*number))
            continue;
        const long n = strtol(number, NULL, 10);
        if (n >= group->n) continue;
        *rank = (int)n;
        return at;
    }
    return NULL;
}

/* The story with "rank N" of the group as "rank N = rank M of the run". */
static void translate(const struct tr_group *group, const char *story, char *out, size_t nbytes)
{
    size_t n = 0;
    const char *found;
    int rank;
    out[0] = 0;
    while (n < nbytes && (found = find_rank(story, group, &rank))) {
        n += (size_t)snprintf(out + n, nbytes - n, "%.*srank %d = rank %d of the run",
                              (int)(found - story), story, rank, group->ranks[rank]);
        story = found + strcspn(found, "0123456789");
        story += strspn(story, "0123456789");
    }
    if (n < nbytes) snprintf(out + n, nbytes - n, "%s", story);
}

tr_status tr_mesh_check(const struct tr_mesh *mesh, tuttiResult_t result, const char *what)
{
    return result == tuttiSuccess ? TR_OK : fail(result, what, tuttiGetLastError(mesh->world));
}

tr_status tr_group_check(const struct tr_group *group, tuttiResult_t result, const char *what)
{
    if (result == tuttiSuccess) return TR_OK;
    const char *story = tuttiGetLastError(group->comm);
    char translated[2048];
    if (!group->ranks) return fail(result, what, story);
    translate(group, story, translated, sizeof translated);
    return fail(result, what, translated);
}

/* Every group becomes one of this rank alone. */
static void clear_groups(struct tr_mesh *mesh)
{
    for (tr_axes axes = 0; axes < 1u << TR_NUM_AXES; ++axes)
        mesh->groups[axes] = (struct tr_group){.n = 1};
    mesh->share = mesh->tie = (struct tr_group){.n = 1};
}

/* The world, whose settings its splits have: a rank that is late is named, where the user has not
 * said after how long. */
static tr_status join(struct tr_mesh *mesh)
{
    enum { LATE_MS = 5000 };
    tuttiConfig_t config = TUTTI_CONFIG_INITIALIZER;
    int given = 0;
    (void)tuttiIsSettingGiven("TUTTI_LATE_MS", &given);
    if (!given) config.lateMs = LATE_MS;
    return tr_mesh_check(mesh, tuttiCommInitEnv(&mesh->world, NULL, &config),
                         "joining the other ranks");
}

tr_status tr_mesh_init(struct tr_mesh *mesh, tuttiComm_t world)
{
    *mesh = (struct tr_mesh){.world = world, .nranks = 1};
    if (!world) TR_TRY(join(mesh));
    TR_TRY(tr_mesh_check(mesh, tuttiCommCount(mesh->world, &mesh->nranks), "asking for the ranks"));
    TR_TRY(tr_mesh_check(mesh, tuttiCommUserRank(mesh->world, &mesh->rank), "asking for the rank"));
    clear_groups(mesh);
    const int size[TR_NUM_AXES] = {1, mesh->nranks, 1, 1, 1, 1};
    return tr_mesh_shape(mesh, size);
}

static struct tr_tally *tally_of(const struct tr_mesh *mesh, const struct tr_group *group)
{
    const ptrdiff_t sets = 1 << TR_NUM_AXES;
    return mesh->tallies + (group == &mesh->share ? sets
                            : group == &mesh->tie ? sets + 1
                                                  : group - mesh->groups);
}

/* Whether the product of the sizes is nranks; by division, which cannot overflow. */
static bool multiply_up(const int size[TR_NUM_AXES], int nranks)
{
    for (int axis = 0; axis < TR_NUM_AXES; ++axis) {
        if (size[axis] < 1 || nranks % size[axis]) return false;
        nranks /= size[axis];
    }
    return nranks == 1;
}

void tr_mesh_write_axes(const struct tr_mesh *mesh, char text[TR_AXES_TEXT])
{
    size_t n = 0;
    text[0] = 0;
    for (int axis = 0; axis < TR_NUM_AXES; ++axis)
        if (mesh->size[axis] > 1)
            n += (size_t)snprintf(text + n, TR_AXES_TEXT - n, " %s %s %d", n ? "x" : "=",
                                  tr_axis_names[axis], mesh->size[axis]);
}

tr_status tr_mesh_shape(struct tr_mesh *mesh, const int size[TR_NUM_AXES])
{
    if (!multiply_up(size, mesh->nranks))
        return tr_fail("pp %d x dp %d x fsdp %d x ring %d x ulysses %d x tp %d must multiply up to "
                       "the %d ranks that there are",
                       size[TR_PP], size[TR_DP], size[TR_FSDP], size[TR_RING], size[TR_ULYSSES],
                       size[TR_TP], mesh->nranks);
    for (int axis = 0; axis < TR_NUM_AXES; ++axis) mesh->size[axis] = size[axis];
    tr_mesh_coords(size, mesh->rank, mesh->coord);
    return TR_OK;
}

tr_status tr_mesh_dry(struct tr_mesh *mesh, const int size[TR_NUM_AXES], int rank)
{
    *mesh = (struct tr_mesh){.rank = rank, .nranks = tr_mesh_extent(size, TR_AXES_ALL)};
    mesh->tallies = calloc((1 << TR_NUM_AXES) + 2, sizeof *mesh->tallies);
    if (!mesh->tallies) return tr_fail("out of memory for the groups of a mesh");
    clear_groups(mesh);
    return tr_mesh_shape(mesh, size);
}

void tr_mesh_coords(const int size[TR_NUM_AXES], int rank, int coord[TR_NUM_AXES])
{
    for (int axis = TR_NUM_AXES - 1; axis >= 0; --axis) {
        coord[axis] = rank % size[axis];
        rank /= size[axis];
    }
}

int tr_mesh_rank_at(const int size[TR_NUM_AXES], const int coord[TR_NUM_AXES])
{
    int rank = 0;
    for (int axis = 0; axis < TR_NUM_AXES; ++axis) rank = rank * size[axis] + coord[axis];
    return rank;
}

int tr_mesh_extent(const int size[TR_NUM_AXES], tr_axes axes)
{
    int extent = 1;
    for (int axis = 0; axis < TR_NUM_AXES; ++axis)
        if (axes >> axis & 1) extent *= size[axis];
    return extent;
}

/* Tells the group's ranks apart from the mesh's, for errors. */
static tr_status number_ranks(struct tr_mesh *mesh, struct tr_group *group)
{
    if (group->n == mesh->nranks) return TR_OK; /* in the same order */
    group->ranks = calloc((size_t)group->n, sizeof *group->ranks);
    if (!group->ranks) return tr_fail("out of memory for the numbers of %d ranks", group->n);
    return tr_group_check(
        group, tuttiAllGather(&mesh->rank, group->ranks, 1, tuttiInt32, group->comm, NULL),
        "numbering the ranks of a communicator");
}

/* The ranks of one color, in the order of the mesh; the ranks of TUTTI_SPLIT_NOCOLOR get one rank,
 * themselves. */
static tr_status make_group(struct tr_mesh *mesh, int color, struct tr_group *group)
{
    static const char what[] = "making a communicator of the mesh";
    tuttiConfig_t config = TUTTI_CONFIG_INITIALIZER;
    if (mesh->deterministic) config.deterministic = 1;
    if (mesh->nthreads) config.computeThreads = mesh->nthreads;
    TR_TRY(tr_mesh_check(
        mesh, tuttiCommSplit(mesh->world, color, mesh->rank, &group->comm, &config), what));
    if (color == TUTTI_SPLIT_NOCOLOR) return TR_OK;
    TR_TRY(tr_group_check(group, tuttiCommCount(group->comm, &group->n), what));
    TR_TRY(tr_group_check(group, tuttiCommUserRank(group->comm, &group->rank), what));
    TR_TRY(tr_group_check(group, tuttiStreamCreate(&group->stream), what));
    return number_ranks(mesh, group);
}

/* A group of a dry mesh. */
static void count_group(const struct tr_mesh *mesh, int n, int rank, struct tr_group *group)
{
    if (n > 1) *group = (struct tr_group){.tally = tally_of(mesh, group), .n = n, .rank = rank};
}

/* This rank's place among those along the set. */
static int place_of(const struct tr_mesh *mesh, tr_axes axes)
{
    int place = 0;
    for (int axis = 0; axis < TR_NUM_AXES; ++axis)
        if (axes >> axis & 1) place = place * mesh->size[axis] + mesh->coord[axis];
    return place;
}

/* Ranks with equal coordinates on the axes outside of the set have one color. */
static int color_of(const struct tr_mesh *mesh, tr_axes axes)
{
    return place_of(mesh, TR_AXES_ALL & ~axes);
}

/* Without the axes of one rank: sets that differ only in those are one group. */
static tr_axes essence(const struct tr_mesh *mesh, tr_axes axes)
{
    if (mesh->tallies) return axes;
    for (int axis = 0; axis < TR_NUM_AXES; ++axis)
        if (mesh->size[axis] == 1) axes &= ~(1u << axis);
    return axes;
}

const struct tr_group *tr_mesh_group(const struct tr_mesh *mesh, tr_axes axes)
{
    return &mesh->groups[essence(mesh, axes)];
}

static tr_status connect_axes(struct tr_mesh *mesh, tr_axes axes)
{
    axes = essence(mesh, axes);
    if (!axes || mesh->groups[axes].comm) return TR_OK;
    if (mesh->tallies) {
        count_group(mesh, tr_mesh_extent(mesh->size, axes), place_of(mesh, axes),
                    &mesh->groups[axes]);
        return TR_OK;
    }
    return make_group(mesh, color_of(mesh, axes), &mesh->groups[axes]);
}

tr_status tr_mesh_connect(struct tr_mesh *mesh, const tr_axes *sets, int nsets, int share,
                          bool deterministic)
{
    mesh->deterministic = deterministic;
    TR_TRY(connect_axes(mesh, TR_AXES_ALL));
    for (int axis = 0; axis < TR_NUM_AXES; ++axis) TR_TRY(connect_axes(mesh, 1u << axis));
    for (int set = 0; set < nsets; ++set) TR_TRY(connect_axes(mesh, sets[set]));
    if (share > 1) {
        const int parts = mesh->size[TR_TP] / share;
        if (mesh->tallies)
            count_group(mesh, share, mesh->coord[TR_TP] % share, &mesh->share);
        else
            TR_TRY(make_group(mesh,
                              color_of(mesh, 1u << TR_TP) * parts + mesh->coord[TR_TP] / share,
                              &mesh->share));
    }
    const int last = mesh->size[TR_PP] - 1, stage = mesh->coord[TR_PP];
    const bool end = stage == 0 || stage == last;
    if (last == 0) return TR_OK;
    if (mesh->tallies) {
        count_group(mesh, end ? 2 : 1, stage == last, &mesh->tie);
        return TR_OK;
    }
    return make_group(mesh, end ? color_of(mesh, 1u << TR_PP) : TUTTI_SPLIT_NOCOLOR, &mesh->tie);
}

static void end_group(struct tr_group *group)
{
    if (group->stream) tuttiStreamDestroy(group->stream);
    if (group->comm) {
        tuttiCommFinalize(group->comm);
        tuttiCommDestroy(group->comm);
    }
    free(group->ranks);
    *group = (struct tr_group){.n = 1};
}

void tr_mesh_fini(struct tr_mesh *mesh)
{
    free(mesh->tallies);
    if (!mesh->world) {
        *mesh = (struct tr_mesh){0};
        return;
    }
    for (tr_axes axes = 0; axes < 1u << TR_NUM_AXES; ++axes) end_group(&mesh->groups[axes]);
    end_group(&mesh->share);
    end_group(&mesh->tie);
    tuttiCommFinalize(mesh->world);
    tuttiCommDestroy(mesh->world);
    *mesh = (struct tr_mesh){0};
}

static void abort_group(struct tr_group *group)
{
    if (group->comm) tuttiCommAbort(group->comm);
    group->comm = NULL;
    end_group(group);
}

void tr_mesh_abort(struct tr_mesh *mesh)
{
    if (!mesh->world) return;
    for (tr_axes axes = 0; axes < 1u << TR_NUM_AXES; ++axes) abort_group(&mesh->groups[axes]);
    abort_group(&mesh->share);
    abort_group(&mesh->tie);
    tuttiCommAbort(mesh->world);
    *mesh = (struct tr_mesh){0};
}

tr_status tr_mesh_agree(const struct tr_mesh *mesh, tr_status mine)
{
    int32_t first = mine < 0 ? mesh->rank : mesh->nranks;
    if (mesh->tallies) return mine;
    const tuttiResult_t result =
        tuttiAllReduce(&first, &first, 1, tuttiInt32, tuttiMin, mesh->world, NULL);
    if (result != tuttiSuccess && mine < 0)
        return mine; /* the cause, rather than what came of it */
    TR_TRY(tr_mesh_check(mesh, result, "agreeing with the other ranks"));
    if (first == mesh->nranks) return TR_OK;
    return first == mesh->rank ? TR_AGREED : TR_ELSEWHERE;
}

tr_status tr_mesh_alike(const struct tr_mesh *mesh, tr_status mine)
{
    if (mine == TR_OK) return TR_OK;
    return mesh->rank == 0 ? TR_AGREED : TR_ELSEWHERE;
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
