/* Every pair of type and operation that is defined, and the kernel that computes it:
 * X(type, operation, kernel). The includer defines X. Kernels are static functions of each
 * reduce_<isa>.c, made by fold_native.h (integers, double: folded in the type itself) and
 * fold_float.h (folded in fp32). Where signedness makes no difference a width has one kernel. */
#define TT_ROWS_INTEGER(type, own, width)                                                          \
    X(type, SUM, width##_sum)                                                                      \
    X(type, PROD, width##_prod)                                                                    \
    X(type, MAX, own##_max)                                                                        \
    X(type, MIN, own##_min)                                                                        \
    X(type, AVG, own##_avg)                                                                        \
    X(type, PREMUL_SUM, width##_scaled_sum)                                                        \
    X(type, BIT_AND, width##_bit_and)                                                              \
    X(type, BIT_OR, width##_bit_or)                                                                \
    X(type, BIT_XOR, width##_bit_xor)                                                              \
    X(type, LOGICAL_AND, width##_logical_and)                                                      \
    X(type, LOGICAL_OR, width##_logical_or)                                                        \
    X(type, LOGICAL_XOR, width##_logical_xor)
#define TT_ROWS_FLOAT(type, own)                                                                   \
    X(type, SUM, own##_sum)                                                                        \
    X(type, PROD, own##_prod)                                                                      \
    X(type, MAX, own##_max)                                                                        \
    X(type, MIN, own##_min)                                                                        \
    X(type, AVG, own##_avg)                                                                        \
    X(type, PREMUL_SUM, own##_scaled_sum)

TT_ROWS_INTEGER(INT8, i8, u8)
TT_ROWS_INTEGER(UINT8, u8, u8)
TT_ROWS_INTEGER(INT16, i16, u16)
TT_ROWS_INTEGER(UINT16, u16, u16)
TT_ROWS_INTEGER(INT32, i32, u32)
TT_ROWS_INTEGER(UINT32, u32, u32)
TT_ROWS_INTEGER(INT64, i64, u64)
TT_ROWS_INTEGER(UINT64, u64, u64)
TT_ROWS_FLOAT(FLOAT64, f64)
TT_ROWS_FLOAT(FLOAT32, f32)
TT_ROWS_FLOAT(FLOAT16, f16)
TT_ROWS_FLOAT(BFLOAT16, bf16)
TT_ROWS_FLOAT(FLOAT8E4M3, e4m3)
TT_ROWS_FLOAT(FLOAT8E5M2, e5m2)

#undef TT_ROWS_INTEGER
#undef TT_ROWS_FLOAT
