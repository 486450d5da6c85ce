/* Makes the data that perf tests send and the results that must come out, and counts wrong
 * elements. */
#include "common/verify.h"

#include <assert.h>
#include <math.h>
#include <string.h>

#include "common/number.h"

#define COMMON (-1) /* the hash that all ranks share for an element */

/* ---- Bits ----------------------------------------------------------------------------------- */

/* A mixed 64-bit hash of its three arguments (the finaliser of MurmurHash3, public domain). */
static uint64_t hash(uint64_t seed, int rank, size_t index)
{
    uint64_t salt = (uint64_t)(rank + 2) * UINT64_C(0xc2b2ae3d27d4eb4f);
    uint64_t x = seed * UINT64_C(0x9e3779b97f4a7c15) + salt + index;
    x ^= x >> 33;
    x *= UINT64_C(0xff51afd7ed558ccd);
    x ^= x >> 33;
    x *= UINT64_C(0xc4ceb9fe1a85ec53);
    x ^= x >> 33;
    return x;
}

static void store(const struct perf_type *type, void *to, size_t index, uint64_t bits)
{
    unsigned char *at = (unsigned char *)to + index * type->bytes;
    switch (type->bytes) {
    case 1:
        *at = (unsigned char)bits;
        break;
    case 2: {
        uint16_t narrow = (uint16_t)bits;
        memcpy(at, &narrow, sizeof(narrow));
        break;
    }
    case 4: {
        uint32_t narrow = (uint32_t)bits;
        memcpy(at, &narrow, sizeof(narrow));
        break;
    }
    default:
        memcpy(at, &bits, sizeof(bits));
    }
}

static uint64_t load(const struct perf_type *type, const void *from, size_t index)
{
    uint64_t bits = 0;
    memcpy(&bits, (const unsigned char *)from + index * type->bytes, type->bytes);
    return bits;
}

/* The integer that the type keeps of `bits`, sign-extended when it has a sign. */
static uint64_t wrap(const struct perf_type *type, uint64_t bits)
{
    unsigned unused = 64 - 8 * type->bytes;
    if (type->is_signed) return (uint64_t)((int64_t)(bits << unused) >> unused);
    return bits << unused >> unused;
}

/* ---- Integers ------------------------------------------------------------------------------- */

/* Small enough that the sum of all ranks fits the type. */
static uint64_t average_input(const struct perf_data *data, int rank, size_t index)
{
    const struct perf_type *type = data->type;
    uint64_t h = hash(data->seed, rank, index);
    uint64_t n = (uint64_t)data->nranks;
    uint64_t largest = UINT64_MAX >> (64 - 8 * type->bytes + (type->is_signed ? 1 : 0));
    uint64_t limit = largest / n;
    uint64_t value;
    if (limit > 0) {
        value = limit == UINT64_MAX ? h >> 1 : (h >> 1) % (limit + 1);
    } else {
        value = ((uint64_t)rank + hash(data->seed, COMMON, index)) % n < largest;
    }
    bool negative = type->is_signed && (h & 1);
    return negative ? 0 - value : value;
}

static uint64_t integer_input(const struct perf_data *data, int rank, size_t index)
{
    uint64_t h = hash(data->seed, rank, index);
    uint64_t other = hash(data->seed + 1, rank, index);
    switch (data->op->kind) {
    case PERF_PROD:
        return h | 1; /* even factors would soon make every product 0 */
    case PERF_AVG:
        return average_input(data, rank, index);
    case PERF_BAND:
        return h | other;
    case PERF_BOR:
        return h & other;
    case PERF_LAND:
        return other % 8 == 0 ? 0 : h;
    case PERF_LOR:
        return other % 8 == 0 ? h : 0;
    case PERF_LXOR:
        return other % 2 == 0 ? h : 0;
    default:
        return h;
    }
}

static uint64_t integer_combine(const struct perf_data *data, uint64_t a, uint64_t b)
{
    bool less = data->type->is_signed ? (int64_t)a < (int64_t)b : a < b;
    switch (data->op->kind) {
    case PERF_PROD:
        return a * b;
    case PERF_MAX:
        return less ? b : a;
    case PERF_MIN:
        return less ? a : b;
    case PERF_BAND:
    case PERF_LAND:
        return a & b;
    case PERF_BOR:
    case PERF_LOR:
        return a | b;
    case PERF_BXOR:
    case PERF_LXOR:
        return a ^ b;
    default:
        return a + b;
    }
}

/* The rank's input as it enters the reduction. */
static uint64_t integer_term(const struct perf_data *data, int rank, size_t index)
{
    uint64_t value = wrap(data->type, integer_input(data, rank, index));
    switch (data->op->kind) {
    case PERF_MULSUM:
        return rank % 2 ? value : 2 * value;
    case PERF_LAND:
    case PERF_LOR:
    case PERF_LXOR:
        return value != 0;
    default:
        return value;
    }
}

static uint64_t integer_reduced(const struct perf_data *data, size_t index)
{
    uint64_t result = integer_term(data, 0, index);
    for (int rank = 1; rank < data->nranks; rank++) {
        result = integer_combine(data, result, integer_term(data, rank, index));
    }
    if (data->op->kind != PERF_AVG) return result;
    if (data->type->is_signed) return (uint64_t)((int64_t)result / data->nranks);
    return result / (uint64_t)data->nranks;
}

/* ---- Floating point -------------------------------------------------------------------------- */

/* `budget` split over the ranks: at most budget / nranks each, or 1 on `budget` ranks of many. */
static uint64_t share(const struct perf_data *data, int rank, uint64_t budget, uint64_t h,
                      uint64_t common)
{
    uint64_t n = (uint64_t)data->nranks;
    if (budget >= n) return h % (budget / n + 1);
    return ((uint64_t)rank + common) % n < budget;
}

static double sum_input(const struct perf_data *data, int rank, size_t index)
{
    uint64_t h = hash(data->seed, rank, index);
    uint64_t common = hash(data->seed, COMMON, index);
    uint64_t budget = 2ull << data->type->mantissa_bits; /* integers up to here are exact */
    if (data->op->kind == PERF_MULSUM) budget /= 2;
    uint64_t value = share(data, rank, budget, h >> 1, common >> 8);
    double scaled = ldexp((double)value, (int)(common % 9) - 4);
    return (h & 1) && value > 0 ? -scaled : scaled;
}

/* Of an average every input is divided by the number of ranks and rounded first. So all are
 * multiples of that number, whose quotients are as those of sum_input. Where the type has none, one
 * rank's input is a power of two, and the others' are 0. */
static double average_input_float(const struct perf_data *data, int rank, size_t index)
{
    const struct perf_type *type = data->type;
    uint64_t h = hash(data->seed, rank, index);
    uint64_t common = hash(data->seed, COMMON, index);
    uint64_t n = (uint64_t)data->nranks;
    int twos = __builtin_ctzll(n);
    int bias = (1 << (type->exponent_bits - 1)) - 1;
    uint64_t budget = (2ull << type->mantissa_bits) / (n >> twos);
    if (budget == 0) {
        int exponent = 63 - __builtin_clzll(n) + (int)(common % 9) - 4;
        if ((uint64_t)rank != (common >> 8) % n) return 0;
        return ldexp(h & 1 ? -1 : 1, exponent < bias ? exponent : bias);
    }
    uint64_t value = share(data, rank, budget, h >> 1, common >> 8) * (n >> twos);
    int low =
        1 - bias - type->mantissa_bits + twos; /* else the quotient is no number of the type */
    low = low < -4 ? -4 : low < 4 ? low : 4;
    double scaled = ldexp((double)value, low + (int)(common % 9) % (5 - low));
    bool negative = (budget < n ? common >> 16 : h) & 1; /* so that few cancel one another */
    return negative && value > 0 ? -scaled : scaled;
}

/* The average of the ranks' inputs, or of one power of two, by the reciprocal in fp32. */
static double average_of(const struct perf_data *data, double sum)
{
    bool has_multiples = (2ull << data->type->mantissa_bits) >= (uint64_t)data->nranks >>
                         __builtin_ctz((unsigned)data->nranks);
    return has_multiples ? sum / data->nranks : sum * (double)(1 / (float)data->nranks);
}

static double product_input(const struct perf_data *data, int rank, size_t index)
{
    uint64_t h = hash(data->seed, rank, index);
    uint64_t common = hash(data->seed, COMMON, index);
    uint64_t range = data->type->bytes == 1 ? 4 : data->type->bytes == 2 ? 8 : 32;
    int exponent = (int)share(data, rank, range, h >> 2, common);
    /* 3^k needs 1.585 k bits of the mantissa */
    uint64_t threes = (uint64_t)(data->type->mantissa_bits + 1) * 1000 / 1585;
    bool three = ((uint64_t)rank + (common >> 20)) % (uint64_t)data->nranks < threes;
    double value = ldexp(three ? 1.5 : 1.0, h & 2 ? exponent : -exponent);
    return h & 1 ? -value : value;
}

/* Any normal number but the largest exponents. */
static double any_input(const struct perf_data *data, int rank, size_t index)
{
    const struct perf_type *type = data->type;
    uint64_t h = hash(data->seed, rank, index);
    uint64_t exponents = (1ull << type->exponent_bits) - 3;
    uint64_t exponent = 1 + (h >> 53) % exponents;
    uint64_t fraction = (h >> 1) & ((1ull << type->mantissa_bits) - 1);
    double value = perf_number_decode(type, exponent << type->mantissa_bits | fraction);
    return h & 1 ? -value : value;
}

static double float_input(const struct perf_data *data, int rank, size_t index)
{
    switch (data->op->kind) {
    case PERF_PROD:
        return product_input(data, rank, index);
    case PERF_MAX:
    case PERF_MIN:
        return any_input(data, rank, index);
    case PERF_AVG:
        return average_input_float(data, rank, index);
    default:
        return sum_input(data, rank, index);
    }
}

static double float_term(const struct perf_data *data, int rank, size_t index)
{
    double value = float_input(data, rank, index);
    return data->op->kind == PERF_MULSUM && rank % 2 == 0 ? 2 * value : value;
}

static double float_reduced(const struct perf_data *data, size_t index)
{
    double result = float_term(data, 0, index);
    for (int rank = 1; rank < data->nranks; rank++) {
        double term = float_term(data, rank, index);
        switch (data->op->kind) {
        case PERF_PROD:
            result *= term;
            break;
        case PERF_MAX:
            result = result < term ? term : result;
            break;
        case PERF_MIN:
            result = term < result ? term : result;
            break;
        default:
            result += term;
        }
    }
    return data->op->kind == PERF_AVG ? average_of(data, result) : result;
}

/* ---- Buffers --------------------------------------------------------------------------------- */

void perf_fill_input(const struct perf_data *data, int rank, size_t first, size_t count, void *to)
{
    const struct perf_type *type = data->type;
    for (size_t i = 0; i < count; i++) {
        uint64_t bits;
        if (data->op == NULL) {
            bits = hash(data->seed, rank, first + i);
        } else if (type->exponent_bits == 0) {
            bits = integer_input(data, rank, first + i);
        } else {
            bits = perf_number_encode(type, float_input(data, rank, first + i));
        }
        store(type, to, i, bits);
    }
}

void perf_fill_reduced(const struct perf_data *data, size_t first, size_t count, void *to)
{
    assert(data->op != NULL);
    const struct perf_type *type = data->type;
    for (size_t i = 0; i < count; i++) {
        if (type->exponent_bits == 0) {
            store(type, to, i, integer_reduced(data, first + i));
        } else {
            store(type, to, i, perf_number_encode(type, float_reduced(data, first + i)));
        }
    }
}

void perf_fill_untouched(const struct perf_data *data, size_t count, void *to)
{
    memset(to, PERF_UNTOUCHED, count * data->type->bytes);
}

size_t perf_block_count(const struct perf_blocks *blocks, int from, int block)
{
    size_t n = (size_t)blocks->nranks;
    size_t at = ((size_t)block + (blocks->pairwise ? (size_t)from : 0)) % n;
    switch (blocks->spread) {
    case PERF_LINEAR:
        return n == 1 ? blocks->count : 2 * blocks->count * at / (n - 1);
    case PERF_ONE:
        return at == n / 2 ? blocks->count * n : 0;
    default:
        return blocks->count;
    }
}

size_t perf_block_begin(const struct perf_blocks *blocks, int from, int block)
{
    size_t begin = 0;
    for (int b = 0; b < block; b++) begin += perf_block_count(blocks, from, b);
    return begin;
}

/* Elements of a block as this rank receives it. */
static size_t received_block(const struct perf_data *data, int block)
{
    const struct perf_blocks *blocks = &data->blocks;
    return blocks->pairwise ? perf_block_count(blocks, block, data->rank)
                            : perf_block_count(blocks, 0, block);
}

void perf_fill_blocks(const struct perf_data *data, size_t first, size_t count, void *to,
                      perf_block_fill fill)
{
    unsigned char *at = to;
    for (int block = 0; block < data->nranks && count > 0; block++) {
        size_t length = received_block(data, block);
        if (first >= length) {
            first -= length;
            continue;
        }
        size_t part = length - first < count ? length - first : count;
        fill(data, block, first, part, at);
        at += part * data->type->bytes;
        first = 0;
        count -= part;
    }
}

int64_t perf_count_wrong(const struct perf_data *data, const void *got, const void *want,
                         size_t count)
{
    const struct perf_type *type = data->type;
    if (memcmp(got, want, count * type->bytes) == 0) return 0;

    int64_t wrong = 0;
    for (size_t i = 0; i < count; i++) wrong += load(type, got, i) != load(type, want, i);
    return wrong;
}

void perf_mulsum_scalar(const struct perf_type *type, int rank, void *to)
{
    int scalar = rank % 2 ? 1 : 2;
    bool integer = type->exponent_bits == 0;
    store(type, to, 0, integer ? (uint64_t)scalar : perf_number_encode(type, scalar));
}
