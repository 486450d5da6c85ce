/* Makes a test in which the model and the axioms differ smaller. */
#include <string.h>

#include <vgpu/litmus/compare.h>

static bool still(const struct vl_test *test, const struct vl_comparison *how,
                  enum vl_verdict verdict)
{
    struct vl_finding finding;
    return vl_compare(test, how, NULL, &finding) == verdict;
}

static void remove_op(struct vl_thread *thread, unsigned k)
{
    thread->nops--;
    memmove(&thread->ops[k], &thread->ops[k + 1], (thread->nops - k) * sizeof *thread->ops);
}

/* A barrier goes with all of its visits. */
static void remove_at(struct vl_test *test, unsigned t, unsigned k)
{
    const struct vl_op op = test->threads[t].ops[k];
    const struct vl_thread mine = test->threads[t];
    if (op.kind < VL_BARRIER) {
        remove_op(&test->threads[t], k);
        return;
    }
    for (unsigned u = 0; u < test->nthreads; u++) {
        struct vl_thread *thread = &test->threads[u];
        if (thread->grid != mine.grid || thread->block != mine.block) continue;
        for (unsigned i = thread->nops; i-- > 0;)
            if (thread->ops[i].kind >= VL_BARRIER && thread->ops[i].number == op.number)
                remove_op(thread, i);
    }
}

static void remove_thread(struct vl_test *test, unsigned t)
{
    for (unsigned k = test->threads[t].nops; k-- > 0;)
        if (k < test->threads[t].nops) remove_at(test, t, k);
    test->nthreads--;
    memmove(&test->threads[t], &test->threads[t + 1], (test->nthreads - t) * sizeof *test->threads);
}

/* The i-th way to simplify an operation; false: there is none, or it is simple already. */
static bool simplify(struct vl_op *op, unsigned way)
{
    const struct vl_op old = *op;
    if (way == 0 && vl_accesses(op)) op->order = vl_is_atomic(op) ? VG_RELAXED : VG_WEAK;
    if (way == 1 && vl_accesses(op) && op->order != VG_WEAK) op->order = VG_RELAXED;
    if (way == 2 && op->kind == VL_FENCE) op->order = VG_ACQ_REL;
    if (way == 3 && op->order != VG_WEAK) op->scope = VG_SCOPE_SYS;
    if (way == 4 && vl_is_atomic(op) && op->reg < VL_REGISTERS) op->kind = VL_LOAD;
    if (way == 4 && vl_is_atomic(op) && op->reg == VL_REGISTERS) op->kind = VL_STORE;
    if (way == 5) op->nc = false;
    if (way == 6) op->location = 0;
    if (op->kind == VL_LOAD && op->order == VG_ACQ_REL) op->order = VG_ACQUIRE;
    if (op->kind == VL_LOAD && op->order == VG_RELEASE) op->order = VG_RELAXED;
    return memcmp(&old, op, sizeof old) != 0;
}

/* One smaller test with the same verdict; false: there is none. */
static bool shrink_once(struct vl_test *test, const struct vl_comparison *how,
                        enum vl_verdict verdict)
{
    struct vl_test tried;
    for (unsigned t = 0; t < test->nthreads && test->nthreads > 1; t++) {
        tried = *test;
        remove_thread(&tried, t);
        if (still(&tried, how, verdict)) goto found;
    }
    for (unsigned t = 0; t < test->nthreads; t++)
        for (unsigned k = 0; k < test->threads[t].nops; k++) {
            tried = *test;
            remove_at(&tried, t, k);
            if (still(&tried, how, verdict)) goto found;
            for (unsigned way = 0; way < 7; way++) {
                tried = *test;
                if (simplify(&tried.threads[t].ops[k], way) && still(&tried, how, verdict))
                    goto found;
            }
        }
    for (unsigned g = 0; g < test->ngrids; g++) {
        tried = *test;
        tried.grids[g].before = 0;
        if (test->grids[g].before && still(&tried, how, verdict)) goto found;
    }
    return false;
found:
    *test = tried;
    return true;
}

void vl_shrink(struct vl_test *test, const struct vl_comparison *how, enum vl_verdict verdict)
{
    for (unsigned round = 0; round < 100 && shrink_once(test, how, verdict);) round++;
}
