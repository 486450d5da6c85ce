/* Memory and events of several processes: IPC, VMM descriptors, deaths, garbage. */
#include "testing.h"

#include <dirent.h>
#include <fcntl.h>
#include <shim.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

enum { SIZE = 2 << 20 };

static bool meet(const struct vt_peer *peer)
{
    char byte = 1;
    return vt_send(peer->socket, &byte, 1) && vt_receive(peer->socket, &byte, 1);
}

static void finish(struct vt_peer *peer, int status)
{
    char text[8192];
    const int got = vt_finish(peer, text, sizeof text);
    CHECK_MESSAGE(got == status, "the peer's status is 0x%x, expected 0x%x: %s", got, status, text);
}

static uint32_t word_at(CUdeviceptr address)
{
    uint32_t word = 0;
    OK(cuMemcpyDtoH(&word, address, 4));
    return word;
}

static bool open_ipc(const struct vt_peer *peer, CUipcMemHandle *handle, CUdeviceptr *memory)
{
    return vt_receive(peer->socket, handle, sizeof *handle) &&
           cuIpcOpenMemHandle(memory, *handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS) == CUDA_SUCCESS;
}

TEST(ipc, memory_is_one_for_both_processes_and_outlives_its_owners_free)
{
    struct vt_peer peer;
    CUipcMemHandle handle;
    CUdeviceptr memory = 0, again = 0;
    REQUIRE(vt_open(2) && vt_start(&peer, "ipc_owner"));
    REQUIRE(open_ipc(&peer, &handle, &memory));
    CHECK_EQ(word_at(memory), 7);
    OK(vt_put(memory + 4096, 1234, NULL));
    OK(cuCtxSynchronize());
    CHECK(meet(&peer)); /* the owner reads 1234 and writes 4321 */
    CHECK(meet(&peer));
    CHECK_EQ(word_at(memory + 8192), 4321);
    CHECK(meet(&peer)); /* freed by its owner */
    OK(vt_put(memory, 5, NULL));
    CHECK_EQ(word_at(memory), 5);
    /* What this process has, another handle of the same memory finds. The owner's is gone. */
    CHECK_EQ(cuIpcOpenMemHandle(&again, handle, 1), CUDA_ERROR_INVALID_HANDLE);
    OK(cuIpcCloseMemHandle(memory));
    CHECK_EQ(cuIpcCloseMemHandle(memory), CUDA_ERROR_INVALID_VALUE);
    finish(&peer, 0);
}

TEST(ipc, memory_of_this_process_is_opened_and_closed_by_another_one)
{
    struct vt_peer peer;
    CUipcMemHandle handle;
    CUdeviceptr memory, self;
    REQUIRE(vt_open(2) && vt_start(&peer, "ipc_taker"));
    OK(cuMemAlloc(&memory, 1000)); /* not a multiple of a page */
    OK(cuMemsetD32(memory, 41, 250));
    OK(cuCtxSynchronize());
    OK(cuIpcGetMemHandle(&handle, memory + 512));
    CHECK_EQ(cuIpcOpenMemHandle(&self, handle, 1), CUDA_ERROR_INVALID_CONTEXT);
    CHECK(vt_send(peer.socket, &handle, sizeof handle));
    CHECK(meet(&peer));
    CHECK_EQ(word_at(memory + 4), 42);
    finish(&peer, 0);
    OK(cuMemFree(memory));
}

/* Names in the folder that speak of a virtual GPU. */
static int left_in(const char *folder)
{
    int n = 0;
    DIR *directory = opendir(folder);
    if (directory == NULL) return 0;
    for (const struct dirent *entry; (entry = readdir(directory)) != NULL;)
        n += strstr(entry->d_name, "vgpu") != NULL || strstr(entry->d_name, "cuda") != NULL;
    closedir(directory);
    return n;
}

static int sockets(void)
{
    char line[512];
    int n = 0;
    FILE *file = fopen("/proc/net/unix", "re");
    while (file != NULL && fgets(line, sizeof line, file) != NULL)
        n += strstr(line, "vgpu") != NULL || strstr(line, "cuda") != NULL;
    if (file != NULL) fclose(file);
    return n;
}

static int left_behind(void)
{
    return left_in("/dev/shm") + left_in("/tmp") + left_in("/run") + left_in(".") + sockets();
}

static void kill_it(const struct vt_peer *peer)
{
    char byte;
    kill(peer->pid, SIGKILL);
    while (read(peer->socket, &byte, 1) > 0) { /* end of file, or reset: the process is gone */
    }
}

TEST(ipc, memory_of_a_killed_process_goes_on_for_who_opened_it_and_leaves_nothing_behind)
{
    struct vt_peer peer;
    CUipcMemHandle handle;
    CUdeviceptr memory, again;
    CUstream stream;
    const int before = left_behind();
    REQUIRE(vt_open(2) && vt_start(&peer, "ipc_waiter"));
    REQUIRE(open_ipc(&peer, &handle, &memory));
    CHECK(meet(&peer)); /* its kernel waits for a word of the memory */
    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    OK(vt_await(memory + 128, 1, memory + 192, stream));
    kill_it(&peer);
    CHECK_EQ(cuStreamQuery(stream), CUDA_ERROR_NOT_READY);
    OK(cuStreamWriteValue32(NULL, memory + 128, 1, 0));
    OK(cuStreamSynchronize(stream));
    CHECK_EQ(word_at(memory + 192), 1);
    OK(cuStreamDestroy(stream));
    CHECK_EQ(cuIpcOpenMemHandle(&again, handle, 1), CUDA_ERROR_INVALID_HANDLE);
    finish(&peer, SIGKILL);
    CHECK_EQ(left_behind(), before);
    OK(cuIpcCloseMemHandle(memory));
}

TEST(ipc, handle_of_a_process_that_has_ended_cannot_be_opened)
{
    struct vt_peer peer;
    CUipcMemHandle handle;
    CUdeviceptr memory;
    REQUIRE(vt_open(2) && vt_start(&peer, "ipc_waiter"));
    CHECK(vt_receive(peer.socket, &handle, sizeof handle));
    kill_it(&peer);
    CHECK_EQ(cuIpcOpenMemHandle(&memory, handle, 1), CUDA_ERROR_INVALID_HANDLE);
    finish(&peer, SIGKILL);
    CHECK_EQ(cuIpcOpenMemHandle(&memory, handle, 1), CUDA_ERROR_INVALID_HANDLE);
}

TEST(ipc, handle_does_not_open_what_has_its_descriptors_number_now)
{
    struct vt_peer peer;
    CUipcMemHandle handle;
    CUdeviceptr memory;
    REQUIRE(vt_open(2) && vt_start(&peer, "ipc_replacer"));
    CHECK(vt_receive(peer.socket, &handle, sizeof handle));
    CHECK(meet(&peer));
    CHECK_EQ(cuIpcOpenMemHandle(&memory, handle, 1), CUDA_ERROR_INVALID_HANDLE);
    finish(&peer, 0);
}

/* An error, and the process goes on. */
static void refuse(const CUipcMemHandle *handle)
{
    CUdeviceptr memory = 0;
    CUevent event = NULL;
    CUipcEventHandle other;
    memcpy(&other, handle, sizeof other);
    CHECK(cuIpcOpenMemHandle(&memory, *handle, 1) != CUDA_SUCCESS);
    CHECK(cuIpcOpenEventHandle(&event, other) != CUDA_SUCCESS);
}

TEST(ipc, garbage_is_no_handle)
{
    struct vt_peer peer;
    CUipcMemHandle handle, wrong;
    uint64_t random = 1;
    REQUIRE(vt_open(2) && vt_start(&peer, "ipc_waiter"));
    CHECK(vt_receive(peer.socket, &handle, sizeof handle));
    CHECK(meet(&peer));
    memset(&wrong, 0, sizeof wrong);
    refuse(&wrong);
    memset(&wrong, 0xff, sizeof wrong);
    refuse(&wrong);
    for (size_t bit = 0; bit < 8 * sizeof handle; bit++) { /* a good one with one wrong bit */
        wrong = handle;
        wrong.reserved[bit / 8] = (char)(wrong.reserved[bit / 8] ^ 1 << bit % 8);
        refuse(&wrong);
    }
    for (int i = 0; i < 200; i++) {
        for (size_t k = 0; k < sizeof wrong; k++) {
            random = random * UINT64_C(6364136223846793005) + 1442695040888963407;
            wrong.reserved[k] = (char)(random >> 56);
        }
        refuse(&wrong);
    }
    CUevent event;
    CUipcEventHandle other;
    memcpy(&other, &handle, sizeof other);
    CHECK_EQ(cuIpcOpenEventHandle(&event, other), CUDA_ERROR_INVALID_VALUE); /* it is memory */
    kill_it(&peer);
    finish(&peer, SIGKILL);
}

TEST(ipc, event_of_another_process_is_waited_for)
{
    struct vt_peer peer;
    CUipcMemHandle handle;
    CUipcEventHandle event_handle;
    CUdeviceptr memory = 0;
    CUevent event = NULL, again;
    CUstream stream;
    REQUIRE(vt_open(2) && vt_start(&peer, "event_owner"));
    CHECK(vt_receive(peer.socket, &event_handle, sizeof event_handle));
    REQUIRE(open_ipc(&peer, &handle, &memory));
    OK(cuIpcOpenEventHandle(&event, event_handle));
    CHECK_EQ(cuIpcOpenEventHandle(&again, event_handle), CUDA_ERROR_INVALID_CONTEXT);
    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    OK(cuStreamWaitEvent(stream, event, 0));
    OK(vt_move(memory + 256, memory + 64, stream)); /* reads what the peer's kernel writes */
    CHECK_EQ(cuEventQuery(event), CUDA_ERROR_NOT_READY);
    CHECK_EQ(cuStreamQuery(stream), CUDA_ERROR_NOT_READY);
    OK(cuStreamWriteValue32(NULL, memory, 99, 0));
    OK(cuEventSynchronize(event));
    OK(cuEventQuery(event));
    OK(cuStreamSynchronize(stream));
    CHECK_EQ(word_at(memory + 256), 1);
    CHECK(meet(&peer));
    CHECK(meet(&peer));
    OK(cuEventDestroy(event));
    OK(cuIpcCloseMemHandle(memory));
    OK(cuStreamDestroy(stream));
    finish(&peer, 0);
}

TEST(vmm, memory_is_one_for_both_processes_and_outlives_its_owner)
{
    struct vt_peer peer;
    CUmemGenericAllocationHandle handle, again;
    CUdeviceptr memory = 0;
    REQUIRE(vt_open(2) && vt_start(&peer, "vmm_owner"));
    const int fd = vt_receive_fd(peer.socket);
    OK(cuMemImportFromShareableHandle(&handle, (void *)(intptr_t)fd,
                                      CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
    OK(cuMemImportFromShareableHandle(&again, (void *)(intptr_t)fd,
                                      CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
    close(fd);
    OK(cuMemRelease(again));
    OK(vt_map_handle(0, SIZE, handle, &memory));
    CHECK_EQ(word_at(memory), 7);
    OK(vt_put(memory + 4096, 1234, NULL));
    OK(cuCtxSynchronize());
    CHECK(meet(&peer));
    CHECK(meet(&peer));
    CHECK_EQ(word_at(memory + 8192), 4321);
    kill_it(&peer);
    OK(vt_put(memory, 5, NULL));
    CHECK_EQ(word_at(memory), 5);
    OK(cuMemUnmap(memory, SIZE));
    OK(cuMemAddressFree(memory, SIZE));
    OK(cuMemRelease(handle));
    finish(&peer, SIGKILL);
}

TEST(vmm, word_that_another_process_writes_ends_a_kernels_wait)
{
    struct vt_peer peer;
    CUmemGenericAllocationHandle handle;
    CUdeviceptr memory = 0;
    REQUIRE(vt_open(2) && vt_start(&peer, "vmm_waiter"));
    const int fd = vt_receive_fd(peer.socket);
    OK(cuMemImportFromShareableHandle(&handle, (void *)(intptr_t)fd,
                                      CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
    close(fd);
    OK(vt_map_handle(0, SIZE, handle, &memory));
    OK(cuStreamWriteValue32(NULL, memory, 99, 0));
    CHECK(meet(&peer)); /* its kernel has ended */
    CHECK_EQ(word_at(memory + 64), 1);
    OK(cuMemUnmap(memory, SIZE));
    OK(cuMemAddressFree(memory, SIZE));
    OK(cuMemRelease(handle));
    finish(&peer, 0);
}

TEST(vmm, memory_that_is_mapped_twice_is_one)
{
    CUmemGenericAllocationHandle handle;
    CUdeviceptr first, second;
    REQUIRE(vt_open(2));
    OK(vt_map(0, SIZE, &handle, &first));
    OK(vt_map_handle(0, SIZE, handle, &second));
    CHECK(first != second);
    OK(vt_put(first + 4, 8, NULL));
    CHECK_EQ(word_at(second + 4), 8);
    OK(cuMemUnmap(first, SIZE));
    CHECK_EQ(word_at(second + 4), 8);
    OK(cuMemRelease(handle));
    CHECK_EQ(word_at(second + 4), 8); /* the mapping keeps it */
    OK(cuMemUnmap(second, SIZE));
    CHECK_EQ(cuMemRelease(handle), CUDA_ERROR_INVALID_VALUE);
    OK(cuMemAddressFree(first, SIZE));
    OK(cuMemAddressFree(second, SIZE));
}

TEST(vmm, neighbours_are_copied_as_one_and_mapped_again_elsewhere)
{
    CUmemGenericAllocationHandle one, other;
    CUdeviceptr at, apart;
    const CUmemAccessDesc access = {.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE},
                                    .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    const CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                      .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE}};
    REQUIRE(vt_open(2));
    OK(cuMemCreate(&one, SIZE, &prop, 0));
    OK(cuMemCreate(&other, SIZE, &prop, 0));
    OK(cuMemAddressReserve(&at, 2 * SIZE, 0, 0, 0));
    OK(cuMemMap(at, SIZE, 0, one, 0));
    OK(cuMemMap(at + SIZE, SIZE, 0, other, 0));
    CHECK_EQ(cuMemsetD8(at, 1, 2 * SIZE), CUDA_ERROR_INVALID_VALUE);
    OK(cuMemSetAccess(at, 2 * SIZE, &access, 1));
    OK(cuMemsetD32(at, 6, 2 * SIZE / 4));
    OK(cuMemsetD32(at + SIZE - 4, 3, 2)); /* over the border */
    CHECK_EQ(word_at(at + SIZE - 4), 3);
    CHECK_EQ(word_at(at + SIZE), 3);
    OK(cuMemUnmap(at, 2 * SIZE));
    OK(vt_map_handle(0, SIZE, other, &apart));
    CHECK_EQ(word_at(apart), 3);
    CHECK_EQ(word_at(apart + 4), 6);
    OK(cuMemMap(at, SIZE, 0, one, 0)); /* where it was */
    OK(cuMemSetAccess(at, SIZE, &access, 1));
    CHECK_EQ(word_at(at), 6);
    OK(cuMemUnmap(at, 2 * SIZE));
    OK(cuMemUnmap(apart, SIZE));
    OK(cuMemRelease(one));
    OK(cuMemRelease(other));
    OK(cuMemAddressFree(at, 2 * SIZE));
    OK(cuMemAddressFree(apart, SIZE));
}

TEST(vmm, memory_of_the_host_is_addressed_by_host_and_device)
{
    CUmemGenericAllocationHandle handle;
    CUdeviceptr at;
    const CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                      .location = {.type = CU_MEM_LOCATION_TYPE_HOST_NUMA}};
    const CUmemAccessDesc access[] = {{.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE},
                                       .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE},
                                      {.location = {.type = CU_MEM_LOCATION_TYPE_HOST_NUMA},
                                       .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE}};
    REQUIRE(vt_open(2));
    OK(cuMemCreate(&handle, SIZE, &prop, 0));
    OK(cuMemAddressReserve(&at, SIZE, 0, 0, 0));
    OK(cuMemMap(at, SIZE, 0, handle, 0));
    OK(cuMemSetAccess(at, SIZE, access, 2));
    *(volatile uint32_t *)(uintptr_t)at = 17;
    OK(vt_move(at + 64, at, NULL));
    OK(cuCtxSynchronize());
    CHECK_EQ(*(volatile uint32_t *)(uintptr_t)(at + 64), 17);
    OK(cuMemUnmap(at, SIZE));
    OK(cuMemRelease(handle));
    OK(cuMemAddressFree(at, SIZE));
}

static CUresult import(int fd)
{
    CUmemGenericAllocationHandle handle;
    return cuMemImportFromShareableHandle(&handle, (void *)(intptr_t)fd,
                                          CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
}

TEST(vmm, descriptors_of_other_things_are_not_imported)
{
    int pipes[2], pair[2], range = -1;
    CUdeviceptr memory;
    char page[4096] = "tutti vgpu mem1";
    REQUIRE(vt_open(2) && pipe2(pipes, O_CLOEXEC) == 0 &&
            socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0);
    const int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    const int folder = open("/tmp", O_RDONLY | O_CLOEXEC);
    const int plain = memfd_create("plain", MFD_CLOEXEC);
    const int sealed = memfd_create("sealed", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    CHECK_EQ(import(plain), CUDA_ERROR_UNKNOWN); /* empty */
    CHECK_EQ(ftruncate(plain, SIZE), 0);
    CHECK_EQ(ftruncate(sealed, SIZE), 0);
    /* A label that promises another size than the file has. */
    CHECK_EQ(pwrite(sealed, page, sizeof page, SIZE - 4096), 4096);
    CHECK_EQ(fcntl(sealed, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW), 0);
    OK(cuMemAlloc(&memory, SIZE));
    OK(cuMemGetHandleForAddressRange(&range, memory, SIZE, CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD, 0));
    const int wrong[] = {-1,   12345,  pipes[0], pipes[1], pair[0],
                         null, folder, plain,    sealed,   range};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        CHECK_EQ(import(wrong[i]), CUDA_ERROR_UNKNOWN);
    for (size_t i = 2; i < sizeof wrong / sizeof *wrong; i++) close(wrong[i]);
    close(pair[1]);
    OK(cuMemFree(memory));
}

/* A memfd of so many bytes whose last page is the label of real memory. */
static int forge(int real, off_t nbytes, int seals)
{
    char label[4096];
    const int fd = memfd_create("forged", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    CHECK_EQ(pread(real, label, sizeof label, SIZE), 4096);
    label[16] = (char)~label[16]; /* another id: the real one is known in this process */
    CHECK_EQ(ftruncate(fd, nbytes), 0);
    CHECK_EQ(pwrite(fd, label, sizeof label, nbytes - 4096), 4096);
    CHECK_EQ(fcntl(fd, F_ADD_SEALS, seals), 0);
    return fd;
}

TEST(vmm, forged_descriptors_are_imported_only_if_they_cannot_shrink_and_their_size_is_right)
{
    CUmemGenericAllocationHandle handle;
    CUdeviceptr memory;
    int real = -1;
    REQUIRE(vt_open(2));
    OK(vt_map(0, SIZE, &handle, &memory));
    OK(cuMemExportToShareableHandle(&real, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
    const int seals = F_SEAL_SHRINK | F_SEAL_GROW;
    const int wrong[] = {forge(real, SIZE + 4096, 0), forge(real, SIZE + 4096, F_SEAL_GROW),
                         forge(real, SIZE / 2, seals), forge(real, SIZE + 8192, seals)};
    for (int i = 0; i < 4; i++) {
        CHECK_EQ(import(wrong[i]), CUDA_ERROR_UNKNOWN);
        close(wrong[i]);
    }
    const int right = forge(real, SIZE + 4096, seals); /* as good as real memory */
    OK(import(right));
    close(right);
    close(real);
    OK(cuMemUnmap(memory, SIZE));
    OK(cuMemAddressFree(memory, SIZE));
    OK(cuMemRelease(handle));
}

TEST(vmm, handles_that_are_none_are_refused)
{
    CUmemAllocationProp prop;
    int fd;
    REQUIRE(vt_open(2));
    CHECK_EQ(cuMemRelease(0), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQ(cuMemRelease((uintptr_t)&prop), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQ(cuMemGetAllocationPropertiesFromHandle(&prop, 12345), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQ(cuMemExportToShareableHandle(&fd, 12345, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0),
             CUDA_ERROR_INVALID_VALUE);
}
