/* See counts.h. The counts are in shared memory, so that a process that is killed has counted. */
#include "counts.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <vgpu/counts.h>

#include "driver.h"

static struct vgpu_counts *counts; /* NULL: nobody asked */

static int map_counts(const char *path)
{
    struct stat is;
    const int fd = open(path, O_RDWR | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0) return -1;
    errno = EINVAL;
    void *at = MAP_FAILED;
    if (fstat(fd, &is) == 0 && S_ISREG(is.st_mode) && is.st_size >= (off_t)sizeof *counts)
        at = mmap(NULL, sizeof *counts, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    const int why = errno;
    close(fd);
    errno = why;
    if (at == MAP_FAILED) return -1;
    counts = at;
    return 0;
}

int vd_counts_start(char error[512])
{
    const char *path = vd.settings.counts;
    if (path == NULL || counts != NULL) return 0;
    if (map_counts(path) != 0) {
        snprintf(error, 512, "VGPU_COUNTS is \"%.200s\"; expected a file that vgpu-run made: %s",
                 path, strerror(errno));
        return -1;
    }
    atomic_fetch_add_explicit(&counts->processes, 1, memory_order_relaxed);
    return 0;
}

void vd_counts_kernel(void)
{
    if (counts != NULL) atomic_fetch_add_explicit(&counts->kernels, 1, memory_order_relaxed);
}
