/* Two processes on one GPU: what one of them notices when the other is killed or fails while a
 * kernel waits for a word in shared memory. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "shared.h"

enum { SIZE = 4 << 20 };
static enum manner manner;
static const char *fault;
static bool victim_waits; /* the failing process has a kernel that waits in its memory */

static const unsigned long long SECOND = 1000000000ull;

/* Shares its memory, launches a kernel that waits there, and is killed. */
static void victim(int socket, const char *name)
{
    (void)name;
    driver_open(true);
    CUdeviceptr memory = share(socket, manner, SIZE);
    unsigned *done = mapped_alloc(64);
    if (victim_waits) launch_side(NULL, memory + 4096, memory, 1, 1, 30 * SECOND, done, NULL);
    meet(socket);
    usleep(300000);
    kill(getpid(), SIGKILL);
}

/* Its kernel waits 2 s for a word in the victim's memory. */
static void survivor(int socket, const char *name)
{
    unsigned word = 0;
    char byte;
    driver_open(true);
    CUdeviceptr memory = take(socket, manner, SIZE);
    unsigned *done = mapped_alloc(64);
    done[0] = 77;
    launch_side(NULL, memory + 8192, memory, 1, 1, 2 * SECOND, done, NULL);
    meet(socket);
    const ssize_t got = read(socket, &byte, 1);
    const double begin = now_us();
    row_begin("shared", name);
    row_text("what", "the socket says that the peer is gone");
    row_number("bytes", (double)got);
    row_end();
    shared_result(name, "cuStreamQuery after the kill", cu.StreamQuery(NULL));
    shared_result(name, "cuStreamSynchronize of the kernel that waits", cu.StreamSynchronize(NULL));
    row_begin("shared", name);
    row_text("what", "the kernel that waited");
    row_number("done", done[0]);
    row_number("us_until_it_ended", now_us() - begin);
    row_end();
    shared_result(name, "cuMemsetD8 of the victim's memory", cu.MemsetD8(memory, 1, SIZE));
    shared_result(name, "cuMemcpyDtoH of the victim's memory", cu.MemcpyDtoH(&word, memory, 4));
    row_begin("shared", name);
    row_text("what", "word read");
    row_number("value", word);
    row_end();
    if (manner == BY_IPC) shared_result(name, "cuIpcCloseMemHandle", cu.IpcCloseMemHandle(memory));
    shared_result(name, "cuCtxSynchronize", cu.CtxSynchronize());
}

/* Fails in a kernel of its own while the peer's kernel runs. */
static void failing(int socket, const char *name)
{
    driver_open(true);
    CUdeviceptr memory = share(socket, manner, SIZE);
    CUmodule module = load_module("calls.fatbin");
    CUdeviceptr bad = memory + ((size_t)1 << 40);
    meet(socket);
    usleep(100000);
    CHECK(cu.LaunchKernel(get_function(module, fault), 1, 1, 1, 1, 1, 1, 0, NULL, (void *[]){&bad},
                          NULL));
    shared_result(name, "the failing process: cuCtxSynchronize", cu.CtxSynchronize());
    shared_result(name, "the failing process: cuMemsetD8", cu.MemsetD8(memory, 1, 4));
    meet(socket);
    meet(socket);
}

static void bystander(int socket, const char *name)
{
    unsigned word = 0;
    driver_open(true);
    CUdeviceptr memory = take(socket, manner, SIZE);
    unsigned *done = mapped_alloc(64);
    launch_side(NULL, memory + 8192, memory, 1, 1, SECOND, done, NULL);
    meet(socket);
    meet(socket);
    shared_result(name, "the other: cuStreamQuery", cu.StreamQuery(NULL));
    shared_result(name, "the other: cuCtxSynchronize", cu.CtxSynchronize());
    shared_result(name, "the other: cuMemcpyDtoH of the failed one's memory",
                  cu.MemcpyDtoH(&word, memory, 4));
    shared_result(name, "the other: cuMemsetD8 of the failed one's memory",
                  cu.MemsetD8(memory, 1, SIZE));
    shared_result(name, "the other: cuCtxSynchronize", cu.CtxSynchronize());
    meet(socket);
}

void shared_faults(void)
{
    char name[128];
    for (int m = 0; m < 2; m++)
        for (int waits = 0; waits < 2; waits++) {
            manner = (enum manner)m;
            victim_waits = waits;
            snprintf(name, sizeof name, "kill -9 of the owner of %s memory%s", manner_names[m],
                     waits ? ", whose kernel runs" : "");
            run_pair(name, victim, survivor);
        }
    static const char *const faults[] = {"fault_address", "fault_trap"};
    for (int f = 0; f < 2; f++) {
        manner = BY_IPC;
        fault = faults[f];
        snprintf(name, sizeof name, "%s in the process that owns the memory", fault);
        run_pair(name, failing, bystander);
    }
}
