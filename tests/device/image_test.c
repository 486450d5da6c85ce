/* GPUs opened by a library whose kernels are damaged, or for other GPUs: this program has images of
 * its own in the place of the library's. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "device/device.h"
#include "device/image.h"
#include "shim.h"

enum { IMAGE_BYTES = 4096 };
__asm__(".data\n"
        ".balign 64\n"
        ".globl tt_device_image\n"
        ".hidden tt_device_image\n"
        "tt_device_image: .zero 4096\n"
        ".globl tt_device_older_image\n"
        ".hidden tt_device_older_image\n"
        "tt_device_older_image: .zero 4096\n"
        ".previous\n");
const char tt_device_image_holds[] = "architectures 91, by a test";

static void set(const unsigned char *image, const void *bytes, size_t nbytes)
{
    unsigned char *writable = (unsigned char *)(uintptr_t)image;
    memset(writable, 0, IMAGE_BYTES);
    memcpy(writable, bytes, nbytes);
}

static void set_image(const void *bytes, size_t nbytes)
{
    set(tt_device_image, bytes, nbytes);
}

#define PTX(version, name, body)                                                                   \
    ".version " version "\n.target sm_75\n.address_size 64\n"                                      \
    ".visible .entry " name "(.param .align 8 .b8 batch[1416])\n{\n" body "ret;\n}\n"

/* The library is sound after the failure: it opens a sound image. */
static void check_open_fails(const void *bytes, size_t nbytes, tt_status status, const char *text)
{
    static const char sound[] = PTX("8.3", "tutti_run", "");
    struct tt_device *device = NULL;
    set_image(bytes, nbytes);
    CHECK_EQ(tt_device_open(0, &device), status);
    CHECK_MESSAGE(strstr(tt_last_error(), text) != NULL, "%s; expected: %s", tt_last_error(), text);
    CHECK_MESSAGE(strstr(tt_last_error(), "GPU 0 (") != NULL, "no GPU in: %s", tt_last_error());
    CHECK_MESSAGE(strstr(tt_last_error(), "compute capability 9.0)") != NULL,
                  "no capability in: %s", tt_last_error());
    CHECK(device == NULL);
    set_image(sound, sizeof sound);
    CHECK_EQ(tt_device_open(0, &device), TT_OK);
    tt_device_close(device);
}

TEST(image, bytes_that_are_no_image_are_refused_in_the_drivers_words)
{
    check_open_fails("no image", 9, TT_ERR_DEVICE, "CUDA_ERROR_INVALID_IMAGE");
    check_open_fails("", 1, TT_ERR_DEVICE, "CUDA_ERROR_INVALID_IMAGE");
}

TEST(image, damaged_ptx_is_refused_with_what_the_drivers_compiler_says)
{
    static const char damaged[] = PTX("8.3", "tutti_run", "add.u32 nothing;\n");
    check_open_fails(damaged, sizeof damaged, TT_ERR_DEVICE, "the driver's compiler: ");
    CHECK_MESSAGE(strstr(tt_last_error(), "CUDA_ERROR_INVALID_PTX") != NULL, "%s", tt_last_error());
}

TEST(image, an_image_without_the_kernel_is_refused_by_the_kernels_name)
{
    static const char other[] = PTX("8.3", "tutti_walk", "");
    check_open_fails(other, sizeof other, TT_ERR_DEVICE, "tutti_run");
}

TEST(image, a_driver_too_old_for_the_ptx_is_named_with_its_version)
{
    static const char later[] = PTX("9.9", "tutti_run", "");
    check_open_fails(later, sizeof later, TT_ERR_USAGE, "is for CUDA 13.");
    check_open_fails(later, sizeof later, TT_ERR_USAGE, "update NVIDIA's driver");
}

TEST(image, a_driver_too_old_for_the_ptx_gets_the_image_for_older_drivers)
{
    static const char later[] = PTX("9.9", "tutti_run", ""), older[] = PTX("8.4", "tutti_run", "");
    struct tt_device *device = NULL;
    set_image(later, sizeof later);
    set(tt_device_older_image, older, sizeof older);
    CHECK_EQ(tt_device_open(0, &device), TT_OK);
    tt_device_close(device);
    set(tt_device_older_image, "", 1);
    check_open_fails(later, sizeof later, TT_ERR_USAGE,
                     "update NVIDIA's driver, or build with -DTUTTI_CUDA_ARCHITECTURES=75 (this "
                     "build has architectures 91, by a test)");
}

TEST(image, a_driver_for_cuda_12_is_given_the_image_for_older_drivers_only)
{
    static const char sound[] = PTX("8.3", "tutti_run", ""), other[] = PTX("8.3", "tutti_walk", "");
    struct tt_device *device = NULL;
    set_image(sound, sizeof sound);
    set(tt_device_older_image, other, sizeof other);
    CHECK_EQ(tt_device_open(0, &device), TT_OK);
    tt_device_close(device);
    REQUIRE(!setenv("VGPU_DRIVER_VERSION", "12090", 1)); /* read at each cuDriverGetVersion */
    CHECK_EQ(tt_device_open(0, &device), TT_ERR_DEVICE);
    CHECK_MESSAGE(strstr(tt_last_error(), "tutti_run"), "%s", tt_last_error());
    set(tt_device_older_image, "", 1);
    CHECK_EQ(tt_device_open(0, &device), TT_ERR_USAGE);
    CHECK_MESSAGE(strstr(tt_last_error(), "is for CUDA 12.9, too old"), "%s", tt_last_error());
    REQUIRE(!unsetenv("VGPU_DRIVER_VERSION"));
}

TEST(image, code_for_other_gpus_only_is_named_with_what_to_build)
{
    /* A fat binary of one entry: code (2) for sm_91. The header, then the entry's. */
    struct {
        uint32_t magic;
        uint16_t version, header;
        uint64_t nbytes;
        uint16_t kind, entry_version;
        uint32_t entry_header;
        uint64_t payload;
        uint32_t compressed, options;
        uint16_t minor, major;
        uint32_t architecture;
        uint64_t more[4];
        char code[8];
    } fat = {.magic = UINT32_C(0xBA55ED50),
             .version = 1,
             .header = 16,
             .nbytes = 72,
             .kind = 2,
             .entry_version = 0x101,
             .entry_header = 64,
             .payload = 8,
             .architecture = 91};
    check_open_fails(&fat, sizeof fat, TT_ERR_USAGE,
                     "which has architectures 91, by a test; build it with "
                     "-DTUTTI_CUDA_ARCHITECTURES=90");
}

TEST(image, a_kernel_that_needs_more_than_the_gpu_has_is_refused_with_the_numbers)
{
    static const char large[] =
        PTX("8.3", "tutti_run",
            ".shared .align 16 .b8 room[240000];\n.reg .u32 r;\nmov.u32 r, room;\n");
    check_open_fails(large, sizeof large, TT_ERR_DEVICE,
                     "cannot hold one block of the kernel: 512 threads");
}
