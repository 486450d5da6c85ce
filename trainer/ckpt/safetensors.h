/* Files of named tensors: 8 bytes header length (little endian), a JSON header, the tensors' bytes.
 * github.com/huggingface/safetensors describes the format. Only F32 is written and read here. Each
 * tensor's checksum is kept in the metadata, so a flipped bit is found when the tensor is read. */
#ifndef TR_SAFETENSORS_H
#define TR_SAFETENSORS_H

#include <stddef.h>
#include <stdint.h>

#include "../status.h"

/* One tensor to write, or to read into. Borrows name and data. */
struct tr_tensor {
    const char *name;
    int ndim;
    long shape[2];
    float *data;
    size_t count;
};

struct tr_metadata {
    const char *key, *value;
};

/* Writes PATH.<pid>.tmp, syncs it and renames it to path: path is either the old file or the whole
 * new one, even when the machine stops. On failure the temporary file is removed. */
TR_NODISCARD tr_status tr_safetensors_write(const char *path, const struct tr_tensor *tensors,
                                            int n, const struct tr_metadata *metadata,
                                            int nmetadata);

struct tr_safetensors; /* an open file; owned by the opener */

/* Reads and checks the whole header: lengths, types, shapes, ranges, no holes and no overlaps. */
TR_NODISCARD tr_status tr_safetensors_open(struct tr_safetensors **file, const char *path);
void tr_safetensors_close(struct tr_safetensors *file);

/* The metadata's value; NULL when there is none. Valid until close. */
const char *tr_safetensors_metadata(const struct tr_safetensors *file, const char *key);

/* Fills tensor->data. Fails, naming file and tensor, when it is missing, has another shape or a
 * wrong checksum. */
TR_NODISCARD tr_status tr_safetensors_read(const struct tr_safetensors *file,
                                           const struct tr_tensor *tensor);

#endif
