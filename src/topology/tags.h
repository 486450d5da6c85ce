/* Reads the tags of an XML file one after the other; what is between them is passed over. For
 * src/topology only. Knows no definitions (<!ENTITY>) and no namespaces. */
#ifndef TT_TOPOLOGY_TAGS_H
#define TT_TOPOLOGY_TAGS_H

#include <stdbool.h>
#include <stddef.h>

#include "base/status.h"

enum { TT_TAGS_ATTRIBUTES = 64 };

/* A part of the text. */
struct tt_text {
    const char *at;
    size_t nbytes;
};

/* Begins with path, text and nbytes, and else zeros; the text is the caller's. The members from
 * `name` on are the tag that was read last. */
struct tt_tags {
    const char *path; /* for messages */
    const char *text;
    size_t nbytes, next; /* the text's length, and how much of it has been read */
    struct tt_text name, names[TT_TAGS_ATTRIBUTES], values[TT_TAGS_ATTRIBUTES];
    int nattributes;
    bool is_end, is_empty; /* </name>, <name/> */
};

/* Reads the next tag; *found: there was one. TT_ERR_ARGUMENT: the text is damaged. */
TT_NODISCARD tt_status tt_tags_next(struct tt_tags *tags, bool *found);

/* The attribute's value as it stands there; without one, an empty text at NULL. */
struct tt_text tt_tags_value(const struct tt_tags *tags, const char *name);

bool tt_text_is(struct tt_text text, const char *expected);
/* How many of its bytes a message shows, as in "%.*s". */
int tt_text_shown(struct tt_text text);

/* TT_ERR_ARGUMENT, with a text that names the file, the line that was read last, and why. */
tt_status tt_tags_fail(const struct tt_tags *tags, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

#endif
