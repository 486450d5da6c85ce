/* The other process of the tests of memory: plays the role that its first argument names. Standard
 * input is a socket to the test. A role that fails says the line and ends with status 1. */
#include "testing.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { SOCKET = STDIN_FILENO, SIZE = 2 << 20 };

/* In place of those of tests/shim.cpp. */
void tt_test_fail(const char *file, int line, const char *format, ...)
{
    va_list args;
    fprintf(stderr, "%s:%d: ", file, line);
    va_start(args, format);
    vfprintf(stderr, format, args);
    va_end(args);
    fprintf(stderr, "\n");
    _exit(1);
}

bool tt_test_failed(void)
{
    return false;
}

static void meet(void)
{
    char byte = 1;
    CHECK(vt_send(SOCKET, &byte, 1));
    CHECK(vt_receive(SOCKET, &byte, 1));
}

/* The test ends the role, or kills it. */
static void wait_for_end(void)
{
    char byte;
    while (read(SOCKET, &byte, 1) > 0) {
    }
}

/* It begins within a page, as most do. */
static CUdeviceptr own_memory(uint32_t value)
{
    CUdeviceptr small, memory;
    OK(cuMemAlloc(&small, 512));
    OK(cuMemAlloc(&memory, SIZE));
    CHECK(memory % 4096 != 0);
    OK(cuMemsetD32(memory, value, SIZE / 4));
    OK(cuCtxSynchronize());
    return memory;
}

/* ---- owners ---- */

static CUdeviceptr share_ipc(void)
{
    CUipcMemHandle handle;
    const CUdeviceptr memory = own_memory(7);
    OK(cuIpcGetMemHandle(&handle, memory));
    CHECK(vt_send(SOCKET, &handle, sizeof handle));
    return memory;
}

static void ipc_owner(void)
{
    uint32_t word = 0;
    const CUdeviceptr memory = share_ipc();
    meet(); /* the test has written */
    OK(cuMemcpyDtoH(&word, memory + 4096, 4));
    CHECK(word == 1234);
    OK(vt_put(memory + 8192, 4321, NULL));
    OK(cuCtxSynchronize());
    meet();
    OK(cuMemFree(memory));
    meet();
    wait_for_end();
}

static void ipc_waiter(void)
{
    const CUdeviceptr memory = share_ipc();
    OK(vt_await(memory, 99, memory + 64, NULL));
    meet();
    wait_for_end();
}

/* Frees what it has shared, and its descriptor's number is something else's afterwards. */
static void ipc_replacer(void)
{
    CUipcMemHandle handle;
    CUdeviceptr memory = share_ipc();
    OK(cuMemFree(memory));
    memory = own_memory(8);
    OK(cuIpcGetMemHandle(&handle, memory));
    meet();
    wait_for_end();
}

static void vmm_owner(void)
{
    CUmemGenericAllocationHandle handle;
    CUdeviceptr memory;
    uint32_t word = 0;
    int fd = -1;
    OK(vt_map(0, SIZE, &handle, &memory));
    OK(cuMemsetD32(memory, 7, SIZE / 4));
    OK(cuCtxSynchronize());
    OK(cuMemExportToShareableHandle(&fd, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
    vt_send_fd(SOCKET, fd);
    close(fd);
    meet(); /* the test has written */
    OK(vt_move(memory + 64, memory + 4096, NULL));
    OK(cuMemcpyDtoH(&word, memory + 64, 4));
    CHECK(word == 1234);
    OK(vt_put(memory + 8192, 4321, NULL));
    OK(cuCtxSynchronize());
    meet();
    OK(cuMemUnmap(memory, SIZE));
    OK(cuMemRelease(handle));
    meet();
    wait_for_end();
}

/* Its kernel waits for a word of memory that it has mapped and shared; the test writes the word. */
static void vmm_waiter(void)
{
    CUmemGenericAllocationHandle handle;
    CUdeviceptr memory;
    int fd = -1;
    OK(vt_map(0, SIZE, &handle, &memory));
    OK(cuMemsetD32(memory, 0, 64));
    OK(cuCtxSynchronize());
    OK(vt_await(memory, 99, memory + 64, NULL));
    OK(cuMemExportToShareableHandle(&fd, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
    vt_send_fd(SOCKET, fd);
    OK(cuCtxSynchronize());
    meet();
}

/* Opens what the test shares and says the first word; writes the second one. */
static void ipc_taker(void)
{
    CUipcMemHandle handle;
    CUdeviceptr memory, again;
    uint32_t word = 0;
    CHECK(vt_receive(SOCKET, &handle, sizeof handle));
    OK(cuIpcOpenMemHandle(&memory, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
    OK(cuIpcOpenMemHandle(&again, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
    CHECK(again == memory);
    OK(cuMemcpyDtoH(&word, memory, 4));
    OK(vt_put(memory + 4, word + 1, NULL));
    OK(cuCtxSynchronize());
    OK(cuIpcCloseMemHandle(memory));
    OK(cuMemcpyDtoH(&word, memory + 4, 4)); /* it was opened twice */
    OK(cuIpcCloseMemHandle(memory));
    CHECK(cuMemcpyDtoH(&word, memory, 4) == CUDA_ERROR_INVALID_VALUE);
    CHECK(cuIpcCloseMemHandle(memory) == CUDA_ERROR_INVALID_VALUE);
    meet();
}

/* Records an event behind a kernel that waits for a word of the test. */
static void event_owner(void)
{
    CUipcEventHandle handle;
    CUipcMemHandle shared;
    CUevent event;
    const CUdeviceptr memory = own_memory(0);
    OK(cuEventCreate(&event, CU_EVENT_INTERPROCESS | CU_EVENT_DISABLE_TIMING));
    OK(cuIpcGetEventHandle(&handle, event));
    OK(cuIpcGetMemHandle(&shared, memory));
    OK(vt_await(memory, 99, memory + 64, NULL));
    OK(cuEventRecord(event, NULL));
    CHECK(cuEventQuery(event) == CUDA_ERROR_NOT_READY);
    CHECK(vt_send(SOCKET, &handle, sizeof handle));
    CHECK(vt_send(SOCKET, &shared, sizeof shared));
    meet(); /* the test has written the word, and waited for the event */
    OK(cuEventQuery(event));
    OK(cuEventDestroy(event));
    meet();
}

/* ---- mistakes ---- */

static void touch(void)
{
    const CUdeviceptr memory = own_memory(1);
    *(volatile char *)(uintptr_t)(memory + 5) = 1;
}

static sigjmp_buf back;
static void jump(int number)
{
    siglongjmp(back, number);
}

static void jump_with_address(int number, siginfo_t *info, void *context)
{
    (void)context;
    if (((uintptr_t)info->si_addr & 511) == 5) siglongjmp(back, number);
    _exit(4);
}

static void touch_with_handler(void)
{
    const CUdeviceptr memory = own_memory(1);
    if (sigsetjmp(back, 1) == 0) {
        touch();
    } else {
        uint32_t word = 0;
        OK(cuMemcpyDtoH(&word, memory, 4));
        CHECK(word == 1);
    }
}

static void touch_freed(void)
{
    const CUdeviceptr memory = own_memory(1);
    OK(cuMemFree(memory));
    *(volatile char *)(uintptr_t)(memory + 5) = 1;
}

static void kernel_after_free(void)
{
    const CUdeviceptr memory = own_memory(1);
    OK(cuMemFree(memory));
    OK(vt_put(memory + 8, 1, NULL));
    CHECK(cuCtxSynchronize() == CUDA_ERROR_ILLEGAL_ADDRESS);
}

/* The memory goes while a kernel uses it. */
static void unmap_under_kernel(void)
{
    CUmemGenericAllocationHandle handle;
    CUdeviceptr memory;
    OK(vt_map(0, SIZE, &handle, &memory));
    OK(vt_await(memory, 1, memory + 64, NULL));
    for (int i = 0; i < 1000; i++) /* lets it run a few steps */
        CHECK(cuStreamQuery(NULL) == CUDA_ERROR_NOT_READY);
    OK(cuMemUnmap(memory, SIZE));
    CHECK(cuCtxSynchronize() == CUDA_ERROR_ILLEGAL_ADDRESS);
}

static void kernel_after_free_async(void)
{
    CUdeviceptr memory;
    OK(cuMemAllocAsync(&memory, 64, NULL));
    OK(vt_put(memory, 1, NULL));
    OK(cuMemFreeAsync(memory, NULL));
    OK(vt_put(memory, 2, NULL));
    CHECK(cuCtxSynchronize() == CUDA_ERROR_ILLEGAL_ADDRESS);
}

static void kernel_without_peer_access(void)
{
    const CUdeviceptr memory = own_memory(1);
    vt_current(1);
    OK(vt_put(memory, 2, NULL));
    CHECK(cuCtxSynchronize() == CUDA_ERROR_ILLEGAL_ADDRESS);
}

/* A kernel writes, and a copy of another stream reads. */
static void copy_beside(bool ordered, bool awaited)
{
    static uint32_t word;
    const CUdeviceptr memory = own_memory(1);
    CUstream first, second;
    CUevent event;
    OK(cuStreamCreate(&first, CU_STREAM_NON_BLOCKING));
    OK(cuStreamCreate(&second, CU_STREAM_NON_BLOCKING));
    OK(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    OK(vt_put(memory, 2, first));
    OK(cuEventRecord(event, first));
    if (ordered) OK(cuStreamWaitEvent(second, event, 0));
    if (ordered && awaited) OK(cuEventSynchronize(event));
    if (awaited)
        OK(cuMemcpyDtoH(&word, memory, 4));
    else
        OK(cuMemcpyDtoDAsync(memory + 64, memory, 4, second));
    OK(cuCtxSynchronize());
}

static void copy_races(void)
{
    copy_beside(false, false);
}
static void copy_ordered(void)
{
    copy_beside(true, false);
}
static void awaited_copy_races(void)
{
    copy_beside(false, true);
}
static void awaited_copy_ordered(void)
{
    copy_beside(true, true);
}

/* A copy that the host waits for is before everything that the host submits later. */
static void copies_before_kernels(void)
{
    static uint32_t words[SIZE / 4];
    const CUdeviceptr memory = own_memory(1);
    CUstream stream;
    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    for (int i = 0; i < 4; i++) {
        OK(cuMemcpyHtoD(memory, words, SIZE));
        OK(vt_put(memory + 4096, 2, stream));
        OK(cuStreamSynchronize(stream));
        OK(cuMemcpyDtoH(words, memory, SIZE));
        CHECK(words[1024] == 2);
    }
}

/* A fill that the host does not wait for, and a kernel of another stream. */
static void fill_races(void)
{
    const CUdeviceptr memory = own_memory(1);
    CUstream stream;
    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    OK(cuMemsetD32(memory, 5, SIZE / 4));
    OK(vt_put(memory + 4096, 2, stream));
    OK(cuCtxSynchronize());
}

/* Far from where the system puts what is mapped next: nothing else lies there when it is gone. */
static void unregistered_too_late(void)
{
    void *const far_away = (void *)(uintptr_t)(UINT64_C(1) << 45);
    char *host = mmap(far_away, 4096, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
    CHECK(host == far_away);
    OK(cuMemHostRegister(host, 4096, 0));
    munmap(host, 4096);
    OK(vt_put((uintptr_t)host, 1, NULL));
    cuCtxSynchronize();
}

/* With VGPU_UNDEFINED: what copies and fills wrote may be read, and a copy of what nobody wrote is
 * not written by that. */
static void reads_of_copies(void)
{
    uint32_t word = 3;
    CUdeviceptr first, second;
    OK(cuMemAlloc(&first, 4096));
    OK(cuMemAlloc(&second, 4096));
    OK(cuMemcpyHtoD(first, &word, 4));
    OK(cuMemsetD32(first + 8, 1, 1));
    OK(cuMemcpyDtoD(second, first, 64));
    OK(vt_move(second + 128, second, NULL));
    OK(vt_move(second + 128, second + 8, NULL));
    OK(cuCtxSynchronize());
    OK(vt_move(second + 128, second + 4, NULL));
    CHECK(cuCtxSynchronize() != CUDA_SUCCESS);
}

static const struct {
    const char *name;
    void (*play)(void);
} roles[] = {
    {"ipc_owner", ipc_owner},
    {"ipc_waiter", ipc_waiter},
    {"ipc_replacer", ipc_replacer},
    {"ipc_taker", ipc_taker},
    {"vmm_owner", vmm_owner},
    {"vmm_waiter", vmm_waiter},
    {"event_owner", event_owner},
    {"touch", touch},
    {"touch_with_handler", touch_with_handler},
    {"touch_with_siginfo", touch_with_handler},
    {"touch_freed", touch_freed},
    {"kernel_after_free", kernel_after_free},
    {"kernel_after_free_async", kernel_after_free_async},
    {"unmap_under_kernel", unmap_under_kernel},
    {"kernel_without_peer_access", kernel_without_peer_access},
    {"copy_races", copy_races},
    {"copy_ordered", copy_ordered},
    {"awaited_copy_races", awaited_copy_races},
    {"awaited_copy_ordered", awaited_copy_ordered},
    {"copies_before_kernels", copies_before_kernels},
    {"fill_races", fill_races},
    {"reads_of_copies", reads_of_copies},
    {"unregistered_too_late", unregistered_too_late},
};

int main(int argc, char **argv)
{
    alarm(60);
    const struct sigaction action = {.sa_sigaction = jump_with_address, .sa_flags = SA_SIGINFO};
    if (argc == 2 && strcmp(argv[1], "touch_with_handler") == 0) signal(SIGSEGV, jump);
    if (argc == 2 && strcmp(argv[1], "touch_with_siginfo") == 0) sigaction(SIGSEGV, &action, NULL);
    CHECK(vt_open(2));
    for (size_t i = 0; argc == 2 && i < sizeof roles / sizeof *roles; i++)
        if (strcmp(argv[1], roles[i].name) == 0) {
            roles[i].play();
            return 0;
        }
    fprintf(stderr, "no role of this name\n");
    return 2;
}
