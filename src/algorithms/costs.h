/* The constants of the cost model, and the file that replaces them (TUTTI_COST_FILE). */
#ifndef TT_ALGORITHMS_COSTS_H
#define TT_ALGORITHMS_COSTS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"

enum tt_cost_key {
    TT_COST_LINK,
    TT_COST_LINK_ONE_WAY,
    TT_COST_MEETING,
    TT_COST_MEETING_RANK,
    TT_COST_TURN_LINK,
    TT_COST_TURN_MEETING,
    TT_COST_STEP,
    TT_COST_ACTION,
    TT_COST_BYTE_SENT,
    TT_COST_BYTE_LONG,
    TT_COST_BYTE_PUT,
    TT_COST_BYTE_REDUCED,
    TT_COST_BYTE_RESULT,
    TT_COST_NET_LINK,
    TT_COST_NET_MESSAGE,
    TT_COST_NET_BYTE,
    TT_COST_NET_CREDIT,
    TT_NCOSTS
};

/* Plain data; the texts are static. */
struct tt_costs {
    struct tt_cost {
        const char *name;   /* NULL: this set has no such constant */
        double value;       /* microseconds, or microseconds a byte */
        const char *source; /* what it is, and where it was measured */
    } at[TT_NCOSTS];
};

/* The constants of the host for a machine that nobody has measured, and those of GPUs
 * (enum tt_gpu_protocol) and of their bridges to other hosts (enum tt_bridge_way), which no file
 * replaces. */
extern const struct tt_costs tt_shipped_costs, tt_gpu_costs[], tt_bridge_costs[];

/* The shipped constants. fast_rep_movsb: for ranks whose CPUs all have tt_has_fast_rep_movsb. */
struct tt_costs tt_costs_shipped(bool fast_rep_movsb);

/* Whether a constant is of messages between hosts, which the ranks of one host cannot measure. */
bool tt_cost_is_between_hosts(enum tt_cost_key key);

/* Differs where any value differs, but for one of 4 billion cases. */
uint32_t tt_costs_checksum(const struct tt_costs *costs);

/* The constants line by line for tutti-info, with the shipped value where it is another. */
void tt_costs_describe(const struct tt_costs *costs, const struct tt_costs *shipped,
                       void (*emit)(void *arg, const char *line), void *arg);

/* ---- The file ------------------------------------------------------------------------------- */

/* A file of constants is text: a line `name = microseconds` for each that differs from the shipped
 * one; '#' begins a comment. */
enum { TT_COST_LINE = 256, TT_COST_FILE_BYTES = 1 << 16 };

/* Reads the file at `path` over the shipped constants; path "": the shipped ones. TT_ERR_ARGUMENT
 * names file, line and what was expected: for a file that is missing, no regular file, larger than
 * TT_COST_FILE_BYTES or another user's to write, and for a line that is too long, has no known
 * name, a name that was there before, or a value that is not above 0 and at most a second. */
TT_NODISCARD tt_status tt_costs_read(const char *path, struct tt_costs *costs);

/* Calls emit for each line of a file with these constants, without newline. The process's locale
 * must have a decimal point. */
void tt_costs_print(const struct tt_costs *costs, void (*emit)(void *arg, const char *line),
                    void *arg);

#endif
