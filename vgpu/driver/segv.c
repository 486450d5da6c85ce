/* The handler of SIGSEGV: says which allocation a host access to device memory hit, then does what
 * would have been done without it.
 *
 * The handler takes no lock and calls only what a signal handler may: structures about memory are
 * never given back to the system, so reading one that changes is harmless. */
#include "memory_internal.h"

#include <signal.h>
#include <string.h>
#include <ucontext.h>
#include <unistd.h>

static struct sigaction before;

struct line {
    char text[512];
    size_t n;
};

static void add(struct line *line, const char *text)
{
    while (*text != 0 && line->n < sizeof line->text) line->text[line->n++] = *text++;
}

static void add_number(struct line *line, uint64_t value, unsigned base)
{
    char digits[24];
    size_t n = sizeof digits;
    digits[--n] = 0;
    do {
        digits[--n] = "0123456789abcdef"[value % base];
        value /= base;
    } while (value != 0);
    if (base == 16) add(line, "0x");
    add(line, digits + n);
}

static void add_memory(struct line *line, const struct vd_memory *memory, uint64_t address)
{
    add(line, ", offset ");
    add_number(line, address - memory->region.address, 10);
    add(line, " of ");
    add(line, memory->region.what != NULL ? memory->region.what : "memory");
    add(line, " (allocation ");
    add_number(line, memory->region.number, 10);
    add(line, ", ");
    add_number(line, memory->nbytes, 10);
    add(line, " bytes");
    if (memory->device >= 0) {
        add(line, " on GPU ");
        add_number(line, (uint64_t)memory->device, 10);
    }
    add(line, memory->region.freed ? ", freed)" : ")");
}

static const struct vd_memory *holder_of(uint64_t address)
{
    const struct vd_memory *memory, *freed = NULL;
    for (uint64_t n = 0; (memory = vd_memory_nth(n)) != NULL; n++) {
        if (address - memory->region.address >= memory->region.nbytes) continue;
        if (!memory->region.freed) return memory;
        freed = memory;
    }
    return freed;
}

static void explain(uint64_t address, const ucontext_t *context)
{
    const struct vd_memory *memory = holder_of(address);
    struct line line = {.n = 0};
    if (memory == NULL && !vd_address_reserved(address)) return;
    add(&line, "vgpu: the host ");
#ifdef __x86_64__
    add(&line, (context->uc_mcontext.gregs[REG_ERR] & 2) != 0 ? "writes" : "reads");
#else
    (void)context;
    add(&line, "accesses");
#endif
    add(&line, " address ");
    add_number(&line, address, 16);
    if (memory != NULL) add_memory(&line, memory, address);
    if (!vd_address_reserved(address))
        add(&line, ": the memory was unmapped or protected while CUDA knew it; call "
                   "cuMemHostUnregister or cuMemFreeHost first\n");
    else if (memory == NULL)
        add(&line, ": a device address, of no allocation\n");
    else
        add(&line, ": the host cannot access device memory; copy it with cuMemcpy\n");
    const ssize_t written = write(STDERR_FILENO, line.text, line.n);
    (void)written;
}

static void handle(int signal, siginfo_t *info, void *context)
{
    if (info->si_code > 0) explain((uint64_t)(uintptr_t)info->si_addr, context);
    if ((before.sa_flags & SA_SIGINFO) != 0) {
        before.sa_sigaction(signal, info, context);
    } else if (before.sa_handler == SIG_DFL || before.sa_handler == SIG_IGN) {
        /* The access is repeated when the handler returns, and ends the process as usual. */
        struct sigaction usual = {.sa_handler = SIG_DFL};
        sigaction(signal, &usual, NULL);
        if (info->si_code <= 0) raise(signal);
    } else {
        before.sa_handler(signal);
    }
}

void vd_segv_install(void)
{
    static bool installed;
    struct sigaction action = {.sa_sigaction = handle, .sa_flags = SA_SIGINFO | SA_ONSTACK};
    if (installed) return;
    installed = true;
    sigemptyset(&action.sa_mask);
    sigaction(SIGSEGV, &action, &before);
}
