/* Windows of one rank as another rank of the host maps them. */
#include "transport/window.h"

#include <fcntl.h>
#include <pthread.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include "base/private_fd.h"
#include "shim.h"
#include "transport/together.h"

enum { NBYTES = 4096, MANY = 9 };

/* Two ranks in processes of their own, as far as they know. Rank 0 shows, rank 1 maps. */
static bool open_apart(struct together *all)
{
    const struct tt_fabric_config config = together_config();
    struct tt_peer_info infos[2];
    int sockets[2];
    all->nranks = 2;
    for (int r = 0; r < 2; r++) {
        if (tt_peer_info_init(&infos[r], &config, &sockets[r])) return false;
        infos[r].process_id += (uint64_t)r;
    }
    for (int r = 0; r < 2; r++)
        if (tt_fabric_begin(&all->fabrics[r], infos, r, 2, sockets[r], &config)) return false;
    for (int r = 0; r < 2; r++)
        if (tt_fabric_attach(all->fabrics[r], INT64_MAX)) return false;
    return true;
}

struct shown {
    void *memory;
    uint64_t name;
};

static void create(struct shown *windows, int n)
{
    for (int i = 0; i < n; i++) REQUIRE(tt_window_create(&windows[i].memory, NBYTES) == TT_OK);
}

static void destroy(struct shown *windows, int n)
{
    for (int i = 0; i < n; i++) CHECK_EQ(tt_window_free(windows[i].memory), TT_OK);
}

static void show(struct together *all, struct shown *windows, int n)
{
    for (int i = 0; i < n; i++) {
        struct tt_memory memory;
        tt_fabric_find_memory(all->fabrics[0], windows[i].memory, NBYTES, &memory);
        REQUIRE(memory.window != TT_NO_WINDOW);
        windows[i].name = memory.window;
        tt_fabric_introduce(all->fabrics[0], 1, &memory);
    }
}

/* How many of the windows rank 1 has mapped, after it has taken what was sent. */
static int count_mapped(struct together *all, const struct shown *windows, int n)
{
    const struct tt_host_room *room = &all->fabrics[1]->host;
    struct tt_memory none;
    size_t nbytes;
    int nmapped = 0;
    tt_fabric_find_memory(all->fabrics[1], NULL, 0, &none);
    for (int i = 0; room->windows && i < n; i++)
        nmapped += tt_window_map_find(&room->windows[0], windows[i].name, &nbytes) != NULL;
    return nmapped;
}

TEST(windows, that_are_freed_are_unmapped_when_others_are_shown)
{
    struct together all;
    struct shown before[MANY], after[3];
    REQUIRE(open_apart(&all));
    create(before, MANY);
    show(&all, before, MANY);
    CHECK_EQ(count_mapped(&all, before, MANY), MANY);
    destroy(before, MANY);
    create(after, 3);
    show(&all, after, 1); /* at the index of one that is freed; the note lists four more */
    CHECK_EQ(count_mapped(&all, before, MANY), MANY - 1 - TT_FD_GONE_MAX);
    CHECK_EQ(count_mapped(&all, after, 1), 1);
    show(&all, after + 1, 2);
    CHECK_EQ(count_mapped(&all, before, MANY), 0);
    CHECK_EQ(count_mapped(&all, after, 3), 3);
    destroy(after, 3);
    together_close(&all);
}

TEST(windows, that_are_freed_are_unmapped_later_when_a_note_could_not_be_sent)
{
    struct together all;
    struct shown before[3], after[1];
    struct tt_fd_note got, stranger = {.secret = 1};
    int fd;
    REQUIRE(open_apart(&all));
    struct tt_host_room *room = &all.fabrics[0]->host, *peer = &all.fabrics[1]->host;
    create(before, 3);
    show(&all, before, 3);
    CHECK_EQ(count_mapped(&all, before, 3), 3);
    destroy(before, 3);
    create(after, 1);
    while (tt_fdpass_send(&room->config.members[1].fd_address, &stranger, room->fd_socket, NULL) ==
           TT_OK)
        continue;
    show(&all, after, 1); /* rank 1 has a full queue */
    while (tt_fdpass_receive(peer->fd_socket, stranger.secret, &got, &fd) == TT_OK)
        tt_private_fd_close(fd);
    CHECK_EQ(count_mapped(&all, after, 1), 0);
    show(&all, after, 1);
    CHECK_EQ(count_mapped(&all, after, 1), 1);
    CHECK_EQ(count_mapped(&all, before, 3), 0);
    destroy(after, 1);
    together_close(&all);
}

/* The receiver takes nothing from another user, and looks when the descriptor has been sent. */
TEST(windows, of_a_rank_that_has_become_another_user_are_shown_to_nobody)
{
    enum { NOBODY = 65534 };
    if (geteuid() != 0) SKIP("only root can become another user");
    struct together all;
    struct shown window[1];
    struct tt_memory memory;
    REQUIRE(open_apart(&all));
    create(window, 1);
    REQUIRE(seteuid(NOBODY) == 0);
    show(&all, window, 1);
    REQUIRE(seteuid(0) == 0);
    tt_fabric_find_memory(all.fabrics[0], window->memory, NBYTES, &memory);
    CHECK(!tt_host_is_known(&all.fabrics[0]->host, 1, &memory, window->memory, NBYTES));
    CHECK_EQ(count_mapped(&all, window, 1), 0);
    show(&all, window, 1);
    CHECK(tt_host_is_known(&all.fabrics[0]->host, 1, &memory, window->memory, NBYTES));
    CHECK_EQ(count_mapped(&all, window, 1), 1);
    destroy(window, 1);
    together_close(&all);
}

TEST(windows, take_the_indices_of_those_that_are_freed)
{
    struct together all;
    struct shown windows[2 * MANY];
    REQUIRE(open_apart(&all));
    for (int turn = 0; turn < 300 && !tt_test_failed(); turn++) {
        struct shown *half = windows + turn % 2 * MANY;
        create(half, MANY);
        show(&all, half, MANY);
        CHECK_EQ(count_mapped(&all, half, MANY), MANY);
        if (turn) destroy(windows + (turn + 1) % 2 * MANY, MANY);
    }
    CHECK(all.fabrics[0]->host.nshown <= 2 * MANY);
    destroy(windows + MANY, MANY);
    together_close(&all);
}

/* Seconds of the processor that this thread takes to show new windows. */
static double seconds_of_showing(struct together *all, struct shown *windows, int n)
{
    struct timespec begin, end;
    double seconds = 0;
    for (int i = 0; i < n; i++) {
        create(&windows[i], 1);
        clock_gettime(CLOCK_THREAD_CPUTIME_ID, &begin);
        show(all, &windows[i], 1);
        clock_gettime(CLOCK_THREAD_CPUTIME_ID, &end);
        seconds +=
            (double)(end.tv_sec - begin.tv_sec) + 1e-9 * (double)(end.tv_nsec - begin.tv_nsec);
        CHECK_EQ(count_mapped(all, &windows[i], 1), 1);
    }
    return seconds;
}

/* Looking for freed windows among all once for each of them made it 30 times as much and more. */
TEST(windows, of_many_the_last_cost_about_as_much_as_the_first)
{
    enum { NPARTS = 8, EACH = 64 };
    struct together all;
    static struct shown windows[NPARTS][EACH];
    double seconds[NPARTS];
    REQUIRE(open_apart(&all));
    for (int part = 0; part < NPARTS; part++)
        seconds[part] = seconds_of_showing(&all, windows[part], EACH);
    double least = seconds[0] < seconds[1] ? seconds[0] : seconds[1];
    CHECK_MESSAGE(seconds[NPARTS - 1] < 8 * least, "%d windows took %.6f s, with %d others %.6f s",
                  EACH, least, (NPARTS - 1) * EACH, seconds[NPARTS - 1]);
    for (int part = 0; part < NPARTS; part++) destroy(windows[part], EACH);
    together_close(&all);
}

static uint64_t name_of(const struct together *all, const void *memory)
{
    struct tt_memory found;
    tt_fabric_find_memory(all->fabrics[0], memory, NBYTES, &found);
    return found.window;
}

TEST(windows, that_take_the_place_of_others_are_found_under_names_of_their_own)
{
    struct together all;
    void *adopted;
    REQUIRE(open_apart(&all));
    void *memory =
        mmap(NULL, 3 * NBYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    char *others[] = {(char *)memory + NBYTES, (char *)memory + 2 * (size_t)NBYTES};
    REQUIRE(memory != MAP_FAILED);
    CHECK_EQ(name_of(&all, memory), TT_NO_WINDOW);
    uint64_t before = TT_NO_WINDOW;
    for (int i = 0; i < 3; i++) {
        void *more[2];
        REQUIRE(tt_window_adopt(memory, NBYTES, &adopted) == TT_OK && adopted == memory);
        for (int k = 0; k < 2; k++) REQUIRE(tt_window_adopt(others[k], NBYTES, &more[k]) == TT_OK);
        const uint64_t name = name_of(&all, memory);
        CHECK(name != TT_NO_WINDOW && name != before);
        for (int k = 0; k < 2; k++) CHECK(name_of(&all, others[k]) != name);
        for (int k = 0; k < 2; k++) CHECK(name_of(&all, others[k]) != TT_NO_WINDOW);
        CHECK_EQ(name_of(&all, memory), name);
        CHECK_EQ(name_of(&all, (char *)memory + NBYTES / 2 - 1), name); /* its middle is inside */
        before = name;
        tt_window_release(adopted);
        for (int k = 0; k < 2; k++) tt_window_release(more[k]);
        CHECK_EQ(name_of(&all, memory), TT_NO_WINDOW);
    }
    munmap(memory, 3 * NBYTES);
    together_close(&all);
}

/* Memory that another thread makes a window and takes back, turn after turn. */
struct changing {
    pthread_barrier_t handed, looked;
    char *memory;
    uint64_t id; /* written before `handed`, read before `looked` */
    int nturns;
};

static void *change(void *arg)
{
    struct changing *changing = arg;
    for (int turn = 0; turn < changing->nturns; turn++) {
        struct tt_window window = {.id = 0};
        void *adopted;
        CHECK_EQ(tt_window_adopt(changing->memory, NBYTES, &adopted), TT_OK);
        CHECK(tt_window_find(changing->memory, NBYTES, &window));
        changing->id = window.id;
        pthread_barrier_wait(&changing->handed);
        pthread_barrier_wait(&changing->looked);
        tt_window_release(adopted);
        pthread_barrier_wait(&changing->handed);
        pthread_barrier_wait(&changing->looked);
    }
    return NULL;
}

/* The rank looks its two windows up without the lock of the list, which grows and shrinks
 * meanwhile: it finds its own window all the time, and what the other thread hands over always
 * under the latest id, although the address stays the same. */
TEST(windows, that_another_thread_makes_and_takes_back_are_found_as_they_are)
{
    struct together all;
    struct changing changing = {.nturns = 300};
    struct shown own;
    pthread_t thread;
    REQUIRE(open_apart(&all));
    create(&own, 1);
    changing.memory =
        mmap(NULL, NBYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    REQUIRE(changing.memory != MAP_FAILED);
    const uint64_t name = name_of(&all, own.memory);
    REQUIRE(name != TT_NO_WINDOW);
    pthread_barrier_init(&changing.handed, NULL, 2);
    pthread_barrier_init(&changing.looked, NULL, 2);
    REQUIRE(pthread_create(&thread, NULL, change, &changing) == 0);
    for (int turn = 0; turn < changing.nturns; turn++) {
        for (int look = 0; look < 50; look++) CHECK_EQ(name_of(&all, own.memory), name);
        pthread_barrier_wait(&changing.handed);
        CHECK_EQ(name_of(&all, changing.memory) >> 32, (uint32_t)changing.id);
        pthread_barrier_wait(&changing.looked);
        for (int look = 0; look < 50; look++) CHECK_EQ(name_of(&all, own.memory), name);
        pthread_barrier_wait(&changing.handed);
        CHECK_EQ(name_of(&all, changing.memory), TT_NO_WINDOW);
        pthread_barrier_wait(&changing.looked);
    }
    pthread_join(thread, NULL);
    pthread_barrier_destroy(&changing.handed);
    pthread_barrier_destroy(&changing.looked);
    munmap(changing.memory, NBYTES);
    destroy(&own, 1);
    together_close(&all);
}

TEST(windows, beyond_the_most_that_are_mapped_are_refused_until_others_are_gone)
{
    struct tt_window_map map = {.number = 0};
    const int fd = memfd_create("window", MFD_CLOEXEC);
    size_t nbytes;
    REQUIRE(fd >= 0 && ftruncate(fd, NBYTES) == 0);
    const uint64_t last = TT_MOST_MAPPED - 1;
    CHECK_EQ(tt_window_map_add(&map, last | 1ull << 32, fd, NBYTES), TT_OK);
    CHECK_EQ(tt_window_map_add(&map, TT_MOST_MAPPED, fd, NBYTES), TT_ERR_USAGE);
    CHECK(strstr(tt_last_error(), "more than 65536 windows in use"));
    tt_window_map_drop(&map, TT_MOST_MAPPED); /* nothing is mapped there */
    tt_window_map_drop(&map, (uint32_t)last);
    CHECK(tt_window_map_find(&map, last | 1ull << 32, &nbytes) == NULL);
    CHECK_EQ(tt_window_map_add(&map, last | 2ull << 32, fd, NBYTES), TT_OK);
    CHECK(tt_window_map_find(&map, last | 2ull << 32, &nbytes) != NULL && nbytes == NBYTES);
    CHECK(tt_window_map_find(&map, last | 1ull << 32, &nbytes) == NULL);
    tt_window_map_fini(&map);
    close(fd);
}

/* Rank 1 takes the descriptors while its process has no address space left. */
TEST(windows, that_cannot_be_had_fail_with_the_cause_where_they_are_used)
{
    struct together all;
    struct shown windows[2];
    struct rlimit before, none = {0};
    size_t nbytes;
    char *base;
    if (tt_test_sanitized()) SKIP("a sanitizer needs address space of its own");
    REQUIRE(open_apart(&all));
    create(windows, 2);
    show(&all, windows, 2);
    REQUIRE(getrlimit(RLIMIT_AS, &before) == 0);
    none.rlim_max = before.rlim_max;
    REQUIRE(setrlimit(RLIMIT_AS, &none) == 0);
    const int nmapped = count_mapped(&all, windows, 2);
    REQUIRE(setrlimit(RLIMIT_AS, &before) == 0);
    CHECK_EQ(nmapped, 0);
    CHECK_EQ(tt_host_find_window(&all.fabrics[1]->host, 0, windows[1].name, &base, &nbytes),
             TT_ERR_SYSTEM);
    const char *text = tt_last_error();
    CHECK_MESSAGE(strstr(text, "rank 1 (host ") && strstr(text, "memory of rank 0 (host ") &&
                      strstr(text, "cannot map a peer's window of 4096 bytes (ulimit -v?)"),
                  "unexpected: %s", text);
    destroy(windows, 2);
    together_close(&all);
}

TEST(windows, one_that_cannot_be_had_does_no_harm_to_others)
{
    struct together all;
    struct shown window[1];
    size_t nbytes;
    char *base;
    if (tt_test_sanitized()) SKIP("a sanitizer needs address space of its own");
    REQUIRE(open_apart(&all));
    struct tt_host_room *room = &all.fabrics[0]->host;
    create(window, 1);
    struct tt_fd_note note = {.secret = room->config.secret,
                              .id = 77 | (uint64_t)99 << 32,
                              .nbytes = (size_t)1 << 40, /* more than the descriptor has */
                              .kind = TT_FD_WINDOW};
    REQUIRE(tt_fdpass_send(&room->config.members[1].fd_address, &note, 0, NULL) == TT_OK);
    show(&all, window, 1);
    CHECK_EQ(tt_host_find_window(&all.fabrics[1]->host, 0, window->name, &base, &nbytes), TT_OK);
    destroy(window, 1);
    together_close(&all);
}
