/* The text, cut into training and held-out parts, and the order in which it is read. */
#ifndef TR_DATA_H
#define TR_DATA_H

#include <stddef.h>
#include <stdint.h>

#include "../status.h"

/* Owns `bytes`. */
struct tr_text {
    unsigned char *bytes;
    size_t nbytes; /* all of it */
    size_t ntrain; /* the first ntrain are for training, the rest is held out */
    int nfiles;
    int nleft;         /* files and folders of a folder that were passed over */
    char warning[512]; /* a line on the first file that is not text in its first MiB, "": none */
};

/* Reads a file, or every text file under a folder in the order of their names (hidden ones, links,
 * folders named build* and files that hold a zero byte are passed over). path "": the sources this
 * program was built from. */
TR_NODISCARD tr_status tr_text_read(struct tr_text *text, const char *path, double held_out_percent,
                                    long context);
void tr_text_fini(struct tr_text *text);

/* Sample number `sample` (counted over the whole run and all ranks) as context tokens and the byte
 * that follows each. An epoch passes once over all windows of the training part, in an order and
 * with an offset chosen by (seed, epoch): the same on any number of ranks. */
void tr_sampler_get(const struct tr_text *text, uint64_t seed, uint64_t sample, long context,
                    int32_t *tokens, int32_t *targets);

/* Windows of an epoch. */
uint64_t tr_sampler_windows(const struct tr_text *text, long context);

/* Window `index` of the held-out part; there are tr_sampler_held_out of them. */
void tr_sampler_get_held_out(const struct tr_text *text, uint64_t index, long context,
                             int32_t *tokens, int32_t *targets);
uint64_t tr_sampler_held_out(const struct tr_text *text, long context);

#endif
