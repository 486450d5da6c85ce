/* Device addresses: one range of the process's address space that nobody can touch, cut into
 * pieces.
 *
 * Addresses are given out from low to high, and again from the beginning when the end is reached,
 * so that an address that was freed stays unused for long. Between two pieces lies a gap: what is
 * beyond the end of an allocation belongs to nobody. */
#include "memory_internal.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { GAP = 4096 };

struct piece {
    uint64_t begin, end;
};

static struct {
    uint64_t begin, end; /* 0: not reserved yet */
    uint64_t cursor;
    struct piece *at; /* sorted */
    size_t n, room;
} space;

/* 1 TiB, or as much as the limits of the process let through. */
static bool reserve(void)
{
    for (uint64_t size = UINT64_C(1) << 40; size >= UINT64_C(1) << 30; size /= 2) {
        void *at = mmap(NULL, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (at == MAP_FAILED) continue;
        space.begin = vd_round_up((uintptr_t)at, VD_GRANULE);
        space.end = (uintptr_t)at + size;
        space.cursor = space.begin;
        return true;
    }
    vd_say("no range of addresses for device memory: mmap refuses even 1 GiB without memory behind "
           "it; see ulimit -v");
    return false;
}

bool vd_address_reserved(uint64_t address)
{
    return address >= space.begin && address < space.end;
}

/* The index of the first piece that ends behind the address. */
static size_t first_behind(uint64_t address)
{
    size_t low = 0, high = space.n;
    while (low < high) {
        const size_t middle = low + (high - low) / 2;
        if (space.at[middle].end <= address)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static bool insert(size_t i, uint64_t begin, uint64_t end)
{
    if (space.n == space.room) {
        const size_t room = space.room == 0 ? 64 : 2 * space.room;
        struct piece *at = realloc(space.at, room * sizeof *at);
        if (at == NULL) return false;
        space.at = at;
        space.room = room;
    }
    memmove(space.at + i + 1, space.at + i, (space.n - i) * sizeof *space.at);
    space.at[i] = (struct piece){begin, end};
    space.n++;
    return true;
}

/* The first place in [from, to) where nbytes fit, with a gap behind. */
static uint64_t find_place(uint64_t from, uint64_t to, uint64_t nbytes, uint64_t align)
{
    size_t i = first_behind(from);
    uint64_t begin = vd_round_up(from, align);
    for (; i < space.n && begin + nbytes + GAP > space.at[i].begin; i++)
        if (space.at[i].end + GAP > begin) begin = vd_round_up(space.at[i].end + GAP, align);
    if (begin + nbytes + GAP > to || !insert(first_behind(begin), begin, begin + nbytes)) return 0;
    return begin;
}

uint64_t vd_address_take(uint64_t nbytes, uint64_t align)
{
    if (space.begin == 0 && !reserve()) return 0;
    if (nbytes == 0) nbytes = 1;
    if (align < 512) align = 512;
    if (nbytes > space.end - space.begin || align > space.end - space.begin) return 0;
    uint64_t address = find_place(space.cursor, space.end, nbytes, align);
    if (address == 0) address = find_place(space.begin, space.end, nbytes, align);
    if (address != 0) space.cursor = address + nbytes + GAP;
    return address;
}

bool vd_address_take_at(uint64_t address, uint64_t nbytes)
{
    if (!vd_address_reserved(address) || nbytes > space.end - address) return false;
    const size_t i = first_behind(address);
    if (i < space.n && space.at[i].begin < address + nbytes) return false;
    return insert(i, address, address + nbytes);
}

void vd_address_give(uint64_t address, uint64_t nbytes)
{
    const size_t i = first_behind(address);
    (void)nbytes;
    if (i == space.n || space.at[i].begin != address) return;
    memmove(space.at + i, space.at + i + 1, (--space.n - i) * sizeof *space.at);
}
