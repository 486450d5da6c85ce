/* Binds a program to a count: blocks become elements, cut into rounds so that each message fits a
 * slot and each contribution a place of a meeting. */
#include <stdio.h>
#include <stdlib.h>

#include "program/lower.h"

/* LEAST_OF_GPUS: a block of threads takes so many bytes at once, a few of them a thread. With more
 * blocks of threads a call would be no faster, and take multiprocessors from other kernels. */
enum { CACHE_LINE = 64, LEAST_OF_GPUS = 2048 };

/* As many copies as there are channels for; but of a block of `longest` elements each channel of
 * each copy must get at least one cache line, or what a GPU takes at once. */
static int32_t choose_copies(const struct tt_program *program, const struct tt_limits *limits,
                             size_t longest, size_t element)
{
    const size_t least = limits->of_gpus ? LEAST_OF_GPUS : CACHE_LINE;
    const size_t useful = longest * element / least / (size_t)program->nchannels;
    const size_t most = limits->copies > 1 ? (size_t)limits->copies : 1;
    return useful < 1 ? 1 : (int32_t)(useful < most ? useful : most);
}

/* Parts of a block. */
static uint32_t count_parts(const struct tt_binding *binding, const struct tt_program *program)
{
    return (uint32_t)(binding->copies * program->nchannels);
}

static void cut_blocks(struct tt_binding *binding, const struct tt_program *program, size_t align)
{
    const uint32_t nblocks = (uint32_t)program->nblocks;
    struct tt_cut *blocks = &binding->blocks;
    binding->total = binding->count * (program->splits ? 1 : nblocks);
    *blocks =
        program->splits
            ? tt_cut_make(binding->count, align, nblocks)
            : (struct tt_cut){
                  .length = binding->total, .unit = binding->count, .least = 1, .nparts = nblocks};
    /* A block has one of three lengths: of a longer one, of a shorter one, of the last one. */
    size_t begin;
    const size_t lengths[3] = {blocks->unit * (blocks->least + 1), blocks->unit * blocks->least,
                               tt_cut_part(blocks, nblocks - 1, &begin)};
    for (int i = 0; i < 3; i++)
        binding->parts[i] = tt_cut_make(lengths[i], align, count_parts(binding, program));
}

static const char *setting_of(const struct tt_limits *limits, bool meeting)
{
    if (limits->of_gpus) return "TUTTI_DEVICE_SLOT_BYTES";
    return meeting ? "TUTTI_MEET_BYTES" : "TUTTI_SLOT_BYTES";
}

static tt_status too_small(const struct tt_program *program, const struct tt_limits *limits,
                           bool meeting, size_t element, size_t need)
{
    const size_t nbytes = meeting ? limits->meet_bytes : limits->slot_bytes;
    char mend[160];
    if ((!meeting || limits->of_gpus) && limits->slot_setting > nbytes)
        snprintf(
            mend, sizeof mend,
            "it was shrunk from %zu for the number of ranks on a host; choose another algorithm",
            limits->slot_setting);
    else
        snprintf(mend, sizeof mend,
                 "set it to at least %zu on all ranks, or choose another algorithm",
                 (need + CACHE_LINE - 1) / CACHE_LINE * CACHE_LINE);
    return tt_fail(TT_ERR_USAGE,
                   "%s=%zu is too small: %s over %d ranks puts %zu elements of %zu bytes into one "
                   "%s; %s",
                   setting_of(limits, meeting), nbytes,
                   tt_collective_name((enum tt_collective)program->collective), program->nranks,
                   need / element, element, meeting ? "part of a meeting" : "message", mend);
}

/* counts: of the blocks; NULL: all alike. */
static tt_status cut_rounds(struct tt_binding *binding, const struct tt_program *program,
                            const size_t *counts, const struct tt_limits *limits)
{
    const size_t element = binding->element, message = (size_t)program->message;
    struct tt_geometry geometry =
        tt_geometry_of((enum tt_collective)program->collective, binding->count, element,
                       program->nblocks, (int)count_parts(binding, program));
    geometry.counts = counts;
    const bool meets = program->meets && limits->meet_bytes < limits->slot_bytes;
    const struct tt_rounds rounds = tt_geometry_rounds(
        &geometry, element, message, meets ? limits->meet_bytes : limits->slot_bytes);
    if (!rounds.number) {
        const size_t need = tt_geometry_least_room(&geometry, element, message);
        return too_small(program, limits, program->meets && need > limits->meet_bytes, element,
                         need);
    }
    binding->piece = rounds.piece;
    binding->nrounds = rounds.number;
    binding->merged = binding->nrounds == 1 && binding->copies * program->nchannels == 1;
    return TT_OK;
}

static void choose_stores(struct tt_binding *binding)
{
    const size_t nbytes = binding->total * binding->element;
    binding->nontemporal = nbytes >= TT_NONTEMPORAL_MIN_BYTES;
    binding->nontemporal_posts = nbytes >= TT_NONTEMPORAL_POST_MIN_BYTES;
}

tt_status tt_program_bind(const struct tt_program *program, size_t count, size_t element,
                          const struct tt_limits *limits, struct tt_binding *out)
{
    struct tt_binding binding = {
        .nbytes = sizeof binding, .copies = 1, .count = count, .element = element, .nrounds = 1};
    if (program->nblocks) {
        const size_t nblocks = (size_t)program->nblocks;
        const size_t longest = program->splits ? count / nblocks + (count % nblocks > 0) : count;
        binding.copies = choose_copies(program, limits, longest, element);
        cut_blocks(&binding, program, CACHE_LINE / element);
        choose_stores(&binding);
        TT_TRY(cut_rounds(&binding, program, NULL, limits));
        for (int b = TT_INPUT; b <= TT_OUTPUT; b++) {
            size_t begin = 0;
            if (program->held[b].number) tt_binding_block(&binding, program->held[b].first, &begin);
            binding.skipped[b] = begin * element;
        }
    }
    *out = binding;
    return TT_OK;
}

/* ---- A count for each block ----------------------------------------------------------------- */

/* False: there are gaps between the blocks, or they are not in the order of their names. */
static bool fill_table(struct tt_binding *binding, const struct tt_program *program,
                       const struct tt_counts *counts)
{
    struct tt_own_block *table = (struct tt_own_block *)((char *)binding + binding->table_at);
    const size_t align = CACHE_LINE / binding->element;
    bool packed = true;
    for (int b = 0; b < program->nblocks; b++) {
        const size_t begin = counts->begins ? counts->begins[b] : binding->total;
        packed = packed && begin == binding->total;
        table[b] = (struct tt_own_block){
            .begin = begin,
            .parts = tt_cut_make(counts->counts[b], align, binding->parts[0].nparts)};
        binding->total += counts->counts[b];
    }
    return packed;
}

static size_t longest_of(const struct tt_program *program, const struct tt_counts *counts)
{
    size_t longest = 0;
    for (int b = 0; b < program->nblocks; b++)
        if (counts->counts[b] > longest) longest = counts->counts[b];
    return longest;
}

/* Bytes before the first block of a buffer: only where that is the own one. */
static size_t skipped_of(const struct tt_binding *binding, const struct tt_program *program,
                         enum tt_buffer buffer)
{
    size_t begin;
    if (tt_collective_holds((enum tt_collective)program->collective, buffer == TT_INPUT,
                            program->rank == program->root) != TT_HOLDS_OWN)
        return 0;
    tt_binding_block(binding, program->rank, &begin);
    return begin * binding->element;
}

tt_status tt_program_bind_counts(const struct tt_program *program, const struct tt_counts *counts,
                                 size_t element, const struct tt_limits *limits,
                                 struct tt_binding **out)
{
    const size_t nbytes =
        sizeof(struct tt_binding) + (size_t)program->nblocks * sizeof(struct tt_own_block);
    struct tt_binding *binding = malloc(nbytes);
    if (!binding)
        return tt_fail(TT_ERR_SYSTEM, "out of memory for the counts of %d ranks", program->nranks);
    *binding = (struct tt_binding){
        .table_at = sizeof *binding,
        .nbytes = (uint32_t)nbytes,
        .copies = choose_copies(program, limits, longest_of(program, counts), element),
        .element = element};
    binding->parts[0].nparts = count_parts(binding, program);
    const bool packed = fill_table(binding, program, counts);
    binding->count = binding->total;
    choose_stores(binding);
    for (int b = TT_INPUT; b <= TT_OUTPUT; b++)
        binding->skipped[b] = skipped_of(binding, program, (enum tt_buffer)b);
    const tt_status status = cut_rounds(binding, program, counts->counts, limits);
    binding->merged = binding->merged && packed;
    if (status)
        free(binding);
    else
        *out = binding;
    return status;
}
