/* Binds a program to a count: blocks become elements, cut into rounds so that each message fits a
 * slot and each contribution a place of a meeting. */
#include "program/lower.h"

enum { LINE_BYTES = 64 };

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
        binding->parts[i] = tt_cut_make(lengths[i], align, (uint32_t)program->nchannels);
}

/* Most elements of any channel's part of any block. */
static size_t largest_part(const struct tt_binding *binding)
{
    const uint32_t nparts = binding->parts[0].nparts, nblocks = binding->blocks.nparts;
    size_t largest = 0, begin;
    for (int i = binding->blocks.longer ? 0 : 1; i < 3; i++) {
        if (i == 1 && nblocks == 1) continue; /* the only block is the last one */
        const size_t first = tt_cut_part(&binding->parts[i], 0, &begin);
        const size_t last = tt_cut_part(&binding->parts[i], nparts - 1, &begin);
        const size_t most = first > last ? first : last;
        if (most > largest) largest = most;
    }
    return largest;
}

/* Elements of each of nblocks blocks that fit nbytes together, whole lines where that is possible.
 */
static size_t elements_that_fit(size_t nbytes, int nblocks, size_t element)
{
    const size_t fit = nbytes / element / (size_t)(nblocks > 0 ? nblocks : 1);
    const size_t align = LINE_BYTES / element;
    return fit >= align ? fit / align * align : fit;
}

static tt_status too_small(const struct tt_program *program, const char *setting, size_t nbytes,
                           int nblocks, size_t element)
{
    return tt_fail(TT_ERR_USAGE,
                   "%s=%zu is too small: %s over %d ranks puts %d elements of %zu bytes into one "
                   "message; set it to at least %zu on all ranks, or choose another algorithm",
                   setting, nbytes, tt_collective_name((enum tt_collective)program->collective),
                   program->nranks, nblocks, element, (size_t)nblocks * element);
}

static tt_status cut_rounds(struct tt_binding *binding, const struct tt_program *program,
                            const struct tt_room *room)
{
    const size_t element = binding->element, largest = largest_part(binding);
    size_t piece = elements_that_fit(room->slot_bytes, program->message, element);
    if (!piece)
        return too_small(program, "TUTTI_SLOT_BYTES", room->slot_bytes, program->message, element);
    if (program->meets) {
        const size_t meet = elements_that_fit(room->meet_bytes, program->nblocks, element);
        if (!meet)
            return too_small(program, "TUTTI_MEET_BYTES", room->meet_bytes, program->nblocks,
                             element);
        if (meet < piece) piece = meet;
    }
    binding->piece = piece < largest ? piece : largest;
    binding->nrounds = binding->piece ? (largest + binding->piece - 1) / binding->piece : 1;
    binding->merged = binding->nrounds == 1 && program->nchannels == 1;
    return TT_OK;
}

tt_status tt_program_bind(const struct tt_program *program, size_t count, size_t element,
                          const struct tt_room *room, struct tt_binding *out)
{
    struct tt_binding binding = {.count = count, .element = element, .nrounds = 1};
    if (program->nblocks) {
        cut_blocks(&binding, program, LINE_BYTES / element);
        binding.nontemporal = binding.total * element >= TT_NONTEMPORAL_MIN_BYTES;
        TT_TRY(cut_rounds(&binding, program, room));
        for (int b = TT_INPUT; b <= TT_OUTPUT; b++) {
            size_t begin = 0;
            if (program->held[b].number) tt_binding_block(&binding, program->held[b].first, &begin);
            binding.skipped[b] = begin * element;
        }
    }
    *out = binding;
    return TT_OK;
}
