/* Runs small programs on the model, with a random interleaving for each seed.
 *
 * A program is a text: threads separated by |, operations by ;. A location is one of x y z w (zero
 * at first, 4 bytes each), a register one of a to h.
 *
 *   st.weak x 1   st.rlx.@ x 1   st.rel.@ x 1
 *   ld.weak x a   ld.rlx.@ x a   ld.acq.@ x a
 *   add.rlx.@ x 1 a   (also .acq .rel .ar; an atom that adds; red.rlx.@ x 1 gives no register)
 *   xchg.rlx.@ x 1 a
 *   fence.ar.@   fence.sc.@   bar   warp
 *
 * Scopes are cta, gpu and sys; @ is the scope of the run. An outcome is a text as "a=1 b=0 x=2":
 * the last values of registers and locations. */
#ifndef VGPU_MODEL_LITMUS_RUN_H
#define VGPU_MODEL_LITMUS_RUN_H

#include <stdbool.h>
#include <stdint.h>

#include <vgpu/model.h>

enum litmus_where { ONE_BLOCK, BLOCKS, DEVICES };

struct litmus_run {
    const char *program, *outcome;
    enum litmus_where where;
    enum vg_scope scope; /* of @ */
    enum vg_reads reads;
    uint64_t seeds;
};

struct litmus_result {
    uint64_t seen;  /* seeds that showed the outcome */
    uint64_t raced; /* seeds in which a race was reported */
    uint64_t older; /* loads that returned an older value, over all seeds */
    struct vg_race last;
};

/* Fails the running test when the text cannot be read. */
void litmus_run(const struct litmus_run *run, struct litmus_result *result);

#endif
