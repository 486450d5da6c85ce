/* Files of pictures, in SVG. */
#ifndef TR_SVG_H
#define TR_SVG_H

#include <stdio.h>

#include "../status.h"

/* Writes what `draw` draws under another name, which then replaces the file at `path`. A file that
 * is neither empty nor a picture is not replaced, nor is what is no regular file. Errors name
 * --option=path. */
TR_NODISCARD tr_status tr_svg_write(const char *option, const char *path,
                                    void (*draw)(const void *arg, FILE *out), const void *arg);

/* Text of the user's within XML. */
void tr_svg_text(const char *text, FILE *out);

#endif
