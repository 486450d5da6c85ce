#include <stdlib.h>
#include <string.h>

#include "bootstrap/bootstrap.h"
#include "shim.h"

static const char *const names[] = {"RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"};

static tt_status detect(const char *const values[4], struct tt_launcher *launcher)
{
    for (int i = 0; i < 4; i++) {
        if (values[i])
            setenv(names[i], values[i], 1);
        else
            unsetenv(names[i]);
    }
    const tt_status status = tt_launcher_detect(launcher);
    for (int i = 0; i < 4; i++) unsetenv(names[i]);
    return status;
}

TEST(launcher, none_is_rank_0_of_1)
{
    struct tt_launcher launcher;
    REQUIRE(detect((const char *const[4]){0}, &launcher) == TT_OK);
    CHECK(launcher.rank == 0 && launcher.nranks == 1);
    CHECK(launcher.local_rank == 0 && launcher.local_nranks == 1);
    CHECK_STR(launcher.found, "none");
}

TEST(launcher, torchruns_variables_are_read)
{
    struct tt_launcher launcher;
    REQUIRE(detect((const char *const[4]){"5", "8", "1", "4"}, &launcher) == TT_OK);
    CHECK(launcher.rank == 5 && launcher.nranks == 8);
    CHECK(launcher.local_rank == 1 && launcher.local_nranks == 4);
    REQUIRE(detect((const char *const[4]){"5", "8"}, &launcher) == TT_OK);
    CHECK(launcher.local_rank == 5 && launcher.local_nranks == 8);
    REQUIRE(detect((const char *const[4]){"5", "8", "5"}, &launcher) == TT_OK);
    CHECK(launcher.local_rank == 5 && launcher.local_nranks == 8);
    REQUIRE(detect((const char *const[4]){"5", "8", NULL, "4"}, &launcher) == TT_OK);
    CHECK(launcher.local_rank == 1 && launcher.local_nranks == 4);
}

TEST(launcher, what_is_missing_or_wrong_is_named)
{
    static const struct {
        const char *values[4], *text;
    } cases[] = {
        {{"1", NULL, NULL, NULL}, "RANK is set but WORLD_SIZE is not"},
        {{NULL, "2", NULL, NULL}, "WORLD_SIZE is set but RANK is not"},
        {{NULL, NULL, "0", "2"}, "LOCAL_RANK is set but RANK and WORLD_SIZE are not"},
        {{"one", "2", "0", "2"}, "RANK=one is not a whole number"},
        {{"0x1", "2", "0", "2"}, "RANK=0x1 is not a whole number"},
        {{"", "2", "0", "2"}, "RANK= is not a whole number"},
        {{"2", "2", "0", "2"}, "RANK=2 is out of range: it must be 0 to 1"},
        {{"-1", "2", "0", "2"}, "RANK=-1 is out of range"},
        {{"0", "0", "0", "1"}, "WORLD_SIZE=0 is out of range: it must be 1 to"},
        {{"0", "99999999999999999999", "0", "1"}, "WORLD_SIZE=99999999999999999999 is not"},
        {{"0", "2", "2", "2"}, "LOCAL_RANK=2 is out of range: it must be 0 to 1"},
        {{"0", "2", "0", "3"}, "LOCAL_WORLD_SIZE=3 is out of range: it must be 1 to 2"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct tt_launcher launcher;
        CHECK_EQ(detect(cases[i].values, &launcher), TT_ERR_ARGUMENT);
        CHECK_MESSAGE(strstr(tt_last_error(), cases[i].text), "'%s' is not in '%s'", cases[i].text,
                      tt_last_error());
    }
}
