/* The names in texts: tutti's, or NCCL's where NCCL's variables count. */
#include "base/names.h"

#include <stdlib.h>
#include <string.h>

#include "base/config.h"
#include "shim.h"

static void check(const char *from, const char *expected)
{
    char text[128];
    CHECK(tt_rename_for_user(text, sizeof text, from) == strlen(expected));
    CHECK_MESSAGE(!strcmp(text, expected), "'%s' gives '%s', expected '%s'", from, text, expected);
}

static void use_nccl(bool nccl)
{
    setenv("NCCL_CONF_FILE", "/dev/null", 1);
    tt_config_reload_with_nccl(nccl);
    unsetenv("NCCL_CONF_FILE");
}

TEST(names, are_tuttis_for_a_program_of_tutti)
{
    check("tuttiCommDevice: tuttiComm_t, TUTTI_SPLIT_NOCOLOR",
          "tuttiCommDevice: tuttiComm_t, TUTTI_SPLIT_NOCOLOR");
}

TEST(names, are_nccls_for_a_program_of_nccl)
{
    use_nccl(true);
    check("tuttiAllReduce: sendbuff", "ncclAllReduce: sendbuff");
    check("tuttiCommFinalizeLocal: (tuttiCommDevice)", "ncclCommFinalize: (ncclCommCuDevice)");
    check("tuttiCommDeviceCount", "ncclCommDeviceCount");
    check("not TUTTI_SPLIT_NOCOLOR", "not NCCL_SPLIT_NOCOLOR");
    check("TUTTI_TIMEOUT_MS, tutti-info, tutti_plan.h, libtutti.so",
          "TUTTI_TIMEOUT_MS, tutti-info, tutti_plan.h, libtutti.so");
    check("my_tuttiX notuttiX xTUTTI_SPLIT_Y tutti", "my_tuttiX notuttiX xTUTTI_SPLIT_Y tutti");
    check("", "");
    check("/data/tuttiCosts 'tuttiX' X=tuttiY, \"tuttiSend\"",
          "/data/tuttiCosts 'tuttiX' X=tuttiY, \"ncclSend\"");
    use_nccl(false);
}

TEST(names, are_cut_at_the_end_of_the_room)
{
    char text[8];
    use_nccl(true);
    CHECK(tt_rename_for_user(text, sizeof text, "abcdefghij") == 7 && !strcmp(text, "abcdefg"));
    CHECK(tt_rename_for_user(text, sizeof text, "a tuttiX ") == 7 && !strcmp(text, "a ncclX"));
    CHECK(tt_rename_for_user(text, sizeof text, "abcd tuttiX") == 5 && !strcmp(text, "abcd "));
    CHECK(tt_rename_for_user(text, 1, "tuttiX") == 0 && !text[0]);
    use_nccl(false);
}
