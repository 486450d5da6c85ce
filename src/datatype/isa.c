/* Finds the kernels that this CPU runs, and chooses those in use. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#if defined(__x86_64__)
#include <cpuid.h>
#endif

#include "base/config.h"
#include "base/log.h"
#include "base/sanitizers.h"
#include "datatype/datatype.h"
#include "datatype/kernels.h"

static pthread_once_t once = PTHREAD_ONCE_INIT;
static const struct tt_kernels *_Atomic in_use; /* written once */
static char found[160];                         /* written before in_use */
_Atomic bool tt_copies_by_rep_movsb;

#if defined(__x86_64__)
enum { NSETS = 3 };
static const struct tt_kernels *const sets[NSETS] = {&tt_kernels_scalar, &tt_kernels_avx2,
                                                     &tt_kernels_avx512};

/* Tests a CPUID bit that __builtin_cpu_supports does not know. The test for AVX covers whether the
 * system saves the registers. */
static bool has_bit(unsigned leaf, unsigned subleaf, int reg, int bit)
{
    unsigned regs[4] = {0};
    if (!__get_cpuid_count(leaf, subleaf, &regs[0], &regs[1], &regs[2], &regs[3])) return false;
    return regs[reg] >> bit & 1;
}

enum { EAX, EBX, ECX, EDX };

static bool has_avx2(void)
{
    return __builtin_cpu_supports("avx2") && has_bit(1, 0, ECX, 29); /* F16C */
}

static bool has_avx512(void)
{
    return has_avx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
}

static bool has_erms(void)
{
    return has_bit(7, 0, EBX, 9);
}

/* Intel's copy of a string does not read the lines that it writes: of 4 to 256 KiB between two
 * cores it takes 0.81 to 0.93 of the time of a loop. AMD's takes longer than a loop
 * (docs/performance.md). */
static bool has_fast_rep_movsb(void)
{
#if defined(TT_ADDRESS_SANITIZER) || defined(TT_THREAD_SANITIZER)
    return false; /* sanitizers do not see what it reads and writes */
#endif
    __builtin_cpu_init();
    return __builtin_cpu_is("intel") && has_erms();
}

static bool runs_on_this_cpu(int index)
{
    __builtin_cpu_init();
    return index == 0 || (index == 1 && has_avx2()) || (index == 2 && has_avx512());
}

static void find_features(void)
{
    const struct {
        const char *name;
        bool has;
    } features[] = {
        {"avx2", __builtin_cpu_supports("avx2")},
        {"f16c", has_bit(1, 0, ECX, 29)},
        {"avx512f", __builtin_cpu_supports("avx512f")},
        {"avx512bw", __builtin_cpu_supports("avx512bw")},
        {"avx512dq", __builtin_cpu_supports("avx512dq")},
        {"avx512vl", __builtin_cpu_supports("avx512vl")},
        {"avx512_bf16", has_bit(7, 1, EAX, 5)},
        {"avx512_fp16", has_bit(7, 0, EDX, 23)},
        {"erms", has_erms()},
    };
    for (size_t i = 0; i < sizeof features / sizeof features[0]; i++) {
        if (!features[i].has) continue;
        const size_t used = strlen(found);
        snprintf(found + used, sizeof found - used, "%s%s", used ? " " : "", features[i].name);
    }
}
#else
enum { NSETS = 1 };
static const struct tt_kernels *const sets[NSETS] = {&tt_kernels_scalar};

static bool runs_on_this_cpu(int index)
{
    return index == 0;
}

static bool has_fast_rep_movsb(void)
{
    return false;
}

static void find_features(void) {}
#endif

const struct tt_kernels *tt_kernels_get(int index, bool *runs)
{
    if (index < 0 || index >= NSETS) return NULL;
    *runs = runs_on_this_cpu(index);
    return sets[index];
}

const struct tt_kernels *tt_kernels_choose(const char *mask)
{
    const struct tt_kernels *best = &tt_kernels_scalar;
    bool known = mask[0] == '\0' || strcmp(mask, "avx2") == 0 || strcmp(mask, "avx512") == 0;
    for (int i = 0; i < NSETS; i++) {
        if (runs_on_this_cpu(i)) best = sets[i];
        if (strcmp(mask, sets[i]->name) != 0) continue;
        known = true;
        break;
    }
    if (!known)
        TT_WARN("TUTTI_CPU is \"%s\"; expected scalar, avx2, avx512 or nothing; it is ignored and "
                "%s is used",
                mask, best->name);
    return best;
}

static void choose_once(void)
{
    find_features();
    const struct tt_kernels *best = tt_kernels_choose(tt_config_string(TT_CONFIG_CPU));
    const bool by_string = best != &tt_kernels_scalar && has_fast_rep_movsb();
    atomic_store_explicit(&tt_copies_by_rep_movsb, by_string, memory_order_relaxed);
    atomic_store_explicit(&in_use, best, memory_order_release); /* I1 */
}

const struct tt_kernels *tt_kernels_in_use(void)
{
    const struct tt_kernels *kernels = atomic_load_explicit(&in_use, memory_order_acquire); /* I1 */
    if (__builtin_expect(kernels != NULL, 1)) return kernels;
    pthread_once(&once, choose_once);
    return atomic_load_explicit(&in_use, memory_order_acquire);
}

const char *tt_isa_in_use(void)
{
    return tt_kernels_in_use()->name;
}

const char *tt_isa_found(void)
{
    tt_kernels_in_use();
    return found;
}
