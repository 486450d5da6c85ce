/* What refused.c needs: it cannot include CUDA's headers, whose prototypes its functions lack. */
#ifndef VGPU_RUNTIME_REFUSED_H
#define VGPU_RUNTIME_REFUSED_H

/* cudaErrorNotSupported, made the thread's last error, after a line that names the function, unless
 * *said. */
int vr_refuse(const char *name, int *said);

#endif
