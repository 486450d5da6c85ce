/* A save in the middle of a run: its copy is made beside the next step, whose update waits for
 * that, so that the file holds what there was. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "ckpt/safetensors.h"
#include "ranks.h"
#include "shim.h"
#include "trainer.h"

enum { PARAM = 0 };

static pthread_t training;
static atomic_int by_the_thread; /* calls of late_copy */
static const float *watched;
static float before;
static void (*copy_rows)(struct tr_data *, long, const struct tr_data *, long, long, long,
                         enum tr_type);

/* Copies as late as an update that does not wait would need to come first. */
static void late_copy(struct tr_data *to, long to_stride, const struct tr_data *from,
                      long from_stride, long rows, long width, enum tr_type type)
{
    if (!pthread_equal(pthread_self(), training) &&
        atomic_fetch_add_explicit(&by_the_thread, 1, memory_order_relaxed) == 0)
        for (int i = 0; i < 200 && *(const volatile float *)watched == before; ++i)
            nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    copy_rows(to, to_stride, from, from_stride, rows, width, type);
}

static tr_status begin(struct tr_trainer *t, struct tr_mesh *mesh, const char *folder,
                       tuttiComm_t world)
{
    struct tr_config config;
    char checkpoint[64];
    char *argv[] = {"",           checkpoint,    "--data=" TUTTI_SOURCE_DIR "/include",
                    "--layers=1", "--width=32",  "--heads=2",
                    "--batch=2",  "--context=8", "--steps=3",
                    "--every=1",  "--threads=1", "--warmup=0"};
    snprintf(checkpoint, sizeof checkpoint, "--checkpoint=%s", folder);
    tr_config_init(&config);
    TR_TRY(tr_config_parse(&config, sizeof argv / sizeof *argv, argv));
    TR_TRY(tr_mesh_init(mesh, world));
    return tr_trainer_init(t, &config, mesh);
}

/* A step with a save of what there was before it: `kept`. */
static tr_status step(struct tr_trainer *t, float *kept, size_t count)
{
    const struct tr_backend own = *t->engine.backend;
    struct tr_backend late = own;
    struct tr_step done;
    TR_TRY(tr_trainer_step(t, &done));
    watched = tr_store_unit(&t->engine.store, t->engine.model.params.items[PARAM].unit)->masters +
              t->engine.model.params.items[PARAM].offset;
    memcpy(kept, watched, count * sizeof *kept);
    before = *watched;
    training = pthread_self();
    copy_rows = own.copy_rows;
    late.copy_rows = late_copy;
    t->engine.backend = &late;
    tr_status status = tr_trainer_save(t);
    if (status == TR_OK) status = tr_trainer_step(t, &done);
    while (t->saving && status == TR_OK) status = tr_ckpt_advance(&t->saving);
    t->engine.backend = t->backend;
    CHECK(*watched != before);
    return status;
}

static tr_status read_back(const char *folder, const struct tr_param *param, float *out)
{
    char path[96];
    struct tr_safetensors *file;
    const struct tr_tensor tensor = {
        param->name, param->ndim, {param->shape[0], param->shape[1]}, param->count};
    snprintf(path, sizeof path, "%s/step-00000001.safetensors", folder);
    TR_TRY(tr_safetensors_open(&file, path));
    const tr_status status = tr_safetensors_read(file, &tensor, out);
    tr_safetensors_close(file);
    return status;
}

static void body(struct rank *self)
{
    const char *folder = self->arg;
    struct tr_trainer t = {.hold = TR_NO_HOLD};
    struct tr_mesh mesh = {0};
    tr_status status = begin(&t, &mesh, folder, self->world);
    CHECK_MESSAGE(status == TR_OK, "%s", tr_error());
    if (status == TR_OK) {
        const struct tr_param *param = &t.engine.model.params.items[PARAM];
        float *kept = calloc(param->count, sizeof *kept),
              *found = calloc(param->count, sizeof *found);
        status = step(&t, kept, param->count);
        if (status == TR_OK) status = read_back(folder, param, found);
        CHECK_MESSAGE(status == TR_OK, "%s", tr_error());
        CHECK(atomic_load(&by_the_thread) > 0);
        CHECK_MESSAGE(!memcmp(kept, found, param->count * sizeof *kept),
                      "%s was %g before the step, and is %g in the file", param->name,
                      (double)kept[0], (double)found[0]);
        free(kept);
        free(found);
    }
    tr_trainer_fini(&t);
    tr_mesh_fini(&mesh);
}

/* One rank, with a folder for its checkpoints. */
static void run_in_folder(void (*of_rank)(struct rank *self))
{
    char folder[] = "/tmp/tutti-snapshot-XXXXXX", command[64];
    REQUIRE(mkdtemp(folder));
    CHECK(run_ranks(1, of_rank, folder));
    snprintf(command, sizeof command, "rm -rf %s", folder);
    CHECK(system(command) == 0);
}

TEST(checkpoint, an_update_waits_for_the_copy_that_a_thread_makes_of_what_is_saved)
{
    run_in_folder(body);
}

/* The linker's names: --wrap sends the callers of the function to the first. */
static atomic_int rooms;
tr_status __real_tr_safetensors_take_room(const struct tr_safetensors_writer *w);
tr_status __wrap_tr_safetensors_take_room(const struct tr_safetensors_writer *w);
tr_status __wrap_tr_safetensors_take_room(const struct tr_safetensors_writer *w)
{
    atomic_fetch_add_explicit(&rooms, 1, memory_order_relaxed);
    return __real_tr_safetensors_take_room(w);
}

static atomic_bool is_held;
static void held_copy(struct tr_data *to, long to_stride, const struct tr_data *from,
                      long from_stride, long rows, long width, enum tr_type type)
{
    while (atomic_load_explicit(&is_held, memory_order_relaxed))
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    copy_rows(to, to_stride, from, from_stride, rows, width, type);
}

static void abort_beside_a_save(struct rank *self)
{
    struct tr_trainer t = {.hold = TR_NO_HOLD};
    struct tr_mesh mesh = {0};
    struct tr_step done;
    tr_status status = begin(&t, &mesh, self->arg, self->world);
    if (status == TR_OK) status = tr_trainer_step(&t, &done);
    CHECK_MESSAGE(status == TR_OK, "%s", tr_error());
    if (status == TR_OK) {
        struct tr_backend held = *t.engine.backend;
        copy_rows = held.copy_rows;
        held.copy_rows = held_copy;
        t.engine.backend = &held;
        atomic_store(&is_held, true);
        atomic_store(&rooms, 0);
        CHECK_EQ(tr_trainer_save(&t), TR_OK);
        tr_mesh_abort(&mesh);
        mesh.rank = 1;
        atomic_store_explicit(&is_held, false, memory_order_relaxed);
        while (t.saving && tr_ckpt_is_writing(t.saving))
            nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
        CHECK_EQ(atomic_load(&rooms), 1); /* as rank 0 does */
        t.engine.backend = t.backend;
    }
    tr_trainer_fini(&t);
    tr_mesh_fini(&mesh);
}

TEST(checkpoint, the_thread_of_a_save_reads_nothing_of_a_mesh_that_is_aborted_meanwhile)
{
    run_in_folder(abort_beside_a_save);
}
