/* Files are opened without waiting, and only regular ones where that is asked for. */
#include "base/open.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "shim.h"

static char folder[] = "/tmp/tutti-open-XXXXXX";

static const char *make(const char *name)
{
    static char path[64];
    if (strstr(folder, "XXXXXX") && !mkdtemp(folder)) return "";
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return path;
}

static void check_refused(const char *path, const char *expected)
{
    struct stat file;
    const char *why = NULL;
    const int fd = tt_open_regular(path, &file, &why);
    CHECK_MESSAGE(fd < 0 && why && !strcmp(why, expected), "%s: %d, %s; expected %s", path, fd,
                  why ? why : "no reason", expected);
    if (fd >= 0) close(fd);
}

TEST(open, only_regular_files_are_read)
{
    const char *path = make("pipe");
    REQUIRE(mkfifo(path, 0600) == 0);
    check_refused(path, "it is a pipe");
    unlink(path);
    check_refused("/dev/zero", "it is a device");
    check_refused("/dev/null", "it is a device");
    check_refused("/tmp", "it is a folder");
    check_refused(make("none"), "No such file or directory");
    rmdir(folder);
}

TEST(open, a_regular_file_is_read_and_described)
{
    struct stat file;
    const char *why;
    char byte;
    const int fd = tt_open_regular("/proc/self/exe", &file, &why);
    REQUIRE(fd > 2 && !why);
    CHECK(S_ISREG(file.st_mode) && file.st_size > 1000);
    CHECK_EQ(read(fd, &byte, 1), 1);
    CHECK_EQ(fcntl(fd, F_GETFD), FD_CLOEXEC);
    close(fd);
}

TEST(open, texts_are_cut_to_their_room_and_end)
{
    char text[6] = "xxxxx";
    CHECK_EQ(tt_read_text("/proc/self/stat", text, sizeof text), 5);
    CHECK_EQ(strlen(text), 5);
    CHECK_EQ(tt_read_text("/nonexistent", text, sizeof text), -1);
    CHECK_EQ(errno, ENOENT);
    CHECK_STR(text, "");
}

TEST(open, a_stream_takes_no_low_number)
{
    int status = -1;
    const pid_t pid = fork();
    if (pid == 0) {
        for (int fd = 0; fd < 3; fd++) close(fd);
        FILE *stream = tt_open_stream("/proc/self/stat");
        _exit(stream && fileno(stream) > 2 && fgetc(stream) != EOF && fcntl(0, F_GETFD) < 0 ? 0
                                                                                            : 1);
    }
    waitpid(pid, &status, 0);
    CHECK_EQ(status, 0);
}
