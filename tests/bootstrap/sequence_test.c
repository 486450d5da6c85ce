/* Tests of the sequence that rank 0 draws for each communicator of an address: who takes it, who is
 * sent to the next root, and what a stranger gains from it. */
#include <errno.h>
#include <pthread.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/config.h"
#include "bootstrap/root.h"
#include "net/handshake.h"
#include "net/socket.h"
#include "ranks.h"
#include "shim.h"

enum { PATIENCE_MS = 20000 };

/* With a port that no connection is given as long as this process lives. */
static void choose_method(char method[64])
{
    const struct sockaddr_in loopback = {.sin_family = AF_INET};
    struct tt_address address;
    int fd;
    tt_address_set(&address, (const struct sockaddr *)&loopback);
    CHECK(tt_socket_reserve(&fd, &address) == TT_OK);
    snprintf(method, 64, "tcp://127.0.0.1:%d", tt_address_port(&address));
}

static tt_status find_id(struct tt_unique_id *id, const char *method, int rank, int nranks)
{
    const struct tt_launcher launcher = {.rank = rank, .nranks = nranks, .local_nranks = nranks};
    return tt_unique_id_from_method(id, method, &launcher, tt_deadline_ns(PATIENCE_MS));
}

/* ---- One communicator after the other ------------------------------------------------------- */

/* A rank that makes many, each as soon as it has the last one, and the keys of all. */
struct maker {
    const char *method;
    int rank, nranks;
    uint8_t keys[200][32];
    int nmade;
};

enum { MANY = sizeof((struct maker *)NULL)->keys / sizeof *((struct maker *)NULL)->keys };

static void *make_many(void *argument)
{
    struct maker *maker = argument;
    for (; maker->nmade < MANY; maker->nmade++) {
        struct tt_bootstrap *bootstrap;
        struct tt_unique_id id;
        if (find_id(&id, maker->method, maker->rank, maker->nranks) != TT_OK ||
            tt_bootstrap_create(&bootstrap, &id, maker->rank, maker->nranks,
                                tt_deadline_ns(PATIENCE_MS)) != TT_OK)
            break;
        memcpy(maker->keys[maker->nmade], tt_bootstrap_key(bootstrap), 32);
        tt_bootstrap_destroy(bootstrap);
    }
    return NULL;
}

TEST(sequence, ranks_that_begin_the_next_one_at_once_do_not_meet_the_last_root)
{
    static struct maker makers[3];
    pthread_t threads[3];
    char method[64];
    choose_method(method);
    for (int rank = 0; rank < 3; rank++) {
        makers[rank] = (struct maker){.method = method, .rank = rank, .nranks = 3};
        pthread_create(&threads[rank], NULL, make_many, &makers[rank]);
    }
    for (int rank = 0; rank < 3; rank++) {
        pthread_join(threads[rank], NULL);
        CHECK_EQ(makers[rank].nmade, MANY);
        CHECK(memcmp(makers[rank].keys, makers[0].keys, sizeof makers[0].keys) == 0);
    }
    for (int i = 1; i < MANY; i++) CHECK(memcmp(makers[0].keys[i], makers[0].keys[i - 1], 32) != 0);
}

/* ---- Ranks that await the next root --------------------------------------------------------- */

static enum tt_attempt say_join(int fd, const struct tt_greeting *greeting,
                                const struct tt_unique_id *id, struct tt_hello *hello,
                                struct tt_answer *answer)
{
    char why[TT_WIRE_TEXT];
    return tt_handshake_finish(fd, greeting, hello, answer, id->key, tt_deadline_ns(PATIENCE_MS),
                               why);
}

static void *run_in_thread(void *run)
{
    run_rank(run);
    return NULL;
}

/* Three connections are open before the two ranks come. On one rank 1 joins. While it has yet to
 * find its place, those of the next communicator say who they are. */
TEST(sequence, a_rank_that_comes_when_all_have_come_is_sent_to_the_next_root)
{
    static const struct {
        int rank, nranks;
    } later[] = {{1, 2}, {0, 2}, {2, 3}};
    enum { LATER = sizeof later / sizeof *later };
    struct tt_unique_id id;
    struct tt_greeting greetings[1 + LATER];
    struct tt_hello hello;
    struct tt_answer answer;
    int fds[1 + LATER];
    char method[64];
    pthread_t thread;
    choose_method(method);
    struct rank_run run = rank_run_by(method, 0, 2);
    REQUIRE(find_id(&run.id, method, 0, 2) == TT_OK);
    run.method = NULL;
    REQUIRE(find_id(&id, method, 1, 2) == TT_OK);
    for (int i = 0; i < 1 + LATER; i++) REQUIRE(open_greeted(&id, &fds[i], &greetings[i]));
    REQUIRE(pthread_create(&thread, NULL, run_in_thread, &run) == 0);
    tt_hello_fill(&hello, TT_HELLO_JOIN, 1, 2);
    hello.self = 1;
    REQUIRE(say_join(fds[0], &greetings[0], &id, &hello, &answer) == TT_ATTEMPT_OK);
    CHECK_EQ(answer.status, TT_OK);
    for (int i = 0; i < LATER; i++) {
        tt_hello_fill(&hello, TT_HELLO_JOIN, later[i].rank, later[i].nranks);
        hello.self = 2;
        CHECK(say_join(fds[1 + i], &greetings[1 + i], &id, &hello, &answer) == TT_ATTEMPT_OK);
        CHECK_EQ(answer.status, TT_IN_PROGRESS);
        CHECK(answer.failed);
        close(fds[1 + i]);
    }
    close(fds[0]);
    pthread_join(thread, NULL);
    expect_ranks(&run, 1, TT_ERR_REMOTE, "left before it had its place among the others");
}

/* A connection is open before the two ranks of a communicator come; on it a rank says who it is
 * when they have gone. Whether the root answers, as it does unless this thread was away for a
 * second. */
static bool is_answered_afterwards(void)
{
    struct tt_unique_id id;
    struct tt_greeting greeting;
    struct tt_hello hello;
    struct tt_answer answer = {0};
    struct rank_run runs[2];
    char method[64];
    int fd;
    choose_method(method);
    for (int rank = 0; rank < 2; rank++) {
        runs[rank] = rank_run_by(method, rank, 2);
        CHECK(find_id(&runs[rank].id, method, rank, 2) == TT_OK);
        runs[rank].method = NULL;
    }
    id = runs[1].id;
    if (!open_greeted(&id, &fd, &greeting)) return false;
    run_ranks(runs, 2);
    expect_ranks(runs, 2, TT_OK, NULL);
    tt_hello_fill(&hello, TT_HELLO_JOIN, 1, 2);
    if (say_join(fd, &greeting, &id, &hello, &answer) != TT_ATTEMPT_OK) return false;
    close(fd);
    return answer.status == TT_IN_PROGRESS && answer.failed;
}

TEST(sequence, a_root_that_ends_answers_those_who_have_connected)
{
    bool is_answered = false;
    for (int i = 0; i < 10 && !is_answered; i++) is_answered = is_answered_afterwards();
    CHECK(is_answered);
}

/* While the failed root still answers why, rank 1 comes anew. */
TEST(sequence, a_rank_that_left_and_comes_anew_joins_the_next_root)
{
    struct tt_unique_id id;
    struct tt_greeting greeting;
    struct tt_hello hello;
    struct rank_run runs[2];
    char method[64], why[TT_WIRE_TEXT];
    int fd;
    choose_method(method);
    struct rank_run first = rank_run_by(method, 0, 3);
    for (int rank = 0; rank < 2; rank++) runs[rank] = rank_run_by(method, rank, 2);
    REQUIRE(find_id(&first.id, method, 0, 3) == TT_OK);
    first.method = NULL;
    REQUIRE(find_id(&id, method, 1, 3) == TT_OK);
    REQUIRE(open_greeted(&id, &fd, &greeting));
    tt_hello_fill(&hello, TT_HELLO_JOIN, 1, 3);
    CHECK(tt_handshake_say(fd, &greeting, &hello, id.key, tt_deadline_ns(PATIENCE_MS), why) ==
          TT_ATTEMPT_OK);
    close(fd);
    run_rank(&first);
    expect_ranks(&first, 1, TT_ERR_REMOTE, "rank 1 (pid ");
    expect_ranks(&first, 1, TT_ERR_REMOTE, "left before all ranks had come");
    run_ranks(runs, 2);
    expect_ranks(runs, 2, TT_OK, NULL);
}

/* What a connection reads behind the answer: 0: its end; else an errno. */
static int read_end(int fd)
{
    char byte;
    ssize_t n;
    while ((n = recv(fd, &byte, 1, 0)) < 0 && errno == EAGAIN) tt_test_pause();
    return n < 0 ? errno : (int)n;
}

/* A root that has failed, since rank 1 of 3 left, answers rank 2, which says at once that it cannot
 * join and why. Whether it does, as it does unless this thread was away for two seconds. */
static bool is_unable_rank_answered(void)
{
    const struct tt_report report = {TT_ERR_SYSTEM, 2, 3, "no listener"};
    char said[sizeof(struct tt_hello) + sizeof report]; /* in one piece */
    struct tt_unique_id id;
    struct tt_greeting greetings[2];
    struct tt_hello hello;
    struct tt_answer answer;
    char method[64], why[TT_WIRE_TEXT];
    int fds[2];
    choose_method(method);
    struct rank_run first = rank_run_by(method, 0, 3);
    CHECK(find_id(&first.id, method, 0, 3) == TT_OK && find_id(&id, method, 1, 3) == TT_OK);
    first.method = NULL;
    for (int i = 0; i < 2; i++) CHECK(open_greeted(&id, &fds[i], &greetings[i]));
    tt_hello_fill(&hello, TT_HELLO_JOIN, 1, 3);
    CHECK(tt_handshake_say(fds[0], &greetings[0], &hello, id.key, tt_deadline_ns(PATIENCE_MS),
                           why) == TT_ATTEMPT_OK);
    close(fds[0]);
    run_rank(&first);
    expect_ranks(&first, 1, TT_ERR_REMOTE, "left before all ranks had come");
    tt_hello_fill(&hello, TT_HELLO_JOIN, 2, 3);
    hello.unable = true;
    tt_hello_sign(&hello, &greetings[1], id.key);
    memcpy(said, &hello, sizeof hello);
    memcpy(said + sizeof hello, &report, sizeof report);
    const bool is_answered =
        tt_socket_send_now(fds[1], said, sizeof said) == 0 &&
        tt_socket_receive(fds[1], &answer, sizeof answer, tt_deadline_ns(PATIENCE_MS)) == 0;
    if (is_answered) CHECK_EQ(answer.status, TT_ERR_REMOTE);
    if (is_answered)
        CHECK_EQ(read_end(fds[1]), 0); /* no reset, which may take the answer with it */
    close(fds[1]);
    return is_answered;
}

TEST(sequence, a_failed_root_hears_a_rank_that_cannot_join_before_it_answers)
{
    bool is_answered = false;
    for (int i = 0; i < 10 && !is_answered; i++) is_answered = is_unable_rank_answered();
    CHECK(is_answered);
}

/* It knows no sequence, and tells the root that is at its address. */
TEST(sequence, a_rank_that_fails_before_it_has_met_the_root_of_its_process_tells_it)
{
    struct tt_unique_id id;
    char method[64];
    choose_method(method);
    struct rank_run run = rank_run_by(method, 0, 2);
    REQUIRE(find_id(&run.id, method, 0, 2) == TT_OK);
    run.method = NULL;
    REQUIRE(find_id(&id, method, 1, 2) == TT_OK);
    tt_unique_id_fail(&id, 1, 2, tt_fail(TT_ERR_SYSTEM, "it has no descriptors"));
    run_rank(&run);
    expect_ranks(&run, 1, TT_ERR_SYSTEM, "cannot join: it has no descriptors");
}

/* Answers one rank as the root of another communicator does; then rank 0's root begins. */
struct successor {
    const char *method;
    int listener;
    struct tt_unique_id old, id;
};

static void *make_way(void *argument)
{
    struct successor *successor = argument;
    const int64_t until_ns = tt_deadline_ns(PATIENCE_MS);
    struct tt_greeting greeting;
    struct tt_hello hello;
    struct tt_report report;
    struct tt_answer answer = {.status = TT_IN_PROGRESS, .again_ms = 1, .failed = true};
    struct tt_address peer;
    int fd = -1;
    while (fd < 0 && (fd = tt_socket_accept(successor->listener, &peer)) < 0) tt_test_pause();
    tt_id_set_sequence(&successor->old, 5);
    tt_greeting_fill(&greeting, successor->old.sequence);
    CHECK(tt_socket_send_now(fd, &greeting, sizeof greeting) == 0);
    CHECK(tt_socket_receive(fd, &hello, sizeof hello, until_ns) == 0);
    CHECK(tt_socket_receive(fd, &report, sizeof report, until_ns) == 0);
    CHECK(tt_hello_verify(&hello, &greeting, successor->old.key));
    tt_answer_sign(&answer, &hello, &greeting, successor->old.key);
    close(successor->listener);
    CHECK(find_id(&successor->id, successor->method, 0, 2) == TT_OK);
    CHECK(tt_socket_send_now(fd, &answer, sizeof answer) == 0);
    close(fd);
    return NULL;
}

TEST(sequence, a_rank_that_cannot_join_tells_the_next_root_too)
{
    struct successor successor;
    struct tt_address address;
    char method[64];
    pthread_t thread;
    choose_method(method);
    successor.method = method;
    struct rank_run run = rank_run_by(method, 1, 2);
    REQUIRE(find_id(&successor.old, method, 1, 2) == TT_OK);
    REQUIRE(tt_id_address(&address, &successor.old) == TT_OK);
    REQUIRE(tt_socket_listen(&successor.listener, &address, false) == TT_OK);
    REQUIRE(pthread_create(&thread, NULL, make_way, &successor) == 0);
    setenv("TUTTI_SOCKET_INTERFACE", "nosuch7", 1);
    tt_config_reload();
    run_rank(&run);
    unsetenv("TUTTI_SOCKET_INTERFACE");
    tt_config_reload();
    pthread_join(thread, NULL);
    CHECK_MESSAGE(run.status < 0 && strstr(run.text, "is called 'nosuch7'"), "%s", run.text);
    CHECK_EQ(tt_root_probe(&successor.id, tt_deadline_ns(PATIENCE_MS)), TT_ROOT_FAILED);
}

/* ---- Strangers ------------------------------------------------------------------------------ */

/* The sequence stands in the greeting, which has no MAC of its own. */
TEST(sequence, a_sequence_that_was_changed_on_the_way_convinces_neither_end)
{
    struct tt_unique_id id, other;
    struct tt_greeting greeting;
    struct tt_hello hello;
    struct tt_answer answer;
    struct rank_run runs[2];
    char method[64];
    int fd;
    choose_method(method);
    for (int rank = 0; rank < 2; rank++) runs[rank] = rank_run_by(method, rank, 2);
    REQUIRE(find_id(&runs[0].id, method, 0, 2) == TT_OK);
    runs[0].method = NULL;
    REQUIRE(find_id(&id, method, 1, 2) == TT_OK);
    REQUIRE(open_greeted(&id, &fd, &greeting));
    other = id;
    tt_id_set_sequence(&other, greeting.sequence ^ 1);
    CHECK(sodium_memcmp(other.key, id.key, sizeof id.key) != 0);
    tt_hello_fill(&hello, TT_HELLO_JOIN, 1, 2);
    CHECK(say_join(fd, &greeting, &other, &hello, &answer) == TT_ATTEMPT_BAD);
    tt_answer_sign(&answer, &hello, &greeting, id.key);
    CHECK(!tt_answer_verify(&answer, &hello, &greeting, other.key));
    run_ranks(runs, 2);
    expect_ranks(runs, 2, TT_OK, NULL);
}

/* A stranger who says again what a root has said. */
struct recording {
    int listener;
    struct tt_greeting greeting;
    struct tt_answer answer;
};

static void *repeat(void *argument)
{
    const struct recording *recording = argument;
    struct tt_hello heard;
    struct tt_address peer;
    int fd = -1;
    while (fd < 0 && (fd = tt_socket_accept(recording->listener, &peer)) < 0) tt_test_pause();
    CHECK(tt_socket_send_now(fd, &recording->greeting, sizeof recording->greeting) == 0);
    CHECK(tt_socket_receive(fd, &heard, sizeof heard, tt_deadline_ns(PATIENCE_MS)) == 0);
    CHECK(tt_socket_send_now(fd, &recording->answer, sizeof recording->answer) == 0);
    close(fd);
    return NULL;
}

TEST(sequence, what_an_earlier_root_has_said_convinces_nobody)
{
    struct tt_unique_id id;
    struct tt_address address;
    struct recording recording;
    struct tt_hello hello;
    struct rank_run runs[2];
    char method[64];
    pthread_t thread;
    int fd;
    choose_method(method);
    for (int rank = 0; rank < 2; rank++) runs[rank] = rank_run_by(method, rank, 2);
    REQUIRE(find_id(&runs[0].id, method, 0, 2) == TT_OK);
    REQUIRE(find_id(&id, method, 1, 2) == TT_OK);
    REQUIRE(open_greeted(&id, &fd, &recording.greeting));
    tt_hello_fill(&hello, TT_HELLO_PROBE, -1, -1);
    REQUIRE(say_join(fd, &recording.greeting, &id, &hello, &recording.answer) == TT_ATTEMPT_OK);
    close(fd);
    const struct rank_run second = runs[1];
    runs[0].method = NULL;
    run_ranks(runs, 2);
    expect_ranks(runs, 2, TT_OK, NULL);

    REQUIRE(tt_id_address(&address, &id) == TT_OK);
    REQUIRE(tt_socket_listen(&recording.listener, &address, false) == TT_OK);
    REQUIRE(pthread_create(&thread, NULL, repeat, &recording) == 0);
    runs[1] = second;
    run_rank(&runs[1]);
    expect_ranks(&runs[1], 1, TT_ERR_REMOTE, "its answer does not prove the job's key");
    pthread_join(thread, NULL);
    close(recording.listener);
}
