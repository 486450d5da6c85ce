/* Writes pictures to files, and text into pictures. */
#include "svg.h"

#include <errno.h>
#include <limits.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "log.h"

/* Text of the user's within XML. */
void tr_svg_text(const char *text, FILE *out)
{
    for (;;) {
        const size_t n = strcspn(text, "&<>\"");
        tr_log_text(out, (const unsigned char *)text, (long)n);
        text += n;
        if (!*text) return;
        fputs(*text == '&'   ? "&amp;"
              : *text == '<' ? "&lt;"
              : *text == '>' ? "&gt;"
                             : "&quot;",
              out);
        ++text;
    }
}

/* Another file of this name is replaced only where it is empty or a picture: never a device, nor a
 * link, nor a log, data or a checkpoint, which would be lost. */
static tr_status check_target(const char *option, const char *path)
{
    static const char begin[] = "<svg";
    char text[sizeof begin] = "";
    struct stat there;
    if (lstat(path, &there) != 0) return TR_OK;
    if (!S_ISREG(there.st_mode))
        return tr_fail("--%s=%s: not a regular file; give the name of a file", option, path);
    FILE *file = fopen(path, "r");
    if (!file) return tr_fail("--%s=%s: %s", option, path, strerror(errno));
    const size_t n = fread(text, 1, sizeof begin - 1, file);
    fclose(file);
    if (!n || !strcmp(text, begin)) return TR_OK;
    return tr_fail("--%s=%s: a file that is no picture has this name; give another name, or "
                   "remove the file",
                   option, path);
}

tr_status tr_svg_write(const char *option, const char *path,
                       void (*draw)(const void *arg, FILE *out), const void *arg)
{
    char name[PATH_MAX];
    TR_TRY(check_target(option, path));
    const int length = snprintf(name, sizeof name, "%s.%ld.tmp", path, (long)getpid());
    FILE *file = NULL;
    if (length >= (int)sizeof name)
        errno = ENAMETOOLONG;
    else
        file = fopen(name, "w");
    if (!file) return tr_fail("--%s=%s: %s", option, path, strerror(errno));
    draw(arg, file);
    int error = fflush(file) || ferror(file) ? errno : 0;
    if (fclose(file) && !error) error = errno;
    if (!error && rename(name, path)) error = errno;
    if (!error) return TR_OK;
    unlink(name);
    return tr_fail("--%s=%s: %s", option, path, strerror(error));
}
