/* Groups: a thread's list of what it holds back, and its end, at which all of that is issued. */
#include "communicator/group.h"

#include <pthread.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "communicator/calling.h"
#include "communicator/issue.h"

/* ---- What a group holds ---------------------------------------------------------------------- */

/* In the order in which they are issued. Splits are inits. */
enum kind { INITS, CALLS, ENDS, NKINDS };

/* The items of one kind. */
struct list {
    char *items; /* NULL: no memory yet */
    int number, room;
};

struct kind_row {
    size_t size;    /* of an item */
    bool is_secret; /* memory that is left is wiped */
    /* counts: the group is the user's, which the counts of communicators have */
    tt_status (*issue)(void *items, int number, enum tt_call_hold hold, bool counts);
    /* The group has failed with this status, whose text stays the thread's last error. */
    void (*drop)(void *items, int number, enum tt_call_hold hold, tt_status status);
};

static tt_status issue_inits(void *items, int number, enum tt_call_hold hold, bool counts)
{
    (void)hold, (void)counts;
    return tt_init_together(items, number);
}

static void drop_inits(void *items, int number, enum tt_call_hold hold, tt_status status)
{
    (void)hold;
    tt_init_refuse(items, number, status);
}

/* The calls' turns hold their programs from now on. acquire: has_calls of select.c */
static void release_programs(struct tt_pending_call *calls, int ncalls)
{
    for (int i = 0; i < ncalls; i++) {
        if (calls[i].kind != TT_CALL_COLLECTIVE) continue;
        if (!tt_call_has_table(&calls[i])) calls[i].call.binding = &calls[i].kept;
        atomic_fetch_sub_explicit(&calls[i].cached->nheld, 1, memory_order_release);
    }
}

/* Of the group, since then another thread may have ended the communicator. TT_OK: tt_comm_end_call
 * must follow. */
static tt_status hold_call(const struct tt_pending_call *call)
{
    tuttiComm_t comm = tt_comm_of(call->comm);
    if (!tt_handle_is_recent(comm, TT_HANDLE_COMM)) TT_TRY(tt_comm_find_for_calls(comm));
    TT_TRY(tt_comm_mark_call(comm, TT_COMM_FINALIZED));
    const tt_status status = tt_comm_check_number(comm, call->number);
    if (status) tt_comm_end_call(comm);
    return status;
}

/* Whether an earlier one of the held calls is of the same communicator. */
static bool is_held(const struct tt_pending_call *calls, int nheld, const struct tt_comm_core *comm)
{
    while (nheld > 0 && calls[nheld - 1].comm != comm) nheld--;
    return nheld > 0;
}

/* Holds the communicators of the calls, each once: a second mark that failed would end the first.
 * Calls whose communicator has ended leave the list. */
static tt_status hold_calls(struct list *list)
{
    struct tt_pending_call *calls = (struct tt_pending_call *)(void *)list->items;
    tt_status first = TT_OK, status = TT_OK;
    int nheld = 0;
    char text[TT_ERROR_TEXT];
    for (int i = 0; i < list->number; i++) {
        status = is_held(calls, nheld, calls[i].comm) ? TT_OK : hold_call(&calls[i]);
        if (!status) {
            if (nheld != i) calls[nheld] = calls[i];
            nheld++;
            continue;
        }
        tt_call_free_own(&calls[i]);
        if (first) continue;
        first = status;
        snprintf(text, sizeof text, "a communicator of the group ended before the group: %s",
                 tt_last_error());
    }
    list->number = nheld;
    if (first) tt_set_last_error(text);
    return first;
}

/* Counts the group once for each communicator. */
static void count_group(const struct tt_pending_call *calls, int ncalls)
{
    for (int i = 0; i < ncalls; i++) {
        struct tt_call_counts *counts = &tt_comm_of(calls[i].comm)->counts;
        counts->groups += !counts->is_grouped;
        counts->is_grouped = true;
    }
    for (int i = 0; i < ncalls; i++) tt_comm_of(calls[i].comm)->counts.is_grouped = false;
}

static tt_status issue_calls(void *items, int number, enum tt_call_hold hold, bool counts)
{
    release_programs(items, number);
    if (counts) count_group(items, number);
    return tt_issue_calls(items, number, hold);
}

static void drop_calls(void *items, int number, enum tt_call_hold hold, tt_status status)
{
    release_programs(items, number);
    tt_drop_calls(items, number);
    tt_tell_failure(items, number, status);
    tt_let_go(items, number, hold);
}

static void keep_first(tt_status status, tt_status *first, char text[TT_ERROR_TEXT])
{
    if (!status || *first) return;
    *first = status;
    snprintf(text, TT_ERROR_TEXT, "%s", tt_last_error());
}

/* The first failure; the others are ended all the same. Calls of one communicator may wait behind
 * those of another: so all begin before one waits. */
static tt_status issue_ends(void *items, int number, enum tt_call_hold hold, bool counts)
{
    (void)hold, (void)counts;
    struct tt_pending_end *ends = items;
    tt_status first = TT_OK;
    char text[TT_ERROR_TEXT];
    for (int i = 0; i < number; i++) {
        if (ends[i].begin) ends[i].refused = ends[i].begin(&ends[i]);
        keep_first(ends[i].refused, &first, text);
    }
    for (int i = 0; i < number; i++)
        if (!ends[i].refused) keep_first(ends[i].end(&ends[i]), &first, text);
    if (first) tt_set_last_error(text);
    return first;
}

static void drop_ends(void *items, int number, enum tt_call_hold hold, tt_status status)
{
    (void)status;
    char text[TT_ERROR_TEXT];
    struct tt_pending_end *ends = items;
    int nleft = 0;
    for (int i = 0; i < number; i++)
        if (!ends[i].needs_success) ends[nleft++] = ends[i];
    snprintf(text, sizeof text, "%s", tt_last_error());
    tt_ignore(issue_ends(items, nleft, hold, false));
    tt_set_last_error(text);
}

static const struct kind_row kinds[NKINDS] = {
    [INITS] = {.size = sizeof(struct tt_pending_init),
               .is_secret = true,
               .issue = issue_inits,
               .drop = drop_inits},
    [CALLS] = {.size = sizeof(struct tt_pending_call), .issue = issue_calls, .drop = drop_calls},
    [ENDS] = {.size = sizeof(struct tt_pending_end), .issue = issue_ends, .drop = drop_ends},
};

struct group {
    int depth;
    bool ends_with_thread; /* end_with_thread is called when the thread ends */
    tt_status failed;      /* of the first call that failed, with its function and text */
    const char *function;
    struct list lists[NKINDS];
    struct tt_pending_call few[TT_FEW_CALLS]; /* for the first calls: they take none of the heap */
    char error[TT_ERROR_TEXT];
};

static _Thread_local struct group of_thread;

/* This thread's open group. In a shared library it takes a call to find it, which GCC would make
 * once for each use if it knew the address. */
static inline struct group *own_group(void)
{
    struct group *group = &of_thread;
    __asm__("" : "+r"(group));
    return group;
}

static void free_items(const struct group *group, struct list *list, const struct kind_row *row)
{
    if (row->is_secret && list->items)
        sodium_memzero(list->items, (size_t)list->number * row->size);
    if (list->items != (const char *)group->few) free(list->items);
}

/* Room for one more item, where there is none. */
static tt_status make_room(struct group *group, struct list *list, const struct kind_row *row)
{
    if (!list->items && row == &kinds[CALLS]) {
        *list = (struct list){.items = (char *)group->few, .room = TT_FEW_CALLS};
        return TT_OK;
    }
    const int more = list->room < 16 ? 16 : 2 * list->room;
    char *grown = malloc((size_t)more * row->size);
    if (!grown) return tt_fail(TT_ERR_SYSTEM, "out of memory for a group of %d calls", more);
    if (list->number) memcpy(grown, list->items, (size_t)list->number * row->size);
    free_items(group, list, row);
    list->items = grown;
    list->room = more;
    return TT_OK;
}

/* Room for one more item; NULL: there is no memory. */
static void *next_item(struct group *group, enum kind kind)
{
    struct list *list = &group->lists[kind];
    if (list->number == list->room && make_room(group, list, &kinds[kind]) != TT_OK) return NULL;
    return list->items + (size_t)list->number++ * kinds[kind].size;
}

static struct tt_pending_call *held_calls(const struct group *group)
{
    return (struct tt_pending_call *)(void *)group->lists[CALLS].items;
}

static tt_status keep_call(struct group *group, const struct tt_pending_call *pending)
{
    struct tt_pending_call *held = next_item(group, CALLS);
    if (!held) return TT_ERR_SYSTEM;
    memcpy(held, pending, offsetof(struct tt_pending_call, call));
    held->number = tt_comm_of(pending->comm)->number;
    if (pending->kind != TT_CALL_COLLECTIVE) return TT_OK;
    held->call = pending->call;
    held->cached = pending->cached;
    held->kept = *pending->call.binding;
    held->cached->nheld++;
    return TT_OK;
}

/* Far more inits than can be made fail before they take memory. */
static tt_status keep_init(struct group *group, const struct tt_pending_init *init)
{
    const struct list *inits = &group->lists[INITS];
    if (inits->number == inits->room) TT_TRY(tt_init_check_number(inits->number + 1));
    struct tt_pending_init *held = next_item(group, INITS);
    if (!held) return TT_ERR_SYSTEM;
    *held = *init;
    return TT_OK;
}

/* ---- Calls and inits ------------------------------------------------------------------------- */

bool tt_in_group(void)
{
    return own_group()->depth > 0;
}

tt_status tt_group_check_stream(const char *function, tuttiStream_t stream)
{
    const struct group *group = own_group();
    for (int i = 0; i < group->lists[CALLS].number; i++)
        if (held_calls(group)[i].stream == (struct tt_stream *)stream)
            return tt_fail(TT_ERR_USAGE,
                           "%s: the open group holds a call on the stream: end the group first",
                           function);
    return TT_OK;
}

static bool begins_in(const void *buffer, const void *memory, size_t nbytes)
{
    return (uintptr_t)buffer - (uintptr_t)memory < nbytes;
}

tt_status tt_group_check_memory(const char *function, const void *memory, size_t nbytes)
{
    const struct group *group = own_group();
    for (int i = 0; i < group->lists[CALLS].number; i++) {
        const struct tt_pending_call *held = &held_calls(group)[i];
        if (begins_in(held->users[0], memory, nbytes) || begins_in(held->users[1], memory, nbytes))
            return tt_fail(TT_ERR_USAGE,
                           "%s: the open group holds a call with a buffer in the memory at %p (%zu "
                           "bytes): end the group first",
                           function, memory, nbytes);
    }
    return TT_OK;
}

tuttiResult_t tt_group_result(const char *function, tt_status status)
{
    const tuttiResult_t result = tt_result(function, status);
    if (status >= 0) return result;
    struct group *group = own_group();
    if (group->depth == 0 || group->failed) return result;
    group->failed = status;
    group->function = function;
    snprintf(group->error, sizeof group->error, "%s", tt_last_error());
    return result;
}

tt_status tt_issue(struct tt_pending_call *pending)
{
    struct group *group = own_group();
    if (!group->depth) return tt_issue_calls(pending, 1, TT_HOLD_CALL);
    const tt_status status = keep_call(group, pending);
    if (status) tt_drop_calls(pending, 1);
    return status;
}

bool tt_group_drops_id(const struct tt_unique_id *id)
{
    const struct list *list = &own_group()->lists[INITS];
    struct tt_pending_init *inits = (struct tt_pending_init *)(void *)list->items;
    bool any = false;
    for (int i = 0; i < list->number; i++)
        if (!inits[i].make && !sodium_memcmp(&inits[i].id, id, sizeof *id))
            inits[i].drops_id = any = true;
    return any;
}

tt_status tt_issue_init(struct tt_pending_init *init)
{
    struct group *group = own_group();
    const tt_status status = group->depth ? keep_init(group, init) : tt_init_together(init, 1);
    if (group->depth && status) tt_init_refuse(init, 1, status);
    return status;
}

tt_status tt_issue_end(struct tt_pending_end *end)
{
    struct group *group = own_group();
    if (!group->depth) {
        if (end->begin) TT_TRY(end->begin(end));
        return end->end(end);
    }
    struct tt_pending_end *held = next_item(group, ENDS);
    if (!held) return TT_ERR_SYSTEM;
    *held = *end;
    return TT_OK;
}

/* ---- Start and end --------------------------------------------------------------------------- */

/* Keeps the error that the group has. Splits make calls on their parents, which would end the hold
 * of a mark. */
static tt_status hold(struct group *group, tt_status status, enum tt_call_hold *how)
{
    struct list *calls = &group->lists[CALLS], *inits = &group->lists[INITS];
    *how = TT_HOLD_MARK;
    if (!calls->number) return status;
    const tt_status held = hold_calls(calls);
    if (status) tt_set_last_error(group->error);
    if (inits->number && !status && !held) {
        tt_enter_calls(held_calls(group), calls->number);
        tt_init_hold_parents((void *)inits->items, inits->number, held_calls(group), calls->number);
        tt_let_go(held_calls(group), calls->number, TT_HOLD_MARK);
        *how = TT_HOLD_COUNT;
    }
    return status ? status : held;
}

tuttiResult_t tuttiGroupFail(tuttiResult_t result, const char *text)
{
    if (result == tuttiSuccess || !tt_in_group()) return result;
    if (text) tt_set_last_error(text);
    (void)tt_group_result(NULL, tt_status_of(result));
    return result;
}

/* How many ranks of the communicator the held calls are of. */
static int count_ranks(const struct tt_pending_call *calls, int ncalls, const tuttiComm_t comm)
{
    int n = 0;
    for (int i = 0; i < ncalls; i++)
        n += !sodium_memcmp(tt_comm_of(calls[i].comm)->key, comm->key, sizeof comm->key) &&
             !is_held(calls, i, calls[i].comm);
    return n;
}

/* An init has failed. The ranks that wait for the calls may be others; of all here, none waits. */
static void fail_calls(const struct tt_pending_call *calls, int ncalls)
{
    for (int i = 0; i < ncalls; i++)
        if (!is_held(calls, i, calls[i].comm) &&
            count_ranks(calls, ncalls, tt_comm_of(calls[i].comm)) < calls[i].comm->nranks)
            tt_core_tell_others(calls[i].comm, TT_ERR_REMOTE,
                                "issues no calls of a group whose init failed (ranks as there)");
}

/* After a failure the rest is dropped. */
static tt_status issue_or_drop(struct group *group, tt_status status, bool counts)
{
    enum tt_call_hold how;
    status = hold(group, status, &how);
    if (!status) status = tt_check_own_messages(held_calls(group), group->lists[CALLS].number);
    const tt_status failed = status;
    for (int k = 0; k < NKINDS; k++) {
        const struct list *list = &group->lists[k];
        if (!list->number) continue;
        if (status)
            kinds[k].drop(list->items, list->number, how, status);
        else
            status = kinds[k].issue(list->items, list->number, how, counts);
        if (status && k == INITS && !failed)
            fail_calls(held_calls(group), group->lists[CALLS].number);
    }
    return status;
}

static void forget_group(struct group *group)
{
    for (int k = 0; k < NKINDS; k++) {
        free_items(group, &group->lists[k], &kinds[k]);
        group->lists[k] = (struct list){.items = NULL};
    }
    group->failed = TT_OK;
}

static pthread_once_t group_key_once = PTHREAD_ONCE_INIT;
static pthread_key_t group_key; /* the group of each thread that has opened one */
static bool have_group_key;     /* immutable after group_key_once */

/* A group that its thread leaves open is dropped like one that has failed. */
static void end_with_thread(void *argument)
{
    struct group *group = argument;
    if (!group->depth) return;
    group->depth = 0;
    const tt_status status =
        tt_fail(TT_ERR_USAGE, "a thread ended between tuttiGroupStart and tuttiGroupEnd: nothing "
                              "of its group is issued");
    snprintf(group->error, sizeof group->error, "%s", tt_last_error());
    tt_ignore(issue_or_drop(group, status, false));
    forget_group(group);
}

static void make_key(void)
{
    have_group_key = pthread_key_create(&group_key, end_with_thread) == 0;
}

/* The code of a static library may be unloaded before the thread ends. */
__attribute__((destructor)) static void delete_key(void)
{
    if (have_group_key) (void)pthread_key_delete(group_key);
    have_group_key = false; /* a thread may open its first group while the process ends */
}

void tt_group_start(void)
{
    struct group *group = own_group();
    if (!group->ends_with_thread) {
        pthread_once(&group_key_once, make_key);
        group->ends_with_thread = true;
        if (have_group_key) (void)pthread_setspecific(group_key, group);
    }
    group->depth++;
}

tuttiResult_t tuttiGroupStart(void)
{
    tt_group_start();
    return tuttiSuccess;
}

tuttiResult_t tt_group_end(bool is_users)
{
    static const char name[] = "tuttiGroupEnd";
    struct group *group = own_group();
    if (group->depth == 0)
        return tt_result(
            name, tt_fail(TT_ERR_USAGE, "tuttiGroupEnd without tuttiGroupStart in this thread"));
    if (--group->depth > 0) return tuttiSuccess;
    tt_status status = group->failed; /* then nothing of the group is issued */
    const char *function = status ? group->function : name;
    if (status) tt_set_last_error(group->error);
    status = issue_or_drop(group, status, is_users);
    forget_group(group);
    return tt_result(function, status);
}

tuttiResult_t tuttiGroupEnd(void)
{
    return tt_group_end(true);
}
