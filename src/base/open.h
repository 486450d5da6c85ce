/* Opens files: no descriptor gets number 0, 1 or 2, all are close-on-exec, and nothing waits for
 * the other end of a pipe. For files that are closed again soon (close, fclose); they are not
 * private. Any thread. */
#ifndef TT_BASE_OPEN_H
#define TT_BASE_OPEN_H

#include <stdbool.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/types.h>

/* As open(2), with O_CLOEXEC, O_NONBLOCK and O_NOCTTY. */
int tt_open(const char *path, int flags, mode_t mode);

/* Opens a file for reading; NULL with errno. */
FILE *tt_open_stream(const char *path);

/* Reads the beginning of a file, at most size - 1 bytes, and ends the text with a zero. The number
 * of bytes, or -1 with errno and an empty text. */
ssize_t tt_read_text(const char *path, char *text, size_t size);

/* Opens a regular file for reading and says what is known of it. What is no regular file is not
 * opened, because a pipe or a device may have no end; -1, and *why says what it is ("it is a pipe")
 * or what the system says. */
int tt_open_regular(const char *path, struct stat *file, const char **why);

/* The words of tt_open_regular: NULL for a regular file. */
const char *tt_kind_of_file(mode_t mode);

/* Whether the file is this user's or root's. */
bool tt_is_own_file(const struct stat *file);

/* Whether a file of settings may be believed: it is this user's or root's, and nobody else may
 * write it, as ssh demands of its own. Else `why` gets the reason and the remedy; `kind` says in it
 * what the file is ("settings file"). */
bool tt_is_safe_file(const struct stat *file, const char *kind, const char *path, char *why,
                     size_t size);

/* As dlopen(3); what the library opens while it is loaded gets no low number either. */
void *tt_open_library(const char *name, int flags);

#endif
