/* Posts: a receiver says where its sender may write a message. */
#include <string.h>

#include "shim.h"
#include "transport/together.h"
#include "transport/window.h"

enum { NBYTES = 4000 };

/* Two ranks, in processes of their own as far as they know, and the ends of a link of theirs. */
struct pair {
    struct together all;
    struct tt_link *tx, *rx;
    void *window; /* of NBYTES, of the receiver */
    struct tt_memory memory;
};

static bool pair_open(struct pair *pair, bool apart)
{
    const struct tt_fabric_config config = together_config();
    struct tt_peer_info infos[2];
    int sockets[2];
    pair->all.nranks = 2;
    for (int r = 0; r < 2; r++) {
        if (tt_peer_info_init(&infos[r], &config, &sockets[r])) return false;
        infos[r].process_id += (uint64_t)(apart ? r : 0);
    }
    for (int r = 0; r < 2; r++)
        if (tt_fabric_begin(&pair->all.fabrics[r], infos, r, 2, sockets[r], &config)) return false;
    for (int r = 0; r < 2; r++)
        if (tt_fabric_attach(pair->all.fabrics[r], INT64_MAX)) return false;
    pair->tx = tt_fabric_tx(pair->all.fabrics[0], 1, 0);
    pair->rx = tt_fabric_rx(pair->all.fabrics[1], 0, 0);
    if (tt_window_create(&pair->window, NBYTES)) return false;
    tt_fabric_find_memory(pair->all.fabrics[1], pair->window, NBYTES, &pair->memory);
    tt_fabric_introduce(pair->all.fabrics[1], 0, &pair->memory);
    return true;
}

static void pair_close(struct pair *pair)
{
    CHECK_EQ(tt_window_free(pair->window), TT_OK);
    together_close(&pair->all);
}

static void send_by_slot(struct pair *pair, size_t nbytes, uint64_t signature)
{
    void *slot = pair->tx->ops->slot(pair->tx, nbytes);
    REQUIRE(slot != NULL);
    memset(slot, 7, nbytes);
    pair->tx->ops->publish(pair->tx, nbytes, signature);
}

static const void *receive(struct pair *pair, uint64_t signature)
{
    struct tt_message message = {.data = NULL};
    CHECK_EQ(pair->rx->ops->peek(pair->rx, &message), TT_OK);
    CHECK_EQ(message.signature, signature);
    pair->rx->ops->release(pair->rx);
    return message.data;
}

static void post(struct pair *pair, uint64_t ahead, void *to, uint64_t signature)
{
    const struct tt_posted posted = {
        .to = to, .nbytes = NBYTES, .signature = signature, .nontemporal = signature % 2};
    pair->rx->ops->posts->post(pair->rx, ahead, &pair->memory, &posted);
}

static void *claim(struct pair *pair, size_t nbytes, uint64_t signature)
{
    struct tt_posted posted = {.nbytes = nbytes, .signature = signature};
    if (!pair->tx->ops->slot(pair->tx, nbytes)) return NULL;
    if (!pair->tx->ops->posts->claim(pair->tx, &posted)) return NULL;
    CHECK_EQ(posted.nontemporal, signature % 2 == 1); /* as the receiver wants */
    return posted.to;
}

static void check_filled(bool apart)
{
    struct pair pair;
    REQUIRE(pair_open(&pair, apart));
    struct tt_link *tx = pair.tx;
    for (uint64_t turn = 0; turn < 100; turn++) {
        post(&pair, turn % 3, pair.window, turn);
        for (uint64_t i = 0; i < turn % 3; i++) {
            CHECK(claim(&pair, NBYTES, turn) == NULL); /* it is of a later message */
            send_by_slot(&pair, NBYTES, turn);
        }
        char *to = claim(&pair, NBYTES, turn);
        REQUIRE(to != NULL);
        CHECK((to != pair.window) == apart);
        memset(to, (int)turn, NBYTES);
        tx->ops->publish(tx, NBYTES, turn);
        CHECK_EQ(tx->ops->drained(tx), turn % 3 == 0); /* a message in a slot is awaited */
        for (uint64_t i = 0; i < turn % 3; i++) CHECK(receive(&pair, turn) != pair.window);
        const char *data = receive(&pair, turn);
        CHECK(data == pair.window && data[0] == (char)turn && data[NBYTES - 1] == (char)turn);
        CHECK(claim(&pair, NBYTES, turn) == NULL); /* it was for one message */
        CHECK(tx->ops->drained(tx));
    }
    pair_close(&pair);
}

TEST(posts, are_filled_in_place_between_ranks_of_one_process)
{
    check_filled(false);
}

TEST(posts, are_filled_in_a_window_of_another_process)
{
    check_filled(true);
}

TEST(posts, of_memory_that_the_sender_cannot_write_are_not_made)
{
    struct pair pair;
    char private[NBYTES];
    REQUIRE(pair_open(&pair, true));
    post(&pair, 0, private, 1);
    CHECK(claim(&pair, NBYTES, 1) == NULL);
    CHECK_EQ(pair.rx->ops->posts->withdraw(pair.rx), TT_OK);
    pair_close(&pair);
}

TEST(posts, serve_only_a_message_of_their_length_and_signature)
{
    struct pair pair;
    REQUIRE(pair_open(&pair, true));
    post(&pair, 0, pair.window, 5);
    CHECK(claim(&pair, NBYTES - 4, 5) == NULL);
    CHECK(claim(&pair, NBYTES, 6) == NULL);
    send_by_slot(&pair, NBYTES, 6);
    CHECK(receive(&pair, 6) != pair.window);
    CHECK(claim(&pair, NBYTES, 5) == NULL); /* its message has come otherwise */
    post(&pair, 0, pair.window, 5);
    CHECK(claim(&pair, NBYTES, 5) != NULL);
    pair.tx->ops->publish(pair.tx, NBYTES, 5);
    CHECK(receive(&pair, 5) == pair.window);
    pair_close(&pair);
}

TEST(posts, can_be_withdrawn_but_not_from_a_sender_that_writes)
{
    struct pair pair;
    REQUIRE(pair_open(&pair, true));
    struct tt_link *tx = pair.tx, *rx = pair.rx;
    CHECK_EQ(rx->ops->posts->withdraw(rx), TT_OK); /* there is none */
    post(&pair, 0, pair.window, 1);
    CHECK_EQ(rx->ops->posts->withdraw(rx), TT_OK);
    CHECK(claim(&pair, NBYTES, 1) == NULL);

    post(&pair, 0, pair.window, 1);
    REQUIRE(claim(&pair, NBYTES, 1) != NULL);
    CHECK_EQ(rx->ops->posts->withdraw(rx), TT_IN_PROGRESS);
    CHECK_EQ(rx->ops->posts->withdraw(rx), TT_IN_PROGRESS);
    tx->ops->publish(tx, NBYTES, 1);
    CHECK_EQ(rx->ops->posts->withdraw(rx), TT_OK);
    CHECK(receive(&pair, 1) == pair.window);

    post(&pair, 0, pair.window, 2);
    REQUIRE(claim(&pair, NBYTES, 2) != NULL);
    CHECK_EQ(rx->ops->posts->withdraw(rx), TT_IN_PROGRESS);
    CHECK_EQ(tx->ops->posts->withdraw(tx), TT_OK); /* the sender gives up */
    CHECK_EQ(rx->ops->posts->withdraw(rx), TT_OK);
    send_by_slot(&pair, NBYTES, 2);
    CHECK(receive(&pair, 2) != pair.window);
    pair_close(&pair);
}
