/* Checkpoints of a run: weights, optimizer state (the same names with .m, .v and .s, as many as the
 * optimizer keeps of the tensor), step, place in the data and options, in one file of global
 * tensors that does not depend on the layout. */
#ifndef TR_CKPT_H
#define TR_CKPT_H

#include <dirent.h>
#include <stdint.h>
#include <sys/types.h>

#include "../config.h"
#include "../engine.h"
#include "../watch/spikes.h"
#include "safetensors.h"

/* What a checkpoint holds beside tensors and options. */
struct tr_state {
    int64_t step;     /* steps done */
    uint64_t samples; /* place in the data: sequences taken by all ranks together */
    uint64_t data_checksum;
    uint64_t run;    /* a random number, the same from the first step on, also where the run is
                      * resumed; 0 in files of older versions */
    uint64_t start;  /* number of the start of the process that writes: above those of all files
                      * that were in its folder then; 0 in files of older versions */
    int64_t after;   /* step that the process went on from; not in the file */
    double held_out; /* loss after that step; NaN: not known */
    uint64_t held_out_from;  /* bytes of the data before the held-out part; 0 in files of older
                              * versions */
    struct tr_spikes spikes; /* empty in a file of an earlier version */
};

/* Makes the folder (and those above it) unless it is there, and checks that it can be written to:
 * said at the start, not after hours. One rank calls it. */
TR_NODISCARD tr_status tr_ckpt_prepare(const char *folder);
/* A random number that no other run or process has. */
uint64_t tr_ckpt_new_number(void);

/* How rank 0 keeps the folder from other runs. */
struct tr_hold {
    int folder; /* descriptor; -1: nothing is held */
    dev_t device;
    ino_t inode;    /* of the folder */
    int lock;       /* descriptor of its `.lock`; -1: it could not be locked */
    bool is_lost;   /* the lock was given up for that of a folder that was mounted again, and is not
                     * held any more */
    uint64_t owner; /* a number of this process, which saves write into `.lock` */
    int64_t unsynced; /* step of the newest checkpoint, where its name may not be on the disk: the
                       * older ones stay; 0: none */
};
#define TR_NO_HOLD                                                                                 \
    {                                                                                              \
        .folder = -1, .lock = -1                                                                   \
    }

/* Keeps other runs from writing to the folder until tr_ckpt_release, or the end of the process, by
 * a lock on its file `.lock`, which stays there. Where that is not possible, prints a note. A lock
 * removes what a killed run has left there. Fails where a file can be made but not renamed: no
 * checkpoint could get its name. One rank calls it. */
TR_NODISCARD tr_status tr_ckpt_lock(const char *folder, struct tr_hold *hold);
/* Before a save of that run: locks the folder again where its `.lock` is another file or gone,
 * makes it again where it is gone but not what was around it, and takes over another folder that
 * has its name now, if no checkpoint is in it, or it is the one that this process held, on a file
 * system that was mounted again; says so. Else fails, and *hold stays that of the folder before,
 * and is_lost where another run has locked that meanwhile: then saves fail until it can be locked.
 * `run` is this run's number. One rank calls it. */
TR_NODISCARD tr_status tr_ckpt_hold(const char *folder, uint64_t run, struct tr_hold *hold);
/* During a save: fails where the folder's name is gone, or another folder's. Locks the folder again
 * as tr_ckpt_hold. One rank calls it. */
TR_NODISCARD tr_status tr_ckpt_check_hold(const char *folder, struct tr_hold *hold);
void tr_ckpt_release(struct tr_hold *hold);
/* Fails when the disk has no room for a checkpoint, where the file system says how much it has, and
 * when the process may not write files of its size. One rank calls it. */
TR_NODISCARD tr_status tr_ckpt_check_space(const char *folder, const struct tr_store *store);
/* Fails where what has the name of that step's checkpoint could not be replaced. One rank calls it.
 */
TR_NODISCARD tr_status tr_ckpt_check_last(const char *folder, int64_t step);

/* The saves that follow. */
struct tr_saves {
    double count; /* INFINITY: not known */
    int64_t keep; /* how many stay; 0: all */
    bool keeps_best;
};
/* At the start, before the first save: prints a note where the disk has no room for the checkpoints
 * that the folder is to hold at a time. `now` as tr_ckpt_keep takes it. One rank calls it. */
void tr_ckpt_note_space(const char *folder, const struct tr_store *store,
                        const struct tr_state *now, const struct tr_saves *saves);

/* Before a save: fails when a number is not finite (what earlier checkpoints hold is worth more),
 * and when ranks that hold the same weights have different bits. Collective; no pass is under way.
 */
TR_NODISCARD tr_status tr_ckpt_check(struct tr_engine *engine, int64_t step);

/* A checkpoint that is being written. From tr_ckpt_begin until tr_ckpt_advance has ended
 * it, or tr_ckpt_give_up. */
struct tr_save;

/* Begins to write folder/step-NNNNNNNN.safetensors: each rank what it holds, to its places in the
 * file, where it sees the folder of rank 0; else rank 0 writes for it. With a snapshot, memory of
 * tr_ckpt_snapshot_bytes, a thread of a rank that sees the folder copies what it writes, and then
 * writes that: weights and optimizer state may change after tr_ckpt_wait_for_copy. One save at a
 * time. Without one (NULL), and where a rank does not see the folder, all has been written on
 * return. Every rank needs 3 MiB besides.
 * Collective, as tr_ckpt_advance. For both, a file that cannot be written (no room, say) is a
 * failure that all ranks know of (TR_AGREED, TR_ELSEWHERE): the run may go on, and save again. The
 * hold (of rank 0; NULL: no other run is about) belongs to the save until that ends. */
TR_NODISCARD tr_status tr_ckpt_begin(struct tr_engine *engine, const char *folder,
                                     struct tr_hold *hold, const struct tr_state *state,
                                     const struct tr_config *config, struct tr_arena *snapshot,
                                     struct tr_save **save);
/* Waits until this rank has copied what the save writes. */
void tr_ckpt_wait_for_copy(struct tr_save *save);
/* Bytes of the copy that this rank makes; 0 where it answers for nothing. */
TR_NODISCARD tr_status tr_ckpt_snapshot_bytes(const struct tr_engine *engine, size_t *nbytes);
/* Whether this rank's thread is at work: tr_ckpt_advance would wait for it. */
bool tr_ckpt_is_writing(const struct tr_save *save);
/* When all ranks have written: lets rank 0 give the file its name, tell it and remove what
 * config->keep does not keep; and when that is done, ends the save: *save is NULL then, as after a
 * failure, which leaves no file. */
TR_NODISCARD tr_status tr_ckpt_advance(struct tr_save **save);
/* Without the other ranks: removes the file and the save (may be NULL). */
void tr_ckpt_give_up(struct tr_save *save);

/* Removes checkpoints of this run from the folder: of those up to state->step the `keep` newest
 * stay, and of those on the same held-out data, whichever these are, the one with the least loss
 * there. Files of other runs, of older versions, of later steps, of steps behind state->after that
 * another start has written, and those that cannot be read are not counted, and stay; so are
 * links, and files whose name is not the run's own for the step that they hold. What cannot be
 * removed is told, and nothing is where the folder is not the one that is held (NULL: any is), or
 * has an `unsynced` one. One rank calls it. */
void tr_ckpt_keep(const char *folder, struct tr_hold *hold, const struct tr_state *state,
                  int64_t keep);

/* How many checkpoints of this run tr_ckpt_keep would count; 0 where the folder cannot be read. */
int tr_ckpt_count_own(const char *folder, const struct tr_state *state);

/* Whether the held-out losses of both are of the same windows, as far as is known. */
bool tr_ckpt_is_comparable(const struct tr_state *a, const struct tr_state *b);

/* The path of the step's checkpoint. Fails where it is too long. */
TR_NODISCARD tr_status tr_ckpt_path(const char *folder, int64_t step, char *path,
                                    size_t path_bytes);

/* Whether a file's name is that of a checkpoint; `rest` is a pattern (fnmatch.h) of what the name
 * has behind that. */
bool tr_ckpt_is_named(const char *name, const char *rest, long long *step);
/* The next entry of the folder; NULL at its end, or where it cannot be read: *error is what errno
 * was then, and else stays. */
const struct dirent *tr_ckpt_next(DIR *folder, int *error);
/* Whether a file's name is exactly the one that a run gives the checkpoint of that step: a step has
 * one such name only, but `step-6` and `step-06` name step 6, too. */
bool tr_ckpt_is_own_name(const char *name, long long *step);

/* What a file says of itself, without its tensors. */
TR_NODISCARD tr_status tr_ckpt_read_state(const char *path, struct tr_state *state);

/* Reads all of a file. Fails where a part of it is damaged, and where another run than *run (NULL:
 * any) has written it. Prints a note before it reads the tensors, which may take minutes. */
TR_NODISCARD tr_status tr_ckpt_read_whole(const char *path, const uint64_t *run);

/* The file that `where` (a file, or a folder whose newest checkpoint is meant) stands for. The
 * newest is that of the latest start, and of its files that of the last step; a file that cannot be
 * read counts where no other has a later step. Fails where one that cannot be read was written
 * after the newest: its start may be a later one. Errors name the option that has that value. */
TR_NODISCARD tr_status tr_ckpt_find(const char *option, const char *where, char *path,
                                    size_t path_bytes);

/* Looks at the checkpoints of the folder: *start becomes their latest start, unless it is above
 * that, name[NAME_MAX + 1] that of the newest which another run has written ("": none is known),
 * and *last the last step of the run's own (-1: there are none). */
void tr_ckpt_survey(const char *folder, uint64_t run, uint64_t *start, char *name, int64_t *last);

/* To the error of a checkpoint that can be opened but not read adds the newest one of its folder,
 * by start and then by step, that is of an earlier step and whole, as a value of the option, and of
 * the same run where the checkpoint still says which that is. Reads files for that. Returns
 * `status`. */
tr_status tr_ckpt_propose_older(const char *option, const char *path, tr_status status);

/* Opens a checkpoint of tutti-train; tr_safetensors_close it. What is read of it is of this file,
 * also where its name becomes another one's, or goes. */
TR_NODISCARD tr_status tr_ckpt_open(const char *path, struct tr_safetensors **file);

/* The options the checkpoint was written with, as JSON; free() it. */
TR_NODISCARD tr_status tr_ckpt_read_options(const struct tr_safetensors *file, char **options);

/* Fills the store and the state from the file of rank 0; others pass NULL. The error of a damaged
 * file proposes an older one, as a value of the option. Collective. */
TR_NODISCARD tr_status tr_ckpt_load(struct tr_engine *engine, const char *option,
                                    const struct tr_safetensors *file, struct tr_state *state);

#endif
