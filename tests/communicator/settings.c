/* Settings that no communicator may be made with. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/config.h"
#include "shim.h"
#include "transport/room.h"
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

/* A settings file at `path` (as for mkstemp) with this mode, which the next init reads. */
static bool use_file(char *path, mode_t mode)
{
    static const char text[] = "TUTTI_SLOTS=8\n";
    const int fd = mkstemp(path);
    const bool made =
        fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text) && fchmod(fd, mode) == 0;
    if (fd >= 0) close(fd);
    setenv("TUTTI_CONF_FILE", path, 1);
    return made;
}

static void forget_file(const char *path)
{
    unlink(path);
    unsetenv("TUTTI_CONF_FILE");
    tt_config_reload();
}

TEST(settings, a_file_that_others_may_write_is_not_read_and_fails_the_init)
{
    static const mode_t modes[] = {0666, 0620, 0602};
    for (int i = 0; i < 3; i++) {
        char path[] = "/tmp/tutti-settings-XXXXXX", remedy[64];
        REQUIRE(use_file(path, modes[i]));
        snprintf(remedy, sizeof remedy, "chmod go-w %s", path);
        CHECK_MESSAGE(init_two() == tuttiInvalidArgument, "mode %o was accepted", modes[i]);
        CHECK_MESSAGE(strstr(tuttiGetLastError(NULL), remedy), "%s", tuttiGetLastError(NULL));
        CHECK_EQ(tt_config_int(TT_CONFIG_SLOTS), 0);
        forget_file(path);
    }
    char path[] = "/tmp/tutti-settings-XXXXXX";
    REQUIRE(use_file(path, 0644));
    CHECK_EQ(init_two(), tuttiSuccess);
    CHECK_EQ(tt_config_int(TT_CONFIG_SLOTS), 8);
    forget_file(path);
}

TEST(settings, a_file_of_another_user_is_not_read_and_fails_the_init)
{
    char path[] = "/tmp/tutti-settings-XXXXXX";
    if (geteuid() != 0) SKIP("only root can give a file to another user");
    REQUIRE(use_file(path, 0600) && chown(path, 4242, (gid_t)-1) == 0);
    CHECK_EQ(init_two(), tuttiInvalidArgument);
    CHECK_MESSAGE(strstr(tuttiGetLastError(NULL), "uid 4242") &&
                      strstr(tuttiGetLastError(NULL), "chown"),
                  "%s", tuttiGetLastError(NULL));
    CHECK_EQ(tt_config_int(TT_CONFIG_SLOTS), 0);
    forget_file(path);
}

TEST(settings, the_users_own_file_is_checked_like_a_named_one)
{
    char home[] = "/tmp/tutti-home-XXXXXX", path[64];
    REQUIRE(mkdtemp(home));
    snprintf(path, sizeof path, "%s/.tutti.conf", home);
    const int fd = open(path, O_WRONLY | O_CREAT, 0600);
    REQUIRE(fd >= 0 && fchmod(fd, 0666) == 0);
    close(fd);
    char *before = strdup(getenv("HOME") ? getenv("HOME") : "/");
    setenv("HOME", home, 1);
    CHECK_EQ(init_two(), tuttiInvalidArgument);
    CHECK(strstr(tuttiGetLastError(NULL), path));
    chmod(path, 0600);
    CHECK_EQ(init_two(), tuttiSuccess);
    setenv("HOME", before, 1);
    free(before);
    unlink(path);
    rmdir(home);
    tt_config_reload();
}

TEST(settings, a_device_in_place_of_the_file_is_no_file_that_others_may_write)
{
    setenv("TUTTI_CONF_FILE", "/dev/null", 1);
    CHECK_EQ(init_two(), tuttiSuccess);
    unsetenv("TUTTI_CONF_FILE");
    tt_config_reload();
}

TEST(settings, an_unknown_transport_is_answered_with_all_there_are)
{
    setenv("TUTTI_TRANSPORT", "pigeon", 1);
    CHECK_EQ(init_two(), tuttiInvalidArgument);
    const char *error = tuttiGetLastError(NULL);
    CHECK_MESSAGE(strstr(error, "'pigeon' is none of shm,window,cma "), "%s", error);
    const char *described = tt_config_row(TT_CONFIG_TRANSPORT)->sentence;
    for (int i = 0; i < tt_ntransports; i++) {
        const char *name = tt_transports[i]->name;
        CHECK_MESSAGE(strstr(error, name), "%s is not named: %s", name, error);
        CHECK_MESSAGE(strstr(described, name), "%s is not described: %s", name, described);
    }
    unsetenv("TUTTI_TRANSPORT");
    tt_config_reload();
}

TEST(settings, any_other_setting_that_is_not_understood_leaves_the_default)
{
    setenv("TUTTI_SLOTS", "many", 1);
    CHECK_EQ(init_two(), tuttiSuccess);
    unsetenv("TUTTI_SLOTS");
    tt_config_reload();
}
