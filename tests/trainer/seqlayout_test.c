/* The order of a cut sequence: every place is on exactly one rank, in rising order, and the ranks
 * of a ring have equal work in zigzag. */
#include <stdlib.h>

#include "../../trainer/parallel/seqlayout.h"
#include "../shim.h"

enum { MOST_TOKENS = 400 };

static void check_cut(long length, int ring, int ulysses, int tp, bool zigzag)
{
    int owners[MOST_TOKENS] = {0};
    long padded = 0;
    for (int r = 0; r < ring; ++r)
        for (int u = 0; u < ulysses; ++u) {
            const struct tr_sequence s = tr_sequence_of(length, ring, r, ulysses, u, tp, zigzag);
            padded = s.padded;
            REQUIRE(padded < MOST_TOKENS && s.local * ring * ulysses == padded);
            long before = -1;
            for (long i = 0; i < s.local; ++i) {
                const long at = tr_sequence_position(&s, i);
                REQUIRE(at > before && at < padded);
                before = at;
                owners[at]++;
            }
        }
    const int ranks = ring * ulysses * tp;
    CHECK_EQ(ranks == 1 ? 0 : padded % (2 * ranks), 0);
    CHECK(padded >= length && padded - length < (ranks == 1 ? 1 : 2 * ranks));
    for (long at = 0; at < padded; ++at) CHECK_EQ(owners[at], 1);
}

TEST(seqlayout, every_place_of_a_sequence_is_on_one_rank_in_rising_order)
{
    static const long lengths[] = {1, 7, 96, 101, 256};
    for (int i = 0; i < 5; ++i)
        for (int ring = 1; ring <= 4; ++ring)
            for (int ulysses = 1; ulysses <= 4; ++ulysses)
                for (int tp = 1; tp <= 3; ++tp)
                    for (int zigzag = 0; zigzag < 2; ++zigzag)
                        check_cut(lengths[i], ring, ulysses, tp, zigzag);
}

/* The places that the tokens of a ring rank attend to. */
static long work_of(const struct tr_sequence *s, int ring_rank)
{
    long work = 0;
    for (int chunk = 0; chunk < 2; ++chunk) {
        long first, count;
        tr_sequence_chunk(s, ring_rank, chunk, &first, &count);
        for (long i = 0; i < count; ++i) work += first + i + 1;
    }
    return work;
}

TEST(seqlayout, zigzag_gives_every_rank_of_a_ring_the_same_work)
{
    for (int ring = 2; ring <= 8; ++ring) {
        const struct tr_sequence zigzag = tr_sequence_of(100, ring, 0, 1, 0, 1, true),
                                 contiguous = tr_sequence_of(100, ring, 0, 1, 0, 1, false);
        for (int r = 1; r < ring; ++r) {
            CHECK_EQ(work_of(&zigzag, r), work_of(&zigzag, 0));
            CHECK(work_of(&contiguous, r) > work_of(&contiguous, r - 1));
        }
    }
}
