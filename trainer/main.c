/* tutti-train: trains a small transformer on text. trainer/README.md is the map. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "plan.h"
#include "trainer.h"

static int failed(const struct tr_mesh *mesh, tr_status status)
{
    if (status == TR_ELSEWHERE) return EXIT_FAILURE; /* the rank that failed says why */
    if (mesh->nranks > 1)
        fprintf(stderr, "tutti-train: rank %d: %s\n", mesh->rank, tr_error());
    else
        fprintf(stderr, "tutti-train: %s\n", tr_error());
    return EXIT_FAILURE;
}

/* Draws on every rank, prints on rank 0. */
static tr_status print_sample(struct tr_trainer *t)
{
    enum { OPENING = 64 };
    const struct tr_config *config = &t->config;
    char opening[OPENING + 1] = "";
    const size_t held_out = t->text.nbytes - t->text.ntrain;
    memcpy(opening, t->text.bytes + t->text.ntrain, held_out < OPENING ? held_out : OPENING);
    const char *prompt = config->prompt[0] ? config->prompt : opening;
    unsigned char *text = malloc((size_t)config->sample + 1);
    tr_status status = text ? TR_OK : tr_fail("out of memory for the sample");
    status = tr_mesh_agree(t->mesh, status);
    if (status == TR_OK) status = tr_trainer_sample(t, prompt, text, (long)config->sample);
    if (status == TR_OK && t->mesh->rank == 0) {
        printf("\n--- given ---\n");
        tr_log_text(stdout, (const unsigned char *)prompt, (long)strlen(prompt));
        printf("\n--- sampled at temperature %g ---\n", config->temperature);
        tr_log_text(stdout, text, (long)config->sample);
        printf("\n--- end of sample ---\n");
    }
    free(text);
    return status;
}

static void print_summary(const struct tr_trainer *t, double validation)
{
    const struct tr_store *store = &t->engine.store;
    const double seconds = t->stepping;
    const double tokens = (double)t->log.nsteps * (double)(t->config.batch * t->config.context);
    printf("\n%lld steps in %.1f s, %.0f tokens/s", (long long)t->log.nsteps, seconds,
           seconds > 0 ? tokens / seconds : 0);
    if (store->flight_seconds > 0)
        printf("; the store's collectives were under way for %.2f s, %.2f s of it waited for",
               store->flight_seconds, store->waited_seconds);
    printf("\n");
    const size_t held_out = t->text.nbytes - t->text.ntrain;
    if (isfinite(validation))
        printf("held-out loss %.4f\n", validation);
    else if (held_out > 0)
        printf("no held-out loss: %zu bytes are held out, but a sequence takes %lld\n", held_out,
               (long long)t->config.context + 1);
}

static tr_status train(struct tr_trainer *t, const struct tr_config *config, struct tr_mesh *mesh)
{
    TR_TRY(tr_trainer_init(t, config, mesh));
    TR_TRY(tr_trainer_describe(t));
    TR_TRY(tr_trainer_run(t));
    double validation;
    TR_TRY(tr_trainer_validate(t, &validation));
    if (mesh->rank == 0) print_summary(t, validation);
    if (t->config.sample) TR_TRY(print_sample(t));
    if (mesh->rank == 0 && t->log.nsteps)
        printf("done: loss %.4f at the first step, %.4f at the last\n", t->log.first_loss,
               t->log.last_loss);
    fflush(stdout);
    return TR_OK;
}

static tr_status print_plan(const struct tr_config *config, int nranks)
{
    if (config->resume[0])
        return tr_fail("--plan does not read checkpoints: give the options of the model instead of "
                       "--resume=%s",
                       config->resume);
    return tr_plan_print(config, config->ranks ? (int)config->ranks : nranks, stdout);
}

/* --plan: rank 0 of those that a launcher may have started prints, and no rank joins another. */
static int plan(const struct tr_config *config)
{
    int rank = 0, nranks = 1, local;
    if (tuttiGetLauncher(&rank, &nranks, &local) != tuttiSuccess) rank = 0;
    if (rank != 0 || print_plan(config, nranks) == TR_OK) return EXIT_SUCCESS;
    fprintf(stderr, "tutti-train: %s\n", tr_error());
    return EXIT_FAILURE;
}

int main(int argc, char **argv)
{
    struct tr_config config;
    tr_config_init(&config);
    const tr_status parsed = tr_config_parse(&config, argc, argv);
    if (parsed == TR_OK && config.help) {
        tr_config_print_help(stdout);
        return EXIT_SUCCESS;
    }
    if (parsed == TR_OK && config.plan) return plan(&config);
    struct tr_mesh mesh = {0};
    struct tr_trainer trainer = {0};
    /* Bad options are agreed on as any other failure, so that one rank tells and none is left
     * waiting. */
    tr_status status = tr_mesh_init(&mesh, NULL);
    if (status == TR_OK) status = tr_mesh_agree(&mesh, parsed);
    if (status == TR_OK) status = train(&trainer, &config, &mesh);
    const int code = status < 0 ? failed(&mesh, status) : EXIT_SUCCESS;
    if (status == TR_FAILED) tr_mesh_abort(&mesh);
    tr_trainer_fini(&trainer);
    tr_mesh_fini(&mesh);
    return code;
}
