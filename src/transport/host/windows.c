/* Windows between the ranks of a host: those of this rank that the others have been shown, and
 * those of the others as they are mapped here.
 *
 * Messages name a window by its index in the list of its rank and, as an index is used again, the
 * low half of its id: index | id << 32. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "base/private_fd.h"
#include "base/thread.h"
#include "transport/host/host.h"

/* Descriptors that are taken at once. */
enum { MOST_TAKEN = 128 };

/* A window that others may have been shown. */
struct tt_shown_window {
    uint64_t id; /* 0: freed since */
    size_t nbytes;
    int fd;
    bool *known; /* [nlocal]: the rank at that place has been sent the descriptor */
};

void tt_host_windows_fini(struct tt_host_room *room)
{
    for (uint32_t i = 0; i < room->nshown; i++) free(room->shown[i].known);
    free(room->shown);
    for (int place = 0; room->windows && place < room->config.nlocal; place++)
        tt_window_map_fini(&room->windows[place]);
    free(room->windows);
}

size_t tt_host_windows_bytes(const struct tt_host_room *room)
{
    const size_t n = (size_t)room->config.nlocal;
    size_t nbytes = room->nshown * (sizeof *room->shown + n * sizeof(bool));
    if (room->windows) nbytes += n * sizeof *room->windows;
    for (size_t place = 0; room->windows && place < n; place++)
        nbytes += tt_window_map_bytes(&room->windows[place]);
    return nbytes;
}

/* ---- Descriptors that come ------------------------------------------------------------------ */

/* A window cannot be had. That is a failure where a message needs it. */
static void note_shortage(struct tt_host_room *room, tt_status status)
{
    if (status == TT_OK) return;
    room->shortage = status;
    snprintf(room->shortage_text, sizeof room->shortage_text, "%s", tt_last_error());
}

/* Maps a window that was passed, and unmaps those that are gone. */
static void take_note(struct tt_host_room *room, const struct tt_fd_note *note, int fd)
{
    TT_CANCELS_WAIT; /* the descriptor is this thread's until it is closed */
    tt_status status = TT_OK;
    if (note->kind == TT_FD_WINDOW && note->place < (uint64_t)room->config.nlocal) {
        struct tt_window_map *map = &room->windows[note->place];
        for (int i = 0; i < TT_FD_GONE_MAX; i++)
            if (note->gone[i]) tt_window_map_drop(map, (uint32_t)(note->gone[i] - 1));
        status = tt_window_map_add(map, note->id, fd, note->nbytes);
    }
    tt_private_fd_close(fd);
    note_shortage(room, status);
}

static bool make_maps(struct tt_host_room *room)
{
    if (!room->windows) room->windows = calloc((size_t)room->config.nlocal, sizeof *room->windows);
    return room->windows != NULL;
}

/* Takes the descriptors that wait at this rank's socket. Peers also show it windows that it never
 * looks into, and few descriptors can wait: when they are not taken, no peer can show it another
 * window. */
static void take_notes(struct tt_host_room *room)
{
    struct tt_fd_note note;
    int fd;
    const struct tt_rank_record *record = &room->segment->header->records[room->config.local];
    /* release: introduce */
    const uint32_t nshown = atomic_load_explicit(&record->nshown, memory_order_acquire);
    if (nshown == room->ntaken || !make_maps(room)) return;
    room->ntaken = nshown;
    for (int i = 0; i < MOST_TAKEN; i++) {
        const tt_status status =
            tt_fdpass_receive(room->fd_socket, room->config.secret, &note, &fd);
        if (status < 0) note_shortage(room, status);
        if (status) return;
        take_note(room, &note, fd);
    }
}

/* ---- This rank's ---------------------------------------------------------------------------- */

/* The entries of windows that are freed become free. */
static void note_freed(struct tt_host_room *room)
{
    const uint64_t nlosses = tt_window_losses();
    if (room->nlosses == nlosses) return;
    room->nlosses = nlosses;
    for (uint32_t i = 0; i < room->nshown; i++)
        if (room->shown[i].id && !tt_window_exists(room->shown[i].id)) room->shown[i].id = 0;
}

/* The index of a window in the list, or else of an entry that is free; nshown: neither. */
static uint32_t find_entry(struct tt_host_room *room, uint64_t id)
{
    uint32_t at = 0, spare = room->nshown;
    note_freed(room);
    for (; at < room->nshown && room->shown[at].id != id; at++)
        if (!room->shown[at].id && spare == room->nshown) spare = at;
    return at < room->nshown ? at : spare;
}

static bool add_entry(struct tt_host_room *room)
{
    struct tt_shown_window *more = realloc(room->shown, (room->nshown + 1) * sizeof *more);
    if (!more) return false;
    room->shown = more;
    more[room->nshown] =
        (struct tt_shown_window){.known = calloc((size_t)room->config.nlocal, sizeof(bool))};
    if (!more[room->nshown].known) return false;
    room->nshown++;
    return true;
}

/* Calls mostly use the same windows, one for the input and one for the output: these are found
 * without the process-wide lock. */
static const struct tt_memory *find_recent(struct tt_host_room *room, const char *data)
{
    const uint64_t nchanges = tt_window_changes();
    if (room->nchanges != nchanges) room->recent[0].nbytes = room->recent[1].nbytes = 0;
    room->nchanges = nchanges;
    for (int i = 0; i < 2; i++) {
        const struct tt_memory *recent = &room->recent[i];
        const uintptr_t at = (uintptr_t)data - (uintptr_t)recent->base;
        if (at < recent->nbytes) return recent;
    }
    return NULL;
}

/* Looks for the window at an address, and enters it into the list. */
static void find_window(struct tt_host_room *room, const char *data, struct tt_memory *memory)
{
    struct tt_window window;
    if (!tt_window_find(data, 1, &window)) return;
    const uint32_t index = find_entry(room, window.id);
    const bool is_shown = index < room->nshown && room->shown[index].id == window.id;
    if (!is_shown && !tt_window_is_own(&window)) return; /* a system call: not in every call */
    if (index == room->nshown && !add_entry(room)) return;
    struct tt_shown_window *shown = &room->shown[index];
    if (!is_shown) {
        memset(shown->known, 0, (size_t)room->config.nlocal * sizeof *shown->known);
        shown->id = window.id;
        shown->nbytes = window.nbytes;
        shown->fd = window.fd;
    }
    *memory = (struct tt_memory){
        .base = window.base, .nbytes = window.nbytes, .window = index | window.id << 32};
    room->recent[1] = room->recent[0];
    room->recent[0] = *memory;
}

void tt_host_find_memory(struct tt_host_room *room, const void *data, size_t nbytes,
                         struct tt_memory *memory)
{
    *memory = (struct tt_memory){.window = TT_NO_WINDOW};
    take_notes(room);
    if (!room->config.allow_window || room->config.nlocal == 1 || !nbytes) return;
    /* Of a registered buffer the first and the last page may lie outside. */
    const char *middle = (const char *)data + nbytes / 2;
    const struct tt_memory *recent = find_recent(room, middle);
    if (recent)
        *memory = *recent;
    else
        find_window(room, middle, memory);
}

static struct tt_shown_window *shown_as(const struct tt_host_room *room, uint64_t name)
{
    return &room->shown[(uint32_t)name];
}

/* Enters windows into the note that are freed and that the peer still has mapped. */
static void list_freed(struct tt_host_room *room, int place, struct tt_fd_note *note)
{
    int n = 0;
    note_freed(room);
    for (uint32_t i = 0; i < room->nshown && n < TT_FD_GONE_MAX; i++)
        if (!room->shown[i].id && room->shown[i].known[place]) note->gone[n++] = i + 1;
}

/* The note has been sent: the peer will unmap the windows that it lists. */
static void forget_listed(struct tt_host_room *room, int place, const struct tt_fd_note *note)
{
    for (int i = 0; i < TT_FD_GONE_MAX; i++)
        if (note->gone[i]) room->shown[note->gone[i] - 1].known[place] = false;
}

static void introduce(struct tt_host_room *room, int place, uint64_t name)
{
    const struct tt_shown_window *shown = shown_as(room, name);
    struct tt_fd_note note = {.secret = room->config.secret,
                              .id = name,
                              .place = (uint64_t)room->config.local,
                              .nbytes = shown->nbytes,
                              .kind = TT_FD_WINDOW};
    if (tt_private_fd_is_lost(shown->fd)) {
        TT_WARN_ONCE("this process has closed the descriptor of memory that other ranks of this "
                     "host could use in place: it is copied instead; " TT_LOST_FD);
        return;
    }
    if (geteuid() != room->user) { /* the peer may drop the descriptor when it has been sent */
        TT_WARN_ONCE(
            "this process has become uid %d, and made its communicator as uid %d, so memory "
            "that other ranks of this host could use in place is copied instead: change "
            "the user before the init",
            (int)geteuid(), (int)room->user);
        return;
    }
    list_freed(room, place, &note);
    if (tt_fdpass_send(&room->config.members[place].fd_address, &note, shown->fd, NULL)) return;
    forget_listed(room, place, &note);
    shown->known[place] = true;
    atomic_fetch_add_explicit(&room->segment->header->records[place].nshown, 1,
                              memory_order_release); /* acquire: take_notes */
}

void tt_host_introduce(struct tt_host_room *room, int place, const struct tt_memory *memory)
{
    if (memory->window == TT_NO_WINDOW || room->config.members[place].same_process) return;
    if (!shown_as(room, memory->window)->known[place]) introduce(room, place, memory->window);
}

bool tt_host_is_known(const struct tt_host_room *room, int place, const struct tt_memory *memory,
                      const void *data, size_t nbytes)
{
    if (memory->window == TT_NO_WINDOW || !shown_as(room, memory->window)->known[place])
        return false;
    const uintptr_t at = (uintptr_t)data - (uintptr_t)memory->base;
    return at <= memory->nbytes && nbytes <= memory->nbytes - at;
}

/* ---- Those of the others -------------------------------------------------------------------- */

/* A message needs a window that this rank does not have. */
static tt_status fail_without(const struct tt_host_room *room, int place, uint64_t name)
{
    char mine[128], theirs[128];
    tt_room_name(room->context, room->context->rank, mine, sizeof mine);
    tt_room_name(room->context, room->config.members[place].rank, theirs, sizeof theirs);
    if (room->shortage)
        return tt_fail(room->shortage, "%s cannot use memory of %s: %s", mine, theirs,
                       room->shortage_text);
    return tt_fail(TT_ERR_INTERNAL, "window %#llx of %s was used before it was passed to %s",
                   (unsigned long long)name, theirs, mine);
}

tt_status tt_host_find_window(struct tt_host_room *room, int place, uint64_t name, char **base,
                              size_t *nbytes)
{
    if (!make_maps(room)) return tt_fail(TT_ERR_SYSTEM, "out of memory for the windows of peers");
    /* A sender passes the descriptor before the message. */
    while (!(*base = tt_window_map_find(&room->windows[place], name, nbytes))) {
        struct tt_fd_note note;
        int fd;
        const tt_status status =
            tt_fdpass_receive(room->fd_socket, room->config.secret, &note, &fd);
        if (status < 0) note_shortage(room, status);
        if (status) return fail_without(room, place, name);
        take_note(room, &note, fd);
    }
    return TT_OK;
}
