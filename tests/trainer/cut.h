/* Ranks as threads whose mesh cuts sequences and the vocabulary: what a tr_parallel needs. */
#ifndef TT_TESTS_TRAINER_CUT_H
#define TT_TESTS_TRAINER_CUT_H

#include "../../trainer/memory.h"
#include "../../trainer/parallel/parallel.h"
#include "../shim.h"
#include "floats.h"
#include "ranks.h"

struct cut {
    int ring, ulysses, tp;
};

struct place {
    struct tr_mesh mesh;
    struct tr_sequence sequence;
    struct tr_parallel parallel;
    size_t counts[4 * MOST_RANKS];
};

/* Called by a rank, in its thread, with a place that stays where it is. tr_mesh_fini ends it. */
static inline bool settle(struct place *place, struct rank *self, const struct cut *cut)
{
    const int size[TR_NUM_AXES] = {1, 1, 1, cut->ring, cut->ulysses, cut->tp};
    tr_process_tune();
    if (tr_mesh_init(&place->mesh, self->world) < 0 || tr_mesh_shape(&place->mesh, size) < 0 ||
        tr_mesh_connect(&place->mesh, NULL, 0, 1, false) < 0) {
        tt_test_fail(__FILE__, __LINE__, "%s", tr_error());
        return false;
    }
    const struct tr_mesh *mesh = &place->mesh;
    place->parallel = (struct tr_parallel){.backend = tr_backend_choose(""),
                                           .tp = tr_mesh_group(mesh, 1u << TR_TP),
                                           .ring = tr_mesh_group(mesh, 1u << TR_RING),
                                           .ulysses = tr_mesh_group(mesh, 1u << TR_ULYSSES),
                                           .sequence = &place->sequence,
                                           .counts = place->counts};
    return true;
}

static inline void run_cut(const struct cut *cut, void (*body)(struct rank *))
{
    CHECK(run_ranks(cut->ring * cut->ulysses * cut->tp, body, cut));
}

/* Rank 1 leaves the group instead of calling; the others must fail with this text. */
static inline void abort_group(struct place *place, enum tr_axis axis)
{
    struct tr_group *group = &place->mesh.groups[1u << axis];
    CHECK_EQ(tuttiCommAbort(group->comm), tuttiSuccess);
    group->comm = NULL;
}

static inline void check_failed(tr_status status, const char *what)
{
    CHECK_EQ(status, TR_FAILED);
    CHECK_MESSAGE(__builtin_strstr(tr_error(), what) == tr_error(), "\"%s\" does not begin with %s",
                  tr_error(), what);
}

#endif
