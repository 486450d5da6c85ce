/* Parses the --hosts option of tutti-plan into a placement of ranks. */
#include "plan_hosts.h"

#include <ctype.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

static bool parse_number(const char **text, int *number)
{
    char *end;
    if (!isdigit((unsigned char)**text)) return false;
    const long value = strtol(*text, &end, 10);
    if (value < 1 || value > PLAN_MOST_PLACED) return false;
    *text = end;
    *number = (int)value;
    return true;
}

/* sizes[h] = ranks of host h; how many hosts, 0: not understood. */
static int parse_sizes(const char **text, int *sizes)
{
    int nhosts = 0, first;
    if (!parse_number(text, &first)) return 0;
    if (**text == 'x') {
        int size;
        ++*text;
        if (!parse_number(text, &size)) return 0;
        for (; nhosts < first; nhosts++) sizes[nhosts] = size;
        return nhosts;
    }
    sizes[nhosts++] = first;
    while (**text == ',') {
        ++*text;
        if (nhosts == PLAN_MOST_PLACED || !parse_number(text, &sizes[nhosts++])) return 0;
    }
    return nhosts;
}

/* Gives every host in turn up to `at_once` of the ranks that it is still to have. */
static bool deal(struct plan_place *place, int *sizes, int nhosts, int at_once)
{
    bool more = true;
    while (more) {
        more = false;
        for (int h = 0; h < nhosts; h++)
            for (int i = 0; i < at_once && sizes[h] > 0; i++, sizes[h]--) {
                if (place->nranks == PLAN_MOST_PLACED) return false;
                place->host_of[place->nranks++] = h;
                more = true;
            }
    }
    return true;
}

static bool parse_letters(struct plan_place *place, const char *text)
{
    for (; *text; text++) {
        if (!isalpha((unsigned char)*text) || place->nranks == PLAN_MOST_PLACED) return false;
        place->host_of[place->nranks++] = *text;
    }
    return place->nranks > 0;
}

static bool parse(struct plan_place *place, const char *text, int *sizes)
{
    if (isalpha((unsigned char)*text)) return parse_letters(place, text);
    const int nhosts = parse_sizes(&text, sizes);
    const bool cyclic = strcmp(text, ":cyclic") == 0;
    if (nhosts == 0 || (*text && !cyclic)) return false;
    return deal(place, sizes, nhosts, cyclic ? 1 : INT_MAX);
}

bool plan_place_parse(struct plan_place *place, const char *text)
{
    int *sizes = calloc(PLAN_MOST_PLACED, sizeof *sizes);
    *place = (struct plan_place){.host_of = calloc(PLAN_MOST_PLACED, sizeof *place->host_of)};
    const bool good = sizes && place->host_of && parse(place, text, sizes);
    free(sizes);
    if (good) return true;
    free(place->host_of);
    *place = (struct plan_place){.nranks = 0};
    return false;
}
