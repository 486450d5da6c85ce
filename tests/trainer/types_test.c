/* Storage types of tensors: what a step sends and remembers when weights, activations or gradients
 * have two bytes an element instead of four, in rehearsals, which compute nothing. */
#include <stdio.h>
#include <string.h>

#include "engine.h"
#include "ranks.h"
#include "rehearse.h"
#include "shim.h"

struct layout {
    int size[TR_NUM_AXES]; /* pp dp fsdp ring ulysses tp */
    enum tr_sharding sharding;
    enum tr_model_kind kind;
    bool tied;
    enum tr_optimizer_kind optimizer;
};

static const struct layout layouts[] = {
    {{1, 2, 1, 1, 1, 1}, TR_DDP, TR_GPT2, true, TR_ADAMW},
    {{1, 2, 1, 1, 1, 1}, TR_ZERO1, TR_LLAMA, false, TR_ADAMW},
    {{1, 2, 1, 1, 1, 1}, TR_ZERO2, TR_GPT2, true, TR_MUON},
    {{1, 1, 2, 1, 1, 1}, TR_ZERO3, TR_GPT2, false, TR_ADAMW},
    {{1, 2, 2, 1, 1, 1}, TR_ZERO3, TR_LLAMA, true, TR_MUON},
    {{1, 1, 1, 1, 1, 2}, TR_DDP, TR_GPT2, true, TR_ADAMW},
    {{1, 1, 1, 1, 1, 4}, TR_DDP, TR_LLAMA, false, TR_MUON},
    {{2, 1, 1, 1, 1, 1}, TR_DDP, TR_GPT2, true, TR_ADAMW},
    {{2, 1, 2, 1, 1, 2}, TR_ZERO3, TR_LLAMA, true, TR_ADAMW},
    {{1, 1, 1, 3, 1, 1}, TR_DDP, TR_GPT2, true, TR_ADAMW},
    {{1, 1, 1, 1, 3, 1}, TR_ZERO1, TR_LLAMA, false, TR_ADAMW},
    {{1, 1, 1, 2, 2, 1}, TR_ZERO2, TR_LLAMA, true, TR_ADAMW},
};
enum { NLAYOUTS = sizeof layouts / sizeof layouts[0], BATCH = 8, CONTEXT = 48 };

static struct tr_engine_options options_of(const struct layout *l, const struct tr_types *types)
{
    return (struct tr_engine_options){.model = {.kind = l->kind,
                                                .layers = 3,
                                                .heads = 4,
                                                .kv_heads = l->kind == TR_LLAMA ? 2 : 4,
                                                .width = 48,
                                                .hidden = 100,
                                                .vocabulary = 257,
                                                .context = CONTEXT,
                                                .tied = l->tied},
                                      .types = *types,
                                      .sharding = l->sharding,
                                      .optimizer = {.kind = l->optimizer, .momentum = 0.9},
                                      .schedule = TR_1F1B,
                                      .zigzag = true,
                                      .batch = BATCH,
                                      .micro_batch = 2,
                                      .bucket_bytes = SIZE_MAX,
                                      .seed = 1};
}

static bool rehearse(const struct layout *l, int rank, const struct tr_types *types,
                     struct tr_rehearsal *r)
{
    const struct tr_engine_options options = options_of(l, types);
    const tr_status status = tr_rehearse(l->size, &options, rank, r);
    CHECK_MESSAGE(status == TR_OK, "%s", tr_error());
    return status == TR_OK;
}

static int ranks_of(const struct layout *l)
{
    int n = 1;
    for (int axis = 0; axis < TR_NUM_AXES; ++axis) n *= l->size[axis];
    return n;
}

/* Which tensors have two bytes an element. */
enum which { WEIGHTS, ACTIVATIONS, GRADIENTS, NWHICH };
static const char *const names[NWHICH] = {"weights", "activations", "gradients"};

static struct tr_types types_of(enum which which)
{
    return (struct tr_types){.weights = which == WEIGHTS ? TR_BF16 : TR_FP32,
                             .activations = which == ACTIVATIONS ? TR_BF16 : TR_FP32,
                             .gradients = which == GRADIENTS ? TR_BF16 : TR_FP32};
}

/* What the messages of a kind among these ranks consist of. */
static bool moves(enum which which, enum tr_partners with, enum tr_traffic_kind kind)
{
    const bool point_to_point = kind == TR_SEND || kind == TR_RECEIVE;
    switch (with) {
    case TR_WITH_SHARDS:
        return which == (kind == TR_ALL_GATHER ? WEIGHTS : GRADIENTS);
    case TR_WITH_REPLICAS:
    case TR_WITH_SHARE:
    case TR_WITH_TIE:
        return which == GRADIENTS;
    case TR_WITH_STAGE:
        return which == GRADIENTS && point_to_point;
    case TR_WITH_TP:
        return which == (kind == TR_ALL_REDUCE ? GRADIENTS : ACTIVATIONS);
    case TR_WITH_PP:
    case TR_WITH_RING:
    case TR_WITH_ULYSSES:
        return which == ACTIVATIONS;
    case TR_WITH_ALL:
    case TR_NUM_PARTNERS:
        break;
    }
    return false;
}

/* The statistics of cross-entropy over a cut vocabulary: three floats a row, among the all-reduces
 * over tp, on the last stage. */
static uint64_t statistics(const struct layout *l, int rank, enum tr_partners with,
                           enum tr_traffic_kind kind)
{
    const int *size = l->size, last = ranks_of(l) / size[TR_PP] * (size[TR_PP] - 1);
    if (with != TR_WITH_TP || kind != TR_ALL_REDUCE || size[TR_TP] == 1 || rank < last) return 0;
    const int parts = size[TR_DP] * size[TR_FSDP] * size[TR_RING] * size[TR_ULYSSES];
    return (uint64_t)(BATCH * CONTEXT / parts) * 3 * sizeof(float);
}

static void compare_traffic(const struct layout *l, int rank, enum which which,
                            const struct tr_rehearsal *four, const struct tr_rehearsal *two)
{
    for (int with = 0; with < TR_NUM_PARTNERS; ++with)
        for (int kind = 0; kind < TR_NUM_TRAFFIC; ++kind) {
            const struct tr_traffic *a = &four->step[with].traffic[kind],
                                    *b = &two->step[with].traffic[kind];
            const uint64_t kept =
                statistics(l, rank, (enum tr_partners)with, (enum tr_traffic_kind)kind);
            const bool halves = moves(which, (enum tr_partners)with, (enum tr_traffic_kind)kind);
            CHECK_MESSAGE(a->calls == b->calls &&
                              b->bytes == (halves ? (a->bytes - kept) / 2 + kept : a->bytes),
                          "layout %d, rank %d, %s: partners %d, kind %d: %llu calls of %llu bytes, "
                          "%llu of %llu before",
                          (int)(l - layouts), rank, names[which], with, kind,
                          (unsigned long long)b->calls, (unsigned long long)b->bytes,
                          (unsigned long long)a->calls, (unsigned long long)a->bytes);
        }
}

/* Masters are kept of the weights that this rank's optimizer changes: of its shards. */
static uint64_t masters_of(const struct layout *l, const struct tr_memory *m)
{
    const bool whole = l->sharding == TR_ZERO1 || l->sharding == TR_ZERO2 ||
                       (l->sharding == TR_ZERO3 && l->size[TR_PP] > 1);
    const int *size = l->size, along = l->sharding == TR_ZERO3 ? size[TR_FSDP] : size[TR_DP];
    return whole ? m->weights / (uint64_t)(along * size[TR_RING] * size[TR_ULYSSES]) : m->weights;
}

static void compare_memory(const struct layout *l, int rank, enum which which,
                           const struct tr_memory *four, const struct tr_memory *two)
{
    const bool w = which == WEIGHTS, g = which == GRADIENTS;
    struct tr_memory x = *four;
    if (w) {
        x.weights /= 2;
        x.gathered /= 2;
        x.optimizer += masters_of(l, four);
    }
    if (g) x.gradients /= 2;
    /* Of Muon's memory the matrix at hand is of gradients, and the staging room is as large as the
     * rule's scratch. */
    const bool part = g && l->optimizer == TR_MUON;
    const bool optimizer = part ? two->optimizer <= x.optimizer : two->optimizer == x.optimizer;
    CHECK_MESSAGE(two->weights == x.weights && two->gathered == x.gathered &&
                      two->gradients == x.gradients && optimizer,
                  "layout %d, rank %d, %s: weights %llu, gathered %llu, gradients %llu, optimizer "
                  "%llu bytes, expected %llu, %llu, %llu, %llu",
                  (int)(l - layouts), rank, names[which], (unsigned long long)two->weights,
                  (unsigned long long)two->gathered, (unsigned long long)two->gradients,
                  (unsigned long long)two->optimizer, (unsigned long long)x.weights,
                  (unsigned long long)x.gathered, (unsigned long long)x.gradients,
                  (unsigned long long)x.optimizer);
    /* Tokens, statistics and the scratch of attention keep their size. */
    const uint64_t a = four->activations, b = two->activations;
    CHECK_MESSAGE(which == ACTIVATIONS ? b > a / 2 && b < a / 4 * 3 : b == a,
                  "layout %d, rank %d, %s: %llu bytes of activations, %llu before",
                  (int)(l - layouts), rank, names[which], (unsigned long long)b,
                  (unsigned long long)a);
}

TEST(types, tensors_of_two_bytes_halve_their_messages_and_memory_and_nothing_else)
{
    const struct tr_types four = {TR_FP32, TR_FP32, TR_FP32};
    for (int i = 0; i < NLAYOUTS; ++i)
        for (int rank = 0; rank < ranks_of(&layouts[i]); ++rank) {
            struct tr_rehearsal before, after;
            if (!rehearse(&layouts[i], rank, &four, &before)) return;
            for (int which = 0; which < NWHICH; ++which) {
                const struct tr_types types = types_of((enum which)which);
                if (!rehearse(&layouts[i], rank, &types, &after)) return;
                compare_traffic(&layouts[i], rank, (enum which)which, &before, &after);
                compare_memory(&layouts[i], rank, (enum which)which, &before.memory, &after.memory);
            }
        }
}

/* The first layout: micro-batches of 96 rows in three layers of four heads, a last norm, and 28
 * sums of a step. Every tensor takes whole cache lines but the sums, which take four. */
TEST(types, tokens_and_statistics_keep_their_size_beside_activations_of_two_bytes)
{
    const struct tr_types four = {TR_FP32, TR_FP32, TR_FP32}, two = types_of(ACTIVATIONS);
    struct tr_rehearsal before, after;
    const uint64_t rows = 96, tokens = 5 * rows, block = 4 * rows + 4 * rows, norm = 2 * rows,
                   scores = 2 * TR_ATTENTION_QUERIES * CONTEXT;
    const uint64_t kept = (tokens + 3 * block + norm + scores) * sizeof(float) + 256;
    REQUIRE(rehearse(&layouts[0], 0, &four, &before) && rehearse(&layouts[0], 0, &two, &after));
    CHECK_EQ(2 * after.memory.activations - before.memory.activations, kept);
}

static void ask_for_other_types(struct rank *self)
{
    const enum which *which = self->arg;
    const struct tr_types types = types_of(*which);
    const struct tr_engine_options options = options_of(&layouts[0], &types);
    struct tr_mesh mesh;
    struct tr_engine e = {0};
    CHECK(tr_mesh_init(&mesh, self->world) == TR_OK);
    CHECK(tr_engine_init(&e, &mesh, tr_backend_choose(""), &options) < 0);
    CHECK_MESSAGE(strstr(tr_error(), "has operations for 0, 0 and 0"), "%s", tr_error());
    tr_engine_fini(&e);
    tr_mesh_fini(&mesh);
}

TEST(types, a_backend_is_refused_that_computes_with_other_types)
{
    static const enum which all[NWHICH] = {WEIGHTS, ACTIVATIONS, GRADIENTS};
    for (int i = 0; i < NWHICH; ++i) CHECK(run_ranks(1, ask_for_other_types, &all[i]));
}
