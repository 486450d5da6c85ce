/* The settings. (Minimal: its owner replaces it.) */
#include "driver.h"

#include <stdlib.h>

static uint64_t number(const char *name, uint64_t otherwise)
{
    const char *text = getenv(name);
    return text != NULL && *text != 0 ? strtoull(text, NULL, 0) : otherwise;
}

void vd_settings_read(struct vd_settings *settings)
{
    *settings = (struct vd_settings){.seed = number("VGPU_SEED", 1),
                                     .devices = (int)number("VGPU_DEVICES", 1),
                                     .sms = (uint32_t)number("VGPU_SMS", 132),
                                     .capability = 90,
                                     .memory = UINT64_C(8) << 30,
                                     .model = number("VGPU_MODEL", 1) != 0,
                                     .races_fail = true,
                                     .stall_ms = (uint32_t)number("VGPU_STALL_MS", 5000),
                                     .idle_ms = (uint32_t)number("VGPU_IDLE_MS", 5),
                                     .report = getenv("VGPU_REPORT"),
                                     .driver_version = 13000};
}
