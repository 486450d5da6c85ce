/* What moving messages over bridges takes of a processor: over a link in memory, and over TCP on
 * loopback. Each rank is a thread that does what a proxy does, and plays the kernel. The tests
 * check that all messages come; they print times, which no test checks. docs/cuda-model.md has
 * them. TUTTI_TEST_TIMES=N: so many times as many messages. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "base/clock.h"
#include "carrier/kernel/bridge.h"
#include "shim.h"
#include "transport/wired.h"

enum { ENDS = 32, SLOTS = 4, SLOT_BYTES = 128 << 10, LINK_SLOTS = 6, SLEEP_NS = 20000 };

static const struct tt_bridge_shape shape = {
    .nranks = 2, .nchannels = ENDS, .nslots = SLOTS, .slot_bytes = SLOT_BYTES};

/* One rank. */
struct mover {
    struct tt_bridges *bridges;
    struct tt_wires *wires; /* NULL: a link in memory */
    char *memory;
    struct tt_device_end out[ENDS], in[ENDS];
    size_t length;
    unsigned nsend, ntake, nsent, ntaken; /* messages: to send and take in all, and so far */
    bool answers;                         /* sends a message when it has taken one */
    double us;                            /* of a processor, in moving */
    bool is_done, has_failed;
    _Atomic int *ndone; /* of both ranks */
};

static bool is_gone(const void *arg, int rank)
{
    (void)arg;
    (void)rank;
    return false;
}

static const struct tt_bridge_calls calls = {.is_gone = is_gone};

static double processor_us(void)
{
    struct timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (double)now.tv_sec * 1e6 + (double)now.tv_nsec / 1e3;
}

/* As a kernel sends on every channel, as far as slots are free and messages are left. */
static void kernel_send(struct mover *mover)
{
    for (int c = 0; c < ENDS; c++) {
        struct tt_device_end *end = &mover->out[c];
        const unsigned most = mover->answers ? mover->ntaken + 1 : mover->nsend;
        const uint32_t tail = (uint32_t)__atomic_load_n(end->tail, __ATOMIC_ACQUIRE);
        if (mover->nsent >= most || mover->nsent >= mover->nsend || end->count - tail > SLOTS - 1)
            continue;
        const uint64_t head = tt_device_head(end->count + 1, 1);
        end->notes[end->count % SLOTS] =
            (struct tt_device_note){.head = head, .nbytes = mover->length, .length = mover->length};
        __atomic_store_n(end->head, head, __ATOMIC_RELEASE);
        end->count++;
        mover->nsent++;
    }
}

static void kernel_take(struct mover *mover)
{
    for (int c = 0; c < ENDS; c++) {
        struct tt_device_end *end = &mover->in[c];
        const uint32_t head = (uint32_t)__atomic_load_n(end->head, __ATOMIC_ACQUIRE);
        const uint32_t n = head - end->count;
        if (!n || n > SLOTS) continue;
        end->count += n;
        mover->ntaken += n;
        __atomic_store_n(end->tail, end->count, __ATOMIC_RELEASE);
    }
}

/* Counts the time of passes that move something; where messages follow one another, of all until
 * the rank has sent and taken its own. */
static bool pass(struct mover *mover, double clock_us)
{
    const double begin = processor_us();
    const tt_status moved = tt_bridges_move(mover->bridges);
    const tt_status status = mover->wires ? tt_wires_progress(mover->wires) : TT_OK;
    const double us = processor_us() - begin - clock_us;
    mover->has_failed = mover->has_failed || moved < 0 || status < 0;
    if (!moved || (!mover->answers && !mover->is_done)) mover->us += us;
    return !moved;
}

static double clock_cost_us(void)
{
    enum { TURNS = 2000 };
    const double begin = processor_us();
    for (int i = 0; i < TURNS; i++) (void)processor_us();
    return (processor_us() - begin) / TURNS;
}

static void *run(void *arg)
{
    struct mover *mover = arg;
    const double clock_us = clock_cost_us();
    const struct timespec a_while = {.tv_nsec = SLEEP_NS};
    const int64_t end_ns = tt_deadline_ns(60000);
    mover->us = 0;
    while (atomic_load(mover->ndone) < 2 && !mover->has_failed) {
        kernel_take(mover);
        kernel_send(mover);
        if (pass(mover, clock_us)) continue;
        if (!mover->is_done && mover->nsent == mover->nsend && mover->ntaken == mover->ntake &&
            !tt_bridges_have_work(mover->bridges)) {
            mover->is_done = true;
            atomic_fetch_add(mover->ndone, 1);
        }
        mover->has_failed = mover->has_failed || tt_expired(end_ns);
        nanosleep(&a_while, NULL);
    }
    return NULL;
}

static bool open_mover(struct mover *mover, int rank, struct wired *all, bool by_tcp)
{
    struct tt_fabric *fabric = all->ranks.fabrics[rank];
    const struct tt_bridge_pair pair =
        by_tcp ? (struct tt_bridge_pair){tt_wires_tx(all->wires[rank], !rank, 0),
                                         tt_wires_rx(all->wires[rank], !rank, 0)}
               : (struct tt_bridge_pair){tt_fabric_tx(fabric, !rank, 0),
                                         tt_fabric_rx(fabric, !rank, 0)};
    const size_t nbytes = tt_bridge_bytes(&shape);
    *mover = (struct mover){.wires = by_tcp ? all->wires[rank] : NULL};
    mover->memory = aligned_alloc(128, 2 * ENDS * nbytes);
    if (!mover->memory || tt_bridges_create(&mover->bridges, &shape, &calls, NULL)) return false;
    memset(mover->memory, 0, 2 * ENDS * nbytes);
    for (int i = 0; i < 2 * ENDS; i++) {
        const int c = i / 2;
        struct tt_device_end *end = i % 2 ? &mover->out[c] : &mover->in[c];
        tt_bridges_lay(&shape, i % 2, mover->memory + (size_t)i * nbytes, NULL, end);
        if (tt_bridges_bind(mover->bridges, !rank, c, &pair, end, false)) return false;
    }
    return true;
}

static void close_mover(struct mover *mover)
{
    tt_bridges_destroy(mover->bridges);
    free(mover->memory);
}

static bool open_links(struct wired *all, bool by_tcp)
{
    struct tt_wires_config wires = wired_config();
    struct tt_fabric_config fabric = together_config();
    wires.nslots = fabric.nslots = LINK_SLOTS;
    wires.slot_bytes = fabric.slot_bytes = SLOT_BYTES;
    if (by_tcp) return wired_open(all, 2, &wires);
    *all = (struct wired){0};
    return together_open(&all->ranks, 2, &fabric);
}

/* Once, so that all ends are known and all memory was touched, then timed. */
static bool run_both(struct mover movers[2], size_t length, unsigned n, bool answer)
{
    pthread_t threads[2];
    _Atomic int ndone = 0;
    for (int r = 0; r < 2; r++) {
        struct mover *mover = &movers[r];
        mover->length = length;
        mover->nsent = mover->ntaken = 0;
        mover->is_done = false;
        mover->ndone = &ndone;
        mover->nsend = answer || r == 0 ? n : 0;
        mover->ntake = answer || r == 1 ? n : 0;
        mover->answers = answer;
        if (pthread_create(&threads[r], NULL, run, mover)) return false;
    }
    for (int r = 0; r < 2; r++) pthread_join(threads[r], NULL);
    return !movers[0].has_failed && !movers[1].has_failed && movers[1].ntaken == n;
}

static unsigned times(void)
{
    const char *text = getenv("TUTTI_TEST_TIMES");
    const int n = text ? atoi(text) : 1;
    return n > 1 ? (unsigned)n : 1;
}

static void measure(const char *name, bool by_tcp, size_t length, unsigned n, bool answer)
{
    static struct wired all;
    static struct mover movers[2];
    REQUIRE(open_links(&all, by_tcp));
    for (int r = 0; r < 2; r++) REQUIRE(open_mover(&movers[r], r, &all, by_tcp));
    CHECK(run_both(movers, length, ENDS * SLOTS, false));
    CHECK(run_both(movers, length, n * times(), answer));
    printf("%-6s %7zu bytes %-9s: us of a processor for each message: %.2f at its sender, %.2f at "
           "its receiver\n",
           name, length, answer ? "answered" : "in a row", movers[0].us / (n * times()),
           movers[1].us / (n * times()));
    for (int r = 0; r < 2; r++) close_mover(&movers[r]);
    wired_close(&all);
}

enum { FAR = 128 << 20 };

/* The copies alone, to and from memory that is in no cache. */
static void copy_all(const char *what, char *far_memory, char *near_memory, bool out)
{
    const double begin = processor_us();
    for (size_t i = 0; i < FAR; i += SLOT_BYTES) {
        char *link = near_memory + i / SLOT_BYTES % LINK_SLOTS * SLOT_BYTES;
        memcpy(out ? link : far_memory + i, out ? far_memory + i : link, SLOT_BYTES);
    }
    printf("%s: %.2f us of a processor for %d bytes\n", what,
           (processor_us() - begin) / (double)(FAR / SLOT_BYTES), SLOT_BYTES);
}

TEST(bridge_times, of_copies)
{
    char *far_memory = malloc(FAR), *near_memory = malloc((size_t)LINK_SLOTS * SLOT_BYTES);
    REQUIRE(far_memory && near_memory);
    memset(far_memory, 1, FAR);
    memset(near_memory, 2, (size_t)LINK_SLOTS * SLOT_BYTES);
    copy_all("from memory that is in no cache", far_memory, near_memory, true);
    copy_all("to memory that is in no cache", far_memory, near_memory, false);
    CHECK(!memcmp(far_memory, near_memory, SLOT_BYTES));
    free(far_memory);
    free(near_memory);
}

TEST(bridge_times, in_memory)
{
    measure("memory", false, 64, 4000, false);
    measure("memory", false, SLOT_BYTES / 2, 1000, false);
    measure("memory", false, SLOT_BYTES, 1000, false);
    measure("memory", false, 64, 500, true);
}

TEST(bridge_times, by_tcp)
{
    measure("TCP", true, 64, 4000, false);
    measure("TCP", true, SLOT_BYTES / 2, 1000, false);
    measure("TCP", true, SLOT_BYTES, 1000, false);
    measure("TCP", true, 64, 500, true);
}
