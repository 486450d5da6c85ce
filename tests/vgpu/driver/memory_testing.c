/* See memory_testing.h. */
#include <vgpu/driver/memory_testing.h>

#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

static const char ptx[] =
    ".version 8.0\n.target sm_75\n.address_size 64\n"
    ".visible .entry put(.param .u64 at, .param .u32 value)\n"
    "{ .reg .u32 %r<2>; .reg .u64 %rd<2>;\n"
    "  ld.param.u64 %rd1, [at]; ld.param.u32 %r1, [value]; st.global.u32 [%rd1], %r1; ret; }\n"
    ".visible .entry move(.param .u64 to, .param .u64 from)\n"
    "{ .reg .u32 %r<2>; .reg .u64 %rd<3>;\n"
    "  ld.param.u64 %rd1, [to]; ld.param.u64 %rd2, [from];\n"
    "  ld.global.u32 %r1, [%rd2]; st.global.u32 [%rd1], %r1; ret; }\n"
    ".visible .entry await(.param .u64 at, .param .u32 value, .param .u64 then)\n"
    "{ .reg .u32 %r<3>; .reg .u64 %rd<3>; .reg .pred %p<2>;\n"
    "  ld.param.u64 %rd1, [at]; ld.param.u32 %r1, [value]; ld.param.u64 %rd2, [then];\n"
    "again: ld.acquire.sys.global.u32 %r2, [%rd1]; setp.ne.u32 %p1, %r1, %r2; @%p1 bra again;\n"
    "  mov.u32 %r2, 1; st.release.sys.global.u32 [%rd2], %r2; ret; }\n";

enum { GPUS = 2 };
static CUcontext contexts[GPUS];
static CUmodule modules[GPUS];

bool mt_open(void)
{
    setenv("VGPU_DEVICES", "2", 1);
    for (int d = 0; d < GPUS && contexts[d] == NULL; d++)
        if (cuInit(0) != CUDA_SUCCESS ||
            cuDevicePrimaryCtxRetain(&contexts[d], d) != CUDA_SUCCESS ||
            cuCtxSetCurrent(contexts[d]) != CUDA_SUCCESS ||
            cuModuleLoadData(&modules[d], ptx) != CUDA_SUCCESS)
            return false;
    return cuCtxSetCurrent(contexts[0]) == CUDA_SUCCESS;
}

CUcontext mt_context(int device)
{
    return contexts[device];
}

void mt_current(int device)
{
    cuCtxSetCurrent(contexts[device]);
}

static CUresult launch(const char *name, void **arguments, CUstream stream)
{
    CUfunction function;
    CUdevice device;
    CUresult result = cuCtxGetDevice(&device);
    if (result == CUDA_SUCCESS) result = cuModuleGetFunction(&function, modules[device], name);
    if (result != CUDA_SUCCESS) return result;
    return cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, stream, arguments, NULL);
}

CUresult mt_put(CUdeviceptr address, uint32_t value, CUstream stream)
{
    return launch("put", (void *[]){&address, &value}, stream);
}

CUresult mt_move(CUdeviceptr to, CUdeviceptr from, CUstream stream)
{
    return launch("move", (void *[]){&to, &from}, stream);
}

CUresult mt_await(CUdeviceptr address, uint32_t value, CUdeviceptr then, CUstream stream)
{
    return launch("await", (void *[]){&address, &value, &then}, stream);
}

CUresult mt_map_handle(int device, size_t nbytes, CUmemGenericAllocationHandle handle,
                       CUdeviceptr *address)
{
    const CUmemAccessDesc access = {.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device},
                                    .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    CUresult result = cuMemAddressReserve(address, nbytes, 0, 0, 0);
    if (result == CUDA_SUCCESS) result = cuMemMap(*address, nbytes, 0, handle, 0);
    if (result == CUDA_SUCCESS) result = cuMemSetAccess(*address, nbytes, &access, 1);
    return result;
}

CUresult mt_map(int device, size_t nbytes, CUmemGenericAllocationHandle *handle,
                CUdeviceptr *address)
{
    const CUmemAllocationProp prop = {
        .type = CU_MEM_ALLOCATION_TYPE_PINNED,
        .requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
        .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device}};
    const CUresult result = cuMemCreate(handle, nbytes, &prop, 0);
    return result == CUDA_SUCCESS ? mt_map_handle(device, nbytes, *handle, address) : result;
}

bool mt_send(int socket, const void *data, size_t nbytes)
{
    return send(socket, data, nbytes, MSG_NOSIGNAL) == (ssize_t)nbytes;
}

bool mt_receive(int socket, void *data, size_t nbytes)
{
    return recv(socket, data, nbytes, MSG_WAITALL) == (ssize_t)nbytes;
}

void mt_send_fd(int socket, int fd)
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

int mt_receive_fd(int socket)
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

bool mt_start(struct mt_peer *peer, const char *role)
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

int mt_finish(struct mt_peer *peer, char *text, size_t room)
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
