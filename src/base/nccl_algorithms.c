/* NCCL_ALGO is a list of sets: "[function:][^]algorithm,algorithm;...". An entry without a function
 * is for all functions that have no entry of their own. */
#include "base/nccl_algorithms.h"

#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "base/nccl_settings.h"

enum { RING = 1, TREE = 2, PAT = 4, OTHERS = 8, ALL = 15 };
enum { NFUNCTIONS = 5, NOURS = 3 };

static const struct {
    const char *word;
    unsigned bit;
} words[] = {{"Ring", RING},
             {"Tree", TREE},
             {"PAT", PAT},
             {"CollNet", OTHERS},
             {"CollNetDirect", OTHERS},
             {"CollNetChain", OTHERS},
             {"NVLS", OTHERS},
             {"NVLSTree", OTHERS}};

/* NCCL's functions, tutti's collectives, and what the algorithms are called there; NULL: NCCL has
 * no such algorithm for it. NCCL's ring of a broadcast or a reduce is a pipelined chain. */
static const struct {
    const char *function, *collective, *ours[NOURS]; /* of RING, TREE, PAT */
} functions[NFUNCTIONS] = {{"AllReduce", "all_reduce", {"ring", "tree", NULL}},
                           {"AllGather", "all_gather", {"ring", NULL, "pat"}},
                           {"ReduceScatter", "reduce_scatter", {"ring", NULL, "pat"}},
                           {"Broadcast", "broadcast", {"chain", NULL, NULL}},
                           {"Reduce", "reduce", {"chain", NULL, NULL}}};

static bool is_word(const char *text, size_t length, const char *word)
{
    return strlen(word) == length && !strncasecmp(text, word, length);
}

static unsigned bit_of(const char *text, size_t length)
{
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (is_word(text, length, words[i].word)) return words[i].bit;
    return 0;
}

/* "[^]algorithm,algorithm" up to `end`; 0: no word of it is known. */
static unsigned parse_set(const char *at, const char *end, const char *all)
{
    unsigned set = 0;
    const bool except = at < end && *at == '^';
    at += except;
    while (at < end) {
        size_t length = strcspn(at, ",;");
        const unsigned bit = bit_of(at, length);
        if (!bit && length)
            tt_nccl_note(TT_LOG_WARN,
                         "NCCL_ALGO=%.200s: '%.*s' is none of Ring, Tree, PAT, CollNetDirect, "
                         "CollNetChain, NVLS, NVLSTree; it has no effect",
                         all, (int)(length < 64 ? length : 64), at);
        if (bit == OTHERS && !except)
            tt_nccl_note(TT_LOG_WARN,
                         "NCCL_ALGO=%.200s: tutti has no %.*s; where nothing else is named, the "
                         "cost model chooses",
                         all, (int)length, at);
        set |= bit;
        at += length + (at + length < end);
    }
    return except && set ? ALL & ~set : set;
}

static int find_function(const char *text, size_t length)
{
    for (int i = 0; i < NFUNCTIONS; i++)
        if (is_word(text, length, functions[i].function)) return i;
    return NFUNCTIONS;
}

/* sets[NFUNCTIONS] is for those without an entry. 0: no entry. */
static void parse_sets(const char *text, unsigned sets[NFUNCTIONS + 1])
{
    for (const char *at = text; *at;) {
        const char *end = at + strcspn(at, ";");
        const char *colon = memchr(at, ':', (size_t)(end - at));
        const int function = colon ? find_function(at, (size_t)(colon - at)) : NFUNCTIONS;
        if (colon && function == NFUNCTIONS)
            tt_nccl_note(TT_LOG_WARN,
                         "NCCL_ALGO=%.200s: '%.*s' is none of AllReduce, AllGather, "
                         "ReduceScatter, Broadcast, Reduce; it has no effect",
                         text, (int)(colon - at < 64 ? colon - at : 64), at);
        else
            sets[function] = parse_set(colon ? colon + 1 : at, end, text);
        at = *end ? end + 1 : end;
    }
}

/* The one of tutti's algorithms that the set leaves; NULL: none, or several. */
static const char *only_one(int function, unsigned set)
{
    const char *found = NULL;
    for (int i = 0; i < NOURS; i++) {
        const char *ours = functions[function].ours[i];
        if (!ours || !(set & 1u << i)) continue;
        if (found) return NULL;
        found = ours;
    }
    return found;
}

bool tt_nccl_parse_algorithms(const char *text, char *converted, size_t size)
{
    unsigned sets[NFUNCTIONS + 1] = {0};
    size_t used = 0;
    parse_sets(text, sets);
    converted[0] = '\0';
    for (int i = 0; i < NFUNCTIONS && used < size; i++) {
        const char *algorithm = only_one(i, sets[i] ? sets[i] : sets[NFUNCTIONS]);
        if (algorithm)
            used += (size_t)snprintf(converted + used, size - used, "%s%s:%s", used ? ";" : "",
                                     functions[i].collective, algorithm);
    }
    if (!used)
        tt_nccl_note(TT_LOG_INFO, "NCCL_ALGO=%.200s leaves the choice to the cost model", text);
    return used > 0;
}
