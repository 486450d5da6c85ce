/* What happens in a walk, in the order of its times. */
#ifndef TUTTI_TOOLS_COST_EVENTS_H
#define TUTTI_TOOLS_COST_EVENTS_H

#include <stdbool.h>
#include <stddef.h>

enum cost_event_kind {
    COST_GO_ON, /* the block (rank, channel) may be able to go on */
    /* Messages between hosts (bridge.c): */
    COST_SEND,  /* the proxy of `rank` sees a message for `peer` */
    COST_LEAVE, /* the message is with the network device of `rank` */
    COST_COME,  /* it begins to come in at the network device of `rank`, from `peer` */
    COST_TAKE,  /* the proxy of `rank` can take it */
    COST_TELL,  /* the proxy of `rank` sees that its kernel has released messages of `peer` */
    COST_TOLD   /* the proxy of `rank` can take what `peer` has told */
};

struct cost_event {
    double at; /* us */
    enum cost_event_kind kind;
    int rank, peer, channel;
    unsigned long long number; /* of the message; TELL, TOLD: messages released */
    double nbytes;
    unsigned long long
        order; /* set by cost_events_push: of events of one time the first is first */
};

/* Begins zeroed. */
struct cost_events {
    struct cost_event *heap;
    size_t number, room;
    unsigned long long order;
    bool out_of_memory; /* an event was lost */
};

void cost_events_push(struct cost_events *events, const struct cost_event *event);
/* False: there is none. */
bool cost_events_pop(struct cost_events *events, struct cost_event *event);
void cost_events_fini(struct cost_events *events);

#endif
