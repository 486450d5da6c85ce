/* The tables of types and operations, by name. */
#include "common/types.h"

#include <string.h>

const struct perf_type perf_types[PERF_NTYPES] = {
    {"int8", tuttiInt8, 1, true, 0, 0},         {"uint8", tuttiUint8, 1, false, 0, 0},
    {"int16", tuttiInt16, 2, true, 0, 0},       {"uint16", tuttiUint16, 2, false, 0, 0},
    {"int32", tuttiInt32, 4, true, 0, 0},       {"uint32", tuttiUint32, 4, false, 0, 0},
    {"int64", tuttiInt64, 8, true, 0, 0},       {"uint64", tuttiUint64, 8, false, 0, 0},
    {"half", tuttiFloat16, 2, true, 5, 10},     {"float", tuttiFloat32, 4, true, 8, 23},
    {"double", tuttiFloat64, 8, true, 11, 52},  {"bfloat16", tuttiBfloat16, 2, true, 8, 7},
    {"f8e4m3", tuttiFloat8e4m3, 1, true, 4, 3}, {"f8e5m2", tuttiFloat8e5m2, 1, true, 5, 2},
};

const struct perf_op perf_ops[PERF_NOPS] = {
    {"sum", PERF_SUM, tuttiSum, false},      {"prod", PERF_PROD, tuttiProd, false},
    {"max", PERF_MAX, tuttiMax, false},      {"min", PERF_MIN, tuttiMin, false},
    {"avg", PERF_AVG, tuttiAvg, false},      {"mulsum", PERF_MULSUM, tuttiSum, false},
    {"band", PERF_BAND, tuttiBitAnd, true},  {"bor", PERF_BOR, tuttiBitOr, true},
    {"bxor", PERF_BXOR, tuttiBitXor, true},  {"land", PERF_LAND, tuttiLogicalAnd, true},
    {"lor", PERF_LOR, tuttiLogicalOr, true}, {"lxor", PERF_LXOR, tuttiLogicalXor, true},
};

int perf_type_find(const char *name)
{
    if (strcmp(name, "all") == 0) return PERF_ALL;
    for (int i = 0; i < PERF_NTYPES; i++) {
        if (strcmp(name, perf_types[i].name) == 0) return i;
    }
    return -2;
}

int perf_op_find(const char *name)
{
    if (strcmp(name, "all") == 0) return PERF_ALL;
    for (int i = 0; i < PERF_NOPS; i++) {
        if (strcmp(name, perf_ops[i].name) == 0) return i;
    }
    return -2;
}

bool perf_op_supports(const struct perf_op *op, const struct perf_type *type)
{
    return !op->integers_only || type->exponent_bits == 0;
}
