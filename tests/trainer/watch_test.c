/* Tests of the count of epochs (trainer/watch/epochs.c). */
#include <string.h>

#include "config.h"
#include "shim.h"
#include "watch/epochs.h"

TEST(epochs, steps_complete_what_is_left_of_them)
{
    CHECK_EQ(tr_epochs_left(1, 100, 0, 10), 10);
    CHECK_EQ(tr_epochs_left(1, 101, 0, 10), 11);
    CHECK_EQ(tr_epochs_left(2.5, 100, 0, 10), 25);
    CHECK_EQ(tr_epochs_left(0.1, 30, 0, 1), 3);
    CHECK_EQ(tr_epochs_left(1e-9, 30, 0, 10), 1); /* 0 would be without an end */
    CHECK_EQ(tr_epochs_left(1e-9, 30, 10, 10), 0);
    CHECK_EQ(tr_epochs_left(2, 100, 150, 7), 8);
    CHECK_EQ(tr_epochs_left(2, 100, 200, 7), 0);
    CHECK_EQ(tr_epochs_left(2, 100, 201, 7), 0);
}

TEST(epochs, the_step_that_takes_the_last_window_ends_an_epoch)
{
    struct tr_epochs epochs = {.windows = 10};
    tr_epochs_step(&epochs, 0, 4, 3);
    CHECK_EQ(epochs.ended, 0);
    tr_epochs_step(&epochs, 4, 8, 2);
    tr_epochs_step(&epochs, 8, 12, 1);
    CHECK_EQ(epochs.ended, 1);
    CHECK(epochs.nsteps == 3 && epochs.loss == 6);
    tr_epochs_step(&epochs, 12, 16, 5);
    CHECK(epochs.ended == 0 && epochs.nsteps == 1 && epochs.loss == 5);
    tr_epochs_step(&epochs, 16, 20, 5);
    CHECK_EQ(epochs.ended, 2);
    tr_epochs_step(&epochs, 20, 45, 5); /* longer than an epoch */
    CHECK_EQ(epochs.ended, 0);
}

/* Sets an option as from `source`. */
static void set(struct tr_config *config, const char *name, const char *value,
                enum tr_source source)
{
    CHECK_MESSAGE(tr_config_set(config, name, value, source) == TR_OK, "%s", tr_error());
}

TEST(epochs, of_steps_and_epochs_the_later_source_counts)
{
    struct tr_config config;
    tr_config_init(&config);
    set(&config, "epochs", "1.5", TR_FROM_COMMAND_LINE);
    set(&config, "steps", "7", TR_FROM_COMMAND_LINE);
    CHECK(tr_config_check(&config) < 0);
    CHECK_MESSAGE(strstr(tr_error(), "--steps=7 and --epochs=1.5"), "%s", tr_error());
    set(&config, "steps", "0", TR_FROM_COMMAND_LINE);
    CHECK(tr_config_check(&config) == TR_OK);
    tr_config_init(&config);
    set(&config, "steps", "7", TR_FROM_CHECKPOINT);
    set(&config, "epochs", "0", TR_FROM_CHECKPOINT);
    set(&config, "epochs", "1.5", TR_FROM_COMMAND_LINE);
    tr_config_resolve(&config);
    CHECK(config.steps == 0 && config.epochs == 1.5);
    tr_config_init(&config);
    set(&config, "steps", "0", TR_FROM_CHECKPOINT);
    set(&config, "epochs", "2", TR_FROM_CHECKPOINT);
    tr_config_resolve(&config);
    CHECK(config.steps == 0 && config.epochs == 2);
    set(&config, "steps", "7", TR_FROM_FILE);
    CHECK(tr_config_check(&config) == TR_OK);
    tr_config_resolve(&config);
    CHECK(config.steps == 7 && config.epochs == 0);
}
