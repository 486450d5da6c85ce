/* tutti-train: trains a small transformer on text. trainer/README.md is the map. */
#include <errno.h>
#include <limits.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "generate.h"
#include "picture.h"
#include "plan.h"
#include "programs/streams.h"
#include "resident.h"
#include "trainer.h"
#include "watch/pipe.h"
#include "watch/relay.h"
#include "watch/stop.h"

static struct tr_relay relay, errors; /* of the standard output and error */

/* Whether all that was printed has been written. */
static tr_status check_output(void)
{
    if (fflush(stdout) == 0 && !ferror(stdout) && !relay.error) return TR_OK;
    return tr_fail(
        "standard output cannot be written (is its disk full, or has its reader ended?): "
        "what was printed is lost in part");
}

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
        printf("; the store's collectives were under way for %.2f s; waiting for them took %.2f s",
               store->flight_seconds, store->waited_seconds);
    if (t->saving_seconds > 0)
        printf("; checkpoints were under way for %.2f s, %.2f s of it waited for",
               t->saving_seconds, t->save_waited);
    printf("\n");
    const size_t held_out = t->text.nbytes - t->text.ntrain;
    if (t->asked >= 0) return;
    if (isfinite(validation))
        printf("held-out loss %.4f\n", validation);
    else if (held_out > 0)
        printf("no held-out loss: %zu bytes are held out, but a sequence takes %lld\n", held_out,
               (long long)t->config.context + 1);
}

/* What --plan says of this rank's resident memory, and the text. */
static tr_status plan_resident(const struct tr_trainer *t, uint64_t *planned)
{
    struct tr_setup setup;
    struct tr_resident resident;
    TR_TRY(tr_setup_of(&t->config, t->mesh->nranks, &setup));
    setup.engine.nthreads = t->nthreads;
    TR_TRY(tr_setup_resident(&setup, t->mesh->rank, &resident));
    *planned = (uint64_t)tr_resident_sum(&resident) + t->text.nbytes;
    return TR_OK;
}

static double distance(const uint64_t pair[2])
{
    return fabs((double)pair[0] / (double)pair[1] - 1);
}

/* The resident memory of the rank that is farthest from its plan. */
static tr_status print_resident(const struct tr_trainer *t)
{
    const struct tr_mesh *mesh = t->mesh;
    uint64_t mine[2] = {tr_resident_peak(), 0};
    uint64_t(*all)[2] = calloc((size_t)mesh->nranks, sizeof *all);
    tr_status status = all ? plan_resident(t, &mine[1]) : tr_fail("out of memory for the summary");
    status = tr_mesh_agree(mesh, status);
    if (status == TR_OK)
        status = tr_mesh_check(mesh, tuttiAllGather(mine, all, 2, tuttiUint64, mesh->world, NULL),
                               "collecting the resident memory of all ranks");
    int far = 0;
    for (int rank = 1; status == TR_OK && rank < mesh->nranks; ++rank)
        if (distance(all[rank]) > distance(all[far])) far = rank;
    if (status == TR_OK && mesh->rank == 0 && all[far][0])
        printf("resident memory (VmHWM) of rank %d: %.1f MiB, planned %.1f MiB%s\n", far,
               (double)all[far][0] / 1048576, (double)all[far][1] / 1048576,
               mesh->nranks > 1 ? "; other ranks are nearer to their plan" : "");
    free(all);
    return status;
}

/* What --resume takes to go on with this run: the folder, or, where that stands for another file,
 * the last one of this run, in path[PATH_MAX]. */
static const char *own_newest(const struct tr_trainer *t, char *path)
{
    const char *folder = t->config.checkpoint;
    char newest[PATH_MAX];
    if (tr_ckpt_path(folder, t->step, path, PATH_MAX) < 0) return folder;
    const tr_status status = tr_ckpt_find("resume", folder, newest, sizeof newest);
    return status == TR_OK && !strcmp(newest, path) ? folder : path;
}

/* For a shell: in quotes where it needs them. */
static void print_argument(const char *name, const char *value)
{
    static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
                                "/._-+,:=@%";
    printf(" --%s=", name);
    if (!value[strspn(value, plain)]) {
        printf("%s", value);
        return;
    }
    printf("'");
    for (; *value; ++value)
        if (*value == '\'')
            printf("'\\''");
        else
            printf("%c", *value);
    printf("'");
}

/* The options to go on with: the given ones that a checkpoint does not bring come, too. */
static void print_options(const struct tr_trainer *t)
{
    char path[PATH_MAX], value[TR_TEXT_BYTES];
    const struct tr_config *config = &t->config;
    print_argument("resume", own_newest(t, path));
    print_argument("checkpoint", config->checkpoint);
    for (int id = 0; id < TR_NUM_OPTIONS; ++id) {
        const struct tr_option *option = tr_config_option(id);
        if (option->group != TR_GROUP_RUN || !tr_config_given(config, id)) continue;
        if (id == TR_OPTION_resume || id == TR_OPTION_checkpoint) continue;
        tr_config_show(config, id, value);
        print_argument(option->name, value);
    }
    printf("\n");
}

/* How to go on where a signal has ended the run. */
static void print_stopped(const struct tr_trainer *t)
{
    const struct tr_config *config = &t->config;
    printf("ended by SIG%s after step %lld", sigabbrev_np(tr_stop_number(t->asked)),
           (long long)t->step);
    if (t->total_steps) printf(" of %lld", (long long)t->total_steps);
    if (config->checkpoint[0]) {
        printf("; go on with");
        print_options(t);
    } else {
        printf("; without --checkpoint=DIR nothing is kept of what it trained\n");
    }
}

static tr_status train(struct tr_trainer *t, struct tr_config *config, struct tr_mesh *mesh)
{
    TR_TRY(tr_trainer_init(t, config, mesh));
    TR_TRY(tr_trainer_describe(t));
    TR_TRY(tr_trainer_run(t));
    double validation = NAN;
    if (t->asked < 0) TR_TRY(tr_trainer_validate(t, &validation));
    tr_picture_end(t, validation);
    if (t->asked >= 0) tr_log_end_printing(&t->log);
    if (mesh->rank == 0) print_summary(t, validation);
    if (t->asked >= 0) {
        if (mesh->rank == 0) print_stopped(t);
        tr_relay_end(&relay, false);
        if (check_output() < 0) tr_say(stderr, "tutti-train: %s\n", tr_error());
        return TR_OK; /* the signal is the code, also where it has ended the output's reader */
    }
    TR_TRY(print_resident(t));
    if (t->config.sample) TR_TRY(print_sample(t));
    if (mesh->rank == 0 && t->log.nsteps)
        printf("done: loss %.4f at the first step, %.4f at the last\n", t->log.first_loss,
               t->log.last_loss);
    tr_relay_end(&relay, true);
    return tr_mesh_agree(mesh, check_output());
}

static tr_status print_plan(const struct tr_config *config, int nranks)
{
    if (config->resume[0])
        return tr_fail("--plan does not read checkpoints: give the options of the model instead of "
                       "--resume=%s",
                       config->resume);
    TR_TRY(tr_config_check(config));
    return tr_plan_print(config, config->ranks ? (int)config->ranks : nranks, stdout);
}

/* --plan and --plot-logs: rank 0 of those that a launcher may have started does it, and no rank
 * joins another. */
static tr_status plan_or_draw(const struct tr_config *config)
{
    int rank = 0, nranks = 1, local;
    if (tuttiGetLauncher(&rank, &nranks, &local) != tuttiSuccess) rank = 0;
    if (rank != 0) return TR_OK;
    TR_TRY(config->plan ? print_plan(config, nranks) : tr_picture_of_logs(config));
    return check_output();
}

/* The standard output, which is the text's alone from here on: all that is printed goes to the
 * standard error. NULL when out of memory. */
static FILE *take_output(void)
{
    fflush(stdout);
    const int fd = dup(STDOUT_FILENO);
    FILE *output = fd >= 0 ? fdopen(fd, "w") : NULL;
    if (!output || dup2(STDERR_FILENO, STDOUT_FILENO) < 0) return NULL;
    return output;
}

static tr_status generate(struct tr_trainer *t, struct tr_config *config, struct tr_mesh *mesh)
{
    FILE *output = take_output();
    tr_status status = output ? TR_OK : tr_fail("no descriptor for the text: %s", strerror(errno));
    if (status == TR_OK) status = tr_generate_options(config, mesh->nranks);
    status = tr_mesh_agree(mesh, status);
    if (status == TR_OK) status = tr_trainer_init(t, config, mesh);
    if (status == TR_OK) status = tr_generate(t, output);
    if (output && fclose(output) != 0 && status == TR_OK)
        status = tr_fail("standard output: %s; the text is lost in part", strerror(errno));
    return status;
}

int main(int argc, char **argv)
{
    struct tr_config config;
    streams_open();
    tr_stop_prepare();
    signal(SIGXFSZ, SIG_IGN); /* a file above RLIMIT_FSIZE is an error of that write (EFBIG) */
    tr_config_init(&config);
    config.generates = argc > 1 && !strcmp(argv[1], "generate");
    const tr_status parsed =
        tr_config_parse(&config, argc - config.generates, argv + config.generates);
    struct tr_mesh mesh = {0};
    if (parsed == TR_OK && config.help) {
        tr_config_print_help(stdout);
        return check_output() < 0 ? failed(&mesh, TR_FAILED) : EXIT_SUCCESS;
    }
    if (parsed == TR_OK && !config.generates && (config.plan || config.plot_logs[0])) {
        const tr_status status = plan_or_draw(&config);
        tr_config_fini(&config);
        return status < 0 ? failed(&mesh, TR_FAILED) : EXIT_SUCCESS;
    }
    /* A reader of the log or of the output that ends must not end the training, nor this process
     * before it has told the other ranks. */
    signal(SIGPIPE, SIG_IGN);
    struct tr_trainer trainer = {.hold = TR_NO_HOLD, .asked = -1};
    if (!config.generates) {
        tr_relay_begin(&relay, stdout);
        tr_relay_begin(&errors, stderr);
    }
    /* Bad options are agreed on as any other failure, so that one rank tells and none is left
     * waiting. */
    tr_status status = tr_mesh_init(&mesh, NULL);
    if (status == TR_OK) status = tr_mesh_agree(&mesh, parsed);
    if (status == TR_OK)
        status =
            config.generates ? generate(&trainer, &config, &mesh) : train(&trainer, &config, &mesh);
    tr_relay_end(&relay, false); /* where the run has failed before */
    const int code = status < 0 ? failed(&mesh, status) : EXIT_SUCCESS;
    if (status == TR_FAILED) tr_mesh_abort(&mesh);
    const int asked = status == TR_OK ? trainer.asked : -1;
    tr_trainer_fini(&trainer);
    tr_mesh_fini(&mesh);
    tr_config_fini(&config);
    tr_relay_end(&errors, false);
    if (asked >= 0) tr_stop_raise(asked);
    return code;
}
