/* Keeps a communicator for those who use it, until they have gone. */
#include "communicator/calling.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/pause.h"
#include "base/process_lock.h"
#include "base/sanitizers.h"

/* A thread that has found a handle does not run for so long and while so many communicators end. */
enum { MOST_RETIRED = 16 };
static const int64_t RETIRED_NS = 10000000000;

static struct tt_process_lock lock = TT_PROCESS_LOCK;
/* guarded by lock: the structs that are kept, the oldest one first */
static tuttiComm_t retired, *last_retired = &retired;
static int nretired;

tt_status tt_comm_find_for_calls(tuttiComm_t comm)
{
    TT_TRY(tt_comm_check_handle(comm));
    if (!tt_comm_is_inherited(comm)) return TT_OK;
    return tt_fail(TT_ERR_USAGE,
                   "communicator %s was made by process %d, and this is process %d, its child: a "
                   "child made by fork can only destroy or abort it; make one after the fork",
                   comm->core.name, (int)comm->process, (int)getpid());
}

/* The caller is still counted or marked: without TT_COMM_FREES the fabric stays until it leaves. */
static tt_status fail_ended(tuttiComm_t comm, unsigned ends)
{
    const char *failure = comm->failure;
    const bool is_effect = ends & TT_COMM_ABORTED && !atomic_load(&comm->failed_before_abort);
    if (!(ends & TT_COMM_FREES) && (is_effect || !tt_fabric_failure(comm->core.fabric, &failure)))
        failure = "";
    const char *joint = *failure ? "; it had failed: " : "";
    if (ends & TT_COMM_ABORTED)
        return tt_fail(TT_ERR_REMOTE, "rank %d aborted communicator %s in another thread%s%s",
                       comm->core.rank, comm->core.name, joint, failure);
    if (ends != TT_COMM_FINALIZED)
        return tt_fail(TT_ERR_USAGE, "communicator %s is being destroyed by another thread%s%s",
                       comm->core.name, joint, failure);
    return tt_fail(TT_ERR_USAGE, "communicator %s was finalized: only destroy may follow",
                   comm->core.name);
}

tt_status tt_comm_fail_ended(tuttiComm_t comm, unsigned ends)
{
    const tt_status status = fail_ended(comm, ends);
    tt_comm_end_call(comm);
    return status;
}

/* The failure of the communicator; TT_OK: it has none. Where another rank of this host has found
 * it, ranks that are connected with this one, and wait for it, hear of it from here. */
static tt_status check_failure(tuttiComm_t comm)
{
    struct tt_fabric *fabric = comm->core.fabric;
    const tt_status status = tt_fabric_check(fabric);
    if (!status || !fabric->wires) return status;
    tt_engine_enter(&comm->core.engine);
    tt_fabric_pass_on(fabric);
    tt_engine_leave(&comm->core.engine);
    return tt_fabric_check(fabric);
}

tt_status tt_comm_fail_call(tuttiComm_t comm)
{
    const tt_status status = check_failure(comm);
    tt_comm_end_call(comm);
    return status;
}

/* The count is changed before `ends` is loaded, tt_comm_shut changes `ends` before it loads the
 * count: one of the two sees the other. */
static tt_status enter(tuttiComm_t comm, unsigned may)
{
    tt_core_enter_call(&comm->core);
    const unsigned ends = atomic_load_explicit(&comm->ends, memory_order_seq_cst);
    if (!(ends & ~may)) return TT_OK;
    const tt_status status = fail_ended(comm, ends);
    tt_core_leave_call(&comm->core);
    return status;
}

tt_status tt_comm_enter(tuttiComm_t comm)
{
    TT_TRY(tt_comm_find_for_calls(comm));
    TT_TRY(enter(comm, 0));
    const tt_status status = check_failure(comm);
    if (status) tt_core_leave_call(&comm->core);
    return status;
}

tt_status tt_comm_enter_to_ask(tuttiComm_t comm)
{
    TT_TRY(tt_comm_check_handle(comm));
    return enter(comm, ~(unsigned)TT_COMM_FREES);
}

bool tt_comm_try_to_ask(tuttiComm_t comm)
{
    if (!tt_handle_is_recent(comm, TT_HANDLE_COMM) && !tt_handle_is_live(comm, TT_HANDLE_COMM))
        return false;
    tt_core_enter_call(&comm->core);
    if (!(atomic_load_explicit(&comm->ends, memory_order_seq_cst) & TT_COMM_FREES)) return true;
    tt_core_leave_call(&comm->core);
    return false;
}

tt_status tt_comm_check_number(tuttiComm_t comm, uint64_t number)
{
    if (comm->number == number) return TT_OK;
    return tt_fail(TT_ERR_ARGUMENT,
                   "%p is another communicator than when the group got it: that one was destroyed",
                   (void *)comm);
}

/* Where the kernel refuses the barrier, what the threads have stored is taken to be visible after
 * a while: processors keep no store back for long. */
static void fence_all_threads(void)
{
    const struct timespec pause = {.tv_nsec = 10000000};
    if (!tt_sleep_fence_processes()) nanosleep(&pause, NULL);
}

void tt_comm_shut(tuttiComm_t comm, unsigned why)
{
    atomic_fetch_or(&comm->ends, why); /* acquire: tt_comm_mark_call */
    fence_all_threads();
    tt_comm_await_calls(comm);
}

void tt_comm_await_calls(tuttiComm_t comm)
{
    struct tt_pause pause = {0};
    /* release: tt_core_leave_call, tt_comm_end_call */
    while (atomic_load(&comm->core.calls) ||
           atomic_load_explicit(&comm->calling, memory_order_acquire))
        tt_pause(&pause);
}

#ifdef TT_ADDRESS_SANITIZER
/* Its search for leaks follows no pointers from a mapping. */
tuttiComm_t tt_comm_blank(void)
{
    return calloc(1, sizeof(struct tuttiComm));
}

static void free_blank_locked(tuttiComm_t comm)
{
    free(comm);
}
#else
/* Structs lie in mappings of so many, so that a program that makes and ends communicators has few
 * mappings, however many of them are retired. */
enum { MAPPED = 64 };

/* guarded by lock */
static tuttiComm_t blanks;   /* structs of zeros, but for retired_next */
static char *mapped;         /* memory that no struct has had yet */
static size_t mapped_nbytes; /* bytes at `mapped` */

static size_t whole_pages(void)
{
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    return (sizeof(struct tuttiComm) + page - 1) / page * page;
}

static tuttiComm_t map_blank_locked(void)
{
    const size_t nbytes = whole_pages();
    if (!mapped_nbytes) {
        void *memory =
            mmap(NULL, MAPPED * nbytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (memory == MAP_FAILED) return NULL;
        mapped = memory;
        mapped_nbytes = MAPPED * nbytes;
    }
    mapped_nbytes -= nbytes;
    return (tuttiComm_t)(void *)(mapped + mapped_nbytes);
}

tuttiComm_t tt_comm_blank(void)
{
    tt_process_lock(&lock);
    tuttiComm_t comm = blanks;
    if (comm) {
        blanks = comm->retired_next;
        comm->retired_next = NULL;
    } else {
        comm = map_blank_locked();
    }
    tt_process_unlock(&lock);
    return comm;
}

/* Without its memory, which becomes zeros. */
static void free_blank_locked(tuttiComm_t comm)
{
    if (madvise(comm, whole_pages(), MADV_DONTNEED)) memset(comm, 0, sizeof *comm);
    comm->retired_next = blanks;
    blanks = comm;
}
#endif

void tt_comm_free_blank(tuttiComm_t comm)
{
    if (!comm) return;
    tt_process_lock(&lock);
    free_blank_locked(comm);
    tt_process_unlock(&lock);
}

/* Gives back the pages that nobody looks at: those between `process` and `alive_next`. */
static void give_back_pages(tuttiComm_t comm)
{
#ifndef TT_ADDRESS_SANITIZER
    const uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    const uintptr_t begin = ((uintptr_t)&comm->key + page - 1) / page * page;
    const uintptr_t end = (uintptr_t)&comm->alive_next / page * page;
    if (begin < end) (void)madvise((void *)begin, end - begin, MADV_DONTNEED);
#else
    (void)comm;
#endif
}

/* NULL: the oldest one must stay. */
static tuttiComm_t take_oldest_locked(int64_t now_ns)
{
    tuttiComm_t oldest = retired;
    if (nretired <= MOST_RETIRED || now_ns - oldest->retired_ns < RETIRED_NS) return NULL;
    if (!(retired = oldest->retired_next)) last_retired = &retired;
    nretired--;
    return oldest;
}

void tt_comm_retire(tuttiComm_t comm)
{
    tuttiComm_t oldest;
    give_back_pages(comm);
    comm->retired_ns = tt_now_ns();
    comm->retired_next = NULL;
    tt_process_lock(&lock);
    *last_retired = comm;
    last_retired = &comm->retired_next;
    nretired++;
    while ((oldest = take_oldest_locked(comm->retired_ns))) free_blank_locked(oldest);
    tt_process_unlock(&lock);
}

void tt_comm_removed_failure(const void *handle, char *text, size_t size)
{
    text[0] = '\0';
    tt_process_lock(&lock);
    for (tuttiComm_t comm = retired; handle && comm; comm = comm->retired_next)
        if (comm == handle) snprintf(text, size, "%s", comm->failure);
    tt_process_unlock(&lock);
}

tt_status tt_comm_fail_removed(const void *handle)
{
    char failure[sizeof(((tuttiComm_t)0)->failure)];
    tt_comm_removed_failure(handle, failure, sizeof failure);
    return tt_fail(TT_ERR_ARGUMENT, "%p is no communicator: never made, or destroyed already%s%s",
                   handle, *failure ? "; it had failed: " : "", failure);
}
