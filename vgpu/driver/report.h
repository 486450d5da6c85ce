/* The beginning of reports; vd_report stands in driver.h. */
#ifndef VGPU_DRIVER_REPORT_H
#define VGPU_DRIVER_REPORT_H

/* Reads the suppressions and tries the report's file. -1: error says what is wrong. */
int vd_report_start(char error[512]);
/* cuInit failed: this process makes no reports. */
void vd_report_stop(void);

#endif
