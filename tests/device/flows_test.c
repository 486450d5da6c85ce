/* How often the threads of a block wait for one another in an exchange, counted by the virtual GPU:
 * in each turn as often for many flows as for one. */
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <vgpu/traffic.h>

#include "ranks_on_gpus.h"
#include "shim.h"

/* A message is divided into parts of so many bytes (carrier/kernel/gather.c), each a flow. The GPU
 * runs so many blocks at the same time. */
enum { PART = 128 << 10, BLOCKS = 4, MOST_PARTS = 4 * BLOCKS };

static __typeof__(vgpu_traffic) *traffic_of;

static struct vgpu_traffic count(void)
{
    struct vgpu_traffic traffic = {0};
    CHECK_EQ(traffic_of(0, &traffic), 0);
    return traffic;
}

/* Two messages of a rank to itself, each of nparts flows: what the GPU did meanwhile. */
static struct vgpu_traffic send_to_oneself(struct gpu_rank *rank, int nparts)
{
    const size_t nbytes = (size_t)nparts * PART;
    char *memory = gpu_memory(rank->gpu, 4 * nbytes), *bytes = malloc(2 * nbytes);
    char *got = malloc(2 * nbytes);
    for (size_t i = 0; i < 2 * nbytes; i++) bytes[i] = (char)(i * 7 + i / 251);
    gpu_write(rank->gpu, memory, bytes, 2 * nbytes);
    const struct vgpu_traffic before = count();
    CHECK_EQ(tuttiGroupStart(), tuttiSuccess);
    for (int i = 0; i < 2; i++) {
        char *from = memory + (size_t)i * nbytes, *to = from + 2 * nbytes;
        CHECK_EQ(tuttiSend(from, nbytes, tuttiUint8, 0, rank->comm, NULL), tuttiSuccess);
        CHECK_EQ(tuttiRecv(to, nbytes, tuttiUint8, 0, rank->comm, NULL), tuttiSuccess);
    }
    CHECK_EQ(tuttiGroupEnd(), tuttiSuccess);
    const struct vgpu_traffic after = count();
    gpu_read(rank->gpu, got, memory + 2 * nbytes, 2 * nbytes);
    CHECK(memcmp(bytes, got, 2 * nbytes) == 0);
    gpu_free(memory);
    free(bytes);
    free(got);
    return (struct vgpu_traffic){.barriers = after.barriers - before.barriers,
                                 .launches = after.launches - before.launches};
}

static void compare(struct gpu_rank *rank)
{
    uint64_t few = 0;
    for (int nparts = BLOCKS; nparts <= MOST_PARTS; nparts *= 2) {
        const struct vgpu_traffic t = send_to_oneself(rank, nparts);
        printf("%d flows a block: %.1f barriers a block\n", nparts / BLOCKS,
               (double)t.barriers / BLOCKS);
        CHECK_EQ(t.launches, 1);
        if (nparts == BLOCKS) few = t.barriers;
        CHECK_EQ(t.barriers, few);
    }
}

TEST(device_flows, of_a_block_move_without_waiting_for_one_another)
{
    void *library = dlopen("libcuda.so.1", RTLD_NOW);
    void *symbol = library ? dlsym(library, "vgpu_traffic") : NULL;
    REQUIRE(symbol);
    memcpy(&traffic_of, &symbol, sizeof symbol);
    on_gpus(1, 1, NULL, compare, NULL);
}
