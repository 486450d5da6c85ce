/* Tests of epoll instances of the library, whose descriptors a program may close. */
#include "base/private_epoll.h"

#include <errno.h>
#include <fcntl.h>

#include "base/private_fd.h"
#include "own_epoll.h"
#include "shim.h"

static const int some = 7;

TEST(private_epoll, marks_come_back_as_they_were_given)
{
    struct tt_epoll epoll;
    struct epoll_event ready[4];
    REQUIRE(tt_epoll_open(&epoll) == 0);
    const int event = eventfd(1, EFD_CLOEXEC);
    const uint64_t marks[] = {0, 300, tt_epoll_mark_of(&some), tt_epoll_mark_of(&epoll)};
    for (int i = 0; i < 4; i++) {
        CHECK_EQ(tt_epoll_set(&epoll, i ? EPOLL_CTL_MOD : EPOLL_CTL_ADD, event, EPOLLIN, marks[i]),
                 0);
        REQUIRE(tt_epoll_wait(&epoll, ready, 4, 0) == 1);
        CHECK_EQ(ready[0].data.u64, marks[i]);
    }
    CHECK_EQ(tt_epoll_set(&epoll, EPOLL_CTL_DEL, event, 0, 0), 0);
    CHECK_EQ(tt_epoll_wait(&epoll, ready, 4, 0), 0);
    const int number = epoll.fd;
    close(event);
    tt_epoll_close(&epoll);
    CHECK(close(number) < 0);
}

TEST(private_epoll, no_stamp_begins_an_address)
{
    struct tt_epoll epolls[8];
    for (int i = 0; i < 8; i++) {
        REQUIRE(tt_epoll_open(&epolls[i]) == 0);
        CHECK(epolls[i].stamp >> 15);
        for (int k = 0; k < i; k++) CHECK(epolls[i].stamp != epolls[k].stamp);
    }
    for (int i = 0; i < 8; i++) tt_epoll_close(&epolls[i]);
}

TEST(private_epoll, what_an_instance_of_the_program_reports_is_no_mark)
{
    const uint64_t data[] = {0,
                             (uint64_t)some,
                             UINT64_MAX,
                             tt_epoll_mark_of(&some),
                             tt_epoll_mark_of(&data),
                             UINT64_C(0x8000) << 48};
    for (size_t i = 0; i < sizeof data / sizeof *data; i++) {
        struct tt_epoll epoll;
        struct epoll_event ready[4];
        REQUIRE(tt_epoll_open(&epoll) == 0);
        epoll.stamp = 0x8001; /* not one of those in data */
        const int number = epoll.fd;
        REQUIRE(own_epoll_put(number, data[i]));
        CHECK(!tt_private_fd_is_lost(number)); /* its inode is the one of all instances */
        CHECK_EQ(tt_epoll_wait(&epoll, ready, 4, 0), -1);
        CHECK_EQ(errno, EBADF);
        CHECK(epoll.is_lost);
        CHECK_EQ(tt_epoll_set(&epoll, EPOLL_CTL_ADD, 0, EPOLLIN, 1), -1);
        CHECK_EQ(errno, EBADF);
        CHECK_EQ(tt_epoll_wait(&epoll, ready, 4, 0), -1);
        tt_epoll_close(&epoll);
        CHECK_MESSAGE(own_epoll_take(number, data[i]), "the program's instance was changed");
        const int other = open("/dev/null", O_RDONLY | O_CLOEXEC);
        REQUIRE(dup2(other, number) == number);
        CHECK(!tt_private_fd_is_lost(number)); /* as it is not the library's */
        close(number);
        if (other != number) close(other);
    }
}

/* As when a program closes all descriptors, and then makes a communicator. */
TEST(private_epoll, what_a_later_instance_of_the_library_reports_is_no_mark)
{
    struct tt_epoll first, second;
    struct epoll_event ready[4];
    REQUIRE(tt_epoll_open(&first) == 0);
    close(first.fd);
    REQUIRE(tt_epoll_open(&second) == 0);
    REQUIRE(second.fd == first.fd);
    const int event = eventfd(1, EFD_CLOEXEC);
    CHECK_EQ(tt_epoll_set(&second, EPOLL_CTL_ADD, event, EPOLLIN, 9), 0);
    CHECK_EQ(tt_epoll_wait(&first, ready, 4, 0), -1);
    tt_epoll_close(&first);
    REQUIRE(tt_epoll_wait(&second, ready, 4, 0) == 1);
    CHECK_EQ(ready[0].data.u64, 9);
    close(event);
    tt_epoll_close(&second);
}
