/* Parses TUTTI_ALGORITHM: names of algorithms, composed ones (X/Y) too, with or without
 * collectives.
 */
#include "algorithms/algorithms.h"

#include <stdio.h>
#include <string.h>

enum { MOST_WORD = 63 };

/* Part of the text, not terminated. */
struct word {
    const char *text;
    int length;
};

static struct word word_until(const char *text, const char *end)
{
    const char blanks[] = " \t";
    while (text < end && strchr(blanks, *text)) text++;
    while (end > text && strchr(blanks, end[-1])) end--;
    return (struct word){text, (int)(end - text)};
}

static const struct tt_algorithm *find(int collective, struct word word)
{
    char name[MOST_WORD + 1];
    if (word.length > MOST_WORD) return NULL;
    memcpy(name, word.text, (size_t)word.length);
    name[word.length] = '\0';
    return tt_algorithm_find((enum tt_collective)collective, name);
}

static int find_collective(struct word word)
{
    for (int i = 0; i < TT_NCOLLECTIVES; i++) {
        const char *name = tt_collective_name((enum tt_collective)i);
        if ((size_t)word.length == strlen(name) && memcmp(word.text, name, strlen(name)) == 0)
            return i;
    }
    return TT_NCOLLECTIVES;
}

/* How much of a word an error shows. */
static int shown(struct word word)
{
    return word.length > MOST_WORD ? MOST_WORD : word.length;
}

static tt_status fail_no_collective(struct word word)
{
    char names[256];
    size_t used = 0;
    for (int i = 0; i < TT_NCOLLECTIVES && used < sizeof names; i++)
        used += (size_t)snprintf(names + used, sizeof names - used, "%s%s", i > 0 ? ", " : "",
                                 tt_collective_name((enum tt_collective)i));
    return tt_fail(TT_ERR_ARGUMENT, "there is no collective \"%.*s\"; there are %s", shown(word),
                   word.text, names);
}

/* Whether a collective before this one has an algorithm of the name. */
static bool is_listed(int collective, const char *name)
{
    bool found = false;
    for (int i = 0; i < collective && !found; i++)
        found = tt_algorithm_find((enum tt_collective)i, name) != NULL;
    return found;
}

/* Lists every name once, whichever collectives have it; of composed ones only an example. */
static tt_status fail_nowhere(struct word word)
{
    const struct tt_algorithm *algorithm;
    char names[TT_ERROR_TEXT / 2] = "";
    size_t used = 0;
    for (int c = 0; c < TT_NCOLLECTIVES; c++)
        for (int i = 0; (algorithm = tt_algorithm_at((enum tt_collective)c, i)) != NULL; i++) {
            if (algorithm->parts) break;
            if (used < sizeof names && !is_listed(c, algorithm->name))
                used += (size_t)snprintf(names + used, sizeof names - used, "%s%s",
                                         used ? ", " : "", algorithm->name);
        }
    return tt_fail(TT_ERR_ARGUMENT,
                   "no collective has an algorithm \"%.*s\"; there are %s, and for several hosts "
                   "X/Y as in ring/ring (tutti-plan list: which collective has which)",
                   shown(word), word.text, names);
}

static tt_status fail_no_algorithm(int collective, struct word word)
{
    char names[512];
    tt_algorithm_names((enum tt_collective)collective, names, sizeof names);
    return tt_fail(TT_ERR_ARGUMENT, "%s has no algorithm \"%.*s\"; it has %s",
                   tt_collective_name((enum tt_collective)collective), shown(word), word.text,
                   names);
}

/* "ring" */
static tt_status force_everywhere(struct word word, const struct tt_algorithm *forced[])
{
    bool found = false;
    for (int i = 0; i < TT_NCOLLECTIVES; i++) {
        const struct tt_algorithm *algorithm = find(i, word);
        if (!algorithm) continue;
        forced[i] = algorithm;
        found = true;
    }
    return found ? TT_OK : fail_nowhere(word);
}

/* "all_reduce:ring" */
static tt_status force_one(struct word name, struct word word, const struct tt_algorithm *forced[])
{
    const int collective = find_collective(name);
    if (collective == TT_NCOLLECTIVES) return fail_no_collective(name);
    const struct tt_algorithm *algorithm = find(collective, word);
    if (!algorithm) return fail_no_algorithm(collective, word);
    forced[collective] = algorithm;
    return TT_OK;
}

tt_status tt_parse_algorithms(const char *text, const struct tt_algorithm *forced[TT_NCOLLECTIVES])
{
    const struct tt_algorithm *found[TT_NCOLLECTIVES] = {NULL};
    const char *at = text ? text : "";
    while (*at) {
        const char *const end = at + strcspn(at, ";");
        const char *const colon = memchr(at, ':', (size_t)(end - at));
        if (colon)
            TT_TRY(force_one(word_until(at, colon), word_until(colon + 1, end), found));
        else if (word_until(at, end).length > 0)
            TT_TRY(force_everywhere(word_until(at, end), found));
        at = *end ? end + 1 : end;
    }
    memcpy(forced, found, sizeof found);
    return TT_OK;
}
