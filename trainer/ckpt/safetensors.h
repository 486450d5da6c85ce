/* Files of named tensors: 8 bytes header length (little endian), a JSON header, the tensors' bytes.
 * github.com/huggingface/safetensors describes the format. Only F32 is written and read here. The
 * metadata hold a checksum of each tensor and, under "header", one of the header with zeros in its
 * place, so a flipped bit is found when the file is opened or the tensor is read.
 * Several processes may write a file, each some of its numbers, in any order. */
#ifndef TR_SAFETENSORS_H
#define TR_SAFETENSORS_H

#include <limits.h>
#include <stdbool.h>
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
 * old file or the whole new one, even when the machine stops. Owned by whoever created or joined
 * it, until commit, leave or discard. */
struct tr_safetensors_writer;

/* Begins a file of these tensors; borrows both lists until the end. shared: other processes join.
 * A file that is not shared has no name until commit where the file system has files without names
 * (O_TMPFILE), so that a process that dies leaves nothing; else it is PATH.<pid>.tmp from the
 * beginning. */
TR_NODISCARD tr_status tr_safetensors_create(struct tr_safetensors_writer **writer,
                                             const char *path, const struct tr_tensor *tensors,
                                             int n, const struct tr_metadata *metadata,
                                             int nmetadata, bool shared);
/* Takes the disk's room for the whole file, where the file system can do that ahead, which may take
 * as long as writing to memory. Fails where there is no room: a put would find that only when the
 * disk is full. By the process that has created the file. */
TR_NODISCARD tr_status tr_safetensors_take_room(const struct tr_safetensors_writer *writer);

/* How other processes find a file that is shared. */
struct tr_safetensors_place {
    char temporary[PATH_MAX];
    uint64_t length, checksum; /* of the header as it is until commit */
    uint64_t kernel;           /* tells the kernel that the file's creator runs on from others */
};
void tr_safetensors_locate(const struct tr_safetensors_writer *writer,
                           struct tr_safetensors_place *place);
/* Opens the file that another process has created, of these tensors. Fails where this process does
 * not see that file, on a host that does not share the file system; and on another host than the
 * creator's where the file system does not keep what hosts write to one page apart, as NFS. */
TR_NODISCARD tr_status tr_safetensors_join(struct tr_safetensors_writer **writer,
                                           const struct tr_safetensors_place *place,
                                           const struct tr_tensor *tensors, int n);

/* Writes data[count], the numbers of a tensor from `first` on. Each number is written once, by
 * whichever process. */
TR_NODISCARD tr_status tr_safetensors_put(struct tr_safetensors_writer *writer, int tensor,
                                          size_t first, const float *data, size_t count);
/* For each tensor a checksum of what was put here, and how many numbers these were: whoever commits
 * has to have the sums of all processes here (modulo 2^64). [2 n], changed in place. */
uint64_t *tr_safetensors_sums(struct tr_safetensors_writer *writer);
/* Waits until the disk has what was put here. */
TR_NODISCARD tr_status tr_safetensors_sync(struct tr_safetensors_writer *writer);
/* Completes a file that this process has created, of which every number was put, and waits until
 * the disk has it: commit, which does that else, has but to name it. */
TR_NODISCARD tr_status tr_safetensors_finish(struct tr_safetensors_writer *writer);
/* Ends a file that this process has created, of which every number was put. Failed or not, the
 * writer is gone; failed, so is the temporary file. *is_named: the file has its name, also where
 * this fails because the folder cannot be synced. */
TR_NODISCARD tr_status tr_safetensors_commit(struct tr_safetensors_writer *writer, bool *is_named);
/* Frees the writer (may be NULL) of a process that joined; the file stays. */
void tr_safetensors_leave(struct tr_safetensors_writer *writer);
/* Removes the temporary file and the writer (may be NULL). */
void tr_safetensors_discard(struct tr_safetensors_writer *writer);

struct tr_safetensors; /* an open file; owned by the opener */

/* Reads and checks the whole header: its checksum (files of other programs have none), lengths,
 * types, shapes, ranges, no holes and no overlaps. */
TR_NODISCARD tr_status tr_safetensors_open(struct tr_safetensors **file, const char *path);
/* The path that it was opened by. */
const char *tr_safetensors_path(const struct tr_safetensors *file);
/* Whether the path is the file's now. */
bool tr_safetensors_is_at(const struct tr_safetensors *file, const char *path);
void tr_safetensors_close(struct tr_safetensors *file);

/* Whether the header has a checksum, which was right. */
bool tr_safetensors_is_sealed(const struct tr_safetensors *file);

/* The metadata's value; NULL when there is none. Valid until close. */
const char *tr_safetensors_metadata(const struct tr_safetensors *file, const char *key);

/* data[tensor->count] = the tensor. Fails, naming file and tensor, when it is missing, has another
 * shape, or a wrong checksum or none. */
TR_NODISCARD tr_status tr_safetensors_read(const struct tr_safetensors *file,
                                           const struct tr_tensor *tensor, float *data);

/* Reads all tensors. Fails, naming file and tensor, when a checksum is wrong or missing. */
TR_NODISCARD tr_status tr_safetensors_check(const struct tr_safetensors *file);

/* What the checksums of files add up: each number counts with its place in the tensor. */
uint64_t tr_safetensors_sum(size_t first, const float *data, size_t count);

/* The 16 digits of the header's own checksum in the header's text; NULL when it has none. */
char *tr_safetensors_find_seal(char *header);

#endif
