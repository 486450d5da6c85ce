/* Keys are gone from this process' memory once nobody needs them. */
#include <fcntl.h>
#include <pthread.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/config.h"
#include "base/sanitizers.h"
#include "communicator/communicator.h"
#include "net/socket.h"
#include "shim.h"
#include "transport/tcp/tls.h"
#include "transport/wired.h"
#include "tutti.h"

enum { MASK = 0xa5, CHUNK = 1 << 16 };
#define MOST_BYTES (UINT64_C(128) << 20) /* of a mapping: larger ones are a sanitizer's tables */

/* A key that is looked for, so disguised that it is not found here. */
struct wanted {
    uint8_t masked[32];
};

static struct wanted want(const uint8_t key[32])
{
    struct wanted wanted;
    for (int i = 0; i < 32; i++) wanted.masked[i] = key[i] ^ MASK;
    return wanted;
}

static int count_in(const uint8_t *bytes, size_t nbytes, const struct wanted *wanted)
{
    int found = 0;
    for (size_t at = 0; at + 32 <= nbytes; at++) {
        size_t i = 0;
        while (i < 32 && (bytes[at + i] ^ MASK) == wanted->masked[i]) i++;
        found += i == 32;
    }
    return found;
}

/* One mapping, read through the kernel: what a sanitizer has poisoned can be read too. */
static int count_in_mapping(int memory, uint64_t begin, uint64_t end, const struct wanted *wanted)
{
    static uint8_t chunk[CHUNK];
    int found = 0;
    for (uint64_t at = begin; at < end;) {
        const size_t left = end - at < CHUNK ? (size_t)(end - at) : CHUNK;
        const ssize_t n = pread(memory, chunk, left, (off_t)at);
        if (n <= 0) break;
        const bool own = at < (uint64_t)(uintptr_t)(chunk + CHUNK) &&
                         at + (uint64_t)n > (uint64_t)(uintptr_t)chunk;
        if (!own) found += count_in(chunk, (size_t)n, wanted);
        if ((size_t)n < left || at + left == end) break;
        at += left - 31; /* a key may lie across two chunks */
    }
    sodium_memzero(chunk, sizeof chunk);
    return found;
}

/* How often the key lies in this process' writable memory: heap, stacks (of threads that have
 * ended too), static data. -1: cannot be told. */
static int count_copies(const struct wanted *wanted, const char *what)
{
    char line[512], mode[8];
    unsigned long long begin, end;
    FILE *maps = fopen("/proc/self/maps", "re");
    const int memory = open("/proc/self/mem", O_RDONLY | O_CLOEXEC);
    int found = maps && memory >= 0 ? 0 : -1;
    while (found >= 0 && fgets(line, sizeof line, maps)) {
        if (sscanf(line, "%llx-%llx %7s", &begin, &end, mode) != 3 || mode[1] != 'w') continue;
        if (end - begin > MOST_BYTES || strstr(line, "[vvar]")) continue;
        const int here = count_in_mapping(memory, begin, end, wanted);
        if (here) fprintf(stderr, "%s: %d copies in %s", what, here, line);
        found += here;
    }
    if (maps) fclose(maps);
    if (memory >= 0) close(memory);
    return found;
}

TEST(keys, are_found_by_this_test_where_they_lie)
{
    if (tt_is_thread_sanitizer()) SKIP("ThreadSanitizer's tables are too large to search");
    uint8_t *key = malloc(32);
    REQUIRE(key);
    randombytes_buf(key, 32);
    const struct wanted wanted = want(key);
    CHECK(count_copies(&wanted, "a key on the heap") >= 1);
    sodium_memzero(key, 32);
    CHECK_EQ(count_copies(&wanted, "a wiped key"), 0);
    free(key);
}

struct member {
    tuttiUniqueId *id;
    int rank;
    tuttiResult_t result;
    struct wanted key, split_key;
};

static void *join_split_and_leave(void *argument)
{
    struct member *member = argument;
    tuttiComm_t comm = NULL, part = NULL;
    member->result = tuttiCommInitRank(&comm, 2, *member->id, member->rank);
    if (member->result != tuttiSuccess) return NULL;
    member->key = want(comm->key);
    member->result = tuttiCommSplit(comm, 0, member->rank, &part, NULL);
    if (part) member->split_key = want(part->key);
    (void)tuttiCommDestroy(part);
    (void)tuttiCommDestroy(comm);
    return NULL;
}

/* The thread that served a unique id ends by itself. */
static bool is_alone(void)
{
    char line[256];
    int nthreads = 0;
    FILE *status = fopen("/proc/self/status", "re");
    while (status && fgets(line, sizeof line, status)) (void)sscanf(line, "Threads: %d", &nthreads);
    if (status) fclose(status);
    return nthreads == 1;
}

static void check_gone(const struct wanted *wanted, const char *what)
{
    const int64_t late = tt_deadline_ns(20000);
    while (!is_alone() && !tt_expired(late)) tt_test_pause();
    const int found = count_copies(wanted, what);
    CHECK_MESSAGE(found == 0, "%s: %d copies are left", what, found);
}

/* Runs a communicator of two ranks, in threads of their own, from this id, which is wiped. */
static void run_members(tuttiUniqueId *id)
{
    struct member members[2] = {{.id = id, .rank = 0}, {.id = id, .rank = 1}};
    pthread_t threads[2];
    for (int i = 0; i < 2; i++)
        REQUIRE(!pthread_create(&threads[i], NULL, join_split_and_leave, &members[i]));
    for (int i = 0; i < 2; i++) pthread_join(threads[i], NULL);
    sodium_memzero(id, sizeof *id);
    for (int i = 0; i < 2; i++) {
        CHECK_EQ(members[i].result, tuttiSuccess);
        check_gone(&members[i].key, "the communicator's key");
        check_gone(&members[i].split_key, "the key after a split");
    }
}

TEST(keys, of_a_unique_id_are_wiped)
{
    if (tt_is_thread_sanitizer()) SKIP("ThreadSanitizer's tables are too large to search");
    if (tt_is_address_sanitizer()) SKIP("AddressSanitizer copies arguments that are structs");
    tuttiUniqueId id;
    REQUIRE(tuttiGetUniqueId(&id) == tuttiSuccess);
    const struct wanted wanted = want(((struct tt_unique_id *)(void *)&id)->key);
    run_members(&id);
    check_gone(&wanted, "the unique id's key");
}

TEST(keys, of_several_ranks_of_a_thread_are_wiped)
{
    if (tt_is_thread_sanitizer()) SKIP("ThreadSanitizer's tables are too large to search");
    if (tt_is_address_sanitizer()) SKIP("AddressSanitizer copies arguments that are structs");
    tuttiComm_t comms[2] = {NULL, NULL};
    tuttiUniqueId id;
    REQUIRE(tuttiGetUniqueId(&id) == tuttiSuccess);
    const struct wanted wanted = want(((struct tt_unique_id *)(void *)&id)->key);
    CHECK_EQ(tuttiGroupStart(), tuttiSuccess);
    for (int rank = 0; rank < 2; rank++)
        CHECK_EQ(tuttiCommInitRank(&comms[rank], 2, id, rank), tuttiSuccess);
    CHECK_EQ(tuttiGroupEnd(), tuttiSuccess);
    sodium_memzero(&id, sizeof id);
    for (int rank = 0; rank < 2; rank++) CHECK_EQ(tuttiCommDestroy(comms[rank]), tuttiSuccess);
    check_gone(&wanted, "the unique id's key");
}

/* The key of a communicator's wires, and what TLS makes of it. */
TEST(keys, of_encrypted_connections_are_wiped)
{
    if (tt_is_thread_sanitizer()) SKIP("ThreadSanitizer's tables are too large to search");
    if (tt_tls_load()) SKIP("no TLS: libssl3 is missing here or its headers were");
    struct wired all;
    struct tt_wires_config config = wired_config();
    uint8_t tls_key[32];
    randombytes_buf(config.key, sizeof config.key);
    const struct wanted wanted = want(config.key);
    crypto_generichash(tls_key, sizeof tls_key, (const uint8_t *)"tutti tls", 9, config.key, 32);
    const struct wanted wanted_tls = want(tls_key);
    sodium_memzero(tls_key, sizeof tls_key);
    setenv("TUTTI_ENCRYPT", "1", 1);
    tt_config_reload();
    REQUIRE(wired_open(&all, 2, &config));
    sodium_memzero(&config, sizeof config);
    struct tt_link *tx = tt_wires_tx(all.wires[0], 1, 0);
    struct tt_message message;
    REQUIRE(wired_slot(&all, 0, 1, 0, 4));
    tx->ops->publish(tx, 4, 1);
    REQUIRE(wired_peek(&all, 0, 1, 0, &message));
    wired_close(&all);
    unsetenv("TUTTI_ENCRYPT");
    tt_config_reload();
    check_gone(&wanted, "the wires' key");
    check_gone(&wanted_tls, "the key of TLS");
}

/* "tcp://127.0.0.1:port" with a port that nobody else is given as long as this process lives. */
static void find_method(char method[64])
{
    struct tt_address address;
    int fd;
    const struct sockaddr_in in = {.sin_family = AF_INET};
    tt_address_set(&address, (const struct sockaddr *)&in);
    REQUIRE(tt_socket_reserve(&fd, &address) == TT_OK);
    snprintf(method, 64, "tcp://127.0.0.1:%d", tt_address_port(&address));
}

/* The key of a job that is started from the environment, and what is derived from it. */
TEST(keys, of_a_job_from_the_environment_are_wiped)
{
    if (tt_is_thread_sanitizer()) SKIP("ThreadSanitizer's tables are too large to search");
    uint8_t secret[32];
    char hex[65], method[64] = "";
    tuttiComm_t comms[2] = {NULL, NULL};
    find_method(method);
    randombytes_buf(secret, sizeof secret);
    const struct wanted wanted = want(secret);
    sodium_bin2hex(hex, sizeof hex, secret, sizeof secret);
    sodium_memzero(secret, sizeof secret);
    setenv("TUTTI_JOB_KEY", hex, 1);
    tt_config_reload();
    CHECK_EQ(tuttiCommInitEnvMulti(comms, 2, method, NULL), tuttiSuccess);
    const struct wanted key = want(comms[0] ? comms[0]->key : (const uint8_t *)hex);
    for (int rank = 0; rank < 2; rank++) CHECK_EQ(tuttiCommDestroy(comms[rank]), tuttiSuccess);
    check_gone(&wanted, "the job's key");
    check_gone(&key, "the communicator's key");
    unsetenv("TUTTI_JOB_KEY");
    tt_config_reload();
}
