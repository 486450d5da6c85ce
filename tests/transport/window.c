/* Tests of windows: allocated, adopted, freed. */
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "shim.h"
#include "transport/host/cma.h"
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
    CHECK(tt_window_map_find(&map, 20, &nbytes) == NULL); /* without undefined behaviour */
    REQUIRE(tt_window_map_add(&map, 20, window.fd, window.nbytes) == TT_OK);
    strcpy(memory, "seen");
    CHECK_STR(tt_window_map_find(&map, 20, &nbytes), "seen");
    CHECK_EQ(nbytes, 4096);
    CHECK(tt_window_map_find(&map, 21, &nbytes) == NULL);
    CHECK(tt_window_map_find(&map, 20 | UINT64_C(1) << 32, &nbytes) == NULL); /* a later one */
    REQUIRE(tt_window_map_add(&map, 20 | UINT64_C(1) << 32, window.fd, window.nbytes) == TT_OK);
    CHECK_STR(tt_window_map_find(&map, 20 | UINT64_C(1) << 32, &nbytes), "seen");
    CHECK(tt_window_map_find(&map, 20, &nbytes) == NULL);
    CHECK_EQ(tt_window_free(memory), TT_OK);
    tt_window_map_fini(&map);
}

enum { HUGE_PAGE = 2 << 20 };

/* KiB of the mapping that begins there which lie in huge pages. */
static int huge_kib(const void *memory)
{
    char line[512];
    int kib = 0;
    bool inside = false;
    FILE *maps = fopen("/proc/self/smaps", "re");
    while (maps && fgets(line, sizeof line, maps)) {
        unsigned long begin, end;
        if (sscanf(line, "%lx-%lx", &begin, &end) == 2) inside = begin == (uintptr_t)memory;
        if (inside) sscanf(line, "ShmemPmdMapped: %d kB", &kib);
    }
    if (maps) fclose(maps);
    return kib;
}

/* Whether the kernel puts shared memory whose pages are all there into a huge page. */
static bool has_huge_pages(void)
{
    const int fd = memfd_create("probe", MFD_CLOEXEC);
    if (fd < 0 || ftruncate(fd, HUGE_PAGE)) return false;
    char *room =
        mmap(NULL, 2 * HUGE_PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (room == MAP_FAILED) return false;
    char *probe = room + -(uintptr_t)room % HUGE_PAGE;
    bool has = mmap(probe, HUGE_PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 0) ==
               (void *)probe;
    if (has) memset(probe, 1, HUGE_PAGE);
    enum { COLLAPSE = 25 }; /* MADV_COLLAPSE */
    has = has && madvise(probe, HUGE_PAGE, COLLAPSE) == 0 && huge_kib(probe) > 0;
    munmap(room, 2 * HUGE_PAGE);
    close(fd);
    return has;
}

TEST(window, that_is_long_lies_in_huge_pages_here_and_where_a_peer_maps_it)
{
    void *memory;
    struct tt_window window;
    struct tt_window_map map = {0};
    size_t nbytes;
    if (!has_huge_pages()) SKIP("this kernel puts no shared memory into huge pages");
    REQUIRE(tt_window_create(&memory, 2 * HUGE_PAGE + 1) == TT_OK);
    CHECK_EQ(huge_kib(memory), 2 * HUGE_PAGE / 1024);
    REQUIRE(tt_window_find(memory, 1, &window));
    memset(memory, 1, window.nbytes);
    REQUIRE(tt_window_map_add(&map, 1, window.fd, window.nbytes) == TT_OK);
    REQUIRE(tt_window_map_writable(&map, 1));
    CHECK_EQ(huge_kib(tt_window_map_find(&map, 1, &nbytes)), 2 * HUGE_PAGE / 1024);
    tt_window_map_fini(&map);
    CHECK_EQ(tt_window_free(memory), TT_OK);
}

/* In place of the C library's: how many ranges are collapsed before this error; 0: all. */
static struct {
    int left, error;
} collapse;

int madvise(void *memory, size_t nbytes, int advice)
{
    enum { COLLAPSE = 25 }; /* MADV_COLLAPSE */
    if (advice == COLLAPSE && collapse.error && collapse.left-- == 0) {
        errno = collapse.error;
        return -1;
    }
    return (int)syscall(SYS_madvise, memory, nbytes, advice);
}

/* Bytes of memory that a window takes when the kernel ends to collapse it in the middle. */
static size_t taken_until(int error)
{
    void *memory = NULL;
    struct tt_window window = {.fd = -1};
    struct stat info = {.st_blocks = 0};
    collapse.left = 2;
    collapse.error = error;
    CHECK_EQ(tt_window_create(&memory, 4 * HUGE_PAGE), TT_OK);
    collapse.error = 0;
    CHECK(tt_window_find(memory, 1, &window) && !fstat(window.fd, &info));
    if (memory) memset(memory, 3, 4 * HUGE_PAGE);
    CHECK_EQ(tt_window_free(memory), TT_OK);
    return (size_t)info.st_blocks * 512;
}

/* A window that took all that its control group may have would be killed at the next page. */
TEST(window, gives_memory_back_that_does_not_suffice)
{
    if (!has_huge_pages()) SKIP("this kernel puts no shared memory into huge pages");
    CHECK_EQ(taken_until(EBUSY), 0);
    CHECK_EQ(taken_until(ENOMEM), 0);
    CHECK(taken_until(EINVAL) <= 2 * HUGE_PAGE + 4096);
    CHECK(taken_until(EAGAIN) >= 3 * HUGE_PAGE);
}

TEST(window, of_absurd_size_is_an_error_that_says_so)
{
    void *memory;
    CHECK_EQ(tt_window_create(&memory, (size_t)-1), TT_ERR_ARGUMENT);
    CHECK(strstr(tt_last_error(), "18446744073709551615"));
}

TEST(window, adopts_ordinary_memory_in_place_and_gives_it_back)
{
    const size_t nbytes = 1 << 20;
    char *whole = malloc(nbytes + 16), *memory = whole + 16; /* never starts at a page */
    struct tt_window window;
    void *adopted, *again;
    for (size_t i = 0; i < nbytes; i++) memory[i] = (char)(i * 7);
    REQUIRE(tt_window_adopt(memory, nbytes, &adopted) == TT_OK);
    REQUIRE(adopted);
    CHECK(tt_window_find(adopted, 4096, &window));
    CHECK(!tt_window_find(memory, nbytes, &window));
    CHECK_EQ(tt_window_adopt(memory, nbytes, &again), TT_OK);
    CHECK(again == adopted);
    int wrong = 0;
    for (size_t i = 0; i < nbytes; i++) wrong += memory[i] != (char)(i * 7);
    CHECK_EQ(wrong, 0);
    tt_window_release(again);
    CHECK(tt_window_find(adopted, 4096, &window));
    memory[5000] = 99;
    tt_window_release(adopted);
    CHECK(!tt_window_find(adopted, 4096, &window));
    CHECK_EQ(memory[5000], 99);
    memory[5000] = (char)(5000 * 7);
    for (size_t i = 0; i < nbytes; i++) wrong += memory[i] != (char)(i * 7);
    CHECK_EQ(wrong, 0);
    free(whole);
}

TEST(window, leaves_alone_what_is_not_ordinary_memory)
{
    char on_stack[20000];
    void *adopted;
    CHECK_EQ(tt_window_adopt(on_stack, sizeof on_stack, &adopted), TT_OK);
    CHECK(adopted == NULL);
    CHECK_EQ(tt_window_adopt(on_stack, 100, &adopted), TT_OK);
    CHECK(adopted == NULL);
    CHECK_EQ(tt_window_adopt((void *)(uintptr_t) "text", 1 << 16, &adopted), TT_OK);
    CHECK(adopted == NULL);
}

/* One of several threads that adopt the same memory at the same time. */
struct adopter {
    pthread_barrier_t *begin;
    void *memory, *adopted;
    size_t nbytes;
    tt_status status;
};

static void *adopt(void *argument)
{
    struct adopter *self = argument;
    pthread_barrier_wait(self->begin);
    self->status = tt_window_adopt(self->memory, self->nbytes, &self->adopted);
    return NULL;
}

/* Whether what is written to the memory is seen through its window's descriptor. */
static bool window_shows_memory(char *memory, char value)
{
    struct tt_window window;
    char got = 0;
    *memory = value;
    return tt_window_find(memory, 1, &window) &&
           pread(window.fd, &got, 1, memory - window.base) == 1 && got == value;
}

static void adopt_at_once(char *memory, size_t nbytes)
{
    enum { N = 3 };
    pthread_t threads[N];
    struct adopter adopters[N];
    pthread_barrier_t begin;
    pthread_barrier_init(&begin, NULL, N);
    for (int i = 0; i < N; i++) {
        adopters[i] = (struct adopter){.begin = &begin, .memory = memory, .nbytes = nbytes};
        REQUIRE(pthread_create(&threads[i], NULL, adopt, &adopters[i]) == 0);
    }
    for (int i = 0; i < N; i++) pthread_join(threads[i], NULL);
    pthread_barrier_destroy(&begin);
    for (int i = 0; i < N; i++) {
        CHECK_EQ(adopters[i].status, TT_OK);
        CHECK(adopters[i].adopted == memory);
    }
    for (int i = 0; i < N && !tt_test_failed(); i++) {
        CHECK(window_shows_memory(memory, (char)(i + 1)));
        tt_window_release(adopters[i].adopted);
        CHECK_EQ(*memory, i + 1);
    }
    struct tt_window window;
    CHECK(!tt_window_find(memory, 1, &window));
}

TEST(window, threads_that_adopt_the_same_memory_at_once_share_one_window)
{
    const size_t nbytes = 1 << 16;
    void *memory = NULL;
    for (int round = 0; round < 200 && !tt_test_failed(); round++) {
        REQUIRE(posix_memalign(&memory, 4096, nbytes) == 0);
        adopt_at_once(memory, nbytes);
        free(memory);
    }
}

TEST(window, pages_that_a_device_uses_are_not_moved_when_they_are_adopted)
{
    const size_t nbytes = 1 << 16;
    char *memory = NULL;
    void *adopted;
    REQUIRE(posix_memalign((void **)&memory, 4096, nbytes) == 0);
    REQUIRE(tt_window_pin(memory + 5000, 16) == TT_OK && tt_window_pin(memory + 5000, 16) == TT_OK);
    for (int pins = 2; pins > 0; pins--) {
        CHECK_EQ(tt_window_adopt(memory, nbytes, &adopted), TT_OK);
        CHECK(adopted == NULL);
        CHECK_EQ(tt_window_adopt(memory, 4096, &adopted), TT_OK); /* those beside them are */
        CHECK(adopted == memory);
        tt_window_release(adopted);
        tt_window_unpin(memory + 5000, 16);
    }
    CHECK_EQ(tt_window_adopt(memory, nbytes, &adopted), TT_OK);
    CHECK(adopted == memory);
    tt_window_release(adopted);
    tt_window_unpin(memory + 5000, 16); /* nothing happens */
    free(memory);
}

TEST(window, pages_that_a_device_uses_are_not_moved_when_they_are_released)
{
    const size_t nbytes = 1 << 16;
    struct tt_window window;
    void *adopted;
    char got = 0;
    char *memory = mmap(NULL, nbytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    REQUIRE(memory != MAP_FAILED);
    REQUIRE(tt_window_adopt(memory, nbytes, &adopted) == TT_OK && adopted);
    REQUIRE(tt_window_find(memory, nbytes, &window));
    const int device = dup(window.fd); /* sees the pages, whatever is mapped */
    REQUIRE(tt_window_pin(memory, nbytes) == TT_OK);
    tt_window_release(adopted);
    CHECK(!tt_window_find(memory, 1, &window));
    memory[7] = 77;
    CHECK(pread(device, &got, 1, 7) == 1);
    CHECK_EQ(got, 77);
    tt_window_unpin(memory, nbytes);
    close(device);
    munmap(memory, nbytes);
}

/* What a device has registered for a window is looked up by its id: it must not be taken for the
 * pages that are behind the addresses later. */
TEST(window, memory_that_is_adopted_again_is_another_window)
{
    const size_t nbytes = 1 << 16;
    void *memory = NULL, *adopted;
    struct tt_window first, second;
    REQUIRE(posix_memalign(&memory, 4096, nbytes) == 0);
    REQUIRE(tt_window_adopt(memory, nbytes, &adopted) == TT_OK);
    REQUIRE(tt_window_find(memory, nbytes, &first));
    tt_window_release(adopted);
    CHECK(!tt_window_exists(first.id));
    REQUIRE(tt_window_adopt(memory, nbytes, &adopted) == TT_OK);
    REQUIRE(tt_window_find(memory, nbytes, &second));
    CHECK(second.id != first.id);
    tt_window_release(adopted);
    free(memory);
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
