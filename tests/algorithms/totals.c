/* What the ranks of a host do together: the counts of the schedule against what the programs of all
 * ranks add up to. */
#include <inttypes.h>
#include <stdlib.h>

#include "shim.h"
#include "each.h"
#include "program/lower.h"

enum { MOST_RANKS = 16 };

/* One rank's part of the totals, from its program alone. */
static struct tt_totals totals_of(const struct tt_program *program, int nmembers, bool is_first)
{
    struct tt_totals sum = {.one_way = true};
    for (int channel = 0; channel < program->nchannels; channel++) {
        bool has_sent = false;
        for (uint32_t i = 0; i < tt_program_channel(program, channel)->nsteps; i++) {
            const struct tt_program_step *step = tt_program_step(program, channel, i);
            const bool meets = step->kind == TT_STEP_MEET, folds = step->op == TT_FOLD;
            const uint64_t own = (uint64_t)step->local.number, dst = (uint64_t)step->dst.number;
            const uint64_t blocks = own ? own : dst;
            if (program->nblocks > 0) CHECK(meets || blocks > 0);
            sum.actions += meets ? 2 : 1 + step->nrecv + step->nsend;
            sum.sent += meets ? own : step->nsend * blocks;
            sum.stored += dst;
            if (folds && meets)
                sum.reduced += is_first ? (uint64_t)nmembers * own : 0;
            else if (folds)
                sum.reduced += (step->nrecv + (own > 0)) * blocks;
            if (meets || (has_sent && step->nrecv > 0)) sum.one_way = false;
            has_sent = has_sent || step->nsend > 0;
        }
    }
    return sum;
}

static void raise(uint64_t *most, uint64_t value)
{
    if (value > *most) *most = value;
}

/* Each number of the host where it is most. */
static struct tt_totals add_up(const struct tt_algorithm *algorithm, const struct tt_shape *shape)
{
    struct tt_totals of_host[MOST_RANKS] = {{.actions = 0}}, most = {.one_way = true};
    const struct tt_hosts *hosts = shape->hosts;
    for (int rank = 0; rank < shape->nranks; rank++) {
        const int host = hosts ? hosts->host_of[rank] : 0;
        const int nmembers = hosts ? tt_hosts_size(hosts, host) : shape->nranks;
        const bool is_first = hosts ? hosts->local_of[rank] == 0 : rank == 0;
        struct tt_program *program;
        const tt_status status = tt_program_create(algorithm, shape, rank, &program);
        CHECK_MESSAGE(status == TT_OK, "%s", tt_last_error());
        if (status) return most;
        const struct tt_totals own = totals_of(program, nmembers, is_first);
        struct tt_totals *sum = &of_host[host];
        sum->actions += own.actions;
        sum->sent += own.sent;
        sum->reduced += own.reduced;
        sum->stored += own.stored;
        raise(&most.actions, sum->actions);
        raise(&most.sent, sum->sent);
        raise(&most.reduced, sum->reduced);
        raise(&most.stored, sum->stored);
        most.one_way = most.one_way && own.one_way;
        free(program);
    }
    return most;
}

static void compare(const struct tt_algorithm *algorithm, const struct tt_shape *shape,
                    const char *where)
{
    const struct tt_steps steps = {.algorithm = algorithm, .shape = *shape};
    struct tt_totals counted = {.actions = 0};
    CHECK(tt_count_totals(&steps, &counted) == TT_OK);
    const struct tt_totals sum = add_up(algorithm, shape);
    CHECK_MESSAGE(counted.actions == sum.actions && counted.sent == sum.sent &&
                      counted.reduced == sum.reduced && counted.stored == sum.stored &&
                      counted.one_way == sum.one_way,
                  "%s:%s, %d ranks %s, root %d: %" PRIu64 " actions, %" PRIu64
                  " blocks sent, %" PRIu64 " reduced, %" PRIu64
                  " stored, one way %d; the programs have %" PRIu64 ", %" PRIu64 ", %" PRIu64
                  ", %" PRIu64 ", %d",
                  tt_collective_name(algorithm->collective), algorithm->name, shape->nranks, where,
                  shape->root, counted.actions, counted.sent, counted.reduced, counted.stored,
                  counted.one_way, sum.actions, sum.sent, sum.reduced, sum.stored, sum.one_way);
}

TEST(totals, are_what_the_programs_of_all_ranks_add_up_to)
{
    const struct tt_algorithm *algorithm;
    for (int i = 0; (algorithm = each(i)) != NULL; i++)
        for (int nranks = 1; nranks <= MOST_RANKS; nranks++) {
            const int root = tt_collective_has_root(algorithm->collective) ? nranks / 2 : 0;
            const struct tt_shape shape = shape_of(algorithm, nranks, root);
            compare(algorithm, &shape, "on one host");
        }
}

TEST(totals, on_several_hosts_are_those_of_the_host_that_does_most)
{
    const char *const placements[] = {"aabb", "abab", "aaab", "abbbcc", "aaaabbbb"};
    const struct tt_algorithm *algorithm;
    int ncompared = 0;
    for (size_t p = 0; p < sizeof placements / sizeof *placements; p++) {
        struct tt_hosts *hosts = hosts_of(placements[p]);
        REQUIRE(hosts != NULL);
        for (int pairs = 0; pairs < 2; pairs++)
            for (int i = 0; (algorithm = each_of(pairs, i)) != NULL; i++) {
                struct tt_shape shape = shape_of(algorithm, hosts->nranks, 0);
                shape.hosts = hosts;
                if (tt_refusal(algorithm, &shape)) continue;
                compare(algorithm, &shape, placements[p]);
                ncompared++;
            }
        tt_hosts_destroy(hosts);
    }
    CHECK(ncompared > 500);
}

/* direct, 4 ranks: three ranks send, the root takes three messages and folds four parts. */
TEST(totals, of_a_direct_reduce_by_hand)
{
    const struct tt_algorithm *algorithm = tt_algorithm_find(TT_REDUCE, "direct");
    const struct tt_steps steps = {.algorithm = algorithm, .shape = shape_of(algorithm, 4, 1)};
    struct tt_totals totals;
    REQUIRE(tt_count_totals(&steps, &totals) == TT_OK);
    CHECK_EQ(totals.actions, 3 * (1 + 1) + 1 + 3);
    CHECK_EQ(totals.sent, 3);
    CHECK_EQ(totals.reduced, 4);
    CHECK_EQ(totals.stored, 1);
    CHECK(totals.one_way);
}

TEST(totals, know_which_ranks_wait_for_no_answer)
{
    static const struct {
        enum tt_collective collective;
        const char *name;
        bool one_way;
    } cases[] = {{TT_BROADCAST, "direct", true},     {TT_BROADCAST, "chain", true},
                 {TT_BROADCAST, "binomial", true},   {TT_BROADCAST, "scatter_allgather", false},
                 {TT_BROADCAST, "meet", false},      {TT_REDUCE, "chain", true},
                 {TT_REDUCE, "two_shot", false},     {TT_GATHER, "binomial", true},
                 {TT_ALL_REDUCE, "parallel", false}, {TT_BARRIER, "dissemination", false}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const struct tt_algorithm *algorithm =
            tt_algorithm_find(cases[i].collective, cases[i].name);
        REQUIRE(algorithm != NULL);
        const struct tt_steps steps = {.algorithm = algorithm, .shape = shape_of(algorithm, 5, 0)};
        struct tt_totals totals;
        REQUIRE(tt_count_totals(&steps, &totals) == TT_OK);
        CHECK_MESSAGE(totals.one_way == cases[i].one_way, "%s:%s",
                      tt_collective_name(cases[i].collective), cases[i].name);
    }
}
