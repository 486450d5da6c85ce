/* Folds of integers in words of 32 bits (64 for the 8-byte types), with the results of
 * datatype/fold_native.h: sums and products wrap around, an average is truncated towards zero, a
 * logical result is 0 or 1. fold.cuh says what a fold is. */
#ifndef TT_DEVICE_KERNEL_FOLD_INTEGER_CUH
#define TT_DEVICE_KERNEL_FOLD_INTEGER_CUH

#include <stdint.h>

#include "device/kernel/fold.h"

/* ---- Words as elements of one width ------------------------------------------------------- */

struct tt_u8 {
    typedef uint32_t word;
    enum { SIZE = 1 };
    static __device__ word splat(uint64_t scalar)
    {
        return (uint32_t)(uint8_t)scalar * 0x01010101u;
    }
    static __device__ word add(word a, word b)
    {
        return __vadd4(a, b);
    }
    static __device__ word mul(word a, word b)
    {
        const word low = __byte_perm(a * b, (a >> 8) * (b >> 8), 0x0040);
        const word high = __byte_perm((a >> 16) * (b >> 16), (a >> 24) * (b >> 24), 0x0040);
        return __byte_perm(low, high, 0x5410);
    }
    static __device__ word truth(word a)
    {
        const word low = 0x7f7f7f7f;
        return ((((a & low) + low) | a) >> 7) & 0x01010101;
    }
};

struct tt_u16 {
    typedef uint32_t word;
    enum { SIZE = 2 };
    static __device__ word splat(uint64_t scalar)
    {
        return (uint32_t)(uint16_t)scalar * 0x00010001u;
    }
    static __device__ word add(word a, word b)
    {
        return __vadd2(a, b);
    }
    static __device__ word mul(word a, word b)
    {
        return __byte_perm(a * b, (a >> 16) * (b >> 16), 0x5410);
    }
    static __device__ word truth(word a)
    {
        const word low = 0x7fff7fff;
        return ((((a & low) + low) | a) >> 15) & 0x00010001;
    }
};

/* Elements of a word each. */
template <class WORD> struct tt_whole {
    typedef WORD word;
    enum { SIZE = sizeof(WORD) };
    static __device__ word splat(uint64_t scalar)
    {
        return (word)scalar;
    }
    static __device__ word add(word a, word b)
    {
        return a + b;
    }
    static __device__ word mul(word a, word b)
    {
        return a * b;
    }
    static __device__ word truth(word a)
    {
        return a != 0;
    }
};
typedef tt_whole<uint32_t> tt_u32;
typedef tt_whole<uint64_t> tt_u64;

/* ---- What depends on signedness ------------------------------------------------------------ */

/* What an element is divided by. Of elements of at most 16 bits the quotient is the upper half of
 * element x reciprocal: the reciprocal is too large by at most n / 2^32 of 1 / n, which is less
 * than what a quotient lacks to the next integer. n >= 2. */
struct tt_divisor {
    uint32_t n, reciprocal;
};

static __device__ inline tt_divisor tt_divisor_of(uint32_t n)
{
    const tt_divisor divisor = {n, 0xffffffffu / n + 1};
    return divisor;
}

static __device__ inline uint32_t tt_quotient(uint32_t a, tt_divisor by)
{
    return __umulhi(a, by.reciprocal);
}

static __device__ inline uint32_t tt_quotient(int32_t a, tt_divisor by)
{
    const uint32_t magnitude = __umulhi((uint32_t)abs(a), by.reciprocal);
    return a < 0 ? 0 - magnitude : magnitude;
}

/* The quotients of the elements of a word, ELEMENT by ELEMENT; WIDE is int32_t or uint32_t. */
template <class ELEMENT, class WIDE>
static __device__ inline uint32_t tt_quotients(uint32_t a, tt_divisor by)
{
    constexpr unsigned BITS = 8 * sizeof(ELEMENT);
    uint32_t all = 0;
#pragma unroll
    for (unsigned at = 0; at < 32; at += BITS)
        all |= (tt_quotient((WIDE)(ELEMENT)(a >> at), by) & ((1u << BITS) - 1)) << at;
    return all;
}

struct tt_own_u8 : tt_u8 {
    static __device__ word greater(word a, word b)
    {
        return __vmaxu4(a, b);
    }
    static __device__ word less(word a, word b)
    {
        return __vminu4(a, b);
    }
    static __device__ word quotient(word a, tt_divisor by)
    {
        return tt_quotients<uint8_t, uint32_t>(a, by);
    }
};

struct tt_own_i8 : tt_u8 {
    static __device__ word greater(word a, word b)
    {
        return __vmaxs4(a, b);
    }
    static __device__ word less(word a, word b)
    {
        return __vmins4(a, b);
    }
    static __device__ word quotient(word a, tt_divisor by)
    {
        return tt_quotients<int8_t, int32_t>(a, by);
    }
};

struct tt_own_u16 : tt_u16 {
    static __device__ word greater(word a, word b)
    {
        return __vmaxu2(a, b);
    }
    static __device__ word less(word a, word b)
    {
        return __vminu2(a, b);
    }
    static __device__ word quotient(word a, tt_divisor by)
    {
        return tt_quotients<uint16_t, uint32_t>(a, by);
    }
};

struct tt_own_i16 : tt_u16 {
    static __device__ word greater(word a, word b)
    {
        return __vmaxs2(a, b);
    }
    static __device__ word less(word a, word b)
    {
        return __vmins2(a, b);
    }
    static __device__ word quotient(word a, tt_divisor by)
    {
        return tt_quotients<int16_t, int32_t>(a, by);
    }
};

/* ELEMENT is as wide as the word. */
template <class WORD, class ELEMENT> struct tt_own : tt_whole<WORD> {
    typedef WORD word;
    static __device__ word greater(word a, word b)
    {
        return (ELEMENT)a > (ELEMENT)b ? a : b;
    }
    static __device__ word less(word a, word b)
    {
        return (ELEMENT)a < (ELEMENT)b ? a : b;
    }
    static __device__ word quotient(word a, tt_divisor by)
    {
        return (word)((ELEMENT)a / (ELEMENT)by.n);
    }
};
typedef tt_own<uint32_t, uint32_t> tt_own_u32;
typedef tt_own<uint32_t, int32_t> tt_own_i32;
typedef tt_own<uint64_t, uint64_t> tt_own_u64;
typedef tt_own<uint64_t, int64_t> tt_own_i64;

/* ---- The folds ------------------------------------------------------------------------------ */

/* A fold whose accumulator is the word, and that changes neither the first word nor the last. */
template <class WIDTH> struct tt_integer_fold {
    typedef typename WIDTH::word word;
    typedef word acc;
    enum { SIZE = WIDTH::SIZE, OFTEN = 0, HEAVY = 0, SCALES = 0, CALLS = 0 };
    __device__ tt_integer_fold(const tt_fold &) {}
    __device__ acc begin(word a) const
    {
        return a;
    }
    __device__ word end(acc a) const
    {
        return a;
    }
};

template <class WIDTH> struct tt_sum : tt_integer_fold<WIDTH> {
    typedef typename WIDTH::word word;
    enum { OFTEN = 1 };
    __device__ tt_sum(const tt_fold &fold) : tt_integer_fold<WIDTH>(fold) {}
    __device__ word add(word a, word b) const
    {
        return WIDTH::add(a, b);
    }
};

template <class WIDTH> struct tt_prod : tt_integer_fold<WIDTH> {
    typedef typename WIDTH::word word;
    enum { HEAVY = WIDTH::SIZE == 1 };
    __device__ tt_prod(const tt_fold &fold) : tt_integer_fold<WIDTH>(fold) {}
    __device__ word add(word a, word b) const
    {
        return WIDTH::mul(a, b);
    }
};

template <class WIDTH> struct tt_scaled_sum : tt_sum<WIDTH> {
    typedef typename WIDTH::word word;
    enum { OFTEN = 0, SCALES = 1 };
    word scalar;
    __device__ tt_scaled_sum(const tt_fold &fold)
        : tt_sum<WIDTH>(fold), scalar(WIDTH::splat(fold.scalar))
    {
    }
    __device__ word scale(word a) const
    {
        return WIDTH::mul(a, scalar);
    }
};

template <class OWN> struct tt_average : tt_sum<OWN> {
    typedef typename OWN::word word;
    enum { OFTEN = 0 };
    tt_divisor divisor;
    __device__ tt_average(const tt_fold &fold)
        : tt_sum<OWN>(fold), divisor(tt_divisor_of(fold.nranks))
    {
    }
    __device__ word end(word a) const
    {
        return OWN::quotient(a, divisor);
    }
};

template <class OWN> struct tt_greatest : tt_integer_fold<OWN> {
    typedef typename OWN::word word;
    __device__ tt_greatest(const tt_fold &fold) : tt_integer_fold<OWN>(fold) {}
    __device__ word add(word a, word b) const
    {
        return OWN::greater(a, b);
    }
};

template <class OWN> struct tt_least : tt_integer_fold<OWN> {
    typedef typename OWN::word word;
    __device__ tt_least(const tt_fold &fold) : tt_integer_fold<OWN>(fold) {}
    __device__ word add(word a, word b) const
    {
        return OWN::less(a, b);
    }
};

template <int OP> static __device__ inline uint32_t tt_combine(uint32_t a, uint32_t b)
{
    if (OP == TT_BIT_AND || OP == TT_LOGICAL_AND) return a & b;
    return OP == TT_BIT_OR || OP == TT_LOGICAL_OR ? a | b : a ^ b;
}

/* Of all integer types: bits have no width. */
template <int OP> struct tt_bitwise : tt_integer_fold<tt_u8> {
    __device__ tt_bitwise(const tt_fold &fold) : tt_integer_fold<tt_u8>(fold) {}
    __device__ word add(word a, word b) const
    {
        return tt_combine<OP>(a, b);
    }
};

/* Each element is 0 or 1 as soon as it is read. */
template <class WIDTH, int OP> struct tt_logical : tt_integer_fold<WIDTH> {
    typedef typename WIDTH::word word;
    __device__ tt_logical(const tt_fold &fold) : tt_integer_fold<WIDTH>(fold) {}
    __device__ word begin(word a) const
    {
        return WIDTH::truth(a);
    }
    __device__ word add(word a, word b) const
    {
        return tt_combine<OP>((uint32_t)a, (uint32_t)WIDTH::truth(b));
    }
};

/* The names of datatype/kernel_table.h. */
#define TT_FOLDS_OF_WIDTH(width)                                                                   \
    typedef tt_sum<tt_##width> tt_fold_##width##_sum;                                              \
    typedef tt_prod<tt_##width> tt_fold_##width##_prod;                                            \
    typedef tt_scaled_sum<tt_##width> tt_fold_##width##_scaled_sum;                                \
    typedef tt_bitwise<TT_BIT_AND> tt_fold_##width##_bit_and;                                      \
    typedef tt_bitwise<TT_BIT_OR> tt_fold_##width##_bit_or;                                        \
    typedef tt_bitwise<TT_BIT_XOR> tt_fold_##width##_bit_xor;                                      \
    typedef tt_logical<tt_##width, TT_LOGICAL_AND> tt_fold_##width##_logical_and;                  \
    typedef tt_logical<tt_##width, TT_LOGICAL_OR> tt_fold_##width##_logical_or;                    \
    typedef tt_logical<tt_##width, TT_LOGICAL_XOR> tt_fold_##width##_logical_xor;
#define TT_FOLDS_OF_OWN(own)                                                                       \
    typedef tt_greatest<tt_own_##own> tt_fold_##own##_max;                                         \
    typedef tt_least<tt_own_##own> tt_fold_##own##_min;                                            \
    typedef tt_average<tt_own_##own> tt_fold_##own##_avg;

TT_FOLDS_OF_WIDTH(u8)
TT_FOLDS_OF_WIDTH(u16)
TT_FOLDS_OF_WIDTH(u32)
TT_FOLDS_OF_WIDTH(u64)
TT_FOLDS_OF_OWN(u8)
TT_FOLDS_OF_OWN(i8)
TT_FOLDS_OF_OWN(u16)
TT_FOLDS_OF_OWN(i16)
TT_FOLDS_OF_OWN(u32)
TT_FOLDS_OF_OWN(i32)
TT_FOLDS_OF_OWN(u64)
TT_FOLDS_OF_OWN(i64)
#undef TT_FOLDS_OF_WIDTH
#undef TT_FOLDS_OF_OWN

#endif
