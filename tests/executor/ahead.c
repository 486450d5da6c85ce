/* A root that only sends is calls ahead of who receives: its calls are still known when they turn
 * out to be others. */
#include <string.h>

#include "algorithms/algorithms.h"
#include "base/clock.h"
#include "executor/calls.h"
#include "program/lower.h"
#include "shim.h"

enum { ROOT = 0, OTHER = 1, MOST = 65 };

static struct tt_loaded *broadcast_of(const struct ranks *ranks, int rank)
{
    struct tt_fabric *fabric = ranks->all.fabrics[rank];
    struct tt_program *program;
    struct tt_loaded *loaded;
    const struct tt_shape shape = {.collective = TT_BROADCAST,
                                   .nranks = ranks->all.nranks,
                                   .root = ROOT,
                                   .hosts = fabric->hosts};
    if (tt_program_create(tt_algorithm_find(TT_BROADCAST, "direct"), &shape, rank, &program))
        return NULL;
    return tt_loaded_create(program, fabric, &loaded) ? NULL : loaded;
}

static void begin(struct tt_work *work, struct ranks *ranks, int rank,
                  const struct tt_loaded *loaded, char *data, size_t count)
{
    const struct tt_reduction reduction = {.type = TT_UINT8, .nranks = ranks->all.nranks};
    const struct tt_limits limits = {.slot_bytes = 4096, .meet_bytes = 1024};
    struct tt_binding binding;
    CHECK_EQ(tt_program_bind(loaded->program, count, 1, &limits, &binding), TT_OK);
    const struct tt_call call = {.loaded = loaded,
                                 .binding = &binding,
                                 .input = data,
                                 .output = data,
                                 .reduction = reduction,
                                 .signature = tt_call_signature(loaded->program, count, &reduction),
                                 .entry = tt_call_entry_make(loaded->program, count, &reduction)};
    tt_work_collective(work, &ranks->engines[rank], &call);
}

/* The root fills its link and enters one call more; then the other rank calls something else. */
static void disagree_at_the_first(const uint64_t *host_of, size_t nslots)
{
    static struct ranks ranks;
    static struct tt_work works[MOST], other;
    char data[256] = {0}, result[256];
    struct tt_fabric_config config = together_config();
    config.nslots = nslots;
    REQUIRE(ranks_open_on(&ranks, 2, host_of, &config));
    struct tt_loaded *roots = broadcast_of(&ranks, ROOT), *others = broadcast_of(&ranks, OTHER);
    REQUIRE(roots && others);
    const int64_t deadline = tt_deadline_ns(20000);
    const size_t depth = host_of ? nslots : tt_link_flags(nslots);
    for (size_t i = 0; i <= depth; i++) {
        begin(&works[i], &ranks, ROOT, roots, data, i % TT_INLINE_BYTES + 1);
        while (tt_work_advance(&works[i]) == TT_IN_PROGRESS && i < depth && !tt_expired(deadline))
            if (host_of) tt_ignore(tt_wires_progress(ranks.all.fabrics[OTHER]->wires));
        CHECK_MESSAGE(works[i].state == (i < depth ? TT_WORK_DONE : TT_WORK_RUNNING),
                      "%zu slots, call %zu: state %d", nslots, i, (int)works[i].state);
    }
    begin(&other, &ranks, OTHER, others, result, 100);
    while (tt_work_advance(&other) == TT_IN_PROGRESS && !tt_expired(deadline))
        tt_ignore(tt_work_advance(&works[depth]));
    CHECK_EQ(other.status, TT_ERR_USAGE);
    const char *text = tt_fabric_failure_text(ranks.all.fabrics[OTHER]);
    CHECK_MESSAGE(strstr(text, "broadcast number 1 (count 1,") &&
                      strstr(text, "broadcast number 1 (count 100,"),
                  "%zu slots: the error shows not both calls: %s", nslots, text);
    tt_loaded_destroy(roots);
    tt_loaded_destroy(others);
    ranks_close(&ranks);
}

TEST(ahead, a_root_by_a_whole_link_is_still_named_with_its_call)
{
    static const uint64_t apart[] = {1, 2};
    static const size_t nslots[] = {2, 6, 31, 64};
    for (int i = 0; i < 4; i++) {
        disagree_at_the_first(NULL, nslots[i]);
        disagree_at_the_first(apart, nslots[i]);
    }
}
