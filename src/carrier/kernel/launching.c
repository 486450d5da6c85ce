/* The attendant's look at a thread that launches (launching.h). */
#include "carrier/kernel/launching.h"

#include <stdio.h>

#include "base/clock.h"
#include "carrier/kernel/kernel.h"

/* Between two looks; so many looks without a launch, after which the attendant must be told. */
enum { LOOK_NS = 10000000, BUSY_NS = 1000000, MOST_QUIET = 100 };

static struct tt_launching *own(struct tt_attended *attended)
{
    return (struct tt_launching *)attended;
}

static bool has_failed(const struct tt_comm_core *comm)
{
    return tt_fabric_failure_text(comm->fabric)[0];
}

static void time_out(const struct tt_comm_core *comm)
{
    struct tt_fabric *fabric = comm->fabric;
    const int64_t timeout_ms = tt_engine_timeout(&comm->engine);
    char name[128];
    tt_fabric_name_rank(fabric, comm->rank, name, sizeof name);
    tt_ignore(tt_fabric_fail(fabric, TT_ERR_TIMEOUT,
                             "%s waited %lld ms in a call of communicator %s (%s) whose thread "
                             "still launches: the CUDA driver, or the next launch, waits for the "
                             "call's kernel",
                             name, (long long)timeout_ms, comm->name,
                             tt_timeout_source(timeout_ms)));
    tt_fabric_pass_on(fabric);
}

/* The time in which one kernel runs, of the calls that are launched or of one before. */
static void check_deadline(struct tt_launching *launching)
{
    struct tt_comm_core *comm = launching->comm;
    const struct tt_device_report *report = comm->kernel->life.report;
    const uint64_t nbegun = __atomic_load_n(&report->nbegun, __ATOMIC_ACQUIRE);
    if (nbegun != launching->nbegun || tt_kernel_has_ended(&comm->kernel->life))
        launching->deadline_ns = tt_deadline_ns(tt_engine_timeout(&comm->engine));
    launching->nbegun = nbegun;
    if (!tt_expired(launching->deadline_ns)) return;
    tt_engine_enter(&comm->engine);
    if (!has_failed(comm)) time_out(comm);
    tt_engine_leave(&comm->engine);
}

struct tt_needs tt_launching_needs(const struct tt_launching *launching)
{
    return (struct tt_needs){.collective =
                                 atomic_load_explicit(&launching->collective, memory_order_relaxed),
                             .peer = launching->comm->rank};
}

/* A rank is gone that has not done its part of the exchange. */
static void check_exchange(struct tt_launching *launching)
{
    struct tt_engine *engine = &launching->comm->engine;
    pthread_mutex_lock(&launching->lock);
    if (launching->exchange) {
        tt_engine_enter(engine);
        tt_ignore(tt_exchange_check(launching->exchange, engine->fabric, &launching->gone));
        tt_engine_leave(engine);
    }
    pthread_mutex_unlock(&launching->lock);
}

/* The thread has been in this launch since the last look. */
static void check(struct tt_launching *launching)
{
    struct tt_comm_core *comm = launching->comm;
    const struct tt_needs needs = tt_launching_needs(launching);
    if (!has_failed(comm) && needs.collective) tt_ignore(tt_engine_check(&comm->engine, &needs));
    if (!has_failed(comm)) check_exchange(launching);
    if (!has_failed(comm)) check_deadline(launching);
    if (has_failed(comm)) tt_kernel_abort(&comm->kernel->life, &launching->grace_ns);
}

static bool is_inside(uint64_t number)
{
    return number % 2;
}

/* Whether it need not look again before it is told. */
static bool may_sleep(struct tt_launching *launching)
{
    if (++launching->nquiet < MOST_QUIET) return false;
    /* Here the mark, then the number; in tt_launching_begin the other way round. */
    atomic_store_explicit(&launching->is_attended, false, memory_order_seq_cst);
    if (!is_inside(atomic_load_explicit(&launching->number, memory_order_seq_cst))) return true;
    return atomic_exchange_explicit(&launching->is_attended, true, memory_order_seq_cst);
}

static int64_t look(struct tt_attended *attended)
{
    struct tt_launching *launching = own(attended);
    const uint64_t number = atomic_load_explicit(&launching->number, memory_order_acquire);
    const bool same = number == launching->seen;
    launching->seen = number;
    if (is_inside(number) && same) {
        launching->nquiet = 0;
        check(launching);
        return BUSY_NS;
    }
    launching->nbegun = 0;
    launching->gone = (struct tt_exchange_grace){.until_ns = 0};
    launching->deadline_ns = tt_deadline_ns(tt_engine_timeout(&launching->comm->engine));
    if (!same) launching->nquiet = 0;
    return may_sleep(launching) ? INT64_MAX : LOOK_NS;
}

void tt_launching_open(struct tt_launching *launching, struct tt_comm_core *comm,
                       struct tt_attendant *attendant)
{
    pthread_mutex_init(&launching->lock, NULL);
    launching->attended.look = look;
    launching->comm = comm;
    launching->attendant = attendant;
    atomic_store_explicit(&launching->is_attended, true, memory_order_relaxed);
    tt_attend(attendant, &launching->attended);
}

void tt_launching_close(struct tt_launching *launching)
{
    if (!launching->comm) return;
    tt_unattend(launching->attendant, &launching->attended);
    pthread_mutex_destroy(&launching->lock);
    launching->comm = NULL;
}

void tt_launching_begin(struct tt_launching *launching, bool collective)
{
    const bool inside = is_inside(atomic_load_explicit(&launching->number, memory_order_relaxed));
    if (!inside || collective)
        atomic_store_explicit(&launching->collective, collective, memory_order_relaxed);
    if (inside) return;
    atomic_fetch_add_explicit(&launching->number, 1, memory_order_seq_cst); /* acquire: look */
    if (!atomic_exchange_explicit(&launching->is_attended, true, memory_order_seq_cst))
        tt_attendant_tell(launching->attendant, &launching->attended);
}

void tt_launching_exchange(struct tt_launching *launching, const struct tt_group_exchange *exchange)
{
    pthread_mutex_lock(&launching->lock);
    launching->exchange = exchange;
    pthread_mutex_unlock(&launching->lock);
}

void tt_launching_end(struct tt_launching *launching)
{
    if (!is_inside(atomic_load_explicit(&launching->number, memory_order_relaxed))) return;
    tt_launching_exchange(launching, NULL);
    atomic_fetch_add_explicit(&launching->number, 1, memory_order_release);
}
