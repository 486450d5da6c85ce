/* See shell.h. */
#include "shell.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static char output[65536], folder[] = "/tmp/vgpu-test-XXXXXX";

int vt_shell(const char *format, ...)
{
    char command[2048], text[1024];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    snprintf(command, sizeof command, "exec 2>&1; cd %s/vgpu/example && { %s\n}", TUTTI_SOURCE_DIR,
             text);
    FILE *from = popen(command, "r");
    if (!from) return -1;
    const size_t n = fread(output, 1, sizeof output - 1, from);
    output[n] = 0;
    const int status = pclose(from);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

const char *vt_output(void)
{
    return output;
}

bool vt_output_has(const char *text)
{
    return strstr(output, text) != NULL;
}

static void remove_folder(void)
{
    vt_shell("rm -r %s", folder);
}

const char *vt_temporary(const char *name)
{
    static char path[256];
    static bool made;
    if (!made) {
        made = mkdtemp(folder) != NULL;
        if (made) atexit(remove_folder);
    }
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return path;
}

void vt_write_file(const char *path, const char *text)
{
    FILE *file = fopen(path, "w");
    CHECK(file && fputs(text, file) >= 0);
    if (file) fclose(file);
}
