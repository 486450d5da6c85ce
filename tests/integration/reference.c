/* Computes serially what each rank puts in and what must come out. */
#include "reference.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Numbers are so small that every partial result is exact in every type, whatever the order of
 * folding. In an average of floats each rank's number is divided first: it is a multiple of the
 * number of ranks. An average of integers truncates, once. */

static const struct {
    int size, exponent_bits, mantissa_bits; /* 0 bits: an integer */
    bool is_signed;
} types[tuttiNumTypes] = {
    [tuttiInt8] = {1, 0, 0, true},       [tuttiUint8] = {1, 0, 0, false},
    [tuttiInt32] = {4, 0, 0, true},      [tuttiUint32] = {4, 0, 0, false},
    [tuttiInt64] = {8, 0, 0, true},      [tuttiUint64] = {8, 0, 0, false},
    [tuttiFloat16] = {2, 5, 10, true},   [tuttiFloat32] = {4, 8, 23, true},
    [tuttiFloat64] = {8, 11, 52, true},  [tuttiBfloat16] = {2, 8, 7, true},
    [tuttiFloat8e4m3] = {1, 4, 3, true}, [tuttiFloat8e5m2] = {1, 5, 2, true},
    [tuttiInt16] = {2, 0, 0, true},      [tuttiUint16] = {2, 0, 0, false},
};

size_t call_type_size(tuttiDataType_t type)
{
    return (size_t)types[type].size;
}

bool call_reduces(const struct call *call)
{
    return call->kind == tuttiCollAllReduce || call->kind == tuttiCollReduce ||
           call->kind == tuttiCollReduceScatter || call->kind == REDUCE_SCATTER_V;
}

static uint64_t hash(uint64_t salt, int rank, size_t index)
{
    uint64_t z = salt + (uint64_t)rank * 0x9e3779b97f4a7c15u + index * 0xd1342543de82ef95u;
    z = (z ^ (z >> 32)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 29)) * 0x94d049bb133111ebu;
    return z ^ (z >> 32);
}

static bool on_bits(tuttiRedOp_t op)
{
    return op >= tuttiBitAnd && op <= tuttiLogicalXor;
}

static double factor(const struct call *call)
{
    return types[call->type].mantissa_bits ? 0.5 : 2;
}

/* Element `index` of what `rank` puts into a reduction with an arithmetic operation. */
static int number(const struct call *call, int rank, size_t index)
{
    const int h = (int)(hash(call->salt, rank, index) >> 40);
    const bool is_signed = types[call->type].is_signed;
    if (call->op == tuttiProd) return is_signed ? (const int[]){1, 2, -1, -2}[h % 4] : 1 + h % 2;
    if (call->op == tuttiMin || call->op == tuttiMax) return is_signed ? h % 15 - 7 : h % 16;
    if (call->op == tuttiAvg && types[call->type].mantissa_bits)
        return call->nranks * (types[call->type].size == 1 ? h % 3 - 1 : h % 7 - 3);
    if (call->type == tuttiFloat8e5m2) return h % 3 - 1;
    return is_signed ? h % 7 - 3 : h % 4;
}

static uint64_t bits(const struct call *call, int rank, size_t index)
{
    const uint64_t h = hash(call->salt, rank, index);
    return call->op >= tuttiLogicalAnd && h % 2 ? 0 : h;
}

/* A value with a zero or a normal exponent in the type's format; rounds to nearest even. */
static uint64_t encode(double value, int exponent_bits, int mantissa_bits)
{
    if (value == 0) return 0;
    int exponent;
    const double fraction = frexp(fabs(value), &exponent);
    uint64_t mantissa = (uint64_t)nearbyint(ldexp(fraction, mantissa_bits + 1));
    const uint64_t one = (uint64_t)1 << mantissa_bits;
    if (mantissa == 2 * one) mantissa = one, exponent++;
    const int bias = (1 << (exponent_bits - 1)) - 1;
    const uint64_t sign = value < 0 ? (uint64_t)1 << (exponent_bits + mantissa_bits) : 0;
    return sign | (uint64_t)(exponent - 1 + bias) << mantissa_bits | (mantissa - one);
}

static void put(const struct call *call, double value, void *element)
{
    const int mantissa_bits = types[call->type].mantissa_bits;
    const uint64_t image = mantissa_bits
                               ? encode(value, types[call->type].exponent_bits, mantissa_bits)
                               : (uint64_t)(int64_t)value;
    memcpy(element, &image, (size_t)types[call->type].size); /* little endian */
}

void call_scalar(const struct call *call, void *element)
{
    put(call, factor(call), element);
}

size_t call_block(const struct call *call, int from, int to)
{
    const int pair = call->kind == ALL_TO_ALL_V ? from * call->nranks + to : to;
    const uint64_t h = hash(call->salt + 1, pair, 0);
    return h % 3 == 0 ? 0 : h % 5 == 0 ? 2 * call->count : (size_t)(h >> 8) % (call->count + 1);
}

bool call_has_gaps(const struct call *call, bool input, int of)
{
    return call->kind != REDUCE_SCATTER_V && hash(call->salt + 2, of, input) % 2;
}

/* The block of `rank` in a buffer of all that belongs to `of`. */
static size_t block_of_all(const struct call *call, bool input, int of, int rank)
{
    return input ? call_block(call, of, rank) : call_block(call, rank, of);
}

static size_t block_in(const struct call *call, bool input, int of, int rank)
{
    return call->kind == ALL_TO_ALL_V ? block_of_all(call, input, of, rank)
                                      : call_block(call, rank, rank);
}

/* With gaps the last rank's block comes first. */
size_t call_displ(const struct call *call, bool input, int of, int rank)
{
    const bool gaps = call_has_gaps(call, input, of);
    size_t begin = 0;
    for (int i = 0; i < call->nranks; i++) {
        const int r = gaps ? call->nranks - 1 - i : i;
        if (gaps) begin += 3;
        if (r == rank) return begin;
        begin += block_in(call, input, of, r);
    }
    return begin; /* rank == nranks, packed: all of it */
}

static size_t count_of_all(const struct call *call, bool input, int of)
{
    return call_has_gaps(call, input, of)
               ? call_displ(call, input, of, 0) + block_in(call, input, of, 0)
               : call_displ(call, input, of, call->nranks);
}

size_t call_input_count(const struct call *call, int rank)
{
    switch (call->kind) {
    case tuttiCollReduceScatter:
    case tuttiCollAllToAll:
        return call->count * (size_t)call->nranks;
    case tuttiCollScatter:
        return rank == call->root ? call->count * (size_t)call->nranks : 0;
    case tuttiCollBroadcast:
        return rank == call->root ? call->count : 0;
    case tuttiCollBarrier:
        return 0;
    case SCATTER_V:
        return rank == call->root ? count_of_all(call, true, rank) : 0;
    case REDUCE_SCATTER_V:
    case ALL_TO_ALL_V:
        return count_of_all(call, true, rank);
    case ALL_GATHER_V:
    case GATHER_V:
        return call_block(call, rank, rank);
    default:
        return call->count;
    }
}

size_t call_output_count(const struct call *call, int rank)
{
    switch (call->kind) {
    case tuttiCollAllGather:
    case tuttiCollAllToAll:
        return call->count * (size_t)call->nranks;
    case tuttiCollGather:
        return rank == call->root ? call->count * (size_t)call->nranks : 0;
    case tuttiCollReduce:
        return rank == call->root ? call->count : 0;
    case tuttiCollBarrier:
        return 0;
    case GATHER_V:
        return rank == call->root ? count_of_all(call, false, rank) : 0;
    case ALL_GATHER_V:
    case ALL_TO_ALL_V:
        return count_of_all(call, false, rank);
    case SCATTER_V:
    case REDUCE_SCATTER_V:
        return call_block(call, rank, rank);
    default:
        return call->count;
    }
}

/* Elements first .. first + n - 1 of rank's input. */
static void input_part(const struct call *call, int rank, size_t first, size_t n, char *buffer)
{
    const size_t size = call_type_size(call->type);
    for (size_t i = 0; i < n; i++) {
        if (call_reduces(call) && !on_bits(call->op)) {
            put(call, number(call, rank, first + i), buffer + i * size);
        } else {
            const uint64_t image = bits(call, rank, first + i);
            memcpy(buffer + i * size, &image, size);
        }
    }
}

void call_input(const struct call *call, int rank, void *buffer)
{
    input_part(call, rank, 0, call_input_count(call, rank), buffer);
}

static uint64_t fold_bits(const struct call *call, size_t index)
{
    const uint64_t mask = ~(uint64_t)0 >> (64 - 8 * types[call->type].size);
    uint64_t result = bits(call, 0, index) & mask;
    if (call->op >= tuttiLogicalAnd) result = result != 0;
    for (int r = 1; r < call->nranks; r++) {
        const uint64_t value = bits(call, r, index) & mask;
        switch (call->op) {
        case tuttiBitAnd:
            result &= value;
            break;
        case tuttiBitOr:
            result |= value;
            break;
        case tuttiBitXor:
            result ^= value;
            break;
        case tuttiLogicalAnd:
            result = result && value;
            break;
        case tuttiLogicalOr:
            result = result || value;
            break;
        default:
            result = (result != 0) != (value != 0);
            break;
        }
    }
    return result;
}

static double fold_numbers(const struct call *call, size_t index)
{
    const double scale = call->op == tuttiFirstDynamicRedOp ? factor(call) : 1;
    double result = number(call, 0, index) * scale;
    for (int r = 1; r < call->nranks; r++) {
        const double value = number(call, r, index) * scale;
        switch (call->op) {
        case tuttiProd:
            result *= value;
            break;
        case tuttiMax:
            result = value > result ? value : result;
            break;
        case tuttiMin:
            result = value < result ? value : result;
            break;
        default:
            result += value;
            break;
        }
    }
    if (call->op == tuttiAvg) result /= call->nranks;
    return types[call->type].mantissa_bits ? result : trunc(result);
}

static void reduced_part(const struct call *call, size_t first, size_t n, char *buffer)
{
    const size_t size = call_type_size(call->type);
    for (size_t i = 0; i < n; i++) {
        if (on_bits(call->op)) {
            const uint64_t image = fold_bits(call, first + i);
            memcpy(buffer + i * size, &image, size);
        } else {
            put(call, fold_numbers(call, first + i), buffer + i * size);
        }
    }
}

/* The kinds with a V. Blocks are numbered by what their rank has at their place. */
static void expected_blocks(const struct call *call, int rank, char *buffer)
{
    const size_t size = call_type_size(call->type);
    if (call->kind == REDUCE_SCATTER_V) {
        reduced_part(call, call_displ(call, true, rank, rank), call_block(call, rank, rank),
                     buffer);
        return;
    }
    if (call->kind == SCATTER_V) {
        input_part(call, call->root, call_displ(call, true, call->root, rank),
                   call_block(call, rank, rank), buffer);
        return;
    }
    for (int s = 0; s < call->nranks; s++)
        input_part(call, s, call->kind == ALL_TO_ALL_V ? call_displ(call, true, s, rank) : 0,
                   block_in(call, false, rank, s),
                   buffer + call_displ(call, false, rank, s) * size);
}

void call_expected(const struct call *call, int rank, void *buffer)
{
    const size_t n = call->count, block = n * call_type_size(call->type);
    const int source = ((rank - call->root) % call->nranks + call->nranks) % call->nranks;
    if (!call_output_count(call, rank)) return;
    if (call->kind > EXCHANGE) {
        expected_blocks(call, rank, buffer);
        return;
    }
    switch (call->kind) {
    case tuttiCollAllReduce:
    case tuttiCollReduce:
        reduced_part(call, 0, n, buffer);
        break;
    case tuttiCollReduceScatter:
        reduced_part(call, (size_t)rank * n, n, buffer);
        break;
    case tuttiCollBroadcast:
        input_part(call, call->root, 0, n, buffer);
        break;
    case tuttiCollScatter:
        input_part(call, call->root, (size_t)rank * n, n, buffer);
        break;
    case EXCHANGE:
        input_part(call, source, 0, n, buffer);
        break;
    case tuttiCollAllToAll:
        for (int s = 0; s < call->nranks; s++)
            input_part(call, s, (size_t)rank * n, n, (char *)buffer + (size_t)s * block);
        break;
    default: /* all-gather, gather */
        for (int s = 0; s < call->nranks; s++)
            input_part(call, s, 0, n, (char *)buffer + (size_t)s * block);
        break;
    }
}

const char *call_text(const struct call *call)
{
    static _Thread_local char text[160];
    static const char *const others[] = {"exchange", "all_gather_v", "reduce_scatter_v",
                                         "gather_v", "scatter_v",    "all_to_all_v"};
    const char *name = call->kind < EXCHANGE ? tuttiCollectiveName((tuttiCollective_t)call->kind)
                                             : others[call->kind - EXCHANGE];
    snprintf(text, sizeof text, "%s of %zu x type %d, op %d, root %d, %d ranks", name, call->count,
             (int)call->type, (int)call->op, call->root, call->nranks);
    return text;
}

void call_arrays_of(const struct call *call, int rank, struct call_arrays *arrays)
{
    for (int input = 0; input < 2; input++) {
        arrays->begins[input] = call_has_gaps(call, input, rank) ? arrays->displs[input] : NULL;
        for (int r = 0; r < call->nranks; r++) {
            arrays->counts[input][r] =
                input ? call_block(call, rank, r)
                      : call_block(call, r, call->kind == ALL_TO_ALL_V ? rank : r);
            arrays->displs[input][r] = call_displ(call, input, rank, r);
        }
    }
}

bool call_can_be_in_place(const struct call *call)
{
    return call->kind != tuttiCollAllToAll && call->kind != EXCHANGE &&
           call->kind != tuttiCollBarrier && call->kind != ALL_TO_ALL_V;
}

void call_in_place(const struct call *call, int rank, size_t *input, size_t *output)
{
    const size_t size = call_type_size(call->type), block = call->count * size;
    const bool is_root = rank == call->root;
    *input = *output = 0;
    switch (call->kind) {
    case tuttiCollReduceScatter:
        *output = (size_t)rank * block;
        break;
    case tuttiCollScatter:
        *output = is_root ? (size_t)rank * block : 0;
        break;
    case tuttiCollAllGather:
        *input = (size_t)rank * block;
        break;
    case tuttiCollGather:
        *input = is_root ? (size_t)rank * block : 0;
        break;
    case REDUCE_SCATTER_V:
        *output = call_displ(call, true, rank, rank) * size;
        break;
    case SCATTER_V:
        *output = is_root ? call_displ(call, true, rank, rank) * size : 0;
        break;
    case ALL_GATHER_V:
        *input = call_displ(call, false, rank, rank) * size;
        break;
    case GATHER_V:
        *input = is_root ? call_displ(call, false, rank, rank) * size : 0;
        break;
    default:
        break;
    }
}
