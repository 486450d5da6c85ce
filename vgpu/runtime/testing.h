/* What the tests of libcudart.so.13 share: kernels and variables of PTX, registered as nvcc's code
 * registers those of a program. Bodies run in a child each (vgpu/driver/testing.h). */
#ifndef VGPU_RUNTIME_TESTING_H
#define VGPU_RUNTIME_TESTING_H

#include <vgpu/driver/testing.h>
#include <vgpu/runtime/runtime.h>

#define FINE(call) CHECK_EQ(call, cudaSuccess)

/* Host functions and variables; only their addresses matter. */
extern char rt_add;     /* (at, value): at[thread] += value */
extern char rt_trap;    /* () */
extern char rt_counter; /* (out): *out = the variable, which grows by 1 */
extern char rt_await;   /* (word): waits until *word is not 0 */
extern char rt_meet;   /* (out): all blocks meet in the grid's workspace; out[block] = how many were
                          there; only for cooperative launches */
extern char rt_big;    /* (): 1,000 bytes of shared memory */
extern char rt_absent; /* registered, but not in the PTX */
extern char rt_variable; /* stands for a variable of the kernels: the numbers 7, 8, 9 and 10 */

void rt_register(void);
/* Runs the body in a child on two GPUs, where the kernels are registered, and expects no report. */
void rt_run(void (*body)(void));
/* As rt_run, whatever the child reports: its exit status, and its standard error in text. */
int rt_run_text(void (*body)(void), char *text, size_t room);

/* <<<grid, block, 0, stream>>> of kernels of one block dimension, as nvcc's code makes it. */
cudaError_t rt_launch(const char *kernel, unsigned grid, unsigned block, cudaStream_t stream,
                      void **args);
/* Device memory of zeros. */
uint32_t *rt_words(size_t count);
/* What is in the word, after all work of the device has ended. */
uint32_t rt_word(const uint32_t *memory);

#endif
