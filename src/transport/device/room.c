/* Allocates the device memory of a rank, opens that of its peers, and fills the table of ends. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "driver/context.h"
#include "driver/driver.h"
#include "transport/device/device_room.h"
#include "transport/device/layout.h"

enum { MOST_SLOTS = 64, MOST_BYTES = 1 << 30 };

/* A rank as this one reaches it. */
struct peer {
    char *memory; /* as this rank's GPU uses it; NULL: not reached yet */
    int gpu;      /* number in its process */
    bool same_process, same_gpu;
    int distance;    /* enum tt_distance */
    bool reached_by; /* its kernels can read all memory of this rank's at its address */
};

/* One rank's. */
struct tt_device_room {
    struct tt_device_room_config config;
    struct tt_device_shape shape;
    struct tt_context *context;
    char *memory;
    size_t nbytes;
    uint8_t uuid[16];
    struct tt_device_links links;
    int nsharers;
    struct peer *peers; /* [nranks] */
};

/* ---- Hosts ---------------------------------------------------------------------------------- */

static bool is_local(const struct tt_device_room *room, int rank)
{
    const struct tt_hosts *hosts = room->config.hosts;
    return !hosts || hosts->host_of[rank] == hosts->host_of[room->config.rank];
}

/* The number of a rank among those of its host. */
static uint32_t local_of(const struct tt_device_room *room, int rank)
{
    const struct tt_hosts *hosts = room->config.hosts;
    return (uint32_t)(hosts ? hosts->local_of[rank] : rank);
}

/* ---- Offer ---------------------------------------------------------------------------------- */

static tt_status check_bytes(const char *setting, size_t nbytes)
{
    if (nbytes >= TT_LINE_BYTES && nbytes <= MOST_BYTES && nbytes % TT_LINE_BYTES == 0)
        return TT_OK;
    return tt_fail(TT_ERR_USAGE, "%s is %zu: give a multiple of %d from %d to %d", setting, nbytes,
                   TT_LINE_BYTES, TT_LINE_BYTES, MOST_BYTES);
}

static tt_status check_config(const struct tt_device_room_config *config)
{
    const size_t nslots = config->nslots;
    if (nslots < 2 || nslots > MOST_SLOTS || (nslots & (nslots - 1)) != 0)
        return tt_fail(TT_ERR_USAGE, "TUTTI_DEVICE_SLOTS is %zu: give a power of two from 2 to %d",
                       nslots, MOST_SLOTS);
    TT_TRY(check_bytes("TUTTI_DEVICE_SLOT_BYTES", config->slot_bytes));
    return check_bytes("TUTTI_DEVICE_LINE_BYTES", config->line_bytes);
}

static void fit(struct tt_device_room *room)
{
    const struct tt_device_room_config *config = &room->config;
    room->shape = (struct tt_device_shape){.nranks = (uint32_t)config->nranks,
                                           .nchannels = (uint32_t)config->nchannels,
                                           .nslots = (uint32_t)config->nslots,
                                           .slot_bytes = (uint32_t)config->slot_bytes,
                                           .line_bytes = (uint32_t)config->line_bytes};
    const struct tt_hosts *hosts = config->hosts;
    if (hosts) room->shape.nlocal = (uint32_t)hosts->most;
    const struct tt_device_shape asked = room->shape;
    tt_device_fit(&room->shape, TT_DEVICE_BUDGET);
    if (memcmp(&asked, &room->shape, sizeof asked))
        TT_INFO("rank %d: links of GPUs have %u slots of %u bytes and %u bytes of lines, so that "
                "those of %d ranks take at most %d MiB of a GPU",
                config->rank, room->shape.nslots, room->shape.slot_bytes, room->shape.line_bytes,
                hosts ? hosts->most : config->nranks, TT_DEVICE_BUDGET >> 20);
    if (hosts) room->shape.nlocal = (uint32_t)tt_hosts_size(hosts, hosts->host_of[config->rank]);
    room->nbytes = tt_device_layout(&room->shape).nbytes;
}

/* Puts what the memory is for before the last error. */
static tt_status explain_allocation(const struct tt_device_room *room, tt_status status)
{
    const struct tt_device_shape *shape = &room->shape;
    char text[TT_ERROR_TEXT];
    snprintf(text, sizeof text,
             "rank %d has no memory for its links with %u ranks on %u channels of %u slots of %u "
             "bytes and %u bytes of lines (TUTTI_DEVICE_SLOTS, TUTTI_DEVICE_SLOT_BYTES, "
             "TUTTI_DEVICE_LINE_BYTES, TUTTI_DEVICE_CHANNELS make them smaller): %.500s",
             room->config.rank, (shape->nlocal ? shape->nlocal : shape->nranks) - 1,
             shape->nchannels, shape->nslots, shape->slot_bytes, shape->line_bytes,
             tt_last_error());
    tt_set_last_error(text);
    return status;
}

static tt_status allocate(struct tt_device_room *room, struct tt_device_offer *mine)
{
    struct tt_gpu gpu;
    void *memory = NULL;
    TT_TRY(tt_context_open(room->config.gpu, &room->context));
    TT_TRY(tt_driver_gpu(room->config.gpu, &gpu));
    fit(room);
    if (!room->config.one_process)
        room->nbytes =
            (room->nbytes + TT_CONTEXT_SHARED - 1) / TT_CONTEXT_SHARED * TT_CONTEXT_SHARED;
    const tt_status status = tt_context_allocate(room->context, room->nbytes, &memory);
    if (status) return explain_allocation(room, status);
    room->memory = memory;
    memcpy(room->uuid, gpu.uuid, sizeof room->uuid);
    struct tt_device_offer offer = {.gpu = room->config.gpu,
                                    .nslots = room->shape.nslots,
                                    .slot_bytes = room->shape.slot_bytes,
                                    .line_bytes = room->shape.line_bytes,
                                    .nchannels = room->shape.nchannels,
                                    .process_id = room->config.process_id,
                                    .memory = (uint64_t)(uintptr_t)memory,
                                    .nbytes = room->nbytes};
    memcpy(offer.uuid, gpu.uuid, sizeof offer.uuid);
    if (!room->config.one_process) TT_TRY(tt_context_share(room->context, memory, offer.handle));
    *mine = offer;
    return TT_OK;
}

tt_status tt_device_room_offer(struct tt_device_room **out,
                               const struct tt_device_room_config *config,
                               struct tt_device_offer *mine)
{
    TT_TRY(check_config(config));
    struct tt_device_room *room = calloc(1, sizeof *room);
    struct peer *peers = calloc((size_t)config->nranks, sizeof *peers);
    tt_status status = TT_OK;
    if (!room || !peers) {
        status = tt_fail(TT_ERR_SYSTEM, "out of memory for the links of %d ranks on GPUs",
                         config->nranks);
        goto free_both;
    }
    *room = (struct tt_device_room){.config = *config, .peers = peers};
    status = allocate(room, mine);
    if (status) {
        tt_device_room_destroy(room);
        return status;
    }
    *out = room;
    return TT_OK;

free_both:
    free(peers);
    free(room);
    return status;
}

/* ---- Connection ----------------------------------------------------------------------------- */

static bool fit_together(const struct tt_device_offer *a, const struct tt_device_offer *b)
{
    return a->nslots == b->nslots && a->slot_bytes == b->slot_bytes &&
           a->line_bytes == b->line_bytes && a->nchannels == b->nchannels;
}

/* Whether all offers fit together; all ranks find the same answer and text. */
static tt_status check_offers(const struct tt_device_room *room,
                              const struct tt_device_offer *offers)
{
    int at = 0;
    while (offers[at].gpu < 0 && !is_local(room, at)) at++;
    const struct tt_device_offer *first = &offers[at];
    for (int r = 0; r < room->config.nranks; r++) {
        const struct tt_device_offer *offer = &offers[r];
        if (offer->gpu < 0 && !is_local(room, r)) continue;
        if (offer->gpu < 0) return tt_fail(TT_ERR_USAGE, "rank %d has no GPU", r);
        if (!fit_together(offer, first))
            return tt_fail(
                TT_ERR_USAGE,
                "rank %d has %u channels of %u slots of %u bytes and %u bytes of lines between "
                "GPUs, "
                "rank %d has %u of %u of %u and %u: give all ranks the same TUTTI_DEVICE_CHANNELS, "
                "TUTTI_DEVICE_SLOTS, TUTTI_DEVICE_SLOT_BYTES and TUTTI_DEVICE_LINE_BYTES",
                at, first->nchannels, first->nslots, first->slot_bytes, first->line_bytes, r,
                offer->nchannels, offer->nslots, offer->slot_bytes, offer->line_bytes);
        if (is_local(room, r) && offer->nbytes < tt_device_layout(&room->shape).nbytes)
            return tt_fail(TT_ERR_USAGE,
                           "rank %d offers %llu bytes of device memory, expected %zu: use one "
                           "version of tutti in a job",
                           r, (unsigned long long)offer->nbytes,
                           tt_device_layout(&room->shape).nbytes);
    }
    return TT_OK;
}

/* The number of a GPU in this process; -1: this process cannot use it. */
static int number_of(const uint8_t uuid[16])
{
    for (int number = 0; number < tt_driver_ngpus(NULL); number++) {
        struct tt_gpu gpu;
        if (!tt_driver_gpu(number, &gpu) && !memcmp(gpu.uuid, uuid, sizeof gpu.uuid)) return number;
    }
    return -1;
}

static tt_status open_memory(struct tt_device_room *room, const struct tt_device_offer *offer,
                             struct peer *peer)
{
    const int gpu = room->config.gpu;
    void *memory = (void *)(uintptr_t)offer->memory;
    if (peer->same_process && !peer->same_gpu) TT_TRY(tt_context_reach(room->context, offer->gpu));
    if (!peer->same_process) {
        /* Opening the memory enables the access: a context of the other GPU is not needed. */
        const int number = peer->same_gpu ? gpu : number_of(offer->uuid);
        if (number >= 0) TT_TRY(tt_context_check_peer(room->context, number));
        TT_TRY(tt_context_open_shared(room->context, offer->handle, true, &memory));
    }
    peer->memory = memory;
    return TT_OK;
}

static tt_status reach(struct tt_device_room *room, const struct tt_device_offer *offer, int rank)
{
    struct peer *peer = &room->peers[rank];
    peer->gpu = offer->gpu;
    peer->same_process = offer->process_id == room->config.process_id;
    peer->same_gpu = !memcmp(offer->uuid, room->uuid, sizeof room->uuid);
    peer->distance = peer->same_gpu
                         ? TT_NEAR
                         : (int)tt_driver_distance(room->config.gpu, number_of(offer->uuid));
    const tt_status status = open_memory(room, offer, peer);
    if (!status) {
        /* Of another GPU it could read what cuMemAlloc gave, but not all virtual memory: it opens
         * what is offered. */
        peer->reached_by = peer->same_process && peer->same_gpu;
        return TT_OK;
    }
    char text[TT_ERROR_TEXT];
    snprintf(text, sizeof text,
             "rank %d on GPU %d cannot use the %llu bytes of device memory of rank %d on GPU %d%s: "
             "%.600s",
             room->config.rank, room->config.gpu, (unsigned long long)offer->nbytes, rank,
             offer->gpu, peer->same_process ? "" : " of another process", tt_last_error());
    tt_set_last_error(text);
    return status;
}

static void fill_ends(const struct tt_device_room *room, int rank, struct tt_device_end *ends)
{
    const struct peer *peer = &room->peers[rank];
    const struct tt_device_shape *shape = &room->shape;
    const struct tt_device_place mine = {local_of(room, room->config.rank), room->memory};
    const bool self = rank == room->config.rank;
    const struct tt_device_place theirs = {local_of(room, rank),
                                           self ? room->memory : peer->memory};
    for (uint32_t channel = 0; channel < shape->nchannels; channel++)
        for (uint32_t outgoing = 0; outgoing < 2; outgoing++) {
            struct tt_device_end *end =
                &ends[tt_device_end_at(shape->nchannels, (uint32_t)rank, channel, outgoing)];
            *end = tt_device_end_between(shape, &mine, &theirs, channel, outgoing);
            if (self) continue;
            end->reaches = peer->reached_by ? TT_REACHES_ALL : TT_REACHES_OPENED;
            end->system = !(peer->same_process && peer->same_gpu);
        }
}

static tt_status upload_ends(struct tt_device_room *room)
{
    const struct tt_device_shape *shape = &room->shape;
    const size_t nends = (size_t)shape->nranks * shape->nchannels * 2;
    struct tt_device_end *ends = calloc(nends, sizeof *ends);
    if (!ends) return tt_fail(TT_ERR_SYSTEM, "out of memory for %zu ends of links", nends);
    for (int r = 0; r < room->config.nranks; r++)
        if (is_local(room, r)) fill_ends(room, r, ends);
    char *to = room->memory + tt_device_layout(shape).ends;
    const tt_status status = tt_context_upload(room->context, to, ends, nends * sizeof *ends);
    free(ends);
    if (status) return status;
    room->links = (struct tt_device_links){.ends = (struct tt_device_end *)to,
                                           .nranks = shape->nranks,
                                           .nchannels = shape->nchannels,
                                           .nslots = shape->nslots,
                                           .slot_bytes = shape->slot_bytes,
                                           .line_bytes = shape->line_bytes};
    return TT_OK;
}

tt_status tt_device_room_connect(struct tt_device_room *room, const struct tt_device_offer *offers)
{
    TT_TRY(check_offers(room, offers));
    room->nsharers = 0;
    for (int r = 0; r < room->config.nranks; r++) {
        room->nsharers += !memcmp(offers[r].uuid, room->uuid, sizeof room->uuid);
        if (r != room->config.rank && is_local(room, r)) TT_TRY(reach(room, &offers[r], r));
    }
    return upload_ends(room);
}

/* ---- The test of mappings -------------------------------------------------------------------- */

static bool is_mapped(const struct tt_device_room *room, int rank)
{
    const struct peer *peer = &room->peers[rank];
    return rank != room->config.rank && is_local(room, rank) &&
           !(peer->same_process && peer->same_gpu);
}

size_t tt_device_room_most_probes(const struct tt_device_room *room)
{
    size_t nmapped = 0;
    for (int r = 0; r < room->config.nranks; r++) nmapped += is_mapped(room, r);
    return 2 * nmapped * room->shape.nchannels;
}

/* Of splitmix64. */
static uint64_t mix(uint64_t value)
{
    value = (value ^ value >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    value = (value ^ value >> 27) * UINT64_C(0x94d049bb133111eb);
    return value ^ value >> 31;
}

/* What `writer` stores to the memory of `owner`, and what no other rank, channel or communicator
 * stores anywhere. */
static uint64_t value_of(const struct tt_device_room *room, int writer, int owner, uint32_t channel)
{
    const uint64_t who = (uint64_t)(uint32_t)writer << 32 | (uint32_t)owner;
    return mix(room->config.id + mix(who + mix(channel + UINT64_C(0x9e3779b97f4a7c15))));
}

/* The word of the channel in memory of the owner, as this rank's GPU uses it: in the slots of what
 * the writer sends, or in the places of the owner itself. Nobody expects anything there before a
 * message comes. */
static uint64_t *word_of(const struct tt_device_room *room, int writer, int owner, uint32_t channel)
{
    const int self = room->config.rank, other = writer == self ? owner : writer;
    const struct tt_device_layout at = tt_device_layout(&room->shape);
    char *memory = owner == self ? room->memory : room->peers[owner].memory;
    const struct tt_device_place here = {local_of(room, self), room->memory};
    const struct tt_device_place there = {local_of(room, other), room->peers[other].memory};
    if (writer == owner)
        return (uint64_t *)(void *)(memory + at.places + channel * at.slots_stride);
    return (uint64_t *)(void *)tt_device_end_between(&room->shape, &here, &there, channel,
                                                     writer == self)
        .slots;
}

static void add_probes(const struct tt_device_room *room, int writer, int owner,
                       struct tt_device_probe *probes, size_t *n)
{
    for (uint32_t c = 0; c < room->shape.nchannels; c++)
        probes[(*n)++] = (struct tt_device_probe){.word = word_of(room, writer, owner, c),
                                                  .value = value_of(room, writer, owner, c)};
}

size_t tt_device_room_probes(const struct tt_device_room *room, bool loads,
                             struct tt_device_probe *probes)
{
    const int self = room->config.rank;
    size_t n = 0;
    if (!loads && tt_device_room_most_probes(room)) add_probes(room, self, self, probes, &n);
    for (int r = 0; r < room->config.nranks; r++) {
        if (!is_mapped(room, r)) continue;
        add_probes(room, loads ? r : self, loads ? self : r, probes, &n);
        if (loads) add_probes(room, r, r, probes, &n);
    }
    return n;
}

/* peer: the other rank. reads: this rank has read the peer's memory; else the peer has written to
 * this rank's. */
static tt_status fail_probe(const struct tt_device_room *room, int peer, bool reads,
                            const struct tt_device_probe *probe)
{
    const int user = reads ? room->config.rank : peer, owner = reads ? peer : room->config.rank;
    const int mine = room->config.gpu, theirs = room->peers[peer].gpu;
    const char *memory = reads ? room->peers[peer].memory : room->memory;
    char how[64];
    if (room->peers[peer].same_gpu)
        snprintf(how, sizeof how, "device memory");
    else
        snprintf(how, sizeof how, "peer access to GPU %d", reads ? theirs : mine);
    return tt_fail(
        TT_ERR_USAGE,
        "rank %d on GPU %d %s wrong bytes %s the memory of rank %d on GPU %d, by %s%s: the word at "
        "byte %llu of %zu is 0x%016llx, expected 0x%016llx. An IOMMU or PCIe ACS may be in the "
        "way: "
        "boot with iommu=pt, turn ACS off, or set TUTTI_DEVICE_KERNELS=0 (through memory of the "
        "host)",
        user, reads ? mine : theirs, reads ? "reads" : "writes", reads ? "from" : "to", owner,
        reads ? theirs : mine, how, room->peers[peer].same_process ? "" : " by IPC",
        (unsigned long long)((const char *)probe->word - memory), room->nbytes,
        (unsigned long long)probe->found, (unsigned long long)probe->value);
}

tt_status tt_device_room_check_probes(const struct tt_device_room *room,
                                      const struct tt_device_probe *probes)
{
    const size_t nchannels = room->shape.nchannels;
    for (int r = 0; r < room->config.nranks; r++) {
        if (!is_mapped(room, r)) continue;
        for (size_t i = 0; i < 2 * nchannels; i++, probes++)
            if (probes->found != probes->value) return fail_probe(room, r, i >= nchannels, probes);
    }
    return TT_OK;
}

/* ---- Questions and the end ------------------------------------------------------------------ */

const struct tt_device_links *tt_device_room_links(const struct tt_device_room *room)
{
    return &room->links;
}

int tt_device_room_sharers(const struct tt_device_room *room)
{
    return room->nsharers;
}

void tt_device_room_describe(const struct tt_device_room *room, int rank, char *text, size_t size)
{
    const struct peer *peer = &room->peers[rank];
    const bool self = rank == room->config.rank;
    if (!is_local(room, rank))
        snprintf(text, size, "pinned memory");
    else if (self || peer->same_gpu)
        snprintf(text, size, "device memory%s", self || peer->same_process ? "" : " by IPC");
    else
        snprintf(text, size, "peer access to GPU %d%s", peer->gpu,
                 peer->same_process ? "" : " by IPC");
}

int tt_device_room_distance(const struct tt_device_room *room, int peer)
{
    return peer == room->config.rank ? TT_NEAR : room->peers[peer].distance;
}

size_t tt_device_room_bytes(const struct tt_device_room *room)
{
    return room->nbytes;
}

void tt_device_room_destroy(struct tt_device_room *room)
{
    if (!room) return;
    for (int r = 0; r < room->config.nranks; r++)
        if (!room->peers[r].same_process)
            tt_context_close_shared(room->context, room->peers[r].memory);
    if (room->context) tt_context_free(room->context, room->memory);
    tt_context_close(room->context);
    free(room->peers);
    free(room);
}
