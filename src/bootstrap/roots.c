/* The roots of this process: a process whose init has failed may end at once, or try again at the
 * same address, while its root still answers the failure to other ranks. And what ranks and roots
 * of this process tell one another without a connection, for which descriptors may be missing. */
#include <pthread.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/process_lock.h"
#include "bootstrap/root_internal.h"

enum { LEAVE_MS = 2000, MAKE_WAY_MS = 1000 }; /* most that is waited for a root's thread */

static struct tt_process_lock lock = TT_PROCESS_LOCK;
static struct tt_root *roots; /* a child made by fork finds those of its parent, without threads */

static void pause_briefly(void)
{
    nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
}

/* The root's thread has yet to look at what the root was told. Where all ranks have come it does
 * not look, and the root listens no more. */
static bool will_fail(struct tt_root *root)
{
    return root->report.status && atomic_load_explicit(&root->listens, memory_order_relaxed);
}

/* Tells the failed roots of this process to end soon. Whether there are any, or others that still
 * have something to answer. */
static bool hurry_all(void)
{
    bool any = false;
    if (!tt_process_try_lock(&lock)) return true;
    for (struct tt_root *root = roots; root; root = root->next) {
        /* release: tt_root_fail */
        if (root->process != getpid()) continue;
        const bool ends =
            atomic_load_explicit(&root->has_failed, memory_order_acquire) || will_fail(root);
        if (ends) atomic_store_explicit(&root->hurries, true, memory_order_relaxed);
        any |= ends || atomic_load_explicit(&root->sends_on, memory_order_relaxed);
    }
    tt_process_unlock(&lock);
    return any;
}

static void leave_all(void)
{
    const int64_t until_ns = tt_deadline_ns(LEAVE_MS);
    while (hurry_all() && !tt_expired(until_ns)) pause_briefly();
}

static void register_leaving(void)
{
    (void)atexit(leave_all);
}

void tt_roots_enter(struct tt_root *root)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, register_leaving);
    root->process = getpid();
    tt_process_lock(&lock);
    root->next = roots;
    roots = root;
    tt_process_unlock(&lock);
}

void tt_roots_remove(struct tt_root *root)
{
    tt_process_lock(&lock);
    struct tt_root **at = &roots;
    while (*at && *at != root) at = &(*at)->next;
    if (*at) *at = root->next;
    tt_process_unlock(&lock);
}

void tt_root_stop_listening(struct tt_root *root)
{
    tt_acceptor_stop_listening(root->acceptor);
    /* acquire: ask_for_way */
    atomic_store_explicit(&root->listens, false, memory_order_release);
}

/* Asks the failed and dropped roots of this process at these ports to stop listening. Whether one
 * listens. */
static bool ask_for_way(int first, int nports)
{
    bool any = false;
    tt_process_lock(&lock);
    for (struct tt_root *root = roots; root; root = root->next) {
        const bool ends = atomic_load_explicit(&root->has_failed, memory_order_acquire) ||
                          will_fail(root) ||
                          atomic_load_explicit(&root->is_dropped, memory_order_relaxed);
        const bool is_meant =
            root->process == getpid() && root->port >= first && root->port < first + nports && ends;
        if (!is_meant) continue;
        atomic_store_explicit(&root->makes_way, true, memory_order_relaxed);
        /* release: tt_root_stop_listening */
        any |= atomic_load_explicit(&root->listens, memory_order_acquire);
    }
    tt_process_unlock(&lock);
    return any;
}

void tt_root_make_way(const struct tt_address *address, int nports)
{
    const int64_t until_ns = tt_deadline_ns(MAKE_WAY_MS);
    while (ask_for_way(tt_address_port(address), nports) && !tt_expired(until_ns)) pause_briefly();
}

/* ---- Failures ------------------------------------------------------------------------------- */

enum { MARK_BYTES = 16 };

/* guarded by lock */
static struct {
    uint8_t mark[MARK_BYTES]; /* a hash of the id's key, which is a secret */
    struct tt_report report;  /* status 0: none yet */
} cause;

/* A rank that has not met the root of its id knows only where the root is. */
static bool is_root_of(const struct tt_root *root, const struct tt_unique_id *id)
{
    if (root->process != getpid()) return false;
    if (id->flags & TT_ID_UNMET)
        return root->id.flags & TT_ID_AWAIT &&
               !sodium_memcmp(root->id.base, id->base, sizeof id->base);
    return root->id.sequence == id->sequence &&
           !sodium_memcmp(root->id.key, id->key, sizeof id->key);
}

static void mark_id(uint8_t mark[MARK_BYTES], const struct tt_unique_id *id)
{
    crypto_generichash(mark, MARK_BYTES, id->key, sizeof id->key, NULL, 0);
}

/* Ranks that know the address without an id look for the next root there instead. */
void tt_roots_keep_cause(const struct tt_unique_id *id, tt_status status, const char *text)
{
    uint8_t mark[MARK_BYTES];
    if (id->flags & TT_ID_AWAIT) return;
    mark_id(mark, id);
    tt_process_lock(&lock);
    if (!cause.report.status || memcmp(cause.mark, mark, MARK_BYTES) != 0) {
        memcpy(cause.mark, mark, MARK_BYTES);
        cause.report.status = status;
        snprintf(cause.report.text, sizeof cause.report.text, "%s", text);
    }
    tt_process_unlock(&lock);
}

tt_status tt_root_cause(const struct tt_unique_id *id, char text[TT_WIRE_TEXT])
{
    uint8_t mark[MARK_BYTES];
    tt_status status = TT_OK;
    mark_id(mark, id);
    tt_process_lock(&lock);
    if (!memcmp(cause.mark, mark, MARK_BYTES)) {
        status = cause.report.status;
        memcpy(text, cause.report.text, TT_WIRE_TEXT);
    }
    tt_process_unlock(&lock);
    return status;
}

bool tt_roots_tell(const struct tt_unique_id *id, const struct tt_report *report)
{
    bool found = false;
    tt_process_lock(&lock);
    for (struct tt_root *root = roots; root; root = root->next) {
        if (!is_root_of(root, id)) continue;
        if (!root->report.status) root->report = *report;
        found = true;
    }
    tt_process_unlock(&lock);
    return found;
}

void tt_roots_drop(const struct tt_unique_id *id)
{
    tt_process_lock(&lock);
    for (struct tt_root *root = roots; root; root = root->next)
        if (is_root_of(root, id) && !root->report.status)
            atomic_store_explicit(&root->is_dropped, true, memory_order_relaxed);
    tt_process_unlock(&lock);
}

struct tt_report tt_roots_report(struct tt_root *root)
{
    tt_process_lock(&lock);
    const struct tt_report report = root->report;
    tt_process_unlock(&lock);
    return report;
}
