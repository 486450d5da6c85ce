/* A checkpoint is refused when ranks that hold the same weights have different bits, when numbers
 * are not finite, or when the file is another program's. */
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

/* One float of `unit` is changed on rank 1 only: in a section that several ranks hold. */
struct mistake {
    int size[TR_NUM_AXES];
    enum tr_sharding sharding;
    const char *unit;
    enum tr_section section;
    bool llama, whole; /* whole: not in the shard, but in what was gathered */
};

static struct tr_engine_options options_of(const struct mistake *mistake)
{
    return (struct tr_engine_options){.model = {.kind = mistake->llama ? TR_LLAMA : TR_GPT2,
                                                .layers = 2,
                                                .heads = 4,
                                                .kv_heads = mistake->llama ? 2 : 4,
                                                .width = 32,
                                                .hidden = 64,
                                                .vocabulary = 256,
                                                .context = 16,
                                                .tied = true},
                                      .sharding = mistake->sharding,
                                      .schedule = TR_1F1B,
                                      .batch = 4,
                                      .micro_batch = 2,
                                      .bucket_bytes = 1 << 20,
                                      .seed = 1};
}

/* A float of the section that lies in the shard of rank 1, or outside of it. */
static float *find(struct tr_store *store, const struct mistake *mistake)
{
    for (int u = 0; u < store->nunits; ++u) {
        const struct tr_unit_state *s = &store->units[u];
        const struct tr_unit *unit = &store->params->units[s->unit];
        if (strcmp(unit->name, mistake->unit) != 0) continue;
        if (mistake->whole) return floats_of(s->weights) + (s->first ? 0 : s->count);
        return s->masters + unit->section[mistake->section];
    }
    return NULL;
}

static void body(struct rank *self)
{
    const struct mistake *mistake = self->arg;
    const struct tr_engine_options options = options_of(mistake);
    struct tr_mesh mesh;
    struct tr_engine e = {0};
    tr_process_tune();
    CHECK(tr_mesh_init(&mesh, self->world) == TR_OK);
    tr_status status = tr_mesh_shape(&mesh, mistake->size);
    if (status == TR_OK) status = tr_engine_init(&e, &mesh, tr_backend_choose(""), &options);
    CHECK_MESSAGE(status == TR_OK, "%s", tr_error());
    if (status == TR_OK) {
        status = tr_ckpt_check(&e, 0);
        CHECK_MESSAGE(status == TR_OK, "%s without a mistake: %s", mistake->unit, tr_error());
        float *at = self->rank == 1 ? find(&e.store, mistake) : NULL;
        if (self->rank == 1) CHECK(at != NULL);
        if (at) *at += 1;
        status = tr_ckpt_check(&e, 0);
        CHECK_MESSAGE(status < 0, "%s: the mistake was not found on rank %d", mistake->unit,
                      self->rank);
        if (status == TR_AGREED)
            CHECK_MESSAGE(strstr(tr_error(), "other weights"), "%s", tr_error());
    }
    tr_engine_fini(&e);
    tr_mesh_fini(&mesh);
}

TEST(checkpoint, ranks_that_differ_in_what_they_hold_in_common_are_found)
{
    static const struct mistake mistakes[] = {
        {{1, 2, 1, 1, 1, 1}, TR_DDP, "blocks.1", TR_CUT, false, false},
        {{1, 1, 1, 2, 1, 1}, TR_DDP, "final", TR_CUT, false, false},
        {{1, 2, 1, 1, 1, 1}, TR_ZERO1, "blocks.0", TR_CUT, false, true},
        {{1, 1, 1, 1, 1, 2}, TR_DDP, "blocks.0", TR_REPLICATED, false, false},
        {{1, 1, 1, 1, 1, 4}, TR_DDP, "blocks.1", TR_SHARED, true, false},
        {{2, 1, 1, 1, 1, 1}, TR_DDP, "token", TR_CUT, false, false},
    };
    for (size_t i = 0; i < sizeof mistakes / sizeof mistakes[0]; ++i) {
        int n = 1;
        for (int axis = 0; axis < TR_NUM_AXES; ++axis) n *= mistakes[i].size[axis];
        CHECK(run_ranks(n, body, &mistakes[i]));
    }
}

/* A file of one tensor that another program could have written. */
static tr_status write_foreign(const char *path)
{
    const struct tr_tensor tensor = {"x", 1, {1, 1}, 1};
    const struct tr_metadata format = {"format", "other"};
    struct tr_safetensors_writer *writer = NULL;
    const float zero = 0;
    TR_TRY(tr_safetensors_create(&writer, path, &tensor, 1, &format, 1, false));
    TR_TRY(tr_safetensors_put(writer, 0, 0, &zero, 1));
    return tr_safetensors_commit(writer, &(bool){false});
}

TEST(checkpoint, a_file_of_another_program_is_refused)
{
    struct tr_safetensors *file;
    char path[] = "/tmp/tutti-foreign-XXXXXX";
    const int fd = mkstemp(path);
    REQUIRE(fd >= 0);
    close(fd);
    CHECK(write_foreign(path) == TR_OK);
    CHECK(tr_ckpt_open(path, &file) < 0);
    CHECK_MESSAGE(strstr(tr_error(), "no checkpoint of tutti-train"), "%s", tr_error());
    unlink(path);
}

/* Rank 0's part of a tensor gets a number that is not finite, after a good checkpoint was written.
 */
static void save_nan(struct rank *self)
{
    const char *folder = self->arg;
    const struct mistake none = {{1, 1, 2, 1, 1, 1}, TR_ZERO3, "", TR_CUT, false, false};
    const struct tr_engine_options options = options_of(&none);
    const struct tr_state state = {.step = 3};
    struct tr_mesh mesh;
    struct tr_engine e = {0};
    char path[128] = "", *found = NULL;
    CHECK(tr_mesh_init(&mesh, self->world) == TR_OK);
    CHECK(tr_mesh_shape(&mesh, none.size) == TR_OK);
    REQUIRE(tr_engine_init(&e, &mesh, tr_backend_choose(""), &options) == TR_OK);
    CHECK(save(&e, folder, &state) == TR_OK);
    const struct tr_unit_state *s = tr_store_unit(&e.store, e.model.blocks[1].unit);
    static const char *const parts[] = {"attention.q.weight ", "attention.q.weight.m ",
                                        "attention.q.weight.v "};
    const struct tr_param *q = &e.model.params.items[e.model.blocks[1].tensor[TR_Q_W]];
    const struct tr_held *held = &e.store.held[e.model.blocks[1].tensor[TR_Q_W]];
    float *const spoilt[] = {s->masters + (q->offset - s->first), held->states[0], held->states[1]};
    for (int part = 0; part < 3; ++part) {
        float *at = self->rank == 0 ? spoilt[part] : NULL;
        if (at) *at = part == 1 ? NAN : HUGE_VALF;
        const tr_status status = tr_ckpt_check(&e, state.step);
        CHECK_MESSAGE(status < 0, "a checkpoint may have %s", part == 1 ? "nan" : "inf");
        if (status == TR_AGREED)
            CHECK_MESSAGE(strstr(tr_error(), "after step 3 ") && strstr(tr_error(), parts[part]),
                          "%s", tr_error());
        if (at) *at = 0;
    }
    /* The good one is still there. It stays what it was when another file gets its name. */
    struct tr_safetensors *file = NULL;
    if (self->rank == 0) {
        CHECK(tr_ckpt_find("resume", folder, path, sizeof path) == TR_OK);
        REQUIRE(tr_ckpt_open(path, &file) == TR_OK);
        CHECK(tr_safetensors_is_at(file, path));
        CHECK(write_foreign(path) == TR_OK);
        CHECK(!tr_safetensors_is_at(file, path));
        CHECK_MESSAGE(tr_ckpt_read_options(file, &found) == TR_OK, "%s", tr_error());
        free(found);
    }
    struct tr_state loaded;
    CHECK_MESSAGE(tr_ckpt_load(&e, "resume", file, &loaded) == TR_OK, "%s", tr_error());
    tr_safetensors_close(file);
    if (self->rank == 0) CHECK(isfinite(s->masters[q->offset]));
    tr_engine_fini(&e);
    tr_mesh_fini(&mesh);
}

TEST(checkpoint, numbers_that_are_not_finite_are_found)
{
    char folder[] = "/tmp/tutti-nan-XXXXXX", path[64];
    REQUIRE(mkdtemp(folder) != NULL);
    CHECK(run_ranks(2, save_nan, folder));
    snprintf(path, sizeof path, "%s/step-00000003.safetensors", folder);
    CHECK(unlink(path) == 0);
    CHECK(rmdir(folder) == 0);
}
