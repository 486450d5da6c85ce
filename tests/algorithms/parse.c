/* TUTTI_ALGORITHM's grammar. */
#include <string.h>

#include "shim.h"
#include "each.h"

/* The name forced for a collective, "" when none is. */
static const char *forced_name(const char *text, enum tt_collective collective)
{
    const struct tt_algorithm *forced[TT_NCOLLECTIVES];
    if (tt_parse_algorithms(text, forced) != TT_OK) return tt_last_error();
    return forced[collective] ? forced[collective]->name : "";
}

TEST(parse, nothing_forces_nothing)
{
    const char *const texts[] = {NULL, "", " ", ";", " ; "};
    for (int k = 0; k < 5; k++)
        for (int i = 0; i < TT_NCOLLECTIVES; i++)
            CHECK_STR(forced_name(texts[k], (enum tt_collective)i), "");
}

TEST(parse, a_bare_name_is_for_every_collective_that_has_it)
{
    CHECK_STR(forced_name("ring", TT_ALL_REDUCE), "ring");
    CHECK_STR(forced_name("ring", TT_ALL_GATHER), "ring");
    CHECK_STR(forced_name("ring", TT_REDUCE_SCATTER), "ring");
    CHECK_STR(forced_name("ring", TT_BROADCAST), "");
    CHECK_STR(forced_name(" direct ", TT_GATHER), "direct");
}

TEST(parse, a_pair_is_for_one_collective_and_the_last_word_counts)
{
    const char text[] = "all_reduce:tree; broadcast : binomial;";
    CHECK_STR(forced_name(text, TT_ALL_REDUCE), "tree");
    CHECK_STR(forced_name(text, TT_BROADCAST), "binomial");
    CHECK_STR(forced_name(text, TT_REDUCE), "");
    CHECK_STR(forced_name("pat;all_reduce:naive", TT_ALL_REDUCE), "naive");
    CHECK_STR(forced_name("pat;all_reduce:naive", TT_ALL_GATHER), "pat");
}

/* The text is refused, the message has both words, and nothing is written. */
static void refuse(const char *text, const char *named, const char *listed)
{
    static const struct tt_algorithm untouched;
    const struct tt_algorithm *forced[TT_NCOLLECTIVES] = {&untouched, &untouched};
    CHECK_MESSAGE(tt_parse_algorithms(text, forced) == TT_ERR_ARGUMENT, "\"%s\" is accepted", text);
    CHECK_MESSAGE(strstr(tt_last_error(), named) != NULL, "\"%s\" is not named in \"%s\"", named,
                  tt_last_error());
    CHECK_MESSAGE(strstr(tt_last_error(), listed) != NULL, "\"%s\" is not listed in \"%s\"", listed,
                  tt_last_error());
    CHECK(forced[0] == &untouched && forced[1] == &untouched);
}

TEST(parse, what_is_unknown_is_named_and_what_there_is_listed)
{
    refuse("rign", "\"rign\"", "recursive_doubling");
    refuse("rign", "there are naive, ring,", "(tutti-plan list: which collective has which)");
    refuse("all_reduce:rign", "\"rign\"", "parameter_server");
    refuse("broadcast:ring", "\"ring\"", "scatter_allgather");
    refuse("allreduce:ring", "\"allreduce\"", "all_reduce");
    refuse(":ring", "\"\"", "all_reduce");
    refuse("all_reduce:", "\"\"", "ring");
    refuse("ring;all_reduce:tree:2", "\"tree:2\"", "tree");
    refuse("all_reduce:ring,broadcast:chain", "\"ring,broadcast:chain\"", "ring");
}

TEST(parse, a_very_long_word_is_refused)
{
    char text[4096];
    memset(text, 'x', sizeof text - 1);
    text[sizeof text - 1] = '\0';
    refuse(text, "xxx", "x");
    memcpy(text, "all_reduce:", 11);
    refuse(text, "xxx", "all_reduce");
}
