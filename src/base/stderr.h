/* Standard error and standard output, as far as they are still what the program was started with: a
 * program may close them, and then a file or a connection of its own gets the number 2 or 1. */
#ifndef TT_BASE_STDERR_H
#define TT_BASE_STDERR_H

#include <stddef.h>

/* Remembers which files they are, at the first call. Called before the library reads a
 * setting, writes a line or opens a descriptor. Any thread. Keeps errno. */
void tt_stderr_remember(void);

/* Writes to standard error, in one write; not where it was closed at the first call, or is another
 * file now. Any thread. Keeps errno. */
void tt_stderr_write(const char *text, size_t nbytes);

/* tt_stderr_write to standard output. */
void tt_stdout_write(const char *text, size_t nbytes);

/* tt_stderr_write with "tutti: " in front of the text, and a newline. At most 4 KiB. */
void tt_stderr_say(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Remembers both anew; for tests only. */
void tt_stderr_forget(void);

#endif
