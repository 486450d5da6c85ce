/* The storage types of tensors. A run has one type of its weights, one of its activations and one
 * of its gradients (struct tr_types, of a backend); code outside ops/ takes sizes, addresses and
 * the types of collectives from here. Of another kind are numbers that are `float` whatever the
 * types are: the masters of the weights, which the optimizer changes, its states, the statistics of
 * norms and attention, and weights of tokens. The volumes and the memory at the top of the files of
 * parallel/ are those of TR_FP32. */
#ifndef TR_TENSOR_TYPE_H
#define TR_TENSOR_TYPE_H

#include <stddef.h>

#include "tutti.h"

/* TR_BF16 has a size and a collective's type; no build of the operations computes with it yet, only
 * a backend that counts (dry.h). */
enum tr_type { TR_FP32, TR_BF16, TR_NUM_TYPES };

struct tr_types {
    enum tr_type weights, activations, gradients;
};

/* Elements of a tensor, of a type that their owner knows. The struct is never completed, so no code
 * outside ops/ reads an element or steps over elements of a size that it guesses. */
struct tr_data;

static inline size_t tr_type_bytes(enum tr_type type)
{
    return type == TR_BF16 ? 2 : sizeof(float);
}

/* What collectives call the type. */
static inline tuttiDataType_t tr_type_datatype(enum tr_type type)
{
    return type == TR_BF16 ? tuttiBfloat16 : tuttiFloat32;
}

/* Element n of a tensor that begins at data, which is not NULL. */
static inline struct tr_data *tr_at(struct tr_data *data, enum tr_type type, size_t n)
{
    return (struct tr_data *)((char *)data + n * tr_type_bytes(type));
}

static inline const struct tr_data *tr_const_at(const struct tr_data *data, enum tr_type type,
                                                size_t n)
{
    return (const struct tr_data *)((const char *)data + n * tr_type_bytes(type));
}

/* Bytes of n elements, up to a multiple of a float's: floats may follow them in one room. */
static inline size_t tr_room_bytes(enum tr_type type, size_t n)
{
    return (n * tr_type_bytes(type) + sizeof(float) - 1) / sizeof(float) * sizeof(float);
}

#endif
