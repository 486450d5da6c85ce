/* What the tests of streams, events and launches share: processes of their own, a context, kernels.
 *
 * A process whose kernel failed is lost, and settings are read once: each test is a process. */
#ifndef VGPU_DRIVER_RUN_TESTING_H
#define VGPU_DRIVER_RUN_TESTING_H

#include <cuda.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Runs the body in a child with these settings ("NAME=value", NULL-terminated; or NULL), with a
 * context of device 0 and the kernels loaded. Its exit status; the text is what was written to
 * standard error. Checks that failed there print, and fail the test here. -1: a signal ended it. */
int rt_run(const char *const settings[], void (*body)(void), char *text, size_t room);
/* The same where nothing is to be reported and no text matters. */
void rt_quiet(const char *const settings[], void (*body)(void));

/* Kernels of one thread. */
extern CUfunction rt_append; /* (log, id): log[++log[0]] = id; what is in log is in order */
extern CUfunction rt_await;  /* (word, value, then): waits until *word is value; *then = 1 */
extern CUfunction rt_set;    /* (word, value): a release */
extern CUfunction rt_turns;  /* (mine, theirs, n): n times *mine = i, then waits for *theirs >= i */
extern CUfunction rt_put;    /* (word, value): a weak store */
extern CUfunction rt_trap;   /* () */
extern CUfunction rt_nine;   /* (u8 a, u64 b, u32 c, out): out[0] = a, [1] = b, [2] = c as u64 */

CUresult rt_launch(CUfunction kernel, CUstream stream, void **params); /* one block of one thread */
CUstream rt_stream(unsigned flags);
CUdeviceptr rt_device(size_t nbytes);         /* zeroed */
volatile uint32_t *rt_mapped(size_t nbytes);  /* of the host, zeroed */
uint32_t rt_word(CUdeviceptr memory, int at); /* the at-th word, read by the host */

#endif
