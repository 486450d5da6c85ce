/* Devices: cuInit, how many there are, their names, identities and peers. */
#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "objects.h"
#include "settings.h"

/* What an SM of each compute capability has. Source: CUDA programming guide, technical
 * specifications per compute capability. */
static const struct {
    uint32_t capability, threads, blocks, shared, shared_of_block;
} models[] = {
    {75, 1024, 16, 64 << 10, 64 << 10},  {80, 2048, 32, 164 << 10, 163 << 10},
    {86, 1536, 16, 100 << 10, 99 << 10}, {87, 1536, 16, 164 << 10, 163 << 10},
    {89, 1536, 24, 100 << 10, 99 << 10}, {90, 2048, 32, 228 << 10, 227 << 10},
};
enum { NMODELS = sizeof models / sizeof *models, REGISTERS = 65536 };

CUresult vd_unsupported(const char *function, const char *what)
{
    fprintf(stderr, "vgpu: WARN: %s: the virtual GPU does not support %s\n", function, what);
    return CUDA_ERROR_NOT_SUPPORTED;
}

struct vd_device *vd_device_of(CUdevice number)
{
    return number >= 0 && number < vd.ndevices ? &vd.devices[number] : NULL;
}

static void open_device(int number, int identity)
{
    struct vd_device *device = &vd.devices[number];
    size_t m = NMODELS - 1;
    while (m > 0 && models[m].capability > vd.settings.capability) m--;
    device->gpu = (struct vg_gpu){.number = number,
                                  .nsms = vd.settings.sms,
                                  .threads_per_sm = models[m].threads,
                                  .blocks_per_sm = models[m].blocks,
                                  .shared_per_sm = models[m].shared,
                                  .shared_per_block = models[m].shared_of_block,
                                  .registers_per_sm = REGISTERS,
                                  .capability = vd.settings.capability,
                                  .regions = &device->regions};
    const uint32_t limit = vd.settings.sm_limit;
    if (limit != 0 && limit < device->gpu.nsms) device->gpu.nsms = limit;
    device->identity = identity;
    device->memory = vd.settings.memory;
    for (int peer = 0; peer < VD_DEVICES; peer++)
        device->peers[peer] = vd.settings.peers && peer != number;
}

/* CUDA_VISIBLE_DEVICES: numbers with commas between; from the first that is none of a device on
 * the devices do not count. */
CUresult vd_devices_start(void)
{
    const char *visible = getenv("CUDA_VISIBLE_DEVICES");
    uint32_t broken[VD_DEVICES] = {0};
    bool taken[VD_DEVICES] = {false};
    int groups[VD_DEVICES];
    (void)vd_settings_pairs(vd.settings.broken, broken); /* these were checked */
    (void)vd_settings_groups(vd.settings.topology, groups);
    for (int i = 0; visible == NULL && i < vd.settings.devices; i++) open_device(vd.ndevices++, i);
    while (visible != NULL && isdigit((unsigned char)*visible)) {
        char *end;
        const unsigned long identity = strtoul(visible, &end, 10);
        if (identity >= (unsigned long)vd.settings.devices || taken[identity]) break;
        taken[identity] = true;
        open_device(vd.ndevices++, (int)identity);
        visible = *end == ',' ? end + 1 : end;
        if (visible == end) break;
    }
    for (int d = 0; d < vd.ndevices; d++) {
        vd.devices[d].broken = broken[vd.devices[d].identity];
        vd.devices[d].group = groups[vd.devices[d].identity];
    }
    return vd.ndevices != 0 ? CUDA_SUCCESS : CUDA_ERROR_NO_DEVICE;
}

/* Of VGPU_EXCLUSIVE a byte for each GPU is locked. The system ends the locks of a process that
 * ends, and those of one that closes the file, which stays open. */
static CUresult lock_byte(int identity, short kind)
{
    static int file = -1;
    struct flock range = {.l_type = kind, .l_whence = SEEK_SET, .l_start = identity, .l_len = 1};
    if (file < 0) file = open(vd.settings.exclusive, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (file < 0) {
        fprintf(stderr, "vgpu: WARN: VGPU_EXCLUSIVE=%s: %s\n", vd.settings.exclusive,
                strerror(errno));
        return CUDA_ERROR_OPERATING_SYSTEM;
    }
    return fcntl(file, F_SETLK, &range) ? CUDA_ERROR_DEVICE_UNAVAILABLE : CUDA_SUCCESS;
}

CUresult vd_device_enter(struct vd_device *device)
{
    const bool first = device->ncontexts == 0;
    const CUresult result =
        first && vd.settings.exclusive ? lock_byte(device->identity, F_WRLCK) : CUDA_SUCCESS;
    device->ncontexts += result == CUDA_SUCCESS;
    return result;
}

void vd_device_exit(struct vd_device *device)
{
    if (--device->ncontexts == 0 && vd.settings.exclusive)
        (void)lock_byte(device->identity, F_UNLCK);
}

CUresult cuInit(unsigned flags)
{
    const CUresult entered = vd_enter();
    if (entered != CUDA_SUCCESS && entered != CUDA_ERROR_NOT_INITIALIZED) return vd_leave(entered);
    if (flags != 0) return vd_leave(CUDA_ERROR_INVALID_VALUE);
    return vd_leave(vd_start());
}

CUresult cuDriverGetVersion(int *version)
{
    if (version == NULL) return CUDA_ERROR_INVALID_VALUE;
    *version = vd_settings_driver_version();
    return CUDA_SUCCESS;
}

CUresult cuDeviceGet(CUdevice *device, int ordinal)
{
    VD_ENTER();
    if (vd_device_of(ordinal) == NULL) return vd_leave(CUDA_ERROR_INVALID_DEVICE);
    if (device == NULL) return vd_leave(CUDA_ERROR_INVALID_VALUE);
    *device = ordinal;
    return vd_leave(CUDA_SUCCESS);
}

CUresult cuDeviceGetCount(int *count)
{
    VD_ENTER();
    if (count == NULL) return vd_leave(CUDA_ERROR_INVALID_VALUE);
    *count = vd.ndevices;
    return vd_leave(CUDA_SUCCESS);
}

CUresult cuDeviceGetName(char *name, int room, CUdevice number)
{
    VD_ENTER();
    const struct vd_device *device = vd_device_of(number);
    if (device == NULL) return vd_leave(CUDA_ERROR_INVALID_DEVICE);
    if (name == NULL || room <= 0) return vd_leave(CUDA_ERROR_INVALID_VALUE);
    snprintf(name, (size_t)room, "tutti virtual GPU %u.%u", device->gpu.capability / 10,
             device->gpu.capability % 10);
    return vd_leave(CUDA_SUCCESS);
}

CUresult cuDeviceGetAttribute(int *value, CUdevice_attribute which, CUdevice number)
{
    VD_ENTER();
    const struct vd_device *device = vd_device_of(number);
    int found;
    if (device == NULL) return vd_leave(CUDA_ERROR_INVALID_DEVICE);
    if (value == NULL || !vd_device_attribute(device, which, &found))
        return vd_leave(CUDA_ERROR_INVALID_VALUE);
    *value = found;
    return vd_leave(CUDA_SUCCESS);
}

CUresult cuDeviceTotalMem_v2(size_t *nbytes, CUdevice number)
{
    VD_ENTER();
    const struct vd_device *device = vd_device_of(number);
    if (device == NULL) return vd_leave(CUDA_ERROR_INVALID_DEVICE);
    if (nbytes == NULL) return vd_leave(CUDA_ERROR_INVALID_VALUE);
    *nbytes = device->memory;
    return vd_leave(CUDA_SUCCESS);
}

/* Equal in all processes, as two processes on one GPU see it. */
CUresult cuDeviceGetUuid_v2(CUuuid *uuid, CUdevice number)
{
    VD_ENTER();
    const struct vd_device *device = vd_device_of(number);
    if (device == NULL) return vd_leave(CUDA_ERROR_INVALID_DEVICE);
    if (uuid == NULL) return vd_leave(CUDA_ERROR_INVALID_VALUE);
    memcpy(uuid->bytes, "tutti vgpu uuid", 16);
    uuid->bytes[15] = (char)device->identity;
    return vd_leave(CUDA_SUCCESS);
}

CUresult cuDeviceGetPCIBusId(char *text, int room, CUdevice number)
{
    VD_ENTER();
    const struct vd_device *device = vd_device_of(number);
    if (device == NULL) return vd_leave(CUDA_ERROR_INVALID_DEVICE);
    if (text == NULL || room < 13) return vd_leave(CUDA_ERROR_INVALID_VALUE);
    snprintf(text, (size_t)room, "%04x:%02x:00.0", VD_PCI_DOMAIN, device->identity);
    return vd_leave(CUDA_SUCCESS);
}

CUresult cuDeviceGetByPCIBusId(CUdevice *number, const char *text)
{
    VD_ENTER();
    unsigned domain, bus;
    if (number == NULL || text == NULL) return vd_leave(CUDA_ERROR_INVALID_VALUE);
    if (sscanf(text, "%x:%x:", &domain, &bus) != 2) return vd_leave(CUDA_ERROR_INVALID_VALUE);
    for (int i = 0; i < vd.ndevices; i++)
        if (domain == VD_PCI_DOMAIN && bus == (unsigned)vd.devices[i].identity) {
            *number = i;
            return vd_leave(CUDA_SUCCESS);
        }
    return vd_leave(CUDA_ERROR_INVALID_DEVICE);
}

CUresult cuDeviceComputeCapability(int *major, int *minor, CUdevice number)
{
    VD_ENTER();
    const struct vd_device *device = vd_device_of(number);
    if (device == NULL) return vd_leave(CUDA_ERROR_INVALID_DEVICE);
    if (major == NULL || minor == NULL) return vd_leave(CUDA_ERROR_INVALID_VALUE);
    *major = (int)device->gpu.capability / 10;
    *minor = (int)device->gpu.capability % 10;
    return vd_leave(CUDA_SUCCESS);
}

CUresult cuDeviceGetExecAffinitySupport(int *value, CUexecAffinityType type, CUdevice number)
{
    VD_ENTER();
    (void)type;
    if (vd_device_of(number) == NULL) return vd_leave(CUDA_ERROR_INVALID_DEVICE);
    if (value == NULL) return vd_leave(CUDA_ERROR_INVALID_VALUE);
    *value = 0;
    return vd_leave(CUDA_SUCCESS);
}

CUresult cuDeviceGetP2PAttribute(int *value, CUdevice_P2PAttribute which, CUdevice from,
                                 CUdevice to)
{
    VD_ENTER();
    const struct vd_device *source = vd_device_of(from);
    if (source == NULL || vd_device_of(to) == NULL || from == to)
        return vd_leave(CUDA_ERROR_INVALID_DEVICE);
    if (value == NULL) return vd_leave(CUDA_ERROR_INVALID_VALUE);
    switch ((int)which) {
    case CU_DEVICE_P2P_ATTRIBUTE_ACCESS_SUPPORTED:
        *value = source->peers[to];
        return vd_leave(CUDA_SUCCESS);
    case CU_DEVICE_P2P_ATTRIBUTE_NATIVE_ATOMIC_SUPPORTED:
        *value = source->peers[to] && source->group == vd.devices[to].group;
        return vd_leave(CUDA_SUCCESS);
    case CU_DEVICE_P2P_ATTRIBUTE_PERFORMANCE_RANK:
        *value = source->group != vd.devices[to].group;
        return vd_leave(CUDA_SUCCESS);
    case CU_DEVICE_P2P_ATTRIBUTE_CUDA_ARRAY_ACCESS_SUPPORTED:
    case CU_DEVICE_P2P_ATTRIBUTE_ONLY_PARTIAL_NATIVE_ATOMIC_SUPPORTED:
        *value = 0;
        return vd_leave(CUDA_SUCCESS);
    default:
        return vd_leave(CUDA_ERROR_INVALID_VALUE);
    }
}
