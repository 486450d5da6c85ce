/* Finds and reads the PTX of a module: text, a fat binary (fat/), or the wrapper around one that
 * nvcc puts into programs. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include <vgpu/fat/fat.h>

#include "objects.h"

/* In programs of nvcc the symbol __fatbinwrap; seen in what nvcc 13.0 makes. */
struct wrapper {
    uint32_t magic, version;
    const void *fat;
    const void *others; /* of version 2: fat binaries that were linked before */
};
#define WRAPPER_MAGIC UINT32_C(0x466243b1)
#define FAT_MAGIC UINT32_C(0xBA55ED50)
enum { LATEST_VERSION = 95 }; /* of PTX that ptx/ knows */

/* The latest version of PTX that a driver of VGPU_DRIVER_VERSION takes. One for CUDA 13 takes all
 * that ptx/ knows. */
static unsigned latest_version(void)
{
    static const struct {
        int driver;
        unsigned ptx;
    } versions[] = {{13000, LATEST_VERSION},
                    {12090, 88},
                    {12080, 87},
                    {12070, 86},
                    {12050, 85},
                    {12040, 84},
                    {12030, 83},
                    {12020, 82},
                    {12010, 81},
                    {12000, 80},
                    {11080, 78},
                    {11070, 77},
                    {11060, 76},
                    {11050, 75},
                    {11040, 74},
                    {11030, 73},
                    {11020, 72},
                    {11010, 71}};
    for (size_t i = 0; i < sizeof versions / sizeof *versions; i++)
        if (vd.settings.driver_version >= versions[i].driver) return versions[i].ptx;
    return 70;
}

/* Writes text into the log of an option and its size into that of the log's size, as CUDA does. */
static bool write_log(const struct vd_jit *jit, CUjit_option buffer, CUjit_option size,
                      const char *text)
{
    char *to = NULL;
    size_t room = 0, *written = NULL;
    for (unsigned i = 0; i < jit->noptions; i++) {
        if (jit->options[i] == buffer) to = jit->values[i];
        if (jit->options[i] == size) {
            room = (size_t)(uintptr_t)jit->values[i];
            written = (size_t *)(void *)&jit->values[i];
        }
    }
    if (to == NULL || room == 0) return false;
    snprintf(to, room, "%s", text);
    *written = strlen(to);
    return true;
}

static CUresult refuse(const struct vd_jit *jit, CUresult result, const char *text)
{
    write_log(jit, CU_JIT_INFO_LOG_BUFFER, CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES, "");
    if (!write_log(jit, CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES, text))
        fprintf(stderr, "vgpu: ERROR: a module was not loaded: %s\n", text);
    return result;
}

/* Behind blanks and comments. */
static const char *skip(const char *text)
{
    for (;;) {
        text += strspn(text, " \t\r\n");
        const char *end = !strncmp(text, "//", 2)   ? strchr(text, '\n')
                          : !strncmp(text, "/*", 2) ? strstr(text, "*/")
                                                    : NULL;
        if (end == NULL) return text;
        text = end + (*end == '*' ? 2 : 1);
    }
}

static uint32_t capability_of_devices(void)
{
    return vd.settings.capability;
}

/* What was read, which modules share: reading the kernels of a library takes longer than many a
 * test of them. Reports name its lines, so it stays. */
struct read {
    struct read *next;
    struct vg_module *module;
    size_t nbytes;
    const char *text; /* in pages of its own, which nobody searches for leaks */
};
static struct read *all_read;

static const char *kept(const char *text, size_t nbytes)
{
    void *pages =
        mmap(NULL, nbytes + 1, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return pages == MAP_FAILED ? NULL : memcpy(pages, text, nbytes);
}

/* As vg_ptx_read, but of a text that was read before it gives the same module. */
static int read_once(const char *text, struct vg_module **module, char error[256])
{
    const size_t nbytes = strlen(text);
    for (const struct read *read = all_read; read != NULL; read = read->next)
        if (read->nbytes == nbytes && !memcmp(read->text, text, nbytes)) {
            *module = read->module;
            return 0;
        }
    if (vg_ptx_read(text, nbytes, module, error) != 0) return -1;
    struct read *read = malloc(sizeof *read);
    if (read == NULL) return 0; /* it is read once more the next time */
    *read = (struct read){all_read, *module, nbytes, kept(text, nbytes)};
    if (read->text != NULL)
        all_read = read;
    else
        free(read);
    return 0;
}

static CUresult read_text(const char *text, const struct vd_jit *jit, struct vg_module **module)
{
    char error[256];
    unsigned major = 0, minor = 0;
    const char *first = skip(text);
    if (strncmp(first, ".version", 8) != 0)
        return refuse(jit, CUDA_ERROR_INVALID_IMAGE,
                      "the image is no PTX (it does not begin with .version) and no fat binary");
    if (sscanf(first, ".version %u.%u", &major, &minor) == 2 &&
        10 * major + minor > latest_version()) {
        const int driver = vd.settings.driver_version;
        snprintf(error, sizeof error,
                 "PTX of version %u.%u; this driver, for CUDA %d.%d (VGPU_DRIVER_VERSION), reads "
                 "6.0 to %u.%u",
                 major, minor, driver / 1000, driver % 1000 / 10, latest_version() / 10,
                 latest_version() % 10);
        return refuse(jit, CUDA_ERROR_UNSUPPORTED_PTX_VERSION, error);
    }
    if (read_once(text, module, error) != 0) return refuse(jit, CUDA_ERROR_INVALID_PTX, error);
    const uint32_t capability = capability_of_devices();
    if ((*module)->target <= capability) {
        write_log(jit, CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES, "");
        write_log(jit, CU_JIT_INFO_LOG_BUFFER, CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES, "");
        return CUDA_SUCCESS;
    }
    snprintf(error, sizeof error,
             "PTX for sm_%u; the GPU has compute capability %u.%u (VGPU_CAPABILITY)",
             (*module)->target, capability / 10, capability % 10);
    return refuse(jit, CUDA_ERROR_INVALID_PTX, error);
}

/* The size stands in the header: what follows the image is not known. */
static CUresult read_fat(const unsigned char *bytes, const struct vd_jit *jit,
                         struct vg_module **module)
{
    char error[256], *text;
    size_t length;
    uint16_t header;
    uint64_t entries;
    memcpy(&header, bytes + 6, sizeof header);
    memcpy(&entries, bytes + 8, sizeof entries);
    if (vg_fat_read(bytes, header + (size_t)entries, capability_of_devices(), &text, &length,
                    error) != 0)
        return refuse(jit, CUDA_ERROR_NO_BINARY_FOR_GPU, error);
    const CUresult result = read_text(text, jit, module);
    free(text);
    return result;
}

/* wrapped: the image was found in a wrapper. */
static CUresult read_image(const void *image, bool wrapped, const struct vd_jit *jit,
                           struct vg_module **module)
{
    uint32_t magic;
    if (image == NULL || (jit->noptions != 0 && (jit->options == NULL || jit->values == NULL)))
        return CUDA_ERROR_INVALID_VALUE;
    if (strnlen(image, sizeof magic) < sizeof magic)
        return refuse(jit, CUDA_ERROR_INVALID_IMAGE, "the image is empty");
    memcpy(&magic, image, sizeof magic);
    if (magic == WRAPPER_MAGIC && wrapped)
        return refuse(jit, CUDA_ERROR_INVALID_IMAGE,
                      "the image is a wrapper in a wrapper; a fat binary is expected there");
    if (magic == WRAPPER_MAGIC) {
        struct wrapper wrapper;
        memcpy(&wrapper, image, sizeof wrapper);
        return read_image(wrapper.fat, true, jit, module);
    }
    if (magic == FAT_MAGIC) return read_fat(image, jit, module);
    if (!memcmp(image, "\177ELF", 4))
        return refuse(jit, CUDA_ERROR_NO_BINARY_FOR_GPU,
                      "the image is a cubin, which is for one GPU; the virtual GPU runs PTX: give "
                      "nvcc -ptx, or -fatbin with code=compute_...");
    return read_text(image, jit, module);
}

CUresult vd_image_read(const void *image, const struct vd_jit *jit, struct vg_module **module)
{
    return read_image(image, false, jit, module);
}

CUresult vd_file_read(const char *path, char **bytes)
{
    if (path == NULL) return CUDA_ERROR_INVALID_VALUE;
    FILE *file = fopen(path, "rb");
    if (file == NULL) {
        fprintf(stderr, "vgpu: ERROR: %s: %s\n", path, strerror(errno));
        return CUDA_ERROR_FILE_NOT_FOUND;
    }
    char *made = NULL;
    CUresult result = CUDA_ERROR_FILE_NOT_FOUND;
    if (fseek(file, 0, SEEK_END) == 0) {
        const long length = ftell(file);
        rewind(file);
        made = length < 0 ? NULL : calloc(1, (size_t)length + 4);
        if (made != NULL && fread(made, 1, (size_t)length, file) == (size_t)length)
            result = CUDA_SUCCESS;
    }
    fclose(file);
    if (result == CUDA_SUCCESS)
        *bytes = made;
    else
        free(made);
    return result;
}
