/* What the reader's tests share. */
#include <vgpu/ptx/testing.h>

#include <shim.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct vg_module *vg_test_read(const char *text)
{
    const size_t nbytes = strlen(text);
    struct vg_module *module = NULL;
    char error[256];
    char *copy = malloc(nbytes);
    if (!copy) return NULL;
    memcpy(copy, text, nbytes);
    if (vg_ptx_read(copy, nbytes, &module, error) != 0) {
        tt_test_fail(__FILE__, __LINE__, "%s\n%s", error, text);
        module = NULL;
    }
    free(copy);
    return module;
}

char *vg_test_file(const char *path, size_t *nbytes)
{
    FILE *file = fopen(path, "rb");
    if (!file) return NULL;
    size_t room = 1 << 16;
    char *bytes = malloc(room);
    *nbytes = 0;
    while (bytes) {
        *nbytes += fread(bytes + *nbytes, 1, room - *nbytes, file);
        if (*nbytes < room) break;
        room *= 2;
        char *larger = realloc(bytes, room);
        if (!larger) free(bytes);
        bytes = larger;
    }
    fclose(file);
    return bytes;
}
