/* Opens memory of other processes, closes it, and gives back what was lent to them.
 *
 * The driver closes and frees only when all kernels of the context have ended, also the user's, and
 * may hold up launches meanwhile. Were a kernel of the library to begin in front of it, the thread
 * that closes would wait for a kernel that may wait for that thread, or for a launch that is held
 * up. So memory is closed while no user of the context has work, and work of the context begins
 * when that is done; other contexts go on.
 *
 * A thread for which nobody waits closes aside: then work begins all the same when the driver has
 * had that thread for a while, behind a kernel of the user, and either holds up launches or does
 * not. The thread closes nothing more then before that work has ended. */
#include <stdint.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/pause.h"
#include "base/process_lock.h"
#include "driver/context_internal.h"

/* After how long work begins although a thread closes memory aside; and when a thread that waits to
 * begin work says so. */
enum { PASS_NS = 200000000, WARN_MS = 1000 };

/* users_lock guards the list of users of each context, and is held while users say what work they
 * have. work_lock guards who begins work in a context, and who closes memory. */
static struct tt_process_lock users_lock = TT_PROCESS_LOCK, work_lock = TT_PROCESS_LOCK;

/* ---- Users ---------------------------------------------------------------------------------- */

void tt_context_list_user(struct tt_context *context, struct tt_context_user *user)
{
    tt_process_lock(&users_lock);
    user->next = context->users;
    context->users = user;
    tt_process_unlock(&users_lock);
}

void tt_context_unlist_user(struct tt_context *context, const struct tt_context_user *user)
{
    tt_process_lock(&users_lock);
    struct tt_context_user **at = &context->users;
    while (*at && *at != user) at = &(*at)->next;
    if (*at) *at = user->next;
    tt_process_unlock(&users_lock);
}

static bool any_has_work(const struct tt_context *context)
{
    tt_process_lock_shared(&users_lock);
    const struct tt_context_user *user = context->users;
    while (user && !user->has_work(user)) user = user->next;
    tt_process_unlock(&users_lock);
    return user;
}

/* ---- Work ------------------------------------------------------------------------------------ */

static bool try_begin(struct tt_context *context)
{
    tt_process_lock(&work_lock);
    const bool may = !context->is_closing || tt_now_ns() >= context->passes_ns;
    context->nbeginning += may;
    tt_process_unlock(&work_lock);
    return may;
}

void tt_context_begin_work(struct tt_context *context)
{
    struct tt_pause pause = {0};
    int64_t warns_ns = 0;
    while (!try_begin(context)) {
        if (!warns_ns) warns_ns = tt_deadline_ns(WARN_MS);
        if (warns_ns != INT64_MAX && tt_expired(warns_ns)) {
            TT_WARN("GPU %d: a call has waited %d ms to begin while a thread of this process "
                    "closes memory of other processes, which waits for all kernels on the GPU, "
                    "also for those of the program itself",
                    context->gpu, WARN_MS);
            warns_ns = INT64_MAX;
        }
        tt_pause(&pause);
    }
}

void tt_context_end_work(struct tt_context *context)
{
    tt_process_lock(&work_lock);
    context->nbeginning--;
    tt_process_unlock(&work_lock);
}

/* ---- Closing -------------------------------------------------------------------------------- */

/* False: another thread closes, or one begins work. */
static bool begin_closing(struct tt_context *context)
{
    tt_process_lock(&work_lock);
    const bool may = !context->is_closing && !context->nbeginning;
    if (may) {
        context->is_closing = true;
        context->passes_ns = INT64_MAX;
    }
    tt_process_unlock(&work_lock);
    return may;
}

static void end_closing(struct tt_context *context)
{
    tt_process_lock(&work_lock);
    context->is_closing = false;
    tt_process_unlock(&work_lock);
}

/* Before each call of the driver. Work that has begun since the last one either still begins, or
 * its user has it. */
static bool goes_on_aside(struct tt_context *context)
{
    tt_process_lock(&work_lock);
    bool may = !context->nbeginning;
    context->passes_ns = INT64_MAX; /* nobody passes until the look is over */
    tt_process_unlock(&work_lock);
    may = may && !any_has_work(context);
    tt_process_lock(&work_lock);
    if (may) context->passes_ns = tt_now_ns() + PASS_NS;
    tt_process_unlock(&work_lock);
    return may;
}

static bool goes_on(struct tt_context *context)
{
    (void)context;
    return true;
}

static bool let_go(struct tt_context *context, bool aside)
{
    CUstreamCaptureMode mode;
    bool all = false;
    if (!tt_context_has_foreign(context)) return true;
    if (!begin_closing(context)) return false;
    if (!any_has_work(context) && !tt_context_enter_aside(context, &mode)) {
        all = tt_context_release_foreign(context, aside ? goes_on_aside : goes_on);
        tt_context_leave_aside(context, mode);
    }
    end_closing(context);
    return all;
}

bool tt_context_let_go(struct tt_context *context)
{
    return let_go(context, false);
}

bool tt_context_let_go_aside(struct tt_context *context)
{
    return let_go(context, true);
}

tt_status tt_context_open_shared(struct tt_context *context,
                                 const uint8_t handle[TT_CONTEXT_HANDLE], bool may_wait,
                                 void **memory)
{
    const tt_status status = tt_context_try_open(context, handle, memory);
    if (status != TT_IN_PROGRESS || !may_wait) return status;
    tt_context_let_go(context);
    const tt_status again = tt_context_try_open(context, handle, memory);
    return again == TT_IN_PROGRESS ? tt_cuda_fail(CUDA_ERROR_ALREADY_MAPPED, "cuIpcOpenMemHandle")
                                   : again;
}
