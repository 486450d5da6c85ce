/* An optimizer of the test alone, with a state of each shape and sums over rows and columns: on
 * every layout the weights and states are those of one rank, and a checkpoint brings them to
 * another. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "ckpt/ckpt.h"
#include "ckpt/safetensors.h"
#include "floats.h"
#include "ranks.h"
#include "save.h"
#include "shim.h"

/* r = r/2 + the squares of each row, c = c/2 + those of each column, n = n + the number of
 * elements; w -= lr g / sqrt(r c + 1). */
enum { ROWS, COLUMNS, COUNT };

static int states(const struct tr_optimizer *how, const struct tr_subject *subject,
                  enum tr_state_shape shapes[TR_MOST_STATES])
{
    (void)how;
    (void)subject;
    shapes[ROWS] = TR_STATE_ROWS;
    shapes[COLUMNS] = TR_STATE_COLUMNS;
    shapes[COUNT] = TR_STATE_SCALAR;
    return 3;
}

static int nsums(const struct tr_optimizer *how, const struct tr_subject *subject)
{
    (void)how;
    return (int)(subject->shape[0] + subject->shape[1] + 1);
}

static void each(const struct tr_tensor_piece *piece,
                 void (*visit)(const struct tr_tensor_piece *piece, size_t at, long row, long col,
                               void *arg),
                 void *arg)
{
    size_t at = 0;
    for (int s = 0; s < piece->nslices; ++s)
        for (long row = 0; row < piece->slices[s].rows; ++row)
            for (long col = 0; col < piece->slices[s].cols; ++col)
                visit(piece, at++, piece->slices[s].row + row, piece->slices[s].col + col, arg);
}

static void add(const struct tr_tensor_piece *piece, size_t at, long row, long col, void *arg)
{
    double *sums = arg;
    const double g = (double)floats_of(piece->g)[at] * piece->scale;
    sums[row] += g * g;
    sums[piece->subject.shape[0] + col] += g * g;
    sums[piece->subject.shape[0] + piece->subject.shape[1]] += 1;
}

static void measure(const struct tr_optimizer *how, const struct tr_tensor_piece *piece,
                    double *sums)
{
    memset(sums, 0, (size_t)nsums(how, &piece->subject) * sizeof *sums);
    each(piece, add, sums);
}

static void descend(const struct tr_tensor_piece *piece, size_t at, long row, long col, void *arg)
{
    const double *lr = arg, r = (double)piece->states[ROWS][row],
                 c = (double)piece->states[COLUMNS][col];
    piece->w[at] -=
        (float)(*lr * (double)floats_of(piece->g)[at] * piece->scale / sqrt(1 + 1e4 * r * c));
}

static void update(const struct tr_optimizer *how, const struct tr_tensor_piece *piece,
                   const double *sums)
{
    const long rows = piece->subject.shape[0], cols = piece->subject.shape[1];
    for (long i = 0; i < rows; ++i)
        piece->states[ROWS][i] = piece->states[ROWS][i] / 2 + (float)sums[i];
    for (long i = 0; i < cols; ++i)
        piece->states[COLUMNS][i] = piece->states[COLUMNS][i] / 2 + (float)sums[rows + i];
    *piece->states[COUNT] += (float)sums[rows + cols];
    double lr = how->lr;
    each(piece, descend, &lr);
}

static const struct tr_rule rule = {
    .name = "test", .states = states, .nsums = nsums, .measure = measure, .update = update};

static void sample(void *arg, uint64_t number, long context, int32_t *ids, int32_t *targets,
                   float *weights)
{
    (void)arg;
    for (long i = 0; i < context; ++i) {
        ids[i] = (int32_t)((number * 7 + (uint64_t)(i * i)) % 61);
        targets[i] = (int32_t)((ids[i] * 5 + 1) % 61);
        weights[i] = 1;
    }
}

struct layout {
    int size[TR_NUM_AXES]; /* pp dp fsdp ring ulysses tp */
    enum tr_sharding sharding;
    bool llama;
    const char *folder;
};

static struct tr_engine_options options_of(const struct layout *l)
{
    return (struct tr_engine_options){.model = {.kind = l->llama ? TR_LLAMA : TR_GPT2,
                                                .layers = 2,
                                                .heads = 4,
                                                .kv_heads = l->llama ? 2 : 4,
                                                .width = 32,
                                                .hidden = 49,
                                                .vocabulary = 61,
                                                .context = 16,
                                                .tied = true},
                                      .sharding = l->sharding,
                                      .optimizer = {.rule = &rule, .lr = 0.1},
                                      .schedule = TR_1F1B,
                                      .batch = 8,
                                      .micro_batch = 2,
                                      .bucket_bytes = 1 << 14,
                                      .seed = 1};
}

/* Step number `step` from 0. */
static tr_status step(struct tr_engine *e, uint64_t step)
{
    const struct tr_feed feed = {sample, NULL};
    struct tr_step_sums sums;
    TR_TRY(tr_engine_gradients(e, &feed, step * 8, NULL, &sums));
    return tr_engine_update(e, &e->options.optimizer, sums.scale);
}

/* Saves as step 4 what there is, while the weights change. */
static tr_status save_beside_a_step(struct tr_engine *e, const struct layout *l)
{
    const struct tr_state state = {.step = 4};
    struct tr_arena snapshot = {0};
    struct tr_config config;
    struct tr_save *begun;
    size_t nbytes;
    tr_config_init(&config);
    TR_TRY(tr_ckpt_snapshot_bytes(e, &nbytes));
    if (nbytes) TR_TRY(tr_arena_create(&snapshot, e->backend, "snapshot", nbytes, false));
    TR_TRY(tr_ckpt_begin(e, l->folder, NULL, &state, &config, &snapshot, &begun));
    CHECK_EQ(snapshot.used, nbytes);
    tr_ckpt_wait_for_copy(begun);
    TR_TRY(step(e, 2));
    tr_status status = TR_OK;
    while (begun) status = tr_ckpt_advance(&begun);
    tr_arena_fini(&snapshot);
    return status;
}

static tr_status train(struct tr_engine *e, const struct layout *l)
{
    char path[128];
    TR_TRY(step(e, 0));
    TR_TRY(step(e, 1));
    struct tr_state state = {.step = 2};
    TR_TRY(save(e, l->folder, &state));
    TR_TRY(save_beside_a_step(e, l));
    /* What one rank wrote before, and again from this layout. */
    snprintf(path, sizeof path, "%.*s/%s1/step-00000002.safetensors",
             (int)(strrchr(l->folder, '/') - l->folder), l->folder, l->llama ? "llama" : "gpt2");
    struct tr_safetensors *file = NULL;
    if (e->mesh->rank == 0) TR_TRY(tr_ckpt_open(path, &file));
    const tr_status status = tr_ckpt_load(e, "resume", file, &state);
    tr_safetensors_close(file);
    TR_TRY(status);
    state.step = 3;
    return save(e, l->folder, &state);
}

static void body(struct rank *self)
{
    const struct layout *l = self->arg;
    const struct tr_engine_options options = options_of(l);
    struct tr_mesh mesh;
    struct tr_engine e = {0};
    CHECK(tr_mesh_init(&mesh, self->world) == TR_OK);
    tr_status status = tr_mesh_shape(&mesh, l->size);
    if (status == TR_OK) status = tr_engine_init(&e, &mesh, tr_backend_choose(""), &options);
    if (status == TR_OK) status = train(&e, l);
    CHECK_MESSAGE(status == TR_OK, "%s: %s", l->folder, tr_error());
    for (int p = 0; p < e.model.params.n && status == TR_OK; ++p) {
        const struct tr_held *held = &e.store.held[p];
        if (held->count)
            CHECK_MESSAGE(held->states[COUNT][0] == 2 * (float)e.model.params.items[p].count,
                          "%s: %s: %g elements in two steps, expected 2 x %zu", l->folder,
                          e.model.params.items[p].name, (double)held->states[COUNT][0],
                          e.model.params.items[p].count);
    }
    tr_engine_fini(&e);
    tr_mesh_fini(&mesh);
}

/* The largest difference of the numbers of two files; infinite when they cannot be compared. */
static double compare(const char *a, const char *b)
{
    FILE *files[2] = {fopen(a, "rb"), fopen(b, "rb")};
    uint64_t header[2] = {0};
    double most = files[0] && files[1] ? 0 : HUGE_VAL;
    for (int i = 0; i < 2 && most == 0; ++i)
        if (fread(&header[i], 1, 8, files[i]) != 8 || fseek(files[i], (long)header[i], SEEK_CUR))
            most = HUGE_VAL;
    float x = 0, y = 0;
    size_t n = 0;
    while (most < HUGE_VAL && fread(&x, sizeof x, 1, files[0]) == 1) {
        if (fread(&y, sizeof y, 1, files[1]) != 1) most = HUGE_VAL;
        most = fmax(most, fabs((double)x - (double)y) / fmax(1, fabs((double)x)));
        ++n;
    }
    for (int i = 0; i < 2; ++i)
        if (files[i]) fclose(files[i]);
    return n > 1000 ? most : HUGE_VAL;
}

TEST(states, of_every_shape_are_those_of_one_rank_on_every_layout)
{
    static const struct {
        const char *name;
        int size[TR_NUM_AXES];
        enum tr_sharding sharding;
    } layouts[] = {
        {"1", {1, 1, 1, 1, 1, 1}, TR_DDP},        {"zero1", {1, 3, 1, 1, 1, 1}, TR_ZERO1},
        {"hybrid", {1, 2, 2, 1, 1, 1}, TR_ZERO3}, {"tp", {1, 1, 1, 1, 1, 4}, TR_DDP},
        {"pp", {2, 2, 1, 1, 1, 1}, TR_DDP},       {"all", {2, 1, 2, 1, 1, 2}, TR_ZERO3}};
    char root[] = "/tmp/tutti-states-XXXXXX";
    REQUIRE(mkdtemp(root) != NULL);
    for (int llama = 0; llama < 2; ++llama)
        for (size_t i = 0; i < sizeof layouts / sizeof layouts[0]; ++i) {
            char folder[64], one[128], two[128];
            int n = 1;
            snprintf(folder, sizeof folder, "%s/%s%s", root, llama ? "llama" : "gpt2",
                     layouts[i].name);
            struct layout l = {.sharding = layouts[i].sharding, .llama = llama, .folder = folder};
            memcpy(l.size, layouts[i].size, sizeof l.size);
            for (int axis = 0; axis < TR_NUM_AXES; ++axis) n *= l.size[axis];
            REQUIRE(tr_ckpt_prepare(folder) == TR_OK);
            CHECK(run_ranks(n, body, &l));
            snprintf(one, sizeof one, "%s/%s1/step-00000002.safetensors", root,
                     llama ? "llama" : "gpt2");
            snprintf(two, sizeof two, "%s/step-00000002.safetensors", folder);
            const double off = compare(one, two);
            CHECK_MESSAGE(off < 2e-6, "%s: off by %g", folder, off);
            char copy[128];
            snprintf(copy, sizeof copy, "%s/step-00000004.safetensors", folder);
            CHECK_MESSAGE(compare(two, copy) == 0, "%s: saved beside a step: off by %g", folder,
                          compare(two, copy));
            unlink(copy);
            if (i) unlink(two);
            snprintf(two, sizeof two, "%s/step-00000003.safetensors", folder);
            CHECK_MESSAGE(compare(one, two) == 0, "%s: read and written again: off by %g", folder,
                          compare(one, two));
            unlink(two);
            if (i) rmdir(folder);
        }
    for (int llama = 0; llama < 2; ++llama) {
        char path[128];
        snprintf(path, sizeof path, "%s/%s1/step-00000002.safetensors", root,
                 llama ? "llama" : "gpt2");
        unlink(path);
        *strrchr(path, '/') = 0;
        rmdir(path);
    }
    rmdir(root);
}
