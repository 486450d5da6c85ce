/* A checkpoint writes on: the program `tutti-train generate`. */
#include <string.h>
#include <unistd.h>

#include "generate.h"
#include "trainer.h"
#include "watch/clock.h"
#include "watch/stream.h"

/* Whether generate has a use for the option; the others are for training. */
static bool is_used(int id)
{
    static const int ids[] = {
        TR_OPTION_seed,    TR_OPTION_pp,         TR_OPTION_dp,     TR_OPTION_fsdp,
        TR_OPTION_ring,    TR_OPTION_ulysses,    TR_OPTION_tp,     TR_OPTION_zero,
        TR_OPTION_reshard, TR_OPTION_ring_order, TR_OPTION_cpu,    TR_OPTION_deterministic,
        TR_OPTION_threads, TR_OPTION_from,       TR_OPTION_tokens, TR_OPTION_temperature,
        TR_OPTION_top_k,   TR_OPTION_top_p,      TR_OPTION_prompt, TR_OPTION_stop};
    for (size_t i = 0; i < sizeof ids / sizeof *ids; ++i)
        if (ids[i] == id) return true;
    return tr_config_option(id)->group == TR_GROUP_MODEL;
}

/* A file may be that of the training. */
static tr_status drop_unused(struct tr_config *config)
{
    for (int id = 0; id < TR_NUM_OPTIONS; ++id) {
        char value[TR_TEXT_BYTES];
        if (is_used(id) || !tr_config_given(config, id)) continue;
        tr_config_show(config, id, value);
        if (config->source[id] == TR_FROM_COMMAND_LINE)
            return tr_fail("--%s=%s is for training, which generate does not do (its checkpoint is "
                           "--from=%s); leave the option out",
                           tr_config_option(id)->name, value, config->from);
        tr_config_reset(config, id);
    }
    return TR_OK;
}

/* The ranks that the other axes leave to tp; 1, where these do not divide them. */
static int64_t left_to_tp(const struct tr_config *config, int nranks)
{
    const int64_t given[] = {config->pp, config->dp, config->fsdp, config->ring, config->ulysses};
    static const int options[] = {TR_OPTION_pp, TR_OPTION_dp, TR_OPTION_fsdp, TR_OPTION_ring,
                                  TR_OPTION_ulysses};
    int64_t left = nranks;
    for (size_t i = 0; i < sizeof given / sizeof *given; ++i) {
        if (config->source[options[i]] != TR_FROM_COMMAND_LINE || given[i] < 1) continue;
        if (left % given[i]) return 1;
        left /= given[i];
    }
    return left;
}

tr_status tr_generate_options(struct tr_config *config, int nranks)
{
    char ranks[24];
    snprintf(ranks, sizeof ranks, "%lld", (long long)left_to_tp(config, nranks));
    const struct {
        const char *name, *value;
    } all[] = {{"pp", "1"},          {"dp", "1"},        {"fsdp", "1"}, {"ring", "1"},
               {"ulysses", "1"},     {"tp", ranks},      {"zero", "0"}, {"batch", "1"},
               {"micro-batch", "1"}, {"reshard", "auto"}};
    if (config->plan || config->plot_logs[0])
        return tr_fail("%s does nothing for generate; leave it out, or leave out generate",
                       config->plan ? "--plan" : "--plot-logs");
    if (!config->from[0])
        return tr_fail(
            "generate needs --from=CHECKPOINT, a file or a folder whose newest is taken");
    TR_TRY(drop_unused(config));
    config->coupled[0] = config->unrated[0] = config->undecayed[0] = 0; /* nothing is trained */
    strcpy(config->resume, config->from);
    for (size_t i = 0; i < sizeof all / sizeof *all; ++i)
        TR_TRY(tr_config_set(config, all[i].name, all[i].value, TR_FROM_FILE));
    return TR_OK;
}

static tr_status write_on(struct tr_trainer *t, struct tr_generator *g, struct tr_stream *stream)
{
    const struct tr_config *config = &t->config;
    const int64_t most = config->tokens;
    const double began = tr_clock_seconds();
    double first = 0; /* seconds until the first token, which the prompt's pass gives */
    int64_t count = 0;
    bool is_over = false;
    tr_generator_give(g, (const unsigned char *)config->prompt, strlen(config->prompt));
    for (; count < most && !is_over; ++count) {
        unsigned char byte;
        TR_TRY(tr_generator_draw(g, &byte));
        if (!count) first = tr_clock_seconds() - began;
        /* is_over is alike on all ranks, of which rank 0 writes. */
        TR_TRY(tr_stream_put(stream, byte, &is_over));
    }
    TR_TRY(tr_stream_end(stream));
    const double seconds = tr_clock_seconds() - began;
    if (t->mesh->rank == 0)
        fprintf(stderr, "%lld tokens in %.3f s: the first after %.3f s, then %.1f tokens/s\n",
                (long long)count, seconds, first,
                count > 1 && seconds > first ? (double)(count - 1) / (seconds - first) : 0);
    return TR_OK;
}

tr_status tr_generate(struct tr_trainer *t, FILE *out)
{
    const struct tr_choice choice = tr_choice_of(&t->config);
    struct tr_generator generator;
    struct tr_stream stream = {0};
    tr_status status = tr_generator_init(&generator, &t->engine, &choice, true);
    FILE *file = t->mesh->rank == 0 ? out : NULL;
    if (status == TR_OK)
        status = tr_mesh_agree(
            t->mesh, tr_stream_open(&stream, file, file && isatty(fileno(file)), t->config.stop));
    if (status == TR_OK) status = write_on(t, &generator, &stream);
    tr_stream_close(&stream);
    tr_generator_fini(&generator);
    return status < 0 ? status : tr_mesh_agree(t->mesh, status);
}
