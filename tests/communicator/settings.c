/* Settings that no communicator may be made with. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/config.h"
#include "shim.h"
#include "tutti.h"

static tuttiResult_t init_two(void)
{
    tuttiComm_t comms[2] = {NULL, NULL};
    tt_config_reload();
    const tuttiResult_t result = tuttiCommInitAll(comms, 2, NULL);
    for (int rank = 0; rank < 2; rank++) (void)tuttiCommDestroy(comms[rank]);
    return result;
}

TEST(settings, a_security_setting_that_is_not_understood_fails_the_init)
{
    static const char *const bad[] = {"maybe", "2", "-1", "truee", "1 "};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        char value[64];
        snprintf(value, sizeof value, "TUTTI_ENCRYPT=%s (environment)", bad[i]);
        setenv("TUTTI_ENCRYPT", bad[i], 1);
        CHECK_MESSAGE(init_two() == tuttiInvalidArgument, "the init succeeded with %s", value);
        const char *error = tuttiGetLastError(NULL);
        CHECK_MESSAGE(strstr(error, value) && strstr(error, "1, true, yes, on or 0, false"),
                      "the error was: %s", error);
    }
    unsetenv("TUTTI_ENCRYPT");
    CHECK_EQ(init_two(), tuttiSuccess);
}

TEST(settings, a_security_setting_that_a_file_spells_wrong_fails_the_init_unless_it_is_replaced)
{
    char path[] = "/tmp/tutti-settings-XXXXXX";
    static const char text[] = "TUTTI_ENCRYPT=jawohl\n";
    const int fd = mkstemp(path);
    REQUIRE(fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text));
    close(fd);
    setenv("TUTTI_CONF_FILE", path, 1);
    CHECK_EQ(init_two(), tuttiInvalidArgument);
    CHECK(strstr(tuttiGetLastError(NULL), "TUTTI_ENCRYPT=jawohl") &&
          strstr(tuttiGetLastError(NULL), path));
    setenv("TUTTI_ENCRYPT", "off", 1);
    CHECK_EQ(init_two(), tuttiSuccess);
    unsetenv("TUTTI_ENCRYPT");
    unsetenv("TUTTI_CONF_FILE");
    unlink(path);
    CHECK_EQ(init_two(), tuttiSuccess);
}

TEST(settings, any_other_setting_that_is_not_understood_leaves_the_default)
{
    setenv("TUTTI_SLOTS", "many", 1);
    CHECK_EQ(init_two(), tuttiSuccess);
    unsetenv("TUTTI_SLOTS");
    tt_config_reload();
}
