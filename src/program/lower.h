/* Making programs: lowering a schedule, binding a program to a count, and raising a program back to
 * the steps of a schedule, so that the program itself can be proved. */
#ifndef TT_PROGRAM_LOWER_H
#define TT_PROGRAM_LOWER_H

#include "base/status.h"
#include "program/program.h"
#include "schedule/schedule.h"

/* Lowers a schedule, whose steps were checked when it was created. The program is freed by free().
 * TT_ERR_SYSTEM without memory. */
TT_NODISCARD tt_status tt_program_lower(const struct tt_schedule *schedule,
                                        struct tt_program **program);

/* Lowers the schedule of an algorithm, which is made in between: errors as tt_schedule_create. */
TT_NODISCARD tt_status tt_program_create(const struct tt_algorithm *algorithm,
                                         const struct tt_shape *shape, int rank,
                                         struct tt_program **program);

/* What limits a binding: the bytes of a slot and of a place of a meeting, and the channels. */
struct tt_limits {
    size_t slot_bytes, meet_bytes;
    int copies;          /* most copies of the program that there are channels for; 0: as 1 */
    size_t slot_setting; /* the setting's bytes of a slot, of which a host with many ranks has less;
                          * 0: the same */
    bool of_gpus; /* the setting is TUTTI_DEVICE_SLOT_BYTES, for meetings too; else TUTTI_SLOT_BYTES
                   * and TUTTI_MEET_BYTES */
};

/* Binds a program to calls of `count` elements of `element` bytes. TT_ERR_USAGE when one element a
 * block of a message does not fit a slot, or a place of a meeting: names the setting, its value and
 * the least that works. The binding is the same on every rank, and so is its number of copies: both
 * follow from the limits, the count, the element and what the programs of all ranks have in common.
 */
TT_NODISCARD tt_status tt_program_bind(const struct tt_program *program, size_t count,
                                       size_t element, const struct tt_limits *limits,
                                       struct tt_binding *binding);

/* What the ranks of a call have of their own. */
struct tt_counts {
    const size_t *counts; /* [nblocks] elements; the same on every rank */
    const size_t *begins; /* [nblocks] elements, where the blocks begin in this rank's buffer that
                           * holds all of them; NULL: one block follows the other */
};

/* Binds a program to a count for each block. The binding with its table is one block of memory,
 * freed by free(). Not for programs that split the count. TT_ERR_SYSTEM without memory. */
TT_NODISCARD tt_status tt_program_bind_counts(const struct tt_program *program,
                                              const struct tt_counts *counts, size_t element,
                                              const struct tt_limits *limits,
                                              struct tt_binding **binding);

/* What the program's steps are raised with. A raised step points into `peers` and the program. */
struct tt_raised {
    const struct tt_program *program; /* borrowed */
    const struct tt_hosts *hosts;     /* of the shape; NULL: one host. Borrowed */
    int32_t *peers;                   /* [nlinks]: of the table of links. Owned */
};
/* Makes room for the peers. Freed by tt_raised_fini. TT_ERR_SYSTEM without memory. */
TT_NODISCARD tt_status tt_raised_init(struct tt_raised *raised, const struct tt_program *program,
                                      const struct tt_hosts *hosts);
/* Takes the peers from the program as it is now: before tt_raise, and after the program was
 * checked.
 */
void tt_raised_fill(const struct tt_raised *raised);
void tt_raised_fini(struct tt_raised *raised);
void tt_raise(const struct tt_raised *raised, int channel, int index, struct tt_step *step);

#endif
