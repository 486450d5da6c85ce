/* The GPUs and the memory of pointers, as src/driver sees them on two virtual GPUs. */
#include <cuda.h>
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "driver/calls.h"
#include "base/config.h"
#include "driver/driver.h"
#include "driver/mps.h"
#include "shim.h"

static CUcontext use_gpu(int number)
{
    CUcontext context = NULL;
    CALL(cuInit, 0);
    CALL(cuDevicePrimaryCtxRetain, &context, number);
    CALL(cuCtxSetCurrent, context);
    return context;
}

TEST(driver, two_gpus_are_found_and_described)
{
    const char *why;
    struct tt_gpu gpu;
    CHECK_EQ(tt_driver_ngpus(&why), 2);
    for (int number = 0; number < 2; number++) {
        CHECK_EQ(tt_driver_gpu(number, &gpu), TT_OK);
        CHECK(strlen(gpu.name) > 0);
        CHECK(gpu.capability >= 75 && gpu.nprocessors > 0 && gpu.nbytes > 0);
    }
    CHECK(tt_driver_peers(0, 1));
    CHECK(!tt_driver_peers(0, 2));
    CHECK(!tt_driver_peers(-1, 0));
}

TEST(driver, a_gpu_that_does_not_exist_is_an_error_that_names_it)
{
    struct tt_gpu gpu;
    CHECK_EQ(tt_driver_gpu(2, &gpu), TT_ERR_ARGUMENT);
    CHECK(strstr(tt_last_error(), "GPU 2 does not exist; this process can use 2") != NULL);
    CHECK_EQ(tt_driver_gpu(-1, &gpu), TT_ERR_ARGUMENT);
}

TEST(driver, memory_of_the_host_is_the_hosts)
{
    struct tt_pointer pointer;
    void *memory = calloc(1, 64);
    CHECK_EQ(tt_driver_pointer(memory, &pointer), TT_OK);
    CHECK_EQ(pointer.kind, TT_POINTER_HOST);
    CHECK_EQ(pointer.gpu, -1);
    CHECK(pointer.base == NULL && pointer.device_address == NULL);
    CHECK_EQ(tt_driver_pointer(NULL, &pointer), TT_OK);
    CHECK_EQ(pointer.kind, TT_POINTER_HOST);
    free(memory);
}

/* A child made by fork cannot use CUDA: whatever it calls fails. What it can read is the host's. */
static bool is_right_in_child(const void *of_gpu)
{
    struct tt_pointer pointer;
    const bool finds_host =
        tt_driver_pointer(&pointer, &pointer) == TT_OK && pointer.kind == TT_POINTER_HOST;
    return finds_host && tt_driver_pointer(of_gpu, &pointer) == TT_ERR_USAGE &&
           strstr(tt_last_error(), "cuPointerGetAttributes failed: process ") == tt_last_error();
}

TEST(driver, a_forked_child_uses_memory_of_the_host_and_is_told_why_it_cannot_use_a_gpus)
{
    int status = 0;
    CUdeviceptr memory = 0;
    (void)use_gpu(0);
    CALL(cuMemAlloc_v2, &memory, 1000);
    const pid_t child = fork();
    if (child == 0) _exit(!is_right_in_child((void *)(uintptr_t)memory));
    REQUIRE(child > 0);
    CHECK_EQ(waitpid(child, &status, 0), child);
    CHECK_EQ(status, 0);
    CALL(cuMemFree_v2, memory);
}

TEST(driver, memory_of_each_gpu_is_that_gpus_with_its_allocation)
{
    for (int number = 0; number < 2; number++) {
        CUdeviceptr memory = 0;
        struct tt_pointer first, inside;
        use_gpu(number);
        CALL(cuMemAlloc_v2, &memory, 1000);
        CHECK_EQ(tt_driver_pointer((void *)(uintptr_t)memory, &first), TT_OK);
        CHECK_EQ(tt_driver_pointer((void *)(uintptr_t)(memory + 999), &inside), TT_OK);
        CHECK_EQ(first.kind, TT_POINTER_DEVICE);
        CHECK_EQ(first.gpu, number);
        CHECK(first.base == (void *)(uintptr_t)memory && inside.base == first.base);
        CHECK_EQ(inside.allocation, first.allocation);
        CHECK(first.allocation != 0 && first.nbytes >= 1000);
        CHECK(inside.device_address == (void *)(uintptr_t)(memory + 999));
        CALL(cuMemFree_v2, memory);
    }
}

TEST(driver, an_address_used_again_has_another_allocation)
{
    CUdeviceptr memory = 0;
    struct tt_pointer pointer;
    uint64_t last = 0;
    use_gpu(0);
    for (int i = 0; i < 4; i++) {
        CALL(cuMemAlloc_v2, &memory, 4096);
        CHECK_EQ(tt_driver_pointer((void *)(uintptr_t)memory, &pointer), TT_OK);
        CHECK(pointer.allocation != last);
        last = pointer.allocation;
        CALL(cuMemFree_v2, memory);
    }
}

TEST(driver, pinned_and_registered_memory_is_the_hosts_and_known_to_gpus)
{
    struct tt_pointer pointer;
    void *pinned = NULL, *registered = NULL;
    use_gpu(1);
    CALL(cuMemHostAlloc, &pinned, 256, CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP);
    CHECK_EQ(tt_driver_pointer((char *)pinned + 255, &pointer), TT_OK);
    CHECK_EQ(pointer.kind, TT_POINTER_REGISTERED);
    CHECK_EQ(pointer.gpu, -1);
    CHECK(pointer.device_address != NULL);
    CHECK_EQ(posix_memalign(&registered, 4096, 8192), 0);
    CHECK_EQ(tt_driver_pointer(registered, &pointer), TT_OK);
    CHECK_EQ(pointer.kind, TT_POINTER_HOST);
    CALL(cuMemHostRegister_v2, registered, 8192, CU_MEMHOSTREGISTER_DEVICEMAP);
    CHECK_EQ(tt_driver_pointer(registered, &pointer), TT_OK);
    CHECK_EQ(pointer.kind, TT_POINTER_REGISTERED);
    CALL(cuMemHostUnregister, registered);
    CHECK_EQ(tt_driver_pointer(registered, &pointer), TT_OK);
    CHECK_EQ(pointer.kind, TT_POINTER_HOST);
    CALL(cuMemFreeHost, pinned);
    free(registered);
}

TEST(driver, managed_memory_is_managed)
{
    CUdeviceptr memory = 0;
    struct tt_pointer pointer;
    use_gpu(0);
    CALL(cuMemAllocManaged, &memory, 4096, CU_MEM_ATTACH_GLOBAL);
    CHECK_EQ(tt_driver_pointer((void *)(uintptr_t)memory, &pointer), TT_OK);
    CHECK_EQ(pointer.kind, TT_POINTER_MANAGED);
    CHECK_EQ(pointer.gpu, -1);
    CALL(cuMemFree_v2, memory);
}

/* ---- MPS ------------------------------------------------------------------------------------ */

/* A socket like that of MPS' control daemon, in a folder of its own. */
static int listen_like_mps(struct sockaddr_un *address)
{
    char folder[] = "/tmp/tutti-mps-XXXXXX";
    CHECK(mkdtemp(folder) != NULL);
    *address = (struct sockaddr_un){.sun_family = AF_UNIX};
    snprintf(address->sun_path, sizeof address->sun_path, "%s/control", folder);
    const int fd = socket(AF_UNIX, SOCK_STREAM, 0);
    CHECK(bind(fd, (const struct sockaddr *)address, sizeof *address) == 0);
    CHECK(listen(fd, 1) == 0);
    setenv("CUDA_MPS_PIPE_DIRECTORY", folder, 1);
    return fd;
}

TEST(mps, a_process_is_a_client_while_the_control_daemon_has_its_socket)
{
    struct sockaddr_un address;
    const int fd = listen_like_mps(&address);
    CHECK(tt_driver_uses_mps());
    struct pollfd seen = {.fd = fd, .events = POLLIN};
    CHECK_EQ(poll(&seen, 1, 0), 0); /* the daemon notices nothing */
    close(fd);                      /* the daemon has died and left its socket */
    CHECK(!tt_driver_uses_mps());
    unlink(address.sun_path);
    CHECK(!tt_driver_uses_mps());
    *strrchr(address.sun_path, '/') = 0;
    rmdir(address.sun_path);
    setenv("CUDA_MPS_PIPE_DIRECTORY", "/nonexistent", 1);
}

/* The folder of MPS is below /tmp, where all may write. */
TEST(mps, a_socket_of_another_user_is_not_its)
{
    if (geteuid()) SKIP("only root can give a socket away");
    enum { OTHER_USER = 48213 };
    struct sockaddr_un address, away;
    const int fd = listen_like_mps(&address);
    char *const folder = strdup(getenv("CUDA_MPS_PIPE_DIRECTORY"));
    REQUIRE(chown(address.sun_path, OTHER_USER, OTHER_USER) == 0);
    CHECK(!tt_driver_uses_mps());
    REQUIRE(chown(address.sun_path, 0, 0) == 0 && tt_driver_uses_mps());
    REQUIRE(chown(folder, OTHER_USER, OTHER_USER) == 0);
    CHECK(!tt_driver_uses_mps());
    REQUIRE(chown(folder, 0, 0) == 0 && tt_driver_uses_mps());
    away = address;
    strcat(away.sun_path, "2");
    REQUIRE(rename(address.sun_path, away.sun_path) == 0);
    REQUIRE(symlink(away.sun_path, address.sun_path) == 0); /* to a socket of root's */
    CHECK(!tt_driver_uses_mps());
    close(fd);
    unlink(address.sun_path);
    unlink(away.sun_path);
    rmdir(folder);
    free(folder);
    setenv("CUDA_MPS_PIPE_DIRECTORY", "/nonexistent", 1);
}

TEST(mps, the_setting_overrides_what_is_found)
{
    struct sockaddr_un address;
    const int fd = listen_like_mps(&address);
    setenv("TUTTI_MPS", "off", 1);
    tt_config_reload();
    CHECK(!tt_driver_uses_mps());
    close(fd);
    unlink(address.sun_path);
    *strrchr(address.sun_path, '/') = 0;
    rmdir(address.sun_path);
    setenv("TUTTI_MPS", "on", 1);
    tt_config_reload();
    CHECK(tt_driver_uses_mps());
    unsetenv("TUTTI_MPS");
    tt_config_reload();
}

/* ---- Distances ------------------------------------------------------------------------------ */

TEST(distance, of_a_gpu_that_this_process_does_not_see_is_unknown)
{
    CHECK_EQ(tt_driver_distance(0, 0), TT_NEAR);
    CHECK_EQ(tt_driver_distance(0, 1), TT_NEAR); /* the virtual GPU has NVLink */
    CHECK_EQ(tt_driver_distance(0, -1), TT_DISTANCE_UNKNOWN);
    CHECK_EQ(tt_driver_distance(0, 2), TT_DISTANCE_UNKNOWN);
}
