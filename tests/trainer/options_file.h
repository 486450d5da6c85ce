/* A file of options, made of a text and removed again. */
#ifndef TT_TESTS_TRAINER_OPTIONS_FILE_H
#define TT_TESTS_TRAINER_OPTIONS_FILE_H

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "../../trainer/config.h"

/* Writes the text to a file and reads the file as options. */
static inline tr_status read_json(struct tr_config *config, const char *text)
{
    char path[] = "/tmp/tutti-config-XXXXXX";
    const int fd = mkstemp(path);
    FILE *file = fdopen(fd, "w");
    fputs(text, file);
    fclose(file);
    const tr_status status = tr_config_read_json(config, path);
    unlink(path);
    return status;
}

/* Reads a text into options that are all at their defaults. */
static inline tr_status read_text(struct tr_config *config, const char *text)
{
    tr_config_init(config);
    return read_json(config, text);
}

/* Takes one argument of the command line. */
static inline tr_status parse_one(struct tr_config *config, const char *argument)
{
    char program[] = "tutti-train", text[64];
    char *argv[] = {program, text, NULL};
    snprintf(text, sizeof text, "%s", argument);
    return tr_config_parse(config, 2, argv);
}

#endif
