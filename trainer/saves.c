/* The checkpoints of a run: when they are written, what becomes of one that cannot be, and which of
 * the older ones stay. In the middle of a run a thread copies what is saved and writes the copy
 * (ckpt/save.c): the next update waits for the copy, and the steps tell all ranks when the last
 * rank's thread has written. */
#include <stdio.h>

#include "trainer.h"
#include "watch/clock.h"
#include "watch/pipe.h"
#include "watch/slow.h"

/* Where a file could not be written, one less than --keep=K stay, so that there is room for the
 * next one, but always the last whole file. The error stays the save's. */
static void make_room(struct tr_trainer *t)
{
    const int64_t keep = t->config.keep;
    char story[2048];
    if (t->mesh->rank != 0 || !keep) return;
    snprintf(story, sizeof story, "%s", tr_error());
    tr_ckpt_keep(t->config.checkpoint, &t->hold, &t->saved, keep > 1 ? keep - 1 : 1);
    (void)tr_fail("%s", story);
}

/* Rank 0 tells while it waits long for a save. Returns whether tr_slow_end is to follow. */
static bool watch(const struct tr_trainer *t, struct tr_slow *slow)
{
    char note[TR_TEXT_BYTES];
    if (t->mesh->rank != 0) return false;
    snprintf(note, sizeof note,
             "note: the run has waited 5 s for the checkpoint of step %lld, and waits on: "
             "the disk of --checkpoint=%.256s is slow or hangs, or another rank is late",
             (long long)t->saved.step, t->config.checkpoint);
    tr_slow_begin(slow, note);
    return true;
}

static bool is_as_loaded(const struct tr_trainer *t)
{
    return t->config.resume[0] && t->step == t->after;
}

/* Where nothing was trained, the file has what the loaded one says of its data. */
static tr_status begin(struct tr_trainer *t, struct tr_arena *snapshot)
{
    const bool is_loaded = is_as_loaded(t);
    t->saved =
        (struct tr_state){.step = t->step,
                          .samples = t->samples,
                          .data_checksum = is_loaded ? t->loaded.data_checksum : t->data_checksum,
                          .run = t->run,
                          .start = t->start,
                          .after = t->after,
                          .held_out = t->held_out,
                          .held_out_from = is_loaded ? t->loaded.held_out_from : t->text.ntrain,
                          .spikes = t->spikes};
    struct tr_slow slow;
    const bool is_watched = watch(t, &slow);
    tr_status status = TR_OK;
    if (t->mesh->rank == 0) status = tr_ckpt_hold(t->config.checkpoint, t->run, &t->hold);
    status = tr_mesh_agree(t->mesh, status);
    if (status == TR_OK) {
        status = tr_ckpt_begin(&t->engine, t->config.checkpoint, &t->hold, &t->saved, &t->config,
                               snapshot, &t->saving);
        if (tr_is_agreed(status)) make_room(t);
    }
    if (is_watched) tr_slow_end(&slow);
    return status;
}

/* A part of the way to the file's name; `waits`: all of it. */
static tr_status advance(struct tr_trainer *t, bool waits)
{
    struct tr_slow slow;
    tr_status status;
    const bool is_watched = watch(t, &slow);
    do status = tr_ckpt_advance(&t->saving);
    while (waits && t->saving);
    if (tr_is_agreed(status)) make_room(t);
    if (is_watched) tr_slow_end(&slow);
    return status;
}

/* The step after which the next checkpoint is due. That can be the step done last, unless a save of
 * it was begun. */
static int64_t find_next(const struct tr_trainer *t)
{
    const int64_t every = t->config.every;
    const int64_t least = t->step > t->saved.step ? t->step : t->saved.step + 1;
    const int64_t next = (least + every - 1) / every * every;
    return t->total_steps && next > t->total_steps ? t->total_steps : next;
}

/* In mid-run a file that cannot be written is a warning. `ends`: no step follows. */
static tr_status warn(const struct tr_trainer *t, tr_status status, bool ends)
{
    if (status == TR_AGREED) {
        char next[96] = "";
        if (!ends)
            snprintf(next, sizeof next,
                     ", the training goes on, and the next one is due after step %lld",
                     (long long)find_next(t));
        tr_say(stderr, "tutti-train: rank %d: %s; there %s no checkpoint of step %lld%s\n",
               t->mesh->rank, tr_error(),
               t->saved.step && t->hold.unsynced == t->saved.step ? "may be" : "is",
               (long long)t->saved.step, next);
    }
    return tr_is_agreed(status) ? TR_OK : status;
}

static tr_status go_on(struct tr_trainer *t, bool waits, bool ends)
{
    const double before = tr_clock_seconds();
    const tr_status status = advance(t, waits);
    const double now = tr_clock_seconds();
    if (!t->saving) t->saving_seconds += now - t->saving_since;
    t->save_waited += now - before;
    return warn(t, status, ends);
}

tr_status tr_trainer_saved(struct tr_trainer *t)
{
    return t->saving && !t->writing ? go_on(t, false, tr_trainer_is_over(t)) : TR_OK;
}

void tr_trainer_wait_for_copy(struct tr_trainer *t)
{
    if (!t->saving) return;
    const double before = tr_clock_seconds();
    tr_ckpt_wait_for_copy(t->saving);
    t->save_waited += tr_clock_seconds() - before;
}

tr_status tr_trainer_save(struct tr_trainer *t)
{
    if (t->saving) TR_TRY(go_on(t, true, false)); /* there is one snapshot */
    t->saving_since = tr_clock_seconds();
    TR_TRY(tr_ckpt_check(&t->engine, t->step));
    const tr_status status = begin(t, &t->snapshot);
    const double seconds = tr_clock_seconds() - t->saving_since;
    t->save_waited += seconds;
    if (!t->saving) t->saving_seconds += seconds;
    return warn(t, status, false);
}

tr_status tr_trainer_save_last(struct tr_trainer *t)
{
    if (t->has_loaded && is_as_loaded(t)) {
        if (t->mesh->rank == 0)
            tr_say(stdout, "note: the checkpoint of step %lld stays as it is\n",
                   (long long)t->step);
        return TR_OK;
    }
    if (t->saving) TR_TRY(go_on(t, true, true));
    TR_TRY(tr_ckpt_check(&t->engine, t->step));
    tr_status status = TR_OK;
    for (int tries = t->config.keep ? 2 : 1; tries > 0; --tries) { /* keep has made room */
        status = begin(t, NULL);
        if (status == TR_OK) status = advance(t, true);
        if (!tr_is_agreed(status)) break;
    }
    return status;
}

tr_status tr_trainer_save_rest(struct tr_trainer *t, tr_status status)
{
    char story[2048];
    if (!t->saving || !tr_is_agreed(status)) return status;
    snprintf(story, sizeof story, "%s", tr_error());
    const tr_status ended = go_on(t, true, true);
    (void)tr_fail("%s", story);
    return ended < 0 ? ended : status;
}
