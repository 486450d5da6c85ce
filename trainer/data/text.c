/* Reads the text to train on: one file, or all text files of a folder in the order of their names.
 */
#include "data.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "../utf8.h"

#ifndef TUTTI_SOURCE_DIR
#define TUTTI_SOURCE_DIR ""
#endif

enum { DEEPEST = 32, PATH_BYTES = 4096 };

static tr_status append(struct tr_text *text, int fd, size_t nbytes, const char *path)
{
    unsigned char *bytes = realloc(text->bytes, text->nbytes + nbytes + 1);
    if (!bytes) return tr_fail("%s: no memory for %zu bytes of text", path, text->nbytes + nbytes);
    text->bytes = bytes;
    size_t done = 0;
    while (done < nbytes) {
        const ssize_t n = read(fd, bytes + text->nbytes + done, nbytes - done);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return tr_fail("%s: %s", path, strerror(errno));
        if (n == 0) break; /* it has shrunk meanwhile */
        done += (size_t)n;
    }
    text->nbytes += done;
    text->nfiles++;
    return TR_OK;
}

/* The place of the first byte, of the first MiB, that is 0 or begins no character of UTF-8; nbytes:
 * there is none. */
static size_t find_binary(const unsigned char *bytes, size_t nbytes)
{
    enum { MOST = 1 << 20 };
    size_t at = 0;
    while (at < nbytes && at < MOST) {
        const int length = bytes[at] ? tr_utf8_length(bytes + at, nbytes - at) : 0;
        if (!length) return at;
        at += (size_t)length;
    }
    return nbytes;
}

static void warn_of_binary(struct tr_text *text, size_t before, const char *path)
{
    const unsigned char *bytes = text->bytes + before;
    const size_t nbytes = text->nbytes - before, at = find_binary(bytes, nbytes);
    if (at == nbytes || text->warning[0]) return;
    char what[48] = "a zero byte";
    if (bytes[at]) snprintf(what, sizeof what, "the byte 0x%02X, not UTF-8,", bytes[at]);
    snprintf(text->warning, sizeof text->warning,
             "warning: %.360s is not text: %s at offset %zu; its bytes are trained on as they are",
             path, what, at);
}

/* `picky`: found in a folder, so leave out what is no text. */
static tr_status read_file(struct tr_text *text, const char *path, bool picky)
{
    /* O_NONBLOCK: opening a FIFO would wait for a writer. It changes nothing for a file. */
    const int fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0)
        return tr_fail("%s: %s; give --data a file or a folder of text", path, strerror(errno));
    struct stat st;
    tr_status status = TR_OK;
    const size_t before = text->nbytes;
    if (fstat(fd, &st) < 0)
        status = tr_fail("%s: %s", path, strerror(errno));
    else if (!S_ISREG(st.st_mode))
        status = tr_fail("%s: neither a regular file nor a folder; give --data a file or a folder "
                         "of text (a pipe's text can be saved to a file first)",
                         path);
    else if (st.st_size > 0)
        status = append(text, fd, (size_t)st.st_size, path);
    close(fd);
    if (status == TR_OK && picky && text->nbytes > before &&
        memchr(text->bytes + before, 0, text->nbytes - before)) {
        text->nbytes = before;
        text->nfiles--;
        text->nleft++;
    }
    if (status == TR_OK) warn_of_binary(text, before, path);
    return status;
}

static int wanted(const struct dirent *entry)
{
    return strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0;
}

static int by_name(const struct dirent **a, const struct dirent **b)
{
    return strcmp((*a)->d_name, (*b)->d_name); /* not alphasort: that follows the locale */
}

static tr_status read_folder(struct tr_text *text, const char *folder, int depth);

static tr_status read_entry(struct tr_text *text, const char *folder, const char *name, int depth)
{
    char path[PATH_BYTES];
    struct stat st;
    const int length = snprintf(path, sizeof path, "%s/%s", folder, name);
    if (length >= PATH_BYTES)
        return tr_fail("%s/%s: the name has more than %d bytes", folder, name, PATH_BYTES - 1);
    if (name[0] != '.') {
        if (lstat(path, &st) < 0)
            return tr_fail("%s: %s; --data gives a folder with it", path, strerror(errno));
        if (S_ISDIR(st.st_mode) && strncmp(name, "build", 5) != 0)
            return read_folder(text, path, depth + 1);
        if (S_ISREG(st.st_mode)) return read_file(text, path, true);
        /* Links are not followed: they may lead out of the folder or round in a circle. */
    }
    text->nleft++;
    return TR_OK;
}

static tr_status read_folder(struct tr_text *text, const char *folder, int depth)
{
    if (depth > DEEPEST) return tr_fail("%s: folders nest deeper than %d", folder, DEEPEST);
    struct dirent **entries;
    const int n = scandir(folder, &entries, wanted, by_name);
    if (n < 0) return tr_fail("%s: %s", folder, strerror(errno));
    tr_status status = TR_OK;
    for (int i = 0; i < n; ++i) {
        if (status == TR_OK) status = read_entry(text, folder, entries[i]->d_name, depth);
        free(entries[i]);
    }
    free(entries);
    return status;
}

static tr_status read_all(struct tr_text *text, const char *path)
{
    struct stat st;
    if (!path[0]) {
        if (!TUTTI_SOURCE_DIR[0] || stat(TUTTI_SOURCE_DIR "/include/tutti.h", &st) < 0)
            return tr_fail(
                "the sources of tutti, the default text, are not at \"%s\" any more; give "
                "--data=FILE or a folder of text",
                TUTTI_SOURCE_DIR);
        return read_folder(text, TUTTI_SOURCE_DIR, 0);
    }
    if (stat(path, &st) == 0 && S_ISDIR(st.st_mode)) return read_folder(text, path, 0);
    return read_file(text, path, false);
}

tr_status tr_text_read(struct tr_text *text, const char *path, double held_out_percent,
                       long context)
{
    *text = (struct tr_text){0};
    TR_TRY(read_all(text, path));
    text->ntrain = text->nbytes - (size_t)((double)text->nbytes * held_out_percent / 100);
    if (text->ntrain > (size_t)context) return TR_OK;
    char left[128] = "", shorter[64] = "";
    if (text->nleft)
        snprintf(left, sizeof left,
                 "; %d files and folders were passed over (hidden, a link, build*, or not text)",
                 text->nleft);
    if (text->ntrain > 1)
        snprintf(shorter, sizeof shorter, " --context=%zu or less, or", text->ntrain - 1);
    return tr_fail("--context=%ld needs %ld bytes of text for training, but %s has %zu%s%s; give%s "
                   "more text",
                   context, context + 1, path[0] ? path : TUTTI_SOURCE_DIR, text->ntrain,
                   text->ntrain < text->nbytes ? " beside the held-out part" : "", left, shorter);
}

void tr_text_fini(struct tr_text *text)
{
    free(text->bytes);
    *text = (struct tr_text){0};
}
