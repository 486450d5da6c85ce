/* The table of live objects: tells a handle that was destroyed, or never was one, from a live one
 * without reading through it. Open addressing; a removed entry leaves a mark. */
#include "driver.h"

#include <stdlib.h>
#include <string.h>

enum { FIRST_ROOM = 256 };

static struct {
    const void **at;
    size_t n, marks, room; /* n: live ones */
} table;
static const char removed; /* its address is the mark */

static size_t place_of(const void *handle, size_t room)
{
    const uint64_t mixed = (uint64_t)(uintptr_t)handle * UINT64_C(0x9e3779b97f4a7c15);
    return (size_t)(mixed >> 20) & (room - 1);
}

/* Where the handle is, or the first free place. */
static size_t find(const void *handle)
{
    size_t i = place_of(handle, table.room);
    while (table.at[i] != NULL && table.at[i] != handle) i = (i + 1) & (table.room - 1);
    return i;
}

static void grow(void)
{
    const void **old = table.at;
    const size_t old_room = table.room;
    table.room = old_room == 0 ? FIRST_ROOM : 4 * table.n > old_room ? 2 * old_room : old_room;
    table.at = calloc(table.room, sizeof *table.at);
    if (table.at == NULL) abort(); /* the machine's own memory runs out: vg_need does the same */
    table.n = table.marks = 0;
    for (size_t i = 0; i < old_room; i++)
        if (old[i] != NULL && old[i] != &removed) {
            table.at[find(old[i])] = old[i];
            table.n++;
        }
    free(old);
}

void vd_object_add(void *object, enum vd_kind kind)
{
    struct vd_object *head = object;
    head->kind = kind;
    head->number = ++vd.objects;
    if (2 * (table.n + table.marks + 1) > table.room) grow();
    table.at[find(object)] = object;
    table.n++;
}

void vd_object_remove(void *object)
{
    if (table.room == 0) return;
    const size_t i = find(object);
    if (table.at[i] == NULL) return;
    table.at[i] = &removed;
    table.n--;
    table.marks++;
}

bool vd_object_is(const void *handle, enum vd_kind kind)
{
    if (handle == NULL || table.room == 0) return false;
    if (table.at[find(handle)] == NULL) return false;
    return ((const struct vd_object *)handle)->kind == kind;
}
