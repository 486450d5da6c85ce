/* Files of named tensors: 8 bytes header length (little endian), a JSON header, the tensors' bytes.
 * github.com/huggingface/safetensors describes the format. Only F32 is written and read here. The
 * metadata hold a checksum of each tensor and, under "header", one of the header with zeros in its
 * place, so a flipped bit is found when the file is opened or the tensor is read.
 * Files are written and read tensor by tensor: memory need not hold more than one. */
#ifndef TR_SAFETENSORS_H
#define TR_SAFETENSORS_H

#include <stddef.h>
#include <stdint.h>

#include "../status.h"

/* One tensor of a file; borrows the name. */
struct tr_tensor {
    const char *name;
    int ndim;
    long shape[2];
    size_t count; /* elements */
};

struct tr_metadata {
    const char *key, *value;
};

/* A file that is being written, and is synced and renamed to path by commit. So path is either the
 * old file or the whole new one, even when the machine stops. A process that dies leaves nothing on
 * file systems that have files without names (O_TMPFILE), unless it dies in the middle of commit;
 * PATH.<pid>.tmp on others. Owned by
 * whoever created it, until commit or discard. */
struct tr_safetensors_writer;

/* Begins a file of these tensors, which are appended in this order; borrows both lists until the
 * end. */
TR_NODISCARD tr_status tr_safetensors_create(struct tr_safetensors_writer **writer,
                                             const char *path, const struct tr_tensor *tensors,
                                             int n, const struct tr_metadata *metadata,
                                             int nmetadata);
/* Writes the next tensor. */
TR_NODISCARD tr_status tr_safetensors_append(struct tr_safetensors_writer *writer,
                                             const float *data);
/* Ends the file, of which every tensor was appended. Failed or not, the writer is gone; failed, so
 * is the temporary file. */
TR_NODISCARD tr_status tr_safetensors_commit(struct tr_safetensors_writer *writer);
/* Removes the temporary file and the writer (may be NULL). */
void tr_safetensors_discard(struct tr_safetensors_writer *writer);

struct tr_safetensors; /* an open file; owned by the opener */

/* Reads and checks the whole header: its checksum (files of older versions have none), lengths,
 * types, shapes, ranges, no holes and no overlaps. */
TR_NODISCARD tr_status tr_safetensors_open(struct tr_safetensors **file, const char *path);
void tr_safetensors_close(struct tr_safetensors *file);

/* The metadata's value; NULL when there is none. Valid until close. */
const char *tr_safetensors_metadata(const struct tr_safetensors *file, const char *key);

/* data[tensor->count] = the tensor. Fails, naming file and tensor, when it is missing, has another
 * shape, or a wrong checksum or none. */
TR_NODISCARD tr_status tr_safetensors_read(const struct tr_safetensors *file,
                                           const struct tr_tensor *tensor, float *data);

/* The 16 digits of the header's own checksum in the header's text; NULL when it has none. */
char *tr_safetensors_find_seal(char *header);

#endif
