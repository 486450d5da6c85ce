/* Bandwidths: copy and fold kernels by number of blocks, and the driver's copies. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "speed.h"

static CUevent begin_event, end_event;

static double event_us(void)
{
    float ms;
    CHECK(cu.EventSynchronize(end_event));
    CHECK(cu.EventElapsedTime(&ms, begin_event, end_event));
    return (double)ms * 1000;
}

/* GB/s counted as bytes read and written. */
static void kernel_row(const char *name, unsigned nblocks, unsigned nthreads, size_t nbytes,
                       int streams)
{
    CUdeviceptr dst = device_alloc(nbytes), a = device_alloc(nbytes), b = device_alloc(nbytes);
    CUfunction function = get_function(speed_module, name);
    size_t n = nbytes / 16;
    double times[7];
    for (int r = -1; r < 7; r++) {
        CHECK(cu.EventRecord(begin_event, NULL));
        CHECK(cu.LaunchKernel(function, nblocks, 1, 1, nthreads, 1, 1, 0, NULL,
                              (void *[]){&dst, &a, &b, &n}, NULL));
        CHECK(cu.EventRecord(end_event, NULL));
        const double us = event_us();
        if (r >= 0) times[r] = us;
    }
    const double us = median(times, 7);
    row_begin("bandwidth", name);
    row_number("blocks", nblocks);
    row_number("threads", nthreads);
    row_number("bytes", (double)nbytes);
    row_number("us", us);
    row_number("gb_per_s_all_traffic", (double)nbytes * streams / us / 1000);
    row_end();
    CHECK(cu.MemFree(dst));
    CHECK(cu.MemFree(a));
    CHECK(cu.MemFree(b));
}

static void words_row(size_t offset)
{
    const size_t nbytes = 256 << 20;
    CUdeviceptr dst = device_alloc(nbytes + 64), a = device_alloc(nbytes + 64), from = a + offset;
    size_t n = nbytes / 4;
    double times[7];
    for (int r = 0; r < 7; r++) {
        CHECK(cu.EventRecord(begin_event, NULL));
        CHECK(cu.LaunchKernel(get_function(speed_module, "copy_words"), 528, 1, 1, 512, 1, 1, 0,
                              NULL, (void *[]){&dst, &from, &n}, NULL));
        CHECK(cu.EventRecord(end_event, NULL));
        times[r] = event_us();
    }
    row_begin("bandwidth", "copy in words of 4 bytes");
    row_number("offset", (double)offset);
    row_number("gb_per_s_all_traffic", (double)nbytes * 2 / median(times, 7) / 1000);
    row_end();
    CHECK(cu.MemFree(dst));
    CHECK(cu.MemFree(a));
}

void speed_kernels(void)
{
    static const unsigned blocks[] = {1, 2, 4, 8, 16, 24, 32, 48, 64, 96, 132, 264, 528};
    static const struct {
        const char *name;
        unsigned nthreads;
        int streams;
    } kernels[] = {{"copy1", 512, 2}, {"copy4", 512, 2}, {"copy8", 512, 2}, {"fold1", 512, 3},
                   {"fold4", 512, 3}, {"copy4", 256, 2}, {"fold4", 256, 3}, {"copy4", 1024, 2}};
    CHECK(cu.EventCreate(&begin_event, 0));
    CHECK(cu.EventCreate(&end_event, 0));
    for (size_t k = 0; k < sizeof kernels / sizeof *kernels; k++)
        for (size_t b = 0; b < sizeof blocks / sizeof *blocks; b++)
            kernel_row(kernels[k].name, blocks[b], kernels[k].nthreads, 256 << 20,
                       kernels[k].streams);
    /* What fits into the L2 cache. */
    for (size_t nbytes = 1 << 20; nbytes <= 64 << 20; nbytes *= 4)
        for (unsigned nblocks = 16; nblocks <= 264; nblocks *= 4) {
            kernel_row("copy4", nblocks, 512, nbytes, 2);
            kernel_row("fold4", nblocks, 512, nbytes, 3);
        }
    for (size_t offset = 0; offset < 16; offset += 4) words_row(offset);
}

static void copy_row(const char *name, CUdeviceptr to, CUdeviceptr from, size_t nbytes)
{
    double times[9];
    const int count = nbytes >= 64 << 20 ? 5 : 9;
    for (int r = -1; r < count; r++) {
        const double begin = now_us();
        CHECK(cu.MemcpyAsync(to, from, nbytes, NULL));
        CHECK(cu.StreamSynchronize(NULL));
        if (r >= 0) times[r] = now_us() - begin;
    }
    const double us = median(times, count);
    row_begin("copy", name);
    row_number("bytes", (double)nbytes);
    row_number("us", us);
    row_number("gb_per_s", (double)nbytes / us / 1000);
    row_end();
}

void speed_copies(void)
{
    static const size_t sizes[] = {8, 4096, 65536, 1 << 20, 16 << 20, 256 << 20};
    const size_t most = 256 << 20;
    CUdeviceptr first = device_alloc(most), second = device_alloc(most);
    void *pinned = mapped_alloc(most), *plain = malloc(most);
    memset(plain, 1, most);
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        copy_row("device to device", first, second, sizes[i]);
        copy_row("pinned host to device", first, (uintptr_t)pinned, sizes[i]);
        copy_row("device to pinned host", (uintptr_t)pinned, first, sizes[i]);
        copy_row("pageable host to device", first, (uintptr_t)plain, sizes[i]);
        copy_row("device to pageable host", (uintptr_t)plain, first, sizes[i]);
    }
    /* A kernel that moves data through mapped host memory. */
    CUfunction function = get_function(speed_module, "copy4");
    for (int direction = 0; direction < 2; direction++)
        for (unsigned nblocks = 1; nblocks <= 64; nblocks *= 4) {
            size_t nbytes = 64 << 20, n = nbytes / 16;
            CUdeviceptr to = direction ? (uintptr_t)pinned : first,
                        from = direction ? first : (CUdeviceptr)(uintptr_t)pinned;
            double times[5];
            for (int r = 0; r < 5; r++) {
                CHECK(cu.EventRecord(begin_event, NULL));
                CHECK(cu.LaunchKernel(function, nblocks, 1, 1, 512, 1, 1, 0, NULL,
                                      (void *[]){&to, &from, &from, &n}, NULL));
                CHECK(cu.EventRecord(end_event, NULL));
                times[r] = event_us();
            }
            row_begin("copy", direction ? "kernel, device to mapped host"
                                        : "kernel, mapped host to device");
            row_number("blocks", nblocks);
            row_number("gb_per_s", (double)nbytes / median(times, 5) / 1000);
            row_end();
        }
}
