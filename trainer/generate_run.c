/* A checkpoint writes on: the program `tutti-train generate`. */
#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "generate.h"
#include "trainer.h"
#include "watch/clock.h"
#include "watch/stream.h"

tr_status tr_generate_options(struct tr_config *config, int nranks)
{
    char ranks[16];
    snprintf(ranks, sizeof ranks, "%d", nranks);
    const struct {
        const char *name, *value;
    } all[] = {{"pp", "1"},          {"dp", "1"},        {"fsdp", "1"}, {"ring", "1"},
               {"ulysses", "1"},     {"tp", ranks},      {"zero", "0"}, {"batch", "1"},
               {"micro-batch", "1"}, {"reshard", "auto"}};
    if (!config->from[0])
        return tr_fail(
            "generate needs --from=CHECKPOINT, a file or a folder whose newest is taken");
    if (config->resume[0])
        return tr_fail("--resume=%s is for training; generate reads --from=%s", config->resume,
                       config->from);
    if (config->checkpoint[0])
        return tr_fail("--checkpoint=%s: generate writes no checkpoint; the one that it reads is "
                       "--from=%s",
                       config->checkpoint, config->from);
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
    int64_t count = 0;
    bool is_over = false;
    tr_generator_give(g, (const unsigned char *)config->prompt, strlen(config->prompt));
    for (; count < most && !is_over; ++count) {
        unsigned char byte;
        TR_TRY(tr_generator_draw(g, &byte));
        is_over = tr_stream_put(stream, byte); /* alike on all ranks, of which rank 0 writes */
    }
    const double seconds = tr_clock_seconds() - began;
    if (t->mesh->rank == 0)
        fprintf(stderr, "%lld tokens in %.2f s, %.0f tokens/s\n", (long long)count, seconds,
                seconds > 0 ? (double)count / seconds : 0);
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
    if (status == TR_OK && file && (fflush(file) != 0 || ferror(file)))
        status = tr_fail("standard output: %s; what was written is lost in part", strerror(errno));
    return status < 0 ? status : tr_mesh_agree(t->mesh, status);
}
