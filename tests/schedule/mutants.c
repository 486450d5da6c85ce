/* Mutants: one step of one rank of a right schedule is changed. Verify must refuse every wrong one;
 * whether one that it lets pass is wrong, the interpreter decides with real numbers. */
#include <stdio.h>
#include <string.h>

#include "algorithms/each.h"
#include "interpreter.h"
#include "shim.h"

enum mutation {
    DROP,
    DOUBLE,
    SWAP,
    PEER,
    BLOCK,
    LENGTH,
    OPERATION,
    FINISH,
    BUFFER,
    SLOT,
    PART,
    GROUP,
    GAP,
    NMUTATIONS
};
static const char *const names[NMUTATIONS] = {"dropped", "doubled",   "swapped", "peer",   "block",
                                              "length",  "operation", "finish",  "buffer", "slot",
                                              "part",    "group",     "gap"};

/* What is changed. */
struct mutant {
    struct tt_steps original;
    enum mutation mutation;
    int rank, channel, index;
    struct tt_step
        changed; /* takes the place of the step, where it is not dropped, doubled or swapped */
    uint64_t seed;
};

static uint64_t draw(struct mutant *mutant)
{
    mutant->seed ^= mutant->seed << 13;
    mutant->seed ^= mutant->seed >> 7;
    mutant->seed ^= mutant->seed << 17;
    return mutant->seed >> 11;
}

/* From 0 to number - 1. */
static int draw_below(struct mutant *mutant, int number)
{
    return (int)(draw(mutant) % (uint64_t)number);
}

static int most(int a, int b)
{
    return a > b ? a : b;
}

static int original_nsteps(const struct mutant *mutant, int rank, int channel)
{
    return tt_nsteps(mutant->original.algorithm, &mutant->original.shape, rank, channel);
}

static struct tt_step original_step(const struct mutant *mutant, int rank, int channel, int index)
{
    struct tt_step step = {.kind = TT_STEP_LINK};
    tt_step(mutant->original.algorithm, &mutant->original.shape, rank, channel, index, &step);
    return step;
}

static bool is_place(const struct mutant *mutant, int rank, int channel)
{
    return rank == mutant->rank && channel == mutant->channel;
}

static int nsteps(void *arg, int rank, int channel)
{
    const struct mutant *mutant = arg;
    const int number = original_nsteps(mutant, rank, channel);
    if (!is_place(mutant, rank, channel)) return number;
    return number + (mutant->mutation == DOUBLE) - (mutant->mutation == DROP);
}

static void get_step(void *arg, int rank, int channel, int index, struct tt_step *step)
{
    const struct mutant *mutant = arg;
    const int at = mutant->index;
    if (is_place(mutant, rank, channel)) {
        if (mutant->mutation == DROP && index >= at)
            index++;
        else if (mutant->mutation == DOUBLE && index > at)
            index--;
        else if (mutant->mutation == SWAP && (index == at || index == at + 1))
            index = 2 * at + 1 - index;
        else if (mutant->mutation > SWAP && index == at) {
            *step = mutant->changed;
            return;
        }
    }
    *step = original_step(mutant, rank, channel, index);
}

/* ---- Changing a step ------------------------------------------------------------------------ */

/* One of the step's two spans that is there; NULL: none is. */
static struct tt_span *draw_span(struct mutant *mutant)
{
    struct tt_step *step = &mutant->changed;
    if (step->local.number == 0) return step->dst.number > 0 ? &step->dst : NULL;
    if (step->dst.number == 0) return &step->local;
    return draw_below(mutant, 2) ? &step->local : &step->dst;
}

static struct tt_peers *draw_peers(struct mutant *mutant)
{
    struct tt_step *step = &mutant->changed;
    if (step->recv.number == 0) return step->send.number > 0 ? &step->send : NULL;
    if (step->send.number == 0) return &step->recv;
    return draw_below(mutant, 2) ? &step->recv : &step->send;
}

static void change_peer(struct mutant *mutant)
{
    struct tt_peers *peers = draw_peers(mutant);
    if (!peers) return;
    const int nranks = peers->group.ranks ? peers->group.number : mutant->original.shape.nranks;
    if (draw_below(mutant, 3) == 0)
        peers->number += draw_below(mutant, 2) ? 1 : -1;
    else
        peers->first = (peers->first + 1 + draw_below(mutant, most(1, nranks - 1))) % nranks;
}

static void change_block(struct mutant *mutant)
{
    struct tt_span *span = draw_span(mutant);
    if (!span) return;
    const int nplaces =
        tt_span_places(span, tt_nblocks(mutant->original.algorithm, &mutant->original.shape));
    if (nplaces > 1) span->first = (span->first + 1 + draw_below(mutant, nplaces - 1)) % nplaces;
}

/* Of one span, or of both. */
static void change_length(struct mutant *mutant)
{
    struct tt_span *span = draw_span(mutant);
    if (!span) return;
    const int more = draw_below(mutant, 2) ? 1 : -1;
    struct tt_span *const spans[] = {&mutant->changed.local, &mutant->changed.dst};
    const bool both = draw_below(mutant, 2);
    for (int i = 0; i < 2; i++) {
        if (spans[i]->number == 0 || (!both && spans[i] != span)) continue;
        if (spans[i]->run == spans[i]->number) spans[i]->run += more;
        spans[i]->number += more;
    }
}

static void change_slot(struct mutant *mutant)
{
    struct tt_span *span = draw_span(mutant);
    const struct tt_steps *steps = &mutant->original;
    const int nscratch = tt_nscratch(steps->algorithm, &steps->shape, mutant->rank);
    if (!span || span->buffer != TT_SCRATCH || nscratch < 2) return;
    span->slot = draw_below(mutant, nscratch);
    if (draw_below(mutant, 2)) span->slot_rule = TT_SLOT_IN_ORDER;
}

static void change_buffer(struct mutant *mutant)
{
    struct tt_span *span = draw_span(mutant);
    if (span)
        span->buffer = (enum tt_buffer)((span->buffer + 1 + (unsigned)draw_below(mutant, 2)) % 3);
}

/* Another part of the blocks, or the same in another order. */
static void change_part(struct mutant *mutant)
{
    struct tt_span *span = draw_span(mutant);
    const int nblocks = tt_nblocks(mutant->original.algorithm, &mutant->original.shape);
    if (!span) return;
    if (span->order && draw_below(mutant, 2))
        span->order = NULL;
    else if (span->modulo > 0)
        span->base = (span->base + 1 + draw_below(mutant, nblocks)) % nblocks;
}

/* The ranks of another host or lane. */
static void change_group(struct mutant *mutant)
{
    struct tt_peers *peers = draw_peers(mutant);
    const struct tt_hosts *hosts = mutant->original.shape.hosts;
    if (!peers || !peers->group.ranks) return;
    peers->group = draw_below(mutant, 2) ? tt_hosts_inside(hosts, draw_below(mutant, hosts->nhosts))
                                         : tt_hosts_lane(hosts, draw_below(mutant, hosts->least));
}

/* Another peer is left out, or none, or one that was not. */
static void change_gap(struct mutant *mutant)
{
    struct tt_peers *peers = draw_peers(mutant);
    if (!peers) return;
    if (peers->has_gap && draw_below(mutant, 2)) {
        peers->has_gap = false;
        return;
    }
    peers->has_gap = true;
    peers->gap = draw_below(mutant, peers->number + 1);
}

/* False when this mutation of the drawn step changes nothing. */
static bool mutate(struct mutant *mutant)
{
    const struct tt_step before =
        original_step(mutant, mutant->rank, mutant->channel, mutant->index);
    mutant->changed = before;
    switch (mutant->mutation) {
    case DROP:
    case DOUBLE:
        return true;
    case SWAP:
        return mutant->index + 1 < original_nsteps(mutant, mutant->rank, mutant->channel);
    case PEER:
        change_peer(mutant);
        break;
    case BLOCK:
        change_block(mutant);
        break;
    case LENGTH:
        change_length(mutant);
        break;
    case OPERATION:
        mutant->changed.op = before.op == TT_COPY ? TT_FOLD : TT_COPY;
        break;
    case FINISH:
        mutant->changed.finish = !before.finish;
        break;
    case BUFFER:
        change_buffer(mutant);
        break;
    case PART:
        change_part(mutant);
        break;
    case GROUP:
        change_group(mutant);
        break;
    case GAP:
        change_gap(mutant);
        break;
    default:
        change_slot(mutant);
    }
    return memcmp(&before, &mutant->changed, sizeof before) != 0;
}

/* ---- Judging -------------------------------------------------------------------------------- */

static struct {
    int mutants, refused, refused_and_seen, refused_unseen, passed_and_right, passed_but_wrong;
    int not_for_posts, not_for_posts_and_seen; /* of those that passed */
} tally[NMUTATIONS];

static const size_t counts[] = {37, 1, 0};

static bool is_refused(const struct tt_steps *steps, struct tt_verify_report *report)
{
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        if (tt_verify(steps, counts[i], report) != TT_OK) return true;
        if (report->any_count) return false;
    }
    return false;
}

/* What the interpreter finds wrong in `nruns` random executions; NULL: nothing. */
static const char *find_wrong(const struct tt_steps *steps, bool direct, bool posts, int nruns,
                              uint64_t seed)
{
    const enum tt_collective collective = steps->shape.collective;
    const bool in_place = tt_collective_row(collective)->in_place;
    for (int i = 0; i < nruns; i++) {
        const struct run run = {.count = counts[i % 4 ? 0 : 1],
                                .in_place = in_place && i % 2,
                                .direct = direct,
                                .posts = posts,
                                .seed = seed + (uint64_t)i};
        const char *wrong = interpret(steps, &run);
        if (wrong) return wrong;
    }
    return NULL;
}

static bool well_formed(const struct tt_steps *steps, const struct mutant *mutant)
{
    const struct tt_shape *shape = &steps->shape;
    if (mutant->mutation <= SWAP) return true;
    return !tt_step_check(&mutant->changed, shape, tt_nblocks(steps->algorithm, shape),
                          tt_nscratch(steps->algorithm, shape, mutant->rank), mutant->rank);
}

static void judge(struct mutant *mutant)
{
    const struct tt_steps steps = {.algorithm = mutant->original.algorithm,
                                   .shape = mutant->original.shape,
                                   .nsteps = nsteps,
                                   .step = get_step,
                                   .arg = mutant};
    struct tt_verify_report report;
    const uint64_t seed = mutant->seed % 1000003 + 1;
    tally[mutant->mutation].mutants++;
    if (is_refused(&steps, &report)) {
        const bool seen = !well_formed(&steps, mutant) || find_wrong(&steps, false, false, 4, seed);
        tally[mutant->mutation].refused++;
        tally[mutant->mutation].refused_and_seen += seen;
        tally[mutant->mutation].refused_unseen += !seen;
        return;
    }
    const char *wrong = find_wrong(&steps, false, false, 20, seed);
    if (!wrong) wrong = find_wrong(&steps, report.direct_safe, report.post_safe, 20, seed);
    if (!report.post_safe) {
        tally[mutant->mutation].not_for_posts++;
        tally[mutant->mutation].not_for_posts_and_seen +=
            find_wrong(&steps, report.direct_safe, true, 40, seed) != NULL;
    }
    tally[mutant->mutation].passed_and_right += !wrong;
    tally[mutant->mutation].passed_but_wrong += wrong != NULL;
    CHECK_MESSAGE(
        !wrong,
        "%s:%s over %d ranks, root %d: rank %d channel %d step %d, %s: verify lets it pass, but %s",
        tt_collective_name(steps.shape.collective), steps.algorithm->name, steps.shape.nranks,
        steps.shape.root, mutant->rank, mutant->channel, mutant->index, names[mutant->mutation],
        wrong);
}

/* hosts: NULL for one. */
static void mutate_algorithm(const struct tt_algorithm *algorithm, int nranks,
                             const struct tt_hosts *hosts, uint64_t seed)
{
    const int tries = hosts ? 2 : 12;
    for (int i = 0; i < tries * NMUTATIONS; i++) {
        struct mutant mutant = {.original = {.algorithm = algorithm},
                                .mutation = (enum mutation)(i % NMUTATIONS),
                                .seed = (seed + (uint64_t)i * 7919) * 0x9e3779b97f4a7c15u + 1};
        draw(&mutant);
        const bool has_root = tt_collective_has_root(algorithm->collective);
        mutant.original.shape =
            (struct tt_shape){.collective = algorithm->collective,
                              .nranks = nranks,
                              .root = has_root ? draw_below(&mutant, nranks) : 0,
                              .hosts = hosts};
        mutant.rank = draw_below(&mutant, nranks);
        mutant.channel = draw_below(&mutant, tt_nchannels(algorithm, &mutant.original.shape));
        const int number = original_nsteps(&mutant, mutant.rank, mutant.channel);
        if (number == 0) continue;
        mutant.index = draw_below(&mutant, number);
        if (mutate(&mutant)) judge(&mutant);
    }
}

static void print_tally(void)
{
    int mutants = 0, refused = 0, unseen = 0, right = 0, unposted = 0, unposted_seen = 0;
    printf("%-10s %8s %8s %18s %20s\n", "mutation", "mutants", "refused", "of these unseen",
           "passed, not wrong");
    for (int i = 0; i < NMUTATIONS; i++) {
        printf("%-10s %8d %8d %18d %20d\n", names[i], tally[i].mutants, tally[i].refused,
               tally[i].refused_unseen, tally[i].passed_and_right);
        mutants += tally[i].mutants;
        refused += tally[i].refused;
        unseen += tally[i].refused_unseen;
        unposted += tally[i].not_for_posts;
        unposted_seen += tally[i].not_for_posts_and_seen;
        right += tally[i].passed_and_right;
    }
    printf(
        "%d of %d mutants refused (%.1f %%), %d passed and are not wrong; unseen: the interpreter "
        "found nothing wrong in %d that were refused\n",
        refused, mutants, 100.0 * refused / (mutants ? mutants : 1), right, unseen);
    printf("%d of those that passed may not be posted; the interpreter saw %d of these go wrong\n",
           unposted, unposted_seen);
}

TEST(mutants, every_wrong_one_is_refused)
{
    static const int sizes[] = {2, 3, 4, 5, 8};
    const uint64_t seed = 20240607;
    printf("seed %llu\n", (unsigned long long)seed);
    for (int collective = 0; collective < TT_NCOLLECTIVES; collective++) {
        const struct tt_algorithm *algorithm;
        for (int i = 0;
             (algorithm = tt_algorithm_at((enum tt_collective)collective, i)) && !algorithm->parts;
             i++)
            for (size_t k = 0; k < sizeof sizes / sizeof *sizes; k++)
                mutate_algorithm(algorithm, sizes[k], NULL,
                                 seed + (uint64_t)(collective * 100 + i) * 10 + k);
    }
    print_tally();
}

/* The interpreter takes 8 ranks. */
static const char *const placements[] = {"aabb", "abba", "aab", "abcabc", "aaabbcbb", "abab"};
enum { NPLACEMENTS = sizeof placements / sizeof *placements };

TEST(mutants, every_wrong_one_between_hosts_is_refused)
{
    const uint64_t seed = 20251121;
    const struct tt_algorithm *algorithm;
    printf("seed %llu\n", (unsigned long long)seed);
    memset(tally, 0, sizeof tally);
    for (int i = 0; (algorithm = each_pair(i)); i++)
        for (int p = 0; p < NPLACEMENTS; p++) {
            struct placed placed;
            if (!place(&placed, algorithm, placements[p])) continue;
            mutate_algorithm(algorithm, placed.hosts->nranks, placed.hosts,
                             seed + (uint64_t)(i * NPLACEMENTS + p) * 131);
            tt_hosts_destroy(placed.hosts);
        }
    print_tally();
}

TEST(mutants, the_originals_between_hosts_are_right_by_the_interpreter_too)
{
    const struct tt_algorithm *algorithm;
    for (int i = 0; (algorithm = each_pair(i)); i++)
        for (int p = 0; p < NPLACEMENTS; p++) {
            struct placed placed;
            if (!place(&placed, algorithm, placements[p])) continue;
            if (tt_collective_has_root(algorithm->collective))
                placed.steps.shape.root = placed.hosts->nranks / 2;
            const char *wrong = find_wrong(&placed.steps, algorithm->direct_safe, true, 8, 1);
            CHECK_MESSAGE(!wrong, "%s:%s on %s: %s", tt_collective_name(algorithm->collective),
                          algorithm->name, placements[p], wrong);
            tt_hosts_destroy(placed.hosts);
        }
}

/* Runs every algorithm of one host. in_place: its messages are references where they may be, and
 * posted. */
static void run_originals(const int *sizes, size_t nsizes, bool in_place, int nruns)
{
    const struct tt_algorithm *algorithm;
    for (int i = 0; (algorithm = each(i)); i++)
        for (size_t k = 0; k < nsizes; k++) {
            const int nranks = sizes[k], root = in_place ? nranks - 1 : nranks / 2;
            const bool has_root = tt_collective_has_root(algorithm->collective);
            const struct tt_steps steps = {.algorithm = algorithm,
                                           .shape = {.collective = algorithm->collective,
                                                     .nranks = nranks,
                                                     .root = has_root ? root : 0}};
            const char *wrong =
                find_wrong(&steps, in_place && algorithm->direct_safe, in_place, nruns, 1 + k);
            CHECK_MESSAGE(!wrong, "%s:%s over %d ranks: %s",
                          tt_collective_name(algorithm->collective), algorithm->name, nranks,
                          wrong);
        }
}

TEST(mutants, the_originals_are_right_by_the_interpreter_too)
{
    static const int sizes[] = {1, 2, 3, 4, 5, 8};
    run_originals(sizes, sizeof sizes / sizeof *sizes, false, 8);
}

/* Verify's verdict on links that do not copy at the send, against executions with such links. */
static void check_direct(const struct tt_algorithm *algorithm, int nranks, int *nunsafe)
{
    const bool has_root = tt_collective_has_root(algorithm->collective);
    const struct tt_steps steps = {.algorithm = algorithm,
                                   .shape = {.collective = algorithm->collective,
                                             .nranks = nranks,
                                             .root = has_root ? nranks - 1 : 0}};
    struct tt_verify_report report;
    REQUIRE(tt_verify(&steps, counts[0], &report) == TT_OK);
    const char *wrong = find_wrong(&steps, true, false, report.direct_safe ? 40 : 2000, 1);
    *nunsafe += !report.direct_safe;
    CHECK_MESSAGE(!wrong == report.direct_safe,
                  "%s:%s over %d ranks: verify says \"%s\", the interpreter \"%s\"",
                  tt_collective_name(algorithm->collective), algorithm->name, nranks, report.direct,
                  wrong ? wrong : "");
}

TEST(direct_links, every_schedule_is_right_when_senders_write_what_is_only_stored)
{
    static const int sizes[] = {2, 3, 4, 5, 8};
    run_originals(sizes, sizeof sizes / sizeof *sizes, true, 40);
}

TEST(direct_links, what_verify_calls_safe_is_right_and_what_it_calls_unsafe_goes_wrong)
{
    static const int sizes[] = {2, 3, 4, 5, 8};
    int nunsafe = 0;
    for (int collective = 0; collective < TT_NCOLLECTIVES; collective++) {
        const struct tt_algorithm *algorithm;
        for (int i = 0;
             (algorithm = tt_algorithm_at((enum tt_collective)collective, i)) && !algorithm->parts;
             i++)
            for (size_t k = 0; k < sizeof sizes / sizeof *sizes; k++)
                check_direct(algorithm, sizes[k], &nunsafe);
    }
    CHECK(nunsafe > 0);
}
