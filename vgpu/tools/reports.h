/* The reports of a run, as its processes added them to the file of VGPU_REPORT. */
#ifndef VGPU_TOOLS_REPORTS_H
#define VGPU_TOOLS_REPORTS_H

#include <stdio.h>
#include <sys/types.h>

/* Prints the reports that stand in the file from that offset on: how many there are, and each kind
 * with its places once. The number of reports; -1: the file cannot be read (errno). */
int vgpu_reports_print(int fd, off_t from, FILE *to);

#endif
