/* Replaces tutti's names by NCCL's. */
#include "base/names.h"

#include <ctype.h>
#include <stdatomic.h>
#include <string.h>

static const struct name {
    const char *ours, *theirs;
    bool is_whole; /* else the part of a name that stands before a capital letter */
} names[] = {
    {"tuttiCommFinalizeLocal", "ncclCommFinalize", true},
    {"tuttiCommDevice", "ncclCommCuDevice", true},
    {"tuttiDeviceMemAlloc", "ncclMemAlloc", true},
    {"TUTTI_SPLIT_", "NCCL_SPLIT_", false},
    {"tutti", "nccl", false},
};

static _Atomic bool renames;

void tt_user_names_nccl(bool does)
{
    atomic_store_explicit(&renames, does, memory_order_relaxed);
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

size_t tt_user_names(char *to, size_t size, const char *from)
{
    const bool is_nccls = atomic_load_explicit(&renames, memory_order_relaxed);
    size_t used = 0;
    for (bool begins = true; *from; from++) {
        const struct name *name = is_nccls && begins ? find(from) : NULL;
        const char *copied = name ? name->theirs : from;
        const size_t length = name ? strlen(name->theirs) : 1;
        begins = !isalnum((unsigned char)*from) && *from != '_';
        if (used + length >= size) break;
        memcpy(to + used, copied, length);
        used += length;
        if (name) from += strlen(name->ours) - 1;
    }
    to[used] = '\0';
    return used;
}
