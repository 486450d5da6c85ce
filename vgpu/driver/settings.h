/* The VGPU_* variables: one table, which cuInit reads and vgpu-info prints. */
#ifndef VGPU_DRIVER_SETTINGS_H
#define VGPU_DRIVER_SETTINGS_H

#include <stdio.h>

#include "driver.h"

/* Reads the environment into *settings. -1: a variable has no value that can be; error names it,
 * its value and what was expected. Variables that begin with VGPU_ and are in no row are named in a
 * warning on standard error. */
int vd_settings_read(struct vd_settings *settings, char error[512]);
/* The version of CUDA that first had the symbol; 0: proc_table.h does not say (proc.c). */
int vd_proc_since(const char *symbol);
/* What cuDriverGetVersion returns, also before cuInit. */
int vd_settings_driver_version(void);
/* Whether the variable of that name, which is a number, may have that value; range: what it may be.
 */
bool vd_settings_allow(const char *name, const char *text, char range[128]);
/* The variables with their defaults and a sentence each. */
void vd_settings_help(FILE *to);
/* The variables with the values that *settings has. */
void vd_settings_print(FILE *to, const struct vd_settings *settings);

/* Whether the text is groups of GPUs, as "0,1|2,3"; sets the group of each GPU, 0 of those that are
 * not named. NULL is none. */
bool vd_settings_groups(const char *text, int groups[VD_DEVICES]);
/* Whether the text is pairs of GPUs, as "0-1,1-0": bits[0] has bit 1 then, and bits[1] bit 0. NULL
 * is none. */
bool vd_settings_pairs(const char *text, uint32_t bits[VD_DEVICES]);

#endif
