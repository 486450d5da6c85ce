/* The fabric of one rank: creates the host room, starts the wires, hands out links, and finds the
 * record that says what a rank has entered and done. */
#include "transport/fabric.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/private_fd.h"

/* ---- What the rooms report ------------------------------------------------------------------ */

static tt_status on_fail(void *fabric, int code, const char *text)
{
    return tt_fabric_fail(fabric, code, "%s", text);
}

static tt_status on_missed(void *fabric, int peer)
{
    char name[128];
    tt_fabric_name_rank(fabric, peer, name, sizeof name);
    return tt_fabric_fail(fabric, TT_ERR_REMOTE, "%s is gone", name);
}

/* The wires look, between a room and the fabric. */
static void on_look(void *fabric, int peer)
{
    (void)fabric, (void)peer;
}

static void on_name(const void *fabric, int rank, char *text, size_t size)
{
    tt_fabric_name_rank(fabric, rank, text, size);
}

static const struct tt_room_events events = {
    .fail = on_fail, .missed = on_missed, .look = on_look, .name = on_name};

/* ---- Creation ------------------------------------------------------------------------------- */

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

/* Address space that the links of one host may take. */
static const size_t links_budget = (size_t)64 << 30;
/* Where TUTTI_SLOTS does not say how many slots there are, no more than these bytes, nor than the
 * limits of any rank allow, are spent on more than TT_SLOTS_BETWEEN. */
static const size_t default_budget = (size_t)1 << 30;

static size_t slots_budget(const struct tt_fabric *fabric)
{
    size_t budget = default_budget;
    for (int r = 0; r < fabric->nranks; r++)
        if (fabric->peers[r].most_bytes < budget) budget = fabric->peers[r].most_bytes;
    return budget;
}

/* The links of a host with very many ranks get smaller slots. The host with most ranks decides for
 * all hosts: rounds are cut by the size of a slot. */
static struct tt_segment_layout choose_layout(const struct tt_fabric *fabric,
                                              const struct tt_fabric_config *config)
{
    const int most = fabric->hosts->most;
    struct tt_segment_layout layout = {.nlocal = fabric->nlocal,
                                       .nchannels = fabric->context.nchannels,
                                       .nslots = config->nslots,
                                       .slot_bytes = config->slot_bytes,
                                       .meet_bytes = config->meet_bytes};
    if (!config->slots_setting) tt_segment_spare(&layout, most, slots_budget(fabric));
    const size_t spared = layout.nslots;
    tt_segment_fit(&layout, most, links_budget);
    if (layout.slot_bytes == config->slot_bytes && layout.nslots == spared &&
        spared != config->nslots)
        TT_INFO("%d ranks on a host: links have %zu slots instead of %zu, to save memory; "
                "TUTTI_SLOTS sets their number",
                most, spared, config->nslots);
    else if (layout.slot_bytes != config->slot_bytes || layout.nslots != config->nslots)
        TT_INFO("%d ranks on a host: links have %zu slots of %zu bytes instead of TUTTI_SLOTS=%zu "
                "of TUTTI_SLOT_BYTES=%zu, to fit into %zu GiB of address space",
                most, layout.nslots, layout.slot_bytes, config->nslots, config->slot_bytes,
                links_budget >> 30);
    return layout;
}

static bool same_process(const struct tt_peer_info *a, const struct tt_peer_info *b)
{
    return a->process_id == b->process_id;
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
    fabric->watches = calloc(nlocal, sizeof *fabric->watches);
    fabric->own_abort = aligned_alloc(TT_CACHE_LINE, sizeof *fabric->own_abort);
    fabric->nentries = tt_entries_kept(infos[fabric->rank].nslots);
    if (!alone) fabric->remote = aligned_alloc(TT_CACHE_LINE, n * sizeof *fabric->remote);
    if (!alone)
        fabric->entries =
            aligned_alloc(TT_CACHE_LINE, n * fabric->nentries * sizeof *fabric->entries);
    if (!fabric->watches || !fabric->own_abort || (!alone && (!fabric->remote || !fabric->entries)))
        return tt_fail(TT_ERR_SYSTEM, "out of memory for the links of %zu ranks", n);
    *fabric->own_abort = (struct tt_failure){.state = 0};
    if (alone) return TT_OK;
    memset(fabric->remote, 0, n * sizeof *fabric->remote);
    memset(fabric->entries, 0, n * fabric->nentries * sizeof *fabric->entries);
    return TT_OK;
}

static tt_status make_host_room(struct tt_fabric *fabric, const struct tt_fabric_config *config)
{
    const size_t n = (size_t)fabric->nlocal;
    struct tt_host_member *members = malloc(n * sizeof *members);
    if (!members) return tt_fail(TT_ERR_SYSTEM, "out of memory for the links of %zu ranks", n);
    const struct tt_peer_info *mine = &fabric->peers[fabric->rank];
    for (int place = 0; place < fabric->nlocal; place++) {
        const int rank = tt_fabric_rank_at(fabric, place);
        const struct tt_peer_info *peer = &fabric->peers[rank];
        members[place] = (struct tt_host_member){.rank = rank,
                                                 .pid = peer->pid,
                                                 .same_process = same_process(peer, mine),
                                                 .process_id = peer->process_id,
                                                 .probe = peer->secret,
                                                 .fd_address = peer->fd_address};
    }
    const struct tt_host_config host = {.secret = fabric->peers[0].secret,
                                        .segment_id = members[0].probe,
                                        .allow_window = config->allow_window,
                                        .allow_cma = config->allow_cma,
                                        .oversubscribed = fabric->oversubscribed,
                                        .nlocal = fabric->nlocal,
                                        .local = fabric->local,
                                        .members = members,
                                        .place_of = fabric->hosts->local_of};
    const tt_status status =
        tt_host_init(&fabric->host, &fabric->context, &host, fabric->host.fd_socket);
    free(members);
    return status;
}

static tt_status begin(struct tt_fabric *fabric, const struct tt_peer_info *infos,
                       const struct tt_fabric_config *config)
{
    TT_TRY(allocate(fabric, infos));
    const struct tt_hosts *hosts = fabric->hosts;
    fabric->oversubscribed = tt_peers_oversubscribed(infos, hosts, hosts->host_of[fabric->rank]);
    TT_TRY(make_host_room(fabric, config));
    TT_TRY(tt_peers_check_settings(infos, fabric->nranks));
    TT_TRY(tt_peers_check_hosts(infos, hosts));
    const double here = tt_peers_per_core(infos, hosts, hosts->host_of[fabric->rank]);
    fabric->spares_core = config->always_spin || here * (1.0 + config->compute_threads) <= 1;
    fabric->all_have_fast_rep_movsb = true;
    for (int r = 0; r < fabric->nranks; r++) {
        fabric->all_have_fast_rep_movsb =
            fabric->all_have_fast_rep_movsb && infos[r].has_fast_rep_movsb;
        fabric->shares_process |=
            r != fabric->rank && same_process(&infos[r], &infos[fabric->rank]);
    }
    for (int h = 0; h < hosts->nhosts; h++) {
        const double per_core = tt_peers_per_core(infos, hosts, h);
        fabric->some_oversubscribed |= tt_peers_oversubscribed(infos, hosts, h);
        if (per_core > fabric->ranks_per_core) fabric->ranks_per_core = per_core;
    }
    if (fabric->local != 0) return TT_OK;
    const struct tt_segment_layout layout = choose_layout(fabric, config);
    return tt_host_create(&fabric->host, &layout);
}

tt_status tt_fabric_begin(struct tt_fabric **out, const struct tt_peer_info *infos, int rank,
                          int nranks, int fd_socket, const struct tt_fabric_config *config)
{
    struct tt_fabric *fabric = calloc(1, sizeof *fabric);
    if (!fabric) {
        tt_private_fd_close(fd_socket);
        return tt_fail(TT_ERR_SYSTEM, "out of memory for a communicator");
    }
    *fabric = (struct tt_fabric){.rank = rank,
                                 .nranks = nranks,
                                 .begun_ns = tt_now_ns(),
                                 .host.fd_socket = fd_socket,
                                 .context = {.events = &events,
                                             .owner = fabric,
                                             .rank = rank,
                                             .nranks = nranks,
                                             .nchannels = config->nchannels + config->nbridges,
                                             .nbridges = config->nbridges,
                                             .nmessages = &fabric->nmessages,
                                             .nbytes_copied = &fabric->nbytes_copied,
                                             .nbytes_direct = &fabric->nbytes_direct}};
    const tt_status status = begin(fabric, infos, config);
    if (status) {
        tt_fabric_destroy(fabric);
        return status;
    }
    *out = fabric;
    return TT_OK;
}

tt_status tt_fabric_attach(struct tt_fabric *fabric, int64_t deadline_ns)
{
    TT_TRY(tt_host_attach(&fabric->host, deadline_ns));
    fabric->segment = fabric->host.segment;
    atomic_init(&fabric->seen, &fabric->segment->header->failure);
    struct tt_rank_record *record = &fabric->segment->header->records[fabric->local];
    record->pid = getpid();
    record->probe = (uint64_t)(uintptr_t)&fabric->peers[fabric->rank].secret;
    fabric->record = record;
    tt_reason_enlist(&fabric->place, &record->failed_ns);
    tt_fabric_watch(fabric);
    atomic_store_explicit(&record->state, TT_RANK_HERE, memory_order_release);
    return TT_OK;
}

void tt_fabric_finish(struct tt_fabric *fabric)
{
    tt_host_finish(&fabric->host);
}

void tt_fabric_leave(struct tt_fabric *fabric)
{
    if (!fabric->record) return;
    const uint32_t state = atomic_load(&fabric->aborted) ? TT_RANK_ABORTED : TT_RANK_LEFT;
    tt_fabric_give_reason(fabric);
    tt_fabric_pass_on(fabric);
    tt_sleep_retire(&fabric->host.sleep);
    /* acquire: tt_fabric_lends */
    atomic_store_explicit(&fabric->record->withdrawn, 1, memory_order_release);
    atomic_store_explicit(&fabric->record->state, state, memory_order_release);
}

void tt_fabric_disconnect(struct tt_fabric *fabric)
{
    if (!fabric) return;
    tt_fabric_leave(fabric);
    tt_wires_destroy(fabric->wires);
    fabric->wires = NULL;
}

void tt_fabric_destroy(struct tt_fabric *fabric)
{
    if (!fabric) return;
    tt_fabric_disconnect(fabric);
    for (int place = 0; fabric->watches && place < fabric->nlocal; place++)
        tt_pid_watch_put(fabric->watches[place]);
    tt_fabric_free_inherited(fabric);
}

void tt_fabric_free_inherited(struct tt_fabric *fabric)
{
    tt_reason_delist(&fabric->place);
    tt_host_fini(&fabric->host);
    free(fabric->entries);
    free(fabric->remote);
    free(fabric->watches);
    free(fabric->own_abort);
    free(fabric->peers);
    tt_hosts_destroy(fabric->hosts);
    free(fabric);
}

size_t tt_fabric_bytes(const struct tt_fabric *fabric)
{
    const size_t n = (size_t)fabric->nranks;
    size_t nbytes = sizeof *fabric + sizeof *fabric->own_abort + n * sizeof *fabric->peers +
                    tt_hosts_bytes(fabric->hosts) +
                    (size_t)fabric->nlocal * sizeof *fabric->watches + tt_host_bytes(&fabric->host);
    if (fabric->remote) nbytes += n * sizeof *fabric->remote;
    if (fabric->entries) nbytes += n * fabric->nentries * sizeof *fabric->entries;
    if (fabric->wires) nbytes += tt_wires_bytes(fabric->wires);
    return nbytes;
}

bool tt_fabric_may_mix(const struct tt_fabric *fabric)
{
    int nwith = 0;
    for (int r = 0; r < fabric->nranks; r++) nwith += fabric->peers[r].gpu >= 0;
    return fabric->context.nbridges && nwith && nwith < fabric->nranks;
}

struct tt_rank_record *tt_fabric_record(const struct tt_fabric *fabric, int rank)
{
    return tt_fabric_is_local(fabric, rank)
               ? &fabric->segment->header->records[fabric->hosts->local_of[rank]]
               : &fabric->remote[rank];
}

struct tt_entry *tt_fabric_entry(const struct tt_fabric *fabric, int rank, uint64_t seq)
{
    return tt_fabric_is_local(fabric, rank)
               ? tt_segment_entry(fabric->segment, fabric->hosts->local_of[rank], seq)
               : &fabric->entries[(size_t)rank * fabric->nentries + (seq & (fabric->nentries - 1))];
}

struct tt_link *tt_fabric_tx(struct tt_fabric *fabric, int peer, int channel)
{
    return tt_fabric_is_local(fabric, peer) ? tt_host_tx(&fabric->host, peer, channel)
                                            : tt_wires_tx(fabric->wires, peer, channel);
}

struct tt_link *tt_fabric_rx(struct tt_fabric *fabric, int peer, int channel)
{
    return tt_fabric_is_local(fabric, peer) ? tt_host_rx(&fabric->host, peer, channel)
                                            : tt_wires_rx(fabric->wires, peer, channel);
}

void tt_fabric_name_rank(const struct tt_fabric *fabric, int rank, char *text, size_t size)
{
    snprintf(text, size, "rank %d (host %s, pid %d)", rank, fabric->peers[rank].host,
             fabric->peers[rank].pid);
}

void tt_fabric_describe_peer(const struct tt_fabric *fabric, int peer, char *text, size_t size)
{
    if (tt_fabric_is_local(fabric, peer))
        snprintf(text, size, "%s", tt_host_describe(&fabric->host, peer));
    else
        tt_wires_describe(fabric->wires, peer, text, size);
}

void tt_fabric_find_memory(struct tt_fabric *fabric, const void *data, size_t nbytes,
                           struct tt_memory *memory)
{
    tt_host_find_memory(&fabric->host, data, nbytes, memory);
}

void tt_fabric_introduce(struct tt_fabric *fabric, int peer, const struct tt_memory *memory)
{
    if (tt_fabric_is_local(fabric, peer))
        tt_host_introduce(&fabric->host, fabric->hosts->local_of[peer], memory);
}
