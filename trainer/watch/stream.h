/* Text that goes to a file as it comes, a byte at a time. */
#ifndef TR_STREAM_H
#define TR_STREAM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

#include "../status.h"

/* Owned by whoever called tr_stream_open; tr_stream_close frees, and leaves the file open. */
struct tr_stream {
    FILE *file;      /* NULL: nothing is written */
    bool for_people; /* what is not text is a dot, so that no command reaches a terminal; else bytes
                      * are written as they are */
    const char *stop; /* ends the text and is not written; "": none. Borrowed */
    char *held;       /* bytes that may be the beginning of `stop` or of a character */
    size_t nheld;
};

TR_NODISCARD tr_status tr_stream_open(struct tr_stream *stream, FILE *file, bool for_people,
                                      const char *stop);
/* Whether the text has ended. */
bool tr_stream_put(struct tr_stream *stream, unsigned char byte);
/* Writes what is held. */
void tr_stream_close(struct tr_stream *stream);

#endif
