/* The names in texts for the user: those of the functions that the user calls. */
#ifndef TT_BASE_NAMES_H
#define TT_BASE_NAMES_H

#include <stdbool.h>
#include <stddef.h>

/* Whether texts get NCCL's names: the config says so where NCCL's variables count. */
void tt_rename_to_nccl(bool renames);
/* Copies text. Where the user calls NCCL's functions, those of tutti, its types and its values get
 * NCCL's names. Writes at most size bytes (1 or more), the last of them 0; what does not fit is
 * left out. Returns the length. `to` is not part of `from`. */
size_t tt_rename_for_user(char *to, size_t size, const char *from);

#endif
