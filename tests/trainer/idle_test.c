/* Micro-batches of a pipeline: those that are taken by default, and what is said where there are
 * too few. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "setup.h"
#include "shim.h"

enum { MOST_OPTIONS = 5, BYTES = 64 };

/* What the options (NULL or "": none) mean for a number of ranks. */
static tr_status set_up(int nranks, const char *const options[MOST_OPTIONS],
                        struct tr_config *config, struct tr_setup *setup)
{
    tr_config_init(config);
    for (int i = 0; i < MOST_OPTIONS; ++i) {
        char program[] = "tutti-train", one[BYTES];
        if (!options[i] || !options[i][0]) continue;
        snprintf(one, sizeof one, "%s", options[i]);
        char *argv[] = {program, one, NULL};
        TR_TRY(tr_config_parse(config, 2, argv));
    }
    return tr_setup_of(config, nranks, setup);
}

TEST(idle, a_micro_batch_that_is_not_given_leaves_a_pipeline_enough_of_them)
{
    static const struct {
        int nranks;
        const char *options[MOST_OPTIONS];
        long micro_batch;
    } cases[] = {
        {1, {""}, 8},
        {4, {""}, 8},
        {2, {"--pp=2"}, 4}, /* of 16 sequences, 3 micro-batches are enough */
        {4, {"--pp=2"}, 2},
        {8, {"--pp=4", "--fsdp=2"}, 1},
        {4, {"--pp=4", "--batch=4"}, 1},
        {2, {"--pp=2", "--batch=1024"}, 8},
        {2, {"--pp=2", "--micro-batch=8"}, 8},
        {2, {"--pp=2", "--accumulate=1"}, 8},
        {2, {"--pp=2", "--accumulate=2", "--batch=16"}, 8},
    };
    struct tr_config config;
    struct tr_setup setup;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; ++i) {
        REQUIRE(set_up(cases[i].nranks, cases[i].options, &config, &setup) == TR_OK);
        CHECK_MESSAGE(setup.engine.micro_batch == cases[i].micro_batch,
                      "case %zu: %ld, expected %ld", i, setup.engine.micro_batch,
                      cases[i].micro_batch);
    }
    const char *const pipeline[MOST_OPTIONS] = {"--pp=2"};
    REQUIRE(set_up(2, pipeline, &config, &setup) == TR_OK);
    REQUIRE(tr_config_set(&config, "micro-batch", "8", TR_FROM_CHECKPOINT) == TR_OK);
    REQUIRE(tr_setup_of(&config, 2, &setup) == TR_OK);
    CHECK_EQ(setup.engine.micro_batch, 8);
}

/* The share of idle time, and what is said about it. */
static double idle_of(int pp, int dp, const char *const options[MOST_OPTIONS],
                      char note[TR_NOTE_BYTES])
{
    struct tr_config config;
    struct tr_setup setup;
    const tr_status status = set_up(pp * dp, options, &config, &setup);
    CHECK_MESSAGE(status == TR_OK, "%s %s %s %s: %s", options[1], options[2], options[3],
                  options[4], tr_error());
    note[0] = 0;
    if (status < 0) return 0;
    tr_setup_idle_note(&config, &setup.engine, setup.size, note);
    return tr_schedule_idle(pp, tr_engine_micro_batches(&setup.engine, setup.size));
}

/* A run idles too long where a note says so; with the options that the note names it does not, but
 * as long as the note says. */
static void follow_the_note(int pp, int dp, const char *batch, const char *other)
{
    char stages[BYTES], mend[2][BYTES] = {"", ""}, note[TR_NOTE_BYTES];
    snprintf(stages, sizeof stages, "--pp=%d", pp);
    const char *const options[MOST_OPTIONS] = {stages, batch, other, mend[0], mend[1]};
    const double before = idle_of(pp, dp, options, note);
    CHECK_MESSAGE((note[0] != 0) == (before > 0.3), "%s %s %s, idle %g: '%s'", stages, batch, other,
                  before, note);
    if (!note[0]) return;
    long batches, more;
    double now, then;
    REQUIRE(sscanf(note,
                   "note: with %ld micro-batch%*[es] a step the stages of the pipeline idle %lf",
                   &batches, &now) == 2 ||
            sscanf(note, "note: with %ld micro-batch a step the stages of the pipeline idle %lf",
                   &batches, &now) == 2);
    REQUIRE(sscanf(strstr(note, ", with "), ", with %ld they idle %lf %%: %63s %63s", &more, &then,
                   mend[0], mend[1]) >= 3);
    const double after = idle_of(pp, dp, options, note);
    CHECK_MESSAGE(after <= 0.3 && !note[0], "%s %s %s %s %s: idle %g: '%s'", stages, batch, other,
                  mend[0], mend[1], after, note);
    CHECK(fabs(now - 100 * before) <= 0.5 && fabs(then - 100 * after) <= 0.5);
    CHECK(more > batches);
}

TEST(idle, the_note_about_an_idle_pipeline_says_what_mends_it)
{
    static const char *const batches[] = {"", "--batch=12", "--batch=60", "--batch=480"},
                             *const others[] = {"",
                                                "--micro-batch=1",
                                                "--micro-batch=12",
                                                "--accumulate=1",
                                                "--accumulate=2",
                                                "--accumulate=5"};
    static const int stages[] = {1, 2, 3, 4, 8, 13};
    for (size_t b = 0; b < sizeof batches / sizeof *batches; ++b)
        for (size_t o = 0; o < sizeof others / sizeof *others; ++o)
            for (size_t s = 0; s < sizeof stages / sizeof *stages; ++s)
                for (int dp = 1; dp <= 2; ++dp) {
                    const bool uneven = b == 1 && !strcmp(others[o], "--accumulate=5");
                    if (!uneven) follow_the_note(stages[s], dp, batches[b], others[o]);
                }
}
