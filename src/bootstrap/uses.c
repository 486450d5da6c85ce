/* Counts the communicators that this process has made from each address. */
#include "bootstrap/uses.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/process_lock.h"

struct use {
    struct use *next;
    char *host;
    struct tt_user user; /* host is the copy above */
    struct tt_use made;
};

static struct tt_process_lock uses_lock = TT_PROCESS_LOCK;
static struct use *uses; /* guarded by uses_lock; lives as long as the process */

static struct use *add_locked(const struct tt_user *user)
{
    struct use *use = calloc(1, sizeof *use);
    char *host = strdup(user->host);
    if (!use || !host) {
        free(use);
        free(host);
        return NULL;
    }
    *use = (struct use){
        .next = uses, .host = host, .user = *user, .made.number = uses ? uses->made.number + 1 : 1};
    use->user.host = host;
    return uses = use;
}

static struct use *find_locked(const struct tt_user *user)
{
    for (struct use *use = uses; use; use = use->next)
        if (use->user.port == user->port && use->user.rank == user->rank &&
            use->user.nranks == user->nranks && !strcmp(use->host, user->host))
            return use;
    return add_locked(user);
}

tt_status tt_uses_find(struct tt_use *use, const struct tt_user *user)
{
    tt_process_lock(&uses_lock);
    const struct use *found = find_locked(user);
    if (found) *use = found->made;
    tt_process_unlock(&uses_lock);
    return found ? TT_OK : tt_fail_errno(ENOMEM, "bootstrap: no memory");
}

/* Only what is later than what is known counts. */
static void note(uint32_t number, uint32_t count, bool is_tried)
{
    tt_process_lock(&uses_lock);
    struct use *found = uses;
    while (found && found->made.number != number) found = found->next;
    if (found && count >= found->made.count)
        found->made = (struct tt_use){.number = number, .count = count, .is_tried = is_tried};
    tt_process_unlock(&uses_lock);
}

void tt_uses_try(uint32_t number, uint32_t count)
{
    note(number, count, true);
}

void tt_uses_done(uint32_t number, uint32_t count)
{
    note(number, count + 1, false);
}
