/* How kernels wait for words: by a count of looks, in memory that they may only read, behind
 * barriers; and words in constant memory. */
#include "testing.h"

#include <sched.h>
#include <shim.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define HEAD ".version 8.0\n.target sm_75\n.address_size 64\n"

enum { PAGE = 4096 };

static CUfunction load(const char *ptx, CUmodule *module)
{
    CUfunction kernel = NULL;
    OK(cuModuleLoadData(module, ptx));
    OK(cuModuleGetFunction(&kernel, *module, "k"));
    return kernel;
}

/* ---- a wait that counts its looks ---- */

static void counts_its_looks(void)
{
    static const char ptx[] =
        HEAD ".visible .entry k(.param .u64 flag, .param .u32 n) {\n"
             ".reg .u32 %r<4>; .reg .u64 %d<2>; .reg .pred %p<3>;\n"
             "ld.param.u64 %d1, [flag]; ld.param.u32 %r1, [n];\n"
             "A: mov.u32 %r2, 0;\n"
             "W: add.u32 %r2, %r2, 1; setp.eq.u32 %p1, %r2, %r1; @%p1 bra A;\n"
             "ld.acquire.gpu.global.u32 %r3, [%d1]; setp.eq.u32 %p2, %r3, 0; @%p2 bra W; ret; }\n";
    CUmodule module;
    CUfunction kernel = load(ptx, &module);
    CUdeviceptr flag = vt_device(64);
    uint32_t looks = 1000;
    OK(vt_launch(kernel, 1, NULL, (void *[]){&flag, &looks}));
    CHECK_EQ(cuCtxSynchronize(), CUDA_ERROR_LAUNCH_TIMEOUT);
}

TEST(vgpu_flags, a_wait_for_nobody_that_counts_its_looks_is_a_deadlock)
{
    char text[4096];
    CHECK_EQ(vt_run(NULL, counts_its_looks, text, sizeof text), 86);
    CHECK_MESSAGE(strstr(text, "deadlock: all work waits") != NULL, "%s", text);
}

/* ---- a wait for many words, of which another process writes the last ---- */

static void looks_at_many_words(void)
{
    static const char ptx[] =
        HEAD ".visible .entry k(.param .u64 mine, .param .u64 theirs) {\n"
             ".reg .u32 %r<3>; .reg .u64 %d<4>; .reg .pred %p<2>;\n"
             "ld.param.u64 %d1, [mine]; ld.param.u64 %d2, [theirs];\n"
             "W: mov.u32 %r1, 0; mov.u64 %d3, %d1;\n"
             "N: ld.relaxed.sys.global.u32 %r2, [%d3]; setp.ne.u32 %p1, %r2, 0; @%p1 bra E;\n"
             "add.u64 %d3, %d3, 4; add.u32 %r1, %r1, 1; setp.ne.u32 %p1, %r1, 200; @%p1 bra N;\n"
             "ld.relaxed.sys.global.u32 %r2, [%d2]; setp.eq.u32 %p1, %r2, 0; @%p1 bra W;\n"
             "E: ret; }\n";
    CUmodule module;
    CUfunction kernel = load(ptx, &module);
    uint32_t *word = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CUdeviceptr words[2] = {vt_device(1024), (CUdeviceptr)word};
    REQUIRE(word != MAP_FAILED);
    OK(cuMemHostRegister(word, PAGE, 0));
    const pid_t other = fork();
    REQUIRE(other >= 0);
    if (other == 0) {
        usleep(300000);
        __atomic_store_n(word, 1, __ATOMIC_RELEASE);
        _exit(0);
    }
    OK(vt_launch(kernel, 1, NULL, (void *[]){&words[0], &words[1]}));
    OK(cuCtxSynchronize());
    CHECK_EQ(waitpid(other, NULL, 0), other);
}

TEST(vgpu_flags, a_wait_for_many_words_knows_the_one_that_another_process_writes)
{
    vt_quiet(NULL, looks_at_many_words);
}

/* ---- a flag in memory that the GPU may only read ---- */

enum { ROUNDS = 20 };

static void read_only_flag(void)
{
    static const char ptx[] =
        HEAD ".visible .entry k(.param .u64 flag, .param .u64 data, .param .u32 n) {\n"
             ".reg .u32 %r<5>; .reg .u64 %d<3>; .reg .pred %p<3>;\n"
             "ld.param.u64 %d1, [flag]; ld.param.u64 %d2, [data]; ld.param.u32 %r1, [n];\n"
             "mov.u32 %r2, 0;\n"
             "N: add.u32 %r2, %r2, 1;\n"
             "W: ld.acquire.sys.global.u32 %r3, [%d1]; setp.ne.u32 %p1, %r3, %r2; @%p1 bra W;\n"
             "ld.global.u32 %r4, [%d2]; setp.eq.u32 %p1, %r4, %r2; @%p1 bra G; trap;\n"
             "G: st.release.sys.global.u32 [%d2+128], %r2;\n"
             "setp.ne.u32 %p1, %r2, %r1; @%p1 bra N; ret; }\n";
    static uint32_t flag[PAGE / 4] __attribute__((aligned(PAGE)));
    CUmodule module;
    CUfunction kernel = load(ptx, &module);
    volatile uint32_t *data = vt_mapped(256);
    CUdeviceptr words[2] = {(CUdeviceptr)flag, (CUdeviceptr)data};
    uint32_t rounds = ROUNDS;
    OK(cuMemHostRegister(flag, sizeof flag, CU_MEMHOSTREGISTER_READ_ONLY));
    OK(vt_launch(kernel, 1, NULL, (void *[]){&words[0], &words[1], &rounds}));
    for (uint32_t i = 1; i <= ROUNDS; i++) {
        data[0] = i;
        __atomic_store_n(&flag[0], i, __ATOMIC_RELEASE);
        while (__atomic_load_n(&data[32], __ATOMIC_ACQUIRE) != i) {
            const CUresult result = cuStreamQuery(NULL);
            if (result == CUDA_SUCCESS || result == CUDA_ERROR_NOT_READY) continue;
            CHECK_EQ(result, CUDA_SUCCESS);
            return;
        }
    }
    OK(cuCtxSynchronize());
}

TEST(vgpu_flags, in_read_only_memory_of_the_host_hands_on_what_the_host_wrote)
{
    vt_quiet((const char *[]){"VGPU_SEED=1", NULL}, read_only_flag);
    vt_quiet((const char *[]){"VGPU_SEED=2", NULL}, read_only_flag);
}

/* ---- plain loads of the host's memory behind a barrier ---- */

/* Thread 0 waits for the number of a command; the other warp computes for long, and stores
 * nothing. */
static void commands(void)
{
    static const char ptx[] =
        HEAD ".visible .entry k(.param .u64 words, .param .u32 none) {\n"
             ".reg .u32 %r<6>; .reg .u64 %d<2>; .reg .pred %p<3>;\n"
             "ld.param.u64 %d1, [words]; mov.u32 %r1, %tid.x; setp.ne.u32 %p1, %r1, 0;\n"
             "mov.u32 %r2, 0;\n"
             "N: @%p1 bra B; add.u32 %r2, %r2, 1;\n"
             "W: ld.acquire.sys.global.u32 %r3, [%d1]; setp.ne.u32 %p2, %r3, %r2; @%p2 bra W;\n"
             "B: bar.sync 0; mov.u32 %r5, 0; mov.u32 %r3, 0;\n"
             "C: add.u32 %r5, %r5, 1; setp.ne.u32 %p2, %r5, 400; @%p2 bra C;\n"
             "ld.global.u32 %r4, [%d1+256]; bar.sync 0; @%p1 bra D;\n"
             "st.release.sys.global.u32 [%d1+512], %r2;\n"
             "D: setp.ne.u32 %p2, %r4, 2; mov.u32 %r4, 0; @%p2 bra N; ret; }\n";
    CUmodule module;
    CUfunction kernel = load(ptx, &module);
    volatile uint32_t *words = vt_mapped(1024);
    CUdeviceptr at = (CUdeviceptr)words;
    uint32_t none = 0;
    OK(vt_launch(kernel, 64, NULL, (void *[]){&at, &none}));
    for (uint32_t i = 1; i <= 40; i++) {
        words[64] = i == 40 ? 2 : 1;
        __atomic_store_n(&words[0], i, __ATOMIC_RELEASE);
        while (__atomic_load_n(&words[128], __ATOMIC_ACQUIRE) != i) sched_yield();
    }
    OK(cuCtxSynchronize());
}

TEST(vgpu_flags, a_plain_load_that_barriers_order_is_no_wait)
{
    vt_quiet(NULL, commands);
}

/* ---- computing between barriers ---- */

/* The second warp's registers are the same in each round: it only computes, and learns from the
 * first one when to end. */
static void rounds_alike(void)
{
    static const char ptx[] =
        HEAD ".visible .entry k(.param .u32 n) {\n"
             ".reg .u32 %r<6>; .reg .pred %p<4>; .shared .u32 ends;\n"
             "ld.param.u32 %r3, [n]; mov.u32 %r1, %tid.x; setp.ge.u32 %p1, %r1, 32;\n"
             "mov.u32 %r2, 0;\n"
             "N: @!%p1 add.u32 %r2, %r2, 1; bar.sync 0; mov.u32 %r5, 0;\n"
             "C: add.u32 %r5, %r5, 1; setp.ne.u32 %p2, %r5, 700; @%p2 bra C;\n"
             "setp.eq.u32 %p3, %r2, %r3; selp.u32 %r4, 1, 0, %p3; setp.ne.u32 %p3, %r1, 0;\n"
             "@!%p3 st.shared.u32 [ends], %r4; bar.sync 0;\n"
             "ld.shared.u32 %r4, [ends]; setp.eq.u32 %p2, %r4, 0; @%p2 bra N; ret; }\n";
    CUmodule module;
    CUfunction kernel = load(ptx, &module);
    uint32_t rounds = 300;
    OK(vt_launch(kernel, 64, NULL, (void *[]){&rounds}));
    OK(cuCtxSynchronize());
}

TEST(vgpu_flags, rounds_between_barriers_may_be_alike)
{
    vt_quiet((const char *[]){"VGPU_SEED=1", NULL}, rounds_alike);
    vt_quiet((const char *[]){"VGPU_SEED=2", NULL}, rounds_alike);
}

/* ---- a stream that waits for the host beside a kernel that is not known to wait ---- */

/* The kernel waits for what the stream does after the host has written its word; it counts its
 * looks, so that no two are alike. */
static void beside_a_spin(void)
{
    static const char ptx[] =
        HEAD ".visible .entry k(.param .u64 word, .param .u32 none) {\n"
             ".reg .u32 %r<3>; .reg .u64 %d<2>; .reg .pred %p<3>;\n"
             "ld.param.u64 %d1, [word]; mov.u32 %r2, %tid.x; setp.ne.u32 %p2, %r2, 0;\n"
             "mov.u32 %r2, 0; @%p2 bra B;\n"
             "W: add.u32 %r2, %r2, 1; ld.acquire.sys.global.u32 %r1, [%d1];\n"
             "setp.eq.u32 %p1, %r1, 0; @%p1 bra W;\n"
             "B: bar.sync 0; ret; }\n";
    CUmodule module;
    CUfunction kernel = load(ptx, &module);
    volatile uint32_t *host = vt_mapped(64);
    CUdeviceptr word = vt_device(64);
    uint32_t none = 0;
    const CUstream spins = vt_stream(CU_STREAM_NON_BLOCKING);
    const CUstream waits = vt_stream(CU_STREAM_NON_BLOCKING);
    OK(cuMemsetD32(word, 0, 1));
    OK(cuStreamWaitValue32(waits, (CUdeviceptr)(uintptr_t)host, 1, CU_STREAM_WAIT_VALUE_EQ));
    OK(cuStreamWriteValue32(waits, word, 1, CU_STREAM_WRITE_VALUE_DEFAULT));
    OK(vt_launch(kernel, 128, spins, (void *[]){&word, &none}));
    for (int i = 0; i < 200; i++) { /* both have looked */
        CHECK_EQ(cuStreamQuery(spins), CUDA_ERROR_NOT_READY);
        usleep(100);
    }
    __atomic_store_n(&host[0], 1, __ATOMIC_RELEASE);
    OK(cuStreamSynchronize(waits));
    OK(cuCtxSynchronize());
}

TEST(vgpu_flags, a_stream_that_waits_for_the_host_looks_again_while_a_kernel_spins)
{
    vt_quiet(NULL, beside_a_spin);
}

/* ---- a flag in a GPU's memory that the host reads by copies ---- */

/* The kernel waits for the host at its end, so that only the flag orders what follows. It is the
 * first word of what is copied. */
static void flag_by_copies(bool released, size_t nbytes)
{
    static const char ptx[] = HEAD
        ".visible .entry k(.param .u64 data, .param .u64 go, .param .u32 released) {\n"
        ".reg .u32 %r<3>; .reg .u64 %d<3>; .reg .pred %p<3>;\n"
        "ld.param.u64 %d1, [data]; ld.param.u64 %d2, [go]; ld.param.u32 %r1, [released];\n"
        "setp.ne.u32 %p1, %r1, 0; mov.u32 %r2, 7; st.global.u32 [%d1], %r2;\n"
        "@%p1 fence.acq_rel.sys; st.relaxed.sys.global.u32 [%d1+128], %r2;\n"
        "W: ld.acquire.sys.global.u32 %r1, [%d2]; setp.eq.u32 %p2, %r1, 0; @%p2 bra W; ret; }\n";
    CUmodule module;
    CUfunction kernel = load(ptx, &module);
    volatile uint32_t *host = vt_mapped(128 + nbytes);
    CUdeviceptr data = vt_device(128 + nbytes), go = (CUdeviceptr)&host[0];
    const CUstream stream = vt_stream(CU_STREAM_NON_BLOCKING);
    const CUstream other = vt_stream(CU_STREAM_NON_BLOCKING);
    uint32_t word = released;
    OK(vt_launch(kernel, 1, stream, (void *[]){&data, &go, &word}));
    for (word = 0; word != 7;) {
        OK(cuMemcpyDtoHAsync((void *)&host[32], data + 128, nbytes, other));
        OK(cuStreamSynchronize(other));
        word = host[32];
    }
    OK(vt_put(data, 8, other));
    OK(cuStreamSynchronize(other));
    __atomic_store_n(&host[0], 1, __ATOMIC_RELEASE);
    OK(cuCtxSynchronize());
    CHECK_EQ(vt_read(data, 0), 8);
}

static void released_flag_by_copies(void)
{
    flag_by_copies(true, 4);
}

static void released_flag_by_long_copies(void)
{
    flag_by_copies(true, 3 << 20);
}

static void unreleased_flag_by_copies(void)
{
    flag_by_copies(false, 4);
}

TEST(vgpu_flags, that_the_host_reads_by_copies_hand_on_what_was_released)
{
    char text[4096];
    vt_quiet(NULL, released_flag_by_copies);
    vt_quiet(NULL, released_flag_by_long_copies);
    CHECK_EQ(vt_run(NULL, unreleased_flag_by_copies, text, sizeof text), 86);
    CHECK_MESSAGE(strstr(text, "race at ") != NULL, "%s", text);
}

/* ---- constant memory ---- */

static void copy_to_constant(bool ordered)
{
    static const char ptx[] = HEAD ".visible .const .align 4 .b8 settings[64];\n"
                                   ".visible .entry k(.param .u64 out, .param .u32 none) {\n"
                                   ".reg .u32 %r<2>; .reg .u64 %d<2>;\n"
                                   "ld.param.u64 %d1, [out]; ld.const.u32 %r1, [settings+4];\n"
                                   "st.global.u32 [%d1], %r1; ret; }\n";
    CUmodule module;
    CUfunction kernel = load(ptx, &module);
    CUdeviceptr settings = 0, out = vt_device(64);
    size_t nbytes = 0;
    uint32_t none = 0;
    const CUstream stream = vt_stream(CU_STREAM_NON_BLOCKING);
    const CUstream other = ordered ? stream : vt_stream(CU_STREAM_NON_BLOCKING);
    volatile uint32_t *new = vt_mapped(64);
    new[1] = 7;
    OK(cuModuleGetGlobal(&settings, &nbytes, module, "settings"));
    for (int i = 0; i < 2; i++) {
        OK(vt_launch(kernel, 1, stream, (void *[]){&out, &none}));
        OK(cuMemcpyHtoDAsync(settings, (const void *)new, nbytes, other));
    }
    OK(cuCtxSynchronize());
    if (ordered) CHECK_EQ(vt_read(out, 0), 7);
    OK(cuModuleUnload(module));
}

static void copy_beside_a_kernel(void)
{
    copy_to_constant(false);
}

static void copy_between_kernels(void)
{
    copy_to_constant(true);
}

TEST(vgpu_flags, constants_that_a_copy_changes_beside_a_kernel_race)
{
    char text[4096];
    CHECK_EQ(vt_run(NULL, copy_beside_a_kernel, text, sizeof text), 86);
    CHECK_MESSAGE(strstr(text, "race at ") != NULL && strstr(text, "offset 4 of variable settings"),
                  "%s", text);
    vt_quiet(NULL, copy_between_kernels);
}
