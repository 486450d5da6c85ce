/* See reports.h. The lines are those of write_json in driver/report.c; what is no such line is
 * passed over. */
#include "reports.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { KIND = 16, PLACES = 512 };

/* Reports that say the same: of one kind, at the same places. */
struct group {
    char kind[KIND], places[PLACES];
    int n;
};

struct groups {
    struct group *all;
    size_t n, room;
    long *processes; /* that made a report; each once */
    size_t nprocesses, processes_room;
};

static void *grow(void *memory, size_t n, size_t *room, size_t size)
{
    if (n < *room) return memory;
    *room = *room == 0 ? 16 : 2 * *room;
    memory = realloc(memory, *room * size);
    if (memory == NULL) abort();
    return memory;
}

/* Reads the string of JSON at `at`, behind its quotation mark; the place behind its end. NULL: it
 * has none. Escapes other than \" and \\ do not stand in names. */
static const char *read_string(const char *at, char *to, size_t room)
{
    size_t n = 0;
    for (; *at != '"'; at++) {
        if (*at == '\\') at++;
        if (*at == '\0') return NULL;
        if (n + 1 < room) to[n++] = *at;
    }
    to[n] = '\0';
    return at + 1;
}

static const char *after(const char *text, const char *what)
{
    const char *at = text != NULL ? strstr(text, what) : NULL;
    return at != NULL ? at + strlen(what) : NULL;
}

/* Adds the item to a list with a comma and a blank behind each, unless it is there, or too long. */
static void add_item(char *list, const char *item)
{
    const size_t length = strlen(item), n = strlen(list);
    for (const char *at = list; *at != '\0'; at = strstr(at, ", ") + 2)
        if (strncmp(at, item, length) == 0 && strncmp(at + length, ", ", 2) == 0) return;
    if (n + length + 3 > PLACES) return;
    memcpy(list + n, item, length);
    memcpy(list + n + length, ", ", 3);
}

/* The list "at" as "KERNEL at PLACE, KERNEL at PLACE"; placed: of those that have a place, else the
 * kernels alone. */
static void read_places(const char *at, bool placed, char list[PLACES])
{
    list[0] = '\0';
    while (at != NULL && strncmp(at, "{\"kernel\": \"", 12) == 0) {
        char kernel[PLACES / 4], place[PLACES / 4], item[PLACES];
        at = read_string(at + 12, kernel, sizeof kernel);
        if (at == NULL || strncmp(at, ", \"place\": \"", 12) != 0) break;
        at = read_string(at + 12, place, sizeof place);
        if (at != NULL) at += strncmp(at, "}, ", 3) == 0 ? 3 : 1;
        if (placed && *place == '\0') continue;
        snprintf(item, sizeof item, "%s%s%s", kernel, placed ? " at " : "", placed ? place : "");
        add_item(list, item);
    }
    const size_t n = strlen(list);
    if (n >= 2) list[n - 2] = '\0';
}

static void add_process(struct groups *groups, long process)
{
    for (size_t i = 0; i < groups->nprocesses; i++)
        if (groups->processes[i] == process) return;
    groups->processes = grow(groups->processes, groups->nprocesses, &groups->processes_room,
                             sizeof *groups->processes);
    groups->processes[groups->nprocesses++] = process;
}

/* Whether the line is a report. */
static bool add_line(struct groups *groups, const char *line)
{
    struct group new = {.n = 1};
    const char *kind = after(line, "{\"kind\": \"");
    const char *process = after(kind, "\"process\": ");
    if (process == NULL || read_string(kind, new.kind, sizeof new.kind) == NULL) return false;
    const char *at = after(process, "\"at\": [");
    read_places(at, true, new.places);
    if (*new.places == '\0') read_places(at, false, new.places);
    add_process(groups, strtol(process, NULL, 10));
    for (size_t i = 0; i < groups->n; i++) {
        struct group *old = &groups->all[i];
        if (strcmp(old->kind, new.kind) != 0 || strcmp(old->places, new.places) != 0) continue;
        old->n++;
        return true;
    }
    groups->all = grow(groups->all, groups->n, &groups->room, sizeof *groups->all);
    groups->all[groups->n++] = new;
    return true;
}

/* The file's bytes from that offset on, with a NUL behind them. */
static char *read_rest(int fd, off_t from)
{
    struct stat is;
    if (fstat(fd, &is) != 0) return NULL;
    const size_t nbytes = is.st_size > from ? (size_t)(is.st_size - from) : 0;
    char *text = malloc(nbytes + 1);
    if (text == NULL) return NULL;
    size_t n = 0;
    while (n < nbytes) {
        const ssize_t got = pread(fd, text + n, nbytes - n, from + (off_t)n);
        if (got < 0) {
            free(text);
            return NULL;
        }
        if (got == 0) break;
        n += (size_t)got;
    }
    text[n] = '\0';
    return text;
}

int vgpu_reports_print(int fd, off_t from, FILE *to)
{
    struct groups groups = {0};
    int n = 0;
    char *text = read_rest(fd, from), *rest = text;
    if (text == NULL) return -1;
    for (char *line; (line = strsep(&rest, "\n")) != NULL;) n += add_line(&groups, line);
    if (n != 0)
        fprintf(to, "vgpu-run: %d report%s by %zu process%s:\n", n, n == 1 ? "" : "s",
                groups.nprocesses, groups.nprocesses == 1 ? "" : "es");
    for (size_t i = 0; i < groups.n; i++) {
        const struct group *g = &groups.all[i];
        fprintf(to, "  %d x %s%s%s\n", g->n, g->kind, *g->places != '\0' ? ": " : "", g->places);
    }
    free(groups.all);
    free(groups.processes);
    free(text);
    return n;
}
