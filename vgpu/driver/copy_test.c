/* Copies and fills: random rows and slices between all kinds of memory, compared with loops. */
#include "testing.h"

#include <shim.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ROOM = 40000, PLACES = 5 };

static uint64_t seed;

static uint64_t below(uint64_t n)
{
    seed = seed * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (seed >> 33) % n;
}

/* Two allocations on devices, pinned, pageable, and a mapping; and what each must hold. */
static struct {
    CUdeviceptr at[PLACES];
    unsigned char *expected[PLACES];
} places;

static bool make_places(void)
{
    CUmemGenericAllocationHandle handle;
    void *pinned;
    const char *given = getenv("TUTTI_TEST_SEED");
    seed = given != NULL ? strtoull(given, NULL, 10) : (uint64_t)(uintptr_t)&pinned;
    printf("TUTTI_TEST_SEED=%llu\n", (unsigned long long)seed);
    if (places.at[0] == 0) {
        if (cuMemAlloc(&places.at[0], ROOM) != CUDA_SUCCESS) return false;
        vt_current(1);
        if (cuMemAlloc(&places.at[1], ROOM) != CUDA_SUCCESS) return false;
        vt_current(0);
        if (cuMemHostAlloc(&pinned, ROOM, 0) != CUDA_SUCCESS ||
            vt_map(0, 2 << 20, &handle, &places.at[4]) != CUDA_SUCCESS)
            return false;
        places.at[2] = (uintptr_t)pinned;
        places.at[3] = (uintptr_t)calloc(ROOM, 1);
        for (int i = 0; i < PLACES; i++) places.expected[i] = malloc(ROOM);
    }
    for (int i = 0; i < PLACES; i++) {
        for (int k = 0; k < ROOM; k++) places.expected[i][k] = (unsigned char)below(256);
        if (cuMemcpy(places.at[i], (uintptr_t)places.expected[i], ROOM) != CUDA_SUCCESS)
            return false;
    }
    return true;
}

static bool same(int place, unsigned turn)
{
    unsigned char *got = malloc(ROOM);
    bool equal = cuCtxSynchronize() == CUDA_SUCCESS &&
                 cuMemcpy((uintptr_t)got, places.at[place], ROOM) == CUDA_SUCCESS;
    for (int i = 0; equal && i < ROOM; i++) {
        if (got[i] == places.expected[place][i]) continue;
        CHECK_MESSAGE(false, "turn %u, place %d: byte %d is %u, expected %u", turn, place, i,
                      got[i], places.expected[place][i]);
        equal = false;
    }
    free(got);
    return equal;
}

static CUresult copy_box(const CUDA_MEMCPY3D *box, bool async, CUstream stream)
{
    const CUDA_MEMCPY2D rows = {.srcXInBytes = box->srcXInBytes,
                                .srcY = box->srcY,
                                .srcMemoryType = box->srcMemoryType,
                                .srcDevice = box->srcDevice,
                                .srcPitch = box->srcPitch,
                                .dstXInBytes = box->dstXInBytes,
                                .dstY = box->dstY,
                                .dstMemoryType = box->dstMemoryType,
                                .dstDevice = box->dstDevice,
                                .dstPitch = box->dstPitch,
                                .WidthInBytes = box->WidthInBytes,
                                .Height = box->Height};
    if (box->Depth == 1 && box->srcZ == 0 && box->dstZ == 0 && below(4) != 0)
        return async ? cuMemcpy2DAsync(&rows, stream) : cuMemcpy2D(&rows);
    return async ? cuMemcpy3DAsync(box, stream) : cuMemcpy3D(box);
}

static void random_box(unsigned turn, CUstream stream)
{
    const int to = (int)below(PLACES);
    int from = (int)below(PLACES);
    if (from == to) from = (from + 1) % PLACES; /* rows must not overlap */
    CUDA_MEMCPY3D box = {.srcXInBytes = below(9),
                         .srcY = below(3),
                         .srcZ = below(2),
                         .srcMemoryType = CU_MEMORYTYPE_UNIFIED,
                         .srcDevice = places.at[from],
                         .dstXInBytes = below(9),
                         .dstY = below(3),
                         .dstZ = below(2),
                         .dstMemoryType = CU_MEMORYTYPE_UNIFIED,
                         .dstDevice = places.at[to],
                         .WidthInBytes = 1 + below(200),
                         .Height = 1 + below(12),
                         .Depth = 1 + below(4)};
    box.srcPitch = box.srcXInBytes + box.WidthInBytes + below(20);
    box.dstPitch = box.dstXInBytes + box.WidthInBytes + below(20);
    box.srcHeight = box.srcY + box.Height + below(2);
    box.dstHeight = box.dstY + box.Height + below(2);
    OK(copy_box(&box, below(2) == 0, stream));
    for (size_t z = 0; z < box.Depth; z++)
        for (size_t y = 0; y < box.Height; y++)
            memcpy(places.expected[to] +
                       ((box.dstZ + z) * box.dstHeight + box.dstY + y) * box.dstPitch +
                       box.dstXInBytes,
                   places.expected[from] +
                       ((box.srcZ + z) * box.srcHeight + box.srcY + y) * box.srcPitch +
                       box.srcXInBytes,
                   box.WidthInBytes);
    if (below(4) == 0 || from == 3 || to == 3) CHECK(same(to, turn));
    if (from == 3) CHECK(same(from, turn));
}

TEST(copies, of_random_boxes_move_what_loops_move)
{
    REQUIRE(vt_open(2) && make_places());
    /* One order for all: the thread's stream and the legacy stream wait for each other. */
    for (unsigned turn = 0; turn < 400 && !tt_test_failed(); turn++) random_box(turn, NULL);
    for (int i = 0; i < PLACES; i++) CHECK(same(i, 1000));
}

static void random_fill(unsigned turn, CUstream stream)
{
    static const size_t sizes[] = {1, 2, 4};
    int to = (int)below(PLACES);
    if (to == 3) to = 0; /* pageable memory cannot be filled */
    const size_t size = sizes[below(3)], width = 1 + below(100), height = 1 + below(20);
    const size_t offset = below(1000) * size, pitch = (width + below(5)) * size;
    const uint32_t value = (uint32_t)below(UINT64_C(1) << 31);
    const CUdeviceptr at = places.at[to] + offset;
    if (size == 1)
        OK(cuMemsetD2D8Async(at, pitch, (unsigned char)value, width, height, stream));
    else if (size == 2)
        OK(cuMemsetD2D16Async(at, pitch, (unsigned short)value, width, height, stream));
    else
        OK(cuMemsetD2D32Async(at, pitch, value, width, height, stream));
    for (size_t y = 0; y < height; y++)
        for (size_t x = 0; x < width; x++)
            memcpy(places.expected[to] + offset + y * pitch + x * size, &value, size);
    CHECK(same(to, turn));
}

TEST(fills, of_random_rows_write_what_loops_write)
{
    REQUIRE(vt_open(2) && make_places());
    for (unsigned turn = 0; turn < 200 && !tt_test_failed(); turn++) random_fill(turn, NULL);
    for (int i = 0; i < PLACES; i++) CHECK(same(i, 1000));
}

TEST(copies, of_many_mebibytes_arrive_whole)
{
    enum { WORDS = 8 << 20 };
    uint32_t *words = malloc(WORDS * 4), *back = malloc(WORDS * 4);
    CUdeviceptr first, second;
    CUstream stream;
    REQUIRE(vt_open(2));
    for (uint32_t i = 0; i < WORDS; i++) words[i] = i * 2654435761u;
    OK(cuMemAlloc(&first, WORDS * 4));
    OK(cuMemAlloc(&second, WORDS * 4));
    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    OK(cuMemcpyHtoD(first, words, WORDS * 4));
    OK(cuMemcpyDtoDAsync(second, first, WORDS * 4, stream));
    OK(cuMemcpyDtoHAsync(back, second, WORDS * 4, stream)); /* pageable: waits */
    CHECK_EQ(memcmp(words, back, WORDS * 4), 0);
    OK(cuMemsetD32Async(second, 3, WORDS, stream));
    OK(cuStreamSynchronize(stream));
    OK(cuMemcpyDtoH(back, second, WORDS * 4));
    for (uint32_t i = 0; i < WORDS; i++)
        if (back[i] != 3) {
            CHECK_EQ(back[i], 3);
            break;
        }
    OK(cuMemFree(first));
    OK(cuMemFree(second));
    OK(cuStreamDestroy(stream));
    free(words);
    free(back);
}

TEST(copies, from_pageable_memory_take_it_as_it_is_at_the_call)
{
    uint32_t word = 5, *flag, back = 0;
    CUdeviceptr memory;
    CUstream stream;
    REQUIRE(vt_open(2));
    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    OK(cuMemAlloc(&memory, 4096));
    OK(cuMemHostAlloc((void **)&flag, 4096, 0));
    *flag = 0;
    OK(vt_await((uintptr_t)flag, 1, memory + 64, stream)); /* the copy cannot begin yet */
    OK(cuMemcpyHtoDAsync(memory, &word, 4, stream));
    word = 6;
    __atomic_store_n(flag, 1, __ATOMIC_RELEASE);
    OK(cuStreamSynchronize(stream));
    OK(cuMemcpyDtoH(&back, memory, 4));
    CHECK_EQ(back, 5);
    OK(cuMemFree(memory));
    OK(cuMemFreeHost(flag));
    OK(cuStreamDestroy(stream));
}

TEST(copies, with_wrong_arguments_are_refused)
{
    CUdeviceptr memory;
    unsigned char bytes[64];
    REQUIRE(vt_open(2));
    OK(cuMemAlloc(&memory, 64));
    CUDA_MEMCPY2D rows = {.srcMemoryType = CU_MEMORYTYPE_HOST,
                          .srcHost = bytes,
                          .srcPitch = 8,
                          .dstMemoryType = CU_MEMORYTYPE_DEVICE,
                          .dstDevice = memory,
                          .dstPitch = 8,
                          .WidthInBytes = 8,
                          .Height = 8};
    OK(cuMemcpy2D(&rows));
    rows.Height = 9; /* one row beyond the end */
    CHECK_EQ(cuMemcpy2D(&rows), CUDA_ERROR_INVALID_VALUE);
    rows.Height = 2;
    rows.dstPitch = 4; /* rows overlap */
    CHECK_EQ(cuMemcpy2D(&rows), CUDA_ERROR_INVALID_VALUE);
    rows.dstMemoryType = CU_MEMORYTYPE_ARRAY;
    CHECK_EQ(cuMemcpy2D(&rows), CUDA_ERROR_NOT_SUPPORTED);
    CHECK_EQ(cuMemcpy2D(NULL), CUDA_ERROR_INVALID_VALUE);
    rows.dstMemoryType = CU_MEMORYTYPE_DEVICE;
    rows.srcPitch = rows.dstPitch = 1ul << 32;
    rows.Height = (1ul << 32) + 1; /* (Height - 1) * pitch is 2^64 */
    CHECK_EQ(cuMemcpy2D(&rows), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQ(cuMemsetD2D32(memory, 1ul << 32, 0, 1, (1ul << 32) + 1), CUDA_ERROR_INVALID_VALUE);
    OK(cuCtxSynchronize());
    CHECK_EQ(cuMemcpyHtoD(memory, bytes, SIZE_MAX), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQ(cuMemcpyHtoD(memory + 64, bytes, 1), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQ(cuMemsetD32(memory, 0, SIZE_MAX / 4), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQ(cuMemsetD2D32(memory, 6, 0, 1, 2), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQ(cuMemcpyHtoDAsync(memory, bytes, 4, (CUstream)bytes), CUDA_ERROR_INVALID_HANDLE);
    OK(cuMemFree(memory));
}
