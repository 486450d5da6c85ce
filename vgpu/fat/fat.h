/* Fat binaries: what nvcc embeds in programs and writes with -fatbin, and the PTX in them.
 *
 * The format is not documented; this was seen in files of nvcc 13.0. A file is a header (magic
 * 0xBA55ED50, its size, the size of the entries) and entries, each a header and a payload: PTX text
 * or an ELF for one architecture, as it is, or compressed as an LZ4 block (flag 0x2000,
 * --compress-mode=speed) or a zstd frame (flag 0x8000, the default). */
#ifndef VGPU_FAT_H
#define VGPU_FAT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Whether the bytes begin as a fat binary does. */
bool vg_fat_is(const void *bytes, size_t nbytes);
/* The PTX for a GPU of this compute capability (90 for 9.0): that of the highest architecture that
 * is not higher. 0 and *ptx, which free() frees, with a zero behind its *length bytes; -1 and
 * error, which says what the file holds, else. */
int vg_fat_read(const void *bytes, size_t nbytes, uint32_t capability, char **ptx, size_t *length,
                char error[256]);
/* Decodes an LZ4 block of exactly nto bytes; -1: malformed. Source: LZ4 block format description
 * (lz4.org). */
int vg_lz4_decode(const unsigned char *from, size_t nfrom, unsigned char *to, size_t nto);

#endif
