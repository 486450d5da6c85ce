/* See suppress.h. */
#include "suppress.h"

#include <ctype.h>
#include <errno.h>
#include <fnmatch.h>
#include <stdlib.h>
#include <string.h>

struct line {
    char kind[64], kernel[128], place[256];
    unsigned number, uses;
};

static struct line *lines;
static size_t nlines;
static char file[256];

/* ---- what a report names ---- */

/* FILE:LINE or "PTX line N" at the beginning of the text. */
static bool place_of(const char *text, char place[256])
{
    unsigned line;
    if (sscanf(text, "PTX line %u", &line) == 1) {
        snprintf(place, 256, "PTX:%u", line);
        return true;
    }
    const size_t end = strcspn(text, "\n");
    for (size_t i = 0; i + 1 < end; i++) {
        if (text[i] != ':' || !isdigit((unsigned char)text[i + 1])) continue;
        size_t to = i + 1;
        while (isdigit((unsigned char)text[to])) to++;
        snprintf(place, 256, "%.*s", (int)to, text);
        return true;
    }
    return false;
}

static void add(struct vd_named *named, const char *kernel, const char *place)
{
    if (named->n == VD_NAMED) return;
    snprintf(named->at[named->n].kernel, sizeof named->at[0].kernel, "%s", kernel);
    snprintf(named->at[named->n].place, sizeof named->at[0].place, "%s", place);
    named->n++;
}

void vd_named_find(const char *text, struct vd_named *named)
{
    static const char *const before[] = {"at ", "inlined at ", "called at "};
    char kernel[128] = "", place[256];
    named->n = 0;
    for (const char *line = text; *line != '\0';) {
        const char *end = line + strcspn(line, "\n"), *first = line + strspn(line, " ");
        const char *name = strstr(line, " by kernel ");
        if (name != NULL && name < end)
            name += strlen(" by kernel ");
        else
            name = !strncmp(first, "kernel ", 7) ? first + 7 : NULL;
        if (name != NULL) {
            snprintf(kernel, sizeof kernel, "%.*s", (int)strcspn(name, " ,:\n"), name);
            add(named, kernel, "");
        }
        for (const char *at = first; at < end; at++)
            for (int i = 0; i < 3; i++)
                if ((i != 0 || at == first) && !strncmp(at, before[i], strlen(before[i])) &&
                    place_of(at + strlen(before[i]), place))
                    add(named, kernel, place);
        line = *end == '\0' ? end : end + 1;
    }
}

/* ---- the file ---- */

static bool is_kind(const char *kind)
{
    static const char *const kinds[] = {"race", "fault", "deadlock", "stall", "leak", "*"};
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (strcmp(kind, kinds[i]) == 0) return true;
    return false;
}

static int read_line(char *text, unsigned number, char error[512])
{
    struct line line = {.number = number};
    char rest[2];
    text[strcspn(text, "#\n")] = '\0';
    const int n = sscanf(text, "%63s %127s %255s %1s", line.kind, line.kernel, line.place, rest);
    if (n <= 0) return 0;
    if (n != 3) {
        snprintf(error, 512,
                 "%s:%u: expected three words, KIND KERNEL PLACE, such as race my_kernel "
                 "my_file.cu:12, or * for any",
                 file, number);
        return -1;
    }
    if (!is_kind(line.kind)) {
        snprintf(error, 512,
                 "%s:%u: no report is of kind \"%s\"; expected race, fault, deadlock, stall, leak "
                 "or *",
                 file, number, line.kind);
        return -1;
    }
    struct line *more = realloc(lines, (nlines + 1) * sizeof *lines);
    if (more == NULL) {
        snprintf(error, 512, "%s:%u: no memory", file, number);
        return -1;
    }
    lines = more;
    lines[nlines++] = line;
    return 0;
}

int vd_suppress_read(const char *path, char error[512])
{
    char text[1024];
    int status = 0;
    nlines = 0; /* of a cuInit that failed later */
    FILE *from = fopen(path, "r");
    snprintf(file, sizeof file, "%s", path);
    if (from == NULL) {
        snprintf(error, 512, "VGPU_SUPPRESS is \"%.200s\"; expected a file that can be read: %s",
                 path, strerror(errno));
        return -1;
    }
    for (unsigned number = 1; status == 0 && fgets(text, sizeof text, from) != NULL; number++)
        status = read_line(text, number, error);
    if (ferror(from)) { /* a folder, for instance */
        snprintf(error, 512, "VGPU_SUPPRESS is \"%.200s\"; expected a file that can be read: %s",
                 path, strerror(errno));
        status = -1;
    }
    fclose(from);
    return status;
}

static bool place_matches(const char *pattern, const char *place)
{
    const char *slash = strrchr(place, '/');
    if (!strcmp(pattern, "*")) return true;
    if (*place == '\0') return false;
    return fnmatch(pattern, place, 0) == 0 || (slash && fnmatch(pattern, slash + 1, 0) == 0);
}

static bool holds(const struct line *line, const char *kind, const struct vd_named *named)
{
    if (strcmp(line->kind, "*") != 0 && strcmp(line->kind, kind) != 0) return false;
    for (unsigned i = 0; i < named->n; i++)
        if (fnmatch(line->kernel, named->at[i].kernel, 0) == 0 &&
            place_matches(line->place, named->at[i].place))
            return true;
    return named->n == 0 && !strcmp(line->kernel, "*") && !strcmp(line->place, "*");
}

bool vd_suppressed(const char *kind, const struct vd_named *named)
{
    for (size_t i = 0; i < nlines; i++)
        if (holds(&lines[i], kind, named)) {
            lines[i].uses++;
            return true;
        }
    return false;
}

void vd_suppress_print(FILE *to)
{
    for (size_t i = 0; i < nlines; i++)
        fprintf(to, "vgpu: suppression %s:%u (%s %s %s): used %u time%s\n", file, lines[i].number,
                lines[i].kind, lines[i].kernel, lines[i].place, lines[i].uses,
                lines[i].uses == 1 ? "" : "s");
}
