/* Slices, replicas, units and initial values: every element of a tensor is held where the layout
 * says, by as many ranks, with the value that one rank alone gives it. */
#include <stdlib.h>
#include <string.h>

#include "../../trainer/mesh.h"
#include "../../trainer/param.h"
#include "../shim.h"
#include "param_get.h"

static const struct {
    const char *name;
    long rows, cols;
    struct tr_layout layout;
} tensors[] = {
    {"rows", 12, 5, {0, 1, 12}},    {"odd.rows", 257, 3, {0, 1, 257}},
    {"heads", 24, 7, {0, 6, 4}},    {"one.head", 6, 7, {0, 6, 1}},
    {"cols", 5, 24, {1, 6, 4}},     {"odd.cols", 3, 13, {1, 1, 13}},
    {"two.heads", 8, 3, {0, 4, 2}}, {"whole", 9, 4, {-1, 0, 0}},
    {"vector", 11, 0, {-1, 0, 0}},  {"cut.vector", 12, 0, {0, 3, 4}},
};
enum { NTENSORS = sizeof tensors / sizeof tensors[0], SEED = 7 };

static void registry(struct tr_params *params, int tp, int rank, int shards)
{
    tr_params_init(params, tr_backend_choose(""), tp, rank, shards);
    CHECK_EQ(0, tr_params_begin_unit(params, "unit"));
    for (int t = 0; t < NTENSORS; ++t)
        CHECK_EQ(t, tr_param_add(params, tensors[t].name, tensors[t].rows, tensors[t].cols,
                                 tensors[t].layout, 0.5f, 1));
    tr_params_place(params);
}

/* The whole tensors as one rank has them. */
static void whole_values(float *whole[NTENSORS])
{
    struct tr_params params;
    registry(&params, 1, 0, 1);
    float *unit = calloc(params.units[0].total, sizeof *unit);
    tr_params_initialize(&params, 0, unit, 0, params.units[0].total, SEED);
    for (int t = 0; t < NTENSORS; ++t) {
        whole[t] = calloc(params.items[t].count, sizeof **whole);
        param_get(&params, &params.items[t], whole[t], unit, 0, params.units[0].total);
    }
    free(unit);
    tr_params_fini(&params);
}

TEST(layout, every_element_is_held_by_as_many_ranks_as_there_are_replicas)
{
    float *whole[NTENSORS];
    whole_values(whole);
    for (int tp = 1; tp <= 8; tp *= 2)
        for (int shards = 1; shards <= 3; ++shards) {
            long *holders[NTENSORS];
            for (int t = 0; t < NTENSORS; ++t)
                holders[t] = calloc((size_t)(tensors[t].rows * 24), sizeof(long));
            for (int rank = 0; rank < tp; ++rank) {
                struct tr_params params;
                registry(&params, tp, rank, shards);
                const size_t count = params.units[0].total / (size_t)shards;
                CHECK_EQ(0, (long)(count % TR_BLOCK));
                for (int shard = 0; shard < shards; ++shard) {
                    float *range = calloc(count, sizeof *range);
                    const size_t first = (size_t)shard * count;
                    tr_params_initialize(&params, 0, range, first, count, SEED);
                    for (int t = 0; t < NTENSORS; ++t) {
                        const struct tr_param *param = &params.items[t];
                        float *mine = malloc(param->count * sizeof *mine);
                        memset(mine, 0xff, param->count * sizeof *mine);
                        param_get(&params, param, mine, range, first, count);
                        for (size_t i = 0; i < param->count; ++i)
                            if (mine[i] == mine[i]) { /* no NaN: this rank holds it */
                                if (mine[i] != whole[t][i]) CHECK_EQ((int)i, -1);
                                holders[t][i]++;
                            }
                        free(mine);
                    }
                    free(range);
                }
                if (rank == tp - 1)
                    for (int t = 0; t < NTENSORS; ++t) {
                        const struct tr_param *param = &params.items[t];
                        const int replicas =
                            tr_layout_replicas(&param->layout, param->shape, tp, 0).count;
                        for (size_t i = 0; i < param->count; ++i)
                            if (holders[t][i] != replicas) CHECK_EQ((int)holders[t][i], replicas);
                    }
                tr_params_fini(&params);
            }
            for (int t = 0; t < NTENSORS; ++t) free(holders[t]);
        }
    for (int t = 0; t < NTENSORS; ++t) free(whole[t]);
}

TEST(layout, put_is_the_reverse_of_get)
{
    float *whole[NTENSORS];
    whole_values(whole);
    for (int rank = 0; rank < 4; ++rank) {
        struct tr_params params;
        registry(&params, 4, rank, 2);
        const size_t total = params.units[0].total, half = total / 2;
        float *given = calloc(total, sizeof *given), *got = calloc(total, sizeof *got);
        tr_params_initialize(&params, 0, given, 0, total, SEED);
        for (int t = 0; t < NTENSORS; ++t) {
            const size_t count = params.items[t].count, cut = count / 3;
            const struct tr_excerpt pieces[] = {{whole[t], 0, cut},
                                                {whole[t] + cut, cut, count - cut}};
            for (int piece = 0; piece < 2; ++piece) {
                tr_param_put(&params, &params.items[t], &pieces[piece], got, 0, half);
                tr_param_put(&params, &params.items[t], &pieces[piece], got + half, half, half);
            }
        }
        CHECK_EQ(0, memcmp(given, got, total * sizeof *got));
        free(given);
        free(got);
        tr_params_fini(&params);
    }
    for (int t = 0; t < NTENSORS; ++t) free(whole[t]);
}

TEST(layout, sections_are_told_by_who_holds_equal_slices)
{
    struct tr_params params;
    registry(&params, 4, 1, 1);
    CHECK_EQ(TR_CUT, params.items[0].section);
    CHECK_EQ(TR_CUT, params.items[1].section);
    CHECK_EQ(TR_CUT, params.items[2].section);
    CHECK_EQ(TR_REPLICATED, params.items[3].section); /* one head on four ranks */
    CHECK_EQ(TR_SHARED, params.items[6].section);     /* two heads on four ranks */
    CHECK_EQ(TR_REPLICATED, params.items[7].section);
    const struct tr_replicas shared =
        tr_layout_replicas(&params.items[6].layout, params.items[6].shape, 4, 3);
    CHECK_EQ(2, shared.first);
    CHECK_EQ(2, shared.count);
    tr_params_fini(&params);
}

TEST(layout, coordinates_and_ranks_are_the_reverse_of_each_other)
{
    const int size[TR_NUM_AXES] = {2, 3, 1, 2, 2, 2};
    for (int rank = 0; rank < 48; ++rank) {
        int coord[TR_NUM_AXES];
        tr_mesh_coords(size, rank, coord);
        CHECK_EQ(rank, tr_mesh_rank_at(size, coord));
        CHECK_EQ(rank % 2, coord[TR_TP]);
    }
    CHECK_EQ(4, tr_mesh_extent(size, TR_AXES_SEQUENCE));
}
