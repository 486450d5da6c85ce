/* Writes text as it comes: holds back what may be the beginning of the stop text or of a character.
 */
#include "stream.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "log.h"

enum { CHARACTER = 4 }; /* bytes of the longest */

tr_status tr_stream_open(struct tr_stream *stream, FILE *file, bool for_people, const char *stop)
{
    *stream = (struct tr_stream){.file = file,
                                 .for_people = for_people,
                                 .stop = stop,
                                 .held = malloc(strlen(stop) + CHARACTER + 1)};
    return stream->held ? TR_OK : tr_fail("out of memory for a text");
}

static tr_status write_first(struct tr_stream *stream, size_t n)
{
    if (!n) return TR_OK;
    errno = 0;
    if (stream->file && stream->for_people)
        tr_log_text(stream->file, (const unsigned char *)stream->held, (long)n);
    else if (stream->file)
        fwrite(stream->held, 1, n, stream->file);
    stream->nheld -= n;
    memmove(stream->held, stream->held + n, stream->nheld);
    if (!stream->file || (fflush(stream->file) == 0 && !ferror(stream->file))) return TR_OK;
    return tr_fail("standard output: %s; the text ends here and is lost in part",
                   errno ? strerror(errno) : "a write has failed");
}

/* How many of the last bytes are the beginning of a character of UTF-8. */
static size_t unfinished(const char *text, size_t n)
{
    for (size_t back = 1; back < CHARACTER && back <= n; ++back) {
        const unsigned char byte = (unsigned char)text[n - back];
        if (byte < 0x80) return 0;
        if (byte < 0xC0) continue; /* not the first of its character */
        const size_t length = byte >= 0xF0 ? 4 : byte >= 0xE0 ? 3 : 2;
        return length > back ? back : 0;
    }
    return 0;
}

/* How many of the last bytes are the beginning of the stop text, but not all of it. */
static size_t begun_stop(const struct tr_stream *stream)
{
    const size_t length = strlen(stream->stop);
    size_t n = length ? length - 1 : 0;
    if (n > stream->nheld) n = stream->nheld;
    while (n && memcmp(stream->held + stream->nheld - n, stream->stop, n) != 0) --n;
    return n;
}

tr_status tr_stream_put(struct tr_stream *stream, unsigned char byte, bool *is_over)
{
    const size_t length = strlen(stream->stop);
    stream->held[stream->nheld++] = (char)byte;
    *is_over = length && stream->nheld >= length &&
               !memcmp(stream->held + stream->nheld - length, stream->stop, length);
    if (*is_over) {
        stream->nheld -= length;
        return TR_OK;
    }
    size_t kept = begun_stop(stream);
    if (stream->for_people) kept += unfinished(stream->held, stream->nheld - kept);
    return write_first(stream, stream->nheld - kept);
}

tr_status tr_stream_end(struct tr_stream *stream)
{
    return write_first(stream, stream->nheld);
}

void tr_stream_close(struct tr_stream *stream)
{
    free(stream->held);
    *stream = (struct tr_stream){0};
}
