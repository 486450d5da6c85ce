/* Whole runs of tutti-train over data with one window that is unlike all others. */
#include <math.h>
#include <stdint.h>

#include "base/sanitizers.h"
#include "run.h"

/* 32 bytes a window; the rate stays, so that a run of fewer steps is the beginning of a longer one.
 */
#define SPIKY                                                                                      \
    "--layers=2 --heads=2 --width=32 --context=32 --batch=4 --micro-batch=2 --warmup=5 "           \
    "--schedule=constant --lr=0.003 --held-out=0 --sample=0 --deterministic=on --log-every=1000 "
enum { WINDOWS = 920, STEPS = 230, ODD = 300 };

/* Lines that a model learns soon; window ODD has bytes that the others do not have. */
static bool write_data(const struct bench *b)
{
    char path[64];
    snprintf(path, sizeof path, "%s/text", b->folder);
    FILE *file = fopen(path, "w");
    for (int i = 0; file && i < WINDOWS * 32 + 1; ++i)
        fputc(i / 32 == ODD ? 'A' + i * 7 % 32 : "abcdefgh"[i % 8], file);
    return file && fclose(file) == 0;
}

/* The number of the first step that is said to be a spike; 0: none. */
static long spike_of(const char *output)
{
    const char *at = strstr(output, "  spike: ");
    while (at && at > output && at[-1] != '\n') --at;
    return at ? strtol(at + 5, NULL, 10) : 0;
}

/* Runs with --log; its losses. */
static void train_logged(struct bench *b, int nranks, const char *options, const char *log,
                         double losses[STEPS + 1], int nsteps)
{
    char all[COMMAND], path[64];
    snprintf(path, sizeof path, "%s/%s", b->folder, log);
    snprintf(all, sizeof all, SPIKY "--data=%s/text --log=%s %s", b->folder, path, options);
    const int code = train(nranks, all, b->output);
    CHECK_MESSAGE(code == 0, "%s: exit code %d:\n%s", options, code, b->output);
    const int n = read_losses(path, losses, STEPS + 1);
    CHECK_MESSAGE(n == nsteps, "%s: %d losses", options, n);
}

/* The tensors of a checkpoint, which follow a header and its length; free() them. */
static char *read_tensors(const char *path, size_t *nbytes)
{
    FILE *file = fopen(path, "r");
    uint64_t header = 0;
    if (!file || fread(&header, sizeof header, 1, file) != 1) return NULL;
    fseek(file, 0, SEEK_END);
    *nbytes = (size_t)ftell(file) - sizeof header - header;
    char *bytes = malloc(*nbytes);
    fseek(file, (long)(8 + header), SEEK_SET);
    const bool is_read = bytes && fread(bytes, 1, *nbytes, file) == *nbytes;
    fclose(file);
    if (is_read) return bytes;
    free(bytes);
    return NULL;
}

TEST(run, a_spike_is_reported_and_changes_no_bit_unless_it_is_skipped)
{
    struct bench b;
    static double reported[STEPS + 1], unwatched[STEPS + 1], skipped[STEPS + 1];
    char command[COMMAND];
    REQUIRE(setup(&b) && write_data(&b));
    train_logged(&b, 1, "--epochs=1", "reported", reported, STEPS);
    const long step = spike_of(b.output);
    CHECK_MESSAGE(step > 100 && count(b.output, "  spike: loss ") >= 1, "%s", b.output);
    CHECK(!strstr(b.output, "skipped"));
    snprintf(command, sizeof command,
             "grep -c '\"step\": %ld, .*\"spike\": {\"mean\": [0-9.e-]*, \"deviation\": [0-9.e-]*, "
             "\"skipped\": false}' %s/reported",
             step, b.folder);
    run(command, b.output);
    CHECK_EQ(atoi(b.output), 1);
    train_logged(&b, 1, "--epochs=1 --spike-deviations=0", "unwatched", unwatched, STEPS);
    CHECK_EQ(spike_of(b.output), 0);
    CHECK(memcmp(reported, unwatched, sizeof reported) == 0);
    train_logged(&b, 1, "--epochs=1 --skip-spikes=on", "skipped", skipped, STEPS);
    CHECK_EQ(spike_of(b.output), step);
    CHECK_MESSAGE(count(b.output, "; its update is skipped\n") >= 1, "%s", b.output);
    CHECK(memcmp(reported, skipped, (size_t)step * sizeof *skipped) == 0);
    CHECK(reported[step] != skipped[step]);
    teardown(&b);
}

/* A run up to the spike, one that goes on with the step of the spike, and one that goes on from
 * there, on each layout: the step leaves all tensors of the checkpoint as they were, and the losses
 * are those of a run that nothing has interrupted. */
TEST(run, a_skipped_step_leaves_weights_and_optimizer_on_every_layout)
{
    static const struct {
        int nranks;
        const char *options;
    } layouts[] = {{1, ""},
                   {2, "--dp=2"},
                   {2, "--zero=1"},
                   {2, "--zero=2"},
                   {2, "--fsdp=2"},
                   {2, "--fsdp=2 --optimizer=muon"},
                   {2, "--tp=2"},
                   {2, "--ring=2"},
                   {2, "--ulysses=2"},
                   {4, "--pp=2 --fsdp=2 --tied=off"}};
    static double straight[STEPS + 1], parts[STEPS + 1], first[STEPS + 1];
    struct bench b;
    long common = 0;
    REQUIRE(setup(&b) && write_data(&b));
    for (size_t i = 0; i < sizeof layouts / sizeof *layouts; ++i) {
        const int nranks = layouts[i].nranks;
        char options[COMMAND], path[128];
        if (tt_is_address_sanitizer() && i % 3) continue; /* the sanitizer takes 7 times as long */
        snprintf(options, sizeof options, "%s --skip-spikes=on --steps=%d", layouts[i].options,
                 STEPS);
        train_logged(&b, nranks, options, "straight", straight, STEPS);
        const long step = spike_of(b.output);
        REQUIRE(step > 100 && step < STEPS);
        const long ends[] = {step - 1, step, STEPS};
        for (int part = 0; part < 3; ++part) {
            int n = snprintf(options, sizeof options, "--steps=%ld --checkpoint=%s/c ", ends[part],
                             b.folder);
            if (part)
                snprintf(options + n, sizeof options - (size_t)n, "--resume=%s/c", b.folder);
            else
                snprintf(options + n, sizeof options - (size_t)n, "--skip-spikes=on %s",
                         layouts[i].options);
            train_logged(&b, nranks, options, "parts", parts, (int)ends[part]);
            CHECK_MESSAGE(part != 1 || spike_of(b.output) == step, "%s:\n%s", layouts[i].options,
                          b.output);
        }
        CHECK_MESSAGE(!memcmp(straight, parts, STEPS * sizeof *parts), "%s: other losses",
                      layouts[i].options);
        char *tensors[2];
        size_t nbytes[2];
        for (int k = 0; k < 2; ++k) {
            snprintf(path, sizeof path, "%s/c/step-%08ld.safetensors", b.folder, ends[k]);
            tensors[k] = read_tensors(path, &nbytes[k]);
        }
        CHECK_MESSAGE(tensors[0] && tensors[1] && nbytes[0] == nbytes[1] &&
                          !memcmp(tensors[0], tensors[1], nbytes[0]),
                      "%s: the skipped step changes the checkpoint", layouts[i].options);
        free(tensors[0]);
        free(tensors[1]);
        /* AdamW's runs with a tied head are one run but for the rounding of sums. */
        if (!i) {
            common = step;
            memcpy(first, straight, sizeof first);
        } else if (!strstr(layouts[i].options, "muon") && !strstr(layouts[i].options, "tied")) {
            CHECK_MESSAGE(step == common, "%s: step %ld", layouts[i].options, step);
            for (int s = 0; s < STEPS; ++s)
                CHECK_MESSAGE(fabs(straight[s] - first[s]) < 0.01 * (1 + first[s]),
                              "%s: step %d: loss %g, alone %g", layouts[i].options, s + 1,
                              straight[s], first[s]);
        }
        snprintf(options, sizeof options, "rm -r %s/c %s/parts", b.folder, b.folder);
        run(options, b.output);
    }
    teardown(&b);
}

/* The weights have grown until no loss is finite: to skip all updates would go on for ever. */
TEST(run, skipping_ends_when_no_loss_is_finite_any_more)
{
    struct bench b;
    REQUIRE(setup(&b));
    CHECK(train(2,
                SMALL "--optimizer=sgd --lr=100 --decay=10 --clip=0 --warmup=0 --min-lr=1 "
                      "--skip-spikes=on",
                b.output) != 0);
    CHECK_MESSAGE(count(b.output, "  spike: loss ") == 7, "%s", b.output);
    CHECK_MESSAGE(count(b.output, "so many successive updates were skipped") == 1, "%s", b.output);
    teardown(&b);
}
