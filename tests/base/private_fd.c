/* Which numbers the library's descriptors have, what a forked child has in place of them, and that
 * a file of the program under such a number is left alone. */
#include "base/private_fd.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <unistd.h>

#include "shim.h"

static bool is_null(int fd)
{
    struct stat file;
    return fstat(fd, &file) == 0 && S_ISCHR(file.st_mode) &&
           file.st_rdev == makedev(1, 3); /* /dev/null */
}

static bool is_socket(int fd)
{
    struct stat file;
    return fstat(fd, &file) == 0 && S_ISSOCK(file.st_mode);
}

static int open_socket(void)
{
    tt_private_fd_begin();
    return tt_private_fd_end(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
}

/* Whether it holds in a child. */
static bool in_child(bool (*holds)(int fd), int fd)
{
    int status = -1;
    const pid_t pid = fork();
    if (pid == 0) _exit(holds(fd) ? 0 : 1);
    waitpid(pid, &status, 0);
    return status == 0;
}

static bool is_null_and_close_on_exec(int fd)
{
    return is_null(fd) && fcntl(fd, F_GETFD) == FD_CLOEXEC;
}

TEST(private_fd, a_child_has_dev_null_in_its_place)
{
    const int own = open_socket(), other = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    REQUIRE(own >= 0 && other >= 0);
    CHECK(in_child(is_null_and_close_on_exec, own));
    CHECK(in_child(is_socket, other));
    CHECK(is_socket(own));
    tt_private_fd_close(own);
    close(other);
}

TEST(private_fd, a_number_that_was_closed_and_is_used_again_is_the_childs_too)
{
    const int own = open_socket();
    REQUIRE(own >= 0);
    tt_private_fd_close(own);
    const int other = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    REQUIRE(other == own);
    CHECK(in_child(is_socket, other));
    close(other);
    const int mine = open_socket();
    REQUIRE(mine == own);
    close(mine); /* behind the library's back */
    REQUIRE(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0) == own);
    CHECK(in_child(is_socket, own));
    close(own);
}

static bool can_open(int fd)
{
    (void)fd;
    const int own = open_socket();
    const bool inherited = in_child(is_null, own);
    tt_private_fd_close(own);
    return own >= 0 && inherited;
}

TEST(private_fd, a_child_has_private_ones_of_its_own)
{
    CHECK(in_child(can_open, -1));
}

/* ---- Numbers below 3 ------------------------------------------------------------------------ */

static bool is_closed(int fd)
{
    return fcntl(fd, F_GETFD) < 0 && errno == EBADF;
}

static bool are_free(int fd)
{
    (void)fd;
    return is_closed(0) && is_closed(1) && is_closed(2);
}

static void close_standard_streams(void)
{
    for (int fd = 0; fd < 3; fd++) close(fd);
}

static bool opens_above(int fd)
{
    (void)fd;
    close_standard_streams();
    const int own = open_socket();
    tt_low_fd_hold();
    const int other = tt_low_fd_release(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    return own > 2 && other > 2 && is_socket(own) && is_socket(other) && are_free(-1);
}

TEST(private_fd, no_descriptor_gets_the_number_of_a_closed_standard_stream)
{
    CHECK(in_child(opens_above, -1));
}

static bool holds_as_closed(int fd)
{
    (void)fd;
    char byte = 0;
    close_standard_streams();
    tt_low_fd_hold();
    tt_low_fd_hold();
    const bool reads = read(0, &byte, 1) >= 0 || errno != EBADF;
    const bool writes = write(2, &byte, 1) >= 0 || errno != EBADF;
    const int opened = open("/dev/null", O_RDWR | O_CLOEXEC);
    (void)tt_low_fd_release(-1);
    const bool held = !is_closed(0) && !is_closed(1) && !is_closed(2);
    (void)tt_low_fd_release(-1);
    return opened > 2 && held && !reads && !writes && are_free(-1);
}

TEST(private_fd, numbers_that_are_held_read_and_write_as_closed_ones)
{
    CHECK(in_child(holds_as_closed, -1));
}

static bool lifts(int fd)
{
    (void)fd;
    close_standard_streams();
    tt_private_fd_begin();
    close(1); /* by another thread of the program */
    const int low = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    const int own = tt_private_fd_end(low);
    return low == 1 && own > 2 && is_socket(own) && fcntl(own, F_GETFD) == FD_CLOEXEC &&
           are_free(-1) && in_child(is_null, own);
}

TEST(private_fd, a_low_number_that_comes_all_the_same_is_given_up)
{
    CHECK(in_child(lifts, -1));
}

static bool leaves_the_programs(int fd)
{
    (void)fd;
    const int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    close_standard_streams();
    tt_low_fd_hold();
    const bool put = dup2(null, 1) == 1; /* by another thread of the program */
    (void)tt_low_fd_release(-1);
    return put && is_null(1) && is_closed(0) && is_closed(2);
}

TEST(private_fd, a_file_that_the_program_puts_under_a_held_number_stays)
{
    CHECK(in_child(leaves_the_programs, -1));
}

static bool has_free_ones_in_its_child(int fd)
{
    (void)fd;
    close_standard_streams();
    tt_low_fd_hold();
    const bool free_there = in_child(are_free, -1);
    (void)tt_low_fd_release(-1);
    return free_there && are_free(-1);
}

TEST(private_fd, a_child_made_while_numbers_are_held_has_them_free)
{
    CHECK(in_child(has_free_ones_in_its_child, -1));
}

/* ---- Descriptors that the program closes ---------------------------------------------------- */

TEST(private_fd, a_file_of_the_program_under_a_private_number_is_not_closed)
{
    const int own = open_socket();
    REQUIRE(own >= 0);
    CHECK(!tt_private_fd_is_lost(own));
    close(own); /* behind the library's back, as closefrom(3) */
    CHECK(tt_private_fd_is_lost(own));
    REQUIRE(memfd_create("the program's", MFD_CLOEXEC) == own);
    CHECK(tt_private_fd_is_lost(own));
    tt_private_fd_close(own);
    CHECK_MESSAGE(!is_closed(own), "the program's file was closed");
    CHECK(!tt_private_fd_is_lost(own)); /* it is not the library's any more */
    close(own);
}

TEST(private_fd, errno_is_kept)
{
    errno = EXDEV;
    tt_private_fd_begin();
    CHECK_EQ(tt_private_fd_end(-1), -1);
    CHECK_EQ(errno, EXDEV);
    tt_private_fd_close(-1);
    CHECK_EQ(errno, EXDEV);
}

static atomic_bool stop;

static void *open_and_close(void *unused)
{
    while (!atomic_load(&stop)) tt_private_fd_close(open_socket());
    return unused;
}

static bool has_no_socket(int most)
{
    for (int fd = 0; fd < most; fd++)
        if (is_socket(fd)) return false;
    return true;
}

TEST(private_fd, no_fork_falls_between_opening_and_entering)
{
    enum { THREADS = 3 };
    const int forks = tt_test_sanitized() ? 60 : 300; /* sanitizers have much memory to fork */
    pthread_t threads[THREADS];
    int nforks = 0;
    const int next = dup(0);
    close(next);
    REQUIRE(has_no_socket(next));
    atomic_store(&stop, false);
    for (int i = 0; i < THREADS; i++)
        REQUIRE(pthread_create(&threads[i], NULL, open_and_close, NULL) == 0);
    while (nforks < forks && in_child(has_no_socket, next + 2 * THREADS)) nforks++;
    atomic_store(&stop, true);
    for (int i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
    CHECK_EQ(nforks, forks);
}
