/* The list of rank counts, placements and roots that ./check proves. */
#include "program/covered.h"

#include <string.h>

/* Even and uneven, one host after the other, in turns and at random. Fewer ranks come first. */
static const char *const placements[] = {
    "ab",
    "aab",
    "abb",
    "aabb",
    "abab",
    "abba",
    "abcc",
    "aaabbb",
    "aabbcc",
    "ababab",
    "abacad",
    "abcabc",
    "abcacb",
    "aaaaabb",
    "aababcc",
    "aaaabbbb",
    "aaabcccc",
    "aabbccdd",
    "abacadab",
    "abcacacc",
    "aaaaaaabcd",
    "aabbccddee",
    "ababababab",
    "abcdeabcde",
    "aaabbbcccddd",
    "aabbccddeeff",
    "abcabcabcabc",
    "aaaabbbbbcccc",
    "aaaabbbbccccc",
    "aaaaaaaabbbbbbbb",
    "aaaabbbbccccdddd",
    "abcdefghabcdefgh",
    "aaaaaaabbbbbbbccccccc",
    "aaaaaaaaabbbbbbbbccccccc",
    "aaaabbbbccccddddeeeeffffgggghhhh",
    "aabbccddeeffgghhiijjkkllmmnnoopp",
    "abcdefabcdefabcdefabcdefabcdefabcdef",
};
enum { NPLACEMENTS = sizeof placements / sizeof *placements };

const char *tt_covered_placement(int index)
{
    return index >= 0 && index < NPLACEMENTS ? placements[index] : NULL;
}

/* Two ranks share a host in both, or in none. */
static bool is_placed(const struct tt_hosts *hosts, const char *placement)
{
    if (strlen(placement) != (size_t)hosts->nranks) return false;
    for (int r = 0; r < hosts->nranks; r++) {
        const int first = hosts->ranks[hosts->begin[hosts->host_of[r]]];
        if (strchr(placement, placement[r]) != placement + first) return false;
    }
    return true;
}

/* An algorithm that is not made of others does not look at hosts: the same programs run on one host
 * and on several. It may look at groups of one host, which ./check does not prove. */
bool tt_proof_covers(const struct tt_algorithm *algorithm, const struct tt_shape *shape)
{
    if (shape->hosts && shape->hosts->one_host) return false;
    if (!algorithm->parts) return shape->nranks <= TT_COVERED_RANKS;
    if (!shape->hosts) return false;
    for (int i = 0; i < NPLACEMENTS; i++)
        if (is_placed(shape->hosts, placements[i])) return true;
    return false;
}
