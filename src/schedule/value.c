/* Symbolic values: combines and compares sets of contributions. */
#include "schedule/value.h"

#include <stdio.h>

enum { EXACT_RANKS = 64 };

/* The n-th of a sequence of random numbers (splitmix64). */
static uint64_t random_number(uint64_t n)
{
    uint64_t x = n * 0x9e3779b97f4a7c15u + 0x3243f6a8885a308du;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

struct tt_value tt_value_own(int nranks, int rank, int block)
{
    struct tt_value value = {.number = 1, .block = block, .first = rank};
    if (nranks <= EXACT_RANKS) {
        value.set[0] = (uint64_t)1 << rank;
    } else {
        value.set[0] = random_number(2 * (uint64_t)rank);
        value.set[1] = random_number(2 * (uint64_t)rank + 1);
    }
    return value;
}

static int lowest(uint64_t mask)
{
    return __builtin_ctzll(mask);
}

const char *tt_value_fold(struct tt_value *value, const struct tt_value *other, int nranks,
                          char *text, size_t size)
{
    if (value->block != other->block) {
        snprintf(text, size, "reduces block %d with block %d", value->block, other->block);
        return text;
    }
    if (value->finished || other->finished) {
        snprintf(text, size, "reduces block %d, which is finished already", value->block);
        return text;
    }
    if (nranks <= EXACT_RANKS && (value->set[0] & other->set[0])) {
        snprintf(text, size, "counts the contribution of rank %d to block %d twice",
                 lowest(value->set[0] & other->set[0]), value->block);
        return text;
    }
    const bool is_next = value->first >= 0 && other->number == 1 &&
                         other->first == value->first + (int32_t)value->number;
    if (!is_next) value->first = -1;
    value->set[0] += other->set[0];
    value->set[1] += other->set[1];
    value->number += other->number;
    return NULL;
}

void tt_value_leave_step(struct tt_value *value)
{
    if (value->number > 1 && !value->finished) value->first = -1;
}

bool tt_value_in_rank_order(const struct tt_value *value, int nranks)
{
    return value->first == 0 && value->number == (uint32_t)nranks;
}

struct tt_value tt_value_full(int nranks)
{
    struct tt_value full = {.number = (uint32_t)nranks};
    for (int rank = 0; rank < nranks; rank++) {
        const struct tt_value own = tt_value_own(nranks, rank, 0);
        full.set[0] += own.set[0];
        full.set[1] += own.set[1];
    }
    return full;
}

const char *tt_value_incomplete(const struct tt_value *value, const struct tt_value *full,
                                int nranks, char *text, size_t size)
{
    if (value->set[0] == full->set[0] && value->set[1] == full->set[1]) return NULL;
    if (nranks <= EXACT_RANKS)
        snprintf(text, size, "lacks the contribution of rank %d",
                 lowest(full->set[0] & ~value->set[0]));
    else if (value->number != (uint32_t)nranks)
        snprintf(text, size, "holds %u contributions of %d ranks", value->number, nranks);
    else
        snprintf(text, size, "holds one contribution twice and lacks another");
    return text;
}

bool tt_value_equal(const struct tt_value *a, const struct tt_value *b)
{
    return a->set[0] == b->set[0] && a->set[1] == b->set[1] && a->number == b->number &&
           a->block == b->block && a->finished == b->finished;
}

static int only_contributor(const struct tt_value *value, int nranks)
{
    if (nranks <= EXACT_RANKS) return lowest(value->set[0]);
    for (int rank = 0; rank < nranks; rank++)
        if (value->set[0] == random_number(2 * (uint64_t)rank)) return rank;
    return -1;
}

void tt_value_describe(const struct tt_value *value, int nranks, char *text, size_t size)
{
    if (value->number == 1)
        snprintf(text, size, "block %d of rank %d", value->block, only_contributor(value, nranks));
    else
        snprintf(text, size, "block %d of %u ranks", value->block, value->number);
}
