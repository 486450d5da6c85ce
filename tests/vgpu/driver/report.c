/* Reports. (Minimal: its owner replaces it.) */
#include "driver.h"

#include <stdio.h>

void vd_report(const char *kind, const char *text)
{
    fprintf(stderr, "vgpu: %s (VGPU_SEED=%llu)\n%s\n", kind, (unsigned long long)vd.settings.seed,
            text);
}
