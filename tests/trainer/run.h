/* For tests of whole runs of tutti-train: starts the program and reads what it printed and logged.
 */
#ifndef TR_TESTS_RUN_H
#define TR_TESTS_RUN_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "shim.h"

#define SMALL                                                                                      \
    "--layers=2 --heads=2 --width=32 --context=32 --batch=12 --micro-batch=3 --warmup=5 "          \
    "--data=" TUTTI_SOURCE_DIR "/include --sample=0 --lr=0.003 "

enum { COMMAND = 2048, OUTPUT = 1 << 16 };

/* Runs a command; output gets what it printed. Returns the exit code. */
static inline int run(const char *command, char *output)
{
    FILE *pipe = popen(command, "r");
    if (!pipe) return -1;
    size_t n = fread(output, 1, OUTPUT - 1, pipe);
    output[n] = 0;
    const int status = pclose(pipe);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

/* Runs tutti-train with nranks ranks. */
static inline int train(int nranks, const char *options, char *output)
{
    char command[COMMAND + 512], launcher[256] = "";
    if (nranks > 1)
        snprintf(launcher, sizeof launcher, "%s/bin/tutti-run -n %d ", TUTTI_BINARY_DIR, nranks);
    snprintf(command, sizeof command, "timeout 120 %s%s/bin/tutti-train %s 2>&1", launcher,
             TUTTI_BINARY_DIR, options);
    return run(command, output);
}

struct bench {
    char folder[32];
    char output[OUTPUT];
};

static inline bool setup(struct bench *b)
{
    strcpy(b->folder, "/tmp/tutti-run-XXXXXX");
    return mkdtemp(b->folder) != NULL;
}

static inline void teardown(const struct bench *b)
{
    char command[64];
    snprintf(command, sizeof command, "rm -rf '%s'", b->folder);
    if (system(command) != 0) tt_test_fail(__FILE__, __LINE__, "%s is left", b->folder);
}

/* The losses of a --log file. */
static inline int read_losses(const char *path, double *losses, int most)
{
    FILE *file = fopen(path, "r");
    if (!file) return -1;
    char line[512];
    int n = 0;
    while (n < most && fgets(line, sizeof line, file)) {
        const char *at = strstr(line, "\"loss\": ");
        if (at) losses[n++] = strtod(at + 8, NULL);
    }
    fclose(file);
    return n;
}

/* How often `what` is in `text`. */
static inline int count(const char *text, const char *what)
{
    int n = 0;
    for (; (text = strstr(text, what)); text += strlen(what)) ++n;
    return n;
}

#endif
