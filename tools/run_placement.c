/* Which hosts, and how many ranks on each. */
#include "run.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* "NAME", "NAME:RANKS", "[ADDRESS]:RANKS"; an IPv6 address without brackets has no ranks. */
static int parse_host(struct host *host, char *text)
{
    char *colon = strrchr(text, ':'), *end = NULL;
    if (colon && strchr(text, ':') != colon && colon[-1] != ']') colon = NULL;
    *host = (struct host){.name = text};
    if (colon) {
        *colon = '\0';
        const long nranks = strtol(colon + 1, &end, 10);
        if (end == colon + 1 || *end || nranks < 1 || nranks > RUN_MAX_RANKS) {
            run_say("host %s:%s: its ranks must be a number, 1 to %d", text, colon + 1,
                    RUN_MAX_RANKS);
            return EXIT_USAGE;
        }
        host->nranks = (int)nranks;
    }
    const size_t length = strlen(host->name);
    if (length > 2 && host->name[0] == '[' && host->name[length - 1] == ']') {
        host->name[length - 1] = '\0';
        host->name++;
    }
    /* ssh would take it for an option, or a shell for a command. */
    if (!host->name[0] || host->name[0] == '-' || strpbrk(host->name, " \t'\"\\$`;|&<>()*?=")) {
        run_say("'%s' is no name of a host", host->name);
        return EXIT_USAGE;
    }
    return 0;
}

/* A hostfile as a list: "a b:2 # all\nc slots=4" -> "a,b:2,c:4". */
static int read_hostfile(char **text, const char *path)
{
    FILE *file = fopen(path, "re");
    size_t nbytes = 0, room = 0;
    char *list = NULL, *line = NULL;
    if (!file) {
        run_say("--hostfile %s: %s", path, strerror(errno));
        return EXIT_USAGE;
    }
    FILE *out = open_memstream(&list, &nbytes);
    while (out && getline(&line, &room, file) > 0) {
        char *rest = line, *word;
        line[strcspn(line, "#\n")] = '\0';
        while ((word = strsep(&rest, " \t\r"))) {
            const bool slots = !strncmp(word, "slots=", 6);
            if (*word) fprintf(out, "%s%s", slots ? ":" : ",", slots ? word + 6 : word);
        }
    }
    free(line);
    fclose(file);
    if (!out || fclose(out) != 0) {
        run_say("--hostfile %s: no memory", path);
        return 1;
    }
    *text = list;
    return 0;
}

/* The hosts that do not say how many ranks they have share evenly what is left, the first ones one
 * more. */
static int share_ranks(struct placement *placement, int wanted)
{
    int said = 0, nsilent = 0;
    for (int i = 0; i < placement->nhosts; i++) {
        said += placement->hosts[i].nranks;
        nsilent += !placement->hosts[i].nranks;
    }
    int left = wanted ? wanted - said : nsilent;
    if (left < nsilent || (wanted && !nsilent && left != 0) || said + left > RUN_MAX_RANKS) {
        run_say("-n %d does not fit the hosts: %d of them, with %d ranks said", wanted,
                placement->nhosts, said);
        return EXIT_USAGE;
    }
    placement->nranks = said + left;
    for (int i = 0; i < placement->nhosts; i++) {
        struct host *host = &placement->hosts[i];
        if (host->nranks) continue;
        host->nranks = (left + nsilent - 1) / nsilent;
        left -= host->nranks;
        nsilent--;
    }
    return 0;
}

int run_place_ranks(struct placement *placement, const struct options *options)
{
    int code = 0, most = 1;
    if (options->hosts)
        placement->text = strdup(options->hosts);
    else
        code = read_hostfile(&placement->text, options->hostfile);
    if (code) return code;
    for (const char *at = placement->text; at && *at; at++) most += *at == ',';
    placement->hosts = calloc((size_t)most, sizeof *placement->hosts);
    if (!placement->text || !placement->hosts) return 1;
    char *rest = placement->text, *word;
    while (!code && (word = strsep(&rest, ",")))
        if (*word) code = parse_host(&placement->hosts[placement->nhosts++], word);
    if (!code && !placement->nhosts) {
        run_say("no hosts are named");
        code = EXIT_USAGE;
    }
    return code ? code : share_ranks(placement, options->nranks);
}
