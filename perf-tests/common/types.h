/* The types and operations of the perf tests, under the names that nccl-tests prints. */
#ifndef TT_PERF_TYPES_H
#define TT_PERF_TYPES_H

#include <stdbool.h>
#include <stddef.h>

#include "tutti.h"

#define PERF_NTYPES 14
#define PERF_NOPS 12
#define PERF_ALL (-1)

struct perf_type {
    const char *name;
    tuttiDataType_t type;
    unsigned bytes;
    bool is_signed;    /* integers only */
    int exponent_bits; /* 0: an integer */
    int mantissa_bits; /* without the implicit one */
};

enum perf_op_kind {
    PERF_SUM,
    PERF_PROD,
    PERF_MAX,
    PERF_MIN,
    PERF_AVG,
    PERF_MULSUM, /* a pre-multiplied sum: scalar 2 on even ranks, 1 on odd ones */
    PERF_BAND,
    PERF_BOR,
    PERF_BXOR,
    PERF_LAND,
    PERF_LOR,
    PERF_LXOR
};

struct perf_op {
    const char *name;
    enum perf_op_kind kind;
    tuttiRedOp_t op;    /* PERF_MULSUM: unused, the handle is made by the library */
    bool integers_only; /* bitwise and logical */
};

/* In the order in which `all` runs them. */
extern const struct perf_type perf_types[PERF_NTYPES];
extern const struct perf_op perf_ops[PERF_NOPS];

/* The index of a name, PERF_ALL for "all", -2 for a name that is none. */
int perf_type_find(const char *name);
int perf_op_find(const char *name);

bool perf_op_supports(const struct perf_op *op, const struct perf_type *type);

#endif
