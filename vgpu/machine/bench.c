/* Prints how many million instructions of threads the machine runs in a second: a kernel of 64
 * blocks of 256 threads that adds two buffers, with the memory model and without. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "builder.h"

enum { BLOCKS = 64, THREADS = 256, ROUNDS = 64 };

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* for (i = 0; i < ROUNDS; i++) out[g] = out[g] + out[g + n]: five instructions of memory and
 * control in eight. */
static void fold(struct builder *b)
{
    enum { X = R, Y = R + 1, I = R + 2, S = R + 3 };
    b_kernel(b);
    b_mov(b, I, b_k(b, 0));
    const uint32_t top = b_here(b);
    b_ld(b, VG_B32, VG_GLOBAL, X, MINE, 0);
    b_ld(b, VG_B32, VG_GLOBAL, Y, MINE, BLOCKS * THREADS * 4);
    b_alu(b, VG_ADD, VG_F32, S, X, Y)->round = VG_RN;
    b_alu(b, VG_ADD, VG_U32, I, I, b_k(b, 1));
    b_st(b, VG_B32, VG_GLOBAL, MINE, 0, S);
    b_setp(b, VG_LT, 0, I, b_k(b, ROUNDS));
    b_alu(b, VG_MUL, VG_F32, Y, Y, S)->round = VG_RN;
    b_bra(b, 0, false)->target = top;
    b_exit(b);
}

int main(void)
{
    for (int off = 1; off >= 0; off--) {
        struct builder *b = b_create();
        fold(b);
        b->settings.model.off = off != 0;
        double best = 0;
        for (int i = 0; i < 5; i++) {
            const double start = now();
            if (b_run(b, BLOCKS, THREADS) != VG_DONE) {
                fprintf(stderr, "vgpu-bench: %s\n", b->text);
                return EXIT_FAILURE;
            }
            const double rate = (double)b->counts.instructions / (now() - start) * 1e-6;
            best = rate > best ? rate : best;
        }
        printf("%s the model: %.0f million instructions of threads a second\n",
               off ? "without" : "with", best);
        b_destroy(b);
    }
    return EXIT_SUCCESS;
}
