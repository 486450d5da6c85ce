/* See fat.h. All numbers are little-endian, as on the hosts that CUDA runs on. */
#include <vgpu/fat/fat.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#ifdef VGPU_ZSTD
#include <zstd.h>
#endif

#define MAGIC UINT32_C(0xBA55ED50)
enum { KIND_PTX = 1, KIND_ELF = 2 };
enum { FLAG_LZ4 = 0x2000, FLAG_ZSTD = 0x8000 };
enum { HEADER_BYTES = 16, ENTRY_BYTES = 64 };
enum { MOST_TEXT = 1 << 28 }; /* no PTX is longer: a size beyond comes from a damaged file */

struct header {
    uint32_t magic;
    uint16_t version, nbytes;
    uint64_t entries; /* bytes behind the header */
};

/* The beginning of an entry's header; more may follow, nbytes in all. */
struct entry {
    uint16_t kind, version;
    uint32_t nbytes;  /* of the header */
    uint64_t payload; /* bytes behind it, filled up to a multiple of 8 */
    uint32_t compressed, options;
    uint16_t minor, major;
    uint32_t architecture, name, name_bytes;
    uint64_t flags, zero, decompressed;
};
_Static_assert(sizeof(struct header) == HEADER_BYTES, "as in the file");
_Static_assert(sizeof(struct entry) == ENTRY_BYTES, "as in the file");

bool vg_fat_is(const void *bytes, size_t nbytes)
{
    uint32_t magic = 0;
    if (nbytes < HEADER_BYTES) return false;
    memcpy(&magic, bytes, sizeof magic);
    return magic == MAGIC;
}

/* An entry and its payload, inside the file. */
struct found {
    struct entry entry;
    const unsigned char *payload;
};

static int fail(char error[256], const char *what, size_t offset)
{
    snprintf(error, 256, "fat binary: %s at byte %zu; expected a file as nvcc -fatbin writes it",
             what, offset);
    return -1;
}

/* Reads the entry at the offset and moves the offset behind it. */
static int next_entry(const unsigned char *bytes, size_t nbytes, size_t *offset,
                      struct found *found, char error[256])
{
    const size_t left = nbytes - *offset;
    memset(found, 0, sizeof *found);
    if (left < ENTRY_BYTES) return fail(error, "the file ends in the header of an entry", *offset);
    memcpy(&found->entry, bytes + *offset, ENTRY_BYTES);
    const struct entry *entry = &found->entry;
    if (entry->nbytes < ENTRY_BYTES || entry->nbytes > left)
        return fail(error, "an entry has a wrong header size", *offset);
    if (entry->payload > left - entry->nbytes)
        return fail(error, "the file ends in an entry", *offset);
    found->payload = bytes + *offset + entry->nbytes;
    *offset += entry->nbytes + (size_t)entry->payload;
    return 0;
}

static int decompress(const struct found *found, unsigned char *to, char error[256])
{
    const struct entry *entry = &found->entry;
    const size_t nto = (size_t)entry->decompressed;
    if (entry->flags & FLAG_LZ4) {
        if (vg_lz4_decode(found->payload, entry->compressed, to, nto) == 0) return 0;
        snprintf(error, 256, "fat binary: the LZ4 block of the PTX for compute_%u is damaged",
                 entry->architecture);
        return -1;
    }
#ifdef VGPU_ZSTD
    if (ZSTD_decompress(to, nto, found->payload, entry->compressed) == nto) return 0;
    snprintf(error, 256, "fat binary: the zstd frame of the PTX for compute_%u is damaged",
             entry->architecture);
#else
    snprintf(error, 256,
             "fat binary: the PTX for compute_%u is compressed by zstd, and this build has no "
             "libzstd; install libzstd-dev, or "
             "give nvcc --no-compress",
             entry->architecture);
#endif
    return -1;
}

static int text_of(const struct found *found, char **ptx, size_t *length, char error[256])
{
    const struct entry *entry = &found->entry;
    const bool packed = entry->flags & (FLAG_LZ4 | FLAG_ZSTD);
    const uint64_t size = packed ? entry->decompressed : entry->payload;
    if (size > MOST_TEXT || (packed && entry->compressed > entry->payload)) {
        snprintf(error, 256, "fat binary: the PTX for compute_%u has an impossible size",
                 entry->architecture);
        return -1;
    }
    char *text = malloc((size_t)size + 1);
    if (!text) {
        snprintf(error, 256, "no memory for %llu bytes of PTX", (unsigned long long)size);
        return -1;
    }
    if (!packed)
        memcpy(text, found->payload, (size_t)size);
    else if (decompress(found, (unsigned char *)text, error)) {
        free(text);
        return -1;
    }
    text[size] = 0;
    *length = strnlen(text, (size_t)size); /* the payload is filled up with zeros */
    *ptx = text;
    return 0;
}

/* Adds "compute_75, sm_90, ..." for the error. */
static void list(char *held, size_t room, const struct entry *entry)
{
    const size_t n = strlen(held);
    if (entry->kind != KIND_PTX && entry->kind != KIND_ELF) return;
    snprintf(held + n, room - n, "%s%s_%u", n ? ", " : "",
             entry->kind == KIND_PTX ? "compute" : "sm", entry->architecture);
}

int vg_fat_read(const void *file, size_t nbytes, uint32_t capability, char **ptx, size_t *length,
                char error[256])
{
    const unsigned char *bytes = file;
    struct header header;
    struct found found, best = {.payload = NULL};
    char held[128] = "";
    if (!vg_fat_is(file, nbytes)) return fail(error, "no magic number 0xba55ed50", 0);
    memcpy(&header, bytes, sizeof header);
    if (header.nbytes < HEADER_BYTES || header.nbytes > nbytes ||
        header.entries > nbytes - header.nbytes)
        return fail(error, "the header has sizes beyond the file", 0);
    const size_t end = header.nbytes + (size_t)header.entries;
    for (size_t offset = header.nbytes; offset < end;) {
        if (next_entry(bytes, end, &offset, &found, error)) return -1;
        list(held, sizeof held, &found.entry);
        const bool fits = found.entry.kind == KIND_PTX && found.entry.architecture <= capability;
        if (fits && (!best.payload || found.entry.architecture > best.entry.architecture))
            best = found;
    }
    if (best.payload) return text_of(&best, ptx, length, error);
    snprintf(error, 256,
             "fat binary: it holds %.100s; a GPU of compute capability %u.%u needs PTX of that or "
             "less: -arch=compute_%u",
             held[0] ? held : "nothing", capability / 10, capability % 10, capability);
    return -1;
}
