/* What steps do with single sources, and the signatures of calls. */
#include "executor/internal.h"

static uint64_t mix(uint64_t value)
{
    value ^= value >> 33;
    value *= 0xff51afd7ed558ccdull;
    value ^= value >> 33;
    value *= 0xc4ceb9fe1a85ec53ull;
    return value ^ value >> 33;
}

uint64_t tt_call_signature(const struct tt_program *program, size_t count,
                           const struct tt_reduction *reduction)
{
    const uint64_t kinds = (uint64_t)program->collective | (uint64_t)reduction->type << 8 |
                           (uint64_t)reduction->op << 16 | (uint64_t)(uint32_t)program->root << 32;
    return mix(kinds) ^ mix(count + 0x9e3779b97f4a7c15ull) ^ mix(~program->algorithm);
}

uint64_t tt_counts_signature(const size_t *counts, int nranks)
{
    uint64_t hash = mix((uint64_t)(uint32_t)nranks ^ 0x2545f4914f6cdd1du);
    for (int i = 0; i < nranks; i++) hash = mix(hash ^ mix(counts[i] + (size_t)i));
    return hash;
}

uint64_t tt_chained_signature(uint64_t call_signature, uint64_t before)
{
    return mix(call_signature ^ (before + 0x9e3779b97f4a7c15ull)) &
           ~(TT_SIGNATURE_OF_SEND | TT_SIGNATURE_RAW);
}

uint32_t tt_signature_alone(uint64_t call_signature)
{
    return (uint32_t)(call_signature ^ call_signature >> 32) & INT32_MAX;
}

bool tt_call_is_done_already(const struct tt_call *call)
{
    const size_t *skipped = call->binding->skipped;
    const enum tt_op op = call->reduction.op;
    return call->loaded->program->nranks == 1 && op != TT_PREMUL_SUM && op < TT_LOGICAL_AND &&
           (uintptr_t)call->input - skipped[TT_INPUT] ==
               (uintptr_t)call->output - skipped[TT_OUTPUT];
}

bool tt_changes(const struct tt_reduction *reduction, unsigned flags)
{
    return ((flags & TT_RAW) && tt_op_changes_raw(reduction->op, reduction->type)) ||
           ((flags & TT_FINISH) && tt_op_finishes(reduction->op, reduction->type));
}

void tt_transfer(const struct tt_work *work, void *target, const void *source, size_t count,
                 unsigned flags)
{
    const struct tt_reduction *reduction = &work->collective.call->reduction;
    if (tt_changes(reduction, flags))
        tt_reduce(reduction, target, &source, 1, count, flags);
    else if (target != source)
        tt_copy(target, source, count * work->collective.binding->element, flags & TT_NONTEMPORAL);
}
