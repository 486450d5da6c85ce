/* Ranks for tests that see the library from outside: as threads of this process, and as processes.
 */
#ifndef TT_TESTS_INTEGRATION_RANKS_H
#define TT_TESTS_INTEGRATION_RANKS_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "tutti.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { SANITIZED = 1 };
#else
enum { SANITIZED = 0 };
#endif

/* Initializes a tuttiConfig_t with deadlines of calls and of init, in milliseconds (0: none), and
 * with the fields that follow, as in .commName = "x". */
#define CONFIG_WITHIN(call_ms, init_ms, ...)                                                       \
    {                                                                                              \
        .size = sizeof(tuttiConfig_t), .magic = TUTTI_CONFIG_MAGIC, .version = TUTTI_VERSION_CODE, \
        .timeoutMs = (call_ms), .initTimeoutMs = (init_ms),                                        \
        .deterministic = TUTTI_CONFIG_UNDEF_INT, .device = TUTTI_CONFIG_UNDEF_INT, __VA_ARGS__     \
    }

/* Runs body(rank, comm, arg) in nranks threads and joins them; init and destroy are checked. config
 * may be NULL. */
void as_threads(int nranks, const tuttiConfig_t *config,
                void (*body)(int rank, tuttiComm_t comm, void *arg), void *arg);

/* TUTTI_TEST_SEED, or drawn; printed as "seed N (TUTTI_TEST_SEED=N repeats it)". */
uint64_t test_seed(void);
/* The next number of a sequence (splitmix64). */
uint64_t next_random(uint64_t *state);
/* Uniform in [0, n). */
int random_below(uint64_t *state, int n);

int64_t now_ms(void); /* monotonic */
int count_fds(void);  /* open descriptors of this process */

enum { MAX_JOB = 8, MAX_TEXT = 16384 };

/* Processes started as a launcher would, without any clean-up of a launcher. Caller's storage. */
struct job {
    int nranks;
    int holder; /* reserves the port */
    struct job_rank {
        pid_t pid;
        int pidfd;
        int ready;           /* reading end of its stdout */
        int log;             /* its stderr, a memfd */
        int64_t ended_ms;    /* when it was seen to have ended; 0: runs */
        int status;          /* as waitpid's */
        char text[MAX_TEXT]; /* stderr, when ended */
    } ranks[MAX_JOB];
};

/* Starts rank_program with the arguments (NULL-terminated) nranks times. prepare, if any, runs in
 * each child before exec. "NAME=VALUE" strings in extra (NULL-terminated, may be NULL) come on top
 * of the launcher's variables. */
bool job_start(struct job *job, int nranks, const char *const *args, const char *const *extra,
               void (*prepare)(void));
/* On several hosts, as far as the ranks know: one letter a rank names its host ("aab"). */
bool job_start_on(struct job *job, const char *hosts, const char *const *args,
                  const char *const *extra);
/* job_start_on, where prepare (may be NULL) runs in each child before exec. */
bool job_start_prepared(struct job *job, const char *hosts, const char *const *args,
                        const char *const *extra, void (*prepare)(void));
/* Waits until each rank has written a line to stdout. */
bool job_ready(struct job *job, int timeout_ms);
/* Waits for all; those that still run after timeout_ms are killed and make it false. Frees what the
 * job holds. */
bool job_wait(struct job *job, int timeout_ms);
/* All ranks exited with `status`; if not, records the failure with what the ranks said. */
void job_check_exit(const struct job *job, int status);

#endif
