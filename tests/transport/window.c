#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "shim.h"
#include "transport/cma.h"
#include "transport/window.h"

TEST(window, is_found_by_any_address_inside_it)
{
    void *memory;
    struct tt_window window;
    REQUIRE(tt_window_create(&memory, 10000) == TT_OK);
    memset(memory, 1, 10000);
    CHECK(tt_window_find((char *)memory + 9999, 1, &window));
    CHECK(window.base == memory);
    CHECK(!tt_window_find((char *)memory + window.nbytes, 1, &window));
    CHECK(!tt_window_find((char *)memory + 1, window.nbytes, &window));
    CHECK_EQ(tt_window_free(memory), TT_OK);
    CHECK(!tt_window_find(memory, 1, &window));
    CHECK_EQ(tt_window_free(memory), TT_ERR_ARGUMENT);
    CHECK_EQ(tt_window_free(NULL), TT_OK);
}

TEST(window, maps_elsewhere_and_gives_its_memory_back_when_freed)
{
    void *memory;
    struct tt_window window;
    struct tt_window_map map = {0};
    size_t nbytes = 0;
    REQUIRE(tt_window_create(&memory, 4096) == TT_OK);
    REQUIRE(tt_window_find(memory, 4096, &window));
    REQUIRE(tt_window_map_add(&map, window.id, window.fd, window.nbytes) == TT_OK);
    strcpy(memory, "seen");
    CHECK_STR(tt_window_map_find(&map, window.id, &nbytes), "seen");
    CHECK_EQ(nbytes, 4096);
    CHECK(tt_window_map_find(&map, window.id + 1, &nbytes) == NULL);
    CHECK_EQ(tt_window_free(memory), TT_OK);
    tt_window_map_fini(&map);
}

TEST(window, of_absurd_size_is_an_error_that_says_so)
{
    void *memory;
    CHECK_EQ(tt_window_create(&memory, (size_t)-1), TT_ERR_ARGUMENT);
    CHECK(strstr(tt_last_error(), "18446744073709551615"));
}

static uint64_t word = 0x1234567890abcdefull;

TEST(cma, reads_another_process_or_says_what_is_refused)
{
    int channel[2];
    REQUIRE(pipe(channel) == 0);
    const pid_t child = fork();
    if (child == 0) {
        char byte;
        close(channel[1]);
        _exit(read(channel[0], &byte, 1) != 0);
    }
    close(channel[0]);
    const int refused = tt_cma_probe(child, (uint64_t)(uintptr_t)&word, word);
    uint64_t got = 0;
    if (refused == 0) {
        CHECK_EQ(tt_cma_read(child, (uint64_t)(uintptr_t)&word, &got, sizeof got), TT_OK);
        CHECK(got == word);
        CHECK(tt_cma_probe(child, (uint64_t)(uintptr_t)&word, word + 1) != 0);
        CHECK_EQ(tt_cma_read(child, 8, &got, sizeof got), TT_ERR_SYSTEM);
        CHECK(strstr(tt_last_error(), "process_vm_readv"));
    }
    close(channel[1]);
    waitpid(child, NULL, 0);
    if (refused) SKIP("process_vm_readv is not permitted here");
}
