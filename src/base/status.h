/* Status codes and the one place where errors are recorded. */
#ifndef TT_BASE_STATUS_H
#define TT_BASE_STATUS_H

#include <assert.h>

/* 0: done, > 0: in progress, < 0: failed. The public face maps these to tuttiResult_t. */
typedef int tt_status;

/* On every function that returns a tt_status. */
#define TT_NODISCARD __attribute__((warn_unused_result))

enum {
    TT_OK = 0,
    TT_IN_PROGRESS = 1,
    TT_ERR_DEVICE = -1, /* a GPU or its driver failed */
    TT_ERR_SYSTEM = -2,
    TT_ERR_INTERNAL = -3,
    TT_ERR_ARGUMENT = -4,
    TT_ERR_USAGE = -5,
    TT_ERR_REMOTE = -6,
    TT_ERR_TIMEOUT = -8,
};

enum { TT_ERROR_TEXT = 1024 };

/* Records the message as this thread's last error, logs it once at WARN with the place, returns
 * `code`. Called by the one who detects; callers only pass the code on. */
#define tt_fail(code, ...) tt_fail_at(__FILE__, __LINE__, (code), __VA_ARGS__)
/* tt_fail with TT_ERR_SYSTEM and a text to which ": strerror(error) (errno error)" is appended. */
#define tt_fail_errno(error, ...) tt_fail_errno_at(__FILE__, __LINE__, (error), __VA_ARGS__)

tt_status tt_fail_at(const char *file, int line, int code, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
tt_status tt_fail_errno_at(const char *file, int line, int error, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

/* This thread's last error text, "" when there was none. Valid until the thread's next failure. */
const char *tt_last_error(void);

/* Replaces this thread's last error without logging (to carry a text from another thread or rank).
 */
void tt_set_last_error(const char *text);

/* Ignores a status on purpose: the failure is recorded already, or the next read or wait shows it.
 */
static inline void tt_ignore(tt_status status)
{
    (void)status;
}

/* Passes a failure on. `expr` is never TT_IN_PROGRESS. Only where no resources are held. */
#define TT_TRY(expr)                                                                               \
    do {                                                                                           \
        const int tt_try_status = (expr);                                                          \
        assert(tt_try_status <= TT_OK);                                                            \
        if (tt_try_status != TT_OK) return tt_try_status;                                          \
    } while (0)

/* Passes a failure or TT_IN_PROGRESS on: the function is called again when something may have
 * moved, and goes on here. Only where no resources are held. */
#define TT_AWAIT(expr)                                                                             \
    do {                                                                                           \
        const int tt_await_status = (expr);                                                        \
        if (tt_await_status != TT_OK) return tt_await_status;                                      \
    } while (0)

#endif
