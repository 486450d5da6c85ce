/* What ./check proves, and what is proved at its first use instead. */
#include "program/first_use.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "algorithms/algorithms.h"
#include "algorithms/each.h"
#include "program/proof.h"
#include "shim.h"

static struct tt_shape all_reduce_shape(int nranks)
{
    return (struct tt_shape){.collective = TT_ALL_REDUCE, .nranks = nranks};
}

/* How many proofs the first use of the programs has run. */
static int proofs_of(const struct tt_algorithm *algorithm, const struct tt_shape *shape)
{
    bool any_count;
    const uint64_t before = tt_first_use_proofs();
    const tt_status status = tt_prove_first_use(algorithm, shape, 0, &any_count);
    CHECK_MESSAGE(status == TT_OK, "%s", tt_last_error());
    return (int)(tt_first_use_proofs() - before);
}

TEST(first_use, check_proves_as_many_ranks_as_the_predicate_says)
{
    char text[65536], wanted[64];
    FILE *file = fopen(TUTTI_SOURCE_DIR "/check", "r");
    REQUIRE(file != NULL);
    text[fread(text, 1, sizeof text - 1, file)] = '\0';
    fclose(file);
    snprintf(wanted, sizeof wanted, "verify --all --ranks 1-%d\n", TT_COVERED_RANKS);
    CHECK_MESSAGE(strstr(text, wanted), "./check does not run \"%s\"", wanted);
}

TEST(first_use, of_more_ranks_than_check_proves_runs_one_proof)
{
    const struct tt_algorithm *ring = tt_algorithm_find(TT_ALL_REDUCE, "ring");
    const struct tt_shape covered = all_reduce_shape(TT_COVERED_RANKS), more = all_reduce_shape(40),
                          most = all_reduce_shape(TT_PROOF_MOST_RANKS),
                          too_many = all_reduce_shape(TT_PROOF_MOST_RANKS + 1);
    CHECK_EQ(proofs_of(ring, &covered), 0);
    CHECK_EQ(proofs_of(ring, &more), 1);
    CHECK_EQ(proofs_of(ring, &more), 0);
    CHECK_EQ(proofs_of(ring, &most), 1);
    CHECK_EQ(proofs_of(ring, &too_many), 0);
}

TEST(first_use, on_hosts_that_check_does_not_prove_runs_one_proof)
{
    const struct tt_algorithm *algorithm = tt_algorithm_find(TT_ALL_REDUCE, "binomial/ring");
    REQUIRE(algorithm != NULL); /* fits any hosts */
    static const struct {
        const char *placement;
        int nproofs;
    } cases[] = {{"abba", 0}, {"baab", 0}, {"aabaaab", 1}, {"bbabbba", 0}, {"aabaaba", 1}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct tt_hosts *hosts = hosts_of(cases[i].placement);
        REQUIRE(hosts != NULL);
        struct tt_shape shape = all_reduce_shape(hosts->nranks);
        shape.hosts = hosts;
        CHECK_EQ(proofs_of(algorithm, &shape), cases[i].nproofs);
        tt_hosts_destroy(hosts);
    }
}

/* The ranks of each letter are a group of one host. */
static struct tt_hosts *groups_of(const char *placement)
{
    struct tt_hosts *groups = hosts_of(placement);
    if (groups) groups->one_host = true;
    return groups;
}

/* What runs on GPUs that are far from one another is proved here, not by ./check. */
TEST(first_use, on_groups_of_a_host_every_algorithm_is_proved)
{
    static const char *const placements[] = {"abab", "abba", "aabbb", "abcabcab", "aaaabbbb"};
    for (size_t i = 0; i < sizeof placements / sizeof *placements; i++)
        for (int c = 0; c < TT_NCOLLECTIVES; c++) {
            const struct tt_algorithm *algorithm;
            struct tt_hosts *groups = groups_of(placements[i]);
            REQUIRE(groups != NULL);
            const struct tt_shape shape = {.collective = (enum tt_collective)c,
                                           .nranks = groups->nranks,
                                           .root = 1,
                                           .hosts = groups};
            for (int a = 0; (algorithm = tt_algorithm_at(shape.collective, a)); a++)
                if (!tt_refusal(algorithm, &shape)) CHECK_EQ(proofs_of(algorithm, &shape), 1);
            tt_hosts_destroy(groups);
        }
}

/* Ranks 0, 2, 1, 3, 0: two of four messages stay in their group. */
TEST(first_use, a_ring_goes_round_group_by_group)
{
    static const int next[] = {2, 3, 1, 0};
    struct tt_hosts *groups = groups_of("abab");
    REQUIRE(groups != NULL);
    struct tt_shape shape = all_reduce_shape(4);
    shape.hosts = groups;
    const struct tt_algorithm *ring = tt_algorithm_find(TT_ALL_REDUCE, "ring");
    for (int r = 0; r < 4; r++) {
        struct tt_step step = {0};
        tt_step(ring, &shape, r, 0, 0, &step);
        CHECK_EQ(step.send.first, next[r]);
        groups->one_host = false; /* hosts, between which a ring goes in rank order */
        step = (struct tt_step){0};
        tt_step(ring, &shape, r, 0, 0, &step);
        CHECK_EQ(step.send.first, (r + 1) % 4);
        groups->one_host = true;
    }
    tt_hosts_destroy(groups);
}

TEST(first_use, another_root_is_another_program)
{
    const struct tt_algorithm *binomial = tt_algorithm_find(TT_BROADCAST, "binomial");
    struct tt_shape shape = {.collective = TT_BROADCAST, .nranks = 37};
    CHECK_EQ(proofs_of(binomial, &shape), 1);
    shape.root = 11;
    CHECK_EQ(proofs_of(binomial, &shape), 1);
    CHECK_EQ(proofs_of(binomial, &shape), 0);
}

/* ---- A wrong program ------------------------------------------------------------------------ */

static void wrong_step(const struct tt_algorithm *self, const struct tt_shape *shape, int rank,
                       int channel, int index, struct tt_step *step)
{
    tt_algorithm_find(TT_ALL_REDUCE, "ring")->step(self, shape, rank, channel, index, step);
    if (rank == 5 && index == 2) step->local.first = (step->local.first + 1) % shape->nranks;
}

TEST(first_use, of_a_wrong_program_is_an_internal_error_that_says_what_is_wrong)
{
    static struct tt_algorithm wrong;
    const struct tt_shape shape = all_reduce_shape(36);
    bool any_count;
    wrong = *tt_algorithm_find(TT_ALL_REDUCE, "ring");
    wrong.name = "wrong";
    wrong.step = wrong_step;
    for (int again = 0; again < 2; again++) {
        CHECK_EQ(tt_prove_first_use(&wrong, &shape, 0, &any_count), TT_ERR_INTERNAL);
        CHECK_MESSAGE(strstr(tt_last_error(), "all_reduce:wrong over 36 ranks") &&
                          strstr(tt_last_error(), "rank 5 channel "),
                      "%s", tt_last_error());
    }
}

/* ---- A schedule of too many ranks for a proof of its programs ----------------------------------
 */

static int one_step_more(const struct tt_algorithm *self, const struct tt_shape *shape, int rank,
                         int channel)
{
    return tt_algorithm_find(TT_ALL_GATHER, "ring")->nsteps(self, shape, rank, channel) +
           (rank == 1);
}

/* A ring, but rank 1 first stores its own block where rank 0's message will go. */
static void use_before(const struct tt_algorithm *self, const struct tt_shape *shape, int rank,
                       int channel, int index, struct tt_step *step)
{
    const struct tt_algorithm *ring = tt_algorithm_find(TT_ALL_GATHER, "ring");
    if (rank == 1 && index == 0) {
        struct tt_step first = {0};
        ring->step(self, shape, rank, channel, 0, &first);
        step->local = first.local;
        step->dst = first.dst;
        step->dst.first = 0;
    } else {
        ring->step(self, shape, rank, channel, index - (rank == 1), step);
    }
}

TEST(first_use, a_schedule_of_too_many_ranks_to_prove_its_programs_may_be_posted_or_is_refuted)
{
    static struct tt_algorithm early;
    static const size_t count = 3;
    struct tt_verify_report report;
    struct tt_steps steps = {
        .algorithm = tt_algorithm_find(TT_ALL_GATHER, "ring"),
        .shape = {.collective = TT_ALL_GATHER, .nranks = TT_PROOF_MOST_RANKS + 1}};
    CHECK_MESSAGE(tt_proof_of_steps(&steps, &count, &report) == TT_OK, "%s", report.text);
    early = *steps.algorithm;
    early.nsteps = one_step_more;
    early.step = use_before;
    steps.algorithm = &early;
    CHECK_EQ(tt_proof_of_steps(&steps, &count, &report), TT_ERR_USAGE);
    CHECK_MESSAGE(strstr(report.text, "messages may be posted, but rank 1 "), "%s", report.text);
}

/* ---- Many threads --------------------------------------------------------------------------- */

enum { NTHREADS = 64 };

static void *use(void *argument)
{
    const struct tt_shape shape = all_reduce_shape(48);
    bool any_count;
    tt_status *status = argument;
    *status = tt_prove_first_use(tt_algorithm_find(TT_ALL_REDUCE, "tree"), &shape, 0, &any_count);
    return NULL;
}

TEST(first_use, by_many_threads_at_once_runs_one_proof)
{
    pthread_t threads[NTHREADS];
    tt_status statuses[NTHREADS];
    const uint64_t before = tt_first_use_proofs();
    for (int i = 0; i < NTHREADS; i++)
        REQUIRE(pthread_create(&threads[i], NULL, use, &statuses[i]) == 0);
    for (int i = 0; i < NTHREADS; i++) {
        pthread_join(threads[i], NULL);
        CHECK_EQ(statuses[i], TT_OK);
    }
    CHECK_EQ(tt_first_use_proofs() - before, 1u);
}

/* ---- What the predicate takes for granted --------------------------------------------------- */

static void check_any_count(const struct tt_algorithm *algorithm, const struct tt_shape *shape)
{
    struct tt_proof *proof;
    struct tt_verify_report report;
    REQUIRE(tt_proof_create(algorithm, shape, &proof) == TT_OK);
    CHECK(tt_proof_covers(algorithm, shape));
    const tt_status status = tt_proof_run(proof, 0, &report);
    CHECK_MESSAGE(status == TT_OK && report.any_count, "%s:%s over %d ranks: %s",
                  tt_collective_name(shape->collective), algorithm->name, shape->nranks,
                  status ? report.text : "the proof depends on the count");
    tt_proof_destroy(proof);
}

TEST(first_use, proofs_hold_for_every_count)
{
    const struct tt_algorithm *algorithm;
    for (int i = 0; (algorithm = each(i)) && !tt_test_failed(); i++)
        for (int n = 1; n <= TT_COVERED_RANKS; n += 1 + n / 4) {
            const struct tt_shape shape = shape_of(algorithm, n, 0);
            check_any_count(algorithm, &shape);
        }
    for (int i = 0; (algorithm = each_pair(i)) && !tt_test_failed(); i++)
        for (int p = 0; each_placement(p); p += 3) {
            struct placed placed;
            if (!place(&placed, algorithm, each_placement(p))) continue;
            check_any_count(algorithm, &placed.steps.shape);
            tt_hosts_destroy(placed.hosts);
        }
}

static struct tt_program *program_of(const struct tt_algorithm *algorithm,
                                     const struct tt_shape *shape, int rank)
{
    struct tt_program *program;
    return tt_program_create(algorithm, shape, rank, &program) ? NULL : program;
}

TEST(first_use, algorithms_not_made_of_others_have_the_same_programs_on_any_hosts)
{
    const struct tt_algorithm *algorithm;
    for (int i = 0; (algorithm = each(i)); i++)
        for (int p = 0; each_placement(p); p++) {
            struct placed placed;
            if (!place(&placed, algorithm, each_placement(p))) continue;
            const struct tt_shape bare = shape_of(algorithm, placed.hosts->nranks, 0);
            for (int r = 0; r < bare.nranks; r++) {
                struct tt_program *here = program_of(algorithm, &bare, r),
                                  *there = program_of(algorithm, &placed.steps.shape, r);
                CHECK(here && there && here->nbytes == there->nbytes &&
                      memcmp(here, there, here->nbytes) == 0);
                free(here);
                free(there);
            }
            tt_hosts_destroy(placed.hosts);
        }
}

/* ---- Cost ----------------------------------------------------------------------------------- */

static double now_us(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return 1e6 * (double)now.tv_sec + 1e-3 * (double)now.tv_nsec;
}

static void print_cost(int nranks)
{
    const struct tt_algorithm *algorithm, *slowest = NULL;
    double all = 0, most = 0;
    int number = 0;
    for (int i = 0; (algorithm = each(i)); i++, number++) {
        const struct tt_shape shape = shape_of(algorithm, nranks, 0);
        struct tt_proof *proof;
        struct tt_verify_report report;
        const double start = now_us();
        REQUIRE(tt_proof_create(algorithm, &shape, &proof) == TT_OK);
        CHECK_EQ(tt_proof_run(proof, 0, &report), TT_OK);
        tt_proof_destroy(proof);
        const double took = now_us() - start;
        all += took;
        if (took > most) {
            most = took;
            slowest = algorithm;
        }
    }
    REQUIRE(slowest != NULL);
    printf("%d ranks: a proof takes %.0f us on average, %.0f us at most (%s:%s)\n", nranks,
           all / number, most, tt_collective_name(slowest->collective), slowest->name);
}

TEST(first_use, cost_of_a_proof_is_printed)
{
    for (int nranks = 8; nranks <= TT_PROOF_MOST_RANKS; nranks *= 2) print_cost(nranks);
}
