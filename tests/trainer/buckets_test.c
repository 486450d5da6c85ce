/* A bucket of gradients is reduced without memory of the heap: counted over all threads, in a step
 * after one in which the stream held all buckets at once. */
#include <semaphore.h>

#include "../allocations.h"
#include "../shim.h"
#include "trial.h"

enum { NRANKS = 2, STEPS = 5 };

static void wait_for(void *argument)
{
    sem_t *semaphore = argument;
    while (sem_wait(semaphore)) continue;
}

/* `gate`, if any, is closed until all buckets are in the stream. */
static tr_status run_step(struct trial *t, sem_t *gate)
{
    const struct tr_group *group = t->store.replica;
    if (gate)
        TR_TRY(tr_group_check(group, tuttiStreamLaunch(group->stream, wait_for, gate), "a gate"));
    tr_store_begin(&t->store);
    TR_TRY(trial_forward(t));
    const tr_status status = trial_backward(t, 0);
    if (gate) sem_post(gate);
    TR_TRY(status);
    return tr_store_finish(&t->store);
}

/* The ranks are here and do nothing else. */
static tr_status meet(const struct trial *t)
{
    const struct tr_group *group = t->store.replica;
    return tr_group_check(group, tuttiBarrier(group->comm, NULL), "a barrier");
}

static tr_status run_steps(struct trial *t, uint64_t *taken)
{
    sem_t gate;
    sem_init(&gate, 0, 0);
    tr_status status = TR_OK;
    for (t->step = 0; t->step < STEPS && status == TR_OK; t->step++) {
        status = meet(t);
        const uint64_t before = allocations();
        if (status == TR_OK) status = meet(t);
        if (status == TR_OK) status = run_step(t, t->step < 2 ? &gate : NULL);
        if (status == TR_OK) status = meet(t);
        if (t->step >= 2) *taken += allocations() - before;
        if (status == TR_OK) status = meet(t);
        if (status == TR_OK) trial_update(t);
        if (status == TR_OK) status = tr_store_publish(&t->store);
    }
    sem_destroy(&gate);
    return status;
}

static void reduce_buckets(struct rank *self)
{
    const struct grid *grid = self->arg;
    struct tr_mesh mesh;
    tr_status status = trial_connect(&mesh, self, grid);
    struct trial t = {.grid = grid, .mode = &trial_modes[1], .mesh = &mesh, .micros = 1};
    uint64_t taken = 0;
    if (status == TR_OK) status = trial_open(&t);
    if (status == TR_OK) status = run_steps(&t, &taken);
    CHECK_MESSAGE(status == TR_OK, "rank %d: %s", self->rank, tr_error());
    CHECK_MESSAGE(taken == 0, "rank %d saw %llu allocations in %d steps", self->rank,
                  (unsigned long long)taken, STEPS - 2);
    trial_close(&t);
    tr_mesh_fini(&mesh);
}

TEST(buckets, of_gradients_are_reduced_without_memory_of_the_heap)
{
    const struct grid grid = {.size = {1, NRANKS, 1, 1, 1, 1}, .share = 1};
    CHECK_MESSAGE(run_ranks(NRANKS, reduce_buckets, &grid), "no %d ranks", NRANKS);
}
