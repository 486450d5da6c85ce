/* The checkpoints of a run: when they are written, what becomes of one that cannot be, and which of
 * the older ones stay. */
#include <limits.h>
#include <stdio.h>

#include "trainer.h"

/* Whether all ranks know of the failure, and can go on: the file could not be written. */
static bool is_of_file(tr_status status)
{
    return status == TR_AGREED || status == TR_ELSEWHERE;
}

/* Writes a checkpoint. Of --keep=K files K stay, or where it could not be written one less, so that
 * there is room for the next one, but always the last whole file. */
static tr_status write(struct tr_trainer *t)
{
    const struct tr_state state = {.step = t->step,
                                   .samples = t->samples,
                                   .data_checksum = t->data_checksum,
                                   .run = t->run,
                                   .held_out = t->held_out,
                                   .spikes = t->spikes};
    const char *folder = t->config.checkpoint;
    int64_t keep = t->config.keep;
    char path[PATH_MAX];
    const tr_status status =
        tr_ckpt_save(&t->engine, folder, &state, &t->config, path, sizeof path);
    if (status < 0 && !is_of_file(status)) return status;
    if (status < 0 && keep > 1) --keep;
    if (t->mesh->rank != 0) return status;
    if (status == TR_OK) printf("wrote %s\n", path);
    if (keep) tr_ckpt_keep(folder, &state, keep);
    return status;
}

tr_status tr_trainer_save(struct tr_trainer *t)
{
    TR_TRY(tr_ckpt_check(&t->engine, t->step));
    const tr_status status = write(t);
    if (status == TR_AGREED)
        fprintf(stderr,
                "tutti-train: rank %d: %s; there is no checkpoint of step %lld, the training goes "
                "on, and the next one is due after step %lld\n",
                t->mesh->rank, tr_error(), (long long)t->step,
                (long long)(t->step + t->config.every));
    return is_of_file(status) ? TR_OK : status;
}

tr_status tr_trainer_save_last(struct tr_trainer *t)
{
    TR_TRY(tr_ckpt_check(&t->engine, t->step));
    const tr_status status = write(t);
    if (is_of_file(status) && t->config.keep) return write(t); /* there is more room now */
    return status;
}
