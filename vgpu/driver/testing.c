/* See testing.h. */
#include "testing.h"

#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

enum { SECONDS = 60 };

struct vt vt;

static const char ptx[] =
    ".version 8.0\n.target sm_75\n.address_size 64\n"
    ".visible .entry append(.param .u64 log, .param .u32 id)\n"
    "{ .reg .u32 %r<4>; .reg .u64 %rd<4>;\n"
    "  ld.param.u64 %rd1, [log]; ld.param.u32 %r1, [id];\n"
    "  atom.relaxed.gpu.global.add.u32 %r2, [%rd1], 1;\n"
    "  add.u32 %r2, %r2, 1; mul.wide.u32 %rd2, %r2, 4; add.u64 %rd1, %rd1, %rd2;\n"
    "  st.relaxed.gpu.global.u32 [%rd1], %r1; ret; }\n"
    ".visible .entry await(.param .u64 word, .param .u32 value, .param .u64 then)\n"
    "{ .reg .u32 %r<4>; .reg .u64 %rd<4>; .reg .pred %p<2>;\n"
    "  ld.param.u64 %rd1, [word]; ld.param.u32 %r1, [value]; ld.param.u64 %rd2, [then];\n"
    "L: ld.acquire.sys.global.u32 %r2, [%rd1]; setp.ne.u32 %p1, %r2, %r1; @%p1 bra L;\n"
    "  mov.u32 %r3, 1; st.release.sys.global.u32 [%rd2], %r3; ret; }\n"
    ".visible .entry set(.param .u64 word, .param .u32 value)\n"
    "{ .reg .u32 %r<2>; .reg .u64 %rd<2>;\n"
    "  ld.param.u64 %rd1, [word]; ld.param.u32 %r1, [value];\n"
    "  st.release.sys.global.u32 [%rd1], %r1; ret; }\n"
    ".visible .entry turns(.param .u64 mine, .param .u64 theirs, .param .u32 n)\n"
    "{ .reg .u32 %r<4>; .reg .u64 %rd<4>; .reg .pred %p<2>;\n"
    "  ld.param.u64 %rd1, [mine]; ld.param.u64 %rd2, [theirs]; ld.param.u32 %r1, [n];\n"
    "  mov.u32 %r2, 0;\n"
    "N: add.u32 %r2, %r2, 1; st.release.gpu.global.u32 [%rd1], %r2;\n"
    "W: ld.acquire.gpu.global.u32 %r3, [%rd2]; setp.lt.u32 %p1, %r3, %r2; @%p1 bra W;\n"
    "  setp.lt.u32 %p1, %r2, %r1; @%p1 bra N; ret; }\n"
    ".visible .entry put(.param .u64 word, .param .u32 value)\n"
    "{ .reg .u32 %r<2>; .reg .u64 %rd<2>;\n"
    "  ld.param.u64 %rd1, [word]; ld.param.u32 %r1, [value]; st.global.u32 [%rd1], %r1; ret; }\n"
    ".visible .entry fail() { trap; }\n"
    ".visible .entry nine(.param .u8 a, .param .u64 b, .param .u32 c, .param .u64 out)\n"
    "{ .reg .u16 %h<2>; .reg .u32 %r<2>; .reg .u64 %rd<5>;\n"
    "  ld.param.u8 %h1, [a]; ld.param.u64 %rd2, [b]; ld.param.u32 %r1, [c];\n"
    "  ld.param.u64 %rd4, [out]; cvt.u64.u16 %rd1, %h1; cvt.u64.u32 %rd3, %r1;\n"
    "  st.global.u64 [%rd4], %rd1; st.global.u64 [%rd4+8], %rd2; st.global.u64 [%rd4+16], %rd3;\n"
    "  ret; }\n"
    ".visible .entry add(.param .u64 at, .param .u32 value)\n"
    "{ .reg .u32 %r<4>; .reg .u64 %rd<4>;\n"
    "  ld.param.u64 %rd1, [at]; ld.param.u32 %r1, [value];\n"
    "  mov.u32 %r2, %tid.x; mul.wide.u32 %rd2, %r2, 4; add.u64 %rd1, %rd1, %rd2;\n"
    "  ld.global.u32 %r3, [%rd1]; add.u32 %r3, %r3, %r1; st.global.u32 [%rd1], %r3; ret; }\n"
    ".visible .entry next(.param .u64 counter, .param .u64 log)\n"
    "{ .reg .u32 %r<4>; .reg .u64 %rd<4>;\n"
    "  ld.param.u64 %rd1, [counter]; ld.param.u64 %rd2, [log];\n"
    "  ld.global.u32 %r1, [%rd1]; mul.wide.u32 %rd3, %r1, 4; add.u64 %rd2, %rd2, %rd3;\n"
    "  add.u32 %r1, %r1, 1; st.global.u32 [%rd2], %r1; st.global.u32 [%rd1], %r1; ret; }\n"
    ".visible .entry move(.param .u64 to, .param .u64 from)\n"
    "{ .reg .u32 %r<4>; .reg .u64 %rd<4>;\n"
    "  ld.param.u64 %rd1, [to]; ld.param.u64 %rd2, [from];\n"
    "  mov.u32 %r1, %tid.x; mul.wide.u32 %rd3, %r1, 4;\n"
    "  add.u64 %rd1, %rd1, %rd3; add.u64 %rd2, %rd2, %rd3;\n"
    "  ld.global.u32 %r2, [%rd2]; st.global.u32 [%rd1], %r2; ret; }\n"
    ".visible .entry meet(.param .u64 at, .param .u32 value)\n"
    "{ .reg .u32 %r<4>; .reg .u64 %rd<4>; .reg .pred %p<2>;\n"
    "  ld.param.u64 %rd1, [at]; ld.param.u32 %r1, [value];\n"
    "  mov.u32 %r2, 1; st.release.sys.global.u32 [%rd1+4], %r2;\n"
    "again: ld.acquire.sys.global.u32 %r3, [%rd1]; setp.ne.u32 %p1, %r3, %r1;\n"
    "  @%p1 bra again; ret; }\n";

/* ---- processes ---- */

static bool open_gpu(int device)
{
    static const struct {
        const char *name;
        CUfunction *function;
    } kernels[] = {{"append", &vt.append}, {"await", &vt.await}, {"meet", &vt.meet},
                   {"set", &vt.set},       {"turns", &vt.turns}, {"put", &vt.put},
                   {"fail", &vt.trap},     {"nine", &vt.nine},   {"add", &vt.add},
                   {"next", &vt.next},     {"move", &vt.move}};
    if (cuInit(0) != CUDA_SUCCESS ||
        cuDevicePrimaryCtxRetain(&vt.contexts[device], device) != CUDA_SUCCESS ||
        cuCtxSetCurrent(vt.contexts[device]) != CUDA_SUCCESS ||
        cuModuleLoadData(&vt.modules[device], ptx) != CUDA_SUCCESS)
        return false;
    if (device != 0) return true;
    vt.context = vt.contexts[0];
    vt.module = vt.modules[0];
    for (size_t i = 0; i < sizeof kernels / sizeof *kernels; i++)
        if (cuModuleGetFunction(kernels[i].function, vt.module, kernels[i].name) != CUDA_SUCCESS)
            return false;
    return true;
}

bool vt_open(int ngpus)
{
    if (ngpus > 1) setenv("VGPU_DEVICES", "2", 1);
    for (int d = 0; d < ngpus; d++)
        if (vt.contexts[d] == NULL && !open_gpu(d)) return false;
    return cuCtxSetCurrent(vt.context) == CUDA_SUCCESS;
}

void vt_open_graphs(void)
{
    CHECK(open_gpu(0));
    OK(cuStreamCreate(&vt.stream, CU_STREAM_NON_BLOCKING));
    OK(cuStreamCreate(&vt.other, CU_STREAM_NON_BLOCKING));
    vt.memory = vt_device(VT_WORDS * sizeof(uint32_t));
}

static void open_one(void)
{
    CHECK(vt_open(1));
}

/* Runs both functions in a child. text NULL: its standard error is the test's. */
static int run(const char *const settings[], void (*open)(void), void (*body)(void), char *text,
               size_t room)
{
    int status = 0;
    const int errors = memfd_create("errors", MFD_CLOEXEC);
    fflush(NULL);
    const pid_t pid = fork();
    if (pid == 0) {
        for (int i = 0; settings != NULL && settings[i] != NULL; i++)
            putenv((char *)(uintptr_t)settings[i]);
        if (text != NULL) dup2(errors, STDERR_FILENO);
        alarm(SECONDS);
        open();
        if (!tt_test_failed()) body();
        fflush(NULL);
        if (tt_test_failed()) _exit(1);
        exit(0); /* reports may change the status */
    }
    waitpid(pid, &status, 0);
    const ssize_t n = text != NULL ? pread(errors, text, room - 1, 0) : 0;
    if (text != NULL) text[n > 0 ? n : 0] = '\0';
    close(errors);
    const int result = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
    CHECK_MESSAGE(result == 0 || result == 86, "the child ended with status 0x%x\n%s", status,
                  text != NULL ? text : "");
    return result;
}

int vt_run(const char *const settings[], void (*body)(void), char *text, size_t room)
{
    return run(settings, open_one, body, text, room);
}

static void open_nothing(void) {}

int vt_run_unopened(const char *const settings[], void (*body)(void), char *text, size_t room)
{
    return run(settings, open_nothing, body, text, room);
}

void vt_quiet(const char *const settings[], void (*body)(void))
{
    char text[4096];
    CHECK_MESSAGE(vt_run(settings, body, text, sizeof text) == 0, "%s", text);
}

int vt_run_graphs(void (*body)(void), const char *seed)
{
    char setting[64];
    snprintf(setting, sizeof setting, "VGPU_SEED=%s", seed);
    return run((const char *[]){setting, NULL}, vt_open_graphs, body, NULL, 0);
}

/* ---- launches, streams, memory ---- */

CUresult vt_launch(CUfunction kernel, unsigned nthreads, CUstream stream, void **params)
{
    return cuLaunchKernel(kernel, 1, 1, 1, nthreads, 1, 1, 0, stream, params, NULL);
}

CUstream vt_stream(unsigned flags)
{
    CUstream stream = NULL;
    CHECK_EQ(cuStreamCreate(&stream, flags), CUDA_SUCCESS);
    return stream;
}

CUdeviceptr vt_device(size_t nbytes)
{
    CUdeviceptr memory = 0;
    CHECK_EQ(cuMemAlloc(&memory, nbytes), CUDA_SUCCESS);
    CHECK_EQ(cuMemsetD8(memory, 0, nbytes), CUDA_SUCCESS);
    CHECK_EQ(cuCtxSynchronize(), CUDA_SUCCESS);
    return memory;
}

volatile uint32_t *vt_mapped(size_t nbytes)
{
    void *bytes = NULL;
    CHECK_EQ(cuMemHostAlloc(&bytes, nbytes, CU_MEMHOSTALLOC_DEVICEMAP), CUDA_SUCCESS);
    memset(bytes, 0, nbytes);
    return bytes;
}

uint32_t vt_read(CUdeviceptr memory, int at)
{
    uint32_t word = 0;
    CHECK_EQ(cuMemcpyDtoH(&word, memory + 4 * (unsigned)at, 4), CUDA_SUCCESS);
    return word;
}

static CUresult launch_here(const char *name, void **arguments, CUstream stream)
{
    CUfunction function;
    CUdevice device;
    CUresult result = cuCtxGetDevice(&device);
    if (result == CUDA_SUCCESS) result = cuModuleGetFunction(&function, vt.modules[device], name);
    if (result != CUDA_SUCCESS) return result;
    return vt_launch(function, 1, stream, arguments);
}

CUresult vt_put(CUdeviceptr address, uint32_t value, CUstream stream)
{
    return launch_here("put", (void *[]){&address, &value}, stream);
}

CUresult vt_move(CUdeviceptr to, CUdeviceptr from, CUstream stream)
{
    return launch_here("move", (void *[]){&to, &from}, stream);
}

CUresult vt_await(CUdeviceptr address, uint32_t value, CUdeviceptr then, CUstream stream)
{
    return launch_here("await", (void *[]){&address, &value, &then}, stream);
}

void vt_current(int device)
{
    cuCtxSetCurrent(vt.contexts[device]);
}

CUresult vt_map_handle(int device, size_t nbytes, CUmemGenericAllocationHandle handle,
                       CUdeviceptr *address)
{
    const CUmemAccessDesc access = {.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device},
                                    .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    CUresult result = cuMemAddressReserve(address, nbytes, 0, 0, 0);
    if (result == CUDA_SUCCESS) result = cuMemMap(*address, nbytes, 0, handle, 0);
    if (result == CUDA_SUCCESS) result = cuMemSetAccess(*address, nbytes, &access, 1);
    return result;
}

CUresult vt_map(int device, size_t nbytes, CUmemGenericAllocationHandle *handle,
                CUdeviceptr *address)
{
    const CUmemAllocationProp prop = {
        .type = CU_MEM_ALLOCATION_TYPE_PINNED,
        .requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
        .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device}};
    const CUresult result = cuMemCreate(handle, nbytes, &prop, 0);
    return result == CUDA_SUCCESS ? vt_map_handle(device, nbytes, *handle, address) : result;
}

/* ---- graphs ---- */

CUgraph vt_graph(void)
{
    CUgraph graph = NULL;
    OK(cuGraphCreate(&graph, 0));
    return graph;
}

CUgraphNode vt_kernel(CUgraph graph, CUfunction function, unsigned nthreads, void **params,
                      const CUgraphNode *before, size_t n)
{
    CUgraphNode node = NULL;
    const CUDA_KERNEL_NODE_PARAMS p = {.func = function,
                                       .gridDimX = 1,
                                       .gridDimY = 1,
                                       .gridDimZ = 1,
                                       .blockDimX = nthreads,
                                       .blockDimY = 1,
                                       .blockDimZ = 1,
                                       .kernelParams = params};
    OK(cuGraphAddKernelNode(&node, graph, before, n, &p));
    return node;
}

CUgraphNode vt_store(CUgraph graph, CUdeviceptr at, uint32_t value, const CUgraphNode *before,
                     size_t n)
{
    return vt_kernel(graph, vt.put, 1, (void *[]){&at, &value}, before, n);
}

uint32_t vt_word(unsigned index)
{
    uint32_t word = 0;
    OK(cuCtxSynchronize());
    OK(cuMemcpyDtoH(&word, vt.memory + 4 * index, sizeof word));
    return word;
}

void vt_set_word(unsigned index, uint32_t value)
{
    OK(cuMemcpyHtoD(vt.memory + 4 * index, &value, sizeof value));
}

CUgraphExec vt_instantiate(CUgraph graph)
{
    CUgraphExec exec = NULL;
    OK(cuGraphInstantiate(&exec, graph, 0));
    return exec;
}

void vt_replay(CUgraphExec exec)
{
    OK(cuGraphLaunch(exec, vt.stream));
    OK(cuStreamSynchronize(vt.stream));
}

/* ---- the other process of the tests of memory ---- */

bool vt_send(int socket, const void *data, size_t nbytes)
{
    return send(socket, data, nbytes, MSG_NOSIGNAL) == (ssize_t)nbytes;
}

bool vt_receive(int socket, void *data, size_t nbytes)
{
    return recv(socket, data, nbytes, MSG_WAITALL) == (ssize_t)nbytes;
}

void vt_send_fd(int socket, int fd)
{
    char byte = 0;
    _Alignas(struct cmsghdr) char room[CMSG_SPACE(sizeof fd)] = {0};
    struct iovec part = {&byte, 1};
    struct msghdr message = {
        .msg_iov = &part, .msg_iovlen = 1, .msg_control = room, .msg_controllen = sizeof room};
    struct cmsghdr *header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof fd);
    memcpy(CMSG_DATA(header), &fd, sizeof fd);
    sendmsg(socket, &message, MSG_NOSIGNAL);
}

int vt_receive_fd(int socket)
{
    int fd = -1;
    char byte;
    _Alignas(struct cmsghdr) char room[CMSG_SPACE(sizeof fd)];
    struct iovec part = {&byte, 1};
    struct msghdr message = {
        .msg_iov = &part, .msg_iovlen = 1, .msg_control = room, .msg_controllen = sizeof room};
    if (recvmsg(socket, &message, 0) == 1 && CMSG_FIRSTHDR(&message) != NULL)
        memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof fd);
    return fd;
}

bool vt_start(struct vt_peer *peer, const char *role)
{
    char *const arguments[] = {(char *)(uintptr_t)TUTTI_BINARY_DIR "/tests/vgpu-memory-peer",
                               (char *)(uintptr_t)role, NULL};
    posix_spawn_file_actions_t actions;
    int sockets[2];
    peer->errors = memfd_create("errors", MFD_CLOEXEC);
    if (peer->errors < 0 || socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sockets) != 0)
        return false;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, sockets[1], STDIN_FILENO);
    posix_spawn_file_actions_adddup2(&actions, peer->errors, STDERR_FILENO);
    const int failed = posix_spawn(&peer->pid, arguments[0], &actions, NULL, arguments, environ);
    posix_spawn_file_actions_destroy(&actions);
    close(sockets[1]);
    peer->socket = sockets[0];
    if (failed != 0) fprintf(stderr, "%s: %s\n", arguments[0], strerror(failed));
    return failed == 0;
}

int vt_finish(struct vt_peer *peer, char *text, size_t room)
{
    int status = -1;
    close(peer->socket);
    while (waitpid(peer->pid, &status, 0) != peer->pid) {
    }
    const ssize_t n = pread(peer->errors, text, room - 1, 0);
    text[n < 0 ? 0 : n] = 0;
    close(peer->errors);
    return status;
}
