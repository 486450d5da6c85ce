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
    uint32_t number, count;
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
        .next = uses, .host = host, .user = *user, .number = uses ? uses->number + 1 : 1};
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

tt_status tt_uses_find(uint32_t *use, uint32_t *count, const struct tt_user *user)
{
    tt_process_lock(&uses_lock);
    const struct use *found = find_locked(user);
    if (found) {
        *use = found->number;
        *count = found->count;
    }
    tt_process_unlock(&uses_lock);
    return found ? TT_OK : tt_fail_errno(ENOMEM, "bootstrap: no memory");
}

void tt_uses_done(uint32_t use, uint32_t count)
{
    tt_process_lock(&uses_lock);
    struct use *found = uses;
    while (found && found->number != use) found = found->next;
    if (found && found->count == count) found->count++;
    tt_process_unlock(&uses_lock);
}
