/* Programs say what their schedules say, piece by piece, and are proved as they are. */
#include <stdlib.h>
#include <string.h>

#include "algorithms/algorithms.h"
#include "algorithms/each.h"
#include "program/proof.h"
#include "shim.h"

enum { MOST_RANKS = 9, ROOMY = 1 << 20 };

/* One rank's schedule, its program, and both cuts of one count. */
struct pair {
    struct tt_schedule *schedule;
    struct tt_program *program;
    struct tt_binding binding;
    struct tt_binding *uneven;   /* in place of the binding: with a table of blocks */
    struct tt_geometry geometry; /* nchannels: of all copies */
    const size_t *begins;        /* of the blocks; NULL: packed */
};

static const struct tt_binding *binding_of(const struct pair *pair)
{
    return pair->uneven ? pair->uneven : &pair->binding;
}

static bool pair_init(struct pair *pair, const struct tt_algorithm *algorithm,
                      const struct tt_shape *shape, int rank, size_t count, int copies)
{
    const struct tt_limits limits = {.slot_bytes = 256, .meet_bytes = 256, .copies = copies};
    *pair = (struct pair){.schedule = NULL};
    if (tt_schedule_create(algorithm, shape, rank, &pair->schedule) ||
        tt_program_lower(pair->schedule, &pair->program) ||
        tt_program_bind(pair->program, count, 4, &limits, &pair->binding)) {
        CHECK_MESSAGE(false, "%s:%s: %s", tt_collective_name(shape->collective), algorithm->name,
                      tt_last_error());
        return false;
    }
    pair->geometry =
        (struct tt_geometry){.count = count,
                             .nblocks = pair->schedule->nblocks,
                             .nchannels = pair->schedule->nchannels * pair->binding.copies,
                             .align = 16,
                             .split = tt_collective_splits(shape->collective)};
    return true;
}

static void pair_fini(struct pair *pair)
{
    tt_schedule_destroy(pair->schedule);
    free(pair->program);
    free(pair->uneven);
}

static size_t block_begin(const struct pair *pair, const struct tt_span *span, int i)
{
    size_t begin;
    tt_geometry_block(&pair->geometry, tt_span_name(span, i, pair->geometry.nblocks), &begin);
    return begin;
}

/* Where the schedule and the geometry say that the i-th piece of a round lies. */
static struct tt_piece expected_piece(const struct pair *pair, const struct tt_span *span, int i,
                                      int part, size_t round)
{
    const int nblocks = pair->geometry.nblocks;
    size_t begin;
    const size_t length =
        tt_geometry_part(&pair->geometry, tt_span_name(span, i, nblocks), part, &begin);
    if (pair->begins)
        begin += pair->begins[tt_span_name(span, i, nblocks)] - block_begin(pair, span, i);
    const size_t piece = binding_of(pair)->piece, skip = round * piece;
    const size_t left = skip < length ? length - skip : 0;
    struct tt_piece expected = {.offset = (begin + (left ? skip : 0)) * 4,
                                .count = left < piece ? left : piece};
    if (span->buffer == TT_SCRATCH)
        expected.offset =
            ((size_t)tt_span_slot(span, i, nblocks) * (size_t)pair->geometry.nchannels +
             (size_t)part) *
            piece * 4;
    return expected;
}

static void check_span(const struct pair *pair, const struct tt_span *span,
                       const struct tt_program_span *lowered, int part, size_t round)
{
    const char *name = pair->schedule->algorithm->name;
    struct tt_walk walk =
        tt_walk_begin(pair->program, binding_of(pair), lowered, part, round, false);
    struct tt_piece piece;
    size_t total = 0;
    for (int i = 0; i < span->number; i++) {
        const struct tt_piece expected = expected_piece(pair, span, i, part, round);
        const bool more = tt_walk_next(&walk, &piece);
        CHECK_MESSAGE(more && piece.count == expected.count &&
                          (!piece.count || piece.offset == expected.offset),
                      "%s:%s, %d ranks, rank %d, count %zu, part %d, round %zu, piece %d: at "
                      "%zu, %zu elements; expected at %zu, %zu",
                      tt_collective_name(pair->schedule->shape.collective), name,
                      pair->schedule->shape.nranks, pair->schedule->rank, pair->geometry.count,
                      part, round, i, piece.offset, piece.count, expected.offset, expected.count);
        total += expected.count;
    }
    CHECK(!tt_walk_next(&walk, &piece));
    CHECK_EQ(tt_span_count(pair->program, binding_of(pair), lowered, part, round), total);
    if (!tt_span_is_whole(binding_of(pair), lowered) || !span->number) return;
    /* As one piece it begins where the first one does. */
    walk = tt_walk_begin(pair->program, binding_of(pair), lowered, part, round, true);
    CHECK(tt_walk_next(&walk, &piece));
    CHECK_EQ(piece.count, total);
    CHECK_EQ(piece.offset, expected_piece(pair, span, 0, part, round).offset);
}

static void check_peers(const struct pair *pair, const struct tt_peers *peers, uint32_t first,
                        uint32_t number, int channel, bool outgoing)
{
    const struct tt_program_link *links = tt_program_links(pair->program) + first;
    uint32_t seen = 0;
    for (int i = 0; i < peers->number; i++) {
        const int peer = tt_peer_at(peers, i, pair->schedule->shape.nranks);
        CHECK(seen < number && links[seen].peer == peer && links[seen].channel == channel &&
              links[seen].outgoing == outgoing);
        seen++;
    }
    CHECK_EQ(seen, number);
}

/* The parts of all copies and channels are each block, without gap or overlap. */
static void check_parts(const struct pair *pair)
{
    const struct tt_binding *binding = binding_of(pair);
    const int nparts = binding->copies * pair->program->nchannels;
    for (int b = 0; b < pair->program->nblocks; b++) {
        size_t at, begin;
        const size_t length = tt_binding_block(binding, b, &at), end = at + length;
        for (int part = 0; part < nparts; part++) {
            const size_t count = tt_binding_part(binding, b, part, &begin);
            CHECK_EQ(begin, at);
            CHECK(count <= binding->piece * binding->nrounds);
            at += count;
        }
        CHECK_EQ(at, end);
    }
}

static void check_steps(const struct pair *pair)
{
    check_parts(pair);
    const int ncopies = binding_of(pair)->copies;
    const struct tt_program *program = pair->program;
    CHECK_EQ(program->nchannels, pair->schedule->nchannels);
    for (int c = 0; c < program->nchannels; c++) {
        CHECK_EQ(tt_program_channel(program, c)->nsteps, (unsigned)pair->schedule->nsteps[c]);
        for (int s = 0; s < pair->schedule->nsteps[c] && !tt_test_failed(); s++) {
            const struct tt_step *step = &pair->schedule->steps[c][s];
            const struct tt_program_step *lowered = tt_program_step(program, c, (uint32_t)s);
            for (size_t i = 0; i < binding_of(pair)->nrounds * (size_t)ncopies; i++) {
                const int part = (int)(i % (size_t)ncopies) * program->nchannels + c;
                check_span(pair, &step->local, &lowered->local, part, i / (size_t)ncopies);
                check_span(pair, &step->dst, &lowered->dst, part, i / (size_t)ncopies);
            }
            if (step->kind == TT_STEP_MEET) continue;
            check_peers(pair, &step->recv, lowered->recv, lowered->nrecv, c, false);
            check_peers(pair, &step->send, lowered->send, lowered->nsend, c, true);
        }
    }
}

static void check_rank(const struct tt_algorithm *algorithm, const struct tt_shape *shape, int rank,
                       size_t count, int copies)
{
    struct pair pair;
    if (pair_init(&pair, algorithm, shape, rank, count, copies)) check_steps(&pair);
    pair_fini(&pair);
}

static void check_shape(const struct tt_algorithm *algorithm, const struct tt_shape *shape)
{
    static const size_t counts[] = {0, 1, 63, 1000, 12345};
    for (size_t k = 0; k < sizeof counts / sizeof *counts; k++)
        for (int rank = 0; rank < shape->nranks && !tt_test_failed(); rank++)
            for (int copies = 1; copies <= 7; copies += 3)
                check_rank(algorithm, shape, rank, counts[k], copies);
}

TEST(program, walks_through_the_pieces_that_the_schedule_and_the_geometry_say)
{
    const struct tt_algorithm *algorithm;
    for (int c = 0; c < TT_NCOLLECTIVES; c++)
        for (int a = 0; (algorithm = tt_algorithm_at((enum tt_collective)c, a)); a++)
            for (int n = 1; n <= MOST_RANKS; n++) {
                const struct tt_shape shape = {
                    .collective = (enum tt_collective)c,
                    .nranks = n,
                    .root = tt_collective_has_root((enum tt_collective)c) ? n / 2 : 0};
                if (!tt_refusal(algorithm, &shape)) check_shape(algorithm, &shape);
            }
}

TEST(program, walks_through_the_pieces_on_several_hosts_too)
{
    const struct tt_algorithm *algorithm;
    for (int i = 0; (algorithm = each_pair(i)) != NULL && !tt_test_failed(); i++)
        for (int p = 0; each_placement(p); p += 5) {
            struct placed placed;
            if (!place(&placed, algorithm, each_placement(p))) continue;
            for (int rank = 0; rank < placed.steps.shape.nranks; rank += 2)
                check_rank(algorithm, &placed.steps.shape, rank, 1000, 1 + rank);
            tt_hosts_destroy(placed.hosts);
        }
}

TEST(program, a_ring_has_two_links_a_channel_however_many_ranks)
{
    const struct tt_shape shape = {.collective = TT_ALL_REDUCE, .nranks = 500};
    struct pair pair;
    REQUIRE(pair_init(&pair, tt_algorithm_find(TT_ALL_REDUCE, "ring"), &shape, 3, 100000, 1));
    CHECK_EQ(pair.program->nlinks, 2u * (unsigned)pair.program->nchannels);
    pair_fini(&pair);
}

TEST(program, a_step_takes_at_most_128_bytes_and_tables_are_aligned)
{
    const struct tt_shape shape = {.collective = TT_ALL_TO_ALL, .nranks = 7};
    struct pair pair;
    CHECK(sizeof(struct tt_program_step) <= 128 && sizeof(struct tt_program_step) % 16 == 0);
    REQUIRE(pair_init(&pair, tt_algorithm_find(TT_ALL_TO_ALL, "bruck"), &shape, 3, 100, 1));
    CHECK_EQ(pair.program->steps_at % 16, 0u);
    CHECK_EQ((uintptr_t)pair.program % 16, 0u);
    pair_fini(&pair);
}

/* Binds to counts, packed or in turned order with gaps, and walks a copy of the binding whose
 * original is overwritten. */
static void check_uneven_rank(const struct tt_algorithm *algorithm, const struct tt_shape *shape,
                              int rank, const size_t *counts, const size_t *begins)
{
    const struct tt_limits limits = {.slot_bytes = 256, .meet_bytes = 256, .copies = 1 + rank};
    const struct tt_counts own = {.counts = counts, .begins = begins};
    struct pair pair;
    struct tt_binding *original;
    if (!pair_init(&pair, algorithm, shape, rank, 0, 1) ||
        tt_program_bind_counts(pair.program, &own, 4, &limits, &original)) {
        CHECK_MESSAGE(false, "%s: %s", algorithm->name, tt_last_error());
        pair_fini(&pair);
        return;
    }
    pair.uneven = malloc(original->nbytes);
    REQUIRE(pair.uneven);
    memcpy(pair.uneven, original, original->nbytes);
    memset(original, 0xa5, original->nbytes);
    free(original);
    pair.geometry.counts = counts;
    pair.geometry.nchannels = pair.program->nchannels * pair.uneven->copies;
    pair.begins = begins;
    check_steps(&pair);
    for (int b = TT_INPUT; b <= TT_OUTPUT; b++) {
        size_t own_begin = 0;
        if (begins)
            own_begin = begins[rank];
        else
            tt_geometry_block(&pair.geometry, rank, &own_begin);
        const bool has_own = tt_collective_holds(shape->collective, b == TT_INPUT,
                                                 rank == shape->root) == TT_HOLDS_OWN;
        CHECK_EQ(pair.uneven->skipped[b], has_own ? 4 * own_begin : 0);
    }
    pair_fini(&pair);
}

static void draw_counts(unsigned seed, int nranks, size_t *counts, size_t *begins)
{
    size_t end = 0;
    for (int r = nranks - 1; r >= 0; r--) {
        seed = seed * 1103515245u + 12345u;
        counts[r] = seed >> 16 & 1 ? 0 : (seed >> 17) % (seed % 3 ? 40 : 500);
        begins[r] = end += 3;
        end += counts[r];
    }
}

TEST(program, walks_through_blocks_of_different_lengths_from_a_copied_table)
{
    const struct tt_algorithm *algorithm;
    int nwalked = 0;
    for (int i = 0; (algorithm = each(i)) != NULL; i++)
        for (int n = 1; n <= MOST_RANKS && algorithm->uneven; n++) {
            const struct tt_shape shape =
                shape_of(algorithm, n, tt_collective_has_root(algorithm->collective) ? n / 2 : 0);
            size_t counts[MOST_RANKS], begins[MOST_RANKS];
            draw_counts((unsigned)(n + 100 * i), n, counts, begins);
            for (int rank = 0; rank < n && !tt_test_failed(); rank++, nwalked++) {
                check_uneven_rank(algorithm, &shape, rank, counts, NULL);
                check_uneven_rank(algorithm, &shape, rank, counts, begins);
            }
        }
    CHECK(nwalked > 0);
}

TEST(program, a_binding_has_the_copies_that_there_is_room_and_data_for)
{
    const struct tt_shape shape = {.collective = TT_ALL_GATHER, .nranks = 3};
    /* Elements of 4 bytes; a block is not split further than into lines of 64 bytes, on GPUs into
     * parts of 2 KiB. */
    static const struct {
        size_t count;
        int copies;
        bool of_gpus;
    } cases[] = {{0, 1, false},   {1, 1, false},    {31, 1, false},     {32, 2, false},
                 {79, 4, false},  {96, 6, false},   {100000, 6, false}, {0, 1, true},
                 {96, 1, true},   {1023, 1, true},  {1024, 2, true},    {3071, 5, true},
                 {3072, 6, true}, {100000, 6, true}};
    struct pair pair;
    struct tt_binding binding, *uneven;
    REQUIRE(pair_init(&pair, tt_algorithm_find(TT_ALL_GATHER, "ring"), &shape, 1, 100, 1));
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const size_t counts[] = {0, cases[i].count, 0};
        const struct tt_limits limits = {
            .slot_bytes = 4096, .meet_bytes = 4096, .copies = 6, .of_gpus = cases[i].of_gpus};
        REQUIRE(tt_program_bind(pair.program, cases[i].count, 4, &limits, &binding) == TT_OK);
        CHECK_EQ(binding.copies, cases[i].copies);
        const struct tt_counts own = {.counts = counts};
        REQUIRE(tt_program_bind_counts(pair.program, &own, 4, &limits, &uneven) == TT_OK);
        CHECK_EQ(uneven->copies, cases[i].copies);
        free(uneven);
    }
    pair_fini(&pair);
}

TEST(program, a_binding_keeps_small_results_in_the_caches)
{
    struct tt_program *program;
    const struct tt_shape shape = {.collective = TT_ALL_REDUCE, .nranks = 4};
    const struct tt_limits limits = {.slot_bytes = 4096, .meet_bytes = 4096, .copies = 1};
    REQUIRE(tt_program_create(tt_algorithm_find(TT_ALL_REDUCE, "two_shot"), &shape, 1, &program) ==
            TT_OK);
    const size_t sizes[] = {TT_NONTEMPORAL_POST_MIN_BYTES, TT_NONTEMPORAL_MIN_BYTES};
    for (int i = 0; i < 2; i++)
        for (size_t less = 0; less < 2; less++) {
            struct tt_binding binding;
            REQUIRE(tt_program_bind(program, sizes[i] / 4 - less, 4, &limits, &binding) == TT_OK);
            CHECK_EQ(binding.nontemporal_posts, i > 0 || !less);
            CHECK_EQ(binding.nontemporal, i > 0 && !less);
        }
    free(program);
}

TEST(program, a_binding_says_what_is_too_small_by_its_setting)
{
    const struct tt_shape shape = {.collective = TT_ALL_TO_ALL, .nranks = 9};
    struct pair pair;
    struct tt_binding binding;
    REQUIRE(pair_init(&pair, tt_algorithm_find(TT_ALL_TO_ALL, "meet"), &shape, 0, 1, 1));
    const struct tt_limits limits = {.slot_bytes = ROOMY, .meet_bytes = 64};
    CHECK_EQ(tt_program_bind(pair.program, 1, 8, &limits, &binding), TT_ERR_USAGE);
    CHECK_MESSAGE(strstr(tt_last_error(), "TUTTI_MEET_BYTES=64") &&
                      strstr(tt_last_error(), "9 elements of 8 bytes") &&
                      strstr(tt_last_error(), "at least 128"),
                  "%s", tt_last_error());
    const struct tt_limits slots = {.slot_bytes = 4, .meet_bytes = ROOMY};
    CHECK_EQ(tt_program_bind(pair.program, 1, 8, &slots, &binding), TT_ERR_USAGE);
    CHECK_MESSAGE(strstr(tt_last_error(), "TUTTI_SLOT_BYTES=4"), "%s", tt_last_error());
    const struct tt_limits shrunk = {.slot_bytes = 64, .meet_bytes = ROOMY, .slot_setting = 1024};
    CHECK_EQ(tt_program_bind(pair.program, 1, 8, &shrunk, &binding), TT_ERR_USAGE);
    CHECK_MESSAGE(strstr(tt_last_error(), "TUTTI_SLOT_BYTES=64") &&
                      strstr(tt_last_error(), "shrunk from 1024"),
                  "%s", tt_last_error());
    struct tt_limits gpus = {.slot_bytes = 64, .meet_bytes = 64, .of_gpus = true};
    CHECK_EQ(tt_program_bind(pair.program, 1, 8, &gpus, &binding), TT_ERR_USAGE);
    CHECK_MESSAGE(strstr(tt_last_error(), "TUTTI_DEVICE_SLOT_BYTES=64") &&
                      strstr(tt_last_error(), "at least 128"),
                  "%s", tt_last_error());
    gpus.slot_setting = 1024;
    CHECK_EQ(tt_program_bind(pair.program, 1, 8, &gpus, &binding), TT_ERR_USAGE);
    CHECK_MESSAGE(strstr(tt_last_error(), "TUTTI_DEVICE_SLOT_BYTES=64") &&
                      strstr(tt_last_error(), "shrunk from 1024"),
                  "%s", tt_last_error());
    pair_fini(&pair);
}

/* A program changed in one place is not proved: the proof reads the program, not the schedule. */
TEST(program, a_wrong_program_is_refuted)
{
    const struct tt_shape shape = {.collective = TT_ALL_REDUCE, .nranks = 4};
    const struct tt_algorithm *ring = tt_algorithm_find(TT_ALL_REDUCE, "ring");
    struct tt_proof *proof;
    struct tt_verify_report report;
    REQUIRE(tt_proof_create(ring, &shape, &proof) == TT_OK);
    CHECK_EQ(tt_proof_run(proof, 100, &report), TT_OK);
    struct tt_program *program = tt_proof_program(proof, 2);
    struct tt_program_step *step =
        (struct tt_program_step *)((char *)program + program->steps_at) + 1;
    const int32_t first = step->local.first;
    step->local.first = (first + 1) % 4;
    CHECK_EQ(tt_proof_run(proof, 100, &report), TT_ERR_USAGE);
    CHECK(report.text[0] != '\0');
    step->local.first = first;
    CHECK_EQ(tt_proof_run(proof, 100, &report), TT_OK);
    tt_proof_destroy(proof);
}

/* What raised steps do not show is proved too. */
TEST(program, one_that_sends_by_reference_what_is_overwritten_is_refuted)
{
    const struct tt_algorithm *algorithm = NULL;
    struct tt_proof *proof;
    struct tt_verify_report report;
    for (int i = 0; (algorithm = each(i)) && algorithm->direct_safe; i++) continue;
    REQUIRE(algorithm != NULL);
    for (int nranks = 2, nrefuted = 0; nranks <= MOST_RANKS || !nrefuted; nranks++) {
        const struct tt_shape shape = shape_of(algorithm, nranks, 0);
        REQUIRE(nranks <= MOST_RANKS);
        REQUIRE(tt_proof_create(algorithm, &shape, &proof) == TT_OK);
        CHECK_EQ(tt_proof_run(proof, 100, &report), TT_OK);
        const bool safe = report.direct_safe;
        for (int r = 0; r < nranks; r++) tt_proof_program(proof, r)->direct_safe = true;
        CHECK_EQ(tt_proof_run(proof, 100, &report), safe ? TT_OK : TT_ERR_USAGE);
        CHECK(safe || strstr(report.text, "by reference"));
        nrefuted += !safe;
        tt_proof_destroy(proof);
    }
}

TEST(program, one_whose_links_are_of_another_channel_or_direction_is_refuted)
{
    const struct tt_shape shape = {.collective = TT_ALL_REDUCE, .nranks = 4};
    struct tt_proof *proof;
    struct tt_verify_report report;
    REQUIRE(tt_proof_create(tt_algorithm_find(TT_ALL_REDUCE, "ring"), &shape, &proof) == TT_OK);
    struct tt_program *program = tt_proof_program(proof, 1);
    struct tt_program_link *link = (struct tt_program_link *)((char *)program + program->links_at);
    link->channel ^= 1;
    CHECK_EQ(tt_proof_run(proof, 100, &report), TT_ERR_USAGE);
    CHECK_MESSAGE(strstr(report.text, "another channel"), "%s", report.text);
    link->channel ^= 1;
    link->outgoing ^= 1;
    CHECK_EQ(tt_proof_run(proof, 100, &report), TT_ERR_USAGE);
    CHECK_MESSAGE(strstr(report.text, "wrong direction"), "%s", report.text);
    link->outgoing ^= 1;
    CHECK_EQ(tt_proof_run(proof, 100, &report), TT_OK);
    tt_proof_destroy(proof);
}

/* A kernel finds the parts of the others by the table of puts. */
TEST(program, one_that_is_wrong_about_what_others_put_into_a_meeting_is_refuted)
{
    const struct tt_shape shape = {.collective = TT_BROADCAST, .nranks = 4, .root = 2};
    struct tt_proof *proof;
    struct tt_verify_report report;
    REQUIRE(tt_proof_create(tt_algorithm_find(TT_BROADCAST, "meet"), &shape, &proof) == TT_OK);
    CHECK_EQ(tt_proof_run(proof, 100, &report), TT_OK);
    struct tt_program *program = tt_proof_program(proof, 1);
    struct tt_program_blocks *puts =
        (struct tt_program_blocks *)((char *)program + program->puts_at);
    CHECK_EQ(program->nputs, 4);
    for (int r = 0; r < 4; r++) {
        CHECK_EQ(puts[r].number, r == 2);
        puts[r].number ^= 1;
        CHECK_EQ(tt_proof_run(proof, 100, &report), TT_ERR_USAGE);
        CHECK_MESSAGE(strstr(report.text, "rank 1 channel 0 step 0: the table of puts"), "%s",
                      report.text);
        puts[r].number ^= 1;
    }
    program->nputs = 3;
    CHECK_EQ(tt_proof_run(proof, 100, &report), TT_ERR_USAGE);
    CHECK_MESSAGE(strstr(report.text, "table of puts"), "%s", report.text);
    tt_proof_destroy(proof);
}

/* ---- Posts ---------------------------------------------------------------------------------- */

static struct tt_program_post *posts_of(struct tt_program *program)
{
    return (struct tt_program_post *)((char *)program + program->posts_at);
}

TEST(program, posts_the_first_message_of_each_link_that_is_only_stored)
{
    struct tt_program *program;
    const struct tt_shape shape = {.collective = TT_ALL_REDUCE, .nranks = 4};
    REQUIRE(tt_program_create(tt_algorithm_find(TT_ALL_REDUCE, "two_shot"), &shape, 1, &program) ==
            TT_OK);
    CHECK_EQ(program->nposts, 3); /* each of the others sends its block, then its result */
    for (uint32_t k = 0; k < program->nposts; k++) {
        CHECK_EQ(posts_of(program)[k].ahead, 1);
        CHECK(tt_program_step(program, 0, posts_of(program)[k].step)->nrecv == 1);
        CHECK_EQ(posts_of(program)[k].is_read, 0);
    }
    free(program);
    REQUIRE(tt_program_create(tt_algorithm_find(TT_ALL_REDUCE, "ring"), &shape, 1, &program) ==
            TT_OK);
    for (int c = 0; c < program->nchannels; c++) {
        CHECK_EQ(tt_program_channel(program, c)->nposts, 1);
        const struct tt_program_post *post =
            &posts_of(program)[tt_program_channel(program, c)->first_post];
        CHECK_EQ(post->ahead, 3);
        CHECK_EQ(post->is_read, 1); /* the next rank gets it from this one */
    }
    free(program);
    REQUIRE(tt_program_create(tt_algorithm_find(TT_ALL_REDUCE, "parallel"), &shape, 1, &program) ==
            TT_OK);
    CHECK_EQ(program->nposts, 0);
    free(program);
}

TEST(program, one_with_a_wrong_post_is_refuted)
{
    const struct tt_shape shape = {.collective = TT_ALL_REDUCE, .nranks = 4};
    struct tt_proof *proof;
    struct tt_verify_report report;
    REQUIRE(tt_proof_create(tt_algorithm_find(TT_ALL_REDUCE, "two_shot"), &shape, &proof) == TT_OK);
    struct tt_program_post *post = posts_of(tt_proof_program(proof, 2));
    const struct tt_program_post right = *post;
    post->ahead++;
    CHECK_EQ(tt_proof_run(proof, 100, &report), TT_ERR_USAGE);
    CHECK_MESSAGE(strstr(report.text, "another message of its link"), "%s", report.text);
    *post = right;
    post->step = 0;
    CHECK_EQ(tt_proof_run(proof, 100, &report), TT_ERR_USAGE);
    CHECK_MESSAGE(strstr(report.text, "more than store one message"), "%s", report.text);
    *post = post[1];
    CHECK_EQ(tt_proof_run(proof, 100, &report), TT_ERR_USAGE);
    CHECK_MESSAGE(strstr(report.text, "two posts are of the same link"), "%s", report.text);
    *post = right;
    CHECK_EQ(tt_proof_run(proof, 100, &report), TT_OK);
    tt_proof_destroy(proof);
}
