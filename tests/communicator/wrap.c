/* Calls on the host while the counts of messages, meetings and calls pass 2^31 and 2^32. They have
 * 64 bits; parts of the code use the lower half. */
#include <pthread.h>
#include <stdlib.h>

#include "../integration/random_calls.h"
#include "../integration/ranks.h"
#include "base/config.h"
#include "communicator/communicator.h"
#include "shim.h"

enum { NRANKS = 3, NCALLS = SANITIZED ? 40 : 120, BEFORE = 15 };

static const uint64_t boundaries[] = {UINT64_C(1) << 31, UINT64_C(1) << 32};

/* This rank's end of a link that has carried n messages, all of them taken. */
static void count_link(struct tt_shm_link *shm, bool outgoing, uint64_t n)
{
    shm->next = n + 1;
    if (!outgoing) {
        atomic_store(&shm->area->taken, n);
        return;
    }
    shm->taken = shm->awaited = n;
    shm->in_slots = 0;
    shm->slots_used = shm->nsharing = 0;
}

static void count_links(tuttiComm_t comm, uint64_t n)
{
    struct tt_host_room *host = &comm->core.fabric->host;
    for (int peer = 0; peer < comm->core.nranks; peer++)
        for (int channel = 0; channel < comm->core.fabric->context.nchannels; channel++) {
            count_link(tt_shm_of(tt_host_tx(host, peer, channel)), true, n);
            count_link(tt_shm_of(tt_host_rx(host, peer, channel)), false, n);
        }
}

static void count_calls(tuttiComm_t comm, uint64_t n)
{
    struct tt_engine *engine = &comm->core.engine;
    engine->collectives_issued = n;
    atomic_store(&engine->collectives_done, n);
    atomic_store(&comm->core.fabric->record->done, n);
    atomic_store(&comm->core.fabric->record->entered, n);
    for (int peer = 0; peer < comm->core.nranks; peer++) {
        engine->sends_issued[peer] = engine->recvs_issued[peer] = n;
        atomic_store(&engine->sends_done[peer], n);
        atomic_store(&engine->recvs_done[peer], n);
    }
}

static void count_meetings(tuttiComm_t comm, uint64_t n)
{
    for (int channel = 0; channel < tt_fabric_nchannels(comm->core.fabric); channel++) {
        struct tt_meeting *meeting = &comm->core.engine.meetings[channel];
        meeting->number = n;
        atomic_store(&meeting->area->arrived, n * (uint64_t)meeting->nmembers);
        atomic_store(&meeting->area->published, n);
    }
}

static void pass(int rank, tuttiComm_t comm, void *all)
{
    for (int i = 0; i < 2; i++) {
        const uint64_t n = boundaries[i] - BEFORE;
        CHECK_EQ(tuttiBarrier(comm, NULL), tuttiSuccess);
        pthread_barrier_wait(all);
        count_links(comm, n);
        count_calls(comm, n);
        count_meetings(comm, n);
        pthread_barrier_wait(all);
        const int nwrong = random_calls(comm, n, NCALLS);
        CHECK_MESSAGE(nwrong == 0, "rank %d: %d calls went wrong past %#llx", rank, nwrong,
                      (unsigned long long)boundaries[i]);
        CHECK(comm->core.engine.collectives_issued > boundaries[i]);
    }
}

TEST(wrap, calls_on_the_host_are_right_while_counts_pass_2_to_31_and_2_to_32)
{
    static const char *const slots[] = {"3", "6", "7", "64"};
    pthread_barrier_t all;
    pthread_barrier_init(&all, NULL, NRANKS);
    setenv("TUTTI_SLOT_BYTES", "4K", 1);
    for (int i = 0; i < 4; i++) {
        setenv("TUTTI_SLOTS", slots[i], 1);
        tt_config_reload();
        as_threads(NRANKS, NULL, pass, &all);
    }
    unsetenv("TUTTI_SLOT_BYTES");
    unsetenv("TUTTI_SLOTS");
    tt_config_reload();
    pthread_barrier_destroy(&all);
}
