/* Two processes on one GPU: sharing memory by IPC and by VMM, and whether their kernels run at the
 * same time. Run once as it is and once with an MPS daemon (`shared mps`). */
#include "shared.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

static const char *probe_name = "shared";
const char *const manner_names[2] = {"IPC", "VMM"};

void run_pair(const char *name, void (*first)(int socket, const char *name),
              void (*second)(int socket, const char *name))
{
    int sockets[2];
    pid_t children[2];
    fflush(stdout);
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, sockets)) die("socketpair failed");
    for (int side = 0; side < 2; side++) {
        children[side] = fork();
        if (children[side]) continue;
        close(sockets[!side]);
        alarm(40);
        (side ? second : first)(sockets[side], name);
        fflush(stdout);
        _exit(0);
    }
    close(sockets[0]);
    close(sockets[1]);
    for (int side = 0; side < 2; side++) {
        int status = 0;
        waitpid(children[side], &status, 0);
        if (!status) continue;
        row_begin(probe_name, name);
        row_text("call", side ? "the second process" : "the first process");
        row_text("result", WIFSIGNALED(status) ? strsignal(WTERMSIG(status)) : "ended early");
        row_end();
    }
}

void send_bytes(int socket, const void *data, size_t nbytes)
{
    if (send(socket, data, nbytes, MSG_NOSIGNAL) != (ssize_t)nbytes) die("the peer is gone");
}

void receive_bytes(int socket, void *data, size_t nbytes)
{
    if (recv(socket, data, nbytes, MSG_WAITALL) != (ssize_t)nbytes) die("the peer is gone");
}

void meet(int socket)
{
    char byte = 1;
    send_bytes(socket, &byte, 1);
    receive_bytes(socket, &byte, 1);
}

void shared_result(const char *name, const char *call, CUresult result)
{
    row_begin(probe_name, name);
    row_text("call", call);
    row_result("result", result);
    row_end();
}

static void shared_time(const char *name, const char *call, double us)
{
    row_begin(probe_name, name);
    row_text("call", call);
    row_number("us", us);
    row_end();
}

static void send_fd(int socket, int fd)
{
    char byte = 0, room[CMSG_SPACE(sizeof fd)] = {0};
    struct iovec part = {&byte, 1};
    struct msghdr message = {
        .msg_iov = &part, .msg_iovlen = 1, .msg_control = room, .msg_controllen = sizeof room};
    struct cmsghdr *header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof fd);
    memcpy(CMSG_DATA(header), &fd, sizeof fd);
    if (sendmsg(socket, &message, 0) != 1) die("sendmsg failed");
}

static int receive_fd(int socket)
{
    int fd = -1;
    char byte, room[CMSG_SPACE(sizeof fd)];
    struct iovec part = {&byte, 1};
    struct msghdr message = {
        .msg_iov = &part, .msg_iovlen = 1, .msg_control = room, .msg_controllen = sizeof room};
    if (recvmsg(socket, &message, 0) != 1 || !CMSG_FIRSTHDR(&message)) die("no descriptor came");
    memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof fd);
    return fd;
}

static CUdeviceptr map_handle(CUmemGenericAllocationHandle handle, size_t nbytes)
{
    CUmemAccessDesc access = {.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0},
                              .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    CUdeviceptr memory;
    CHECK(cu.MemAddressReserve(&memory, nbytes, 0, 0, 0));
    CHECK(cu.MemMap(memory, nbytes, 0, handle, 0));
    CHECK(cu.MemSetAccess(memory, nbytes, &access, 1));
    return memory;
}

CUdeviceptr share(int socket, enum manner manner, size_t nbytes)
{
    CUdeviceptr memory;
    const double begin = now_us();
    if (manner == BY_IPC) {
        CUipcMemHandle handle;
        CHECK(cu.MemAlloc(&memory, nbytes));
        const double middle = now_us();
        CHECK(cu.IpcGetMemHandle(&handle, memory));
        shared_time("cost", "cuMemAlloc", middle - begin);
        shared_time("cost", "cuIpcGetMemHandle", now_us() - middle);
        send_bytes(socket, &handle, sizeof handle);
    } else {
        CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                    .requestedHandleTypes =
                                        CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
                                    .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0}};
        CUmemGenericAllocationHandle handle;
        int fd;
        CHECK(cu.MemCreate(&handle, nbytes, &prop, 0));
        memory = map_handle(handle, nbytes);
        const double middle = now_us();
        CHECK(cu.MemExportToShareableHandle(&fd, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
                                            0));
        shared_time("cost", "cuMemCreate, reserve, map, set access", middle - begin);
        shared_time("cost", "cuMemExportToShareableHandle", now_us() - middle);
        send_fd(socket, fd);
    }
    CHECK(cu.MemsetD8(memory, 0, nbytes));
    CHECK(cu.CtxSynchronize());
    meet(socket);
    return memory;
}

CUdeviceptr take(int socket, enum manner manner, size_t nbytes)
{
    CUdeviceptr memory;
    if (manner == BY_IPC) {
        CUipcMemHandle handle;
        receive_bytes(socket, &handle, sizeof handle);
        const double begin = now_us();
        CHECK(cu.IpcOpenMemHandle(&memory, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
        shared_time("cost", "cuIpcOpenMemHandle", now_us() - begin);
    } else {
        CUmemGenericAllocationHandle handle;
        const int fd = receive_fd(socket);
        const double begin = now_us();
        CHECK(cu.MemImportFromShareableHandle(&handle, (void *)(intptr_t)fd,
                                              CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
        memory = map_handle(handle, nbytes);
        shared_time("cost", "cuMemImportFromShareableHandle, reserve, map, set access",
                    now_us() - begin);
    }
    meet(socket);
    return memory;
}

void launch_side(CUstream stream, CUdeviceptr mine, CUdeviceptr theirs, unsigned side,
                 unsigned nturns, unsigned long long stay, unsigned *done,
                 unsigned long long *times)
{
    static CUmodule module;
    if (!module) module = load_module("speed.fatbin");
    CHECK(cu.LaunchKernel(get_function(module, "one_side"), 1, 1, 1, 1, 1, 1, 0, stream,
                          (void *[]){&mine, &theirs, &side, &nturns, &stay, &done, &times}, NULL));
}

enum { TURNS = 400, BYTES = 64 << 20 };

/* Both processes' kernels count in turn; each row says how long a round trip took. */
static void play(int socket, const char *name, unsigned side, CUdeviceptr memory)
{
    unsigned *done = mapped_alloc(64);
    unsigned long long *times = mapped_alloc(TURNS * 8);
    const CUdeviceptr words[2] = {memory, memory + 4096};
    launch_side(NULL, memory + 8192, memory + 12288, 0, 0, 1, done, NULL); /* loads the module */
    CHECK(cu.CtxSynchronize());
    meet(socket);
    launch_side(NULL, words[side], words[!side], side, TURNS, 3000000000ull, done, times);
    CHECK(cu.CtxSynchronize());
    meet(socket);
    if (side) return;
    double trips[TURNS];
    int n = 0;
    for (unsigned i = 1; i < done[0]; i++) trips[n++] = (double)(times[i] - times[i - 1]) / 1000;
    row_begin(probe_name, name);
    row_text("what", "round trips between kernels of two processes");
    row_number("turns", done[0]);
    if (n) {
        row_number("us_median", median(trips, n));
        row_number("us_least", trips[0]);
        row_number("us_most", trips[n - 1]);
    }
    row_end();
}

static void ipc_owner(int socket, const char *name)
{
    driver_open(true);
    CUdeviceptr memory = share(socket, BY_IPC, BYTES);
    play(socket, name, 0, memory);
    const double begin = now_us();
    shared_result(name, "cuMemFree of the owner while the peer has it open", cu.MemFree(memory));
    shared_time("cost", "cuMemFree of shared memory", now_us() - begin);
    meet(socket);
    meet(socket);
}

static void ipc_taker(int socket, const char *name)
{
    unsigned word;
    driver_open(true);
    CUdeviceptr memory = take(socket, BY_IPC, BYTES);
    play(socket, name, 1, memory);
    meet(socket);
    shared_result(name, "cuMemcpyDtoH of the peer after the owner freed it",
                  cu.MemcpyDtoH(&word, memory, 4));
    double begin = now_us();
    shared_result(name, "cuIpcCloseMemHandle", cu.IpcCloseMemHandle(memory));
    shared_time("cost", "cuIpcCloseMemHandle", now_us() - begin);
    shared_result(name, "cuIpcCloseMemHandle again", cu.IpcCloseMemHandle(memory));
    meet(socket);
}

static void vmm_owner(int socket, const char *name)
{
    driver_open(true);
    play(socket, name, 0, share(socket, BY_VMM, BYTES));
}

static void vmm_taker(int socket, const char *name)
{
    driver_open(true);
    play(socket, name, 1, take(socket, BY_VMM, BYTES));
}

static void *host_words;

static void host_side(int socket, const char *name, unsigned side)
{
    driver_open(true);
    CHECK(cu.MemHostRegister(host_words, 65536, CU_MEMHOSTREGISTER_DEVICEMAP));
    meet(socket);
    play(socket, name, side, (uintptr_t)host_words);
}

static void host_first(int socket, const char *name)
{
    host_side(socket, name, 0);
}
static void host_second(int socket, const char *name)
{
    host_side(socket, name, 1);
}

/* Both processes run a kernel of one block for 300 ms that says when it did not run. */
static void gaps_side(int socket, const char *name)
{
    enum { MOST = 4096 };
    driver_open(true);
    CUmodule module = load_module("speed.fatbin");
    unsigned long long stay = 1000, least = 20000, *out = mapped_alloc(MOST * 16);
    unsigned most = MOST, *ngaps = mapped_alloc(64);
    CUfunction function = get_function(module, "gaps");
    for (int turn = 0; turn < 2; turn++) {
        CHECK(cu.LaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, NULL,
                              (void *[]){&stay, &least, &most, &ngaps, &out}, NULL));
        CHECK(cu.CtxSynchronize());
        stay = 300000000;
        meet(socket);
    }
    double lengths[MOST], runs[MOST], sum = 0;
    int n = 0, nruns = 0;
    for (unsigned i = 0; i < *ngaps; i++) {
        lengths[n++] = (double)out[2 * i + 1] / 1000;
        sum += lengths[n - 1];
        if (i) runs[nruns++] = (double)(out[2 * i] - out[2 * i - 2] - out[2 * i - 1]) / 1000;
    }
    row_begin(probe_name, name);
    row_text("what", "gaps of a kernel that runs 300 ms beside the peer's");
    row_number("gaps", n);
    row_number("us_not_running", sum);
    if (n) row_number("us_gap_median", median(lengths, n));
    if (n) row_number("us_gap_most", lengths[n - 1]);
    if (nruns) row_number("us_run_median", median(runs, nruns));
    if (nruns) row_number("us_run_most", runs[nruns - 1]);
    row_end();
}

int main(int argc, char **argv)
{
    if (argc > 1 && !strcmp(argv[1], "mps")) probe_name = "shared, MPS";
    host_words = mmap(NULL, 65536, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    run_pair("words in IPC memory", ipc_owner, ipc_taker);
    run_pair("words in VMM memory", vmm_owner, vmm_taker);
    run_pair("words in mapped host memory", host_first, host_second);
    run_pair("time slices", gaps_side, gaps_side);
    shared_faults();
    return 0;
}
