/* Errors of the trainer: 0 is done, negative is an error whose story is in tr_error(). TR_FAILED:
 * of this rank; others may not know. TR_AGREED: every rank knows that the run has failed, and this
 * one tells the story; TR_ELSEWHERE: another one does. */
#ifndef TR_STATUS_H
#define TR_STATUS_H

#include <stdbool.h>

typedef int tr_status;
enum { TR_OK = 0, TR_FAILED = -1, TR_ELSEWHERE = -2, TR_AGREED = -3 };

/* Whether every rank knows of the failure. */
static inline bool tr_is_agreed(tr_status status)
{
    return status == TR_AGREED || status == TR_ELSEWHERE;
}

#define TR_NODISCARD __attribute__((warn_unused_result))

/* Passes a failure on. */
#define TR_TRY(expr)                                                                               \
    do {                                                                                           \
        const tr_status tr_try_status = (expr);                                                    \
        if (tr_try_status < 0) return tr_try_status;                                               \
    } while (0)

/* Keeps the message as this thread's last error and returns TR_FAILED. The one who detects calls
 * it: the value, what was expected, how to mend it. */
tr_status tr_fail(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* This thread's last error; "" when there was none. Valid until the next tr_fail. */
const char *tr_error(void);

#endif
