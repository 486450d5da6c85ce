/* Splits XML text into tags with their attributes. */
#include "topology/tags.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

tt_status tt_tags_fail(const struct tt_tags *tags, const char *format, ...)
{
    char why[256];
    int line = 1;
    va_list args;
    va_start(args, format);
    vsnprintf(why, sizeof why, format, args);
    va_end(args);
    for (size_t i = 0; i < tags->next; i++) line += tags->text[i] == '\n';
    return tt_fail(TT_ERR_ARGUMENT,
                   "topology file '%s' cannot be read as hwloc XML (line %d: %s); expected what "
                   "`lstopo file.xml` or `tutti-info --xml` writes",
                   tags->path, line, why);
}

bool tt_text_is(struct tt_text text, const char *expected)
{
    return text.nbytes == strlen(expected) && !memcmp(text.at, expected, text.nbytes);
}

int tt_text_shown(struct tt_text text)
{
    return text.nbytes < 40 ? (int)text.nbytes : 40;
}

struct tt_text tt_tags_value(const struct tt_tags *tags, const char *name)
{
    for (int i = 0; i < tags->nattributes; i++)
        if (tt_text_is(tags->names[i], name)) return tags->values[i];
    return (struct tt_text){NULL, 0};
}

/* ---- Characters ----------------------------------------------------------------------------- */

/* The next character; a zero at the end, and where the file has one. */
static char peek(const struct tt_tags *tags)
{
    return tags->next < tags->nbytes ? tags->text[tags->next] : '\0';
}

static bool is_blank(char c)
{
    return c == ' ' || c == '\t' || c == '\n' || c == '\r';
}

static bool begins(const struct tt_tags *tags, const char *text)
{
    const size_t length = strlen(text);
    return tags->nbytes - tags->next >= length && !memcmp(tags->text + tags->next, text, length);
}

/* Up to one of the characters, or a zero. */
static struct tt_text take_until(struct tt_tags *tags, const char *stops)
{
    const size_t begin = tags->next;
    while (peek(tags) && !strchr(stops, peek(tags))) tags->next++;
    return (struct tt_text){tags->text + begin, tags->next - begin};
}

/* Behind `text`; false: it does not come. */
static bool skip_past(struct tt_tags *tags, const char *text)
{
    const char *from = tags->text + tags->next;
    const char *found = memmem(from, tags->nbytes - tags->next, text, strlen(text));
    tags->next = found ? (size_t)(found - tags->text) + strlen(text) : tags->nbytes;
    return found;
}

/* ---- Tags ----------------------------------------------------------------------------------- */

static tt_status read_attribute(struct tt_tags *tags)
{
    const struct tt_text tag = tags->name;
    const struct tt_text name = take_until(tags, " \t\r\n=<>/\"'");
    if (!name.nbytes || peek(tags) != '=')
        return tt_tags_fail(tags, "an attribute of <%.*s> has no value", tt_text_shown(tag),
                            tag.at);
    tags->next++;
    const char quote[2] = {peek(tags), '\0'};
    if (quote[0] != '"' && quote[0] != '\'')
        return tt_tags_fail(tags, "the value of '%.*s' has no quotes", tt_text_shown(name),
                            name.at);
    tags->next++;
    const struct tt_text value = take_until(tags, quote);
    if (peek(tags) != quote[0])
        return tt_tags_fail(tags, "the value of '%.*s' does not end", tt_text_shown(name), name.at);
    tags->next++;
    const int n = tags->nattributes;
    if (n == TT_TAGS_ATTRIBUTES)
        return tt_tags_fail(tags, "<%.*s> has more than %d attributes", tt_text_shown(tag), tag.at,
                            TT_TAGS_ATTRIBUTES);
    tags->names[n] = name;
    tags->values[n] = value;
    tags->nattributes++;
    return TT_OK;
}

/* Behind the next "<" of a tag; passes over comments and declarations. False: the file ends. */
static bool find(struct tt_tags *tags)
{
    while (skip_past(tags, "<")) {
        const bool is_comment = begins(tags, "!--");
        if (!is_comment && !begins(tags, "?") && !begins(tags, "!")) return true;
        if (!skip_past(tags, is_comment ? "-->" : ">")) return false;
    }
    return false;
}

tt_status tt_tags_next(struct tt_tags *tags, bool *found)
{
    *found = find(tags);
    if (!*found) return TT_OK;
    tags->is_end = begins(tags, "/");
    tags->is_empty = false;
    tags->nattributes = 0;
    tags->next += tags->is_end;
    tags->name = take_until(tags, " \t\r\n/<>");
    if (!tags->name.nbytes) return tt_tags_fail(tags, "a tag has no name");
    for (;;) {
        const bool blank = is_blank(peek(tags));
        while (is_blank(peek(tags))) tags->next++;
        tags->is_empty = !tags->is_end && begins(tags, "/>");
        if (tags->is_empty || peek(tags) == '>') {
            tags->next += tags->is_empty ? 2 : 1;
            return TT_OK;
        }
        if (!blank || tags->is_end)
            return tt_tags_fail(tags, "<%.*s> does not end", tt_text_shown(tags->name),
                                tags->name.at);
        TT_TRY(read_attribute(tags));
    }
}
