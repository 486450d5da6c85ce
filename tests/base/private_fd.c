/* What a forked child has in place of its parent's private descriptors. */
#include "base/private_fd.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
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
