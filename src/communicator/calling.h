/* How calls use a communicator that another thread may destroy or abort at any moment.
 *
 *     calling thread                           ending thread
 *     C1 finds the handle                      E1 sets TT_COMM_ENDS
 *     C2 stores `calling`                      E2 puts a full fence into every thread (membarrier)
 *     C3 keeps the compiler from moving C4     E3 waits while `calling` is set
 *        before C2                             E4 frees all but the struct
 *     C4 loads `ends`; not 0: no call begins
 *     C5 makes the call
 *     C6 clears `calling` (release)
 *
 * E2 comes between C2 and C4, before, or after them: where C2 comes before it, E3 sees C2 and waits
 * for C6, else C4 sees E1. So a call costs two stores and one load, without a fence. C2 to C4 use
 * nothing but the struct, which stays for as long as tt_comm_retire says. One thread at a time
 * makes calls on a communicator (tutti.h), so `calling` is no count.
 *
 * All other functions pay for a count (tt_core_enter_call) that any number of threads may hold. */
#ifndef TT_COMMUNICATOR_CALLING_H
#define TT_COMMUNICATOR_CALLING_H

#include "communicator/communicator.h"
#include "communicator/handles.h"

/* The seldom part of tt_handle_check for a communicator on which calls are to be made: one of a
 * parent process is an error. */
TT_NODISCARD tt_status tt_comm_find_for_calls(tuttiComm_t comm);
/* Clears the mark, and says why no call may begin; `ends` is not 0. */
TT_NODISCARD tt_status tt_comm_fail_ended(tuttiComm_t comm, unsigned ends);

static inline void tt_comm_end_call(tuttiComm_t comm)
{
    /* acquire: tt_comm_await_calls */
    atomic_store_explicit(&comm->calling, false, memory_order_release);
}

/* C2 to C4. may: what in `ends` does not matter. After a success tt_comm_end_call must follow. */
TT_NODISCARD static inline tt_status tt_comm_mark_call(tuttiComm_t comm, unsigned may)
{
    atomic_store_explicit(&comm->calling, true, memory_order_relaxed);
    atomic_signal_fence(memory_order_seq_cst);
    /* release: tt_comm_await_calls */
    const unsigned ends = atomic_load_explicit(&comm->ends, memory_order_acquire);
    if (__builtin_expect(!(ends & ~may), 1)) return TT_OK;
    return tt_comm_fail_ended(comm, ends);
}

/* Ends a call that was marked, of a communicator that has failed. */
TT_NODISCARD tt_status tt_comm_fail_call(tuttiComm_t comm);

/* Before a call that the user makes: TT_OK when comm is a live communicator of this process on
 * which calls may be made, and the stream is a live one, or NULL. Then tt_comm_end_call must
 * follow. */
TT_NODISCARD __attribute__((always_inline)) static inline tt_status
tt_comm_begin_call(tuttiComm_t comm, tuttiStream_t stream)
{
    if (stream) TT_TRY(tt_handle_check(stream, TT_HANDLE_STREAM));
    if (!tt_handle_is_recent(comm, TT_HANDLE_COMM)) TT_TRY(tt_comm_find_for_calls(comm));
    TT_TRY(tt_comm_mark_call(comm, 0));
    return tt_fabric_has_failed(comm->core.fabric) ? tt_comm_fail_call(comm) : TT_OK;
}

/* As tt_comm_begin_call, for functions that are no calls of their own. tt_core_leave_call must
 * follow a success. */
TT_NODISCARD tt_status tt_comm_enter(tuttiComm_t comm);
/* For functions that only ask: also where the communicator has failed, was finalized, is inherited,
 * or ends but is not being freed. tt_core_leave_call must follow a success. */
TT_NODISCARD tt_status tt_comm_enter_to_ask(tuttiComm_t comm);
/* tt_comm_enter_to_ask that records and logs no error. */
bool tt_comm_try_to_ask(tuttiComm_t comm);

/* TT_ERR_ARGUMENT: the communicator that now has this live handle has another number, so it is not
 * the one that the group was given. */
TT_NODISCARD tt_status tt_comm_check_number(tuttiComm_t comm, uint64_t number);

/* The end has all for itself when this returns: `why`, a bit of `ends` that keeps others out, was
 * set, and all who had come before have gone. */
void tt_comm_shut(tuttiComm_t comm, unsigned why);
/* A struct of zeros; NULL: there is no memory. It is no memory of the heap: what is retired would
 * keep the heaps of threads that have ended. */
tuttiComm_t tt_comm_blank(void);
/* Of a struct whose handle nobody has had. */
void tt_comm_free_blank(tuttiComm_t comm);
/* Frees the struct, of which all else is freed, when 10 s have passed and 16 more have come here: a
 * thread that has found the handle before it was removed may still look at it. */
void tt_comm_retire(tuttiComm_t comm);
/* The failure of the communicator that had this handle, while its struct is kept; "": it had none.
 */
void tt_comm_removed_failure(const void *handle, char *text, size_t size);
/* TT_ERR_ARGUMENT: the handle is of no communicator. Adds the failure of the communicator that had
 * this handle, while its struct is kept. */
TT_NODISCARD tt_status tt_comm_fail_removed(const void *handle);

#endif
