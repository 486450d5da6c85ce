/* One situation of the conformance table: its rows are (situation, call, result). */
#ifndef GPU_PROBES_CALLS_H
#define GPU_PROBES_CALLS_H

#include "driver.h"

/* Prints a row for the call and returns its result. Texts must not hold quotes. */
CUresult say(const char *situation, const char *call, CUresult result);
#define SAY(situation, call) say(situation, #call, call)
/* A row with a value instead of a result. */
void say_value(const char *situation, const char *what, long long value);
void say_text(const char *situation, const char *what, const char *text);

/* The kernels of calls.cu, in the current context. */
CUfunction kernel_of(const char *name);
/* Launches one thread of a kernel. */
CUresult launch_one(CUfunction function, CUstream stream, void **arguments);
/* Launches `await` on the stream and returns when it runs; ends when *word is 1. */
void start_waiting(CUstream stream, volatile unsigned *word);

/* calls_memory.c, calls_capture.c */
void pointer_attributes(void);
void memory_errors(void);
void virtual_memory(void);
void pointer_costs(void);
void capture_modes(void);
void capture_events(void);
void capture_misuse(void);
void capture_nodes(void);
void graph_launches(void);

#endif
