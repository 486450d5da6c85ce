/* Places ranks and their calls in the memory of one virtual GPU, and compares results. */
#include "world.h"

#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "counts.h"
#include "device/image.h"
#include "device/tables.h"
#include "schedule/collective.h"
#include "shim.h"

#define CU(call) CHECK_EQ(world->cu->call, CUDA_SUCCESS)

/* What the library does not call. */
static void *function(const char *name)
{
    void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    return library ? dlsym(library, name) : NULL;
}

#define OTHER(name, ...)                                                                           \
    do {                                                                                           \
        __typeof__(name) *call_;                                                                   \
        void *symbol_ = function(#name);                                                           \
        memcpy(&call_, &symbol_, sizeof call_);                                                    \
        CHECK_EQ(symbol_ ? call_(__VA_ARGS__) : CUDA_ERROR_NOT_FOUND, CUDA_SUCCESS);               \
    } while (0)

/* ---- Links ---------------------------------------------------------------------------------- */

/* What a rank receives from one peer over one channel; its tails to one; both in its memory. */
struct area {
    uint64_t head[2], tail[2], unused[12];
    struct tt_device_note notes[WORLD_SLOTS];
    _Alignas(16) char slots[WORLD_SLOTS * WORLD_SLOT_BYTES];
    char lines[WORLD_SLOTS * WORLD_LINE_BYTES];
    /* That of the rank itself: what it puts into meetings on the channel. */
    char places[WORLD_SLOTS * WORLD_SLOT_BYTES];
};

static size_t area_at(int peer, int channel)
{
    return ((size_t)peer * WORLD_CHANNELS + (size_t)channel) * sizeof(struct area);
}

static size_t ends_at(const struct world *world)
{
    return area_at(world->config.nranks, 0);
}

static struct tt_device_end end_of(const struct world *world, int rank, int peer, int channel,
                                   bool outgoing)
{
    const int from = outgoing ? rank : peer, to = outgoing ? peer : rank;
    char *in = (char *)(uintptr_t)world->links[to] + area_at(from, channel);
    char *out = (char *)(uintptr_t)world->links[from] + area_at(to, channel);
    char *own = (char *)(uintptr_t)world->links[from] + area_at(from, channel);
    if (from == to)
        return (struct tt_device_end){.places = outgoing ? own + offsetof(struct area, places) : 0,
                                      .outgoing = outgoing};
    return (struct tt_device_end){
        .slots = in + offsetof(struct area, slots),
        .lines = in + offsetof(struct area, lines),
        .head = (uint64_t *)(in + offsetof(struct area, head)),
        .tail = (uint64_t *)(out + offsetof(struct area, tail)),
        .notes = (struct tt_device_note *)(in + offsetof(struct area, notes)),
        .places = own + offsetof(struct area, places),
        .outgoing = outgoing,
        .reaches = world->config.opens                      ? TT_REACHES_OPENED
                   : world->config.reaches || from % 2 == 0 ? TT_REACHES_ALL
                                                            : TT_REACHES_NOTHING,
        .system = world->config.system,
    };
}

static void place_ends(struct world *world, int rank)
{
    const int nranks = world->config.nranks;
    const size_t n = (size_t)nranks * WORLD_CHANNELS * 2;
    struct tt_device_end *ends = calloc(n, sizeof *ends);
    for (int peer = 0; peer < nranks; peer++)
        for (int channel = 0; channel < WORLD_CHANNELS; channel++)
            for (int outgoing = 0; outgoing < 2; outgoing++)
                ends[tt_device_end_at(WORLD_CHANNELS, (uint32_t)peer, (uint32_t)channel,
                                      (uint32_t)outgoing)] =
                    end_of(world, rank, peer, channel, outgoing);
    CU(MemcpyHtoDAsync(world->links[rank] + ends_at(world), ends, n * sizeof *ends, NULL));
    CU(StreamSynchronize(NULL));
    free(ends);
}

static struct tt_device_links links_of(const struct world *world, int rank)
{
    return (struct tt_device_links){
        .ends = (struct tt_device_end *)(uintptr_t)(world->links[rank] + ends_at(world)),
        .nranks = (uint32_t)world->config.nranks,
        .nchannels = WORLD_CHANNELS,
        .nslots = world->config.nslots,
        .slot_bytes = WORLD_SLOT_BYTES,
        .line_bytes = WORLD_LINE_BYTES};
}

/* ---- A world -------------------------------------------------------------------------------- */

/* The kernel of the library, or, for mutants, of the file TT_TEST_KERNELS. */
static bool load(struct world *world, int gpu)
{
    const char *path = getenv("TT_TEST_KERNELS");
    if (!path) {
        CU(ModuleLoadDataEx(&world->modules[gpu], tt_device_image, 0, NULL, NULL));
    } else {
        FILE *file = fopen(path, "rb");
        char *text = calloc(1, 16 << 20);
        CHECK(file && text && fread(text, 1, (16 << 20) - 1, file) > 0);
        CU(ModuleLoadDataEx(&world->modules[gpu], text, 0, NULL, NULL));
        free(text);
        if (file) fclose(file);
    }
    CU(ModuleGetFunction(&world->runs[gpu], world->modules[gpu], "tutti_run"));
    return world->runs[gpu] != NULL;
}

static CUdeviceptr allocate(struct world *world, size_t nbytes)
{
    CUdeviceptr memory = 0;
    CU(MemAlloc(&memory, nbytes ? nbytes : 1));
    return memory;
}

static int ngpus_of(const struct world *world)
{
    return world->config.ngpus ? world->config.ngpus : 1;
}

static int gpu_of(const struct world *world, int rank)
{
    return rank % ngpus_of(world);
}

static bool open_gpus(struct world *world)
{
    bool loaded = true;
    CUcontext context;
    for (int gpu = 0; gpu < ngpus_of(world); gpu++)
        CU(DevicePrimaryCtxRetain(&world->contexts[gpu], gpu));
    for (int gpu = ngpus_of(world) - 1; gpu >= 0; gpu--) {
        CU(CtxPushCurrent(world->contexts[gpu]));
        loaded = load(world, gpu) && loaded;
        for (int other = 0; other < ngpus_of(world); other++)
            if (other != gpu) OTHER(cuCtxEnablePeerAccess, world->contexts[other], 0);
        if (gpu) CU(CtxPopCurrent(&context));
    }
    return loaded;
}

static void open_rank(struct world *world, int r)
{
    const int nranks = world->config.nranks;
    const size_t nbytes =
        ends_at(world) + (size_t)nranks * WORLD_CHANNELS * 2 * sizeof(struct tt_device_end);
    void *report = NULL;
    CUcontext context;
    CU(CtxPushCurrent(world->contexts[gpu_of(world, r)]));
    CU(StreamCreate(&world->streams[r], CU_STREAM_NON_BLOCKING));
    world->links[r] = allocate(world, nbytes);
    world->states[r] = allocate(world, sizeof(struct tt_device_state));
    CU(MemsetD8Async(world->links[r], 0, nbytes, NULL));
    CU(MemsetD8Async(world->states[r], 0, sizeof(struct tt_device_state), NULL));
    CU(MemHostAlloc(&report, sizeof(struct tt_device_report),
                    CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP));
    memset(report, 0, sizeof(struct tt_device_report));
    world->reports[r] = report;
    CU(StreamSynchronize(NULL));
    CU(CtxPopCurrent(&context));
}

bool world_open(struct world *world, const struct world_config *config)
{
    *world = (struct world){.config = *config, .cu = tt_cuda_load()};
    pthread_mutex_init(&world->lock, NULL);
    pthread_cond_init(&world->done, NULL);
    CHECK(world->cu != NULL);
    if (!world->cu) return false;
    if (!open_gpus(world)) return false;
    for (int r = 0; r < config->nranks; r++) open_rank(world, r);
    for (int r = 0; r < config->nranks; r++) place_ends(world, r);
    return true;
}

void world_close(struct world *world)
{
    for (int r = 0; r < world->config.nranks; r++) {
        CU(MemFree(world->links[r]));
        CU(MemFree(world->states[r]));
        CU(MemFreeHost(world->reports[r]));
        CU(StreamDestroy(world->streams[r]));
    }
    CUcontext context;
    for (int gpu = 0; gpu < ngpus_of(world); gpu++) {
        if (gpu) CU(CtxPushCurrent(world->contexts[gpu]));
        CU(ModuleUnload(world->modules[gpu]));
        CU(CtxPopCurrent(&context));
        CU(DevicePrimaryCtxRelease(gpu));
    }
}

static void read_memory(void *arg, void *to, const void *from, size_t nbytes)
{
    world_read(arg, to, (CUdeviceptr)(uintptr_t)from, nbytes);
}

static void write_memory(void *arg, void *to, const void *from, size_t nbytes)
{
    struct world *world = arg;
    CU(MemcpyHtoDAsync((CUdeviceptr)(uintptr_t)to, from, nbytes, NULL));
    CU(StreamSynchronize(NULL));
}

void world_count_from(struct world *world, uint32_t count, bool fresh)
{
    const struct counts_access access = {read_memory, write_memory, world};
    for (int r = 0; r < world->config.nranks; r++) {
        const struct tt_device_links links = links_of(world, r);
        counts_set(&links, &access, count, fresh);
    }
}

uint32_t world_oldest(struct world *world, uint32_t count)
{
    const struct counts_access access = {read_memory, write_memory, world};
    uint32_t oldest = 0;
    for (int r = 0; r < world->config.nranks; r++) {
        const struct tt_device_links links = links_of(world, r);
        const uint32_t age = counts_oldest(&links, &access, count);
        if (age > oldest) oldest = age;
    }
    return oldest;
}

/* TT_DEVICE_STUCK: seconds after which kernels that have not ended stand still. */
static int stuck_after(void)
{
    const char *text = getenv("TT_DEVICE_STUCK");
    return text ? atoi(text) : 40;
}

/* Kernels that stand still are told to end, so that a test fails instead of hanging. */
static void *watch(void *arg)
{
    struct world *world = arg;
    struct timespec until;
    pthread_mutex_lock(&world->lock);
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += stuck_after();
    while (!world->waited)
        if (pthread_cond_timedwait(&world->done, &world->lock, &until) == ETIMEDOUT) {
            CHECK_MESSAGE(false, "the kernels have not ended after %d s", stuck_after());
            world_abort(world, 2);
            break;
        }
    pthread_mutex_unlock(&world->lock);
    return NULL;
}

void world_abort(struct world *world, uint64_t how)
{
    for (int r = 0; r < world->config.nranks; r++)
        __atomic_store_n(&world->reports[r]->abort, how, __ATOMIC_RELAXED);
}

void world_wait(struct world *world)
{
    pthread_t watcher;
    world->waited = false;
    CHECK_EQ(pthread_create(&watcher, NULL, watch, world), 0);
    for (int r = 0; r < world->config.nranks; r++) CU(StreamSynchronize(world->streams[r]));
    pthread_mutex_lock(&world->lock);
    world->waited = true;
    pthread_cond_signal(&world->done);
    pthread_mutex_unlock(&world->lock);
    pthread_join(watcher, NULL);
}

/* ---- A call --------------------------------------------------------------------------------- */

static CUdeviceptr own(struct world *world, struct world_run *run, size_t nbytes)
{
    const CUdeviceptr memory = allocate(world, nbytes);
    run->owned[run->nowned++] = memory;
    return memory;
}

static void *upload(struct world *world, struct world_run *run, const void *data, size_t nbytes)
{
    const CUdeviceptr memory = own(world, run, nbytes);
    if (nbytes) CU(MemcpyHtoDAsync(memory, data, nbytes, world->streams[0]));
    return (void *)(uintptr_t)memory;
}

/* Where the input lies in the output's buffer; the output is all blocks where either is. */
static void place_buffers(struct world *world, const struct world_call *call, int r,
                          struct world_run *run)
{
    const struct job *job = call->job;
    const struct tt_binding *binding = job->bindings[r];
    if (!call->in_place || !job->input_bytes[r] || !job->output_bytes[r]) {
        run->inputs[r] = own(world, run, job->input_bytes[r] + call->misaligned) + call->misaligned;
        run->outputs[r] =
            own(world, run, job->output_bytes[r] + call->misaligned) + call->misaligned;
        return;
    }
    const size_t input_end = binding->skipped[0] + job->input_bytes[r],
                 output_end = binding->skipped[1] + job->output_bytes[r];
    const size_t first =
        binding->skipped[0] < binding->skipped[1] ? binding->skipped[0] : binding->skipped[1];
    const size_t nbytes = (input_end > output_end ? input_end : output_end) - first;
    const CUdeviceptr memory = own(world, run, nbytes + call->misaligned) + call->misaligned;
    run->inputs[r] = memory + binding->skipped[0] - first;
    run->outputs[r] = memory + binding->skipped[1] - first;
}

/* Who has opened the buffers of the rank, at the same addresses. */
static void place_opened(struct world *world, struct world_run *run, int rank,
                         struct tt_device_call *out)
{
    uint64_t row[JOB_MOST_RANKS] = {0};
    const int nranks = world->config.nranks;
    if (!world->config.opens) return;
    for (int peer = 0; peer < nranks; peer++)
        if (!world->config.reaches && rank % 2 && peer % 2) row[peer] = TT_NOT_OPENED;
    out->opened[TT_INPUT] = upload(world, run, row, (size_t)nranks * sizeof *row);
    out->opened[TT_OUTPUT] = out->opened[TT_INPUT];
}

static void place_rank(struct world *world, const struct world_call *call, int r, const char *input,
                       struct world_run *run, struct tt_device_call *out)
{
    const struct job *job = call->job;
    const struct tt_program *program = job->programs[r];
    const struct tt_binding *binding = job->bindings[r];
    const size_t element = binding->element;
    struct tt_device_program device;
    void *memory = NULL;
    CHECK_EQ(tt_device_tables_create(program, WORLD_CHANNELS, &device, &memory), TT_OK);
    device.memory = upload(world, run, memory, device.nbytes);
    place_buffers(world, call, r, run);
    if (job->output_bytes[r])
        CU(MemsetD8Async(run->outputs[r], 0xa5, job->output_bytes[r], world->streams[0]));
    if (job->input_bytes[r])
        CU(MemcpyHtoDAsync(run->inputs[r], input, job->input_bytes[r], world->streams[0]));
    *out = (struct tt_device_call){
        .program = device,
        .binding = *binding,
        .origin = {(char *)(uintptr_t)run->inputs[r] - binding->skipped[0],
                   (char *)(uintptr_t)run->outputs[r] - binding->skipped[1],
                   (char *)(uintptr_t)own(world, run, job->scratch_bytes[r])},
        .links = links_of(world, r),
        .state = (struct tt_device_state *)(uintptr_t)world->states[r],
        .report = world->reports[r],
        .reference_bytes = call->reference_bytes,
        .fold = {.type = job->reduction.type,
                 .op = job->reduction.op,
                 .element = (uint32_t)element,
                 .nranks = (uint32_t)program->nranks},
        .protocol = job->protocol,
        .signature = call->signature + (call->other >> r & 1),
        .nblocks = job_nparts(job)};
    memcpy(&out->fold.scalar, job->reduction.scalar, sizeof out->fold.scalar);
    if (call->scalar_on_device) {
        out->scalar = upload(world, run, job->reduction.scalar, element);
        out->fold.scalar = 0;
    }
    if (binding->table_at) {
        out->table_bytes = (uint32_t)program->nblocks * (uint32_t)sizeof(struct tt_own_block);
        out->blocks = upload(world, run, tt_binding_own_block(binding, 0), out->table_bytes);
        out->binding.table_at = sizeof out->binding;
    }
    place_opened(world, run, r, out);
    free(memory);
}

static struct tt_device_call *call_at(const struct world_run *run, int i)
{
    const int n = TT_DEVICE_MOST_CALLS;
    return (struct tt_device_call *)(uintptr_t)(i < n ? &run->batch.calls[i] : &run->more[i - n]);
}

void world_place(struct world *world, const struct world_call *call, char *const *inputs,
                 struct world_run *run)
{
    const int nranks = call->job->nranks;
    memset(run, 0, sizeof *run);
    for (int i = 0; i < nranks; i++) {
        const int r = call->scrambled ? call->job->nranks - 1 - i : i;
        struct tt_device_call *out = call_at(run, i), *before = i ? call_at(run, i - 1) : NULL;
        place_rank(world, call, r, inputs[r], run, out);
        if (call->absent >> r & 1) out->nblocks = 0;
        out->first_block = before ? before->first_block + before->nblocks : 0;
    }
    run->batch.ncalls = (uint32_t)(nranks < TT_DEVICE_MOST_CALLS ? nranks : TT_DEVICE_MOST_CALLS);
    CU(StreamSynchronize(world->streams[0]));
}

/* On the GPU of the rank, in its stream. */
static void launch(struct world *world, const struct tt_device_batch *batch, int rank)
{
    uint32_t nblocks = 0;
    CUcontext context;
    CU(CtxPushCurrent(world->contexts[gpu_of(world, rank)]));
    for (uint32_t i = 0; i < batch->ncalls; i++) nblocks += batch->calls[i].nblocks;
    if (nblocks)
        CU(LaunchKernel(world->runs[gpu_of(world, rank)], nblocks, 1, 1, WORLD_THREADS, 1, 1,
                        world->config.narrow ? WORLD_NARROW_BYTES : TT_DEVICE_MOST_COPIED,
                        world->streams[rank], (void *[]){(void *)(uintptr_t)batch}, NULL));
    CU(CtxPopCurrent(&context));
}

void world_launch(struct world *world, const struct world_call *call, const struct world_run *run)
{
    const int nranks = call->job->nranks;
    if (!call->apart && ngpus_of(world) == 1) {
        launch(world, &run->batch, 0);
        return;
    }
    for (int i = 0; i < nranks; i++) {
        struct tt_device_batch one = {.ncalls = 1};
        one.calls[0] = *call_at(run, i);
        one.calls[0].first_block = 0;
        launch(world, &one, call->scrambled ? nranks - 1 - i : i);
    }
}

void world_remove(struct world *world, struct world_run *run)
{
    for (int i = 0; i < run->nowned; i++) CU(MemFree(run->owned[i]));
}

/* ---- A trial -------------------------------------------------------------------------------- */

static uint64_t mix(uint64_t x)
{
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9;
    x = (x ^ x >> 27) * 0x94d049bb133111eb;
    return x ^ x >> 31;
}

/* Floats of 4 and 8 bytes are mostly numbers of like size, so that the order of a fold shows; other
 * types are any bits. */
static void fill(char *data, size_t nbytes, enum tt_type type, uint64_t seed)
{
    for (size_t i = 0; i < nbytes; i++) data[i] = (char)mix(seed + i);
    if (type == TT_FLOAT32)
        for (size_t i = 0; i + 4 <= nbytes; i += 4) {
            const float value = (float)((double)(int64_t)mix(seed ^ i) / 0x1p63);
            memcpy(data + i, &value, 4);
        }
    if (type == TT_FLOAT64)
        for (size_t i = 0; i + 8 <= nbytes; i += 8) {
            const double value = (double)(int64_t)mix(seed ^ i) / 0x1p63;
            memcpy(data + i, &value, 8);
        }
}

void world_read(const struct world *world, void *to, CUdeviceptr from, size_t nbytes)
{
    (void)world;
    OTHER(cuMemcpyDtoH_v2, to, from, nbytes);
}

static bool compare(const struct world *world, const struct world_call *call,
                    const struct world_run *run, char *const *wanted, const char *what)
{
    bool right = true;
    for (int r = 0; r < call->job->nranks; r++) {
        const size_t nbytes = call->job->output_bytes[r];
        if (!nbytes) continue;
        char *got = malloc(nbytes);
        world_read(world, got, run->outputs[r], nbytes);
        size_t i = 0;
        while (i < nbytes && got[i] == wanted[r][i]) i++;
        CHECK_MESSAGE(i == nbytes, "%s: byte %zu of %zu of rank %d's output is %02x, not %02x",
                      what, i, nbytes, r, (unsigned char)got[i], (unsigned char)wanted[r][i]);
        right = right && i == nbytes;
        free(got);
    }
    return right;
}

static bool compare_reports(const struct world *world, const char *what)
{
    bool right = true;
    for (int r = 0; r < world->config.nranks; r++) {
        const struct tt_device_report *report = world->reports[r];
        const bool counted = report->nbegun == world->ncalls && report->nended == world->ncalls;
        CHECK_MESSAGE(counted && !report->failure,
                      "%s: rank %d has begun %llu and ended %llu of %llu calls; failure %u of peer "
                      "%d, channel %u, step %u",
                      what, r, (unsigned long long)report->nbegun,
                      (unsigned long long)report->nended, (unsigned long long)world->ncalls,
                      report->failure, report->peer, report->channel, report->step);
        right = right && counted && !report->failure;
    }
    return right;
}

bool world_try(struct world *world, const struct world_call *call, const char *what, uint64_t seed)
{
    const struct job *job = call->job;
    char *inputs[JOB_MOST_RANKS], *wanted[JOB_MOST_RANKS];
    struct world_run run;
    for (int r = 0; r < job->nranks; r++) {
        inputs[r] = malloc(job->input_bytes[r] + 1);
        wanted[r] = malloc(job->output_bytes[r] + 1);
        memset(wanted[r], 0xa5, job->output_bytes[r] + 1);
        fill(inputs[r], job->input_bytes[r], job->reduction.type, mix(seed) + (uint64_t)r);
    }
    world_place(world, call, inputs, &run);
    const unsigned ntimes = call->ntimes ? call->ntimes : 1;
    for (unsigned i = 0; i < ntimes; i++) {
        world_launch(world, call, &run);
        world->ncalls++;
    }
    world_wait(world);
    job_simulate(job, inputs, wanted);
    bool right = compare_reports(world, what);
    right = compare(world, call, &run, wanted, what) && right;
    world_remove(world, &run);
    for (int r = 0; r < job->nranks; r++) {
        free(inputs[r]);
        free(wanted[r]);
    }
    return right;
}
