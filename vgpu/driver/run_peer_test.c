/* Two GPUs: cuMemcpyPeer is serialized with all work of the contexts that it names, and of the
 * current one; a variable that goes while the other GPU uses it. */
#include "testing.h"

#include <string.h>

static CUdeviceptr from, to;

/* Work in streams of both GPUs that the legacy streams do not wait for, before and behind the copy,
 * in the context of either. */
static void between_streams(CUresult (*copy)(void))
{
    CUstream streams[2];
    CHECK(vt_open(2));
    for (int current = 0; current < 2; current++) {
        vt_current(0);
        to = vt_device(64);
        streams[0] = vt_stream(CU_STREAM_NON_BLOCKING);
        OK(vt_put(to, 1, streams[0]));
        vt_current(1);
        from = vt_device(64);
        streams[1] = vt_stream(CU_STREAM_NON_BLOCKING);
        OK(vt_put(from, 5, streams[1]));
        vt_current(current);
        OK(copy());
        vt_current(0);
        if (current == 1) streams[0] = vt_stream(CU_STREAM_NON_BLOCKING); /* a new one */
        OK(vt_move(to + 32, to, streams[0]));
        OK(cuStreamSynchronize(streams[0]));
        CHECK_EQ(vt_read(to, 8), 5);
        vt_current(1);
        OK(vt_put(from, 6, streams[1]));
        OK(cuCtxSynchronize());
    }
}

static CUresult one_line(void)
{
    return cuMemcpyPeer(to, vt.contexts[0], from, vt.contexts[1], 4);
}

static CUresult box(void)
{
    const CUDA_MEMCPY3D_PEER p = {.srcMemoryType = CU_MEMORYTYPE_DEVICE,
                                  .srcDevice = from,
                                  .srcContext = vt.contexts[1],
                                  .dstMemoryType = CU_MEMORYTYPE_DEVICE,
                                  .dstDevice = to,
                                  .dstContext = vt.contexts[0],
                                  .WidthInBytes = 4,
                                  .Height = 1,
                                  .Depth = 1};
    return cuMemcpy3DPeer(&p);
}

/* This one is ordered in its stream only. */
static CUresult in_a_stream(void)
{
    return cuMemcpyPeerAsync(to, vt.contexts[0], from, vt.contexts[1], 4, NULL);
}

static void lines(void)
{
    between_streams(one_line);
}

static void boxes(void)
{
    between_streams(box);
}

static void unordered(void)
{
    CHECK(vt_open(2));
    vt_current(1);
    from = vt_device(64);
    OK(vt_put(from, 5, vt_stream(CU_STREAM_NON_BLOCKING)));
    vt_current(0);
    to = vt_device(64);
    OK(in_a_stream());
    OK(cuCtxSynchronize());
    vt_current(1);
    OK(cuCtxSynchronize());
}

TEST(vgpu_peer, a_copy_between_contexts_is_serialized_with_their_work)
{
    char text[4096];
    CHECK_MESSAGE(vt_run_unopened(NULL, lines, text, sizeof text) == 0, "%s", text);
    CHECK_MESSAGE(vt_run_unopened(NULL, boxes, text, sizeof text) == 0, "%s", text);
}

TEST(vgpu_peer, a_copy_in_a_stream_is_not)
{
    char text[4096];
    CHECK_EQ(vt_run_unopened(NULL, unordered, text, sizeof text), 86);
    CHECK_MESSAGE(strstr(text, "race") != NULL, "%s", text);
}

static void unload_under_a_kernel(void)
{
    CUmodule module;
    CUdeviceptr word, then;
    CHECK(vt_open(2));
    then = vt_device(64);
    vt_current(1);
    OK(cuModuleLoadData(&module, ".version 8.0\n.target sm_75\n.address_size 64\n"
                                 ".visible .global .u32 word[4];\n"));
    OK(cuModuleGetGlobal(&word, NULL, module, "word"));
    vt_current(0);
    OK(cuCtxEnablePeerAccess(vt.contexts[1], 0));
    OK(vt_await(word, 1, then, NULL));
    for (int i = 0; i < 20; i++) CHECK_EQ(cuStreamQuery(NULL), CUDA_ERROR_NOT_READY);
    vt_current(1);
    OK(cuModuleUnload(module));
    vt_current(0);
    CHECK_EQ(cuCtxSynchronize(), CUDA_ERROR_ILLEGAL_ADDRESS);
}

TEST(vgpu_peer, a_variable_that_goes_under_another_gpus_kernel_fails_it)
{
    char text[4096];
    CHECK_EQ(vt_run_unopened(NULL, unload_under_a_kernel, text, sizeof text), 86);
    CHECK_MESSAGE(strstr(text, "fault") != NULL, "%s", text);
}

/* ---- VGPU_PEER_BROKEN ----------------------------------------------------------------------- */

/* The GPU does so with memory of its own, of the other one, and back. */
static void lose_one_way(void)
{
    CUdeviceptr here, there;
    CHECK(vt_open(2));
    here = vt_device(64);
    vt_current(1);
    there = vt_device(64);
    OK(vt_put(there, 7, NULL));
    OK(cuCtxEnablePeerAccess(vt.contexts[0], 0));
    OK(cuCtxSynchronize());
    vt_current(0);
    OK(cuCtxEnablePeerAccess(vt.contexts[1], 0));
    OK(vt_put(there, 8, NULL));
    OK(vt_move(here, there, NULL));
    OK(vt_put(here + 4, 9, NULL));
    OK(cuCtxSynchronize());
    CHECK_EQ(vt_read(there, 0), 7);
    CHECK_EQ(vt_read(here, 0), UINT32_MAX);
    CHECK_EQ(vt_read(here, 1), 9);
    OK(cuMemcpyPeer(here, vt.contexts[0], there, vt.contexts[1], 4));
    CHECK_EQ(vt_read(here, 0), 7);
    vt_current(1);
    OK(vt_put(here + 8, 10, NULL));
    OK(cuCtxSynchronize());
    CHECK_EQ(vt_read(here, 2), 10);
}

TEST(vgpu_peer, stores_to_memory_behind_a_broken_mapping_are_lost_and_loads_give_ones)
{
    char text[4096];
    const char *const settings[] = {"VGPU_PEER_BROKEN=0-1", NULL};
    CHECK_MESSAGE(vt_run_unopened(settings, lose_one_way, text, sizeof text) == 0, "%s", text);
}
