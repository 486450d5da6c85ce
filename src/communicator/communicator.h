/* The communicator, behind tuttiComm_t, and what the entry points share. */
#ifndef TT_COMMUNICATOR_COMMUNICATOR_H
#define TT_COMMUNICATOR_COMMUNICATOR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <unistd.h>

#include "algorithms/algorithms.h"
#include "algorithms/costs.h"
#include "base/output.h"
#include "bootstrap/bootstrap.h"
#include "carrier/carrier.h"
#include "executor/express.h"
#include "program/lower.h"
#include "tutti.h"

enum { TT_KEY_BYTES = 32, TT_MAX_DYNAMIC_OPS = 256 };

/* Programs that a communicator keeps; more only while calls that are not done use them. */
enum { TT_MOST_CACHED = 32 };

/* A pre-multiplied sum made by tuttiRedOpCreatePreMulSum. */
struct tt_dynamic_op {
    bool used;
    enum tt_type type;
    const void *pointer; /* read when the operation runs; NULL: `scalar` holds */
    char scalar[8];
};

/* The last call of a collective, checked. The next call like it needs only its pointers checked,
 * where they are others. */
struct tt_memo {
    struct tt_cached *cached; /* NULL: nothing remembered */
    size_t count;
    int type, op, root;
    size_t in, out;    /* bytes of this rank's buffers */
    size_t before_own; /* bytes before this rank's block in a buffer that holds all */
    size_t payload;    /* bytes of the whole data, as tuttiCallCounters_t counts them */
    struct tt_binding binding;
    struct tt_call call; /* with `binding`, and the pointers, which were checked */
    enum tt_express express;
};

/* What tuttiCommCallCounters tells. */
struct tt_call_counts {
    tuttiCallCount_t collectives[TT_NCOLLECTIVES], send, recv;
    uint64_t groups;
    bool is_grouped;     /* the group that ends has been counted */
    int own_messages[2]; /* of the group that ends, while it is checked: receives of the rank from
                          * itself, sends to itself */
};

/* How far the end of a communicator is, and what an abort by another thread may still do. */
enum {
    TT_COMM_ENDS = 1,   /* a thread destroys or aborts it, and frees it. Fail its calls */
    TT_COMM_LEAVES = 2, /* there are no calls; peers are told. Make it give up waiting for them */
    TT_COMM_GOES = 4,   /* all is freed. Nothing */
    /* Why no call may begin. Not of the end alone */
    TT_COMM_ABORTED = 8,    /* with ENDS: by an abort */
    TT_COMM_FREES = 16,     /* functions that only ask may not begin either */
    TT_COMM_FINALIZED = 32, /* calls of an open group still may */
};

/* Owned by the user's handle. */
struct tuttiComm {
    struct tt_comm_core core; /* first: its address is the communicator's */
    /* atomic */
    _Atomic unsigned ends; /* TT_COMM_ENDS and so on; 0: calls may begin */
    _Atomic bool calling;  /* owner: the issuing thread. A call is under way (calling.h) */
    /* immutable after init */
    uint64_t number; /* of those of the process: no other one has it */
    int device;
    bool overlaps;        /* buffers of a call may overlap in any way */
    bool host_pages_stay; /* registering moves none */
    pid_t process;        /* that made it: in a child made by fork it is another */
    int64_t init_timeout_ms;
    int compute_threads;       /* of this rank */
    uint8_t key[TT_KEY_BYTES]; /* secret; of its connections and of communicators split from it */
    struct tt_costs costs;     /* of the host; the same on all ranks */
    struct tt_setting setting; /* for memory of the host; refers to costs */
    struct {
        struct tt_bootstrap_counts bootstrap;
        uint64_t join_ns, total_ns;
    } init; /* what it took; all 0 after a split */
    /* owner: the issuing thread */
    const struct tt_algorithm *forced[TT_NCOLLECTIVES];
    /* [kind of programs][collective][a count for each rank]. Made at the first such call */
    struct tt_choices choices[TT_NPROGRAM_KINDS][TT_NCOLLECTIVES][2];
    struct tt_cached *cache; /* the one used last comes first */
    int ncached;
    struct tt_memo memos[TT_NPROGRAM_KINDS][TT_NCOLLECTIVES];
    struct tt_dynamic_op dynamic_ops[TT_MAX_DYNAMIC_OPS];
    struct tt_registration *registrations;
    struct tt_call_counts counts;
    /* of the list of those that announce their end when the process ends */
    struct tuttiComm *alive_next;
    /* of the list of those that are freed but for this struct (tt_comm_retire) */
    struct tuttiComm *retired_next;
    int64_t retired_ns;               /* when it came there */
    _Atomic bool failed_before_abort; /* written by the thread that aborts it */
    /* owner: the thread that ends it, until TT_COMM_FREES is set; immutable then */
    char failure[512]; /* "": it had not failed */
};

/* Whose core this is. */
static inline tuttiComm_t tt_comm_of(struct tt_comm_core *core)
{
    return (tuttiComm_t)core;
}

/* The settings of a communicator, from tuttiConfig_t and the config table. */
struct tt_comm_config {
    int64_t timeout_ms, init_timeout_ms, late_ms;
    int compute_threads;
    char name[TT_COMM_NAME];
    const struct tt_algorithm *forced[TT_NCOLLECTIVES];
    bool oversubscribed; /* from a parent */
    bool deterministic;
    bool overlaps;
    bool host_pages_stay;
    int device;                        /* what tuttiCommDevice says */
    int gpu;                           /* -1: none */
    bool needs_gpu;                    /* the config names it: init fails where it cannot be used */
    bool expects_gpu;                  /* it names one or asks for it, and there is one */
    uint64_t opener;                   /* a number of the calling thread */
    const struct tt_costs *costs;      /* of a parent; NULL: those of TUTTI_COST_FILE */
    const struct tt_comm_core *parent; /* from which the communicator is split; NULL: none */
};

/* How its links are to be. Plain data. */
struct tt_comm_links {
    struct tt_fabric_config fabric;
    struct tt_wires_config wires; /* without the key */
    int device_channels;          /* of two ranks, with the one of point to point */
    int device_threads;           /* of a block */
    size_t device_line_bytes;     /* messages of a block that go as lines, at most */
    struct tt_costs costs;        /* of the host */
    bool costs_are_given;         /* by a file, or of a parent: the CPUs do not matter */
};

/* Who makes a new communicator, and how they gather small blocks: over bootstrap, or over a parent
 * communicator. */
struct tt_participants {
    /* all[i * nbytes ..] = the i-th participant's mine. Collective. */
    tt_status (*allgather)(void *context, const void *mine, void *all, size_t nbytes);
    /* This participant takes no part in the rounds that follow, and the others wait for it; the
     * last error says why. NULL: they learn it when `context` goes. */
    void (*give_up)(void *context, tt_status status);
    void *context;
    int64_t deadline_ns; /* for ranks of one host to attach to one another */
    int nparticipants;
    const uint8_t *key; /* [TT_KEY_BYTES] that the participants share */
    const int *
        members; /* [nranks] participant numbers of the new communicator's ranks; NULL: 0, 1, ... */
};

/* How every entry point ends: the public result of its status. The text of an argument error begins
 * with "function: " afterwards (NULL: it has its name). */
tuttiResult_t tt_result(const char *function, tt_status status);
/* The status of an entry point that the library itself has called. */
TT_NODISCARD tt_status tt_status_of(tuttiResult_t result);
/* TT_ERR_ARGUMENT: these are not an error and its text, for which a library over this one refuses.
 */
TT_NODISCARD tt_status tt_check_refusal(tuttiResult_t result, const char *text);
/* TT_OK when comm is a live communicator, also one that has failed, else TT_ERR_ARGUMENT. */
TT_NODISCARD tt_status tt_comm_check_handle(tuttiComm_t comm);

/* Reads config (may be NULL) over the parent's or the config table's values. TT_ERR_ARGUMENT for a
 * bad struct. */
TT_NODISCARD tt_status tt_comm_config_init(struct tt_comm_config *settings,
                                           const tuttiConfig_t *config,
                                           const struct tuttiComm *parent);
/* TT_ERR_USAGE where a deterministic communicator may not use the algorithm (NULL: none): names it
 * and those that may be used. */
TT_NODISCARD tt_status tt_comm_check_order(const struct tt_algorithm *algorithm,
                                           bool deterministic);
/* Logs at INFO what is left to choose from and what that costs, if comm is deterministic. */
void tt_comm_log_order(const struct tuttiComm *comm);
/* Where NCCL's variables count: rank 0 logs the version; later lines of the thread name the rank's
 * GPU. */
void tt_comm_log_begin(const struct tt_comm_config *config, int rank);
/* Where NCCL's variables count: logs at INFO what NCCL logs of a communicator that is complete. */
void tt_comm_log_complete(const struct tuttiComm *comm);
/* tuttiDescribeNcclSettings. */
void tt_describe_nccl(const struct tt_output *output);
/* From the config table and the settings. */
TT_NODISCARD tt_status tt_comm_links_init(struct tt_comm_links *links,
                                          const struct tt_comm_config *config);
/* Makes the communicator of rank `rank` of `nranks`; collective over the participants,
 * all of which fail together. A participant that is no member passes rank -1 and gets NULL. */
TT_NODISCARD tt_status tt_comm_assemble(tuttiComm_t *comm,
                                        const struct tt_participants *participants, int rank,
                                        int nranks, const struct tt_comm_config *config);
/* Should the process end before it is freed, the ranks of other hosts get what it has sent. */
void tt_comm_remember(tuttiComm_t comm);
/* The pre-multiplied sum of this handle; NULL: it was not made on this communicator, or destroyed.
 */
struct tt_dynamic_op *tt_comm_find_op(tuttiComm_t comm, int op);
void tt_comm_forget(tuttiComm_t comm);
/* Frees; nothing may be outstanding. NULL is allowed. */
void tt_comm_free(tuttiComm_t comm);
/* Whether this process is a child made by fork and its parent made the communicator. */
static inline bool tt_comm_is_inherited(const struct tuttiComm *comm)
{
    return comm->process != getpid();
}
/* Frees an inherited communicator: memory of this process. Neither waits for calls of the parent
 * nor changes what the parent shares with other ranks. */
void tt_comm_free_inherited(tuttiComm_t comm);

/* What the program of a call depends on. */
struct tt_selection {
    enum tt_collective collective;
    int root;
    size_t nbytes; /* of all blocks together */
    bool uneven;   /* a count for each rank */
    const struct tt_carrier *carrier;
};
/* The program for a call, from the cache or made now. Valid until the next tt_comm_select, and as
 * long as calls that use it are held or not done. */
TT_NODISCARD tt_status tt_comm_select(tuttiComm_t comm, const struct tt_selection *of,
                                      struct tt_cached **cached);
/* The program's binding to a count, remembered or made now. *resolved: its steps, for calls of the
 * host; NULL: there is no table. Valid as long as the program, and until the next tt_comm_bind
 * while no call that uses the program is held or not done. */
TT_NODISCARD tt_status tt_comm_bind(tuttiComm_t comm, struct tt_cached *cached, size_t count,
                                    size_t element, struct tt_binding *binding,
                                    const struct tt_step_table **resolved);
/* The program's binding to a count for each rank, made now. Freed by free(), or by the call that is
 * issued with it. */
TT_NODISCARD tt_status tt_comm_bind_counts(tuttiComm_t comm, const struct tt_cached *cached,
                                           const struct tt_counts *counts, size_t element,
                                           struct tt_binding **binding);

/* Frees all programs; no call may be outstanding. */
void tt_comm_forget_programs(tuttiComm_t comm);

/* Counts one more call of a kind. */
static inline void tt_count_call(tuttiCallCount_t *count, size_t nbytes)
{
    count->calls++;
    count->bytes += nbytes;
}

/* What tuttiCommRegister hands out. Owned by the communicator, until deregistered or freed with it.
 */
struct tt_registration {
    const void *memory;
    size_t nbytes;
    void *adopted; /* pages that became a window; NULL: none */
    void *carried; /* what the communicator's carrier of calls on GPUs has of it; NULL: nothing */
    struct tt_registration *next;
};
/* The registration is the first of the communicator's then. */
TT_NODISCARD tt_status tt_comm_register(tuttiComm_t comm, void *memory, size_t nbytes);
/* *link: one of the communicator's, which stays after an error. TIMEOUT: another process still has
 * the memory open. */
TT_NODISCARD tt_status tt_comm_deregister(tuttiComm_t comm, struct tt_registration **link);
/* Gives back all memory that is still registered. */
void tt_comm_deregister_all(tuttiComm_t comm);

/* Waits until nothing is outstanding. */
void tt_comm_drain(tuttiComm_t comm);
/* Waits until all calls that were entered (tt_core_enter_call) have been left. */
void tt_comm_await_calls(tuttiComm_t comm);

#endif
