/* The host room: creates or receives the segment and probes what is possible between its ranks. */
#include "transport/host/host.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/private_fd.h"
#include "transport/host/cma.h"
#include "transport/host/watch.h"

tt_status tt_host_init(struct tt_host_room *room, const struct tt_room_context *context,
                       const struct tt_host_config *config, int fd_socket)
{
    const size_t n = (size_t)config->nlocal;
    const size_t nlinks = 2 * n * (size_t)context->nchannels;
    struct tt_host_member *members = malloc(n * sizeof *members);
    *room = (struct tt_host_room){.context = context,
                                  .config = *config,
                                  .fd_socket = fd_socket,
                                  .spare = -1,
                                  .user = geteuid(),
                                  .links = calloc(nlinks, sizeof *room->links)};
    room->config.members = members;
    if (!members || !room->links)
        return tt_fail(TT_ERR_SYSTEM, "out of memory for the links of %zu ranks", n);
    memcpy(members, config->members, n * sizeof *members);
    return TT_OK;
}

static void drop_spare(struct tt_host_room *room)
{
    if (room->spare >= 0) tt_private_fd_close(room->spare);
    room->spare = -1;
}

void tt_host_fini(struct tt_host_room *room)
{
    drop_spare(room);
    tt_host_windows_fini(room);
    tt_segment_put(room->segment);
    if (room->fd_socket >= 0) tt_private_fd_close(room->fd_socket);
    free(room->links);
    free((void *)(uintptr_t)room->config.members);
}

size_t tt_host_bytes(const struct tt_host_room *room)
{
    const size_t n = (size_t)room->config.nlocal;
    return n * sizeof *room->config.members +
           2 * n * (size_t)room->context->nchannels * sizeof *room->links +
           (sizeof *room->segment + room->segment->nbytes) / n + tt_host_windows_bytes(room);
}

/* ---- The segment ---------------------------------------------------------------------------- */

/* Passes the segment to the ranks at the next places, up to one for which the kernel has no room
 * (TT_IN_PROGRESS): it holds a bounded number of descriptors that are on their way, until the
 * receivers take theirs. */
static tt_status pass_segment(struct tt_host_room *room)
{
    const struct tt_fd_note note = {.secret = room->config.secret,
                                    .id = room->config.segment_id,
                                    .nbytes = room->segment->nbytes,
                                    .kind = TT_FD_SEGMENT};
    for (; room->npassed < room->config.nlocal; room->npassed++) {
        const struct tt_host_member *member = &room->config.members[room->npassed];
        if (member->same_process) continue; /* mapped already */
        TT_AWAIT(tt_fdpass_send(&member->fd_address, &note, room->segment->fd, &room->spare));
    }
    return TT_OK;
}

static bool has_other_processes(const struct tt_host_room *room)
{
    for (int place = 0; place < room->config.nlocal; place++)
        if (!room->config.members[place].same_process) return true;
    return false;
}

tt_status tt_host_create(struct tt_host_room *room, const struct tt_segment_layout *layout)
{
    TT_TRY(tt_segment_create(room->config.segment_id, layout, &room->segment));
    if (has_other_processes(room)) TT_TRY(tt_fdpass_reserve(&room->spare));
    room->npassed = 1;
    const tt_status status = pass_segment(room);
    return status < 0 ? status : TT_OK;
}

/* The receivers, who are attaching too, make room. */
static tt_status pass_rest(struct tt_host_room *room, int64_t deadline_ns)
{
    for (;;) {
        const tt_status status = pass_segment(room);
        if (status != TT_IN_PROGRESS) return status;
        if (room->spare < 0) TT_TRY(tt_fdpass_reserve(&room->spare)); /* a thread has taken it */
        if (tt_expired(deadline_ns))
            return tt_fail(TT_ERR_TIMEOUT,
                           "rank %d cannot pass the host segment to rank %d: too many descriptors "
                           "are on their way (ulimit -n)",
                           room->context->rank, room->config.members[room->npassed].rank);
        struct pollfd poll_fd = {.fd = room->fd_socket, .events = POLLOUT};
        poll(&poll_fd, 1, 1);
    }
}

/* TT_IN_PROGRESS: the descriptor has not come. */
static tt_status take_segment(struct tt_host_room *room)
{
    struct tt_fd_note note;
    int fd;
    TT_AWAIT(tt_fdpass_receive(room->fd_socket, room->config.secret, &note, &fd));
    const tt_status status =
        note.kind == TT_FD_SEGMENT
            ? tt_segment_attach(note.id, fd, &room->segment)
            : tt_fail(TT_ERR_INTERNAL, "expected the segment, got descriptor kind %d",
                      (int)note.kind);
    tt_private_fd_close(fd);
    return status;
}

/* maker: the watch of the process that passes the segment; NULL: it cannot be watched. */
static tt_status await_segment(struct tt_host_room *room, struct tt_pid_watch *maker,
                               int64_t deadline_ns)
{
    const int rank = room->config.members[0].rank;
    for (;;) {
        const bool dead = maker && tt_pid_watch_is_dead(maker);
        const tt_status status = take_segment(room); /* after that: it may have passed it before */
        if (status != TT_IN_PROGRESS) return status;
        if (dead) {
            char name[128];
            tt_room_name(room->context, rank, name, sizeof name);
            return tt_fail(TT_ERR_REMOTE,
                           "%s has died before it passed the host segment to rank %d", name,
                           room->context->rank);
        }
        if (tt_expired(deadline_ns))
            return tt_fail(TT_ERR_TIMEOUT,
                           "rank %d did not pass the host segment to rank %d in time", rank,
                           room->context->rank);
        struct pollfd poll_fd = {.fd = room->fd_socket, .events = POLLIN};
        poll(&poll_fd, 1, 1);
    }
}

/* Ranks in the first rank's process find its mapping; the others wait for the descriptor. */
static tt_status receive_segment(struct tt_host_room *room, int64_t deadline_ns)
{
    const struct tt_host_member *maker = &room->config.members[0];
    if (maker->same_process) {
        room->segment = tt_segment_find(room->config.segment_id);
        return room->segment ? TT_OK
                             : tt_fail(TT_ERR_INTERNAL, "rank %d of this process made no segment",
                                       maker->rank);
    }
    tt_status status = take_segment(room);
    if (status != TT_IN_PROGRESS) return status;
    struct tt_pid_watch *watch = tt_pid_watch_get(maker->pid, maker->process_id);
    status = await_segment(room, watch, deadline_ns);
    tt_pid_watch_put(watch);
    return status;
}

tt_status tt_host_attach(struct tt_host_room *room, int64_t deadline_ns)
{
    TT_TRY(room->segment ? pass_rest(room, deadline_ns) : receive_segment(room, deadline_ns));
    drop_spare(room);
    const struct tt_segment_header *header = room->segment->header;
    if (header->nlocal != room->config.nlocal || header->nchannels != room->context->nchannels)
        return tt_fail(
            TT_ERR_INTERNAL, "the segment is for %d ranks and %d channels, expected %d and %d",
            header->nlocal, header->nchannels, room->config.nlocal, room->context->nchannels);
    tt_sleep_open(&room->sleep, room->segment, room->config.local);
    return TT_OK;
}

void tt_host_finish(struct tt_host_room *room)
{
    const struct tt_host_config *config = &room->config;
    if (config->local == 0) tt_segment_seal(room->segment);
    tt_sleep_finish(&room->sleep);
    for (int place = 0; config->allow_cma && place < config->nlocal; place++) {
        const struct tt_host_member *member = &config->members[place];
        if (member->same_process) continue;
        const int refused =
            tt_cma_probe(member->pid, room->segment->header->records[place].probe, member->probe);
        if (refused) {
            errno = refused;
            TT_INFO_ONCE(
                "cross-memory attach is not permitted here (process_vm_readv: %m); using slots");
            continue;
        }
        atomic_store_explicit(tt_segment_may_read(room->segment, config->local, place), 1,
                              memory_order_relaxed);
    }
}

/* ---- Links ---------------------------------------------------------------------------------- */

static struct tt_link *end_of(struct tt_host_room *room, bool outgoing, int peer, int channel)
{
    const int place = room->config.place_of[peer];
    const int row = (outgoing ? 0 : room->config.nlocal) + place;
    const int index = row * room->context->nchannels + channel;
    struct tt_shm_link *shm = &room->links[index];
    if (!shm->area) tt_shm_open(shm, room, place, channel, outgoing);
    return &shm->link;
}

struct tt_link *tt_host_tx(struct tt_host_room *room, int peer, int channel)
{
    return end_of(room, true, peer, channel);
}

struct tt_link *tt_host_rx(struct tt_host_room *room, int peer, int channel)
{
    return end_of(room, false, peer, channel);
}

bool tt_host_may_read(const struct tt_host_room *room, int place)
{
    return room->config.allow_cma &&
           atomic_load_explicit(tt_segment_may_read(room->segment, place, room->config.local),
                                memory_order_relaxed);
}

const char *tt_host_describe(const struct tt_host_room *room, int peer)
{
    const int place = room->config.place_of[peer];
    if (place == room->config.local) return "self";
    if (room->config.members[place].same_process) return "thread (in place) + shm";
    const bool cma = tt_host_may_read(room, place);
    if (room->config.allow_window) return cma ? "shm + window + cma" : "shm + window";
    return cma ? "shm + cma" : "shm";
}
