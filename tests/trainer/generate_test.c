/* Writing on with a cache of keys and values gives what whole windows give, on every mesh that has
 * one; which token is drawn; how the text is written; which options count. */
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "generate.h"
#include "grid.h"
#include "options_file.h"
#include "ranks.h"
#include "setup.h"
#include "shim.h"
#include "watch/stream.h"

enum { CONTEXT = GRID_SMALL_CONTEXT, VOCABULARY = GRID_SMALL_VOCABULARY };

struct case_of {
    enum tr_model_kind kind;
    int size[TR_NUM_AXES]; /* pp dp fsdp ring ulysses tp */
    int given;             /* bytes of the prompt */
};

/* Bytes of the vocabulary that do not repeat soon. */
static void write_prompt(unsigned char *prompt, int count)
{
    for (int i = 0; i < count; ++i) prompt[i] = (unsigned char)(i * 7 % VOCABULARY);
}

static void write_on(struct rank *self)
{
    const struct case_of *c = self->arg;
    struct tr_engine_options o = grid_small_options(c->kind);
    if (c->size[TR_FSDP] > 1) o.sharding = TR_ZERO3;
    struct tr_mesh mesh;
    struct tr_engine e = {0};
    struct tr_generator cached = {0}, whole = {0};
    const struct tr_choice choice = {.temperature = 1.5, .top_k = 40, .top_p = 0.9, .seed = 3};
    unsigned char prompt[3 * CONTEXT];
    CHECK_EQ(TR_OK, tr_mesh_init(&mesh, self->world));
    CHECK_EQ(TR_OK, tr_mesh_shape(&mesh, c->size));
    CHECK_EQ(TR_OK, tr_engine_init(&e, &mesh, tr_backend_choose(""), &o));
    CHECK_EQ(TR_OK, tr_generator_init(&cached, &e, &choice, true));
    CHECK_EQ(TR_OK, tr_generator_init(&whole, &e, &choice, false));
    const bool cuts = mesh.size[TR_RING] > 1 || mesh.size[TR_ULYSSES] > 1;
    CHECK_EQ(cached.is_cached, !cuts);
    CHECK(!whole.is_cached);
    write_prompt(prompt, c->given);
    tr_generator_give(&cached, prompt, (size_t)c->given);
    tr_generator_give(&whole, prompt, (size_t)c->given);
    int nsame = 0;
    for (int at = 0; at < 3 * CONTEXT; ++at) {
        unsigned char a, b;
        CHECK_EQ(TR_OK, tr_generator_draw(&cached, &a));
        CHECK_EQ(TR_OK, tr_generator_draw(&whole, &b));
        CHECK_EQ(cached.count, whole.count);
        double most = 0, spread = 0;
        for (int i = 0; i < VOCABULARY; ++i) {
            most = fmax(most, fabs((double)cached.logits[i] - (double)whole.logits[i]));
            spread = fmax(spread, fabs((double)whole.logits[i] - (double)whole.logits[0]));
        }
        CHECK_MESSAGE(most < 1e-5 * (1 + spread), "token %d, %ld in the window: %g of %g", at,
                      whole.count, most, spread);
        nsame += a == b;
        cached.window[cached.count - 1] = whole.window[whole.count - 1];
    }
    CHECK_MESSAGE(nsame >= 3 * CONTEXT - 1, "%d of %d tokens", nsame, 3 * CONTEXT);
    tr_generator_fini(&cached);
    tr_generator_fini(&whole);
    tr_engine_fini(&e);
    tr_mesh_fini(&mesh);
}

TEST(generate, a_cache_gives_what_whole_windows_give)
{
    static const struct case_of cases[] = {
        {TR_GPT2, {1, 1, 1, 1, 1, 1}, 5},        {TR_LLAMA, {1, 1, 1, 1, 1, 1}, 5},
        {TR_GPT2, {1, 1, 1, 1, 1, 2}, 1},        {TR_LLAMA, {1, 1, 1, 1, 1, 2}, CONTEXT - 1},
        {TR_LLAMA, {1, 1, 1, 1, 1, 4}, CONTEXT}, {TR_GPT2, {3, 1, 1, 1, 1, 1}, CONTEXT + 1},
        {TR_GPT2, {1, 2, 1, 1, 1, 1}, 0},        {TR_LLAMA, {1, 1, 2, 1, 1, 1}, 2 * CONTEXT + 3},
        {TR_LLAMA, {1, 1, 1, 2, 1, 1}, 4},       {TR_GPT2, {1, 1, 1, 1, 2, 1}, 4},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; ++i) {
        struct case_of c = cases[i];
        int n = 1;
        for (int axis = 0; axis < TR_NUM_AXES; ++axis) n *= c.size[axis];
        CHECK_MESSAGE(run_ranks(n, write_on, &c), "case %zu", i);
    }
}

TEST(generate, a_cache_takes_no_more_than_the_context)
{
    struct tr_engine_options o = grid_small_options(TR_GPT2);
    static const int one[TR_NUM_AXES] = {1, 1, 1, 1, 1, 1};
    struct tr_mesh mesh;
    struct tr_engine e = {0};
    struct tr_cache cache;
    int32_t ids[CONTEXT + 1] = {0};
    float logits[VOCABULARY];
    REQUIRE(tr_mesh_init(&mesh, NULL) == TR_OK && tr_mesh_shape(&mesh, one) == TR_OK);
    REQUIRE(tr_engine_init(&e, &mesh, tr_backend_choose(""), &o) == TR_OK);
    REQUIRE(tr_engine_cache(&e, &cache) == TR_OK);
    CHECK(tr_engine_next(&e, &cache, ids, CONTEXT + 1, logits) < 0);
    CHECK_EQ(TR_OK, tr_engine_next(&e, &cache, ids, CONTEXT - 1, logits));
    CHECK(tr_engine_next(&e, &cache, ids, 2, logits) < 0);
    CHECK_EQ(TR_OK, tr_engine_next(&e, &cache, ids, 1, logits));
    CHECK(tr_engine_next(&e, &cache, ids, 1, logits) < 0);
    tr_cache_fini(&cache);
    tr_engine_fini(&e);
    tr_mesh_fini(&mesh);
}

/* ---- Engines for inference --------------------------------------------------------------------
 */

enum { MOST_WEIGHTS = 1 << 18 };

/* One run with an engine for training, which leaves its weights, then one for inference, which
 * takes them. */
struct inference_of {
    int size[TR_NUM_AXES];
    enum tr_sharding sharding;
    enum tr_optimizer_kind optimizer;
    bool inference;
    float *masters;              /* [ranks][MOST_WEIGHTS] */
    float (*logits)[VOCABULARY]; /* [ranks]: of the training engine */
};

static void infer(struct rank *self)
{
    const struct inference_of *c = self->arg;
    static const int32_t ids[] = {1, 2, 3};
    struct tr_engine_options o = grid_small_options(TR_LLAMA);
    struct tr_mesh mesh;
    struct tr_engine e = {0};
    float *masters = c->masters + (size_t)self->rank * MOST_WEIGHTS, logits[VOCABULARY];
    size_t n = 0;
    o.sharding = c->sharding;
    o.optimizer.kind = c->optimizer;
    o.inference = c->inference;
    CHECK_EQ(TR_OK, tr_mesh_init(&mesh, self->world));
    CHECK_EQ(TR_OK, tr_mesh_shape(&mesh, c->size));
    CHECK_EQ(TR_OK, tr_engine_init(&e, &mesh, tr_backend_choose(""), &o));
    for (int u = 0; u < e.store.nunits; ++u) {
        const struct tr_unit_state *s = &e.store.units[u];
        REQUIRE(n + s->count <= MOST_WEIGHTS);
        memcpy(c->inference ? s->masters : masters + n, c->inference ? masters + n : s->masters,
               s->count * sizeof *masters);
        n += s->count;
    }
    CHECK_EQ(TR_OK, tr_store_publish(&e.store));
    CHECK_EQ(TR_OK, tr_engine_logits(&e, ids, 3, logits));
    CHECK(logits[0] != logits[1]);
    CHECK_EQ(c->inference, !e.store.gradients.used);
    CHECK_EQ(c->inference, !e.store.optimizer.used);
    if (c->inference)
        CHECK(!memcmp(logits, c->logits[self->rank], sizeof logits));
    else
        memcpy(c->logits[self->rank], logits, sizeof logits);
    tr_engine_fini(&e);
    tr_mesh_fini(&mesh);
}

TEST(generate, an_engine_for_inference_has_weights_alone_and_the_same_logits)
{
    static const struct inference_of cases[] = {
#define CASE(sharding_, optimizer_, ...)                                                           \
    {.size = {__VA_ARGS__}, .sharding = sharding_, .optimizer = optimizer_}
        CASE(TR_DDP, TR_ADAMW, 1, 1, 1, 1, 1, 1),   CASE(TR_DDP, TR_ADAMW, 1, 2, 1, 1, 1, 1),
        CASE(TR_ZERO2, TR_ADAMW, 1, 2, 1, 1, 1, 1), CASE(TR_ZERO3, TR_LAMB, 1, 1, 2, 1, 1, 1),
        CASE(TR_ZERO3, TR_MUON, 2, 1, 2, 1, 1, 1),  CASE(TR_DDP, TR_MUON, 2, 1, 1, 1, 1, 2),
#undef CASE
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; ++i) {
        struct inference_of c = cases[i];
        int n = 1;
        for (int axis = 0; axis < TR_NUM_AXES; ++axis) n *= c.size[axis];
        c.masters = calloc((size_t)n * MOST_WEIGHTS, sizeof *c.masters);
        c.logits = calloc((size_t)n, sizeof *c.logits);
        REQUIRE(c.masters && c.logits);
        CHECK_MESSAGE(run_ranks(n, infer, &c), "case %zu, training", i);
        c.inference = true;
        CHECK_MESSAGE(run_ranks(n, infer, &c), "case %zu, inference", i);
        free(c.masters);
        free(c.logits);
    }
}

/* ---- Which token ------------------------------------------------------------------------------
 */

enum { N = 6 };
static const float six[N] = {0.5f, 2.0f, -1.0f, 2.0f, 1.0f, -30.0f};

/* How often each place is drawn, of 1000 numbers spread evenly. */
static void count_draws(const struct tr_choice *choice, int counts[N])
{
    memset(counts, 0, N * sizeof *counts);
    for (int i = 0; i < 1000; ++i) counts[tr_choice_draw(choice, six, N, (i + 0.5) / 1000)]++;
}

TEST(choice, places_are_drawn_as_often_as_the_softmax_says)
{
    int counts[N];
    double total = 0;
    for (int i = 0; i < N; ++i) total += exp((double)six[i] / 0.7);
    count_draws(&(struct tr_choice){.temperature = 0.7, .top_p = 1}, counts);
    for (int i = 0; i < N; ++i) {
        const double expected = 1000 * exp((double)six[i] / 0.7) / total;
        CHECK_MESSAGE(fabs(counts[i] - expected) <= 1, "place %d: %d, expected %g", i, counts[i],
                      expected);
    }
}

TEST(choice, top_k_and_top_p_leave_out_the_rest)
{
    static const struct {
        long top_k;
        double top_p;
        unsigned drawn; /* a bit a place */
    } cases[] = {
        {1, 1, 1u << 1},
        {2, 1, 1u << 1 | 1u << 3},
        {3, 1, 1u << 1 | 1u << 3 | 1u << 4},
        {100, 1, 1u | 1u << 1 | 1u << 2 | 1u << 3 | 1u << 4},
        {0, 0, 1u << 1},
        {0, 0.4, 1u << 1 | 1u << 3}, /* the first two have 0.39 each */
        {0, 0.79, 1u << 1 | 1u << 3 | 1u << 4},
        {2, 0.5, 1u << 1}, /* half of the two */
        {2, 0.51, 1u << 1 | 1u << 3},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; ++i) {
        int counts[N];
        unsigned drawn = 0;
        count_draws(&(struct tr_choice){1, cases[i].top_k, cases[i].top_p, 0}, counts);
        for (int place = 0; place < N; ++place) drawn |= counts[place] ? 1u << place : 0;
        CHECK_MESSAGE(drawn == cases[i].drawn, "case %zu: %x, expected %x", i, drawn,
                      cases[i].drawn);
    }
    CHECK_EQ(tr_choice_draw(&(struct tr_choice){.temperature = 0}, six, N, 0.999), 1);
}

/* ---- The text ---------------------------------------------------------------------------------
 */

/* What a stream has written of a text, up to its stop. */
static void write_text(const char *text, size_t length, bool for_people, const char *stop,
                       char out[64])
{
    FILE *file = tmpfile();
    struct tr_stream stream;
    bool is_over = false;
    REQUIRE(tr_stream_open(&stream, file, for_people, stop) == TR_OK);
    for (size_t i = 0; i < length && !is_over; ++i)
        REQUIRE(tr_stream_put(&stream, (unsigned char)text[i], &is_over) == TR_OK);
    CHECK(tr_stream_end(&stream) == TR_OK);
    tr_stream_close(&stream);
    rewind(file);
    out[fread(out, 1, 63, file)] = 0;
    fclose(file);
}

TEST(stream, the_stop_text_ends_it_and_is_not_written)
{
    static const struct {
        const char *text, *stop, *written;
    } cases[] = {
        {"one two three", "", "one two three"},
        {"one two three", "two", "one "},
        {"one two three", "four", "one two three"},
        {"aaab", "aab", "a"},
        {"ababac", "abac", "ab"},
        {"end", "end", ""},
        {"en", "end", "en"},
        {"\xC3\xA4\x1B[2J\xFF", "x", "\xC3\xA4.[2J."},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; ++i) {
        char out[64];
        write_text(cases[i].text, strlen(cases[i].text), true, cases[i].stop, out);
        CHECK_STR(out, cases[i].written);
    }
    char out[64];
    write_text("\x1B\xFFz", 3, false, "", out);
    CHECK_STR(out, "\x1B\xFFz");
}

TEST(stream, a_character_is_written_when_it_is_whole)
{
    static const unsigned char bytes[] = {'a', 0xE2, 0x82, 0xAC, 0xE2};
    static const char *const written[] = {"a", "a", "a", "a\xE2\x82\xAC", "a\xE2\x82\xAC"};
    char out[16] = "";
    FILE *file = fmemopen(out, sizeof out, "w");
    struct tr_stream stream;
    bool is_over;
    REQUIRE(tr_stream_open(&stream, file, true, "") == TR_OK);
    for (int i = 0; i < 5; ++i) {
        CHECK(tr_stream_put(&stream, bytes[i], &is_over) == TR_OK);
        CHECK_STR(out, written[i]);
    }
    CHECK(tr_stream_end(&stream) == TR_OK);
    CHECK_STR(out, "a\xE2\x82\xAC.");
    tr_stream_close(&stream);
    fclose(file);
}

/* A full disk, and a pipe whose reader has gone. */
TEST(stream, the_first_write_that_fails_is_an_error)
{
    int fds[2];
    void (*const before)(int) = signal(SIGPIPE, SIG_IGN);
    REQUIRE(pipe(fds) == 0);
    close(fds[0]);
    FILE *files[] = {fopen("/dev/full", "w"), fdopen(fds[1], "w")};
    static const char *const says[] = {"No space left", "Broken pipe"};
    for (int i = 0; i < 2; ++i) {
        struct tr_stream stream;
        bool is_over;
        REQUIRE(files[i] && tr_stream_open(&stream, files[i], false, "xy") == TR_OK);
        CHECK(tr_stream_put(&stream, 'x', &is_over) == TR_OK); /* held */
        CHECK(tr_stream_put(&stream, 'z', &is_over) < 0);
        CHECK_MESSAGE(strstr(tr_error(), says[i]), "%s", tr_error());
        tr_stream_close(&stream);
        fclose(files[i]);
    }
    signal(SIGPIPE, before);
}

/* ---- The options ------------------------------------------------------------------------------
 */

TEST(generate, a_file_may_say_how_to_train)
{
    struct tr_config config;
    struct tr_setup setup;
    tr_config_init(&config);
    REQUIRE(tr_config_set(&config, "from", "c", TR_FROM_COMMAND_LINE) == TR_OK);
    REQUIRE(read_json(&config, "{\"gradient_accumulation_steps\": 3, \"micro-batch\": 5, "
                               "\"train_batch_size\": 30, \"reduce\": \"each\", \"every\": 5, "
                               "\"zero_optimization\": {\"stage\": 2}, \"checkpoint\": \"x\", "
                               "\"resume\": \"y\", \"optimizer\": {\"type\": \"SGD\"}, "
                               "\"scheduler\": {\"type\": \"WarmupLR\", \"params\": "
                               "{\"warmup_min_lr\": 1}}, \"seed\": 7, \"layers\": 4, "
                               "\"top-k\": 3}") == TR_OK);
    REQUIRE(tr_generate_options(&config, 2) == TR_OK);
    CHECK_MESSAGE(tr_config_check(&config) == TR_OK, "%s", tr_error());
    CHECK_MESSAGE(tr_setup_of(&config, 2, &setup) == TR_OK, "%s", tr_error());
    CHECK_EQ(config.accumulate, 0);
    CHECK(!tr_config_given(&config, TR_OPTION_optimizer)); /* it is the checkpoint's */
    CHECK_STR(config.checkpoint, "");
    CHECK_STR(config.resume, "c");
    CHECK(config.seed == 7 && config.layers == 4 && config.top_k == 3 && config.tp == 2);
}

TEST(generate, an_argument_that_is_for_training_is_refused)
{
    static const char *const names[] = {"accumulate", "batch", "steps", "resume", "checkpoint"};
    for (size_t i = 0; i < sizeof names / sizeof *names; ++i) {
        struct tr_config config;
        char says[64];
        snprintf(says, sizeof says, "--%s=9 is for training", names[i]);
        tr_config_init(&config);
        REQUIRE(tr_config_set(&config, "from", "c", TR_FROM_COMMAND_LINE) == TR_OK);
        REQUIRE(tr_config_set(&config, names[i], "9", TR_FROM_COMMAND_LINE) == TR_OK);
        CHECK_MESSAGE(tr_generate_options(&config, 1) < 0 && strstr(tr_error(), says), "%s: %s",
                      names[i], tr_error());
    }
}
