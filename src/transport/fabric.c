#include "transport/fabric.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sched.h>
#include <sys/random.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "topology/topology.h"
#include "transport/cma.h"
#include "transport/shm.h"

/* The windows that a peer has been sent, so that none is sent twice. Sender's side. */
struct tt_known_windows {
    uint64_t *ids;
    int n, room;
};

static uint64_t process_id;
static pthread_once_t process_once = PTHREAD_ONCE_INIT;

static void draw_process_id(void)
{
    if (getrandom(&process_id, sizeof process_id, 0) != sizeof process_id)
        process_id = (uint64_t)tt_now_ns() << 20 ^ (uint64_t)getpid();
}

tt_status tt_peer_info_init(struct tt_peer_info *info, int *fd_socket)
{
    pthread_once(&process_once, draw_process_id);
    struct tt_peer_info mine = {
        .host_id = tt_host_id(), .process_id = process_id ^ (uint64_t)getpid(), .pid = getpid()};
    if (getrandom(&mine.secret, sizeof mine.secret, 0) != sizeof mine.secret)
        return tt_fail_errno(errno, "getrandom failed");
    if (gethostname(mine.host, sizeof mine.host - 1)) snprintf(mine.host, sizeof mine.host, "?");
    cpu_set_t set;
    CPU_ZERO(&set);
    if (sched_getaffinity(0, sizeof set, &set) == 0)
        for (size_t cpu = 0; cpu < 1024; cpu++)
            if (CPU_ISSET(cpu, &set)) mine.cpus[cpu / 64] |= 1ull << (cpu % 64);
    TT_TRY(tt_fdpass_open(fd_socket, &mine.fd_address));
    *info = mine;
    return TT_OK;
}

/* More ranks than CPUs that they may run on. */
static bool is_oversubscribed(const struct tt_peer_info *infos, int nranks)
{
    int ncpus = 0;
    for (int word = 0; word < 16; word++) {
        uint64_t together = 0;
        for (int r = 0; r < nranks; r++) together |= infos[r].cpus[word];
        ncpus += __builtin_popcountll(together);
    }
    return ncpus > 0 && nranks > ncpus;
}

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

static tt_status check_hosts(const struct tt_peer_info *infos, int nranks)
{
    for (int r = 1; r < nranks; r++)
        if (infos[r].host_id != infos[0].host_id)
            return tt_fail(TT_ERR_USAGE,
                           "rank 0 is on host %s, rank %d on host %s: this version links the ranks "
                           "of one host only "
                           "(same machine, same network namespace, same TUTTI_HOST_ID)",
                           infos[0].host, r, infos[r].host);
    return TT_OK;
}

/* The space that all links take must stay addressable when there are very many ranks. */
static struct tt_segment_layout choose_layout(int nranks, const struct tt_fabric_config *config,
                                              bool oversubscribed)
{
    struct tt_segment_layout layout = {.nlocal = nranks,
                                       .nslots = config->nslots,
                                       .slot_bytes = config->slot_bytes,
                                       .meet_bytes = config->meet_bytes,
                                       .oversubscribed = oversubscribed};
    const size_t budget = (size_t)64 << 30;
    const size_t nlinks = (size_t)nranks * (size_t)nranks * TT_NCHANNELS;
    while (nlinks * layout.nslots * layout.slot_bytes > budget && layout.slot_bytes > 1024) {
        if (layout.nslots > 2)
            layout.nslots /= 2;
        else
            layout.slot_bytes /= 2;
    }
    return layout;
}

static tt_status pass_segment(struct tt_fabric *fabric)
{
    const struct tt_fd_note note = {.secret = fabric->secret,
                                    .id = fabric->secret,
                                    .nbytes = fabric->segment->nbytes,
                                    .kind = TT_FD_SEGMENT};
    for (int r = 1; r < fabric->nranks; r++) {
        if (fabric->peers[r].process_id == fabric->peers[0].process_id)
            continue; /* mapped already */
        const tt_status status = tt_fdpass_send(fabric->fd_socket, &fabric->peers[r].fd_address,
                                                &note, fabric->segment->fd);
        if (status == TT_IN_PROGRESS)
            return tt_fail(TT_ERR_SYSTEM, "the descriptor queue of rank %d is full", r);
        if (status) return status;
    }
    return TT_OK;
}

tt_status tt_fabric_begin(struct tt_fabric **out, const struct tt_peer_info *infos, int rank,
                          int nranks, int fd_socket, const struct tt_fabric_config *config)
{
    const size_t n = (size_t)nranks;
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
    fabric->peers = malloc(n * sizeof *fabric->peers);
    fabric->pidfds = malloc(n * sizeof *fabric->pidfds);
    fabric->links = calloc(2 * n * TT_NCHANNELS, sizeof *fabric->links);
    tt_status status = TT_OK;
    if (fabric->pidfds)
        for (int r = 0; r < nranks; r++) fabric->pidfds[r] = -1;
    if (!fabric->peers || !fabric->pidfds || !fabric->links) {
        status = tt_fail(TT_ERR_SYSTEM, "out of memory for the links of %d ranks", nranks);
    } else {
        memcpy(fabric->peers, infos, n * sizeof *fabric->peers);
        fabric->oversubscribed =
            !config->always_spin && (config->oversubscribed || is_oversubscribed(infos, nranks));
        status = find_hosts(fabric);
        if (!status) status = check_hosts(infos, nranks);
    }
    if (!status && rank == 0) {
        const struct tt_segment_layout layout =
            choose_layout(nranks, config, fabric->oversubscribed);
        status = tt_segment_create(fabric->secret, &layout, &fabric->segment);
        if (!status) status = pass_segment(fabric);
    }
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
    if (fabric->peers[fabric->rank].process_id == fabric->peers[0].process_id) {
        fabric->segment = tt_segment_find(fabric->secret);
        return fabric->segment ? TT_OK
                               : tt_fail(TT_ERR_INTERNAL, "rank 0 of this process made no segment");
    }
    for (;;) {
        struct tt_fd_note note;
        int fd;
        tt_status status = tt_fdpass_receive(fabric->fd_socket, fabric->secret, &note, &fd);
        if (status == TT_OK) {
            status = note.kind == TT_FD_SEGMENT
                         ? tt_segment_attach(note.id, fd, &fabric->segment)
                         : tt_fail(TT_ERR_INTERNAL, "expected the segment, got descriptor kind %d",
                                   note.kind);
            close(fd);
            return status;
        }
        if (status != TT_IN_PROGRESS) return status;
        if (tt_expired(deadline_ns))
            return tt_fail(TT_ERR_TIMEOUT,
                           "rank 0 did not pass the host segment to rank %d in time", fabric->rank);
        struct pollfd poll_fd = {.fd = fabric->fd_socket, .events = POLLIN};
        poll(&poll_fd, 1, 1);
    }
}

static void open_pidfds(struct tt_fabric *fabric)
{
    const struct tt_peer_info *mine = &fabric->peers[fabric->rank];
    for (int r = 0; r < fabric->nranks; r++) {
        const struct tt_peer_info *peer = &fabric->peers[r];
        bool watched = peer->process_id == mine->process_id;
        for (int q = 0; q < r && !watched; q++)
            watched = fabric->peers[q].process_id == peer->process_id;
        if (watched) continue;
        fabric->pidfds[r] = (int)syscall(SYS_pidfd_open, peer->pid, 0);
        if (fabric->pidfds[r] < 0)
            TT_WARN("cannot watch process %d of rank %d (pidfd_open: %m): its death is seen "
                    "by the deadline only",
                    peer->pid, r);
    }
}

tt_status tt_fabric_attach(struct tt_fabric *fabric, int64_t deadline_ns)
{
    if (!fabric->segment) TT_TRY(receive_segment(fabric, deadline_ns));
    if (fabric->segment->header->nlocal != fabric->nranks)
        return tt_fail(TT_ERR_INTERNAL, "the segment is for %d ranks, expected %d",
                       fabric->segment->header->nlocal, fabric->nranks);
    fabric->oversubscribed = fabric->segment->header->oversubscribed;
    struct tt_rank_record *record = &fabric->segment->header->records[fabric->rank];

    record->pid = getpid();
    record->probe = (uint64_t)(uintptr_t)&fabric->peers[fabric->rank].secret;
    fabric->record = record;
    open_pidfds(fabric);
    atomic_store_explicit(&record->state, TT_RANK_HERE, memory_order_release);
    return TT_OK;
}

void tt_fabric_finish(struct tt_fabric *fabric)
{
    if (fabric->rank == 0) tt_segment_seal(fabric->segment);
    if (!fabric->allow_cma) return;
    const struct tt_peer_info *mine = &fabric->peers[fabric->rank];
    for (int r = 0; r < fabric->nranks; r++) {
        if (fabric->peers[r].process_id == mine->process_id) continue;
        const int refused =
            tt_cma_probe(fabric->peers[r].pid, fabric->segment->header->records[r].probe,
                         fabric->peers[r].secret);
        if (refused) {
            errno = refused;
            TT_INFO_ONCE(
                "cross-memory attach is not permitted here (process_vm_readv: %m); using slots");
            continue;
        }
        atomic_store_explicit(tt_segment_may_read(fabric->segment, fabric->rank, r), 1,
                              memory_order_relaxed);
    }
}

void tt_fabric_destroy(struct tt_fabric *fabric)
{
    if (!fabric) return;
    if (fabric->record) {
        const uint32_t state = atomic_load(&fabric->aborted) ? TT_RANK_ABORTED : TT_RANK_LEFT;
        atomic_store_explicit(&fabric->record->state, state, memory_order_release);
    }
    if (fabric->pidfds)
        for (int r = 0; r < fabric->nranks; r++)
            if (fabric->pidfds[r] >= 0) close(fabric->pidfds[r]);
    for (int r = 0; fabric->known && r < fabric->nranks; r++) free(fabric->known[r].ids);
    free(fabric->known);
    tt_window_map_fini(&fabric->windows);
    tt_segment_put(fabric->segment);
    close(fabric->fd_socket);
    free(fabric->links);
    free(fabric->pidfds);
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
    if (!fabric->known) fabric->known = calloc((size_t)fabric->nranks, sizeof *fabric->known);
    if (!fabric->known) return false;
    struct tt_known_windows *known = &fabric->known[peer];
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

static struct tt_link *end_of(struct tt_fabric *fabric, bool outgoing, int peer, int channel)
{
    const size_t index =
        ((size_t)(outgoing ? 0 : 1) * (size_t)fabric->nranks + (size_t)peer) * TT_NCHANNELS +
        (size_t)channel;
    struct tt_shm_link *shm = &fabric->links[index];
    if (!shm->area)
        tt_shm_open(shm, fabric, outgoing ? fabric->rank : peer, outgoing ? peer : fabric->rank,
                    channel);
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
    return end_of(fabric, true, peer, channel);
}

struct tt_link *tt_fabric_rx(struct tt_fabric *fabric, int peer, int channel)
{
    return end_of(fabric, false, peer, channel);
}

void tt_fabric_name_rank(const struct tt_fabric *fabric, int rank, char *text, size_t size)
{
    snprintf(text, size, "rank %d (host %s, pid %d)", rank, fabric->peers[rank].host,
             fabric->peers[rank].pid);
}

tt_status tt_fabric_fail(struct tt_fabric *fabric, int code, const char *format, ...)
{
    struct tt_failure *failure = &fabric->segment->header->failure;
    uint32_t none = 0;
    if (atomic_compare_exchange_strong_explicit(&failure->state, &none, 1, memory_order_acquire,
                                                memory_order_acquire)) {
        va_list args;
        va_start(args, format);
        vsnprintf(failure->text, sizeof failure->text, format, args);
        va_end(args);
        failure->code = code;

        atomic_store_explicit(&failure->state, 2, memory_order_release); /* R2 */
        TT_WARN("rank %d: %s", fabric->rank, failure->text);
    }
    const int64_t deadline =
        tt_deadline_ns(100); /* a rank that died while writing must not hang the others */
    tt_status status;
    while ((status = tt_fabric_check(fabric)) == TT_OK && !tt_expired(deadline)) tt_cpu_relax();
    return status ? status
                  : tt_fail(TT_ERR_REMOTE, "the communicator failed; the rank that knew why died");
}

tt_status tt_fabric_check(struct tt_fabric *fabric)
{
    const struct tt_failure *failure = &fabric->segment->header->failure;
    if (atomic_load_explicit(&failure->state, memory_order_acquire) != 2) return TT_OK; /* A2 */
    tt_set_last_error(failure->text);
    return failure->code;
}

const char *tt_fabric_failure_text(const struct tt_fabric *fabric)
{
    const struct tt_failure *failure = &fabric->segment->header->failure;
    return atomic_load_explicit(&failure->state, memory_order_acquire) == 2 ? failure->text : "";
}

/* The rank whose process's watch stands for rank r: the first rank of that process. */
static int watch_of(const struct tt_fabric *fabric, int r)
{
    for (int q = 0; q < r; q++)
        if (fabric->peers[q].process_id == fabric->peers[r].process_id) return q;
    return r;
}

static bool is_dead(const struct tt_fabric *fabric, int r)
{
    const int pidfd = fabric->pidfds[watch_of(fabric, r)];
    if (pidfd < 0) return false;
    struct pollfd poll_fd = {.fd = pidfd, .events = POLLIN};
    return poll(&poll_fd, 1, 0) > 0;
}

static bool can_go_on(struct tt_fabric *fabric, int peer, bool sending)
{
    struct tt_message message;
    struct tt_link *link = sending ? tt_fabric_tx(fabric, peer, TT_P2P_CHANNEL)
                                   : tt_fabric_rx(fabric, peer, TT_P2P_CHANNEL);
    return sending ? link->ops->drained(link) : link->ops->peek(link, &message) != TT_IN_PROGRESS;
}

tt_status tt_fabric_check_peers(struct tt_fabric *fabric, uint64_t seq, int peer, bool sending)
{
    for (int r = 0; r < fabric->nranks; r++) {
        const struct tt_rank_record *record = &fabric->segment->header->records[r];
        const bool dead = is_dead(fabric, r); /* before its last words are read */
        const uint32_t state = atomic_load_explicit(&record->state, memory_order_acquire);
        const uint64_t done = atomic_load_explicit(&record->done, memory_order_acquire);
        const bool awaited = (seq && done < seq) || peer == r;
        char name[128];
        tt_fabric_name_rank(fabric, r, name, sizeof name);
        if (peer == r && (state == TT_RANK_LEFT || dead) && can_go_on(fabric, r, sending)) continue;
        if (state == TT_RANK_ABORTED)
            return tt_fabric_fail(fabric, TT_ERR_REMOTE, "%s aborted the communicator", name);
        if (state == TT_RANK_LEFT && awaited && r != fabric->rank)
            return tt_fabric_fail(fabric, TT_ERR_REMOTE,
                                  "%s has left: it destroyed its communicator", name);
        if (dead && state == TT_RANK_HERE && awaited)
            return tt_fabric_fail(fabric, TT_ERR_REMOTE, "%s has died", name);
    }
    return TT_OK;
}

const char *tt_fabric_way(const struct tt_fabric *fabric, int peer)
{
    if (peer == fabric->rank) return "self";
    if (fabric->peers[peer].process_id == fabric->peers[fabric->rank].process_id)
        return "thread (in place) + shm";
    const bool cma = fabric->allow_cma &&
                     atomic_load_explicit(tt_segment_may_read(fabric->segment, peer, fabric->rank),
                                          memory_order_relaxed);
    if (fabric->allow_window) return cma ? "shm + window + cma" : "shm + window";
    return cma ? "shm + cma" : "shm";
}
