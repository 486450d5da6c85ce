/* Symbolic memory and messages of all ranks, shared by verify's files. */
#ifndef TT_SCHEDULE_SYMBOLIC_H
#define TT_SCHEDULE_SYMBOLIC_H

#include "schedule/direct.h"
#include "schedule/network.h"
#include "schedule/value.h"

/* One block of OUTPUT, or one slot of SCRATCH, of the channel that runs. INPUT needs none: it is
 * never written but through OUTPUT when it is the same memory. */
struct tt_cell {
    struct tt_value value; /* number 0: nothing written yet */
    struct tt_references *references;
    int32_t name, step;             /* as what it was written last, and in which step */
    uint32_t read_mark, write_mark; /* the last action that touched it */
    int32_t read_at;                /* at which place of its span */
    uint32_t own_done; /* steps that its rank has done when none that touched it goes on */
};

struct tt_rank_memory {
    struct tt_cell *output, *scratch;
    int first_output, noutput, nscratch;
    struct tt_clock *clock;
};

struct tt_named_value {
    struct tt_value value;
    int32_t name; /* which says how long it is */
};

/* Owned by the links and receivers it is on the way to. */
struct tt_parcel {
    int32_t nreceivers, number, sender, step;
    int32_t last_done; /* the sender's last step that is done when this arrives; -1: none */
    struct tt_clock *clock;
    struct tt_reference *reference; /* NULL: copied at the send */
    struct tt_named_value blocks[];
};

/* The execution of one channel. Owned by verify. */
struct tt_symbolic {
    const struct tt_steps *steps;
    const struct tt_shape *shape;
    struct tt_geometry geometry;
    bool uneven; /* no two blocks have the same length, unless the geometry says how long each is */
    int channel;
    bool in_place;
    bool clocks;       /* keep clocks */
    bool needs_clocks; /* memory that was in use is written; only clocks tell whether too early */
    uint32_t action;   /* number of the step being done, of all ranks' */
    struct tt_value full;
    struct tt_rank_memory *ranks;
    struct tt_named_value *result; /* of the step being done, [nblocks] */
    struct tt_arena arena;         /* cells, references */
    char *pool;                    /* small pieces of the arena */
    size_t pool_left;
    struct tt_verify_report *report;
};

/* The step being done. */
struct tt_action {
    int rank, index;
    const struct tt_step *step;
};

TT_NODISCARD tt_status tt_symbolic_init(struct tt_symbolic *run);
void tt_symbolic_fini(struct tt_symbolic *run);

/* Records the violation: "rank 3 channel 0 step 5: ..."; index < 0: no step. Returns TT_ERR_USAGE.
 */
tt_status tt_symbolic_refute(struct tt_symbolic *run, int rank, int index, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
tt_status tt_symbolic_no_memory(void);

/* Whether the blocks of two names have the same length. */
bool tt_symbolic_same_length(struct tt_symbolic *run, int name, int other);

/* The i-th block of the span. */
TT_NODISCARD tt_status tt_symbolic_read(struct tt_symbolic *run, const struct tt_action *action,
                                        const struct tt_span *span, int i, struct tt_value *value);
/* The value completed, as step->finish wants it, and stored in the i-th block of step->dst, if any.
 */
TT_NODISCARD tt_status tt_symbolic_write(struct tt_symbolic *run, const struct tt_action *action,
                                         int i, struct tt_value *value);
/* *value reduced with other. */
TT_NODISCARD tt_status tt_symbolic_fold(struct tt_symbolic *run, const struct tt_action *action,
                                        struct tt_value *value, const struct tt_value *other);
/* The cells of step->dst (or step->local, where that is what is sent) will be read by the receivers
 * of *parcel. */
TT_NODISCARD tt_status tt_symbolic_refer(struct tt_symbolic *run, const struct tt_action *action,
                                         struct tt_parcel *parcel);

/* The action takes one message and only stores it: whether its sender might have written the i-th
 * block of step->dst itself, in the step in which it sent *parcel. Otherwise report->post_safe
 * becomes false. Before tt_symbolic_write. */
void tt_symbolic_post(struct tt_symbolic *run, const struct tt_action *action,
                      const struct tt_parcel *parcel, int i);

/* Network operation: all members do their steps. */
TT_NODISCARD tt_status tt_symbolic_meet(void *arg, const struct tt_network *network,
                                        const struct tt_peers *members);

#endif
