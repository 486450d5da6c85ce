/* Standard error gets the library's lines only where it is what the program was started with. */
#include "base/stderr.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "shim.h"

static int file; /* a memfd; the child's standard error, sooner or later */

static off_t size_of(int fd)
{
    struct stat info;
    return fstat(fd, &info) == 0 ? info.st_size : -1;
}

/* The size of the file after `body` in a child. */
static off_t written_by(void (*body)(void))
{
    int status = -1;
    file = memfd_create("stderr", MFD_CLOEXEC);
    const pid_t pid = fork();
    if (pid == 0) {
        body();
        _exit(0);
    }
    waitpid(pid, &status, 0);
    CHECK_MESSAGE(status == 0, "the child ended with status 0x%x", (unsigned)status);
    const off_t nbytes = size_of(file);
    close(file);
    return nbytes;
}

static void say_to_the_first(void)
{
    dup2(file, STDERR_FILENO);
    tt_stderr_forget();
    tt_stderr_say("one %d", 1);
    dup2(open("/dev/null", O_WRONLY), STDERR_FILENO);
    tt_stderr_say("lost");
    dup2(file, STDERR_FILENO);
    tt_stderr_say("two");
}

TEST(stderr, lines_go_to_the_file_of_the_first_use)
{
    CHECK_EQ(written_by(say_to_the_first), strlen("tutti: one 1\ntutti: two\n"));
}

static void say_to_another(void)
{
    dup2(open("/dev/null", O_WRONLY), STDERR_FILENO);
    tt_stderr_forget();
    dup2(file, STDERR_FILENO);
    tt_stderr_say("into the program's file");
}

static void say_to_a_closed_one(void)
{
    close(STDERR_FILENO);
    tt_stderr_forget();
    dup2(file, STDERR_FILENO);
    tt_stderr_say("into the program's file");
}

TEST(stderr, a_file_of_the_program_under_its_number_gets_none)
{
    CHECK_EQ(written_by(say_to_another), 0);
    CHECK_EQ(written_by(say_to_a_closed_one), 0);
}

static void say_to_nobody(void)
{
    int ends[2];
    if (pipe(ends) != 0) _exit(1);
    dup2(ends[1], STDERR_FILENO);
    close(ends[0]);
    tt_stderr_forget();
    tt_stderr_say("to nobody");
    dup2(file, STDERR_FILENO);
    tt_stderr_forget();
    tt_stderr_say("alive");
}

TEST(stderr, a_reader_that_has_gone_ends_nobody)
{
    CHECK_EQ(written_by(say_to_nobody), strlen("tutti: alive\n"));
}

static void say_much(void)
{
    char text[10000];
    memset(text, 'x', sizeof text);
    text[sizeof text - 1] = '\0';
    dup2(file, STDERR_FILENO);
    tt_stderr_forget();
    tt_stderr_say("%s", text);
    char last;
    if (pread(file, &last, 1, size_of(file) - 1) != 1 || last != '\n') _exit(1);
}

TEST(stderr, a_line_that_is_too_long_is_cut_and_still_ends)
{
    const off_t nbytes = written_by(say_much);
    CHECK_MESSAGE(nbytes > 4000 && nbytes <= 4096, "%lld bytes", (long long)nbytes);
}
