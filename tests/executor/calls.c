/* Runs one collective on several ranks of one thread in a random order of turns. */
#include "executor/calls.h"

#include <stdlib.h>
#include <string.h>

#include "algorithms/algorithms.h"
#include "program/lower.h"
#include "shim.h"

bool ranks_open(struct ranks *ranks, int nranks, const struct tt_fabric_config *config)
{
    return ranks_open_on(ranks, nranks, NULL, config);
}

bool ranks_open_on(struct ranks *ranks, int nranks, const uint64_t *host_of,
                   const struct tt_fabric_config *config)
{
    ranks->from_copies = false;
    ranks->most_copies = 0;
    if (!together_open_on(&ranks->all, nranks, host_of, config)) return false;
    if (host_of && !together_join(&ranks->all, config)) return false;
    for (int r = 0; r < nranks; r++)
        if (tt_engine_init(&ranks->engines[r], ranks->all.fabrics[r], 20000, "test")) return false;
    return true;
}

void ranks_close(struct ranks *ranks)
{
    for (int r = 0; r < ranks->all.nranks; r++) tt_engine_fini(&ranks->engines[r]);
    together_close(&ranks->all);
}

bool all_reduce_make(struct all_reduce *made, struct ranks *ranks, int rank, const char *algorithm,
                     size_t count, const int32_t *input, int32_t *output)
{
    struct tt_fabric *fabric = ranks->all.fabrics[rank];
    const int nranks = ranks->all.nranks;
    const struct tt_segment_header *header = fabric->segment->header;
    const struct tt_limits limits = {.slot_bytes = header->slot_bytes,
                                     .meet_bytes = header->meet_bytes};
    const struct tt_shape shape = {
        .collective = TT_ALL_REDUCE, .nranks = nranks, .hosts = fabric->hosts};
    struct tt_program *program;
    if (tt_program_create(tt_algorithm_find(TT_ALL_REDUCE, algorithm), &shape, rank, &program) ||
        tt_loaded_create(program, fabric, &made->loaded) ||
        tt_program_bind(program, count, sizeof *input, &limits, &made->binding))
        return false;
    struct tt_call call = {.loaded = made->loaded,
                           .binding = &made->binding,
                           .input = input,
                           .output = output,
                           .reduction = {.type = TT_INT32, .op = TT_SUM, .nranks = nranks}};
    call.signature = tt_call_signature(program, count, &call.reduction);
    call.entry = tt_call_entry_make(program, count, &call.reduction);
    tt_work_collective(&made->work, &ranks->engines[rank], &call);
    return true;
}

/* Element i of rank r's input, small so that sums and products of floats stay exact. */
static int value_of(const struct trial *trial, int r, size_t i)
{
    return (int)((i * 7 + (size_t)r * 13 + trial->seed) % 11) - 3;
}

/* Four-byte elements: int32 or float. */
static void put(const struct trial *trial, char *at, double value)
{
    const int32_t whole = (int32_t)value;
    const float real = (float)value;
    memcpy(at, trial->reduction.type == TT_FLOAT32 ? (const void *)&real : (const void *)&whole, 4);
}

/* What the definition of the collective says element i of `rank`'s result is. */
static double expected(const struct trial *trial, int rank, size_t i)
{
    const size_t count = trial->count, block = count ? i / count : 0,
                 within = count ? i % count : 0;
    float scalar = 1;
    memcpy(&scalar, trial->reduction.scalar, sizeof scalar);
    double sum = 0;
    switch (trial->algorithm->collective) {
    case TT_BROADCAST:
        return value_of(trial, trial->root, i);
    case TT_ALL_GATHER:
    case TT_GATHER:
        return value_of(trial, (int)block, within);
    case TT_SCATTER:
        return value_of(trial, trial->root, (size_t)rank * count + i);
    case TT_ALL_TO_ALL:
        return value_of(trial, (int)block, (size_t)rank * count + within);
    case TT_REDUCE_SCATTER:
        i += (size_t)rank * count;
        break;
    default:
        break;
    }
    for (int r = 0; r < trial->nranks; r++)
        sum += value_of(trial, r, i) * (trial->reduction.op == TT_PREMUL_SUM ? (double)scalar : 1);
    return trial->reduction.op == TT_AVG ? sum / trial->nranks : sum;
}

struct rank_memory {
    char *input, *output, *memory[2];
    size_t ninput, noutput;
    struct tt_loaded *loaded;
    struct tt_binding binding;
    struct tt_binding *moved;       /* a copy that runs in place of binding; NULL: none */
    struct tt_step_table *resolved; /* its steps; NULL: they are walked */
    struct tt_work work;
};

static tt_status load(struct tt_fabric *fabric, const struct trial *trial,
                      const struct tt_shape *shape, int r, struct rank_memory *mine)
{
    const struct tt_segment_header *header = fabric->segment->header;
    struct tt_program *program;
    TT_TRY(tt_program_create(trial->algorithm, shape, r, &program));
    TT_TRY(tt_loaded_create(program, fabric, &mine->loaded));
    const struct tt_limits limits = {.slot_bytes = header->slot_bytes,
                                     .meet_bytes = header->meet_bytes,
                                     .copies = mine->loaded->copies};
    TT_TRY(tt_program_bind(mine->loaded->program, trial->count, tt_type_size(trial->reduction.type),
                           &limits, &mine->binding));
    const size_t nbytes = tt_step_table_bytes(mine->loaded->program, &mine->binding);
    /* Half of the ranks and trials walk. */
    if (nbytes == SIZE_MAX || ((trial->seed >> 3) + (unsigned)r) % 2) return TT_OK;
    mine->resolved = aligned_alloc(64, nbytes);
    if (mine->resolved) tt_step_table_fill(mine->loaded->program, &mine->binding, mine->resolved);
    return TT_OK;
}

static void overwrite_and_free(void *memory, size_t nbytes)
{
    memset(memory, 0xaa, nbytes);
    __asm__ volatile(""
                     :
                     : "r"(memory)
                     : "memory"); /* nobody reads it any more, so memset could be left out */
    free(memory);
}

/* What runs is a copy of the program and of the binding; nothing may refer to the originals. */
static bool move_elsewhere(struct rank_memory *mine)
{
    struct tt_program *original = mine->loaded->program;
    const size_t nbytes = original->nbytes;
    struct tt_program *program = aligned_alloc(64, nbytes);
    struct tt_binding *binding = malloc(sizeof *binding);
    if (!program || !binding) {
        free(program);
        free(binding);
        return false;
    }
    memcpy(program, original, nbytes);
    mine->loaded->program = program;
    overwrite_and_free(original, nbytes);
    memcpy(binding, &mine->binding, sizeof *binding);
    memset(&mine->binding, 0xaa, sizeof mine->binding);
    mine->moved = binding;
    return true;
}

static void prepare(struct ranks *ranks, const struct trial *trial, int r, struct rank_memory *mine)
{
    const struct tt_shape shape = {.collective = trial->algorithm->collective,
                                   .nranks = trial->nranks,
                                   .root = trial->root,
                                   .hosts = ranks->all.fabrics[r]->hosts};
    if (load(ranks->all.fabrics[r], trial, &shape, r, mine)) {
        CHECK_MESSAGE(false, "no program: %s", tt_last_error());
        return;
    }
    if (mine->binding.copies > ranks->most_copies) ranks->most_copies = mine->binding.copies;
    if (ranks->from_copies && !move_elsewhere(mine)) {
        CHECK_MESSAGE(false, "no memory for copies");
        return;
    }
    int first_in = 0, first_out = 0;
    const int nblocks = tt_collective_splits(shape.collective) ? 1 : mine->loaded->program->nblocks;
    mine->ninput = (size_t)tt_buffer_blocks(&shape, nblocks, TT_INPUT, r, &first_in) * trial->count;
    mine->noutput =
        (size_t)tt_buffer_blocks(&shape, nblocks, TT_OUTPUT, r, &first_out) * trial->count;
    const size_t most = (mine->ninput > mine->noutput ? mine->ninput : mine->noutput) + 1;
    for (int b = 0; b < 2; b++) mine->memory[b] = malloc(most * 4);
    mine->input = mine->memory[0];
    mine->output = mine->memory[1];
    if (trial->in_place && mine->ninput && mine->noutput) {
        const size_t shift = mine->ninput == mine->noutput ? 0 : (size_t)r * trial->count * 4;
        mine->output = mine->memory[0] + (mine->ninput > mine->noutput ? shift : 0);
        mine->input = mine->memory[0] + (mine->ninput > mine->noutput ? 0 : shift);
    }
    memset(mine->output, 0x5a, mine->noutput * 4);
    for (size_t i = 0; i < mine->ninput; i++)
        put(trial, mine->input + 4 * i, value_of(trial, r, i));
    const struct tt_call call = {
        .loaded = mine->loaded,
        .binding = mine->moved ? mine->moved : &mine->binding,
        .resolved = mine->resolved,
        .input = mine->input,
        .output = mine->output,
        .reduction = trial->reduction,
        .signature = tt_call_signature(mine->loaded->program, trial->count, &trial->reduction),
        .entry = tt_call_entry_make(mine->loaded->program, trial->count, &trial->reduction)};
    tt_work_collective(&mine->work, &ranks->engines[r], &call);
}

static void check(const struct trial *trial, int r, const struct rank_memory *mine)
{
    for (size_t i = 0; i < mine->noutput; i++) {
        char want[4];
        put(trial, want, expected(trial, r, i));
        if (!memcmp(want, mine->output + 4 * i, 4)) continue;
        int32_t got;
        memcpy(&got, mine->output + 4 * i, 4);
        CHECK_MESSAGE(false,
                      "%s:%s, %d ranks, root %d, count %zu, in place %d, op %s, seed %u: rank %d "
                      "element %zu is %#x, expected %g",
                      tt_collective_name(trial->algorithm->collective), trial->algorithm->name,
                      trial->nranks, trial->root, trial->count, trial->in_place,
                      tt_op_name(trial->reduction.op), trial->seed, r, i, (unsigned)got,
                      expected(trial, r, i));
        return;
    }
}

/* What the rank's record says that the call was. */
static void check_record(const struct ranks *ranks, const struct trial *trial, int r,
                         const struct rank_memory *mine)
{
    const struct tt_fabric *fabric = ranks->all.fabrics[r];
    const struct tt_entry *entry = tt_fabric_entry(fabric, r, mine->work.turn);
    CHECK_EQ(fabric->record->entered, mine->work.turn);
    CHECK_EQ(entry->seq, mine->work.turn);
    CHECK_EQ(entry->collective, trial->algorithm->collective);
    CHECK_EQ(entry->type, trial->reduction.type);
    CHECK_EQ(entry->op, trial->reduction.op);
    CHECK_EQ(entry->root, trial->root);
    CHECK_EQ(entry->count, trial->count);
    CHECK_EQ(entry->algorithm, mine->loaded->program->algorithm);
}

static void play(struct rank_memory *mine, int nranks, unsigned seed)
{
    int left = nranks;
    for (long turn = 0; left > 0 && turn < 100000000; turn++) {
        seed = seed * 1103515245u + 12345u;
        struct tt_work *work = &mine[(seed >> 16) % (unsigned)nranks].work;
        if (tt_work_is_done(work)) continue;
        const int status = tt_work_advance(work);
        if (status < 0) {
            CHECK_MESSAGE(false, "a rank failed: %s", tt_last_error());
            return;
        }
        left -= status == TT_OK;
    }
    CHECK_MESSAGE(left == 0, "%d ranks never finish", left);
}

void run_trial(struct ranks *ranks, const struct trial *trial)
{
    struct rank_memory mine[TOGETHER_ROOM] = {{0}};
    for (int r = 0; r < trial->nranks; r++) prepare(ranks, trial, r, &mine[r]);
    if (!tt_test_failed()) play(mine, trial->nranks, trial->seed);
    for (int r = 0; r < trial->nranks && !tt_test_failed(); r++) check(trial, r, &mine[r]);
    for (int r = 0; r < trial->nranks && !tt_test_failed(); r++)
        check_record(ranks, trial, r, &mine[r]);
    for (int r = 0; r < trial->nranks; r++) {
        tt_loaded_destroy(mine[r].loaded);
        free(mine[r].moved);
        free(mine[r].resolved);
        free(mine[r].memory[0]);
        free(mine[r].memory[1]);
    }
}
