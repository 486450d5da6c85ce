#include <fcntl.h>
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

#include "shim.h"
#include "transport/host/fdpass.h"

TEST(fdpass, passes_a_descriptor_with_its_note)
{
    int a, b, fd = -1;
    struct tt_fd_address address_a, address_b;
    REQUIRE(tt_fdpass_open(&a, &address_a) == TT_OK);
    REQUIRE(tt_fdpass_open(&b, &address_b) == TT_OK);
    const int memory = memfd_create("test", MFD_CLOEXEC);
    REQUIRE(write(memory, "hello", 5) == 5);
    const struct tt_fd_note note = {.secret = 42, .id = 7, .nbytes = 5, .kind = TT_FD_WINDOW};
    CHECK_EQ(tt_fdpass_send(a, &address_b, &note, memory), TT_OK);
    struct tt_fd_note got = {0};
    REQUIRE(tt_fdpass_receive(b, 42, &got, &fd) == TT_OK);
    CHECK_EQ(got.id, 7);
    char text[6] = "";
    CHECK_EQ(pread(fd, text, 5, 0), 5);
    CHECK_STR(text, "hello");
    CHECK(fcntl(fd, F_GETFD) & FD_CLOEXEC);
    close(fd);
    CHECK_EQ(tt_fdpass_receive(b, 42, &got, &fd), TT_IN_PROGRESS);
    close(memory);
    close(a);
    close(b);
}

TEST(fdpass, drops_what_does_not_know_the_secret)
{
    int a, b, fd = -1;
    struct tt_fd_address address_a, address_b;
    REQUIRE(tt_fdpass_open(&a, &address_a) == TT_OK);
    REQUIRE(tt_fdpass_open(&b, &address_b) == TT_OK);
    const struct tt_fd_note note = {.secret = 1};
    struct tt_fd_note got;
    CHECK_EQ(tt_fdpass_send(a, &address_b, &note, a), TT_OK);
    CHECK_EQ(tt_fdpass_receive(b, 2, &got, &fd), TT_IN_PROGRESS);
    close(a);
    close(b);
}

TEST(fdpass, says_in_progress_when_the_receiver_does_not_read)
{
    int a, b;
    struct tt_fd_address address_a, address_b;
    REQUIRE(tt_fdpass_open(&a, &address_a) == TT_OK);
    REQUIRE(tt_fdpass_open(&b, &address_b) == TT_OK);
    const struct tt_fd_note note = {.secret = 1};
    int status = TT_OK;
    for (int i = 0; i < 100000 && status == TT_OK; i++)
        status = tt_fdpass_send(a, &address_b, &note, a);
    CHECK_EQ(status, TT_IN_PROGRESS);
    close(a);
    close(b);
}
