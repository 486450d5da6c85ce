/* See session.h. */
#include <vgpu/session/session.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PAGE = 1 << 21 };
#define FIRST_ADDRESS UINT64_C(0x700000000000)

static void add(struct vs_session *s, const char *text, size_t nbytes)
{
    const size_t n = strlen(s->report);
    snprintf(s->report + n, sizeof s->report - n, "%.*s", (int)nbytes, text);
}

static void print(void *arg, const char *text, uint64_t nbytes)
{
    add(arg, text, nbytes);
}

static void note_race(void *arg, const struct vg_race *race, const char *text)
{
    struct vs_session *s = arg;
    (void)race;
    s->races++;
    add(s, text, strlen(text));
}

/* Buffers and variables lie apart: what is beyond the end of one belongs to nobody. */
static uint64_t place(void *arg, uint64_t nbytes, uint32_t align)
{
    struct vs_session *s = arg;
    (void)align; /* a page is a multiple of every alignment */
    const uint64_t address = s->next_address;
    s->next_address += (nbytes / PAGE + 2) * PAGE;
    return address;
}

static int open_parts(struct vs_session *s, const char *ptx, size_t nbytes, char error[512])
{
    if (vg_ptx_read(ptx, nbytes, &s->module, error)) return -1;
    s->machine = vg_machine_create(&s->settings);
    s->past = vg_past_create();
    if (!s->machine || !s->past) {
        snprintf(error, 512, "no memory for a machine");
        return -1;
    }
    return vg_image_create(s->module, place, s, &s->regions, &s->image, error);
}

struct vs_session *vs_open(const struct vg_machine_settings *settings, const char *ptx,
                           size_t nbytes, char error[512])
{
    struct vs_session *s = calloc(1, sizeof *s);
    if (!s) {
        snprintf(error, 512, "no memory for a session");
        return NULL;
    }
    s->settings = *settings;
    s->settings.print = print;
    s->settings.race = note_race;
    s->settings.arg = s;
    s->next_address = FIRST_ADDRESS;
    s->gpu = (struct vg_gpu){.nsms = 8,
                             .threads_per_sm = 2048,
                             .blocks_per_sm = 32,
                             .shared_per_sm = 233472,
                             .shared_per_block = 49152,
                             .registers_per_sm = 65536,
                             .capability = 90,
                             .regions = &s->regions};
    if (open_parts(s, ptx, nbytes, error)) {
        vs_close(s);
        return NULL;
    }
    return s;
}

void vs_close(struct vs_session *s)
{
    if (!s) return;
    if (s->image) vg_image_destroy(s->image, &s->regions, vg_machine_model(s->machine));
    for (unsigned k = 0; k < s->nbuffers; k++) {
        struct vs_buffer *buffer = &s->buffers[k];
        vg_model_forget(vg_machine_model(s->machine), &buffer->region);
        vg_regions_remove(&s->regions, &buffer->region);
        free(buffer->region.bytes);
        free(buffer->defined);
    }
    if (s->machine) vg_machine_destroy(s->machine);
    vg_past_destroy(s->past);
    if (s->module) vg_module_destroy(s->module);
    free(s->regions.at);
    free(s);
}

struct vg_region *vs_buffer(struct vs_session *s, uint64_t nbytes, const char *what, bool undefined)
{
    if (s->nbuffers == VS_BUFFERS) return NULL;
    struct vs_buffer *buffer = &s->buffers[s->nbuffers];
    buffer->defined = undefined ? calloc(nbytes / 8 + 1, 1) : NULL;
    buffer->region = (struct vg_region){.address = place(s, nbytes, 256),
                                        .nbytes = nbytes,
                                        .bytes = calloc(nbytes, 1),
                                        .defined = buffer->defined,
                                        .what = what,
                                        .number = s->nbuffers};
    if (!buffer->region.bytes || (undefined && !buffer->defined) ||
        vg_regions_add(&s->regions, &buffer->region)) {
        free(buffer->region.bytes);
        free(buffer->defined);
        return NULL;
    }
    s->nbuffers++;
    return &buffer->region;
}

static const struct vg_function *find(const struct vs_session *s, const char *kernel)
{
    for (uint32_t k = 0; k < s->module->nfunctions; k++)
        if (s->module->functions[k].kernel && !strcmp(s->module->functions[k].name, kernel))
            return &s->module->functions[k];
    return NULL;
}

/* Nobody but the kernel runs, so one that waits waits for ever: the machine has looked twice. */
static int finish(struct vs_session *s, struct vg_run *run)
{
    char text[4096];
    enum vg_progress progress;
    do progress = vg_run_step(run);
    while (progress == VG_MOVED);
    if (progress == VG_DONE) return 0;
    if (progress == VG_FAULTED) {
        const char *fault = "";
        s->fault = vg_run_fault(run, &fault);
        add(s, fault, strlen(fault));
        return 1;
    }
    vg_run_describe(run, text, sizeof text);
    s->waits = true;
    add(s, text, strlen(text));
    return 1;
}

int vs_launch(struct vs_session *s, const char *kernel, uint32_t nblocks, uint32_t nthreads,
              uint32_t dynamic_shared, const void *params)
{
    char error[512] = "no kernel of this name";
    struct vg_run *run;
    s->fault = VG_FAULT_NONE;
    s->waits = false;
    const struct vg_launch launch = {.gpu = &s->gpu,
                                     .image = s->image,
                                     .kernel = find(s, kernel),
                                     .grid = {nblocks, 1, 1},
                                     .block = {nthreads, 1, 1},
                                     .dynamic_shared = dynamic_shared,
                                     .params = params,
                                     .number = ++s->launches,
                                     .before = s->past};
    if (!launch.kernel || vg_run_begin(s->machine, &launch, &run, error)) {
        add(s, error, strlen(error));
        return -1;
    }
    const int status = finish(s, run);
    vg_run_end(run, s->past);
    return status;
}

char *vs_read_file(const char *path, size_t *nbytes)
{
    FILE *file = fopen(path, "rb");
    if (!file) return NULL;
    char *bytes = NULL;
    *nbytes = 0;
    if (fseek(file, 0, SEEK_END) == 0) {
        const long length = ftell(file);
        rewind(file);
        bytes = length < 0 ? NULL : malloc((size_t)length + 1);
        if (bytes) {
            *nbytes = fread(bytes, 1, (size_t)length, file);
            bytes[*nbytes] = 0;
        }
    }
    fclose(file);
    return bytes;
}
