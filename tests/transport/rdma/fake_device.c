/* Verbs without a device: a write is a copy, made when it is posted or, where devices hold, later.
 */
#include "transport/rdma/fake_device.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "shim.h"

enum { MOST_PAIRS = 8, MOST_WORK = 512, FIRST_NUMBER = 100, FIRST_KEY = 1000, MOST_GPUS = 8 };

/* to: of a READ, where its bytes go here; from: where they are there. */
struct work {
    uint64_t id, to, from;
    bool has_immediate, is_read;
    uint32_t immediate, nbytes, key;
    char *bytes; /* of a write */
};

struct queue {
    struct ibv_cq queue; /* first */
    struct ibv_wc done[MOST_WORK];
    unsigned first, n;
};

struct pair {
    struct ibv_qp pair; /* first */
    uint32_t peer;      /* number of the other one */
    uint64_t receives[MOST_WORK];
    unsigned first_receive, nreceives;
    struct work work[MOST_WORK];
    unsigned first_work, nwork;
};

/* Memory of a GPU that a device has. */
struct gpu_region {
    struct ibv_mr region; /* first */
    uint64_t base;
    char *host;
};

/* What a device has written to memory of a GPU, and has not come there. */
struct written {
    const struct ibv_context *device;
    char *to, *bytes;
    uint32_t nbytes;
    struct written *next;
};

static struct pair *pairs[MOST_PAIRS]; /* by number */
static bool is_holding, is_holding_reads;
static struct gpu_region *gpus[MOST_GPUS]; /* by key */
static struct written *written, **last_written = &written;
static int refusal, nasked;

/* ---- Memory of GPUs ------------------------------------------------------------------------- */

/* Where the bytes are; *is_gpu: in memory of a GPU. NULL: the key does not say so. */
static char *find(uint64_t address, uint32_t nbytes, uint32_t key, bool *is_gpu)
{
    *is_gpu = key >= FIRST_KEY;
    if (!*is_gpu) return (char *)(uintptr_t)address;
    const struct gpu_region *gpu = key - FIRST_KEY < MOST_GPUS ? gpus[key - FIRST_KEY] : NULL;
    if (!gpu || address < gpu->base || address - gpu->base > gpu->region.length ||
        nbytes > gpu->region.length - (address - gpu->base))
        return NULL;
    return gpu->host + (address - gpu->base);
}

/* The bytes come when the device reads. */
static void write_later(const struct ibv_context *device, char *to, struct work *work)
{
    struct written *new = malloc(sizeof *new);
    REQUIRE(new);
    *new =
        (struct written){.device = device, .to = to, .bytes = work->bytes, .nbytes = work->nbytes};
    work->bytes = NULL;
    *last_written = new;
    last_written = &new->next;
}

/* lands: else they are dropped. */
static void end_written(const struct ibv_context *device, bool lands)
{
    for (struct written **at = &written; *at;) {
        struct written *one = *at;
        if (one->device != device) {
            at = &one->next;
            continue;
        }
        if (lands) memcpy(one->to, one->bytes, one->nbytes);
        *at = one->next;
        free(one->bytes);
        free(one);
    }
    last_written = &written;
    while (*last_written) last_written = &(*last_written)->next;
}

static struct ibv_mr *reg_dmabuf_mr(struct ibv_pd *domain, uint64_t offset, size_t nbytes,
                                    uint64_t base, int fd, int access)
{
    uint32_t i = 0;
    (void)access;
    nasked++;
    while (i < MOST_GPUS && gpus[i]) i++;
    errno = refusal ? refusal : ENOMEM;
    struct gpu_region *gpu = refusal || i == MOST_GPUS ? NULL : calloc(1, sizeof *gpu);
    if (!gpu) return NULL;
    gpu->host = mmap(NULL, nbytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, (off_t)offset);
    if (gpu->host == MAP_FAILED) {
        free(gpu);
        return NULL;
    }
    gpu->base = base;
    gpu->region = (struct ibv_mr){.context = domain->context,
                                  .pd = domain,
                                  .length = nbytes,
                                  .lkey = FIRST_KEY + i,
                                  .rkey = FIRST_KEY + i};
    gpus[i] = gpu;
    return &gpu->region;
}

/* ---- Work ----------------------------------------------------------------------------------- */

static struct pair *pair_numbered(uint32_t number)
{
    return number >= FIRST_NUMBER && number < FIRST_NUMBER + MOST_PAIRS
               ? pairs[number - FIRST_NUMBER]
               : NULL;
}

static void complete(struct ibv_cq *cq, uint64_t id, enum ibv_wc_status status, uint32_t immediate)
{
    struct queue *queue = (struct queue *)cq;
    CHECK(queue->n < MOST_WORK);
    queue->done[(queue->first + queue->n++) % MOST_WORK] =
        (struct ibv_wc){.wr_id = id, .status = status, .imm_data = immediate};
}

static void drop_first(struct pair *pair, enum ibv_wc_status status)
{
    struct work *work = &pair->work[pair->first_work];
    complete(pair->pair.send_cq, work->id, status, 0);
    free(work->bytes);
    pair->first_work = (pair->first_work + 1) % MOST_WORK;
    pair->nwork--;
}

/* Whether the peer's device lets it be done. */
static bool do_work(const struct pair *peer, struct work *work)
{
    bool is_gpu;
    char *there = find(work->is_read ? work->from : work->to, work->nbytes, work->key, &is_gpu);
    if (!there) return false;
    if (work->is_read) {
        if (is_gpu) end_written(peer->pair.context, true);
        memcpy((void *)(uintptr_t)work->to, there, work->nbytes);
    } else if (is_gpu) {
        write_later(peer->pair.context, there, work);
    } else {
        memcpy(there, work->bytes, work->nbytes);
    }
    return true;
}

/* To a peer that has ended nothing goes. */
static void send_all(struct pair *pair)
{
    struct pair *peer = pair_numbered(pair->peer);
    while (pair->nwork && peer && !is_holding) {
        struct work *work = &pair->work[pair->first_work];
        if (work->is_read && is_holding_reads) return;
        if (!do_work(peer, work)) {
            drop_first(pair, IBV_WC_REM_ACCESS_ERR);
            continue;
        }
        if (work->has_immediate) {
            CHECK(peer->nreceives > 0);
            complete(peer->pair.recv_cq, peer->receives[peer->first_receive], IBV_WC_SUCCESS,
                     work->immediate);
            peer->first_receive = (peer->first_receive + 1) % MOST_WORK;
            peer->nreceives--;
        }
        drop_first(pair, IBV_WC_SUCCESS);
    }
}

static int post_send(struct ibv_qp *qp, struct ibv_send_wr *request, struct ibv_send_wr **bad)
{
    struct pair *pair = (struct pair *)qp;
    struct work work = {.id = request->wr_id,
                        .to = request->wr.rdma.remote_addr,
                        .from = request->wr.rdma.remote_addr,
                        .key = request->wr.rdma.rkey,
                        .has_immediate = request->opcode == IBV_WR_RDMA_WRITE_WITH_IMM,
                        .is_read = request->opcode == IBV_WR_RDMA_READ,
                        .immediate = request->imm_data};
    *bad = request;
    if (pair->nwork == MOST_WORK) return ENOMEM;
    for (int i = 0; i < request->num_sge; i++) work.nbytes += request->sg_list[i].length;
    if (work.is_read) work.to = request->sg_list[0].addr;
    work.bytes = work.is_read ? NULL : malloc(work.nbytes + 1);
    for (uint32_t i = 0, at = 0; work.bytes && i < (uint32_t)request->num_sge; i++) {
        const struct ibv_sge *piece = &request->sg_list[i];
        bool is_gpu;
        const char *from = find(piece->addr, piece->length, piece->lkey, &is_gpu);
        CHECK(from);
        if (from) memcpy(work.bytes + at, from, piece->length);
        at += piece->length;
    }
    pair->work[(pair->first_work + pair->nwork++) % MOST_WORK] = work;
    send_all(pair);
    return 0;
}

static int post_receives(struct ibv_qp *qp, struct ibv_recv_wr *request, struct ibv_recv_wr **bad)
{
    struct pair *pair = (struct pair *)qp;
    for (; request; request = request->next) {
        *bad = request;
        if (pair->nreceives == MOST_WORK) return ENOMEM;
        pair->receives[(pair->first_receive + pair->nreceives++) % MOST_WORK] = request->wr_id;
    }
    return 0;
}

static int poll_queue(struct ibv_cq *cq, int most, struct ibv_wc *done)
{
    struct queue *queue = (struct queue *)cq;
    int n = 0;
    for (; n < most && queue->n; n++, queue->n--) {
        done[n] = queue->done[queue->first];
        queue->first = (queue->first + 1) % MOST_WORK;
    }
    return n;
}

static int request_notice(struct ibv_cq *cq, int only_solicited)
{
    (void)cq, (void)only_solicited;
    return 0;
}

void fake_hold(bool holds)
{
    is_holding = holds;
    for (int i = 0; i < MOST_PAIRS; i++)
        if (pairs[i]) send_all(pairs[i]);
}

void fake_hold_reads(bool holds)
{
    is_holding_reads = holds;
    fake_hold(is_holding);
}

void fake_give_up(void)
{
    for (int i = 0; i < MOST_PAIRS; i++)
        while (pairs[i] && pairs[i]->nwork && !pair_numbered(pairs[i]->peer))
            drop_first(pairs[i], IBV_WC_RETRY_EXC_ERR);
}

/* ---- Verbs ---------------------------------------------------------------------------------- */

static struct ibv_mr *reg_mr(struct ibv_pd *domain, void *memory, size_t nbytes, int access)
{
    struct ibv_mr *region = calloc(1, sizeof *region);
    (void)access;
    if (region)
        *region = (struct ibv_mr){
            .context = domain->context, .pd = domain, .addr = memory, .length = nbytes};
    return region;
}

static int dereg_mr(struct ibv_mr *region)
{
    if (region->lkey >= FIRST_KEY) {
        struct gpu_region *gpu = gpus[region->lkey - FIRST_KEY];
        gpus[region->lkey - FIRST_KEY] = NULL;
        end_written(region->context, false);
        munmap(gpu->host, region->length);
    }
    free(region);
    return 0;
}

static struct ibv_cq *create_cq(struct ibv_context *context, int n, void *mine,
                                struct ibv_comp_channel *channel, int vector)
{
    struct queue *queue = calloc(1, sizeof *queue);
    (void)n, (void)vector;
    if (!queue) return NULL;
    queue->queue.context = context;
    queue->queue.cq_context = mine;
    queue->queue.channel = channel;
    return &queue->queue;
}

static int destroy_cq(struct ibv_cq *cq)
{
    free(cq);
    return 0;
}

static struct ibv_qp *create_qp(struct ibv_pd *domain, struct ibv_qp_init_attr *attributes)
{
    int i = 0;
    while (i < MOST_PAIRS && pairs[i]) i++;
    struct pair *pair = i < MOST_PAIRS ? calloc(1, sizeof *pair) : NULL;
    if (!pair) return NULL;
    pair->pair.context = domain->context;
    pair->pair.qp_context = attributes->qp_context;
    pair->pair.send_cq = attributes->send_cq;
    pair->pair.recv_cq = attributes->recv_cq;
    pair->pair.qp_num = FIRST_NUMBER + (uint32_t)i;
    pairs[i] = pair;
    return &pair->pair;
}

static int modify_qp(struct ibv_qp *qp, struct ibv_qp_attr *attributes, int mask)
{
    if (mask & IBV_QP_DEST_QPN) ((struct pair *)qp)->peer = attributes->dest_qp_num;
    return 0;
}

static int destroy_qp(struct ibv_qp *qp)
{
    struct pair *pair = (struct pair *)qp;
    while (pair->nwork) {
        free(pair->work[pair->first_work].bytes);
        pair->first_work = (pair->first_work + 1) % MOST_WORK;
        pair->nwork--;
    }
    pairs[qp->qp_num - FIRST_NUMBER] = NULL;
    free(pair);
    return 0;
}

static int query_device(struct ibv_context *context, struct ibv_device_attr *attributes)
{
    (void)context;
    attributes->max_qp_rd_atom = attributes->max_qp_init_rd_atom = 4;
    return 0;
}

static int query_port(struct ibv_context *context, uint8_t port,
                      struct _compat_ibv_port_attr *attributes)
{
    (void)context, (void)port;
    ((struct ibv_port_attr *)(void *)attributes)->state = IBV_PORT_ACTIVE;
    return 0;
}

static const char *port_state_str(enum ibv_port_state state)
{
    return state == IBV_PORT_ACTIVE ? "active" : "not active";
}

static const char *wc_status_str(enum ibv_wc_status status)
{
    return status == IBV_WC_RETRY_EXC_ERR ? "transport retry counter exceeded" : "another status";
}

static int get_async_event(struct ibv_context *context, struct ibv_async_event *event)
{
    (void)context, (void)event;
    return -1;
}

static int destroy_comp_channel(struct ibv_comp_channel *channel)
{
    free(channel);
    return 0;
}

static int dealloc_pd(struct ibv_pd *domain)
{
    free(domain);
    return 0;
}

static int close_device(struct ibv_context *context)
{
    free(context);
    return 0;
}

static const struct tt_verbs verbs = {.reg_mr = reg_mr,
                                      .dereg_mr = dereg_mr,
                                      .create_cq = create_cq,
                                      .destroy_cq = destroy_cq,
                                      .create_qp = create_qp,
                                      .modify_qp = modify_qp,
                                      .destroy_qp = destroy_qp,
                                      .query_device = query_device,
                                      .reg_dmabuf_mr = reg_dmabuf_mr,
                                      .query_port = query_port,
                                      .port_state_str = port_state_str,
                                      .wc_status_str = wc_status_str,
                                      .get_async_event = get_async_event,
                                      .destroy_comp_channel = destroy_comp_channel,
                                      .dealloc_pd = dealloc_pd,
                                      .close_device = close_device};

/* ---- Ranks ---------------------------------------------------------------------------------- */

static tt_status on_fail(void *owner, int code, const char *text)
{
    struct fake_rank *rank = owner;
    if (!rank->nfailures++) snprintf(rank->failure, sizeof rank->failure, "%s", text);
    return code;
}

static tt_status on_missed(void *owner, int peer)
{
    (void)peer;
    ((struct fake_rank *)owner)->nmissed++;
    return TT_IN_PROGRESS;
}

static void on_look(void *owner, int peer)
{
    struct fake_rank *rank = owner;
    (void)peer;
    rank->nlooks++;
    if (rank->knows_end) tt_rdma_wire_lost(rank->wire);
}

static void on_name(const void *owner, int rank, char *text, size_t size)
{
    (void)owner;
    snprintf(text, size, "rank %d", rank);
}

static const struct tt_room_events events = {
    .fail = on_fail, .missed = on_missed, .look = on_look, .name = on_name};

/* One port with one address. */
static bool open_device(struct tt_rdma *rdma, int rank)
{
    struct tt_rdma_device *device = &rdma->devices[0];
    device->context = calloc(1, sizeof *device->context);
    device->domain = calloc(1, sizeof *device->domain);
    device->channel = calloc(1, sizeof *device->channel);
    if (!device->context || !device->domain || !device->channel) return false;
    snprintf(device->name, sizeof device->name, "fake%d", rank);
    *device->context = (struct ibv_context){.ops = {.poll_cq = poll_queue,
                                                    .req_notify_cq = request_notice,
                                                    .post_send = post_send,
                                                    .post_recv = post_receives},
                                            .cmd_fd = -1,
                                            .async_fd = -1};
    device->domain->context = device->channel->context = device->context;
    device->channel->fd = -1;
    rdma->ports[0] = (struct tt_rdma_port){.device = device,
                                           .number = 1,
                                           .attributes = {.state = IBV_PORT_ACTIVE,
                                                          .active_mtu = IBV_MTU_4096,
                                                          .link_layer = IBV_LINK_LAYER_ETHERNET},
                                           .ngids = 1};
    const uint8_t gid[16] = {[10] = 255, [11] = 255, [12] = 10, [15] = (uint8_t)(rank + 1)};
    memcpy(rdma->ports[0].gids[0].raw, gid, sizeof gid);
    rdma->ndevices = rdma->nports = 1;
    return true;
}

static bool open_rank(struct fake_rank *rank, int number, size_t slot_bytes)
{
    rank->context = (struct tt_room_context){.events = &events,
                                             .owner = rank,
                                             .rank = number,
                                             .nranks = 2,
                                             .nchannels = FAKE_CHANNELS,
                                             .nbridges = 1,
                                             .nmessages = &rank->counters[0],
                                             .nbytes_copied = &rank->counters[1],
                                             .nbytes_direct = &rank->counters[2]};
    rank->rdma = calloc(1, sizeof *rank->rdma);
    if (!rank->rdma) return false;
    *rank->rdma = (struct tt_rdma){
        .verbs = &verbs, .context = &rank->context, .nslots = FAKE_SLOTS, .slot_bytes = slot_bytes};
    return open_device(rank->rdma, number) &&
           !tt_rdma_wire_create(&rank->wire, rank->rdma, 1 - number, &rank->offer);
}

bool fake_open(struct fake_pair *pair, size_t slot_bytes)
{
    memset(pair, 0, sizeof *pair);
    is_holding = is_holding_reads = false;
    refusal = nasked = 0;
    bool opened = true;
    for (int r = 0; r < 2; r++) opened = opened && open_rank(&pair->ranks[r], r, slot_bytes);
    for (int r = 0; r < 2; r++)
        opened = opened && !tt_rdma_wire_connect(pair->ranks[r].wire, &pair->ranks[1 - r].offer);
    CHECK_MESSAGE(opened, "%s", tt_last_error());
    return opened;
}

void fake_end(struct fake_pair *pair, int rank)
{
    tt_rdma_wire_destroy(pair->ranks[rank].wire);
    pair->ranks[rank].wire = NULL;
}

void fake_close(struct fake_pair *pair)
{
    for (int r = 0; r < 2; r++) {
        fake_end(pair, r);
        tt_rdma_close(pair->ranks[r].rdma);
    }
}

/* ---- GPUs ----------------------------------------------------------------------------------- */

tt_status fake_gpu_open(struct fake_gpu *gpu, struct fake_rank *rank, size_t nbytes, int number)
{
    *gpu = (struct fake_gpu){.fd = memfd_create("gpu", MFD_CLOEXEC),
                             .base = (char *)0x200000000000 + number * 0x1000000000,
                             .nbytes = nbytes};
    CHECK(gpu->fd >= 0 && !ftruncate(gpu->fd, (off_t)nbytes));
    gpu->host = mmap(NULL, nbytes, PROT_READ | PROT_WRITE, MAP_SHARED, gpu->fd, 0);
    CHECK(gpu->host != MAP_FAILED);
    const struct tt_dmabuf pages = {.fd = gpu->fd, .base = gpu->base, .nbytes = nbytes};
    return tt_rdma_take_gpu(rank->rdma, &pages, &gpu->taken);
}

void fake_gpu_close(struct fake_gpu *gpu)
{
    munmap(gpu->host, gpu->nbytes);
    close(gpu->fd);
}

void fake_refuse_gpus(int error)
{
    refusal = error;
}

int fake_count_asked(void)
{
    return nasked;
}

int fake_count_gpus(void)
{
    int n = 0;
    for (int i = 0; i < MOST_GPUS; i++) n += gpus[i] != NULL;
    return n;
}
