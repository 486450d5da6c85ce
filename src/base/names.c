/* Replaces tutti's names by NCCL's. */
#include "base/names.h"

#include <ctype.h>
#include <stdatomic.h>
#include <string.h>

static const struct name {
    const char *ours, *theirs;
    bool is_whole; /* a whole name; else the beginning of one, before a capital letter */
} names[] = {
    {"tuttiCommFinalizeLocal", "ncclCommFinalize", true},
    {"tuttiCommDevice", "ncclCommCuDevice", true},
    {"tuttiDeviceMemAlloc", "ncclMemAlloc", true},
    {"TUTTI_SPLIT_", "NCCL_SPLIT_", false},
    {"tutti", "nccl", false},
};

static _Atomic bool is_for_nccl;

void tt_rename_to_nccl(bool renames)
{
    atomic_store_explicit(&is_for_nccl, renames, memory_order_relaxed);
}

/* The row of which `text` begins with the name; NULL: there is none. */
static const struct name *find(const char *text)
{
    for (const struct name *name = names; name < names + sizeof names / sizeof names[0]; name++) {
        const size_t length = strlen(name->ours);
        if (strncmp(text, name->ours, length) != 0) continue;
        const unsigned char next = (unsigned char)text[length];
        if (name->is_whole ? !isalnum(next) : isupper(next)) return name;
    }
    return NULL;
}

size_t tt_rename_for_user(char *to, size_t size, const char *from)
{
    const bool renames = atomic_load_explicit(&is_for_nccl, memory_order_relaxed);
    size_t used = 0;
    for (bool begins = true; *from; from++) {
        const struct name *name = renames && begins ? find(from) : NULL;
        const char *copied = name ? name->theirs : from;
        const size_t length = name ? strlen(name->theirs) : 1;
        begins = strchr(" (\"`", *from); /* not in paths, and values of settings */
        if (used + length >= size) break;
        memcpy(to + used, copied, length);
        used += length;
        if (name) from += strlen(name->ours) - 1;
    }
    to[used] = '\0';
    return used;
}
