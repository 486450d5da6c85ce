#include "transport/fabric.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "transport/host/cma.h"
#include "transport/host/shm.h"

/* The windows that a peer has been sent, so that none is sent twice. Sender's side. */
struct tt_known_windows {
    uint64_t *ids;
    int n, room;
};

static tt_status find_hosts(struct tt_fabric *fabric)
{
    uint64_t *ids = malloc((size_t)fabric->nranks * sizeof *ids);
    if (!ids) return tt_fail(TT_ERR_SYSTEM, "out of memory for %d ranks", fabric->nranks);
    for (int r = 0; r < fabric->nranks; r++) ids[r] = fabric->peers[r].host_id;
    const tt_status status = tt_hosts_create(ids, fabric->nranks, &fabric->hosts);
    free(ids);
    if (status) return status;
    fabric->local = fabric->hosts->local_of[fabric->rank];
    fabric->nlocal = tt_hosts_size(fabric->hosts, fabric->hosts->host_of[fabric->rank]);
    return TT_OK;
}

/* The space that all links of a host take must stay addressable when it has very many ranks. The
 * largest host decides for all: rounds are cut by the size of a slot. */
static struct tt_segment_layout choose_layout(const struct tt_fabric *fabric,
                                              const struct tt_fabric_config *config)
{
    struct tt_segment_layout layout = {.nlocal = fabric->nlocal,
                                       .nslots = config->nslots,
                                       .slot_bytes = config->slot_bytes,
                                       .meet_bytes = config->meet_bytes};
    const size_t budget = (size_t)64 << 30, most = (size_t)fabric->hosts->most;
    const size_t nlinks = most * most * TT_NCHANNELS;
    while (nlinks * layout.nslots * layout.slot_bytes > budget && layout.slot_bytes > 1024) {
        if (layout.nslots > 2)
            layout.nslots /= 2;
        else
            layout.slot_bytes /= 2;
    }
    return layout;
}

static const struct tt_peer_info *first_of_host(const struct tt_fabric *fabric)
{
    return &fabric->peers[tt_fabric_rank_at(fabric, 0)];
}

static bool same_process(const struct tt_peer_info *a, const struct tt_peer_info *b)
{
    return a->process_id == b->process_id;
}

/* The kernel holds a bounded number of descriptors that are on their way: the receivers, who are
 * attaching too, make room. */
static tt_status pass_to(struct tt_fabric *fabric, int rank, const struct tt_fd_note *note,
                         int64_t deadline_ns)
{
    for (;;) {
        const tt_status status = tt_fdpass_send(fabric->fd_socket, &fabric->peers[rank].fd_address,
                                                note, fabric->segment->fd);
        if (status != TT_IN_PROGRESS) return status;
        if (tt_expired(deadline_ns))
            return tt_fail(TT_ERR_TIMEOUT,
                           "rank %d cannot pass the host segment to rank %d: too many descriptors "
                           "are on their way (ulimit -n)",
                           fabric->rank, rank);
        struct pollfd poll_fd = {.fd = fabric->fd_socket, .events = POLLOUT};
        poll(&poll_fd, 1, 1);
    }
}

static tt_status pass_segment(struct tt_fabric *fabric, int64_t deadline_ns)
{
    const struct tt_peer_info *mine = &fabric->peers[fabric->rank];
    const struct tt_fd_note note = {.secret = fabric->secret,
                                    .id = mine->secret,
                                    .nbytes = fabric->segment->nbytes,
                                    .kind = TT_FD_SEGMENT};
    for (int place = 1; place < fabric->nlocal; place++) {
        const int r = tt_fabric_rank_at(fabric, place);
        if (same_process(&fabric->peers[r], mine)) continue; /* mapped already */
        TT_TRY(pass_to(fabric, r, &note, deadline_ns));
    }
    return TT_OK;
}

/* Everything that is sized by the ranks. */
static tt_status allocate(struct tt_fabric *fabric, const struct tt_peer_info *infos)
{
    const size_t n = (size_t)fabric->nranks;
    fabric->peers = malloc(n * sizeof *fabric->peers);
    if (!fabric->peers) return tt_fail(TT_ERR_SYSTEM, "out of memory for %zu ranks", n);
    memcpy(fabric->peers, infos, n * sizeof *fabric->peers);
    TT_TRY(find_hosts(fabric));
    const size_t nlocal = (size_t)fabric->nlocal;
    const bool alone = fabric->hosts->nhosts == 1;
    fabric->pidfds = malloc(nlocal * sizeof *fabric->pidfds);
    fabric->watches = malloc(nlocal * sizeof *fabric->watches);
    fabric->links = calloc(2 * nlocal * TT_NCHANNELS, sizeof *fabric->links);
    if (!alone) fabric->remote = aligned_alloc(TT_LINE, n * sizeof *fabric->remote);
    if (!fabric->pidfds || !fabric->watches || !fabric->links || (!alone && !fabric->remote))
        return tt_fail(TT_ERR_SYSTEM, "out of memory for the links of %zu ranks", n);
    for (int place = 0; place < fabric->nlocal; place++) fabric->pidfds[place] = -1;
    if (fabric->remote) memset(fabric->remote, 0, n * sizeof *fabric->remote);
    return TT_OK;
}

static tt_status begin(struct tt_fabric *fabric, const struct tt_peer_info *infos,
                       const struct tt_fabric_config *config)
{
    TT_TRY(allocate(fabric, infos));
    const struct tt_hosts *hosts = fabric->hosts;
    TT_TRY(tt_peers_check_settings(infos, fabric->nranks));
    TT_TRY(tt_peers_check_hosts(infos, hosts));
    for (int h = 0; h < hosts->nhosts; h++)
        fabric->some_oversubscribed |= tt_peers_oversubscribed(infos, hosts, h);
    fabric->oversubscribed = tt_peers_oversubscribed(infos, hosts, hosts->host_of[fabric->rank]);
    if (fabric->local != 0) return TT_OK;
    const struct tt_segment_layout layout = choose_layout(fabric, config);
    return tt_segment_create(infos[fabric->rank].secret, &layout, &fabric->segment);
}

tt_status tt_fabric_begin(struct tt_fabric **out, const struct tt_peer_info *infos, int rank,
                          int nranks, int fd_socket, const struct tt_fabric_config *config)
{
    struct tt_fabric *fabric = calloc(1, sizeof *fabric);
    if (!fabric) {
        close(fd_socket);
        return tt_fail(TT_ERR_SYSTEM, "out of memory for a communicator");
    }
    *fabric = (struct tt_fabric){.rank = rank,
                                 .nranks = nranks,
                                 .secret = infos[0].secret,
                                 .fd_socket = fd_socket,
                                 .allow_window = config->allow_window,
                                 .allow_cma = config->allow_cma,
                                 .force_cma = config->force_cma};
    const tt_status status = begin(fabric, infos, config);
    if (status) {
        tt_fabric_destroy(fabric);
        return status;
    }
    *out = fabric;
    return TT_OK;
}

/* Ranks in the first rank's process find its mapping; the others wait for the descriptor. */
static tt_status receive_segment(struct tt_fabric *fabric, int64_t deadline_ns)
{
    const struct tt_peer_info *first = first_of_host(fabric);
    const int maker = tt_fabric_rank_at(fabric, 0);
    if (same_process(&fabric->peers[fabric->rank], first)) {
        fabric->segment = tt_segment_find(first->secret);
        return fabric->segment
                   ? TT_OK
                   : tt_fail(TT_ERR_INTERNAL, "rank %d of this process made no segment", maker);
    }
    for (;;) {
        struct tt_fd_note note;
        int fd;
        tt_status status = tt_fdpass_receive(fabric->fd_socket, fabric->secret, &note, &fd);
        if (status == TT_OK) {
            status = note.kind == TT_FD_SEGMENT
                         ? tt_segment_attach(note.id, fd, &fabric->segment)
                         : tt_fail(TT_ERR_INTERNAL, "expected the segment, got descriptor kind %d",
                                   (int)note.kind);
            close(fd);
            return status;
        }
        if (status != TT_IN_PROGRESS) return status;
        if (tt_expired(deadline_ns))
            return tt_fail(TT_ERR_TIMEOUT,
                           "rank %d did not pass the host segment to rank %d in time", maker,
                           fabric->rank);
        struct pollfd poll_fd = {.fd = fabric->fd_socket, .events = POLLIN};
        poll(&poll_fd, 1, 1);
    }
}

tt_status tt_fabric_attach(struct tt_fabric *fabric, int64_t deadline_ns)
{
    TT_TRY(fabric->segment ? pass_segment(fabric, deadline_ns)
                           : receive_segment(fabric, deadline_ns));
    if (fabric->segment->header->nlocal != fabric->nlocal)
        return tt_fail(TT_ERR_INTERNAL, "the segment is for %d ranks, expected %d",
                       fabric->segment->header->nlocal, fabric->nlocal);
    struct tt_rank_record *record = &fabric->segment->header->records[fabric->local];
    record->pid = getpid();
    record->probe = (uint64_t)(uintptr_t)&fabric->peers[fabric->rank].secret;
    fabric->record = record;
    tt_fabric_watch(fabric);
    atomic_store_explicit(&record->state, TT_RANK_HERE, memory_order_release);
    return TT_OK;
}

void tt_fabric_finish(struct tt_fabric *fabric)
{
    if (fabric->local == 0) tt_segment_seal(fabric->segment);
    if (!fabric->allow_cma) return;
    const struct tt_peer_info *mine = &fabric->peers[fabric->rank];
    for (int place = 0; place < fabric->nlocal; place++) {
        const struct tt_peer_info *peer = &fabric->peers[tt_fabric_rank_at(fabric, place)];
        if (same_process(peer, mine)) continue;
        const int refused =
            tt_cma_probe(peer->pid, fabric->segment->header->records[place].probe, peer->secret);
        if (refused) {
            errno = refused;
            TT_INFO_ONCE(
                "cross-memory attach is not permitted here (process_vm_readv: %m); using slots");
            continue;
        }
        atomic_store_explicit(tt_segment_may_read(fabric->segment, fabric->local, place), 1,
                              memory_order_relaxed);
    }
}

void tt_fabric_destroy(struct tt_fabric *fabric)
{
    if (!fabric) return;
    if (fabric->record) {
        const uint32_t state = atomic_load(&fabric->aborted) ? TT_RANK_ABORTED : TT_RANK_LEFT;
        tt_fabric_pass_on(fabric);
        atomic_store_explicit(&fabric->record->state, state, memory_order_release);
    }
    tt_wires_destroy(fabric->wires);
    if (fabric->pidfds)
        for (int place = 0; place < fabric->nlocal; place++)
            if (fabric->pidfds[place] >= 0) close(fabric->pidfds[place]);
    for (int place = 0; fabric->known && place < fabric->nlocal; place++)
        free(fabric->known[place].ids);
    free(fabric->known);
    tt_window_map_fini(&fabric->windows);
    tt_segment_put(fabric->segment);
    close(fabric->fd_socket);
    free(fabric->remote);
    free(fabric->links);
    free(fabric->pidfds);
    free(fabric->watches);
    free(fabric->peers);
    tt_hosts_destroy(fabric->hosts);
    free(fabric);
}

/* Takes what is freed out of the list; some of it goes into the note, so that the peer unmaps it.
 */
static void forget_freed(struct tt_known_windows *known, struct tt_fd_note *note)
{
    int kept = 0, gone = 0;
    for (int i = 0; i < known->n; i++) {
        if (gone == TT_FD_GONE_MAX || tt_window_exists(known->ids[i]))
            known->ids[kept++] = known->ids[i];
        else
            note->gone[gone++] = known->ids[i];
    }
    known->n = kept;
}

bool tt_fabric_introduce(struct tt_fabric *fabric, int peer, const struct tt_window *window)
{
    if (!fabric->known) fabric->known = calloc((size_t)fabric->nlocal, sizeof *fabric->known);
    if (!fabric->known) return false;
    struct tt_known_windows *known = &fabric->known[fabric->hosts->local_of[peer]];
    for (int i = 0; i < known->n; i++)
        if (known->ids[i] == window->id) return true;
    if (known->n == known->room) {
        const int room = known->room ? 2 * known->room : 8;
        uint64_t *more = realloc(known->ids, (size_t)room * sizeof *more);
        if (!more) return false;
        known->ids = more;
        known->room = room;
    }
    struct tt_fd_note note = {
        .secret = fabric->secret, .id = window->id, .nbytes = window->nbytes, .kind = TT_FD_WINDOW};
    forget_freed(known, &note);
    if (tt_fdpass_send(fabric->fd_socket, &fabric->peers[peer].fd_address, &note, window->fd))
        return false;
    known->ids[known->n++] = window->id;
    return true;
}

static struct tt_link *local_end(struct tt_fabric *fabric, bool outgoing, int peer, int channel)
{
    const int place = fabric->hosts->local_of[peer];
    const int index = ((outgoing ? 0 : fabric->nlocal) + place) * TT_NCHANNELS + channel;
    struct tt_shm_link *shm = &fabric->links[index];
    if (!shm->area) tt_shm_open(shm, fabric, peer, channel, outgoing);
    return &shm->link;
}

struct tt_rank_record *tt_fabric_record(const struct tt_fabric *fabric, int rank)
{
    return tt_fabric_is_local(fabric, rank)
               ? &fabric->segment->header->records[fabric->hosts->local_of[rank]]
               : &fabric->remote[rank];
}

struct tt_link *tt_fabric_tx(struct tt_fabric *fabric, int peer, int channel)
{
    return tt_fabric_is_local(fabric, peer) ? local_end(fabric, true, peer, channel)
                                            : tt_wires_tx(fabric->wires, peer, channel);
}

struct tt_link *tt_fabric_rx(struct tt_fabric *fabric, int peer, int channel)
{
    return tt_fabric_is_local(fabric, peer) ? local_end(fabric, false, peer, channel)
                                            : tt_wires_rx(fabric->wires, peer, channel);
}

void tt_fabric_name_rank(const struct tt_fabric *fabric, int rank, char *text, size_t size)
{
    snprintf(text, size, "rank %d (host %s, pid %d)", rank, fabric->peers[rank].host,
             fabric->peers[rank].pid);
}

/* Of a rank of this host. */
static const char *local_way(const struct tt_fabric *fabric, int peer)
{
    if (peer == fabric->rank) return "self";
    if (same_process(&fabric->peers[peer], &fabric->peers[fabric->rank]))
        return "thread (in place) + shm";
    const bool cma =
        fabric->allow_cma &&
        atomic_load_explicit(
            tt_segment_may_read(fabric->segment, fabric->hosts->local_of[peer], fabric->local),
            memory_order_relaxed);
    if (fabric->allow_window) return cma ? "shm + window + cma" : "shm + window";
    return cma ? "shm + cma" : "shm";
}

void tt_fabric_way(const struct tt_fabric *fabric, int peer, char *text, size_t size)
{
    if (tt_fabric_is_local(fabric, peer))
        snprintf(text, size, "%s", local_way(fabric, peer));
    else
        tt_wires_describe(fabric->wires, peer, text, size);
}
