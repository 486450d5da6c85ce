/* Sizes and names of the data types, names of the operations. */
#include "datatype/datatype.h"

static const struct {
    const char *name;
    size_t size;
} types[TT_NTYPES] = {
    [TT_INT8] = {"int8", 1},         [TT_UINT8] = {"uint8", 1},       [TT_INT16] = {"int16", 2},
    [TT_UINT16] = {"uint16", 2},     [TT_INT32] = {"int32", 4},       [TT_UINT32] = {"uint32", 4},
    [TT_INT64] = {"int64", 8},       [TT_UINT64] = {"uint64", 8},     [TT_FLOAT16] = {"half", 2},
    [TT_BFLOAT16] = {"bfloat16", 2}, [TT_FLOAT32] = {"float", 4},     [TT_FLOAT64] = {"double", 8},
    [TT_FLOAT8E4M3] = {"f8e4m3", 1}, [TT_FLOAT8E5M2] = {"f8e5m2", 1},
};

static const char *const op_names[TT_NOPS] = {
    [TT_SUM] = "sum",          [TT_PROD] = "prod",      [TT_MAX] = "max",
    [TT_MIN] = "min",          [TT_AVG] = "avg",        [TT_PREMUL_SUM] = "mulsum",
    [TT_BIT_AND] = "band",     [TT_BIT_OR] = "bor",     [TT_BIT_XOR] = "bxor",
    [TT_LOGICAL_AND] = "land", [TT_LOGICAL_OR] = "lor", [TT_LOGICAL_XOR] = "lxor",
};

static const bool supported[TT_NTYPES][TT_NOPS] = {
#define X(type, op, kernel) [TT_##type][TT_##op] = true,
#include "datatype/kernel_table.h"
#undef X
};

/* Users pass any int as an enum, so both ends of the range are checked. */
static bool is_type(enum tt_type type)
{
    return (int)type >= 0 && (int)type < TT_NTYPES;
}

static bool is_op(enum tt_op op)
{
    return (int)op >= 0 && (int)op < TT_NOPS && op_names[op];
}

size_t tt_type_size(enum tt_type type)
{
    return is_type(type) ? types[type].size : 0;
}

const char *tt_type_name(enum tt_type type)
{
    return is_type(type) ? types[type].name : "?";
}

const char *tt_op_name(enum tt_op op)
{
    return is_op(op) ? op_names[op] : "?";
}

bool tt_op_supports(enum tt_op op, enum tt_type type)
{
    return is_type(type) && is_op(op) && supported[type][op];
}
