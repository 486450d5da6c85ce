/* Tests of the table of types and of which operations go with them. */
#include "datatype/datatype.h"

#include <limits.h>

#include "shim.h"

TEST(types, sizes_and_names_are_those_of_the_contract)
{
    const struct {
        enum tt_type type;
        int size;
        const char *name;
    } rows[] = {
        {TT_INT8, 1, "int8"},         {TT_UINT8, 1, "uint8"},       {TT_INT32, 4, "int32"},
        {TT_UINT32, 4, "uint32"},     {TT_INT64, 8, "int64"},       {TT_UINT64, 8, "uint64"},
        {TT_FLOAT16, 2, "half"},      {TT_FLOAT32, 4, "float"},     {TT_FLOAT64, 8, "double"},
        {TT_BFLOAT16, 2, "bfloat16"}, {TT_FLOAT8E4M3, 1, "f8e4m3"}, {TT_FLOAT8E5M2, 1, "f8e5m2"},
        {TT_INT16, 2, "int16"},       {TT_UINT16, 2, "uint16"},
    };
    CHECK_EQ(sizeof rows / sizeof rows[0], TT_NTYPES);
    for (int i = 0; i < TT_NTYPES; i++) {
        CHECK_EQ(rows[i].type, i);
        CHECK_EQ(tt_type_size(rows[i].type), rows[i].size);
        CHECK_STR(tt_type_name(rows[i].type), rows[i].name);
    }
}

TEST(types, values_that_are_no_type_or_operation_are_told_apart)
{
    const int wrong[] = {-1, TT_NTYPES, 6, 15, TT_NOPS, 255, 256, INT_MIN, INT_MAX};
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        const bool is_type = wrong[i] >= 0 && wrong[i] < TT_NTYPES;
        CHECK_EQ(tt_type_size((enum tt_type)wrong[i]) != 0, is_type);
        CHECK_EQ(tt_type_name((enum tt_type)wrong[i])[0] != '?', is_type);
        CHECK(!tt_op_supports(TT_SUM, (enum tt_type)wrong[i]) || is_type);
        CHECK(!tt_op_supports((enum tt_op)wrong[i], TT_INT32));
    }
    for (int op = TT_PREMUL_SUM + 1; op < TT_BIT_AND; op++) {
        CHECK_STR(tt_op_name((enum tt_op)op), "?");
        for (int type = 0; type < TT_NTYPES; type++)
            CHECK(!tt_op_supports((enum tt_op)op, (enum tt_type)type));
    }
    CHECK_STR(tt_op_name((enum tt_op) - 1), "?");
    CHECK_STR(tt_op_name(TT_NOPS), "?");
}

TEST(types, bitwise_and_logical_operations_need_an_integer)
{
    const char *names[TT_NOPS] = {"sum", "prod", "max", "min", "avg", "mulsum"};
    names[TT_BIT_AND] = "band";
    names[TT_BIT_OR] = "bor";
    names[TT_BIT_XOR] = "bxor";
    names[TT_LOGICAL_AND] = "land";
    names[TT_LOGICAL_OR] = "lor";
    names[TT_LOGICAL_XOR] = "lxor";
    for (int op = 0; op < TT_NOPS; op++) {
        CHECK_STR(tt_op_name((enum tt_op)op), names[op] ? names[op] : "?");
        for (int type = 0; type < TT_NTYPES; type++) {
            const bool is_float = type >= TT_FLOAT16 && type <= TT_FLOAT8E5M2;
            const bool expected = names[op] && (op < TT_BIT_AND || !is_float);
            CHECK_EQ(tt_op_supports((enum tt_op)op, (enum tt_type)type), expected);
        }
    }
}
