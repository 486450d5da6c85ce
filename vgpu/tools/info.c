/* vgpu-info: prints the settings that the environment gives the virtual GPU, and its devices. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include <vgpu/driver/settings.h>

static const char usage[] =
    "usage: vgpu-info [--help]\n"
    "Prints the settings of the virtual GPU, as the environment gives them, and its devices.\n"
    "A program uses it with LD_LIBRARY_PATH=BUILD/vgpu, where libcuda.so.1 lies. Variables:\n";

static int fail(const char *call, CUresult result)
{
    const char *name = "?";
    cuGetErrorName(result, &name);
    fprintf(stderr, "vgpu-info: %s: %s\n", call, name);
    return 1;
}

static int print_device(int ordinal)
{
    char name[64], bus[16];
    size_t nbytes;
    int sms;
    CUdevice device;
    CUresult result = cuDeviceGet(&device, ordinal);
    if (result == CUDA_SUCCESS) result = cuDeviceGetName(name, sizeof name, device);
    if (result == CUDA_SUCCESS) result = cuDeviceGetPCIBusId(bus, sizeof bus, device);
    if (result == CUDA_SUCCESS) result = cuDeviceTotalMem(&nbytes, device);
    if (result == CUDA_SUCCESS)
        result = cuDeviceGetAttribute(&sms, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, device);
    if (result != CUDA_SUCCESS) return fail("a device", result);
    printf("device %d: %s, %s, %d multiprocessors, %zu MiB\n", ordinal, name, bus, sms,
           nbytes >> 20);
    return 0;
}

/* The exit code: output that cannot be written is an error. */
static int end(int code)
{
    if (fflush(stdout) == 0 && !ferror(stdout)) return code;
    fprintf(stderr, "vgpu-info: standard output cannot be written (%s)\n", strerror(errno));
    return 1;
}

int main(int argc, char **argv)
{
    struct vd_settings settings;
    char error[512];
    int count = 0, status = 0;
    if (argc > 1) {
        const bool help = argc == 2 && !strcmp(argv[1], "--help");
        FILE *to = help ? stdout : stderr;
        fputs(usage, to);
        vd_settings_help(to);
        return end(help ? 0 : 2);
    }
    if (vd_settings_read(&settings, error)) {
        fprintf(stderr, "vgpu-info: %s\n", error);
        return 1;
    }
    vd_settings_print(stdout, &settings);
    CUresult result = cuInit(0);
    if (result == CUDA_ERROR_NO_DEVICE) {
        printf("no device\n");
        return end(0);
    }
    if (result == CUDA_SUCCESS) result = cuDeviceGetCount(&count);
    if (result != CUDA_SUCCESS) return fail("cuInit", result);
    for (int i = 0; status == 0 && i < count; i++) status = print_device(i);
    return end(status);
}
