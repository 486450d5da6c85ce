/* Reads files of lines NAME=VALUE, if they may be believed. */
#ifndef TT_BASE_SETTINGS_FILE_H
#define TT_BASE_SETTINGS_FILE_H

#include <stddef.h>

enum tt_settings_file {
    TT_FILE_READ,
    TT_FILE_EMPTY,   /* /dev/null */
    TT_FILE_ABSENT,  /* cannot be opened; the reason is the system's */
    TT_FILE_REFUSED, /* others may write it, it is no regular file, or it cannot be read to its end;
                      * the reason is a sentence that names it and the remedy */
};

/* Calls take(line, path) for each line, without its end; `line` may be changed. Lines may have any
 * length; one with a zero byte is reported on stderr and left out. Where the file was not read, or
 * not to its end, `why` gets the reason. */
enum tt_settings_file tt_settings_file_read(const char *path,
                                            void (*take)(char *line, const char *path), char *why,
                                            size_t size);

#endif
