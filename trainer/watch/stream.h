/* Text that goes to standard output as it comes, a byte at a time. */
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
/* Writes what can be written by now; *is_over: the text has ended. Fails where the file takes no
 * more: the disk is full, or nobody reads it any more. */
TR_NODISCARD tr_status tr_stream_put(struct tr_stream *stream, unsigned char byte, bool *is_over);
/* Writes what is held; fails likewise. */
TR_NODISCARD tr_status tr_stream_end(struct tr_stream *stream);
void tr_stream_close(struct tr_stream *stream);

#endif
