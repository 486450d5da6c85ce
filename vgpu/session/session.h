/* One GPU and one module without a driver: loads PTX, makes buffers, runs kernels to their ends and
 * keeps what is reported. For tests of kernels. */
#ifndef VGPU_SESSION_H
#define VGPU_SESSION_H

#include <vgpu/machine.h>

enum { VS_BUFFERS = 16, VS_TEXT = 1 << 16 };

struct vs_buffer {
    struct vg_region region;
    unsigned char *defined;
};

struct vs_session {
    struct vg_machine_settings settings;
    struct vg_gpu gpu;
    struct vg_regions regions;
    struct vg_machine *machine;
    struct vg_module *module;
    struct vg_image *image;
    struct vg_past *past;
    struct vs_buffer buffers[VS_BUFFERS];
    unsigned nbuffers;
    uint64_t next_address, launches;
    enum vg_fault fault; /* of the last launch */
    bool waits;          /* the last launch waits for what never comes */
    unsigned races;
    char report[VS_TEXT]; /* races, faults, who waits */
};

/* The session with these settings (its print, race and arg are set here) and the module of the PTX
 * text. NULL: error says why. */
struct vs_session *vs_open(const struct vg_machine_settings *settings, const char *ptx,
                           size_t nbytes, char error[512]);
void vs_close(struct vs_session *session);
/* A buffer of zero bytes; undefined: as if nobody had written them. NULL: no memory. */
struct vg_region *vs_buffer(struct vs_session *session, uint64_t nbytes, const char *what,
                            bool undefined);
/* Runs the kernel to its end. 0: done; 1: it failed or waits for ever, and the report says why; -1:
 * it cannot be launched. */
int vs_launch(struct vs_session *session, const char *kernel, uint32_t nblocks, uint32_t nthreads,
              uint32_t dynamic_shared, const void *params);
/* The bytes of a file, with a zero behind them, which free() frees; NULL: it cannot be read. */
char *vs_read_file(const char *path, size_t *nbytes);

#endif
