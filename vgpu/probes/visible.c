/* What becomes visible to whom, and when: tearing of wide accesses, stores to mapped host memory
 * before a kernel ends, their order, and whether a waiting loop ends. */
#include <emmintrin.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "driver.h"

static const char *const wide_names[] = {
    "st.weak.v4.b32, ld.weak.cv.v2.b64",
    "st.relaxed.sys.v2.b64, ld.relaxed.sys.v2.b64",
    "b128 relaxed.sys",
    "b128 relaxed.gpu",
    "volatile v4.b32, v2.b64",
    "two st.relaxed.sys.b64, ld v2.b64 (control)",
    "128 bytes by 8 threads, b128",
    "st.weak.v4.b32 across blocks of 128 threads",
};
enum { NWIDE = 8, LINE128 = 6, CONTROL = 5 };

static const char *const kind_names[] = {
    "weak",
    "relaxed.cta",
    "relaxed.gpu",
    "relaxed.sys",
    "volatile",
    "weak + fence.gpu",
    "weak + fence.sys",
    "release.sys, acquire.sys",
    "release.gpu, acquire.gpu",
    "weak.wt",
};
enum { NKINDS = 10 };

static CUmodule module;

static void run(const char *name, unsigned nblocks, unsigned nthreads, CUstream stream,
                void **arguments)
{
    CHECK(cu.LaunchKernel(get_function(module, name), nblocks, 1, 1, nthreads, 1, 1, 0, stream,
                          arguments, NULL));
}

static void tearing_on_device(void)
{
    CUdeviceptr memory = device_alloc(64 << 20), counts = device_alloc(64);
    const unsigned steps[] = {16, 48, 128};
    for (int kind = 0; kind < NWIDE; kind++)
        for (int s = 0; s < 3; s++) {
            unsigned long long got[4];
            unsigned nturns = 20000, stride = steps[s], offset = 0,
                     nblocks = (unsigned)nprocessors() * 2;
            if (kind == LINE128 && s) continue;
            CHECK(cu.MemsetD8(memory, 0, 64 << 20));
            CHECK(cu.MemsetD8(counts, 0, 64));
            run("tear", nblocks, 128, NULL,
                (void *[]){&memory, &kind, &nturns, &stride, &offset, &counts});
            CHECK(cu.CtxSynchronize());
            CHECK(cu.MemcpyDtoH(got, counts, sizeof got));
            row_begin("visible", "tearing on the device");
            row_text("access", wide_names[kind]);
            row_number("stride", stride);
            row_number("loads", (double)got[0]);
            row_number("changed", (double)got[1]);
            row_number("torn", (double)got[2]);
            row_number("torn_lines_of_128", (double)got[3]);
            row_end();
        }
}

static void tearing_with_host(void)
{
    char *line = mapped_alloc(1 << 20);
    unsigned long long *counts = mapped_alloc(4096);
    atomic_uint *stop = mapped_alloc(4096);
    for (int kind = 0; kind < CONTROL + 1; kind++)
        for (int stores = 0; stores < 2; stores++) {
            unsigned nturns = 400000;
            unsigned long long changed = 0, torn = 0, turns = 0;
            memset(line, 0, 4096);
            memset(counts, 0, 64);
            atomic_store(stop, 0);
            run("tear_with_host", 1, 1, NULL,
                (void *[]){&line, &kind, &stores, &nturns, &stop, &counts});
            const double begin = now_us();
            __m128i before = _mm_setzero_si128();
            for (unsigned s = 1; cu.StreamQuery(NULL) == CUDA_ERROR_NOT_READY; s++) {
                if (now_us() - begin > 1e6) atomic_store(stop, 1);
                for (int i = 0; i < 64; i++, turns++) {
                    if (!stores) {
                        _mm_store_si128((__m128i *)line, _mm_set1_epi32((int)(turns + 1)));
                        atomic_signal_fence(memory_order_seq_cst);
                        continue;
                    }
                    atomic_signal_fence(memory_order_seq_cst);
                    const __m128i got = _mm_load_si128((__m128i *)line);
                    changed += _mm_movemask_epi8(_mm_cmpeq_epi8(got, before)) != 0xffff;
                    before = got;
                    const __m128i first = _mm_shuffle_epi32(got, 0);
                    torn += _mm_movemask_epi8(_mm_cmpeq_epi8(got, first)) != 0xffff;
                }
            }
            CHECK(cu.CtxSynchronize());
            row_begin("visible", stores ? "tearing, device stores, host loads 16 bytes"
                                        : "tearing, host stores 16 bytes, device loads");
            row_text("access", wide_names[kind]);
            row_number("loads", (double)(stores ? turns : counts[0]));
            row_number("changed", (double)(stores ? changed : counts[1]));
            row_number("torn", (double)(stores ? torn : counts[2]));
            row_end();
        }
}

static void store_seen_by_host(void)
{
    atomic_uint *word = mapped_alloc(8192);
    CUdeviceptr stop = device_alloc(64);
    CUstream stream;
    CHECK(cu.StreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    for (int kind = 0; kind < NKINDS; kind++) {
        double times[15];
        int before_end = 0;
        for (int turn = 0; turn < 15; turn++) {
            unsigned long long stay = 30000000;
            atomic_store(word, 0);
            const double begin = now_us();
            run("store_and_stay", 1, 1, stream, (void *[]){&word, &kind, &stay, &stop});
            while (!atomic_load(word) && now_us() - begin < 5e6) {
            }
            times[turn] = now_us() - begin;
            before_end += cu.StreamQuery(stream) == CUDA_ERROR_NOT_READY;
            CHECK(cu.StreamSynchronize(stream));
        }
        row_begin("visible", "a store to mapped host memory, the kernel stays 30 ms");
        row_text("access", kind_names[kind]);
        row_number("runs", 15);
        row_number("seen_before_the_end", before_end);
        row_number("us_from_launch_median", median(times, 15));
        row_number("us_from_launch_most", times[14]);
        row_end();
    }
}

static void change_seen_by_device(void)
{
    atomic_uint *word = mapped_alloc(8192), *started = mapped_alloc(4096);
    unsigned *turns = mapped_alloc(4096);
    CUdeviceptr device_word = device_alloc(4096);
    CUstream stream;
    CHECK(cu.StreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    for (int kind = 0; kind < NKINDS; kind++) {
        unsigned long long stay = 200000000;
        int host_seen = 0, block_seen = 0;
        for (int turn = 0; turn < 5; turn++) {
            atomic_store(word, 0);
            atomic_store(started, 0);
            run("wait_for_change", 1, 1, stream, (void *[]){&word, &kind, &stay, &started, &turns});
            while (!atomic_load(started)) {
            }
            usleep(1000);
            atomic_store(word, 1);
            CHECK(cu.StreamSynchronize(stream));
            host_seen += *turns != 0;
            CHECK(cu.MemsetD8(device_word, 0, 64));
            CHECK(cu.CtxSynchronize());
            run("wait_for_block", 2, 1, stream, (void *[]){&device_word, &kind, &stay, &turns});
            CHECK(cu.StreamSynchronize(stream));
            block_seen += *turns != 0;
        }
        row_begin("visible", "a loop that waits at most 200 ms for a word");
        row_text("access", kind_names[kind]);
        row_number("runs", 5);
        row_number("sees_the_host_store", host_seen);
        row_number("sees_another_block_store", block_seen);
        row_end();
    }
}

static void order_of_stores(void)
{
    atomic_uint *pages = mapped_alloc(1 << 20), *stop = mapped_alloc(4096);
    atomic_uint *first = pages, *second = pages + 4096;
    unsigned long long *counts = mapped_alloc(4096);
    CUstream stream;
    CHECK(cu.StreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    for (int kind = 0; kind < NKINDS; kind++) {
        unsigned nturns = 100000;
        unsigned long long loads = 0, changed = 0, ahead = 0;
        unsigned before = 0;
        atomic_store(first, 0);
        atomic_store(second, 0);
        run("store_in_order", 1, 1, stream, (void *[]){&first, &second, &kind, &nturns});
        const double begin = now_us();
        while (atomic_load(second) < nturns && now_us() - begin < 2e6) {
            const unsigned late = atomic_load_explicit(second, memory_order_acquire);
            const unsigned early = atomic_load_explicit(first, memory_order_acquire);
            loads++;
            changed += late != before;
            before = late;
            ahead += late > early;
        }
        CHECK(cu.StreamSynchronize(stream));
        row_begin("visible",
                  "order, device stores first then second, host loads second then first");
        row_text("access", kind_names[kind]);
        row_number("loads", (double)loads);
        row_number("changed", (double)changed);
        row_number("second_ahead", (double)ahead);
        row_end();

        atomic_store(first, 0);
        atomic_store(second, 0);
        atomic_store(stop, 0);
        run("load_in_order", 1, 1, stream, (void *[]){&first, &second, &kind, &stop, &counts});
        const double start = now_us();
        unsigned s = 0;
        while (now_us() - start < 3e5) {
            s++;
            atomic_store_explicit(first, s, memory_order_release);
            atomic_store_explicit(second, s, memory_order_release);
        }
        atomic_store(stop, 1);
        CHECK(cu.StreamSynchronize(stream));
        row_begin("visible",
                  "order, host stores first then second, device loads second then first");
        row_text("access", kind_names[kind]);
        row_number("loads", (double)counts[0]);
        row_number("changed", (double)counts[1]);
        row_number("second_ahead", (double)counts[2]);
        row_end();
    }
}

int main(void)
{
    driver_open(true);
    module = load_module("visible.fatbin");
    tearing_on_device();
    store_seen_by_host();
    change_seen_by_device();
    order_of_stores();
    tearing_with_host();
    return 0;
}
