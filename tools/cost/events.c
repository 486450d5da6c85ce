/* A heap of events. */
#include "cost/events.h"

#include <stdlib.h>

static bool is_before(const struct cost_event *a, const struct cost_event *b)
{
    return a->at < b->at || (a->at <= b->at && a->order < b->order);
}

static void swap(struct cost_event *a, struct cost_event *b)
{
    const struct cost_event other = *a;
    *a = *b;
    *b = other;
}

static bool make_room(struct cost_events *events)
{
    if (events->number < events->room) return true;
    const size_t room = events->room ? 2 * events->room : 256;
    struct cost_event *heap = realloc(events->heap, room * sizeof *heap);
    if (!heap) return false;
    events->heap = heap;
    events->room = room;
    return true;
}

void cost_events_push(struct cost_events *events, const struct cost_event *event)
{
    if (!make_room(events)) {
        events->out_of_memory = true;
        return;
    }
    struct cost_event *heap = events->heap;
    size_t at = events->number++;
    heap[at] = *event;
    heap[at].order = events->order++;
    for (; at && is_before(&heap[at], &heap[(at - 1) / 2]); at = (at - 1) / 2)
        swap(&heap[at], &heap[(at - 1) / 2]);
}

bool cost_events_pop(struct cost_events *events, struct cost_event *event)
{
    struct cost_event *heap = events->heap;
    if (!events->number) return false;
    *event = heap[0];
    heap[0] = heap[--events->number];
    for (size_t at = 0, child; (child = 2 * at + 1) < events->number; at = child) {
        if (child + 1 < events->number && is_before(&heap[child + 1], &heap[child])) child++;
        if (!is_before(&heap[child], &heap[at])) break;
        swap(&heap[at], &heap[child]);
    }
    return true;
}

void cost_events_fini(struct cost_events *events)
{
    free(events->heap);
}
